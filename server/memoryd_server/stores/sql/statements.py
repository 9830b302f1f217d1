"""The statements, written in SQLAlchemy Core and compiled once for the dialect of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    ColumnElement,
    Dialect,
    Insert,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import sqlite

from memoryd_server.stores.records import Role, Usability
from memoryd_server.stores.sql.rows import AGENT_COLUMNS, ENTRY_COLUMNS, LOOKUP_COLUMNS, MESSAGE_COLUMNS
from memoryd_server.stores.sql.schema import agents, lookups, messages, meta, sessions

LIST_SIZES: Final = (1, 4, 16, 64, 256)
"""The lengths of lists of values that texts exist for: a list is filled up to the next of them, a longer one is cut."""

KEY: Final = ("tenant", "agent", "session_id")
RECORD: Final = ("incarnation", "version", "activity", "user_id", "removed_at", "record")

Value = TypeVar("Value")


def compile_once(dialect: Dialect, statement: ClauseElement, *parameters: str) -> str:
    """The SQL text of a Core statement, for the driver's own connection: what SQLAlchemy does for each execution takes
    longer than what SQLite does.

    `parameters` names the values in the order in which callers pass them. Raises: ValueError if the text has another.
    """
    compiled: Any = statement.compile(dialect=dialect)
    if tuple(compiled.positiontup) != parameters:
        raise ValueError(f"the parameters are {compiled.positiontup}, not {parameters}, in {compiled}")
    return str(compiled)


class ListStatement:
    """A statement that is restricted to a list of values, which are its last parameters."""

    __slots__ = ("variants",)

    def __init__(self, dialect: Dialect, statement: Select[Any], column: ColumnElement[Any], *parameters: str) -> None:
        self.variants: list[tuple[int, str]] = []
        for size in LIST_SIZES:
            names = [f"value_{index}" for index in range(size)]
            restricted = statement.where(column.in_([bindparam(name) for name in names]))
            self.variants.append((size, compile_once(dialect, restricted, *parameters, *names)))

    def runs(self, values: Sequence[Value]) -> Iterator[tuple[str, list[Value]]]:
        """The texts to run, each with its list of values, so that together they cover all values once."""
        longest = LIST_SIZES[-1]
        for start in range(0, len(values), longest):
            part = list(values[start : start + longest])
            size, sql = next(variant for variant in self.variants if variant[0] >= len(part))
            yield sql, part + part[-1:] * (size - len(part))


class Statements:
    """The SQL texts. Values are passed in the order of the names given here."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: ClauseElement, *parameters: str) -> str:
            return compile_once(dialect, statement, *parameters)

        s, m, look, a = sessions.c, messages.c, lookups.c, agents.c

        # Sessions
        of_key = [s[name] == bindparam(name) for name in KEY]
        of_session = s.id == bindparam("session")
        self.session = compiled(select(s.id, s.life, s.record).where(*of_key), *KEY)
        self.session_state = compiled(select(s.id, s.life, s.incarnation, s.version).where(*of_key), *KEY)
        self.insert_session = compiled(_insert(sessions, *KEY, "life", *RECORD), *KEY, "life", *RECORD)
        self.update_session = compiled(update(sessions).where(of_session).values(_values(RECORD)), *RECORD, "session")
        # The usual change: no index knows of it.
        self.update_record = compiled(
            update(sessions).where(of_session).values(_values(("version", "record"))), "version", "record", "session"
        )
        self.list_purgeable = compiled(
            _first(select(s.tenant, s.agent, s.session_id).where(s.removed_at < bindparam("before"))).order_by(
                s.removed_at, s.id
            ),
            "before",
            "limit",
        )
        listed = _first(
            select(s.activity, s.id, s.tenant, s.agent, s.session_id, s.record)
            .where(
                s.tenant == bindparam("tenant"),
                tuple_(s.activity, s.id) < tuple_(bindparam("activity"), bindparam("id")),
            )
            .order_by(s.activity.desc(), s.id.desc())
        )
        place = ("tenant", "activity", "id")
        of_agent, of_user = s.agent == bindparam("agent"), s.user_id == bindparam("user_id")
        # The sessions of a user are few, those of an agent many: the expression keeps the agent's index out of it.
        of_agent_too = s.agent.concat(literal_column("''")) == bindparam("agent")
        self.list_sessions_of_tenant = compiled(listed, *place, "limit")
        self.list_sessions_of_agent = compiled(listed.where(of_agent), *place, "agent", "limit")
        self.list_sessions_of_user = compiled(listed.where(of_user), *place, "user_id", "limit")
        self.list_sessions_of_user_and_agent = compiled(
            listed.where(of_user, of_agent_too), *place, "user_id", "agent", "limit"
        )

        # Messages
        entry_columns = [m[name] for name in ENTRY_COLUMNS]
        message_columns = [m[name] for name in MESSAGE_COLUMNS]
        of_life = (m.session == bindparam("session"), m.life == bindparam("life"))
        life = ("session", "life")
        seqs = (m.seq >= bindparam("low"), m.seq <= bindparam("high"))

        def backwards(columns: list[Any]) -> str:
            heads = (m.head >= bindparam("low"), m.head <= bindparam("high"))
            statement = select(*columns).where(*of_life, m.usability == bindparam("usability"), *heads)
            order = (m.head.desc(), m.position.desc(), m.seq.desc())
            return compiled(statement.order_by(*order), *life, "usability", "low", "high")

        self.entries_backwards = backwards(entry_columns)
        self.messages_backwards = backwards(message_columns)
        self.entries = compiled(select(*entry_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.messages = compiled(select(*message_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.messages_by_seq = ListStatement(dialect, select(*message_columns).where(*of_life), m.seq, *life)
        roles = tuple(f"role_{role.value}" for role in Role)
        filters = [
            m.role.in_([bindparam(name) for name in roles]),
            m.created >= bindparam("from_time"),
            m.created < bindparam("to_time"),
        ]
        of_run = m.run_id == bindparam("run_id")

        def matching(columns: list[Any], *, descending: bool, by_run: bool) -> str:
            statement = select(*columns).where(*of_life, *seqs, *filters, *([of_run] if by_run else []))
            order = m.seq.desc() if descending else m.seq
            parameters = ("low", "high", *roles, "from_time", "to_time", *(["run_id"] if by_run else []))
            return compiled(statement.order_by(order), *life, *parameters)

        variants = [(descending, by_run) for descending in (False, True) for by_run in (False, True)]
        self.matching_entries, self.matching_messages = (
            {
                (descending, by_run): matching(columns, descending=descending, by_run=by_run)
                for descending, by_run in variants
            }
            for columns in (entry_columns, message_columns)
        )
        self.insert_message = compiled(_insert(messages, *messages.c.keys()), *messages.c.keys())
        self.complete_group = compiled(
            update(messages)
            .where(*of_life, m.usability == literal_column(str(Usability.OPEN.value)), m.head == bindparam("group"))
            .values(usability=literal_column(str(Usability.USABLE.value))),
            *life,
            "group",
        )
        oldest = _first(select(m.seq).where(*of_life, *seqs).order_by(m.seq)).subquery()
        self.last_to_purge = compiled(select(func.max(oldest.c.seq)), *life, "low", "high", "limit")
        self.purge = compiled(delete(messages).where(*of_life, *seqs), *life, "low", "high")

        # Look-ups
        self.lookups_by_id = ListStatement(
            dialect,
            select(*(look[name] for name in LOOKUP_COLUMNS)).where(
                look.session == bindparam("session"), look.kind == bindparam("kind")
            ),
            look.id,
            "session",
            "kind",
        )
        self.insert_lookup = compiled(_insert(lookups, "session", *LOOKUP_COLUMNS), "session", *LOOKUP_COLUMNS)

        # Agents
        agent_columns = [a[name] for name in AGENT_COLUMNS]
        self.agent = compiled(
            select(*agent_columns).where(a.tenant == bindparam("tenant"), a.agent == bindparam("agent")),
            "tenant",
            "agent",
        )
        self.list_agents = compiled(
            _first(
                select(*agent_columns).where(a.tenant == bindparam("tenant"), a.agent > bindparam("after"))
            ).order_by(a.agent),
            "tenant",
            "after",
            "limit",
        )
        self.add_agent = compiled(
            sqlite.insert(agents).values(_values(AGENT_COLUMNS)).on_conflict_do_nothing(), *AGENT_COLUMNS
        )
        self.update_agent = compiled(
            update(agents)
            .where(
                a.tenant == bindparam("of_tenant"),
                a.agent == bindparam("of_agent"),
                a.version == bindparam("expected"),
            )
            .values(_values(("version", "updated", "policy"))),
            *("version", "updated", "policy", "of_tenant", "of_agent", "expected"),
        )

        # The database itself
        self.value = compiled(select(meta.c.value).where(meta.c.name == bindparam("name")), "name")
        self.insert_value = compiled(_insert(meta, "name", "value"), "name", "value")


def _values(names: Sequence[str]) -> dict[str, BindParameter[Any]]:
    return {name: bindparam(name) for name in names}


def _insert(table: Table, *names: str) -> Insert:
    return insert(table).values(_values(names))


def _first(statement: Select[Any]) -> Select[Any]:
    """Only the first `limit` rows. Without the offset, SQLAlchemy would add a parameter for it."""
    return statement.limit(bindparam("limit")).offset(literal_column("0"))

"""The statements, written in SQLAlchemy Core and compiled once for the dialect of the database."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ClauseElement,
    ColumnElement,
    Dialect,
    Insert,
    Select,
    Table,
    and_,
    any_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from memoryd_server.stores.records import Role, Usability
from memoryd_server.stores.sql.rows import (
    AGENT_COLUMNS,
    CHANGING_COLUMNS,
    ENTRY_COLUMNS,
    EVENT_COLUMNS,
    LOOKUP_COLUMNS,
    MESSAGE_COLUMNS,
    RECORD_COLUMNS,
    REPLACED_COLUMNS,
    STORED_COLUMNS,
    STORED_LOOKUP_COLUMNS,
    SUMMARY_COLUMNS,
    UNDOABLE_ENTRY_COLUMNS,
    LeftoverKind,
)
from memoryd_server.stores.sql.schema import (
    agents,
    dead_names,
    events,
    leases,
    leftovers,
    lookups,
    messages,
    meta,
    metadata,
    sessions,
    summaries,
)

LIST_SIZES: Final = (1, 4, 16, 64, 256)
"""The lengths of lists of values that texts exist for: a list is filled up to the next of them, a longer one is cut."""

KEY: Final = ("tenant", "agent", "session_id")

ALL: Final = sys.maxsize
"""The limit of a statement that is to answer all there is, or that the reader ends where it likes."""

_SINCE_EPOCH: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
MYSQL: Final = ("mysql", "mariadb")
"""The dialects of MySQL and MariaDB."""

CLOCKS: Final = {
    # To the millisecond, which no reader of it compares with a finer one.
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "mysql": _SINCE_EPOCH,
    "mariadb": _SINCE_EPOCH,
}
"""The database's time in microseconds since the Unix epoch, by dialect."""

Value = TypeVar("Value")


def compile_once(dialect: Dialect, statement: ClauseElement, *parameters: str) -> str:
    """The SQL text of a Core statement, for the driver's own connection: what SQLAlchemy does for each execution takes
    longer than what SQLite does.

    `parameters` names the values in the order in which callers pass them. Raises: ValueError if the text has another.
    """
    compiled: Any = statement.compile(dialect=dialect)
    found = tuple(compiled.positiontup)
    if dialect.paramstyle == "numeric_dollar" and set(found) == set(parameters):
        # Numbered parameters may stand in any order in the text.
        return re.sub(r"\$(\d+)", lambda number: f"${parameters.index(found[int(number[1]) - 1]) + 1}", str(compiled))
    if found != parameters:
        raise ValueError(f"the parameters are {found}, not {parameters}, in {compiled}")
    return str(compiled)


class ListStatement:
    """A statement that is restricted to a list of values, which are its last parameters: one array where the database
    has arrays, otherwise one parameter each.
    """

    __slots__ = ("takes_arrays", "variants")

    def __init__(self, dialect: Dialect, statement: Select[Any], column: ColumnElement[Any], *parameters: str) -> None:
        self.variants: list[tuple[int, str]] = []
        self.takes_arrays = dialect.name == "postgresql"
        if self.takes_arrays:
            values = bindparam("values", type_=ARRAY(column.type))
            sql = compile_once(dialect, statement.where(column == any_(values)), *parameters, "values")
            self.variants.append((ALL, sql))
            return
        for size in LIST_SIZES:
            names = [f"value_{index}" for index in range(size)]
            restricted = statement.where(column.in_([bindparam(name) for name in names]))
            self.variants.append((size, compile_once(dialect, restricted, *parameters, *names)))

    def runs(self, values: Sequence[Value]) -> Iterator[tuple[str, list[Any]]]:
        """The texts to run, each with its last parameters, so that together they cover all values once."""
        if self.takes_arrays:
            if values:
                yield self.variants[0][1], [list(values)]
            return
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

        # The store's time, in microseconds since the Unix epoch
        self.now = f"SELECT {CLOCKS[dialect.name]}"

        # Sessions
        of_key = [s[name] == bindparam(name) for name in KEY]
        of_session = s.id == bindparam("session")
        self.session = compiled(select(s.id, s.life, s.record, s.open_calls).where(*of_key), *KEY)
        self.session_number = compiled(select(s.id).where(*of_key), *KEY)
        self.session_state = compiled(
            select(s.id, s.life, s.incarnation, s.version).where(*of_key).with_for_update(), *KEY
        )
        born = _insert(sessions, *KEY, "life", *RECORD_COLUMNS)
        if dialect.name == "postgresql":
            born = born.returning(s.id)
        self.insert_session = compiled(born, *KEY, "life", *RECORD_COLUMNS)
        self.update_session = compiled(
            update(sessions).where(of_session).values(_values(RECORD_COLUMNS)), *RECORD_COLUMNS, "session"
        )
        # The usual change.
        self.update_record = compiled(
            update(sessions).where(of_session).values(_values(CHANGING_COLUMNS)), *CHANGING_COLUMNS, "session"
        )
        self.begin_life = compiled(
            update(sessions).where(of_session).values(_values(("life", *RECORD_COLUMNS))),
            *("life", *RECORD_COLUMNS, "session"),
        )
        self.renumber_session = compiled(
            update(sessions).where(of_session).values(id=bindparam("number"), life=bindparam("life")),
            *("number", "life", "session"),
        )
        self.name_session = compiled(
            update(sessions).where(of_session).values(_values((*KEY, *RECORD_COLUMNS))),
            *(*KEY, *RECORD_COLUMNS, "session"),
        )
        self.delete_session = compiled(delete(sessions).where(of_session), "session")

        self._names_places_twice = dialect.name in MYSQL

        def due(column: ColumnElement[Any], *owner: str) -> str:
            after: BindParameter[int] = bindparam("after")
            id_: BindParameter[int] = bindparam("id")
            behind = (
                and_(column >= after, or_(column > after, s.id > id_))
                if self._names_places_twice
                else tuple_(column, s.id) > tuple_(after, id_)
            )
            statement = select(column, s.id, s.tenant, s.agent, s.session_id).where(
                *(s[name] == bindparam(name) for name in owner), column < bindparam("before"), behind
            )
            if owner:
                statement = _led_by(statement, sessions, "memoryd_sessions_foldable")
            place = self.place("after", "id")
            return compiled(_first(statement).order_by(column, s.id), *owner, "before", *place, "limit")

        self.list_purgeable = due(s.removed_at)
        self.list_expiring = due(s.expires_at)
        self.list_folds = due(s.fold_at, "tenant", "agent")
        activity: BindParameter[int] = bindparam("activity")
        id_: BindParameter[int] = bindparam("id")
        behind = (
            and_(s.activity <= activity, or_(s.activity < activity, s.id < id_))
            if self._names_places_twice
            else tuple_(s.activity, s.id) < tuple_(activity, id_)
        )
        listed = _first(
            select(s.activity, s.id, s.tenant, s.agent, s.session_id, s.record, s.open_calls)
            .where(s.tenant == bindparam("tenant"), behind)
            .order_by(s.activity.desc(), s.id.desc())
        )
        place = ("tenant", *self.place("activity", "id"))
        # As the indexes of tenants and agents say of their rows (`schema`): those of stagings are none of them.
        listed_by_name = s.tenant != literal_column("''")
        of_agent, of_user = s.agent == bindparam("agent"), s.user_id == bindparam("user_id")
        # The sessions of a user are few, those of an agent many: the expression keeps the agent's index out of it.
        of_agent_too = s.agent.concat(literal_column("''")) == bindparam("agent")
        by_tenant, by_agent, by_user = (
            _led_by(listed, sessions, f"memoryd_sessions_of_{owner}") for owner in ("tenant", "agent", "user")
        )
        self.list_sessions_of_tenant = compiled(by_tenant.where(listed_by_name), *place, "limit")
        self.list_sessions_of_agent = compiled(by_agent.where(listed_by_name, of_agent), *place, "agent", "limit")
        self.list_sessions_of_user = compiled(by_user.where(of_user), *place, "user_id", "limit")
        self.list_sessions_of_user_and_agent = compiled(
            by_user.where(of_user, of_agent_too), *place, "user_id", "agent", "limit"
        )

        # Messages
        entry_columns = [m[name] for name in ENTRY_COLUMNS]
        message_columns = [m[name] for name in MESSAGE_COLUMNS]
        of_life = (m.session == bindparam("session"), m.life == bindparam("life"))
        life = ("session", "life")
        seqs = (m.seq >= bindparam("low"), m.seq <= bindparam("high"))

        def in_reading_order(columns: list[Any], *order: ColumnElement[Any]) -> str:
            heads = (m.head >= bindparam("low"), m.head <= bindparam("high"))
            statement = select(*columns).where(*of_life, m.usability == bindparam("usability"), *heads)
            statement = _led_by(statement, messages, "memoryd_messages_in_reading_order")
            return compiled(_first(statement.order_by(*order)), *life, "usability", "low", "high", "limit")

        self.entries_backwards = in_reading_order(entry_columns, m.head.desc(), m.position.desc(), m.seq.desc())
        self.messages_backwards = in_reading_order(message_columns, m.head.desc(), m.position.desc(), m.seq.desc())
        self.entries_forwards = in_reading_order(entry_columns, m.head, m.position, m.seq)
        self.entries = compiled(select(*entry_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.messages = compiled(select(*message_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.undoable_entries_backwards = compiled(
            _first(select(*(m[name] for name in UNDOABLE_ENTRY_COLUMNS)).where(*of_life, *seqs).order_by(m.seq.desc())),
            *(*life, "low", "high", "limit"),
        )
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
            parameters = ("low", "high", *roles, "from_time", "to_time", *(["run_id"] if by_run else []), "limit")
            return compiled(_first(statement.order_by(order)), *life, *parameters)

        variants = [(descending, by_run) for descending in (False, True) for by_run in (False, True)]
        self.matching_entries, self.matching_messages = (
            {
                (descending, by_run): matching(columns, descending=descending, by_run=by_run)
                for descending, by_run in variants
            }
            for columns in (entry_columns, message_columns)
        )
        self.insert_message = compiled(_insert(messages, *STORED_COLUMNS), *STORED_COLUMNS)
        self.add_message = compiled(_insert_new(dialect, messages, *STORED_COLUMNS), *STORED_COLUMNS)
        self.replace_message = compiled(
            update(messages).where(*of_life, m.seq == bindparam("at")).values(_values(REPLACED_COLUMNS)),
            *(*REPLACED_COLUMNS, *life, "at"),
        )

        def turn_group(before: Usability, after: Usability) -> str:
            return compiled(
                update(messages)
                .where(*of_life, m.usability == literal_column(str(before.value)), m.head == bindparam("group"))
                .values(usability=literal_column(str(after.value))),
                *(*life, "group"),
            )

        self.complete_group = turn_group(Usability.OPEN, Usability.USABLE)
        self.reopen_group = turn_group(Usability.USABLE, Usability.OPEN)
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
        self.lookups_after = compiled(
            _first(
                select(*(look[name] for name in LOOKUP_COLUMNS))
                .where(
                    look.session == bindparam("session"),
                    look.kind == bindparam("kind"),
                    look.id > bindparam("after"),
                )
                .order_by(look.id)
            ),
            *("session", "kind", "after", "limit"),
        )
        self.insert_lookup = compiled(_insert(lookups, *STORED_LOOKUP_COLUMNS), *STORED_LOOKUP_COLUMNS)
        self.add_lookup = compiled(_insert_new(dialect, lookups, *STORED_LOOKUP_COLUMNS), *STORED_LOOKUP_COLUMNS)
        looked_up_by = (look.session == bindparam("session"), look.life == bindparam("life"))
        self.oldest_lookups = compiled(
            _first(select(look.kind, look.id).where(*looked_up_by).order_by(look.session, look.kind, look.id)),
            *(*life, "limit"),
        )
        self.delete_lookups = compiled(
            delete(lookups).where(*looked_up_by, look.kind == bindparam("kind"), look.id <= bindparam("last")),
            *(*life, "kind", "last"),
        )

        # Names of dead sessions
        d = dead_names.c
        dead = [d[name] == bindparam(name) for name in KEY]
        self.dead_name = compiled(
            select(d.session, d.life).where(*dead).order_by(d.session.desc()).with_for_update(), *KEY
        )
        self.dead_session = compiled(select(d.session).where(*dead).order_by(d.session.desc()), *KEY)
        named = ("session", "life", *KEY, "died_at")
        self.insert_dead_name = compiled(_insert(dead_names, *named), *named)
        of_name = d.session == bindparam("session")
        self.lock_dead_name = compiled(select(d.session).where(of_name).with_for_update(), "session")
        self.delete_dead_name = compiled(delete(dead_names).where(of_name), "session")
        self.old_dead_names = compiled(
            _first(select(d.session).where(d.died_at < bindparam("before")).order_by(d.died_at)), "before", "limit"
        )

        # Leftovers
        left = leftovers.c
        of_leftover = (left.session == bindparam("session"), left.life == bindparam("life"))
        is_staging = left.kind == literal_column(str(LeftoverKind.STAGING.value))
        described = ("session", "life", "kind", "tenant", "user_id", "due")
        self.insert_leftover = compiled(_insert(leftovers, *described), *described)
        self.lock_leftover = compiled(select(left.kind).where(*of_leftover).with_for_update(), *life)
        self.date_staging = compiled(
            update(leftovers).where(*of_leftover, is_staging).values(due=bindparam("due")),
            *("due", *life),
        )
        self.abandon_staging = compiled(
            update(leftovers)
            .where(*of_leftover, is_staging)
            .values(kind=literal_column(str(LeftoverKind.ABANDONED.value))),
            *life,
        )
        self.keep_swept = compiled(
            update(leftovers)
            .where(*of_leftover)
            .values(kind=literal_column(str(LeftoverKind.SWEPT.value)), due=literal_column(str(ALL))),
            *life,
        )
        self.delete_leftover = compiled(delete(leftovers).where(*of_leftover), *life)
        self.due_leftovers = compiled(
            _first(select(left.session, left.life).where(left.due <= bindparam("now")).order_by(left.due)),
            *("now", "limit"),
        )
        self.leftovers_of_user = compiled(
            _first(
                select(left.session, left.life).where(
                    left.tenant == bindparam("tenant"), left.user_id == bindparam("user_id")
                )
            ),
            *("tenant", "user_id", "limit"),
        )
        self.leftovers_of_session = compiled(
            _first(select(left.session, left.life).where(left.session == bindparam("session")).order_by(left.life)),
            *("session", "limit"),
        )

        # Events
        e = events.c
        event_columns = ("session", "life", *EVENT_COLUMNS)
        self.insert_event = compiled(_insert(events, *event_columns), *event_columns)
        of_events = (e.session == bindparam("session"), e.life == bindparam("life"))
        self.events_after = compiled(
            _first(
                select(*(e[name] for name in EVENT_COLUMNS))
                .where(*of_events, e.number > bindparam("after"))
                .order_by(e.number)
            ),
            *(*life, "after", "limit"),
        )
        first_events = _first(select(e.number).where(*of_events).order_by(e.number)).subquery()
        self.last_event_to_delete = compiled(select(func.max(first_events.c.number)), *life, "limit")
        self.delete_events = compiled(delete(events).where(*of_events, e.number <= bindparam("last")), *life, "last")
        oldest_events = _first(select(e.created).where(e.created < bindparam("before")).order_by(e.created)).subquery()
        self.last_old_event = compiled(select(func.max(oldest_events.c.created)), "before", "limit")
        self.delete_old_events = compiled(delete(events).where(e.created <= bindparam("last")), "last")

        # Summaries
        x = summaries.c
        of_summaries = (x.session == bindparam("session"), x.life == bindparam("life"))
        self.summaries_by_number = ListStatement(
            dialect, select(x.number, x.summary).where(*of_summaries), x.number, *life
        )
        self.insert_summary = compiled(_insert(summaries, *SUMMARY_COLUMNS), *SUMMARY_COLUMNS)
        self.delete_summary = compiled(
            delete(summaries).where(*of_summaries, x.number == bindparam("at")), *(*life, "at")
        )
        first_summaries = _first(select(x.number).where(*of_summaries).order_by(x.number)).subquery()
        self.last_summary_to_delete = compiled(select(func.max(first_summaries.c.number)), *life, "limit")
        self.delete_summaries = compiled(
            delete(summaries).where(*of_summaries, x.number <= bindparam("last")), *(*life, "last")
        )

        # Leases
        lease = leases.c
        of_lease = lease.name == bindparam("lease")
        self.lease = compiled(select(lease.holder, lease.ends_at).where(of_lease).with_for_update(), "lease")
        leased = ("name", "holder", "ends_at")
        self.insert_lease = compiled(_insert(leases, *leased), *leased)
        self.update_lease = compiled(
            update(leases).where(of_lease).values(_values(("holder", "ends_at"))), "holder", "ends_at", "lease"
        )

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
        self.list_tenants = compiled(
            _first(select(a.tenant).where(a.tenant > bindparam("after")).distinct()).order_by(a.tenant),
            "after",
            "limit",
        )
        self.add_agent = compiled(_insert_new(dialect, agents, *AGENT_COLUMNS), *AGENT_COLUMNS)
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
        self.values_between = compiled(
            select(meta.c.value).where(meta.c.name > bindparam("low"), meta.c.name < bindparam("high")), "low", "high"
        )
        never = literal_column("0") == literal_column("1")
        self.look_at_tables = compiled(
            select(meta.c.value).where(
                meta.c.name == bindparam("name"),
                *(
                    ~exists(select(*table.columns).where(never))
                    for table in metadata.sorted_tables
                    if table is not meta
                ),
            ),
            "name",
        )
        """A value, if every table is there with its columns: looks for no row of another."""
        self.insert_value = compiled(_insert(meta, "name", "value"), "name", "value")

    def place(self, value: Value, number: Value) -> tuple[Value, ...]:
        """The parameters that name a place in a list of sessions. MySQL finds it by an index only where it is named so
        that the first value stands twice.
        """
        return (value, value, number) if self._names_places_twice else (value, number)


def _values(names: Sequence[str]) -> dict[str, BindParameter[Any]]:
    return {name: bindparam(name) for name in names}


def _insert(table: Table, *names: str) -> Insert:
    return insert(table).values(_values(names))


def _insert_new(dialect: Dialect, table: Table, *names: str) -> Insert:
    """Inserts a row unless there is one with its key."""
    if dialect.name == "postgresql":
        return postgresql.insert(table).values(_values(names)).on_conflict_do_nothing()
    if dialect.name == "sqlite":
        return sqlite.insert(table).values(_values(names)).on_conflict_do_nothing()
    return _insert(table, *names).prefix_with("IGNORE")


def _led_by(statement: Select[Any], table: Table, index: str) -> Select[Any]:
    """Read through an index that MySQL would not choose by itself: it prefers fewer columns to the right order."""
    for dialect in MYSQL:
        statement = statement.with_hint(table, f"FORCE INDEX ({index})", dialect)
    return statement


def _first(statement: Select[Any]) -> Select[Any]:
    """Only the first `limit` rows. Without the offset, SQLAlchemy would add a parameter for it."""
    return statement.limit(bindparam("limit")).offset(literal_column("0"))

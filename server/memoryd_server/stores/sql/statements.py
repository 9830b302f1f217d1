"""The statements, written in SQLAlchemy Core and compiled once for the dialect of the database (`compiling`)."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    ColumnElement,
    Dialect,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from memoryd_server.stores.records import Role, Usability
from memoryd_server.stores.sql.compiling import (
    ALL,
    MYSQL,
    ListStatement,
    compile_once,
    first_rows,
    insert_new,
    insert_row,
    led_by,
    values_of,
)
from memoryd_server.stores.sql.file_statements import FileStatements
from memoryd_server.stores.sql.rows import (
    AGENT_COLUMNS,
    CHANGING_COLUMNS,
    ENTRY_COLUMNS,
    EVENT_COLUMNS,
    KEY,
    LOOKUP_COLUMNS,
    MESSAGE_COLUMNS,
    RECORD_COLUMNS,
    REPLACED_COLUMNS,
    RUNNING_COLUMNS,
    STORED_COLUMNS,
    STORED_LOOKUP_COLUMNS,
    SUMMARY_COLUMNS,
    UNDOABLE_ENTRY_COLUMNS,
    LeftoverKind,
)
from memoryd_server.stores.sql.run_statements import RunStatements
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

_SINCE_EPOCH: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
CLOCKS: Final = {
    # To the millisecond, which no reader of it compares with a finer one.
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "mysql": _SINCE_EPOCH,
    "mariadb": _SINCE_EPOCH,
}
"""The database's time in microseconds since the Unix epoch, by dialect."""

Value = TypeVar("Value")


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
        born = insert_row(sessions, *KEY, "life", *RECORD_COLUMNS)
        if dialect.name == "postgresql":
            born = born.returning(s.id)
        self.insert_session = compiled(born, *KEY, "life", *RECORD_COLUMNS)
        self.update_session = compiled(
            update(sessions).where(of_session).values(values_of(RECORD_COLUMNS)), *RECORD_COLUMNS, "session"
        )
        # The usual change, and that of a step of a run.
        self.update_record, self.update_running_record = (
            compiled(update(sessions).where(of_session).values(values_of(columns)), *columns, "session")
            for columns in (CHANGING_COLUMNS, RUNNING_COLUMNS)
        )
        self.begin_life = compiled(
            update(sessions).where(of_session).values(values_of(("life", *RECORD_COLUMNS))),
            *("life", *RECORD_COLUMNS, "session"),
        )
        self.renumber_session = compiled(
            update(sessions).where(of_session).values(id=bindparam("number"), life=bindparam("life")),
            *("number", "life", "session"),
        )
        self.name_session = compiled(
            update(sessions).where(of_session).values(values_of((*KEY, *RECORD_COLUMNS))),
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
                statement = led_by(statement, sessions, "memoryd_sessions_foldable")
            place = self.place("after", "id")
            return compiled(first_rows(statement).order_by(column, s.id), *owner, "before", *place, "limit")

        self.list_purgeable = due(s.removed_at)
        self.list_expiring = due(s.expires_at)
        self.list_abandoned = due(s.abandon_at)
        self.list_folds = due(s.fold_at, "tenant", "agent")
        activity: BindParameter[int] = bindparam("activity")
        id_: BindParameter[int] = bindparam("id")
        behind = (
            and_(s.activity <= activity, or_(s.activity < activity, s.id < id_))
            if self._names_places_twice
            else tuple_(s.activity, s.id) < tuple_(activity, id_)
        )
        listed = first_rows(
            select(s.activity, s.id, s.tenant, s.agent, s.session_id, s.record, s.open_calls)
            .where(s.tenant == bindparam("tenant"), behind)
            .order_by(s.activity.desc(), s.id.desc())
        )
        place = ("tenant", *self.place("activity", "id"))
        # As the indexes of tenants and agents say of their rows (`schema`): those of stagings are none of them.
        listed_by_name = s.tenant != literal_column("''")
        of_agent, of_user = s.agent == bindparam("agent"), s.user_id == bindparam("user_id")
        if dialect.name == "postgresql":
            # The tenant's index has the order too. That the agent lies between itself and itself says nothing new, but
            # makes PostgreSQL expect few rows of the agent's index, also where all sessions that it knows are of one.
            of_agent = and_(of_agent, s.agent >= bindparam("agent"), s.agent <= bindparam("agent"))
        # The sessions of a user are few, those of an agent many: the expression keeps the agent's index out of it.
        of_agent_too = s.agent.concat(literal_column("''")) == bindparam("agent")
        by_tenant, by_agent, by_user = (
            led_by(listed, sessions, f"memoryd_sessions_of_{owner}") for owner in ("tenant", "agent", "user")
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
            statement = led_by(statement, messages, "memoryd_messages_in_reading_order")
            return compiled(first_rows(statement.order_by(*order)), *life, "usability", "low", "high", "limit")

        self.entries_backwards = in_reading_order(entry_columns, m.head.desc(), m.position.desc(), m.seq.desc())
        self.messages_backwards = in_reading_order(message_columns, m.head.desc(), m.position.desc(), m.seq.desc())
        self.entries_forwards = in_reading_order(entry_columns, m.head, m.position, m.seq)
        self.entries = compiled(select(*entry_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.messages = compiled(select(*message_columns).where(*of_life, *seqs).order_by(m.seq), *life, "low", "high")
        self.undoable_entries_backwards = compiled(
            first_rows(
                select(*(m[name] for name in UNDOABLE_ENTRY_COLUMNS)).where(*of_life, *seqs).order_by(m.seq.desc())
            ),
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
            return compiled(first_rows(statement.order_by(order)), *life, *parameters)

        variants = [(descending, by_run) for descending in (False, True) for by_run in (False, True)]
        self.matching_entries, self.matching_messages = (
            {
                (descending, by_run): matching(columns, descending=descending, by_run=by_run)
                for descending, by_run in variants
            }
            for columns in (entry_columns, message_columns)
        )
        self.insert_message = compiled(insert_row(messages, *STORED_COLUMNS), *STORED_COLUMNS)
        self.add_message = compiled(insert_new(dialect, messages, *STORED_COLUMNS), *STORED_COLUMNS)
        self.replace_message = compiled(
            update(messages).where(*of_life, m.seq == bindparam("at")).values(values_of(REPLACED_COLUMNS)),
            *(*REPLACED_COLUMNS, *life, "at"),
        )

        def turn_group(before: Usability, after: Usability) -> str:
            group = [*of_life, m.usability == literal_column(str(before.value)), m.head == bindparam("group")]
            if dialect.name == "postgresql":
                # Only the order leads it to the index of groups, and an update has none.
                ordered = select(m.seq).where(*group).order_by(m.position, m.seq)
                group = [*of_life, m.seq == func.any(func.array(ordered.scalar_subquery()))]
            statement = update(messages).where(*group).values(usability=literal_column(str(after.value)))
            return compiled(statement, *life, "group")

        self.complete_group = turn_group(Usability.OPEN, Usability.USABLE)
        self.reopen_group = turn_group(Usability.USABLE, Usability.OPEN)
        oldest = first_rows(select(m.seq).where(*of_life, *seqs).order_by(m.seq)).subquery()
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
            first_rows(
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
        self.insert_lookup = compiled(insert_row(lookups, *STORED_LOOKUP_COLUMNS), *STORED_LOOKUP_COLUMNS)
        self.add_lookup = compiled(insert_new(dialect, lookups, *STORED_LOOKUP_COLUMNS), *STORED_LOOKUP_COLUMNS)
        looked_up_by = (look.session == bindparam("session"), look.life == bindparam("life"))
        self.oldest_lookups = compiled(
            first_rows(select(look.kind, look.id).where(*looked_up_by).order_by(look.session, look.kind, look.id)),
            *(*life, "limit"),
        )
        self.delete_lookups = compiled(
            delete(lookups).where(*looked_up_by, look.kind == bindparam("kind"), look.id <= bindparam("last")),
            *(*life, "kind", "last"),
        )

        # Names of dead sessions
        d = dead_names.c
        dead = [d[name] == bindparam(name) for name in KEY]
        # They are few, to be found by the key. In PostgreSQL, whose order decides the index, the expression keeps the
        # primary key, which has the order, out of it.
        newest_name = (d.session + literal_column("0") if dialect.name == "postgresql" else d.session).desc()
        self.dead_name = compiled(select(d.session, d.life).where(*dead).order_by(newest_name).with_for_update(), *KEY)
        self.dead_session = compiled(select(d.session).where(*dead).order_by(newest_name), *KEY)
        named = ("session", "life", *KEY, "died_at")
        self.insert_dead_name = compiled(insert_row(dead_names, *named), *named)
        of_name = d.session == bindparam("session")
        self.lock_dead_name = compiled(select(d.session).where(of_name).with_for_update(), "session")
        self.delete_dead_name = compiled(delete(dead_names).where(of_name), "session")
        self.old_dead_names = compiled(
            first_rows(select(d.session).where(d.died_at < bindparam("before")).order_by(d.died_at)), "before", "limit"
        )

        # Leftovers
        left = leftovers.c
        of_leftover = (left.session == bindparam("session"), left.life == bindparam("life"))
        is_staging = left.kind == literal_column(str(LeftoverKind.STAGING.value))
        described = ("session", "life", "kind", "tenant", "user_id", "due")
        self.insert_leftover = compiled(insert_row(leftovers, *described), *described)
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
            first_rows(select(left.session, left.life).where(left.due <= bindparam("now")).order_by(left.due)),
            *("now", "limit"),
        )
        self.leftovers_of_user = compiled(
            first_rows(
                select(left.session, left.life).where(
                    left.tenant == bindparam("tenant"), left.user_id == bindparam("user_id")
                )
            ),
            *("tenant", "user_id", "limit"),
        )
        self.leftovers_of_session = compiled(
            first_rows(select(left.session, left.life).where(left.session == bindparam("session")).order_by(left.life)),
            *("session", "limit"),
        )

        # Events
        e = events.c
        event_columns = ("session", "life", *EVENT_COLUMNS)
        self.insert_event = compiled(insert_row(events, *event_columns), *event_columns)
        of_events = (e.session == bindparam("session"), e.life == bindparam("life"))
        self.events_after = compiled(
            first_rows(
                select(*(e[name] for name in EVENT_COLUMNS))
                .where(*of_events, e.number > bindparam("after"))
                .order_by(e.number)
            ),
            *(*life, "after", "limit"),
        )
        first_events = first_rows(select(e.number).where(*of_events).order_by(e.number)).subquery()
        self.last_event_to_delete = compiled(select(func.max(first_events.c.number)), *life, "limit")
        self.delete_events = compiled(delete(events).where(*of_events, e.number <= bindparam("last")), *life, "last")
        oldest_events = first_rows(
            select(e.created).where(e.created < bindparam("before")).order_by(e.created)
        ).subquery()
        self.last_old_event = compiled(select(func.max(oldest_events.c.created)), "before", "limit")
        self.delete_old_events = compiled(delete(events).where(e.created <= bindparam("last")), "last")

        # Summaries
        x = summaries.c
        of_summaries = (x.session == bindparam("session"), x.life == bindparam("life"))
        self.summaries_by_number = ListStatement(
            dialect, select(x.number, x.summary).where(*of_summaries), x.number, *life
        )
        self.insert_summary = compiled(insert_row(summaries, *SUMMARY_COLUMNS), *SUMMARY_COLUMNS)
        self.delete_summary = compiled(
            delete(summaries).where(*of_summaries, x.number == bindparam("at")), *(*life, "at")
        )
        first_summaries = first_rows(select(x.number).where(*of_summaries).order_by(x.number)).subquery()
        self.last_summary_to_delete = compiled(select(func.max(first_summaries.c.number)), *life, "limit")
        self.delete_summaries = compiled(
            delete(summaries).where(*of_summaries, x.number <= bindparam("last")), *(*life, "last")
        )

        # Leases
        lease = leases.c
        of_lease = lease.name == bindparam("lease")
        self.lease = compiled(select(lease.holder, lease.ends_at).where(of_lease).with_for_update(), "lease")
        leased = ("name", "holder", "ends_at")
        self.insert_lease = compiled(insert_row(leases, *leased), *leased)
        self.update_lease = compiled(
            update(leases).where(of_lease).values(values_of(("holder", "ends_at"))), "holder", "ends_at", "lease"
        )

        # Agents
        agent_columns = [a[name] for name in AGENT_COLUMNS]
        self.agent = compiled(
            select(*agent_columns).where(a.tenant == bindparam("tenant"), a.agent == bindparam("agent")),
            "tenant",
            "agent",
        )
        self.list_agents = compiled(
            first_rows(
                select(*agent_columns).where(a.tenant == bindparam("tenant"), a.agent > bindparam("after"))
            ).order_by(a.agent),
            "tenant",
            "after",
            "limit",
        )
        self.list_tenants = compiled(
            first_rows(select(a.tenant).where(a.tenant > bindparam("after")).distinct()).order_by(a.tenant),
            "after",
            "limit",
        )
        self.add_agent = compiled(insert_new(dialect, agents, *AGENT_COLUMNS), *AGENT_COLUMNS)
        settings = AGENT_COLUMNS[2:]
        self.update_agent = compiled(
            update(agents)
            .where(
                a.tenant == bindparam("of_tenant"),
                a.agent == bindparam("of_agent"),
                a.version == bindparam("expected"),
            )
            .values(values_of(settings)),
            *(*settings, "of_tenant", "of_agent", "expected"),
        )

        self.files = FileStatements(dialect)
        self.runs = RunStatements(dialect)

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
        self.insert_value = compiled(insert_row(meta, "name", "value"), "name", "value")

    def place(self, value: Value, number: Value) -> tuple[Value, ...]:
        """The parameters that name a place in a list of sessions. MySQL finds it by an index only where it is named so
        that the first value stands twice.
        """
        return (value, value, number) if self._names_places_twice else (value, number)


_made: Final[dict[tuple[type[Dialect], str], Statements]] = {}


def statements_for(dialect: Dialect) -> Statements:
    """The SQL texts for a dialect. All stores of it share them: to make them takes longer than to open a store."""
    kind = (type(dialect), dialect.paramstyle)
    if kind not in _made:
        _made[kind] = Statements(dialect)
    return _made[kind]

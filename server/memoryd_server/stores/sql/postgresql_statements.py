"""PostgreSQL's statements for the two calls that all others wait for, each of one round trip and one moment.

Values come as arrays, so that there is one text whatever their number, which the server plans once for a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from memoryd_server.stores.base import Change
from memoryd_server.stores.records import AgentRecord, Record, Usability
from memoryd_server.stores.sql.postgresql_runs import arrays_of_runs, tables_of_runs
from memoryd_server.stores.sql.rows import (
    ADDITION_COLUMNS,
    AGENT_COLUMNS,
    BODY_COLUMNS,
    KEY,
    LOOKUP_COLUMNS,
    MESSAGE_COLUMNS,
    RECORD_COLUMNS,
    STORED_COLUMNS,
    Codec,
    Row,
    open_apart,
    row_of_addition,
    row_of_agent,
    row_of_record,
    stored_version,
)
from memoryd_server.stores.sql.steps import Fetch, Plan
from memoryd_server.stores.sql.tails import (
    OPENING_ROW,
    SESSION_COLUMNS,
    SESSION_ROW,
    SUMMARY_COLUMN,
    SUMMARY_ROW,
    TAIL_ROW,
    Asked,
)
from memoryd_server.stores.sql.writes import FIRST_LIFE

_TYPES: Final = {
    **dict.fromkeys(("kind", "usability", "role"), "smallint"),
    **dict.fromkeys(("number", "life", "position", "size", "calls"), "integer"),
    **dict.fromkeys(
        ("seq", "head", "tokens", "prior_user", "created", "version", "activity", "removed_at", "expires_at"), "bigint"
    ),
    **dict.fromkeys(
        ("first_seq", "opening_to", "bytes", "largest", "expected_version", "fold_at", "abandon_at"), "bigint"
    ),
    "digest": "bytea",
}
"""The types of columns that are not texts."""


def _type(column: str) -> str:
    return _TYPES.get(column, "text")


class PostgreSQLLoadStatements:
    """See `tails.LoadStatements`."""

    def __init__(self) -> None:
        session = ", ".join(
            f"s.{SESSION_COLUMNS[column]}::{_type(column)}" if column in SESSION_COLUMNS else f"NULL::{_type(column)}"
            for column in MESSAGE_COLUMNS
        )
        columns = ", ".join(f"m.{column}" for column in MESSAGE_COLUMNS)
        fits = "found.sizes <= $7"
        found = ", ".join(
            f"CASE WHEN {fits} THEN found.{column} END" if column in BODY_COLUMNS else f"found.{column}"
            for column in MESSAGE_COLUMNS
        )

        def kind(row: int) -> str:
            return f"CASE WHEN {fits} THEN {row} ELSE {row + 1} END"

        def found_by(where: str, order: str, limit: str) -> str:
            return (
                f"(SELECT {columns}, sum(m.size) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) AS sizes "
                f"FROM memoryd_messages m WHERE m.session = s.id AND m.life = s.life AND {where} "
                f"ORDER BY {order} LIMIT {limit}) found"
            )

        newest = found_by(
            "m.usability = wanted.usability AND m.head >= s.first_seq",
            "m.head DESC, m.position DESC, m.seq DESC",
            "$5",
        )
        opening = found_by("m.seq >= s.first_seq AND m.seq <= s.opening_to", "m.seq", "$6")
        self._sql = f"""
            WITH s AS MATERIALIZED (
                SELECT id, life, first_seq, opening_to, record, open_calls FROM memoryd_sessions
                WHERE tenant = $1 AND agent = $2 AND session_id = $3
            )
            SELECT {SESSION_ROW}, {session} FROM s
            UNION ALL
            SELECT {kind(TAIL_ROW)}, {found}
            FROM s CROSS JOIN unnest($4::smallint[]) AS wanted (usability) CROSS JOIN LATERAL {newest}
            UNION ALL
            SELECT {kind(OPENING_ROW)}, {found} FROM s CROSS JOIN LATERAL {opening}"""
        newest_summary = ", ".join(
            f"{'x.summary' if column == SUMMARY_COLUMN else 'NULL'}::{_type(column)}" for column in MESSAGE_COLUMNS
        )
        self._sql_with_summary = f"""{self._sql}
            UNION ALL
            SELECT {SUMMARY_ROW}, {newest_summary} FROM s CROSS JOIN LATERAL (
                SELECT summary FROM memoryd_summaries
                WHERE session = s.id AND life = s.life ORDER BY number DESC LIMIT 1
            ) x"""

    def rows(self, asked: Asked) -> Plan[Sequence[Row]]:
        key, usabilities, most, most_opening, body_bytes, summary = asked
        sql = self._sql_with_summary if summary else self._sql
        rows: Sequence[Row] = yield Fetch(sql, (*key, usabilities, most, most_opening, body_bytes))
        return rows


class _Parameters:
    """Numbers the parameters of a text."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *columns: str, of_arrays: bool = False) -> list[str]:
        """Parameters for values of columns, or for arrays of such."""
        first = self.count + 1
        self.count += len(columns)
        return [f"${first + n}::{_type(name)}{'[]' if of_arrays else ''}" for n, name in enumerate(columns)]


class BirthStatement:
    """Gives birth to a session, unless there is one, or a dead one whose name is remembered."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        values = _Parameters()
        key = values(*KEY)
        tenant, agent, _ = key
        same_key = " AND ".join(f"{name} = {value}" for name, value in zip(KEY, key, strict=True))
        record = ", ".join(values(*RECORD_COLUMNS))
        settings = ", ".join(values("version", "activity", "policy", "settings"))
        messages = ", ".join(values(*MESSAGE_COLUMNS, of_arrays=True))
        lookups = ", ".join(values(*LOOKUP_COLUMNS, of_arrays=True))
        self.sql = f"""
            WITH born AS (
                INSERT INTO memoryd_sessions ({", ".join((*KEY, "life", *RECORD_COLUMNS))})
                SELECT {", ".join(key)}, {FIRST_LIFE}, {record}
                WHERE NOT EXISTS (SELECT FROM memoryd_dead_names WHERE {same_key})
                AND NOT EXISTS (SELECT FROM memoryd_sessions WHERE {same_key})
                ON CONFLICT DO NOTHING
                RETURNING id, life
            ), settings AS (
                INSERT INTO memoryd_agents ({", ".join(AGENT_COLUMNS)})
                SELECT {tenant}, {agent}, {settings} FROM born ON CONFLICT DO NOTHING
            ), looked_up AS (
                INSERT INTO memoryd_lookups (session, life, {", ".join(LOOKUP_COLUMNS)})
                SELECT born.id, born.life, a.* FROM born CROSS JOIN unnest({lookups}) AS a
            ), stored AS (
                INSERT INTO memoryd_messages ({", ".join(STORED_COLUMNS)})
                SELECT born.id, born.life, a.* FROM born CROSS JOIN unnest({messages}) AS a
            )
            SELECT 1 FROM born"""

    def fetch(self, change: Change) -> Fetch:
        """The statement for a birth. It answers a row when the session is born."""
        assert change.record is not None
        messages = [self._codec.row_of_message(0, 0, message)[2:] for message in change.messages]
        return Fetch(
            self.sql,
            (
                *(*change.key, *row_of_record(change.record)),
                *row_of_agent(AgentRecord(change.key.tenant, change.key.agent))[2:],
                *(zip(*messages, strict=True) if messages else _NO_MESSAGES[1:]),
                *_arrays_of_lookups(self._codec, change),
            ),
        )


def _arrays_of_lookups(codec: Codec, change: Change) -> Sequence[Any]:
    rows = [codec.row_of_lookup(0, 0, lookup)[1:-1] for lookup in change.lookups]
    return list(zip(*rows, strict=True)) if rows else _NO_LOOKUPS[1:]


class AppendStatement:
    """Makes changes of distinct sessions that only add, or change runs: messages, look-ups, groups that are complete,
    runs and steps.

    Each is made if its session is in the expected state and knows none of its look-ups; nothing is of the others.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.sql = self._text_of_many(with_runs=False)
        self.sql_with_runs = self._text_of_many(with_runs=True)
        self.sql_of_one = self._text_of_one(one_lookup=False)
        self.sql_of_one_lookup = self._text_of_one(one_lookup=True)

    @staticmethod
    def _text_of_many(*, with_runs: bool) -> str:
        values = _Parameters()

        def arrays(*columns: str) -> str:
            return ", ".join(values(*columns, of_arrays=True))

        key = " AND ".join(f"s.{name} = c.{name}" for name in KEY)
        changed = (*KEY, "expected_incarnation", "expected_version", *ADDITION_COLUMNS)
        changes = arrays(*changed)
        known = values.count + 1
        lookups = arrays("number", *LOOKUP_COLUMNS)
        messages = arrays("number", *MESSAGE_COLUMNS)
        groups = arrays("number", "head")
        runs = tables_of_runs(values.count) if with_runs else ""
        return f"""
            WITH c AS MATERIALIZED (
                SELECT * FROM unnest({changes}) WITH ORDINALITY AS c ({", ".join(changed)}, number)
            ), changed AS (
                UPDATE memoryd_sessions s SET {_set(f"c.{name}" for name in ADDITION_COLUMNS)}
                FROM c WHERE {key} AND s.incarnation = c.expected_incarnation AND s.version = c.expected_version
                AND NOT EXISTS (
                    SELECT FROM unnest(${known}::integer[], ${known + 1}::smallint[], ${known + 2}::text[])
                    AS a (number, kind, id)
                    JOIN memoryd_lookups l ON l.session = s.id AND l.kind = a.kind AND l.id = a.id
                    WHERE a.number = c.number
                )
                RETURNING c.number, s.id, s.life
            ), looked_up AS (
                INSERT INTO memoryd_lookups (session, life, {", ".join(LOOKUP_COLUMNS)})
                SELECT changed.id, changed.life, {", ".join(f"a.{name}" for name in LOOKUP_COLUMNS)}
                FROM unnest({lookups}) AS a (number, {", ".join(LOOKUP_COLUMNS)}) JOIN changed USING (number)
            ), stored AS (
                INSERT INTO memoryd_messages ({", ".join(STORED_COLUMNS)})
                SELECT changed.id, changed.life, {", ".join(f"a.{name}" for name in MESSAGE_COLUMNS)}
                FROM unnest({messages}) AS a (number, {", ".join(MESSAGE_COLUMNS)}) JOIN changed USING (number)
            ), complete AS MATERIALIZED (
                SELECT found.place
                FROM unnest({groups}) AS a (number, head) JOIN changed USING (number) CROSS JOIN LATERAL (
                    SELECT m.ctid AS place FROM memoryd_messages m
                    WHERE m.session = changed.id AND m.life = changed.life
                    AND m.usability = {Usability.OPEN.value} AND m.head = a.head ORDER BY m.position, m.seq
                ) found
            ), completed AS (
                UPDATE memoryd_messages m SET usability = {Usability.USABLE.value} FROM complete
                WHERE m.ctid = complete.place
            ){runs}
            SELECT number FROM changed"""

    @staticmethod
    def _text_of_one(*, one_lookup: bool) -> str:
        """The text for one change with one message, which completes nothing: the most frequent one, mostly with one
        look-up. It spares the database arrays, and the question whether the look-ups are new: one that is not fails the
        statement as a whole, as their primary key is violated.
        """
        values = _Parameters()
        key = " AND ".join(f"s.{name} = {value}" for name, value in zip(KEY, values(*KEY), strict=True))
        incarnation, version = values("expected_incarnation", "expected_version")
        record = _set(values(*ADDITION_COLUMNS))
        message = ", ".join(values(*MESSAGE_COLUMNS))
        lookups = ", ".join(values(*LOOKUP_COLUMNS, of_arrays=not one_lookup))
        looked_up = f"{lookups} FROM changed" if one_lookup else f"a.* FROM changed CROSS JOIN unnest({lookups}) AS a"
        return f"""
            WITH changed AS (
                UPDATE memoryd_sessions s SET {record}
                WHERE {key} AND s.incarnation = {incarnation} AND s.version = {version}
                RETURNING s.id, s.life
            ), looked_up AS (
                INSERT INTO memoryd_lookups (session, life, {", ".join(LOOKUP_COLUMNS)})
                SELECT changed.id, changed.life, {looked_up}
            ), stored AS (
                INSERT INTO memoryd_messages ({", ".join(STORED_COLUMNS)})
                SELECT changed.id, changed.life, {message} FROM changed
            )
            SELECT 1 FROM changed"""

    def _fetch_one(self, change: Change) -> Fetch:
        previous, record = change.previous, change.record
        assert previous is not None
        assert record is not None
        parameters = (
            *(*change.key, *_values_of_record(previous, record)),
            *self._codec.row_of_message(0, 0, change.messages[0])[2:],
        )
        if len(change.lookups) == 1:
            (lookup,) = change.lookups
            return Fetch(self.sql_of_one_lookup, (*parameters, *self._codec.row_of_lookup(0, 0, lookup)[1:-1]))
        return Fetch(self.sql_of_one, (*parameters, *_arrays_of_lookups(self._codec, change)))

    def fetch(self, changes: Sequence[Change]) -> Fetch:
        """The statement for the changes. Its rows are the numbers, from 1, of those that it made."""
        with_runs = any(change.changed_runs or change.new_steps for change in changes)
        if len(changes) == 1 and len(changes[0].messages) == 1 and not changes[0].completed and not with_runs:
            return self._fetch_one(changes[0])
        of_changes: list[Any] = []
        lookups: list[Any] = []
        messages: list[Any] = []
        groups: list[Any] = []
        for number, change in enumerate(changes, 1):
            previous, record = change.previous, change.record
            assert isinstance(previous, Record)
            assert isinstance(record, Record)
            of_changes.append((*change.key, *_values_of_record(previous, record)))
            lookups += [(number, *self._codec.row_of_lookup(0, 0, lookup)[1:-1]) for lookup in change.lookups]
            messages += [(number, *self._codec.row_of_message(0, 0, message)[2:]) for message in change.messages]
            groups += [(number, head) for head in change.completed]
        return Fetch(
            self.sql_with_runs if with_runs else self.sql,
            (
                *zip(*of_changes, strict=True),
                *(zip(*lookups, strict=True) if lookups else _NO_LOOKUPS),
                *(zip(*messages, strict=True) if messages else _NO_MESSAGES),
                *(zip(*groups, strict=True) if groups else _NO_GROUPS),
                *(arrays_of_runs(self._codec, changes) if with_runs else ()),
            ),
        )


def _set(values: Iterable[str]) -> str:
    """The assignments of values to ADDITION_COLUMNS."""
    return ", ".join(
        f"{name} = COALESCE({value}, s.{name})" if name == "open_calls" else f"{name} = {value}"
        for name, value in zip(ADDITION_COLUMNS, values, strict=True)
    )


def _values_of_record(previous: Record, record: Record) -> Row:
    """What the record is expected to be, and ADDITION_COLUMNS; None for open calls that stay as they are: what is
    stored outside of a row is not written again then.
    """
    *row, open_calls = row_of_addition(record)
    is_kept = open_apart(previous) == open_apart(record)
    return previous.incarnation, stored_version(previous), *row, None if is_kept else open_calls


_NO_LOOKUPS: Final = ((),) * (1 + len(LOOKUP_COLUMNS))
_NO_MESSAGES: Final = ((),) * (1 + len(MESSAGE_COLUMNS))
_NO_GROUPS: Final = ((),) * 2

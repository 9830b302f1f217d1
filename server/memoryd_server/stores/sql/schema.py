"""The tables. A change here needs a migration beside it (`migrations/versions`) and the new `REVISION`.

All names begin with `memoryd_`, since the database may be one that other applications use too.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    literal_column,
)

from memoryd_server.stores.sql.types import OFTEN_UPDATED, TABLE_OPTIONS, exact, long_bytes, long_text, number

REVISION: Final = "0007"
"""The newest migration: a database at this revision is opened without looking at the migrations."""

REVISION_TABLE: Final = "memoryd_schema"

metadata = MetaData()


sessions = Table(
    "memoryd_sessions",
    metadata,
    Column("id", number(), primary_key=True, autoincrement=True),
    Column("tenant", exact(), nullable=False),
    Column("agent", exact(), nullable=False),
    Column("session_id", exact(), nullable=False),
    # Grows when the session is born again: rows of messages carry it, in the place of the longer incarnation.
    Column("life", Integer, nullable=False),
    Column("incarnation", String(32), nullable=False),
    # Of the record; negative where a server of an older schema would not see all of it (`rows`).
    Column("version", BigInteger, nullable=False),
    Column("activity", BigInteger, nullable=False),
    Column("user_id", exact()),
    # The earliest `removed_at` of the record's removed ranges.
    Column("removed_at", BigInteger),
    Column("record", long_text(), nullable=False),
    # Of the record, for loads that read it and what it leads to in one statement. A server of schema 0001 leaves them
    # as they are: what was read by them is verified by the record.
    Column("first_seq", BigInteger),
    Column("opening_to", BigInteger),
    Column("bytes", BigInteger),
    Column("largest", BigInteger),
    # When it expires, or up to ACTIVITY_LAG_SECONDS earlier.
    Column("expires_at", BigInteger),
    # Those of the record, where they are long (`rows`); otherwise empty, and NULL where an older server wrote the row.
    Column("open_calls", long_text()),
    # Of the record: since or from when its next summary is left to a client.
    Column("fold_at", BigInteger),
    # Of the record: since when its unfinished run was left alone that was for longest.
    Column("abandon_at", BigInteger),
    UniqueConstraint("tenant", "agent", "session_id", name="memoryd_sessions_key"),
    # An id is never used again, so that nothing left behind can belong to another session.
    sqlite_autoincrement=True,
    **TABLE_OPTIONS,
    **OFTEN_UPDATED,
)
# PostgreSQL uses a partial index only for statements that say what it holds: so lists do, and none of these indexes
# comes into question where the key leads to one row, whatever the database believes of its tables.
_LISTED: Final = sessions.c.tenant != literal_column("''")
Index(
    "memoryd_sessions_of_tenant",
    *(sessions.c.tenant, sessions.c.activity, sessions.c.id),
    postgresql_where=_LISTED,
)
Index(
    "memoryd_sessions_of_agent",
    *(sessions.c.tenant, sessions.c.agent, sessions.c.activity, sessions.c.id),
    postgresql_where=_LISTED,
)
Index(
    "memoryd_sessions_of_user",
    sessions.c.tenant,
    sessions.c.user_id,
    sessions.c.activity,
    sessions.c.id,
    sqlite_where=sessions.c.user_id.is_not(None),
    postgresql_where=sessions.c.user_id.is_not(None),
)
Index(
    "memoryd_sessions_purgeable",
    sessions.c.removed_at,
    sqlite_where=sessions.c.removed_at.is_not(None),
    postgresql_where=sessions.c.removed_at.is_not(None),
)
Index(
    "memoryd_sessions_expiring",
    sessions.c.expires_at,
    sqlite_where=sessions.c.expires_at.is_not(None),
    postgresql_where=sessions.c.expires_at.is_not(None),
)
Index(
    "memoryd_sessions_foldable",
    *(sessions.c.tenant, sessions.c.agent, sessions.c.fold_at, sessions.c.id),
    sqlite_where=sessions.c.fold_at.is_not(None),
    postgresql_where=sessions.c.fold_at.is_not(None),
)
Index(
    "memoryd_sessions_abandoned",
    sessions.c.abandon_at,
    sqlite_where=sessions.c.abandon_at.is_not(None),
    postgresql_where=sessions.c.abandon_at.is_not(None),
)

messages = Table(
    "memoryd_messages",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("head", BigInteger, nullable=False),
    Column("position", Integer, nullable=False),
    Column("usability", SmallInteger, nullable=False),
    Column("role", SmallInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("calls", Integer, nullable=False),
    # The indexes of the answered calls, separated by commas. Here and below, what is empty is NULL.
    Column("answers", long_text()),
    Column("prior_user", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("id", exact(), nullable=False),
    Column("name", long_text()),
    Column("run_id", exact()),
    # Last, since a database need not read a long row beyond what is asked of it.
    Column("content", long_text()),
    Column("metadata", long_text()),
    Column("extra", long_text()),
    # JSON texts.
    Column("undo", long_text()),
    Column("redaction", long_text()),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)
# What leads a window past the messages that it cannot use (invariant 17).
Index(
    "memoryd_messages_in_reading_order",
    messages.c.session,
    messages.c.life,
    messages.c.usability,
    messages.c.head,
    messages.c.position,
    messages.c.seq,
    # All are: but only statements about a usability come into question for it.
    postgresql_where=messages.c.usability.is_not(None),
)

lookups = Table(
    "memoryd_lookups",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("id", exact(), primary_key=True),
    Column("created", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("answer", long_text(), nullable=False),
    # The life that brought it: erasure goes by it. A server of schema 0001 knows of the first one only.
    Column("life", Integer, nullable=False, server_default="1"),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

agents = Table(
    "memoryd_agents",
    metadata,
    Column("tenant", exact(), primary_key=True),
    Column("agent", exact(), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("policy", long_text(), nullable=False),
    # What else there is, as JSON text (`records.encode_settings`); NULL where nothing is set.
    Column("settings", long_text()),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

meta = Table(
    "memoryd_meta",
    metadata,
    Column("name", exact(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

# Names of sessions that are dead: while they hold, look-ups of their lives do, under the session's number.
dead_names = Table(
    "memoryd_dead_names",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    # The last life: the next one is another.
    Column("life", Integer, nullable=False),
    Column("tenant", exact(), nullable=False),
    Column("agent", exact(), nullable=False),
    Column("session_id", exact(), nullable=False),
    Column("died_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)
Index("memoryd_dead_names_key", dead_names.c.tenant, dead_names.c.agent, dead_names.c.session_id)
Index("memoryd_dead_names_due", dead_names.c.died_at)

# Dead lives, and stagings: what nobody can reach any more, or will not once it is due.
leftovers = Table(
    "memoryd_leftovers",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    # A value of `rows.LeftoverKind`.
    Column("kind", SmallInteger, nullable=False),
    Column("tenant", exact(), nullable=False),
    Column("user_id", exact()),
    # When it may be deleted.
    Column("due", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)
Index("memoryd_leftovers_of_user", leftovers.c.tenant, leftovers.c.user_id)
Index("memoryd_leftovers_due", leftovers.c.due)

events = Table(
    "memoryd_events",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, nullable=False),
    Column("after_seq", BigInteger, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)
Index("memoryd_events_by_age", events.c.created)

summaries = Table(
    "memoryd_summaries",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # As JSON text (`records.encode_summary`).
    Column("summary", long_text(), nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

runs = Table(
    "memoryd_runs",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("id", exact(), primary_key=True),
    # Those of the session, for the lists; both are empty of a run that is being deleted (`runs`).
    Column("tenant", exact(), nullable=False),
    Column("agent", exact(), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("status", SmallInteger, nullable=False),
    # From when on anybody may claim it; NULL where nobody may.
    Column("claimable_at", BigInteger),
    # NULL for one that has not.
    Column("ended", BigInteger),
    # As JSON texts (`records.encode_run_state`, `records.encode_run_head`).
    Column("state", long_text(), nullable=False),
    Column("head", long_text(), nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
    **OFTEN_UPDATED,
)
# They hold runs of dead lives too, until a sweep deletes these: who reads looks at the session's row. On PostgreSQL, as
# above, none comes into question where the key leads to one row.
_LISTED_RUN: Final = runs.c.tenant != literal_column("''")
Index(
    "memoryd_runs_of_agent",
    *(runs.c.tenant, runs.c.agent, runs.c.created, runs.c.session, runs.c.id),
    postgresql_where=_LISTED_RUN,
)
Index(
    "memoryd_runs_by_status",
    *(runs.c.tenant, runs.c.agent, runs.c.status, runs.c.created, runs.c.session, runs.c.id),
    postgresql_where=_LISTED_RUN,
)
Index(
    "memoryd_runs_of_session",
    *(runs.c.session, runs.c.life, runs.c.created, runs.c.id),
    postgresql_where=_LISTED_RUN,
)
Index(
    "memoryd_runs_claimable",
    *(runs.c.tenant, runs.c.agent, runs.c.claimable_at, runs.c.session, runs.c.id),
    sqlite_where=runs.c.claimable_at.is_not(None),
    postgresql_where=runs.c.claimable_at.is_not(None),
)
Index(
    "memoryd_runs_ended",
    *(runs.c.tenant, runs.c.agent, runs.c.ended, runs.c.session, runs.c.id),
    sqlite_where=runs.c.ended.is_not(None),
    postgresql_where=runs.c.ended.is_not(None),
)

run_steps = Table(
    "memoryd_run_steps",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("run_id", exact(), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    # Bytes of the payload: a page is measured without it.
    Column("size", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    # Of the claim under which it was committed.
    Column("fence", BigInteger, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("content_type", long_text(), nullable=False),
    Column("payload", long_bytes(), nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

leases = Table(
    "memoryd_leases",
    metadata,
    Column("name", exact(), primary_key=True),
    Column("holder", exact(), nullable=False),
    # By the store's clock.
    Column("ends_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

# Memory files, as far as their changes look at them: all else is in the row of their newest version.
files = Table(
    "memoryd_files",
    metadata,
    Column("tenant", exact(), primary_key=True),
    # A value of `records.Tier`.
    Column("tier", SmallInteger, primary_key=True, autoincrement=False),
    Column("owner", exact(), primary_key=True),
    Column("name", exact(), primary_key=True),
    Column("incarnation", String(32), nullable=False),
    # The newest one.
    Column("version", BigInteger, nullable=False),
    # As JSON text (`records.encode_requests`); NULL where there are none.
    Column("requests", long_text()),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
    **OFTEN_UPDATED,
)

file_versions = Table(
    "memoryd_file_versions",
    metadata,
    Column("tenant", exact(), primary_key=True),
    Column("tier", SmallInteger, primary_key=True, autoincrement=False),
    Column("owner", exact(), primary_key=True),
    Column("name", exact(), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("size", Integer, nullable=False),
    Column("author", long_text(), nullable=False),
    Column("created", BigInteger, nullable=False),
    # Last, since lists do not read it.
    Column("content", long_bytes(), nullable=False),
    sqlite_with_rowid=False,
    **TABLE_OPTIONS,
)

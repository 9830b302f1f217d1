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
    Text,
    UniqueConstraint,
)

from memoryd_server.limits import MAX_ID_BYTES

REVISION: Final = "0001"
"""The newest migration: a database at this revision is opened without looking at the migrations."""

REVISION_TABLE: Final = "memoryd_schema"

metadata = MetaData()


def _exact(length: int = MAX_ID_BYTES) -> String:
    """A text that is compared and ordered by its UTF-8 bytes, as keys are (invariant 5): on SQLite any text is."""
    return String(length)


sessions = Table(
    "memoryd_sessions",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("tenant", _exact(), nullable=False),
    Column("agent", _exact(), nullable=False),
    Column("session_id", _exact(), nullable=False),
    # Grows when the session is born again: rows of messages carry it, in the place of the longer incarnation.
    Column("life", Integer, nullable=False),
    Column("incarnation", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("activity", BigInteger, nullable=False),
    Column("user_id", _exact()),
    # The earliest `removed_at` of the record's removed ranges.
    Column("removed_at", BigInteger),
    Column("record", Text, nullable=False),
    UniqueConstraint("tenant", "agent", "session_id", name="memoryd_sessions_key"),
    # An id is never used again, so that nothing left behind can belong to another session.
    sqlite_autoincrement=True,
)
Index("memoryd_sessions_of_tenant", sessions.c.tenant, sessions.c.activity, sessions.c.id)
Index("memoryd_sessions_of_agent", sessions.c.tenant, sessions.c.agent, sessions.c.activity, sessions.c.id)
Index(
    "memoryd_sessions_of_user",
    sessions.c.tenant,
    sessions.c.user_id,
    sessions.c.activity,
    sessions.c.id,
    sqlite_where=sessions.c.user_id.is_not(None),
)
Index(
    "memoryd_sessions_purgeable",
    sessions.c.removed_at,
    sqlite_where=sessions.c.removed_at.is_not(None),
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
    Column("answers", Text),
    Column("prior_user", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("id", _exact(), nullable=False),
    Column("name", Text),
    Column("run_id", _exact()),
    # Last, since a database need not read a long row beyond what is asked of it.
    Column("content", Text),
    Column("metadata", Text),
    Column("extra", Text),
    sqlite_with_rowid=False,
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
)

lookups = Table(
    "memoryd_lookups",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("id", _exact(), primary_key=True),
    Column("created", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("answer", Text, nullable=False),
    sqlite_with_rowid=False,
)

agents = Table(
    "memoryd_agents",
    metadata,
    Column("tenant", _exact(), primary_key=True),
    Column("agent", _exact(), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("policy", Text, nullable=False),
    sqlite_with_rowid=False,
)

meta = Table(
    "memoryd_meta",
    metadata,
    Column("name", _exact(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

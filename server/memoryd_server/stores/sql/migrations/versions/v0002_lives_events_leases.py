"""Lives that end, events, stagings and leases; what loads need of a record.

A server of schema 0001 goes on with the tables as they are now: new columns may be NULL, and what it writes into a
session's row is verified by its record where it matters.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import add_column, create_index, create_table
from memoryd_server.stores.sql.types import TABLE_OPTIONS, exact, long_text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds columns, tables and indexes."""
    for name in ("first_seq", "opening_to", "bytes", "largest", "expires_at"):
        add_column("memoryd_sessions", sa.Column(name, sa.BigInteger))
    for name in ("undo", "redaction"):
        add_column("memoryd_messages", sa.Column(name, long_text()))
    add_column("memoryd_lookups", sa.Column("life", sa.Integer, nullable=False, server_default="1"))
    create_index(
        "memoryd_sessions_expiring",
        "memoryd_sessions",
        ["expires_at"],
        sqlite_where=sa.text("expires_at IS NOT NULL"),
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    create_table(
        "memoryd_dead_names",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, nullable=False),
        sa.Column("tenant", exact(), nullable=False),
        sa.Column("agent", exact(), nullable=False),
        sa.Column("session_id", exact(), nullable=False),
        sa.Column("died_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_index("memoryd_dead_names_key", "memoryd_dead_names", ["tenant", "agent", "session_id"])
    create_index("memoryd_dead_names_due", "memoryd_dead_names", ["died_at"])
    create_table(
        "memoryd_leftovers",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("tenant", exact(), nullable=False),
        sa.Column("user_id", exact()),
        sa.Column("due", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_index("memoryd_leftovers_of_user", "memoryd_leftovers", ["tenant", "user_id"])
    create_index("memoryd_leftovers_due", "memoryd_leftovers", ["due"])
    create_table(
        "memoryd_events",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("after_seq", sa.BigInteger, nullable=False),
        sa.Column("from_seq", sa.BigInteger, nullable=False),
        sa.Column("to_seq", sa.BigInteger, nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_index("memoryd_events_by_age", "memoryd_events", ["created"])
    create_table(
        "memoryd_leases",
        sa.Column("name", exact(), primary_key=True),
        sa.Column("holder", exact(), nullable=False),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    """Drops them with all they hold."""
    for name in ("leases", "events", "leftovers", "dead_names"):
        op.drop_table(f"memoryd_{name}")
    op.drop_index("memoryd_sessions_expiring", "memoryd_sessions")
    op.drop_column("memoryd_lookups", "life")
    for name in ("redaction", "undo"):
        op.drop_column("memoryd_messages", name)
    for name in ("expires_at", "largest", "bytes", "opening_to", "first_seq"):
        op.drop_column("memoryd_sessions", name)

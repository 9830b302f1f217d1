"""Sessions with their messages and look-ups; agents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import create_index, create_table
from memoryd_server.stores.sql.types import OFTEN_UPDATED, TABLE_OPTIONS, exact, long_text, number

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables and their indexes."""
    create_table(
        "memoryd_sessions",
        sa.Column("id", number(), primary_key=True, autoincrement=True),
        sa.Column("tenant", exact(), nullable=False),
        sa.Column("agent", exact(), nullable=False),
        sa.Column("session_id", exact(), nullable=False),
        sa.Column("life", sa.Integer, nullable=False),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("activity", sa.BigInteger, nullable=False),
        sa.Column("user_id", exact()),
        sa.Column("removed_at", sa.BigInteger),
        sa.Column("record", long_text(), nullable=False),
        sa.UniqueConstraint("tenant", "agent", "session_id", name="memoryd_sessions_key"),
        sqlite_autoincrement=True,
        **TABLE_OPTIONS,
        **OFTEN_UPDATED,
    )
    create_index(
        "memoryd_sessions_of_tenant",
        "memoryd_sessions",
        ["tenant", "activity", "id"],
        postgresql_where=sa.text("tenant <> ''"),
    )
    create_index(
        "memoryd_sessions_of_agent",
        "memoryd_sessions",
        ["tenant", "agent", "activity", "id"],
        postgresql_where=sa.text("tenant <> ''"),
    )
    create_index(
        "memoryd_sessions_of_user",
        "memoryd_sessions",
        ["tenant", "user_id", "activity", "id"],
        sqlite_where=sa.text("user_id IS NOT NULL"),
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    create_index(
        "memoryd_sessions_purgeable",
        "memoryd_sessions",
        ["removed_at"],
        sqlite_where=sa.text("removed_at IS NOT NULL"),
        postgresql_where=sa.text("removed_at IS NOT NULL"),
    )
    create_table(
        "memoryd_messages",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("usability", sa.SmallInteger, nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column("answers", long_text()),
        sa.Column("prior_user", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("id", exact(), nullable=False),
        sa.Column("name", long_text()),
        sa.Column("run_id", exact()),
        sa.Column("content", long_text()),
        sa.Column("metadata", long_text()),
        sa.Column("extra", long_text()),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_index(
        "memoryd_messages_in_reading_order",
        "memoryd_messages",
        ["session", "life", "usability", "head", "position", "seq"],
        postgresql_where=sa.text("usability IS NOT NULL"),
    )
    create_table(
        "memoryd_lookups",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("id", exact(), primary_key=True),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("answer", long_text(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_table(
        "memoryd_agents",
        sa.Column("tenant", exact(), primary_key=True),
        sa.Column("agent", exact(), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("policy", long_text(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )
    create_table(
        "memoryd_meta",
        sa.Column("name", exact(64), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    """Drops them with all they hold."""
    for name in ("meta", "agents", "lookups", "messages", "sessions"):
        op.drop_table(f"memoryd_{name}")

"""Sessions with their messages and look-ups; agents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables and their indexes."""
    op.create_table(
        "memoryd_sessions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("agent", sa.String(256), nullable=False),
        sa.Column("session_id", sa.String(256), nullable=False),
        sa.Column("life", sa.Integer, nullable=False),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("activity", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.String(256)),
        sa.Column("removed_at", sa.BigInteger),
        sa.Column("record", sa.Text, nullable=False),
        sa.UniqueConstraint("tenant", "agent", "session_id", name="memoryd_sessions_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("memoryd_sessions_of_tenant", "memoryd_sessions", ["tenant", "activity", "id"])
    op.create_index("memoryd_sessions_of_agent", "memoryd_sessions", ["tenant", "agent", "activity", "id"])
    op.create_index(
        "memoryd_sessions_of_user",
        "memoryd_sessions",
        ["tenant", "user_id", "activity", "id"],
        sqlite_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_index(
        "memoryd_sessions_purgeable",
        "memoryd_sessions",
        ["removed_at"],
        sqlite_where=sa.text("removed_at IS NOT NULL"),
    )
    op.create_table(
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
        sa.Column("answers", sa.Text),
        sa.Column("prior_user", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("id", sa.String(256), nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("run_id", sa.String(256)),
        sa.Column("content", sa.Text),
        sa.Column("metadata", sa.Text),
        sa.Column("extra", sa.Text),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "memoryd_messages_in_reading_order",
        "memoryd_messages",
        ["session", "life", "usability", "head", "position", "seq"],
    )
    op.create_table(
        "memoryd_lookups",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(256), primary_key=True),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memoryd_agents",
        sa.Column("tenant", sa.String(256), primary_key=True),
        sa.Column("agent", sa.String(256), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memoryd_meta",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drops them with all they hold."""
    for name in ("meta", "agents", "lookups", "messages", "sessions"):
        op.drop_table(f"memoryd_{name}")

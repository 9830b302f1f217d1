"""Summaries, and the sessions of an agent whose next summary is left to a client.

A server of an older schema goes on with all other sessions. Of one that has summaries, or waits for one, it would write
the record without what it does not know: its changes are refused as conflicts, as those of 0004 are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import add_column, create_index, create_table
from memoryd_server.stores.sql.types import TABLE_OPTIONS, long_text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table, the column and its index."""
    add_column("memoryd_sessions", sa.Column("fold_at", sa.BigInteger))
    create_index(
        "memoryd_sessions_foldable",
        "memoryd_sessions",
        ["tenant", "agent", "fold_at", "id"],
        sqlite_where=sa.text("fold_at IS NOT NULL"),
        postgresql_where=sa.text("fold_at IS NOT NULL"),
    )
    create_table(
        "memoryd_summaries",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("summary", long_text(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    """Drops them with all they hold. Versions are negative for the sake of open calls alone again."""
    sessions = sa.table("memoryd_sessions", sa.column("version"), sa.column("open_calls"))
    op.execute(
        sessions.update()
        .where(sessions.c.version < 0, sa.or_(sessions.c.open_calls.is_(None), sessions.c.open_calls == ""))
        .values(version=-sessions.c.version)
    )
    op.drop_table("memoryd_summaries")
    op.drop_index("memoryd_sessions_foldable", "memoryd_sessions")
    op.drop_column("memoryd_sessions", "fold_at")

"""Memory files with their versions, and what agents settle beside their policy.

A server of an older schema goes on: it leaves an agent's other settings as they are, and knows of no files. An erasure
that it carries out leaves a user's files where they are, for a later one by a newer server to delete.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import add_column, create_table
from memoryd_server.stores.sql.types import OFTEN_UPDATED, TABLE_OPTIONS, exact, long_bytes, long_text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column and the tables."""
    add_column("memoryd_agents", sa.Column("settings", long_text()))
    create_table(
        "memoryd_files",
        sa.Column("tenant", exact(), primary_key=True),
        sa.Column("tier", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", exact(), primary_key=True),
        sa.Column("name", exact(), primary_key=True),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("requests", long_text()),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
        **OFTEN_UPDATED,
    )
    create_table(
        "memoryd_file_versions",
        sa.Column("tenant", exact(), primary_key=True),
        sa.Column("tier", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", exact(), primary_key=True),
        sa.Column("name", exact(), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("author", long_text(), nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("content", long_bytes(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    """Drops them with all they hold."""
    for name in ("file_versions", "files"):
        op.drop_table(f"memoryd_{name}")
    op.drop_column("memoryd_agents", "settings")

"""On PostgreSQL, records are stored as they are: each append writes its session's anew, and to compress one that holds
many open calls takes longer than to write it.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes how records are stored that are written from now on."""
    _store_records("EXTERNAL")


def downgrade() -> None:
    """Has them compressed again."""
    _store_records("EXTENDED")


def _store_records(storage: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE memoryd_sessions ALTER COLUMN record SET STORAGE {storage}")

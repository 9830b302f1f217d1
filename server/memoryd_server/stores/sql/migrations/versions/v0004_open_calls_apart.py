"""Long lists of open calls get a column of their own, so that changes which leave them as they are need not write them.

A server of an older schema goes on, also with records that hold their open calls themselves. Of a session whose open
calls stand apart it reads all but these, and its changes are refused as conflicts: the column `version` is not that of
the record.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import add_column
from memoryd_server.stores.sql.types import long_text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column. What is stored moves into it with the next change of its session."""
    add_column("memoryd_sessions", sa.Column("open_calls", long_text()))
    if op.get_bind().dialect.name == "postgresql":
        # As records: see 0003.
        op.execute("ALTER TABLE memoryd_sessions ALTER COLUMN open_calls SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Moves what stands there back into the records, and drops it."""
    sessions = sa.table("memoryd_sessions", sa.column("version"), sa.column("record"), sa.column("open_calls"))
    whole = sa.literal('"open":').concat(sessions.c.open_calls)
    op.execute(
        sessions.update()
        .where(sessions.c.version < 0)
        .values(version=-sessions.c.version, record=sa.func.replace(sessions.c.record, '"open":0', whole))
    )
    op.drop_column("memoryd_sessions", "open_calls")

"""Runs with their steps, and the sessions of which an unfinished run was left alone.

A server of an older schema goes on with all other sessions. Of one with an unfinished run it would write the record
without it: its changes are refused as conflicts, as those of 0004 are. Runs that have ended it does not know: it leaves
them as they are, and what of them is left of a dead life a newer server deletes, unless the older one was told to erase
its user.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from memoryd_server.stores.sql.ddl import add_column, create_index, create_table
from memoryd_server.stores.sql.types import OFTEN_UPDATED, TABLE_OPTIONS, exact, long_bytes, long_text

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column, the tables and their indexes."""
    add_column("memoryd_sessions", sa.Column("abandon_at", sa.BigInteger))
    create_index(
        "memoryd_sessions_abandoned",
        "memoryd_sessions",
        ["abandon_at"],
        sqlite_where=sa.text("abandon_at IS NOT NULL"),
        postgresql_where=sa.text("abandon_at IS NOT NULL"),
    )
    create_table(
        "memoryd_runs",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", exact(), primary_key=True),
        sa.Column("tenant", exact(), nullable=False),
        sa.Column("agent", exact(), nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("claimable_at", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("state", long_text(), nullable=False),
        sa.Column("head", long_text(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
        **OFTEN_UPDATED,
    )
    for name, columns in (
        ("of_agent", ["tenant", "agent", "created", "session", "id"]),
        ("by_status", ["tenant", "agent", "status", "created", "session", "id"]),
        ("of_session", ["session", "life", "created", "id"]),
    ):
        create_index(f"memoryd_runs_{name}", "memoryd_runs", columns, postgresql_where=sa.text("tenant <> ''"))
    for name, column in (("claimable", "claimable_at"), ("ended", "ended")):
        create_index(
            f"memoryd_runs_{name}",
            "memoryd_runs",
            ["tenant", "agent", column, "session", "id"],
            sqlite_where=sa.text(f"{column} IS NOT NULL"),
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )
    create_table(
        "memoryd_run_steps",
        sa.Column("session", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("life", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run_id", exact(), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("content_type", long_text(), nullable=False),
        sa.Column("payload", long_bytes(), nullable=False),
        sqlite_with_rowid=False,
        **TABLE_OPTIONS,
    )


def downgrade() -> None:
    """Drops them with all they hold, and takes unfinished runs out of the records: nobody could end them. Versions are
    negative for the sake of open calls and summaries alone again.
    """
    connection = op.get_bind()
    s = sa.table("memoryd_sessions", *map(sa.column, ("id", "life", "version", "record", "open_calls", "fold_at")))
    summaries = sa.table("memoryd_summaries", sa.column("session"), sa.column("life"))
    with_runs = sa.select(s.c.id, s.c.record).where(s.c.version < 0, s.c.record.contains('"runs":[['))
    for session, text in connection.execute(with_runs).fetchall():
        record = {name: value for name, value in json.loads(text).items() if name != "runs"}
        without = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        connection.execute(s.update().where(s.c.id == session).values(record=without))
    connection.execute(
        s.update()
        .where(
            *(s.c.version < 0, s.c.fold_at.is_(None), sa.or_(s.c.open_calls.is_(None), s.c.open_calls == "")),
            ~sa.exists().where(summaries.c.session == s.c.id, summaries.c.life == s.c.life),
        )
        .values(version=-s.c.version)
    )
    for name in ("run_steps", "runs"):
        op.drop_table(f"memoryd_{name}")
    op.drop_index("memoryd_sessions_abandoned", "memoryd_sessions")
    op.drop_column("memoryd_sessions", "abandon_at")

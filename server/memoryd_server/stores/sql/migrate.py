"""Brings the schema of a database up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, inspect, select, table

from memoryd_server.stores.base import StoreMisconfigured
from memoryd_server.stores.sql.schema import REVISION, REVISION_TABLE

TABLES_GONE: Final = (
    "The tables of memoryd are gone from its database, or changed: restore them, or restart memoryd to make new ones."
)
"""What fails for it while a server runs."""

TABLES_NOT_OURS: Final = (
    "It holds tables or other things with names of memoryd's tables (memoryd_…) that memoryd did not make, or lacks "
    "some that it did make. Give memoryd another database, restore the tables that it made, or rename the others."
)
"""What keeps a store from being opened on it."""


def upgrade(connection: Connection, revision_to: str = "head") -> None:
    """Runs the missing migrations in the transaction that the connection is in, while no other server does: the caller
    sees to that.

    Raises: StoreMisconfigured when the schema is one that this version of memoryd does not know.
    """
    revision = _revision(connection)
    if revision == REVISION:
        return
    # Only here: a database that is up to date needs neither the time nor the memory of Alembic.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    if revision is not None:
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError:
            raise StoreMisconfigured(
                f"The database has schema {revision}, which is newer than this memoryd with its schema {REVISION}. "
                "Upgrade memoryd, or give it another database."
            ) from None
    command.upgrade(config, revision_to)


def _revision(connection: Connection) -> str | None:
    """The revision of the schema; None for a database that holds none."""
    if not inspect(connection).has_table(REVISION_TABLE):
        return None
    revisions = table(REVISION_TABLE, column("version_num"))
    return connection.scalar(select(revisions.c.version_num))

"""Runs the migrations on the connection that `migrate.upgrade` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from memoryd_server.stores.sql.schema import REVISION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=REVISION_TABLE,
    # SQLite can roll back changes of a schema, which Alembic does not rely on by itself. MySQL cannot: there, steps may
    # be taken again (`ddl`).
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

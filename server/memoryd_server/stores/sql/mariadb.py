"""The store on MariaDB and MySQL, over asyncmy."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from asyncmy.errors import Error
from sqlalchemy import URL, NullPool, text
from sqlalchemy.dialects.mysql.asyncmy import MySQLDialect_asyncmy
from sqlalchemy.ext.asyncio import create_async_engine

from memoryd_server.limits import MIB
from memoryd_server.stores.base import Change, Committed, Outcome, StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.sql.appends import merge_appends
from memoryd_server.stores.sql.mariadb_commit import CommitTexts
from memoryd_server.stores.sql.mariadb_connection import MariaDBConnection, connect_arguments
from memoryd_server.stores.sql.mariadb_errors import DUPLICATE_KEY, ERRORS, OUT_OF_RANGE, code_of
from memoryd_server.stores.sql.mariadb_load import Known, KnownSessions, MariaDBLoadStatements
from memoryd_server.stores.sql.migrate import upgrade
from memoryd_server.stores.sql.rows import KEY, Codec
from memoryd_server.stores.sql.served import MIGRATION_SECONDS, Chain, ServedStore, apply_chains
from memoryd_server.stores.sql.statements import statements_for
from memoryd_server.stores.sql.steps import Fetch, Insert, Step
from memoryd_server.stores.sql.tails import Loads
from memoryd_server.stores.sql.writes import Writes
from memoryd_server.stores.urls import masked

CONNECT_SECONDS: Final = 3.0
"""How long making a connection may take."""

SMALLEST_PACKET: Final = 16 * MIB
"""What max_allowed_packet must be at least: a message of 2 MiB may take seven times as much as JSON in a statement."""

LARGEST_PACKET: Final = 64 * MIB
"""What one text of statements takes at most, however much the server allows."""

PACKET_MARGIN: Final = 1_024
"""What a packet holds beside the text."""

OLDEST_MARIADB: Final = (10, 6)
OLDEST_MYSQL: Final = (8, 0)
"""Versions that are still maintained."""

_LOCK: Final = "CONCAT('memoryd-', MD5(DATABASE()))"
"""Names of locks belong to the whole server, and take 64 characters."""


class MariaDBStore(ServedStore[MariaDBConnection]):
    """Keeps everything in a database on a MariaDB or MySQL server, for any number of servers of memoryd."""

    type = "mysql"
    errors = ERRORS

    def __init__(self, url: URL) -> None:
        """The URL names a database (`registry` sees to it). Raises: StoreMisconfigured when it says what none can."""
        dialect = MySQLDialect_asyncmy(paramstyle="qmark")
        self._url = url.set(drivername="mysql+asyncmy")
        self._arguments = connect_arguments(dialect, self._url)
        self._packet = SMALLEST_PACKET - PACKET_MARGIN
        self._statements = statements_for(dialect)
        self._known = KnownSessions()
        self._texts = CommitTexts(dialect, self._statements)
        codec = Codec()
        super().__init__(
            masked(url.render_as_string(hide_password=False)),
            Loads(self._statements, codec, MariaDBLoadStatements(dialect, self._known)),
            Writes(self._statements, codec),
        )

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        outcomes = await super().commit(changes)
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._learn_record(change)
        return outcomes

    async def _add(self, chains: Mapping[SessionKey, Chain]) -> Collection[SessionKey]:
        additions = self._additions(chains)
        if additions:
            texts = self._texts.of(additions)
            if await self._until_done(partial(_run_additions, texts=texts)):
                return [change.key for _, _, change in additions]
        return ()

    def _additions(self, chains: Mapping[SessionKey, Chain]) -> Sequence[tuple[int, int, Change]]:
        """The chains that only add to sessions whose numbers are known, each as one change, in the order of numbers."""
        found = []
        for key, chain in chains.items():
            known = self._known.get(key)
            previous = chain[0].previous
            if known is not None and previous is not None and known.incarnation == previous.incarnation:
                change = merge_appends(chain)
                if change is not None:
                    found.append((known.id, known.life, change))
        return sorted(found, key=itemgetter(0))

    async def _apply(self, chains: Sequence[Chain]) -> Sequence[Sequence[Outcome]]:
        return await self._plan_write(lambda writes: apply_chains(writes, chains))

    def _learn(self, step: Step, answer: Any) -> None:
        if isinstance(step, Fetch) and step.sql is self._statements.session_state and answer:
            self._known.put(SessionKey(*step.parameters), Known(*answer[0][:3]))
        elif isinstance(step, Insert) and step.sql is self._statements.insert_session:
            *key, life, incarnation = step.parameters[: len(KEY) + 2]
            self._known.put(SessionKey(*key), Known(answer, life, incarnation))

    def _learn_record(self, change: Change) -> None:
        """Remembers the session as a change left it."""
        known, record = self._known.get(change.key), change.record
        if known is not None and record is not None and known.incarnation == record.incarnation:
            self._known.put(change.key, Known.of(known.id, known.life, record))

    async def _prepare(self) -> str:
        await self._migrate()
        return await self._with_connection(self._look_at_server)

    async def _connect(self) -> MariaDBConnection:
        # The driver's own limit leaves the handshake out.
        async with asyncio.timeout(CONNECT_SECONDS):
            return await MariaDBConnection.connect(self._arguments, self._packet)

    async def _migrate(self) -> None:
        """Brings the schema up to date, while no other server does: what changes a schema commits by itself."""

        async def connect() -> Any:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await MariaDBConnection.connect_driver(self._arguments)

        engine = create_async_engine(self._url, poolclass=NullPool, async_creator=connect)
        try:
            async with engine.connect() as connection:
                locked = await connection.scalar(text(f"SELECT GET_LOCK({_LOCK}, {MIGRATION_SECONDS})"))
                if not locked:
                    raise StoreUnavailable(
                        "Another server has been changing the schema for long. Start this one again."
                    )
                try:
                    # Changes of a table wait until no transaction has looked at it.
                    await connection.execute(text(f"SET SESSION lock_wait_timeout = {MIGRATION_SECONDS}"))
                    await connection.run_sync(upgrade)
                    await connection.commit()
                finally:
                    await connection.execute(text(f"DO RELEASE_LOCK({_LOCK})"))
        finally:
            await engine.dispose()

    async def _look_at_server(self, connection: MariaDBConnection) -> str:
        """See `_prepare`."""
        ((version, packet, flush, has_log, log_sync, doublewrite),) = await connection.fetch(
            "SELECT @@version, @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, "
            "CAST(@@innodb_doublewrite AS CHAR)"
        )
        is_mariadb = "mariadb" in version.lower()
        oldest = OLDEST_MARIADB if is_mariadb else OLDEST_MYSQL
        numbers = tuple(int(number) for number in version.split("-")[0].split(".")[:2])
        name = f"{'MariaDB' if is_mariadb else 'MySQL'} {version.split('-')[0]}"
        if numbers < oldest:
            raise StoreMisconfigured(f"the server is {name}, and memoryd needs {'.'.join(map(str, oldest))} at least.")
        if packet < SMALLEST_PACKET:
            raise StoreMisconfigured(
                f"max_allowed_packet of the server is {packet:,} bytes, and memoryd needs {SMALLEST_PACKET:,} at "
                "least: set it to 64M, and restart memoryd."
            )
        self._packet = connection.packet = min(packet, LARGEST_PACKET) - PACKET_MARGIN
        risks = []
        if flush not in {1, 3}:
            risks.append("innodb_flush_log_at_trx_commit to 1")
        if has_log and log_sync != 1:
            risks.append("sync_binlog to 1")
        if doublewrite.upper() in {"0", "OFF", "DETECT_ONLY"}:
            risks.append("innodb_doublewrite to ON")
        return f"{name} may lose commits when its machine fails. Set {' and '.join(risks)}." if risks else ""


async def _run_additions(connection: MariaDBConnection, texts: Sequence[bytes]) -> bool:
    """Makes all the changes at once. Returns: False when one of them is to be refused; none is made then."""
    try:
        await connection.run_packets(texts)
    except Error as error:
        if code_of(error) in {OUT_OF_RANGE, DUPLICATE_KEY}:
            return False
        raise
    return True


__all__ = ["MariaDBStore"]

"""The store's time: that of the database's primary server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from memoryd_server.stores.mongodb.database import Database

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

STEP: Final = 1_000
"""The dates of MongoDB are whole milliseconds."""


def date_of(time: int) -> datetime:
    """A time, in microseconds since the Unix epoch, as documents hold dates."""
    return _EPOCH + timedelta(microseconds=time)


class Clock:
    """Asks for the time. It is late by at most as long as the answer took, and a STEP."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> int:
        """Microseconds since the Unix epoch. Raises: StoreUnavailable."""
        answer = await self._database.command("hello")
        # The drivers answer it in UTC, and do not say so.
        time: datetime = answer["localTime"].replace(tzinfo=UTC)
        return (time - _EPOCH) // _MICROSECOND

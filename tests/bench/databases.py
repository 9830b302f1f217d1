"""The database servers on which stores are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.databases.kind import Kind
from tests.databases.kinds import MARIADB, MONGODB, POSTGRESQL
from tests.databases.redis import Redis


class _RedisEverySecond(Redis):
    """Redis as it is mostly run: it answers a write at once, and has it on the disk within a second."""

    def further_settings(self, port: int) -> dict[str, object]:
        return super().further_settings(port) | {"appendfsync": "everysec"}


SERVERS: Final[Mapping[str, Kind]] = {
    "postgresql": POSTGRESQL,
    "mariadb": MARIADB,
    "redis": _RedisEverySecond(),
    "mongodb": MONGODB,
}
"""By the store."""

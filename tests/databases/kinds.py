"""The kinds of database servers on which memoryd is tested."""

from __future__ import annotations

from typing import Final

from tests.databases.kind import Kind
from tests.databases.mongodb import NX27017, FerretDB
from tests.databases.redis import Redis, RedisCluster
from tests.databases.sql import MariaDB, PostgreSQL, SqlKind

POSTGRESQL: Final = PostgreSQL()
MARIADB: Final = MariaDB()
REDIS: Final = Redis()
REDIS_CLUSTER: Final = RedisCluster()
MONGODB: Final = FerretDB()
MONGODB_CONCURRENT: Final = NX27017()
SQL_KINDS: Final[tuple[SqlKind, ...]] = (POSTGRESQL, MARIADB)
KINDS: Final[tuple[Kind, ...]] = (*SQL_KINDS, REDIS, REDIS_CLUSTER, MONGODB, MONGODB_CONCURRENT)

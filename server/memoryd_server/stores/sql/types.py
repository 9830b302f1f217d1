"""How columns and tables are spelled on each kind of database. Migrations share it: its meaning never changes."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import VARBINARY, BigInteger, Integer, LargeBinary, String, Text
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT
from sqlalchemy.types import TypeEngine

from memoryd_server.limits import MAX_ID_BYTES

_MYSQL: Final = ("mysql", "mariadb")


def exact(length: int = MAX_ID_BYTES) -> TypeEngine[str]:
    """A text of at most `length` bytes that is compared and ordered by its UTF-8 bytes, as keys are (invariant 5).

    On SQLite any text is. On MySQL and MariaDB it is bytes, since their collations pad and fold: rows hold `bytes`.
    """
    return String(length).with_variant(Text(collation="C"), "postgresql").with_variant(VARBINARY(length), *_MYSQL)


def long_text() -> TypeEngine[str]:
    """A text of any length."""
    return Text().with_variant(LONGTEXT(), *_MYSQL)


def long_bytes() -> TypeEngine[bytes]:
    """Bytes of any length."""
    return LargeBinary().with_variant(LONGBLOB(), *_MYSQL)


def number() -> TypeEngine[int]:
    """A primary key that the database gives."""
    return BigInteger().with_variant(Integer(), "sqlite")


TABLE_OPTIONS: Final[dict[str, Any]] = {
    f"{dialect}_{option}": value
    for dialect in _MYSQL
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
"""What every table says, where the database's own default may be anything."""

OFTEN_UPDATED: Final[dict[str, Any]] = {"postgresql_with": {"fillfactor": 70}}
"""A table whose rows change all the time: room on each page spares the indexes most updates."""

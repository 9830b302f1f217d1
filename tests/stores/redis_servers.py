"""Redis servers and stores on them, for the tests of what only Redis has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from redis import Redis as Client

from memoryd_server.stores.redis.keys import PARTITIONS_OF_A_SERVER, Keys
from memoryd_server.stores.redis.store import RedisStore
from memoryd_server.stores.registry import create_store
from tests.databases.redis import prefix_of


def with_options(url: str, **options: object) -> str:
    """A URL with further options."""
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, *(f"{name}={value}" for name, value in options.items()))))
    return parts._replace(query=query).geturl()


def created(url: str) -> RedisStore:
    """A store on a URL, yet to be opened."""
    store = create_store("test", "redis", url)
    assert isinstance(store, RedisStore)
    return store


async def opened(url: str) -> RedisStore:
    """A store on a URL."""
    store = created(url)
    await store.open()
    return store


@contextmanager
def configured(client: Client, **settings: object) -> Iterator[None]:
    """A server that runs with other settings for a while."""
    names = {name.replace("_", "-"): value for name, value in settings.items()}
    found: Any = [client.config_get(name) for name in names]
    before: dict[str, str] = {name: value for each in found for name, value in each.items()}
    for name, value in names.items():
        client.config_set(name, str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


def info_of(client: Client, section: str) -> dict[str, Any]:
    """What a server tells of itself."""
    info: Any = client.info(section)
    found: dict[str, Any] = info
    return found


def calls_of(client: Client) -> dict[str, int]:
    """How often each command was called on a server, by scripts too."""
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in info_of(client, "commandstats").items()}


def keys_of(url: str) -> Keys:
    """The names of keys of a database that began on a server that is none of a cluster."""
    return Keys(prefix_of(url), PARTITIONS_OF_A_SERVER)


def members_of(client: Client, key: str) -> list[bytes]:
    """The members of a sorted set, by their bytes."""
    found: Any = client.zrange(key, 0, -1)
    return list(found)


def add_members(client: Client, key: str, members: Iterable[bytes]) -> None:
    """Puts members into a sorted set."""
    client.execute_command(  # type: ignore[no-untyped-call]
        "ZADD", key, *(value for member in members for value in (0, member))
    )

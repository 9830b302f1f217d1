"""The settings of the servers that are measured: the defaults, but for address, stores and log."""

from __future__ import annotations

from typing import Final

from memoryd_server.config import Settings, load_settings

CROWDED: Final = "crowded"
"""The name of a server's second store, of the same type, with many other sessions in it."""


def server_settings(store: str, url: str, crowded_url: str = "") -> Settings:
    """The settings of a server on a store, and on a crowded one.

    It logs errors alone, since standard error is the bench's. That costs a call what the default costs it: calls that
    succeed are logged at DEBUG, which neither shows.
    """
    urls = {store: url} | ({CROWDED: crowded_url} if crowded_url else {})
    return load_settings(
        {
            "listen": "127.0.0.1:0",
            "stores": {name: {"url": url} for name, url in urls.items()},
            "default_store": store,
            "log_level": "error",
        }
    )

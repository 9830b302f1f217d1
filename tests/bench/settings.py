"""The settings of the servers that are measured: the defaults, but for address, store and log."""

from __future__ import annotations

from pathlib import Path

from memoryd_server.config import Settings, load_settings


def server_settings(store: str, file: Path) -> Settings:
    """The settings of a server on one store; `file` is the database of `sqlite`.

    It logs errors alone, since standard error is the bench's. That costs a call what the default costs it: calls that
    succeed are logged at DEBUG, which neither shows.
    """
    url = f"sqlite:///{file.absolute()}" if store == "sqlite" else "memory://"
    return load_settings({"listen": "127.0.0.1:0", "stores": {store: {"url": url}}, "log_level": "error"})

"""Stores that a command opens itself, with no server between: which ones a person means, and opening them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from memoryd_server.cli.safe_text import one_line
from memoryd_server.config import ConfiguredStore, Settings, SettingsError
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.opening import make_data_directory, open_store
from memoryd_server.stores.urls import masked

ANSWER_SECONDS: Final = 20.0
"""How long a database may take to answer, where its type leaves that open: nobody waits for a single answer."""

NamedStore = tuple[str, ConfiguredStore]


def chosen_store(text: str, settings: Callable[[], Settings]) -> NamedStore:
    """The store that a name of the settings, or a URL, stands for. Raises: SettingsError."""
    if ":" in text:
        return masked(text), ConfiguredStore(None, text)
    stores = dict(configured_stores(settings()))
    if text not in stores:
        raise SettingsError(
            f"there is no store {one_line(masked(text))!r} in the settings, which name {', '.join(sorted(stores))}: "
            "add it to them, or give its URL"
        )
    return text, stores[text]


def configured_stores(settings: Settings) -> list[NamedStore]:
    """All stores of the settings. Raises: SettingsError."""
    if not settings.stores:
        make_data_directory(settings.data_dir.expanduser())
    return list(settings.effective_stores.items())


def check_file(name: str, store: ConfiguredStore) -> None:
    """Opening a SQLite file would make one. Raises: SettingsError when there is none."""
    if store.url is None or not store.url.lower().startswith("sqlite:"):
        return
    try:
        path = make_url(store.url).database
    except ValueError:
        return  # Opening it says what is wrong.
    if path and not Path(path).exists():
        raise SettingsError(f"store {name!r} is empty: there is no file {path}")


@asynccontextmanager
async def opened(name: str, store: ConfiguredStore, defaults: Defaults) -> AsyncIterator[Runtime]:
    """Raises: SettingsError, StoreUnavailable."""
    runtime = await open_store(name, store, defaults, answer_seconds=ANSWER_SECONDS)
    try:
        yield runtime
    finally:
        await runtime.close()


def why_not_shared(runtime: Runtime) -> str:
    """Why only the process that opened a store sees what it holds; empty where others do."""
    for capability in runtime.info.capabilities:
        if capability.name == "shared" and not capability.supported:
            return capability.reason
    return ""

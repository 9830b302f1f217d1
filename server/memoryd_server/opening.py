"""Opens the stores that settings describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from memoryd_server.config import ConfiguredStore, SettingsError, mask_url
from memoryd_server.engine.folder import Summarizers
from memoryd_server.engine.outages import without_repetition
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.base import Store, StoreInfo, StoreMisconfigured, StoreUnavailable
from memoryd_server.stores.measured import measure
from memoryd_server.stores.registry import create_store

if TYPE_CHECKING:
    from memoryd_server.metrics import Metrics

_log: Final = structlog.stdlib.get_logger("memoryd")


async def open_store(
    name: str,
    configured: ConfiguredStore,
    defaults: Defaults,
    metrics: Metrics | None = None,
    summarizers: Summarizers | None = None,
    *,
    answer_seconds: float | None = None,
) -> Runtime:
    """Opens a store. What it does is counted in `metrics`; `summarizers` are those of the server; `answer_seconds`: see
    `create_store`.

    Raises: SettingsError for one that is not set up right, StoreUnavailable for one that does not answer.
    """
    try:
        store = create_store(name, configured.type, configured.url, answer_seconds=answer_seconds)
    except StoreMisconfigured as error:
        raise SettingsError(f"{error}{configured.origin(name)}") from error
    try:
        info = await store.open()
    except StoreMisconfigured as error:
        raise SettingsError(f"Store {name!r}: {error}{configured.origin(name)}") from error
    except StoreUnavailable as error:
        raise _does_not_answer(name, configured, error) from error
    _log.info("store opened", type=info.type, url=mask_url(configured.url))
    if not info.durable:
        reasons = [capability.reason for capability in info.capabilities if capability.name == "durable"]
        _log.warning("this store is not durable", reason=" ".join(reasons))
    runtime = _runtime(name, store, info, defaults, metrics, summarizers or Summarizers())
    await runtime.clock.sync()
    return runtime


def _does_not_answer(name: str, configured: ConfiguredStore, error: StoreUnavailable) -> StoreUnavailable:
    why = without_repetition(str(error))
    cause, goes_on, _ = why.partition("If it goes on, ")
    # What else a store advises says more than this.
    if goes_on or str(error).endswith("Repeat the call."):
        why = f"{cause.strip()} To go on, start the database first, or correct its URL."
    return StoreUnavailable(
        f"store {name!r} ({mask_url(configured.url)}) does not answer: {why}{configured.origin(name)}"
    )


def _runtime(
    name: str,
    store: Store,
    info: StoreInfo,
    defaults: Defaults,
    metrics: Metrics | None,
    summarizers: Summarizers,
) -> Runtime:
    if metrics is None:
        return Runtime(name, store, info, defaults, summarizers=summarizers)
    instruments = metrics.of_store(name)
    measure(store, instruments)
    runtime = Runtime(name, store, info, defaults, instruments, summarizers)
    instruments.watch(store, lambda: runtime.committer.backlog)
    return runtime


def make_data_directory(path: Path) -> None:
    """Makes the directory of the file that is used when no store is configured. Raises: SettingsError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"data_dir: the directory {path} cannot be made ({error.strerror}): choose another one with --data-dir "
            "(MEMORYD_DATA_DIR)"
        ) from error

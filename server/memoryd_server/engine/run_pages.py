"""Runs of a session and their steps, as copies and what compares them read them: page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from memoryd_server.engine.staging import SourceChanged
from memoryd_server.stores.base import RunQuery, RunStore
from memoryd_server.stores.records import SessionKey, StoredRun, StoredStep

PAGE_RUNS: Final = 100
"""Runs that are listed at once: of each its head, which may hold 64 KiB of metadata."""

PAGE_STEPS: Final = 256
"""Steps that are read at once."""


async def list_runs(store: RunStore, key: SessionKey) -> AsyncIterator[Sequence[StoredRun]]:
    """Pages of a session's runs, newest first. Raises: StoreUnavailable."""
    after = ""
    while True:
        page = await store.list_runs(RunQuery(*key, frozenset(), PAGE_RUNS, after))
        if page.runs:
            yield [run for _, run in page.runs]
        after = page.after
        if not after:
            return


async def list_steps(
    store: RunStore, key: SessionKey, incarnation: str, run: StoredRun, *, after: int = 0, most_bytes: int
) -> AsyncIterator[Sequence[StoredStep]]:
    """Pages of those steps of a run behind `after` that it had when it was read as `run`.

    Raises: SourceChanged when it is gone; StoreUnavailable.
    """
    while after < run.state.steps:
        page = await store.list_steps(key, incarnation, run.id, after, PAGE_STEPS, most_bytes)
        steps = [step for step in page.steps if step.number <= run.state.steps] if page else []
        if not steps:
            raise SourceChanged
        yield steps
        after = steps[-1].number

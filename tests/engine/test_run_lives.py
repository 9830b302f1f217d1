"""Whatever is done to a session's runs, on every store: they are as a naive reading of the API says (invariant 15)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import clock, run_claims, tokens
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.records import SessionKey
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_ADAPTER, Adapter
from tests.engine.run_worlds import MOST_RECOVERIES, MOST_RUNS, Time, World

_EXAMPLES = {"in_memory": 60, "sqlite": 20, "mongodb": 4}
"""Lives; the servers that stand in for MongoDB are slow."""


def _in_order(names: Sequence[Any], count: int) -> Sequence[Any]:
    return names[:count]


@pytest.mark.parametrize("adapter", EACH_ADAPTER)
def test_runs_are_as_the_api_says_whatever_is_done_to_them(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fences grow, leases exclude each other, steps and repeated calls count once, and what ended stays as it is."""
    time = Time()
    monkeypatch.setattr(clock, "_machine_time", time)
    monkeypatch.setattr(limits, "MAX_UNFINISHED_RUNS", MOST_RUNS)
    monkeypatch.setattr(run_claims, "random", SimpleNamespace(sample=_in_order))
    numbers = itertools.count(1)
    calls = 40 if adapter.name == "in_memory" else 25

    @given(st.data())
    @settings(max_examples=_EXAMPLES.get(adapter.name, 8))
    def live(data: st.DataObject) -> None:
        key = SessionKey("default", f"agent-{next(numbers)}", "session")
        runner.run(World(runtime, data, time, key).live(calls))

    with adapter.emptied(tmp_path) as url, asyncio.Runner() as runner:
        store = create_store("test", adapter.type, url)
        info = runner.run(store.open())
        runtime = Runtime("default", store, info, Defaults(tokenizer=tokens.ESTIMATE, run_recoveries=MOST_RECOVERIES))
        try:
            live()
        finally:
            runner.run(runtime.close())

"""The lives of `test_folding` on every store, and what two servers do to one session there."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import folder
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.windows import SummaryState
from memoryd_server.stores.records import Retention
from memoryd_server.stores.registry import create_store
from tests.adapters import EACH_ADAPTER, EACH_SHARED_ADAPTER, Adapter
from tests.engine.folded_sessions import FoldedSession, Held, KnowingSummarizer, folding_policy, server_on
from tests.engine.messages import assistant, calls, results, system, user
from tests.engine.test_folding import Life

_EXAMPLES = {"in_memory": 10, "mongodb": 4}
"""Lives; the servers that stand in for MongoDB are slow."""


@pytest.mark.parametrize("adapter", EACH_ADAPTER)
def test_every_message_is_in_the_summary_or_raw_on_every_store(adapter: Adapter, tmp_path: Path) -> None:
    """Over any sequence of appends, loads, failures and restarts (invariants 9 to 11)."""
    numbers = itertools.count(1)

    @given(st.data())
    @settings(max_examples=_EXAMPLES.get(adapter.name, 8))
    def live(data: st.DataObject) -> None:
        runner.run(Life(store, data, f"life-{next(numbers)}").live(10))

    with adapter.emptied(tmp_path) as url, asyncio.Runner() as runner:
        store = create_store("test", adapter.type, url)
        runner.run(store.open())
        try:
            live()
        finally:
            runner.run(store.close())


@pytest.mark.parametrize("retention", Retention)
@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER)
async def test_two_servers_make_one_summary_while_messages_come_in(
    adapter: Adapter, retention: Retention, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends survive, one model is called, and either server answers the same window afterwards (invariant 10)."""
    monkeypatch.setattr(folder, "_POLL_SECONDS", 0.01)
    summarizer = KnowingSummarizer()
    async with AsyncExitStack() as running:
        url = running.enter_context(adapter.emptied(tmp_path))
        servers: list[Runtime] = []
        for _ in range(2):
            store = create_store("test", adapter.type, url)
            servers.append(server_on(store, summarizer, (await store.open()).secret))
            running.push_async_callback(servers[-1].close)
        here, there = servers
        session = FoldedSession(here, summarizer, folding_policy(6, keep=2, retention=retention))
        await session.append(system("be brief"), calls("open"), user("hi"), calls("a", "b"))
        await session.append(results("b"), assistant("between"), results("a"), user("and?"))
        held = Held()
        summarizer.behaviours.append(held)
        loads = [asyncio.create_task(session.load(on=server)) for server in servers]
        await held.begun.wait()
        await session.append(assistant("so"))
        await session.check()
        held.let_go.set()
        windows = await asyncio.gather(*loads)
        assert len(summarizer.requests) == 1
        assert {stats.summary_state for _, stats in windows} == {SummaryState.CURRENT}
        assert await session.summarized() == {2, 3, 4, 5, 7}
        await session.check()
        session.runtime = there
        await session.check_window()
        await session.check()
        await session.append(user("more"), calls("c"), results("c"), user("and more"))
        await session.check_window()
        session.runtime = here
        await session.check_window()
        await session.check()
        assert [request.previous is None for request in summarizer.requests] == [True, False]

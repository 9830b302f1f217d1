"""Fills a store before it is measured: through the engine, so that it holds exactly what the service would have stored.

    python -m tests.bench.load URL PLANS OTHERS    (sessions as `sessions.write_plans` writes them, and so many others)

A database is filled by a process of its own, which ends before the server starts: the server's memory is then that of
serving alone. What lives in a server's memory is loaded in there.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import uvloop

from memoryd.v1 import message_pb2 as pb
from memoryd_server import logs
from memoryd_server.app import open_stores
from memoryd_server.engine import histories, memory_files, summaries, tokens
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.memory_guide import INDEX
from memoryd_server.engine.memory_writes import Write
from memoryd_server.engine.runtime import Runtime
from memoryd_server.interceptors.authentication import DEFAULT_TENANT
from memoryd_server.services.message_codec import decode_messages
from memoryd_server.stores.records import (
    FileKey,
    FileOwner,
    Policy,
    SessionKey,
    SummaryPolicy,
    Tier,
    WindowMode,
    WindowOptions,
)
from memoryd_server.summarizers.base import CLIENT
from tests.bench.child import announce
from tests.bench.histories import SUMMARY, Writer
from tests.bench.memories import index
from tests.bench.runs import load_runs
from tests.bench.sessions import AGENT, SessionPlan, read_plans
from tests.bench.settings import server_settings

BATCH: Final = 128
"""Messages of an append: few enough that their tokens are counted at once, so that appends keep their order."""
TOGETHER: Final = 16
"""Appends that share a commit."""
CROWD_TOGETHER: Final = 256
"""Sessions that begin at once."""

SUMMARIZED: Final = Policy(WindowOptions(mode=WindowMode.MESSAGES, limit=20), SummaryPolicy(summarizer=CLIENT))
"""Of sessions with summaries: what windows of 20 messages do not hold is folded."""


async def load(runtime: Runtime, plans: Iterable[SessionPlan], progress: Callable[[int], None]) -> None:
    """Appends the messages of all sessions, stores runs, and puts memory; tells now and then how many messages it has
    appended so far.
    """
    tokens.counter(runtime.defaults.tokenizer)
    gc.disable()  # All that is made here stays: looking for what does not would take most of the time.
    try:
        loaded = 0
        for plan in plans:
            if plan.remembered:
                await _remember(runtime, plan)
                continue
            if plan.runs:
                await load_runs(runtime, plan)
                continue
            messages = plan.messages()
            while batches := [batch for _ in range(TOGETHER) if (batch := list(islice(messages, BATCH)))]:
                await _append(runtime, plan, batches)
                loaded += sum(map(len, batches))
                progress(loaded)
            await _verify(runtime, plan)
            if plan.summarized:
                await _summarize(runtime, _key(plan))
    finally:
        gc.enable()
        gc.collect()


async def _append(runtime: Runtime, plan: SessionPlan, batches: Sequence[Sequence[pb.Message]]) -> None:
    key = _key(plan)
    settings = SessionSettings(policy=SUMMARIZED if plan.summarized else Policy())
    appends = (
        histories.append(runtime, histories.Append(key, decode_messages(batch), settings=settings)) for batch in batches
    )
    answers = await asyncio.gather(*appends)
    seqs = [appended.seq for answer in answers for appended in answer]
    if seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        raise RuntimeError("the appends of a history were stored in another order: lower BATCH")


async def _verify(runtime: Runtime, plan: SessionPlan) -> None:
    loaded = await runtime.store.load(_key(plan))
    if loaded is None or loaded.record.messages != plan.length:
        raise RuntimeError(f"session {plan.name} does not hold {plan.length:,} messages: {loaded}")


async def _remember(runtime: Runtime, plan: SessionPlan) -> None:
    for tier in Tier:
        key = FileKey(FileOwner(DEFAULT_TENANT, tier, plan.name), INDEX)
        await memory_files.put(runtime, Write(key), index(tier.name.lower()).encode())


async def _summarize(runtime: Runtime, key: SessionKey) -> None:
    """Folds all that windows do not hold, as an agent's own model does."""
    while task := await summaries.lease_task(runtime, key=key):
        await summaries.commit_task(runtime, key, task.token, SUMMARY, "bench")


def _key(plan: SessionPlan) -> SessionKey:
    return SessionKey(DEFAULT_TENANT, AGENT, plan.name)


async def crowd(runtime: Runtime, others: int, progress: Callable[[int], None]) -> None:
    """Begins so many sessions of one message each, of as many users as agents; tells now and then how many so far."""
    writer = Writer("others")
    for first in range(0, others, CROWD_TOGETHER):
        numbers = range(first, min(first + CROWD_TOGETHER, others))
        await asyncio.gather(*(_begin(runtime, number, writer.plain()) for number in numbers))
        progress(numbers[-1] + 1)


async def _begin(runtime: Runtime, number: int, message: pb.Message) -> None:
    key = SessionKey(DEFAULT_TENANT, AGENT if number % 2 else f"agent-{number % 100}", f"other-{number}")
    settings = SessionSettings(f"user-{number % 1_000}")
    await histories.append(runtime, histories.Append(key, decode_messages([message]), settings=settings))


async def main(url: str, plans: Path, others: int) -> None:
    settings = server_settings("default", url)
    logs.set_up(settings.log_level, settings.log_format)
    async with open_stores(settings) as stores:
        runtime = stores.pick("")
        await load(runtime, read_plans(plans), lambda loaded: announce(loaded=loaded))
        await crowd(runtime, others, lambda loaded: announce(loaded=loaded))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))

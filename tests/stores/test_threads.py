"""`HoldingThreads`: calls on threads that hold something each."""

from __future__ import annotations

import asyncio
import threading

import pytest

from memoryd_server.stores.base import StoreUnavailable
from memoryd_server.stores.sql.threads import HoldingThreads


class Held:
    """What a thread holds in these tests: it knows its thread, and whether it was closed there."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.closed_by: threading.Thread | None = None
        self.upkeep = 0

    def close(self) -> None:
        self.closed_by = threading.current_thread()

    def tidy(self) -> None:
        self.upkeep += 1

    def call(self, *values: int) -> tuple[int, ...]:
        assert threading.current_thread() is self.thread
        return values

    def fail(self) -> None:
        raise LookupError("a reason")


@pytest.fixture
def held() -> list[Held]:
    return []


@pytest.fixture
def threads(held: list[Held]) -> HoldingThreads[Held]:
    def open_held() -> Held:
        held.append(Held())
        return held[-1]

    return HoldingThreads("test", 3, open_held, Held.close, Held.tidy)


async def test_each_opens_uses_and_closes_its_own(threads: HoldingThreads[Held], held: list[Held]) -> None:
    await threads.start()
    assert len(held) == 3
    answers = await asyncio.gather(*(threads.run(Held.call, number) for number in range(50)))
    assert answers == [(number,) for number in range(50)]
    await threads.stop()
    assert len({each.thread for each in held}) == 3
    for each in held:
        assert each.closed_by is each.thread
        assert not each.thread.is_alive()


async def test_a_failed_call_raises_and_harms_no_other(threads: HoldingThreads[Held]) -> None:
    await threads.start()
    for number in range(10):
        with pytest.raises(LookupError, match="a reason"):
            await threads.run(Held.fail)
        assert await threads.run(Held.call, number) == (number,)
    await threads.stop()


async def test_waiting_calls_are_made_before_the_end(threads: HoldingThreads[Held]) -> None:
    await threads.start()
    release = threading.Event()
    blocking = [asyncio.ensure_future(threads.run(lambda _: release.wait())) for _ in range(3)]
    waiting = [asyncio.ensure_future(threads.run(Held.call, number)) for number in range(9)]
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(threads.stop())
    await asyncio.sleep(0)
    release.set()
    await stopping
    assert await asyncio.gather(*blocking) == [True] * 3
    assert await asyncio.gather(*waiting) == [(number,) for number in range(9)]


async def test_a_cancelled_call_goes_on_and_nobody_hears_of_it(threads: HoldingThreads[Held]) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    await threads.start()
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def call(_: Held) -> None:
        begun.set()
        release.wait()
        ended.set()

    def fail(_: Held) -> None:
        call(_)
        raise LookupError

    for each in (call, fail):
        running = asyncio.ensure_future(threads.run(each))
        await asyncio.to_thread(begun.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        release.set()
        await asyncio.to_thread(ended.wait)
        for event in (begun, release, ended):
            event.clear()
    await threads.stop()
    await asyncio.sleep(0)
    assert heard == []


async def test_upkeep_follows_every_call_that_was_made(threads: HoldingThreads[Held], held: list[Held]) -> None:
    await threads.start()
    await asyncio.gather(*(threads.run(Held.call) for _ in range(20)))
    await threads.stop()
    assert sum(each.upkeep for each in held) == 20


async def test_after_the_end_calls_are_refused_until_a_new_start(
    threads: HoldingThreads[Held], held: list[Held]
) -> None:
    with pytest.raises(StoreUnavailable, match="closed"):
        await threads.run(Held.call)
    await threads.start()
    await threads.stop()
    with pytest.raises(StoreUnavailable, match="closed"):
        await threads.run(Held.call)
    await threads.start()
    assert await threads.run(Held.call, 1) == (1,)
    await threads.stop()
    assert len(held) == 6


async def test_a_failed_start_ends_what_was_started() -> None:
    opened: list[Held] = []

    def open_held() -> Held:
        if len(opened) == 2:
            raise LookupError("no more of them")
        opened.append(Held())
        return opened[-1]

    threads = HoldingThreads("test", 3, open_held, Held.close)
    with pytest.raises(LookupError, match="no more"):
        await threads.start()
    for each in opened:
        assert each.closed_by is each.thread
        assert not each.thread.is_alive()


def test_a_loop_that_is_gone_harms_no_thread(threads: HoldingThreads[Held], held: list[Held]) -> None:
    """As when a process is interrupted: the call under way ends, with nobody to answer."""
    release = threading.Event()

    async def begin() -> None:
        await threads.start()
        calls = [asyncio.ensure_future(threads.run(lambda _: release.wait())) for _ in range(2)]
        await asyncio.sleep(0)
        calls[0].cancel()

    asyncio.run(begin())
    release.set()
    for _ in held:
        threads._jobs.put(None)
    for each in held:
        each.thread.join()
        assert each.closed_by is each.thread
        assert each.thread.daemon

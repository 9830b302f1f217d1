"""Watches of a real server: every event once, in order, whatever happens on the way."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memoryd import (
    AsyncMemoryClient,
    AsyncSession,
    ResumeTokenInvalid,
    ServerUnavailable,
    SessionNotFound,
    SessionSettings,
    WatchEvent,
    WatchEventKind,
    user,
)
from tests.conftest import StartServer
from tests.sdk.conftest import Connect
from tests.servers import ServerProcess
from tests.service.lossy_proxy import LossyProxy

Happened = tuple[str, int, int]
"""A kind of event and its seqs."""


async def taken(watch: Any, count: int) -> list[WatchEvent]:
    return [await anext(watch) for _ in range(count)]


def happened(events: Iterable[WatchEvent]) -> list[Happened]:
    """Appends message by message: those that were taken away since may share an event."""
    return [
        each
        for event in events
        for each in (
            [(event.kind.value, seq, seq) for seq in range(event.from_seq, event.to_seq + 1)]
            if event.kind is WatchEventKind.APPENDED
            else [(event.kind.value, event.from_seq, event.to_seq)]
        )
    ]


async def test_a_watch_tells_what_happens(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    first, second, third = user("a"), user("b"), user("c")
    await session.append(first)
    async with session.watch() as watch:
        await session.append(second, third)
        await session.redact(seq=2, reason="why")
        await session.rewind(2)
        await session.clear()
        events = await taken(watch, 5)
    assert happened(events) == [
        ("appended", 2, 2),
        ("appended", 3, 3),
        ("redacted", 2, 2),
        ("rewound", 3, 3),
        ("cleared", 1, 3),
    ]
    assert len({event.resume_token for event in events}) == 5
    times = [event.event_time for event in events if event.event_time is not None]
    assert all(abs(datetime.now(UTC) - moment) < timedelta(minutes=5) for moment in times)


async def test_messages_come_whole(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("a"))
    async with session.watch(after_seq=0) as watch:
        await session.append(user("b\x00🙂", name="mia"))
        events = await taken(watch, 2)
        stored = [message async for message in session.messages()]
        assert [event.message for event in events] == stored
        assert [(m.seq, m.id, m.token_count) for m in stored] == [
            (e.message.seq, e.message.id, e.message.token_count) for e in events if e.message
        ]
        redacted = await session.redact(seq=1)
        (event,) = await taken(watch, 1)
        assert (event.kind, event.message) == (WatchEventKind.REDACTED, redacted)
        assert event.message is not None
        assert event.message.redaction == redacted.redaction


async def test_any_token_goes_on_behind_its_event(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(*(user(str(number)) for number in range(6)))
    async with session.watch(after_seq=0) as watch:
        events = await taken(watch, 6)
    for event in events[:-1]:
        async with session.watch(resume_token=event.resume_token) as watch:
            assert (await anext(watch)).from_seq == event.to_seq + 1
    async with session.watch(after_seq=4) as watch:
        assert [event.from_seq for event in await taken(watch, 2)] == [5, 6]
        last = watch.resume_token
    await session.clear()
    async with session.watch(resume_token=last) as watch:
        assert happened([await anext(watch)]) == [("cleared", 1, 6)]


async def test_a_session_that_is_not_there_cannot_be_watched(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    with pytest.raises(SessionNotFound):
        await anext(session.watch())
    await session.append(user("a"))
    with pytest.raises(ResumeTokenInvalid):
        await anext(session.watch(resume_token="nonsense"))
    other = memory.session(agent=agent)
    await other.append(user("a"))
    async with other.watch() as watch:
        token = watch.resume_token
    with pytest.raises(ResumeTokenInvalid):
        await anext(session.watch(resume_token=token))


async def test_erasure_ends_a_watch_and_a_new_life_is_not_the_old_one(memory: AsyncMemoryClient, agent: str) -> None:
    """An old life's token tells that events are missing, and nothing of the old life."""
    session = memory.session(agent=agent)
    await session.append(user("old"), create=SessionSettings(user_id=agent))
    async with session.watch(after_seq=0) as watch:
        await anext(watch)
        await memory.erase_user(agent)
        with pytest.raises(SessionNotFound):
            await anext(watch)
        token = watch.resume_token
    await session.append(user("new"))
    async with session.watch(resume_token=token) as watch:
        await session.append(user("newer"))
        resync, event = await taken(watch, 2)
    assert (resync.kind, resync.from_seq, resync.message) == (WatchEventKind.RESYNC, 0, None)
    assert event.message is not None
    assert event.message.text == "newer"


class Writer:
    """Changes a session at random, and knows what a watcher must see."""

    def __init__(self, session: AsyncSession, chance: random.Random) -> None:
        self._session = session
        self._chance = chance
        self._held: list[int] = []
        self._first_seq, self._last_seq = 1, 0
        self._redacted: set[int] = set()
        self.wrote: list[Happened] = []

    async def write(self) -> None:
        held = self._held
        match self._chance.choices(["append", "redact", "rewind", "clear"], [12, 3, 2, 1])[0]:
            case "redact" if [seq for seq in held if seq not in self._redacted]:
                seq = self._chance.choice([seq for seq in held if seq not in self._redacted])
                await self._session.redact(seq=seq)
                self._redacted.add(seq)
                self.wrote.append(("redacted", seq, seq))
            case "rewind" if len(held) > 1:
                place = self._chance.randrange(1, len(held))
                await self._session.rewind(held[place - 1])
                self.wrote.append(("rewound", held[place], held[-1]))
                del held[place:]
            case "clear" if held:
                await self._session.clear()
                self.wrote.append(("cleared", self._first_seq, self._last_seq))
                self._first_seq = self._last_seq + 1
                held.clear()
            case _:
                messages = [user("x" * self._chance.randrange(2_000)) for _ in range(self._chance.randrange(1, 6))]
                for appended in await self._session.append(*messages):
                    held.append(appended.seq)
                    self._last_seq = appended.seq
                    self.wrote.append(("appended", appended.seq, appended.seq))


async def follow(session: Any, seen: list[WatchEvent], stands: asyncio.Event) -> None:
    async with session.watch() as watch:
        stands.set()
        async for event in watch:
            seen.append(event)
            if event.message is not None and event.message.text == "the end":
                return


@asynccontextmanager
async def followed(connect: Connect, proxy: LossyProxy, agent: str) -> AsyncIterator[list[WatchEvent]]:
    """What a watch through the proxy saw, complete once it is left."""
    seen: list[WatchEvent] = []
    stands = asyncio.Event()
    following = asyncio.create_task(follow(connect(proxy.address).session(agent=agent, id="s"), seen, stands))
    await stands.wait()
    yield seen
    async with AsyncMemoryClient(proxy.target) as memory:
        await memory.session(agent=agent, id="s").append(user("the end"))
    await following


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_watch_that_is_cut_off_at_random_sees_every_event_once_in_order(
    seed: int, connect: Connect, server: ServerProcess, agent: str
) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    async with AsyncMemoryClient(server.address) as memory, LossyProxy.run(server.address) as proxy:
        session = memory.session(agent=agent, id="s")
        writer = Writer(session, chance)
        await writer.write()
        before = len(writer.wrote)
        async with followed(connect, proxy, agent) as seen:
            for _ in range(120):
                await writer.write()
                if chance.random() < 0.2:
                    proxy.losing = True
                if chance.random() < 0.2:
                    proxy.losing = False
                    proxy.cut()
            proxy.losing = False
            proxy.cut()
        assert happened(seen[:-1]) == writer.wrote[before:]
        assert len({event.resume_token for event in seen}) == len(seen)


async def until_reached(session: AsyncSession) -> None:
    """Returns when a client that lost its server has found the next one: gRPC tries to connect now and then."""
    async with asyncio.timeout(30):
        while True:
            with suppress(ServerUnavailable):
                await session.info()
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", [4])
async def test_a_watch_outlives_its_server(
    seed: int, connect: Connect, start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    """Killed, or drained: the next server goes on behind the last event that was seen."""
    print("seed", seed)
    chance = random.Random(seed)
    server = start_server("--data-dir", str(tmp_path / "data"))
    async with LossyProxy.run(server.address) as proxy, AsyncMemoryClient(proxy.address) as memory:
        session = memory.session(agent=agent, id="s")
        writer = Writer(session, chance)
        await writer.write()
        before = len(writer.wrote)
        async with followed(connect, proxy, agent) as seen:
            for end in (server.kill, server.stop):
                for _ in range(chance.randrange(5, 15)):
                    await writer.write()
                await asyncio.to_thread(end)
                await asyncio.to_thread(server.restart)
                proxy.target = server.address
                await until_reached(session)
            for _ in range(10):
                await writer.write()
        assert happened(seen[:-1]) == writer.wrote[before:]

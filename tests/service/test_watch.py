"""Watches by a bare client: every event once and in order, whoever made it and whatever happens on the way (design
section 3)."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from memoryd_server import limits
from memoryd_server.engine import watching
from memoryd_server.engine.clock import StoreClock
from memoryd_server.stores.memory import InMemoryStore
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.conftest import Addresses
from tests.service.in_process import AsyncStubs, connect, failing, serving, until
from tests.service.lossy_proxy import LossyProxy
from tests.service.wire import Stubs, new_key, refused, text

APPENDED: Final = history.WATCH_EVENT_KIND_APPENDED
REDACTED: Final = history.WATCH_EVENT_KIND_REDACTED
CLEARED: Final = history.WATCH_EVENT_KIND_CLEARED
REWOUND: Final = history.WATCH_EVENT_KIND_REWOUND
RESYNC: Final = history.WATCH_EVENT_KIND_RESYNC


class Happened:
    """What was done to a session, in order, and what a watch must tell of it."""

    def __init__(self, key: session.SessionKey, seed: int) -> None:
        self.key = key
        self.random = random.Random(seed)
        self.expected: list[tuple[int, frozenset[int]]] = []
        """The kind of each event, and the seqs of the messages that it is about; appends message by message."""
        self.said: dict[int, str] = {}
        self._live: list[int] = []
        self._redacted: set[int] = set()

    async def happen(self, stubs: AsyncStubs) -> None:
        """One call at random."""
        kinds = ("append", "redact", "rewind", "clear")
        match self.random.choices(kinds, (70, 15, 12, 3))[0]:
            case "redact" if self._live:
                await self._redact(stubs, self.random.choice(self._live))
            case "rewind" if self._live:
                await self._take_away(stubs, REWOUND, self.random.choice(self._live[-5:]) - self.random.randint(0, 1))
            case "clear" if self._live:
                await self._take_away(stubs, CLEARED, 0)
            case _:
                await self.append(stubs, self.random.choice((1, 1, 2, 5, 40)))

    async def append(self, stubs: AsyncStubs, count: int) -> None:
        messages = [text(f"word {self.random.random()}") for _ in range(count)]
        request = history.AppendMessagesRequest(session=self.key, messages=messages)
        answer = await stubs.histories.AppendMessages(request, timeout=30)
        for message, appended in zip(messages, answer.messages, strict=True):
            self.said[appended.seq] = message.content.parts[0].text
            self._live.append(appended.seq)
            self.expected.append((APPENDED, frozenset({appended.seq})))

    async def _redact(self, stubs: AsyncStubs, seq: int) -> None:
        await stubs.histories.RedactMessage(history.RedactMessageRequest(session=self.key, seq=seq), timeout=30)
        if seq not in self._redacted:
            self._redacted.add(seq)
            self.expected.append((REDACTED, frozenset({seq})))

    async def _take_away(self, stubs: AsyncStubs, kind: int, to_seq: int) -> None:
        if kind == CLEARED:
            await stubs.histories.ClearHistory(history.ClearHistoryRequest(session=self.key), timeout=30)
        else:
            request = history.RewindSessionRequest(session=self.key, to_seq=to_seq)
            await stubs.histories.RewindSession(request, timeout=30)
        taken = frozenset(seq for seq in self._live if seq > to_seq)
        self._live = [seq for seq in self._live if seq <= to_seq]
        if taken:
            self.expected.append((kind, taken))

    def check(self, told: Sequence[history.WatchEvent]) -> None:
        """Each event was told once, in order, and is about the very messages."""
        live: set[int] = set()
        found: list[tuple[int, frozenset[int]]] = []
        for event in told:
            about = range(event.from_seq, event.to_seq + 1)
            if event.kind == APPENDED:
                found += [(APPENDED, frozenset({seq})) for seq in about]
                live.update(about)
            else:
                found.append((event.kind, frozenset(live.intersection(about))))
            if event.kind in {CLEARED, REWOUND}:
                live.difference_update(about)
            if event.HasField("message"):
                self._check_message(event.message, event)
        assert found == self.expected

    def _check_message(self, message: pb.Message, event: history.WatchEvent) -> None:
        """As it was appended, or as it is since it was redacted, which another event then tells."""
        assert message.seq == event.from_seq == event.to_seq
        (part,) = message.content.parts
        if message.HasField("redaction"):
            assert message.seq in self._redacted
            assert part.text == "[REDACTED]"
        else:
            assert event.kind == APPENDED
            assert part.text == self.said[message.seq]


class Watcher:
    """Watches through a proxy that breaks the connection again and again, and goes on where it was, at any server."""

    def __init__(self, proxy: LossyProxy, addresses: Addresses, key: session.SessionKey, seed: int) -> None:
        self.told: list[history.WatchEvent] = []
        self.cuts = 0
        self._proxy = proxy
        self._addresses = addresses
        self._random = random.Random(seed)
        self._request = history.WatchMessagesRequest(session=key, after_seq=0)

    def tells(self, seq: int) -> bool:
        """Whether an append was told."""
        return any(event.kind == APPENDED and event.from_seq <= seq <= event.to_seq for event in self.told)

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            self._proxy.target = self._random.choice(self._addresses)
            cutting = asyncio.create_task(self._cut(after=self._random.uniform(0.05, 0.5)))
            async with connect(self._proxy.address) as channel:
                with suppress(grpc.aio.AioRpcError):
                    await self._read(AsyncStubs(channel), self._random.randrange(1, 60))
            cutting.cancel()
            self.cuts += 1

    async def _cut(self, after: float) -> None:
        await asyncio.sleep(after)
        self._proxy.cut()

    async def _read(self, stubs: AsyncStubs, most: int) -> None:
        """Reads some events, and leaves the rest of the answer unread, which the next stream then begins with."""
        async for answer in stubs.histories.WatchMessages(self._request, timeout=60):
            for event in answer.events:
                self.told.append(event)
                self._go_on_from(event.resume_token)
                most -= 1
                if not most:
                    return
            self._go_on_from(answer.resume_token)

    def _go_on_from(self, token: str) -> None:
        self._request.resume_token = token
        self._request.ClearField("after_seq")


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_watcher_that_is_cut_off_again_and_again_is_told_each_event_once(
    pair: Addresses, agent: str, seed: int
) -> None:
    key = new_key(agent)
    happened = Happened(key, seed)
    async with LossyProxy.run(pair[0]) as proxy, connect(pair[0]) as here, connect(pair[1]) as there:
        servers = [AsyncStubs(here), AsyncStubs(there)]
        await happened.append(servers[0], 3)
        watcher = Watcher(proxy, pair, key, seed)
        watching_ = asyncio.create_task(watcher.run())
        for _ in range(150):
            await happened.happen(happened.random.choice(servers))
            if happened.random.random() < 0.05:
                await until(lambda: watcher.tells(max(happened.said)))
        await happened.append(servers[1], 1)
        await until(lambda: watcher.tells(max(happened.said)))
        watching_.cancel()
    print(f"seed {seed}: {len(happened.expected)} events through {watcher.cuts} connections")
    happened.check(watcher.told)


def watch(stubs: Stubs, key: session.SessionKey, **fields: Any) -> Any:
    return stubs.histories.WatchMessages(history.WatchMessagesRequest(session=key, **fields), timeout=60)


def events_of(stream: Any, count: int) -> list[history.WatchEvent]:
    """The next events of a stream."""
    found: list[history.WatchEvent] = []
    while len(found) < count:
        found += next(stream).events
    assert len(found) == count
    return found


class TestEvents:
    def test_begin_with_what_happens_from_now_on(self, stubs: Stubs, agent: str) -> None:
        """The first answer is empty and comes at once: from then on nothing is missed."""
        key = new_key(agent)
        stubs.append(key, text("before"))
        stream = watch(stubs, key)
        first = next(stream)
        assert (list(first.events), bool(first.resume_token)) == ([], True)
        stubs.append(key, text("after", id="a"))
        (event,) = events_of(stream, 1)
        assert (event.kind, event.from_seq, event.to_seq) == (APPENDED, 2, 2)
        assert event.message == stubs.histories.GetMessage(history.GetMessageRequest(session=key, seq=2)).message
        assert event.event_time == event.message.create_time

    def test_begin_behind_a_seq(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("one"), text("two"), text("three"))
        assert [event.from_seq for event in events_of(watch(stubs, key, after_seq=0), 3)] == [1, 2, 3]
        assert [event.from_seq for event in events_of(watch(stubs, key, after_seq=2), 1)] == [3]
        beyond = watch(stubs, key, after_seq=1_000)
        next(beyond)
        stubs.append(key, text("four"))
        assert [event.from_seq for event in events_of(beyond, 1)] == [4]

    def test_tell_of_clears_rewinds_and_redactions(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, *(text(f"{number}") for number in range(1, 6)))
        stream = watch(stubs, key)
        next(stream)
        stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=2, reason="asked"))
        (redacted,) = events_of(stream, 1)
        stubs.histories.RewindSession(history.RewindSessionRequest(session=key, to_seq=3))
        (rewound,) = events_of(stream, 1)
        stubs.clear(key)
        (cleared,) = events_of(stream, 1)

        assert (redacted.kind, redacted.from_seq, redacted.to_seq) == (REDACTED, 2, 2)
        assert redacted.message.redaction.reason == "asked"
        assert redacted.message.content.parts[0].text == "[REDACTED]"
        assert (rewound.kind, rewound.from_seq, rewound.to_seq) == (REWOUND, 4, 5)
        assert (cleared.kind, cleared.from_seq) == (CLEARED, 1)
        assert cleared.to_seq in {3, 5}
        assert not rewound.HasField("message")
        assert not cleared.HasField("message")

    def test_after_a_cut_begin_with_the_clear_that_happened_meanwhile(self, pair: Addresses, agent: str) -> None:
        """Seen by the other server, and made by this one. What was appended and cleared meanwhile is told without its
        content."""
        key = new_key(agent)
        with Stubs(pair[0]) as here, Stubs(pair[1]) as there:
            here.append(key, text("one"))
            stream = watch(here, key)
            token = next(stream).resume_token
            stream.cancel()
            here.append(key, text("two"), text("three"))
            here.clear(key)
            here.append(key, text("four"))
            lost, cleared, appended = events_of(watch(there, key, resume_token=token), 3)
            assert (lost.kind, lost.from_seq, lost.to_seq, lost.HasField("message")) == (APPENDED, 2, 3, False)
            assert (cleared.kind, cleared.from_seq, cleared.to_seq) == (CLEARED, 1, 3)
            assert (appended.kind, appended.from_seq, appended.message.content.parts[0].text) == (APPENDED, 4, "four")
            for token, left in ((lost.resume_token, [CLEARED, APPENDED]), (cleared.resume_token, [APPENDED])):
                again = watch(here, key, resume_token=token)
                assert [event.kind for event in events_of(again, len(left))] == left

    def test_do_not_tell_of_calls_that_changed_nothing(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("one", id="a"))
        stream = watch(stubs, key)
        next(stream)
        stubs.histories.UpdateSession(history.UpdateSessionRequest(session=session.Session(key=key, user_id="u")))
        stubs.append(key, text("one", id="a"))
        stubs.histories.RewindSession(history.RewindSessionRequest(session=key, to_seq=7, request_id="r"))
        stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=1))
        stubs.histories.RedactMessage(history.RedactMessageRequest(session=key, seq=1))
        stubs.clear(key)
        stubs.clear(key)
        assert [event.kind for event in events_of(stream, 2)] == [REDACTED, CLEARED]
        stubs.append(key, text("two"))
        assert [event.kind for event in events_of(stream, 1)] == [APPENDED]

    def test_of_a_fork_begin_with_what_it_copied(self, stubs: Stubs, agent: str) -> None:
        source, target = new_key(agent), new_key(agent)
        stubs.append(source, text("one"), text("two"))
        stubs.histories.RedactMessage(history.RedactMessageRequest(session=source, seq=1))
        stubs.histories.ForkSession(history.ForkSessionRequest(source=source, target=target))
        stubs.append(target, text("three"))
        found = events_of(watch(stubs, target, after_seq=0), 3)
        assert [(event.kind, event.from_seq) for event in found] == [(APPENDED, 1), (APPENDED, 2), (APPENDED, 3)]


class TestTokens:
    @pytest.mark.parametrize(
        "tamper",
        [
            lambda token: token[:-1],
            lambda token: token + "A",
            lambda token: token[::-1],
            lambda token: token[: len(token) // 2],
            lambda token: ("B" if token[0] == "A" else "A") + token[1:],
            lambda token: token[:-2] + ("AA" if token[-2:] != "AA" else "BB"),
            lambda _: "x",
            lambda _: "é",
        ],
    )
    def test_that_are_damaged_are_refused(self, sqlite_stubs: Stubs, agent: str, tamper: Callable[[str], str]) -> None:
        key = new_key(agent)
        sqlite_stubs.append(key, text("one"))
        token = next(watch(sqlite_stubs, key)).resume_token
        self.check_refused(sqlite_stubs, key, tamper(token))

    def check_refused(self, stubs: Stubs, key: session.SessionKey, token: str) -> None:
        refusal = refused(lambda: next(watch(stubs, key, resume_token=token)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "RESUME_TOKEN_INVALID")
        assert refusal.metadata["field"] == "resume_token"

    def test_of_another_session_are_refused(self, stubs: Stubs, agent: str) -> None:
        key, other = new_key(agent), new_key(agent)
        stubs.append(key, text("one"))
        stubs.append(other, text("one"))
        self.check_refused(stubs, key, next(watch(stubs, other)).resume_token)

    def test_of_another_agent_are_refused(self, stubs: Stubs, agent: str) -> None:
        keys = [session.SessionKey(agent=f"{agent}{suffix}", session_id="s") for suffix in "ab"]
        for key in keys:
            stubs.append(key, text("one"))
        self.check_refused(stubs, keys[0], next(watch(stubs, keys[1])).resume_token)

    def test_of_another_store_are_refused(
        self, server: ServerProcess, in_memory_server: ServerProcess, agent: str
    ) -> None:
        key = new_key(agent)
        with Stubs(server.address) as one, Stubs(in_memory_server.address) as other:
            for stubs in (one, other):
                stubs.append(key, text("one"))
            self.check_refused(one, key, next(watch(other, key)).resume_token)
            self.check_refused(other, key, next(watch(one, key)).resume_token)

    def test_of_pages_are_refused(self, stubs: Stubs, agent: str) -> None:
        key = new_key(agent)
        stubs.append(key, text("one"), text("two"))
        page = stubs.histories.ListMessages(history.ListMessagesRequest(session=key, page_size=1))
        self.check_refused(stubs, key, page.next_page_token)
        list_ = history.ListMessagesRequest(session=key, page_size=1, page_token=next(watch(stubs, key)).resume_token)
        assert refused(lambda: stubs.histories.ListMessages(list_)).reason == "PAGE_TOKEN_INVALID"

    async def test_older_than_24_hours_have_the_caller_read_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The events since are not kept for longer. What happens from then on is told."""
        key = session.SessionKey(agent="a", session_id="s")
        late = 0

        def now(clock: StoreClock) -> int:
            del clock
            return 1_800_000_000_000_000 + late

        monkeypatch.setattr(StoreClock, "now", now)
        async with serving(InMemoryStore()) as (_, stubs):

            async def append(said: str) -> None:
                await stubs.histories.AppendMessages(
                    history.AppendMessagesRequest(session=key, messages=[text(said)]), timeout=10
                )

            async def first_events(token: str) -> tuple[Any, list[history.WatchEvent]]:
                request = history.WatchMessagesRequest(session=key, resume_token=token)
                stream = stubs.histories.WatchMessages(request, timeout=20)
                while not (answer := await anext(aiter(stream))).events:
                    pass
                return stream, list(answer.events)

            await append("one")
            stream = stubs.histories.WatchMessages(history.WatchMessagesRequest(session=key), timeout=20)
            token = (await anext(aiter(stream))).resume_token
            stream.cancel()
            await append("two")

            late = limits.EVENT_SECONDS * 1_000_000 - 1
            stream, events = await first_events(token)
            assert [(event.kind, event.from_seq) for event in events] == [(APPENDED, 2)]
            stream.cancel()
            late += 1
            stream, events = await first_events(token)
            assert [(event.kind, event.from_seq, event.to_seq) for event in events] == [(RESYNC, 0, 0)]
            await append("three")
            assert [event.from_seq for event in (await anext(aiter(stream))).events] == [3]
            resumed, events = await first_events(events[0].resume_token)
            assert [event.from_seq for event in events] == [3]
            for each in (stream, resumed):
                each.cancel()


def memory_of(server: ServerProcess) -> int:
    """The bytes that a server holds in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return 1024 * int(kilobytes)


class TestSlowWatchers:
    MIB: Final = 1024 * 1024

    async def fill(self, stubs: AsyncStubs, key: session.SessionKey, mebibytes: int) -> None:
        for _ in range(mebibytes // 2):
            messages = [text("x" * (self.MIB // 8)) for _ in range(16)]
            await stubs.histories.AppendMessages(
                history.AppendMessagesRequest(session=key, messages=messages), timeout=60
            )

    async def test_that_read_nothing_do_not_grow_the_server(self, start_server: StartServer, tmp_path: Path) -> None:
        """Unread, the events would take 20 times what is allowed here. Read later, none is missing."""
        watchers, mebibytes = 20, 80
        server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate")
        key = session.SessionKey(agent="a", session_id="s")
        async with connect(server.address) as channel:
            stubs = AsyncStubs(channel)
            await self.fill(stubs, key, 24)
            before = memory_of(server)
            channels = [connect(server.address) for _ in range(watchers)]
            request = history.WatchMessagesRequest(session=key)
            streams = [AsyncStubs(each).histories.WatchMessages(request, timeout=120) for each in channels]
            for stream in streams:
                assert not (await anext(aiter(stream))).events
            for _ in range(10):
                await self.fill(stubs, key, mebibytes // 10)
                assert memory_of(server) - before < 80 * self.MIB
            expected = list(range(24 * 8 + 1, (24 + mebibytes) * 8 + 1))
            told = [event.from_seq async for event in events_up_to(streams[0], expected[-1])]
            assert told == expected
            for each in channels:
                await each.close()

    async def test_are_told_to_resume_and_miss_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "WATCH_STALL_SECONDS", 0.1)
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(InMemoryStore()) as (app, stubs):
            request = history.WatchMessagesRequest(session=key, after_seq=0)
            await self.fill(stubs, key, 32)
            stream = stubs.histories.WatchMessages(request, timeout=30)
            told: list[history.WatchEvent] = []
            await anext(aiter(stream))
            await asyncio.sleep(0.5)
            refusal = await failing(collect(stream, told))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "WATCH_STALLED")
            assert refusal.retry_seconds is not None
            await app.in_flight.wait_until_idle()

            resumed = history.WatchMessagesRequest(session=key, resume_token=told[-1].resume_token)
            stream = stubs.histories.WatchMessages(resumed, timeout=30)
            told += [event async for event in events_up_to(stream, 32 * 8)]
            assert [event.from_seq for event in told] == list(range(1, 32 * 8 + 1))
            stream.cancel()

    async def test_are_not_those_that_nothing_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A watch on which nothing happens stays, and answers now and then to show that it lives."""
        monkeypatch.setattr(limits, "WATCH_STALL_SECONDS", 0.05)
        monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.05)
        key = session.SessionKey(agent="a", session_id="s")
        async with serving(InMemoryStore()) as (_, stubs):
            await stubs.histories.AppendMessages(
                history.AppendMessagesRequest(session=key, messages=[text("one")]), timeout=30
            )
            stream = stubs.histories.WatchMessages(history.WatchMessagesRequest(session=key), timeout=30)
            for _ in range(4):
                answer = await anext(aiter(stream))
                assert (list(answer.events), bool(answer.resume_token)) == ([], True)
            stream.cancel()


async def collect(stream: Any, told: list[history.WatchEvent]) -> None:
    """Adds what a stream tells, until it ends."""
    async for answer in stream:
        told += answer.events


async def events_up_to(stream: Any, seq: int) -> AsyncIterator[history.WatchEvent]:
    """The events of a stream until the one about this seq."""
    async for answer in stream:
        for event in answer.events:
            yield event
            if event.from_seq == seq:
                return


async def test_more_watchers_than_a_server_may_have_are_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WATCHERS", 2)
    key = session.SessionKey(agent="a", session_id="s")
    async with serving(InMemoryStore()) as (_, stubs):
        request = history.WatchMessagesRequest(session=key)
        await stubs.histories.AppendMessages(
            history.AppendMessagesRequest(session=key, messages=[text("one")]), timeout=30
        )
        streams = [stubs.histories.WatchMessages(request, timeout=30) for _ in range(2)]
        for stream in streams:
            await anext(aiter(stream))
        refusal = await failing(anext(aiter(stubs.histories.WatchMessages(request, timeout=30))))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHERS")
        assert refusal.metadata["limit"] == "2"
        assert refusal.retry_seconds

        streams[0].cancel()
        await until_taken(stubs, request)
        streams[1].cancel()


async def until_taken(stubs: AsyncStubs, request: history.WatchMessagesRequest) -> None:
    """Returns when a watch is let in: the server hears a moment later that another one left."""
    async with asyncio.timeout(20):
        while True:
            stream = stubs.histories.WatchMessages(request, timeout=30)
            with suppress(grpc.aio.AioRpcError):
                await anext(aiter(stream))
                stream.cancel()
                return


def test_watches_are_ended_by_a_drain_that_does_not_wait_for_them(start_server: StartServer, tmp_path: Path) -> None:
    """A watch has no end that a drain could wait for: its caller is told to go to another server at once."""
    server = start_server("--data-dir", str(tmp_path), "--tokenizer", "estimate", "--drain-seconds", "60")
    key = session.SessionKey(agent="a", session_id="s")
    with Stubs(server.address) as stubs:
        stubs.append(key, text("one"))
        stream = watch(stubs, key)
        next(stream)
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 30
        refusal = refused(lambda: list(stream))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert refusal.retry_seconds is not None

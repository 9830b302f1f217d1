"""A watch tells what happens to a session in order, each event once, from any place where an earlier one ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from memoryd_server import limits
from memoryd_server.engine import erasing, histories, redacting, rewinding, watching
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.watching import Happening, WatchAnswer, WatchKind
from memoryd_server.stores.base import Change, Committed
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import SessionKey, replace
from tests.engine.messages import KEY, user
from tests.engine.sessions import runtime_on

SEED = 20261130

Told = tuple[str, int, int]


@pytest.fixture
async def runtime() -> Runtime:
    runtime = runtime_on(InMemoryStore())
    await _append(runtime, "first")
    return runtime


async def _append(runtime: Runtime, *texts: str) -> None:
    await histories.append(
        runtime,
        histories.Append(KEY, [user(text) for text in texts], settings=SessionSettings("user")),
    )


def _told(happenings: Sequence[Happening]) -> list[Told]:
    return [(happening.kind.name, happening.from_seq, happening.to_seq) for happening in happenings]


async def _take(watch: AsyncGenerator[WatchAnswer], count: int) -> list[Happening]:
    """So many happenings of a watch."""
    taken: list[Happening] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            taken += (await anext(watch)).happenings
    return taken


async def _since(runtime: Runtime, token: str, count: int) -> list[Told]:
    async with aclosing(watching.watch(runtime, KEY, token)) as watch:
        return _told(await _take(watch, count))


async def _token(runtime: Runtime) -> str:
    async with aclosing(watching.watch(runtime, KEY)) as watch:
        first = await anext(watch)
        assert first.happenings == ()
        return first.resume_token


async def test_it_begins_with_what_happens_from_now_on(runtime: Runtime) -> None:
    async with aclosing(watching.watch(runtime, KEY)) as watch:
        await anext(watch)
        await _append(runtime, "second", "third")
        happenings = await _take(watch, 2)
    assert _told(happenings) == [("APPENDED", 2, 2), ("APPENDED", 3, 3)]
    assert [happening.message.seq for happening in happenings if happening.message] == [2, 3]


@pytest.mark.parametrize(("after_seq", "first"), [(0, 1), (1, 2), (99, 3)])
async def test_it_can_begin_behind_a_seq(runtime: Runtime, after_seq: int, first: int) -> None:
    await _append(runtime, "second")
    async with aclosing(watching.watch(runtime, KEY, after_seq=after_seq)) as watch:
        await anext(watch)
        await _append(runtime, "third")
        assert _told(await _take(watch, 1))[0] == ("APPENDED", first, first)


async def test_everything_that_happened_meanwhile_is_told_in_order(runtime: Runtime) -> None:
    token = await _token(runtime)
    await _append(runtime, "second", "third", "fourth")
    await rewinding.rewind(runtime, KEY, 2)
    await _append(runtime, "fifth")
    await redacting.redact(runtime, KEY, "", seq=1, id_=None)
    await histories.clear(runtime, KEY)
    await _append(runtime, "sixth")
    assert await _since(runtime, token, 6) == [
        ("APPENDED", 2, 4),
        ("REWOUND", 3, 4),
        ("APPENDED", 5, 5),
        ("REDACTED", 1, 1),
        ("CLEARED", 1, 5),
        ("APPENDED", 6, 6),
    ]


async def test_a_redaction_brings_the_message_as_it_is_now(runtime: Runtime) -> None:
    token = await _token(runtime)
    await redacting.redact(runtime, KEY, "asked for", seq=1, id_=None)
    async with aclosing(watching.watch(runtime, KEY, token)) as watch:
        (redacted,) = await _take(watch, 1)
    assert redacted.message is not None
    assert redacted.message.redaction is not None
    assert redacted.message.redaction.reason == "asked for"


async def test_a_watch_that_is_cut_off_and_resumes_tells_each_event_once_and_in_order(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    # Of a watch that has told everything, an answer is awaited now and then.
    monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.05)
    chance = random.Random(SEED)
    token = await _token(runtime)

    async def happen() -> list[Told]:
        happened: list[Told] = []
        record = await histories.get_session(runtime, KEY)
        for round_ in range(200):
            record = await histories.get_session(runtime, KEY)
            if chance.random() < 0.7 or not record.messages:
                await _append(runtime, *(["text"] * chance.randint(1, 3)))
            elif chance.random() < 0.5:
                await rewinding.rewind(runtime, KEY, record.last_seq - chance.randint(1, 2))
            else:
                await histories.clear(runtime, KEY)
            if round_ % 7 == 0:
                await asyncio.sleep(0)
        await _append(runtime, "the end")
        page = await runtime.store.list_events(KEY, record.incarnation, 0, 1_000)
        assert page is not None
        last_seq = 1
        for event in page.events:
            happened += [("APPENDED", seq, seq) for seq in range(last_seq + 1, event.after_seq + 1)]
            happened.append((event.kind.name, event.from_seq, event.to_seq))
            last_seq = max(last_seq, event.after_seq)
        return happened + [("APPENDED", seq, seq) for seq in range(last_seq + 1, page.record.last_seq + 1)]

    happening = asyncio.create_task(happen())
    seen: list[Told] = []
    async with asyncio.timeout(60):
        while not happening.done() or seen[-1:] != happening.result()[-1:]:
            async with aclosing(watching.watch(runtime, KEY, token)) as watch:
                for _ in range(chance.randint(1, 4)):
                    answer = await anext(watch)
                    for told in answer.happenings:
                        seen += (
                            [("APPENDED", seq, seq) for seq in range(told.from_seq, told.to_seq + 1)]
                            if told.kind is WatchKind.APPENDED
                            else _told([told])
                        )
                        token = told.resume_token
                        if chance.random() < 0.1:  # Cut off in the middle of an answer.
                            break
                    else:
                        token = answer.resume_token
                        continue
                    break
                if happening.done() and seen[-1:] == happening.result()[-1:]:
                    break
    assert seen == await happening


@pytest.mark.parametrize("way", ["another session", "another tenant", "damaged", "a page token"])
async def test_only_its_own_tokens_are_taken(runtime: Runtime, way: str) -> None:
    token = await _token(runtime)
    key = KEY
    match way:
        case "another session":
            key = SessionKey(KEY.tenant, KEY.agent, "other")
        case "another tenant":
            key = SessionKey("other", KEY.agent, KEY.session_id)
        case "damaged":
            token = token[:-1] + ("A" if token[-1] != "A" else "B")
        case _:
            await _append(runtime, "second")
            _, token = await histories.list_messages(runtime, histories.MessageList(KEY, page_size=1))
    with pytest.raises(RequestError) as refused:
        await anext(watching.watch(runtime, key, token))
    assert refused.value.reason == Reason.RESUME_TOKEN_INVALID


async def test_a_token_of_an_earlier_life_is_told_to_read_anew(runtime: Runtime) -> None:
    token = await _token(runtime)
    await erasing.erase_user(runtime, KEY.tenant, "user")
    await _append(runtime, "of the new life")
    async with aclosing(watching.watch(runtime, KEY, token)) as watch:
        (resync,) = await _take(watch, 1)
        assert resync.kind is WatchKind.RESYNC
        await _append(runtime, "and after")
        assert _told(await _take(watch, 1)) == [("APPENDED", 2, 2)]


async def test_a_token_that_is_too_old_is_told_to_read_anew(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are kept for a day (design section 3)."""
    token = await _token(runtime)
    await _append(runtime, "second")
    monkeypatch.setattr(runtime.clock, "_offset", (limits.EVENT_SECONDS - 60) * 1_000_000)
    assert await _since(runtime, token, 1) == [("APPENDED", 2, 2)]
    monkeypatch.setattr(runtime.clock, "_offset", (limits.EVENT_SECONDS + 1) * 1_000_000)
    assert await _since(runtime, token, 1) == [("RESYNC", 0, 0)]


async def test_what_was_taken_away_without_an_event_is_told_by_a_resync(runtime: Runtime) -> None:
    """A server of an earlier version, which knew no events, cleared the session."""
    token = await _token(runtime)
    record = await histories.get_session(runtime, KEY)
    new = replace(record, version=record.version + 1, epoch=record.epoch + 1, first_seq=2, messages=0)
    assert await runtime.store.commit([Change(KEY, record, new)]) == [Committed()]
    assert await _since(runtime, token, 1) == [("RESYNC", 0, 0)]


async def test_it_ends_with_the_session(runtime: Runtime) -> None:
    async with aclosing(watching.watch(runtime, KEY)) as watch:
        await anext(watch)
        await erasing.erase_user(runtime, KEY.tenant, "user")
        with pytest.raises(RequestError) as ended:
            await anext(watch)
    assert ended.value.reason == Reason.SESSION_NOT_FOUND
    assert runtime.watched.count == 0


async def test_an_answer_that_is_left_unread_ends_it(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow watcher is told to resume."""
    monkeypatch.setattr(limits, "WATCH_STALL_SECONDS", 0)
    async with aclosing(watching.watch(runtime, KEY, after_seq=0)) as watch:
        await anext(watch)
        (told,) = (await anext(watch)).happenings
        with pytest.raises(RequestError) as ended:
            await anext(watch)
    assert ended.value.reason == Reason.WATCH_STALLED
    assert await _since_after(runtime, told.resume_token) == [("APPENDED", 2, 2)]


async def _since_after(runtime: Runtime, token: str) -> list[Told]:
    await _append(runtime, "second")
    return await _since(runtime, token, 1)


async def test_when_nothing_happens_it_still_answers_now_and_then(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "HEARTBEAT_SECONDS", 0.0)
    async with aclosing(watching.watch(runtime, KEY)) as watch, asyncio.timeout(20):
        assert [(await anext(watch)).happenings for _ in range(3)] == [(), (), ()]


async def test_a_server_serves_a_bounded_number_of_watchers(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WATCHERS", 1)
    async with aclosing(watching.watch(runtime, KEY)) as watch:
        await anext(watch)
        with pytest.raises(RequestError) as refused:
            await anext(watching.watch(runtime, KEY))
    assert refused.value.reason == Reason.TOO_MANY_WATCHERS
    await _token(runtime)


async def test_answers_are_of_bounded_size(runtime: Runtime) -> None:
    """A slow watcher never grows the server's memory: nothing is kept for it but one answer."""
    await _append(runtime, *("x" * (limits.WATCH_PAGE_BYTES // 4) for _ in range(40)))
    async with aclosing(watching.watch(runtime, KEY, after_seq=1)) as watch:
        await anext(watch)
        seen = 0
        while seen < 40:
            messages = [told.message for told in (await anext(watch)).happenings]
            seen += len(messages)
            assert sum(message.size for message in messages if message) <= limits.WATCH_PAGE_BYTES

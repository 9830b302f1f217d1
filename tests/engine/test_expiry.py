"""An expired session is gone with all that belonged to it, and the next append begins a new life (invariant 18)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from memoryd_server import limits
from memoryd_server.engine import (
    changes,
    clock,
    erasing,
    forking,
    histories,
    loading,
    redacting,
    rewinding,
    tokens,
    watching,
)
from memoryd_server.engine.changes import SessionSettings, SessionUpdate
from memoryd_server.engine.clock import StoreClock
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.sweeping import Sweeper
from memoryd_server.stores.base import Deleted, Due, DuePage, Loaded, Tail
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import SessionKey
from tests.engine.messages import KEY, user
from tests.engine.sessions import runtime_on

SECOND = 1_000_000
TTL = 60 * SECOND


class _TimedStore(InMemoryStore):
    """A store whose clock a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0

    async def now(self) -> int:
        return await super().now() + self.ahead


async def _later(runtime: Runtime, microseconds: int) -> None:
    assert isinstance(runtime.store, _TimedStore)
    runtime.store.ahead += microseconds
    await runtime.clock.sync()


@pytest.fixture
async def runtime() -> Runtime:
    """A store with one session that lives for a minute."""
    runtime = runtime_on(_TimedStore())
    await _append(runtime, "first")
    return runtime


async def _append(runtime: Runtime, text: str, key: SessionKey = KEY) -> int:
    settings = SessionSettings("user", ttl=TTL)
    (appended,) = await histories.append(runtime, histories.Append(key, [user(text, id=text)], settings=settings))
    return appended.seq


READS: dict[str, Callable[[Runtime], Awaitable[object]]] = {
    "ListMessages": lambda runtime: histories.list_messages(runtime, histories.MessageList(KEY)),
    "GetMessage": lambda runtime: histories.get_message(runtime, KEY, seq=1, id_=None),
    "GetMessage by id": lambda runtime: histories.get_message(runtime, KEY, seq=None, id_="first"),
    "GetSession": lambda runtime: histories.get_session(runtime, KEY),
    "UpdateSession": lambda runtime: histories.update_session(runtime, KEY, SessionUpdate(user_id="other")),
    "LoadWindow": lambda runtime: loading.load(runtime, WindowRequest(KEY)),
    "RedactMessage": lambda runtime: redacting.redact(runtime, KEY, "", seq=1, id_=None),
    "RewindSession": lambda runtime: rewinding.rewind(runtime, KEY, 0),
    "ForkSession": lambda runtime: forking.fork(runtime, forking.Fork(KEY, SessionKey(*KEY[:2], "fork"))),
    "WatchMessages": lambda runtime: anext(watching.watch(runtime, KEY)),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("swept", [False, True])
async def test_an_expired_session_is_not_found(runtime: Runtime, name: str, swept: bool) -> None:
    await _later(runtime, TTL)
    if swept:
        assert await Sweeper(runtime).sweep()
    with pytest.raises(RequestError) as refused:
        await READS[name](runtime)
    assert refused.value.reason == Reason.SESSION_NOT_FOUND


async def test_it_is_in_no_list_and_has_nothing_to_clear(runtime: Runtime) -> None:
    await _later(runtime, TTL)
    assert await histories.list_sessions(runtime, KEY.tenant, "", "", 0, "") == ([], "")
    assert await histories.clear(runtime, KEY) == 0
    assert await histories.clear_agent(runtime, KEY.tenant, KEY.agent) == (0, 0)


async def test_the_time_begins_anew_with_every_append(runtime: Runtime) -> None:
    """ttl is idle time since the last append."""
    await _later(runtime, TTL - SECOND)
    assert await _append(runtime, "second") == 2
    await _later(runtime, TTL - SECOND)
    assert (await histories.get_session(runtime, KEY)).messages == 2
    await _later(runtime, SECOND)
    with pytest.raises(RequestError):
        await histories.get_session(runtime, KEY)


async def test_other_changes_are_no_activity(runtime: Runtime) -> None:
    await _later(runtime, TTL - SECOND)
    await histories.update_session(runtime, KEY, SessionUpdate(labels={"a": "b"}))
    await _later(runtime, SECOND)
    with pytest.raises(RequestError):
        await histories.get_session(runtime, KEY)


async def test_an_update_gives_and_takes_the_ttl(runtime: Runtime) -> None:
    await histories.update_session(runtime, KEY, SessionUpdate(ttl=0))
    await _later(runtime, 2 * TTL)
    assert (await histories.get_session(runtime, KEY)).ttl == 0
    await histories.update_session(runtime, KEY, SessionUpdate(ttl=TTL))
    with pytest.raises(RequestError) as refused:  # It has been idle for longer.
        await histories.get_session(runtime, KEY)
    assert refused.value.reason == Reason.SESSION_NOT_FOUND


@pytest.mark.parametrize("swept", [False, True])
async def test_the_next_append_begins_a_new_life_at_seq_1(runtime: Runtime, swept: bool) -> None:
    old = (await histories.get_session(runtime, KEY)).incarnation
    await _later(runtime, TTL)
    if swept:
        await Sweeper(runtime).sweep()
    assert await _append(runtime, "second") == 1
    record = await histories.get_session(runtime, KEY)
    assert record.incarnation != old
    messages, _ = await histories.list_messages(runtime, histories.MessageList(KEY))
    assert [message.id for message in messages] == ["second"]


async def test_a_new_life_has_the_vocabulary_that_it_is_begun_with(runtime: Runtime) -> None:
    """A server that remembers the old life does not give the new one its vocabulary (invariant 8)."""
    assert (await histories.get_session(runtime, KEY)).tokenizer == tokens.ESTIMATE
    await _later(runtime, TTL)
    settings = SessionSettings(tokenizer=tokens.O200K_BASE)
    await histories.append(runtime, histories.Append(KEY, [user("hello world")], settings=settings))
    record = await histories.get_session(runtime, KEY)
    count = tokens.counter(tokens.O200K_BASE)
    assert (record.tokenizer, record.tokens) == (tokens.O200K_BASE, 4 + count("hello world"))


@pytest.mark.parametrize("swept", [False, True])
async def test_its_name_is_no_target_of_a_fork(runtime: Runtime, swept: bool) -> None:
    """Its look-ups still hold; and that is told at once."""
    source = SessionKey(*KEY[:2], "source")
    await _append(runtime, "hi", source)
    await histories.update_session(runtime, source, SessionUpdate(ttl=0))
    await _later(runtime, TTL)
    if swept:
        await Sweeper(runtime).sweep()
    async with asyncio.timeout(1):
        with pytest.raises(RequestError) as refused:
            await forking.fork(runtime, forking.Fork(source, KEY))
    assert refused.value.reason == Reason.SESSION_EXISTS


async def test_a_replay_of_an_expired_life_gives_its_first_answer_and_restores_nothing(runtime: Runtime) -> None:
    """The look-up outlives expiry (invariant 2)."""
    await _later(runtime, TTL)
    assert await _append(runtime, "first") == 1
    with pytest.raises(RequestError):
        await histories.get_session(runtime, KEY)


async def test_a_sweep_ends_it_and_deletes_it_later(runtime: Runtime) -> None:
    await _later(runtime, TTL)
    await Sweeper(runtime).sweep()
    assert await runtime.store.load(KEY) is None
    await _later(runtime, (limits.PURGE_DELAY_SECONDS + 1) * SECOND)
    deleted = await runtime.store.sweep(await runtime.store.now(), 100)
    assert deleted == Deleted(messages=1)


async def test_a_sweep_leaves_what_was_appended_to_since_it_looked(runtime: Runtime) -> None:
    """An entry of the index may be earlier than the truth."""
    store = runtime.store
    await _later(runtime, TTL)
    page = await store.list_due(Due.EXPIRY, await store.now(), 10)
    assert page.keys == [KEY]
    assert isinstance(store, _TimedStore)
    store.ahead = 0
    await runtime.clock.sync()
    await _append(runtime, "second")
    now = await store.now()
    change, died = changes.plan_expire((await histories.get_session(runtime, KEY)), KEY, now)
    assert (change, died) == (None, False)


class _DamagedStore(_TimedStore):
    """A record that cannot be read."""

    damaged: SessionKey | None = None

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        if key == self.damaged:
            raise ValueError("its record is no JSON")
        return await super().load(key, tail)


async def test_a_damaged_session_stops_no_sweep() -> None:
    """Sweeps never stop at one bad row."""
    store = _DamagedStore()
    runtime = runtime_on(store)
    keys = [SessionKey(KEY.tenant, KEY.agent, name) for name in ("before", "a damaged one", "then")]
    for key in keys:
        await _append(runtime, "hi", key)
    store.damaged = keys[1]
    runtime.committer.records.drop(keys[1])
    await _later(runtime, TTL)
    assert await Sweeper(runtime).sweep()
    page = await runtime.store.list_due(Due.EXPIRY, await runtime.store.now(), 10)
    assert page == DuePage([keys[1]], "")


async def test_one_server_at_a_time_sweeps(runtime: Runtime) -> None:
    first, second = Sweeper(runtime), Sweeper(runtime)
    assert await first.sweep()
    assert not await second.sweep()
    assert await first.sweep()


async def test_erasure_reaches_expired_sessions(runtime: Runtime) -> None:
    await _later(runtime, TTL)
    erased = await erasing.erase_user(runtime, KEY.tenant, "user")
    assert (erased.sessions, erased.rows.messages, erased.rows.lookups) == (1, 1, 1)
    assert await _append(runtime, "first") == 1
    assert (await histories.get_session(runtime, KEY)).messages == 1  # Not a replay any more.


async def test_the_clock_follows_the_store() -> None:
    store = _TimedStore()
    store_clock = StoreClock(store)
    store.ahead = 3_600 * SECOND
    await store_clock.sync()
    assert abs(store_clock.now() - await store.now()) < SECOND
    assert store_clock.surely() <= store_clock.now() <= store_clock.perhaps()


class _StillStore(InMemoryStore):
    """A store in a world whose time stands still, but for what its answers take on their way back."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1_700_000_000 * SECOND
        self.usual = 0
        self.first: list[int] = []
        self.asked = 0

    async def now(self) -> int:
        self.asked += 1
        told = self.time
        self.time += self.first.pop(0) if self.first else self.usual
        return told


@pytest.fixture
def still_store(monkeypatch: pytest.MonkeyPatch) -> _StillStore:
    store = _StillStore()
    monkeypatch.setattr(clock, "_machine_time", lambda: store.time)
    return store


async def test_the_clock_goes_by_the_quickest_of_some_answers(still_store: _StillStore) -> None:
    store_clock = StoreClock(still_store)
    still_store.first = [SECOND, clock.QUICK_MICROSECONDS, SECOND]
    await store_clock.sync()
    assert (still_store.asked, store_clock.error) == (2, clock.QUICK_MICROSECONDS // 2)

    still_store.first, still_store.usual, still_store.asked = [3 * SECOND], 2 * SECOND, 0
    await store_clock.sync()
    assert (still_store.asked, store_clock.error) == (clock.SAMPLES, SECOND)


async def test_what_one_server_has_told_to_be_gone_another_does_not_bring_back(still_store: _StillStore) -> None:
    """Also one that is less sure of the store's time."""
    sure, unsure = runtime_on(still_store), runtime_on(still_store)
    still_store.usual = SECOND
    await unsure.clock.sync()
    still_store.usual = 0
    await sure.clock.sync()
    await _append(unsure, "first")
    still_store.time += TTL
    assert await sure.sessions.load(KEY) is None
    assert await unsure.sessions.load(KEY) is not None

    assert await _append(unsure, "second") == 1
    for runtime in (sure, unsure):
        assert (await histories.get_session(runtime, KEY)).messages == 1


@pytest.mark.parametrize("ttl", [1, SECOND - 1, -SECOND, (limits.MAX_TTL_SECONDS + 1) * SECOND])
async def test_a_ttl_is_a_second_to_a_hundred_years(ttl: int) -> None:
    runtime = runtime_on(InMemoryStore())
    for call in (
        histories.append(runtime, histories.Append(KEY, [user("hi")], settings=SessionSettings(ttl=ttl))),
        histories.update_session(runtime, KEY, SessionUpdate(ttl=ttl)),
    ):
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.reason == Reason.FIELD_INVALID

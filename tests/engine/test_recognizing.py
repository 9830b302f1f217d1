"""Replays in sessions that were copied from another store: their digests are keyed with its secret (invariant 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from memoryd_server.engine import forking, histories, rewinding
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.forking import Fork
from memoryd_server.engine.histories import Append
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.replay import Appended
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.base import StoreInfo
from memoryd_server.stores.memory import InMemoryStore
from tests.engine.messages import KEY, user
from tests.engine.sessions import runtime_on

OTHER_SECRET = b"secret of the store copied from."
FORK = KEY._replace(session_id="fork")
ONE, TWO = user("1", id="one"), user("2", id="two")


class _CountingStore(InMemoryStore):
    """Counts how often its adopted secrets are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def adopted_secrets(self) -> Sequence[bytes]:
        self.reads += 1
        return await super().adopted_secrets()


@pytest.fixture
def store() -> _CountingStore:
    return _CountingStore()


@pytest.fixture
def here(store: _CountingStore) -> Runtime:
    """A server of the store under test."""
    return runtime_on(store)


@pytest.fixture
def there(store: _CountingStore) -> Runtime:
    """What makes, in the same data, sessions as if they were copied from another store."""
    return Runtime("other", store, StoreInfo("in_memory", False, (), OTHER_SECRET), runtime_on(store).defaults)


async def append(runtime: Runtime, *messages: IncomingMessage, request_id: str = "") -> Sequence[Appended]:
    return await histories.append(runtime, Append(KEY, messages, request_id))


async def test_a_repeated_append_gets_its_first_answer(store: _CountingStore, here: Runtime, there: Runtime) -> None:
    first = await append(there, ONE, TWO)
    await store.adopt_secret(OTHER_SECRET)
    assert list(await append(here, ONE, TWO)) == list(first)
    assert [await append(here, ONE), await append(here, TWO)] == [(first[0],), (first[1],)]
    assert (await histories.get_session(here, KEY)).messages == 2


async def test_a_repeated_append_of_messages_of_both_stores_gets_its_first_answer(
    store: _CountingStore, here: Runtime, there: Runtime
) -> None:
    earlier = await append(there, ONE)
    await store.adopt_secret(b"secret of a store further behind")
    await store.adopt_secret(OTHER_SECRET)
    later = await append(here, TWO)
    assert list(await append(here, TWO, ONE)) == [*later, *earlier]


async def test_other_content_is_refused(store: _CountingStore, here: Runtime, there: Runtime) -> None:
    await append(there, ONE, request_id="request")
    await store.adopt_secret(OTHER_SECRET)
    for call, reason in (
        (append(here, user("1!", id="one")), Reason.MESSAGE_ID_CONFLICT),
        (append(here, ONE, TWO), Reason.MESSAGE_ID_CONFLICT),
        (append(here, TWO, request_id="request"), Reason.REQUEST_ID_CONFLICT),
        (histories.clear(here, KEY, "request"), Reason.REQUEST_ID_CONFLICT),
    ):
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.reason == reason
    assert (await histories.get_session(here, KEY)).messages == 1


async def test_nothing_is_recognized_without_the_secret(here: Runtime, there: Runtime) -> None:
    """A digest confirms no guess of the content to a store that was not given the key."""
    await append(there, ONE)
    with pytest.raises(RequestError) as refused:
        await append(here, ONE)
    assert refused.value.reason == Reason.MESSAGE_ID_CONFLICT


REPEATED: dict[str, Callable[[Runtime], Awaitable[object]]] = {
    "append": lambda runtime: append(runtime, TWO, request_id="request"),
    "clear": lambda runtime: histories.clear(runtime, KEY, "request"),
    "rewind": lambda runtime: rewinding.rewind(runtime, KEY, 0, None, "request"),
    "fork": lambda runtime: forking.fork(runtime, Fork(KEY, FORK, request_id="request")),
}


@pytest.mark.parametrize("call", REPEATED.values(), ids=REPEATED)
async def test_a_repeated_request_gets_its_first_answer(
    store: _CountingStore, here: Runtime, there: Runtime, call: Callable[[Runtime], Awaitable[object]]
) -> None:
    """(AIP-155)"""
    await append(there, ONE)
    first = await call(there)
    await append(there, user("3", id="three"))
    await store.adopt_secret(OTHER_SECRET)
    state = await histories.get_session(there, KEY)
    assert await call(here) == first
    assert await histories.get_session(here, KEY) == state


async def test_what_is_appended_to_a_copied_session_is_keyed_with_the_store_s_own_secret(
    store: _CountingStore, here: Runtime, there: Runtime
) -> None:
    await store.adopt_secret(OTHER_SECRET)
    await append(there, ONE)
    await append(here, ONE)
    first = await append(here, TWO)
    store.reads = 0
    assert list(await append(here, TWO)) == list(first)
    assert store.reads == 0


async def test_the_adopted_secrets_are_read_only_where_an_id_is_known_for_something_else(
    store: _CountingStore, here: Runtime
) -> None:
    await store.adopt_secret(OTHER_SECRET)
    await append(here, ONE, request_id="request")
    await append(here, ONE)
    await append(here, ONE, request_id="request")
    await histories.clear(here, KEY, "clear")
    await histories.clear(here, KEY, "clear")
    assert store.reads == 0
    with pytest.raises(RequestError):
        await append(here, user("1!", id="one"))
    assert store.reads == 1

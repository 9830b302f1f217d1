"""`switch_store`: another store of the server from now on; each test holds for the sync and for the async client."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message as ProtoMessage

from memoryd import (
    AsyncMemoryClient,
    MemoryClient,
    ServerUnavailable,
    SessionNotFound,
    StoreUnavailable,
    StoreUnknown,
    user,
)
from memoryd.v1.history_service_pb2 import AppendMessagesResponse
from memoryd.v1.store_service_pb2 import GetStoreResponse, Store
from memoryd.v1.window_service_pb2 import StreamWindowResponse, WindowStats
from tests.conftest import StartServer
from tests.sdk.awaited import Awaited
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import Answer, ScriptedServer, answers, fails
from tests.servers import ServerProcess

FULL_BATCH = 256
"""Messages of one append."""
TRIES = 5
"""How often a read is tried."""
FOUND = GetStoreResponse(store=Store(name="other", reachable=True))


async def texts(items: Any) -> list[str]:
    return [item.text async for item in items]


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a SQLite file, `main`, which is its default, and a store in memory, `scratch`."""
    directory = tmp_path_factory.mktemp("two-stores")
    main = f"main=sqlite:///{directory / 'main.db'}"
    arguments = ("--store", main, "--store", "scratch=memory://", "--default-store", "main")
    process = ServerProcess(*arguments, "--tokenizer", "estimate", log=directory / "server.log")
    yield process
    process.close()


@pytest.fixture
def memory(connect: Connect, two_stores: ServerProcess) -> AsyncMemoryClient:
    """A client that uses `main`, as long as it is not told otherwise."""
    return connect(two_stores.address)


async def test_later_calls_use_the_store_switched_to_and_nothing_is_copied(
    memory: AsyncMemoryClient, agent: str
) -> None:
    session = memory.session(agent=agent)
    await session.append(user("in main"))

    switched = await memory.switch_store("scratch")
    assert (switched.name, switched.type, switched.reachable) == ("scratch", "in_memory", True)
    assert await memory.store() == switched
    assert await memory.store_type() == "in_memory"
    assert [found.session_id async for found in memory.sessions(agent=agent)] == []

    await memory.session(agent=agent).append(user("in scratch"))
    assert (await memory.switch_store("main")).type == "sqlite"
    assert [found.session_id async for found in memory.sessions(agent=agent)] == [session.id]


async def test_sessions_named_before_follow_the_client(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("in main"))

    await memory.switch_store("scratch")
    with pytest.raises(SessionNotFound):
        await session.info()
    await session.append(user("in scratch"))
    assert await texts(session.messages()) == ["in scratch"]

    await memory.switch_store("main")
    assert await texts(session.messages()) == ["in main"]


async def test_an_unknown_store_is_refused_and_the_old_one_stays(memory: AsyncMemoryClient) -> None:
    await memory.switch_store("scratch")
    with pytest.raises(StoreUnknown) as error:
        await memory.switch_store("mian")
    assert error.value.metadata["stores"] == "main, scratch"
    assert (await memory.store()).name == "scratch"


async def test_a_client_of_an_unknown_store_switches_to_one_that_there_is(
    connect: Connect, two_stores: ServerProcess
) -> None:
    memory = connect(two_stores.address, store="mian")
    with pytest.raises(StoreUnknown):
        await memory.store_type()
    await memory.switch_store("main")
    assert await memory.store_type() == "sqlite"


async def test_a_store_that_does_not_answer_is_refused_and_the_old_one_stays(
    connect: Connect, start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    gone = tmp_path / "gone.db"
    server = start_server("--store", "main=memory://", "--store", f"gone=sqlite:///{gone}", "--default-store", "main")
    gone.unlink()
    memory = connect(server.address)
    with pytest.raises(StoreUnavailable, match="'gone' does not answer") as error:
        await memory.switch_store("gone")
    assert (error.value.code, error.value.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert error.value.metadata == {"store": "gone"}

    session = memory.session(agent=agent)
    await session.append(user("a"))
    assert (await memory.store()).name == "main"


async def test_a_server_that_does_not_answer_leaves_the_store_as_it_is(
    connect: Connect, scripted: ScriptedServer
) -> None:
    memory = connect(scripted.address, store="main")
    scripted.script("GetStore", *[fails(grpc.StatusCode.UNAVAILABLE)] * TRIES, answers(FOUND))
    with pytest.raises(ServerUnavailable):
        await memory.switch_store("other")
    await memory.store()
    assert scripted.metadata[-1]["memoryd-store"] == "main"


@pytest.mark.parametrize("name", ["", "größe", "a\nb"])
async def test_a_name_that_no_store_has_is_refused_before_any_call(memory: AsyncMemoryClient, name: str) -> None:
    with pytest.raises(ValueError, match=r"^name is .* the name of a store is printable ASCII"):
        await memory.switch_store(name)
    assert (await memory.store()).name == "main"


async def test_a_list_keeps_its_store(memory: AsyncMemoryClient, agent: str) -> None:
    """Its page tokens are of that store alone."""
    session = memory.session(agent=agent)
    await session.append(user("1"), user("2"), user("3"))

    begun, new = session.messages(page_size=1), session.messages(page_size=1)
    found = [(await anext(begun)).text]
    await memory.switch_store("scratch")
    assert found + await texts(begun) == ["1", "2", "3"]
    assert await texts(new) == ["1", "2", "3"]


async def test_a_watch_keeps_its_store(memory: AsyncMemoryClient, agent: str) -> None:
    """It resumes there, too: its resume tokens are of that store alone."""
    session = memory.session(agent=agent)
    await session.append(user("1"))
    async with session.watch() as begun:
        not_begun = session.watch(after_seq=0)
        await memory.switch_store("scratch")
        await session.append(user("in scratch"))
        await memory.switch_store("main")
        await session.append(user("2"))
        await memory.switch_store("scratch")

        event = await anext(begun)
        assert event.message is not None
        assert event.message.text == "2"
        async with not_begun:
            seen = [(await anext(not_begun)).message for _ in range(2)]
        assert [message.text for message in seen if message is not None] == ["1", "2"]


Switch = Callable[[], object]


@pytest.fixture
async def switching(connect: Connect, scripted: ScriptedServer) -> tuple[AsyncMemoryClient, Switch]:
    """A client of the store `main`, and what switches it to another one from the thread in which a call is answered."""
    memory = connect(scripted.address, store="main")
    scripted.script("GetStore", answers(FOUND))
    if isinstance(memory, Awaited):
        return memory, lambda: memory._wrapped.switch_store("other")
    loop = asyncio.get_running_loop()
    return memory, lambda: asyncio.run_coroutine_threadsafe(memory.switch_store("other"), loop).result()


def after(switch: Switch, answer: Answer) -> Answer:
    """Switches while the call is under way, then answers it."""

    def answered(request: bytes, context: grpc.ServicerContext) -> Iterable[ProtoMessage]:
        switch()
        return answer(request, context)

    return answered


async def test_an_operation_of_several_calls_keeps_its_store(
    switching: tuple[AsyncMemoryClient, Switch], scripted: ScriptedServer
) -> None:
    memory, switch = switching
    too_large = fails(grpc.StatusCode.FAILED_PRECONDITION, "WINDOW_TOO_LARGE")
    scripted.script("LoadWindow", after(switch, too_large))
    scripted.script("StreamWindow", answers(StreamWindowResponse(stats=WindowStats())))
    await memory.session(agent="a", id="s").window()

    assert [method for method, _ in scripted.requests] == ["LoadWindow", "GetStore", "StreamWindow"]
    assert [metadata["memoryd-store"] for metadata in scripted.metadata] == ["main"] * 3


async def test_append_all_keeps_its_store(
    switching: tuple[AsyncMemoryClient, Switch], scripted: ScriptedServer
) -> None:
    memory, switch = switching
    appended = answers(AppendMessagesResponse())
    scripted.script("AppendMessages", after(switch, appended), appended, appended)
    session = memory.session(agent="a", id="s")
    await session.append_all(user("x") for _ in range(FULL_BATCH + 1))
    await session.append(user("x"))

    stores = [metadata["memoryd-store"] for metadata in scripted.metadata]
    assert [method for method, _ in scripted.requests] == ["AppendMessages", "GetStore", *["AppendMessages"] * 2]
    assert stores == ["main", "main", "main", "other"]


def test_threads_find_one_store_or_the_other(two_stores: ServerProcess) -> None:
    """Every call is answered by the store that its client used when the call began."""
    with MemoryClient(two_stores.address) as memory, ThreadPoolExecutor(4) as threads:
        names = threads.map(lambda _: memory.store().name, range(200))
        for number in range(50):
            memory.switch_store("main" if number % 2 else "scratch")
        assert set(names) <= {"main", "scratch"}
        assert memory.store_type() == "sqlite"

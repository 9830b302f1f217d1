"""Stores by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from memoryd import MemoryClient, StoreUnknown, user
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import store_service_pb2 as stores
from tests.conftest import StartServer
from tests.servers import ServerProcess
from tests.service.wire import STORE_METADATA, Stubs, new_key, refused, text

SCRATCH = ((STORE_METADATA, "scratch"),)


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a SQLite file, `main`, and an in-memory store, `scratch`."""
    directory = tmp_path_factory.mktemp("two-stores")
    process = ServerProcess(
        "--store",
        f"main=sqlite:///{directory / 'main.db'}",
        "--store",
        "scratch=memory://",
        "--default-store",
        "main",
        "--tokenizer",
        "estimate",
        log=directory / "server.log",
    )
    yield process
    process.close()


@pytest.fixture
def both(two_stores: ServerProcess) -> Iterator[Stubs]:
    with Stubs(two_stores.address) as stubs:
        yield stubs


def test_a_sqlite_file_is_durable_and_shared(sqlite_stubs: Stubs) -> None:
    (found,) = sqlite_stubs.stores.ListStores(stores.ListStoresRequest()).stores

    assert (found.name, found.type, found.reachable, found.durable, found.default) == (
        "default",
        "sqlite",
        True,
        True,
        True,
    )
    assert {capability.name: capability.supported for capability in found.capabilities} == {
        "shared": True,
        "durable": True,
    }


def test_stores_are_listed_with_the_default_first(both: Stubs) -> None:
    main, scratch = both.stores.ListStores(stores.ListStoresRequest()).stores

    assert (main.name, main.type, main.default, main.durable) == ("main", "sqlite", True, True)
    assert (scratch.name, scratch.type, scratch.default, scratch.durable) == ("scratch", "in_memory", False, False)
    assert [(power.name, power.supported) for power in scratch.capabilities] == [("shared", False), ("durable", False)]
    for power in scratch.capabilities:
        assert "sqlite or postgresql" in power.reason


def test_a_store_is_asked_for_by_name_or_by_metadata(both: Stubs) -> None:
    def name(request: stores.GetStoreRequest, *metadata: tuple[str, str]) -> str:
        return both.stores.GetStore(request, metadata=metadata).store.name

    assert name(stores.GetStoreRequest()) == "main"
    assert name(stores.GetStoreRequest(name="scratch")) == "scratch"
    assert name(stores.GetStoreRequest(), *SCRATCH) == "scratch"
    assert name(stores.GetStoreRequest(name="main"), *SCRATCH) == "main"


def test_metadata_picks_the_store_of_a_call(both: Stubs, agent: str) -> None:
    """What one store holds is not in the other (invariant 5)."""
    key = new_key(agent)
    both.append(key, text("in main", id="a"))
    both.append(key, text("in scratch", id="a"), metadata=SCRATCH)
    request = history.ListMessagesRequest(session=key)
    (in_main,) = both.histories.ListMessages(request).messages
    (in_scratch,) = both.histories.ListMessages(request, metadata=SCRATCH).messages

    assert in_main.content.parts[0].text == "in main"
    assert in_scratch.content.parts[0].text == "in scratch"
    assert both.clear(key) == 1
    assert len(both.histories.ListMessages(request, metadata=SCRATCH).messages) == 1


def test_a_page_token_of_another_store_is_refused(both: Stubs, agent: str) -> None:
    key = new_key(agent)
    for metadata in ((), SCRATCH):
        both.append(key, text("one"), text("two"), metadata=metadata)
    request = history.ListMessagesRequest(session=key, page_size=1)
    request.page_token = both.histories.ListMessages(request).next_page_token

    assert both.histories.ListMessages(request).messages[0].seq == 2
    refusal = refused(lambda: both.histories.ListMessages(request, metadata=SCRATCH))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    assert refusal.metadata["field"] == "page_token"


def test_an_unknown_store_is_refused_with_the_known_ones(both: Stubs, agent: str) -> None:
    key = new_key(agent)
    unknown = ((STORE_METADATA, "mian"),)
    request = history.AppendMessagesRequest(session=key, messages=[text("one")])
    for refusal in (
        refused(lambda: both.histories.AppendMessages(request, metadata=unknown)),
        refused(lambda: both.stores.GetStore(stores.GetStoreRequest(), metadata=unknown)),
        refused(lambda: both.stores.GetStore(stores.GetStoreRequest(name="mian"))),
    ):
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "STORE_UNKNOWN")
        assert refusal.metadata["store"] == "mian"
        assert refusal.metadata["stores"] == "main, scratch"
        assert "'mian'" in refusal.text
        assert "main, scratch" in refusal.text
    assert refused(lambda: both.session(key)).reason == "SESSION_NOT_FOUND"


def test_a_store_that_goes_away_leaves_the_others_alone(start_server: StartServer, tmp_path: Path, agent: str) -> None:
    file = tmp_path / "main.db"
    server = start_server(
        "--store", f"main=sqlite:///{file}", "--store", "scratch=memory://", "--default-store", "main"
    )
    key = new_key(agent)
    with Stubs(server.address) as stubs:
        stubs.append(key, text("one"))
        file.unlink()
        request = history.AppendMessagesRequest(session=key, messages=[text("two")])
        refusal = refused(lambda: stubs.histories.AppendMessages(request))
        stubs.append(key, text("two"), metadata=SCRATCH)
        found = stubs.stores.ListStores(stores.ListStoresRequest()).stores

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert refusal.metadata["store"] == "main"
    assert [(store.name, store.reachable) for store in found] == [("main", False), ("scratch", True)]


def test_the_sdk_picks_a_store(two_stores: ServerProcess, agent: str) -> None:
    with (
        MemoryClient(two_stores.address) as main,
        MemoryClient(two_stores.address, store="scratch") as scratch,
        MemoryClient(two_stores.address, store="mian") as unknown,
    ):
        assert main.store_type() == "sqlite"
        assert scratch.store_type() == "in_memory"
        scratch.session(agent=agent, id="s").append(user("Hello!"))
        assert [found.session_id for found in scratch.sessions(agent=agent)] == ["s"]
        assert list(main.sessions(agent=agent)) == []
        with pytest.raises(StoreUnknown, match="main, scratch"):
            unknown.session(agent=agent, id="s").append(user("Hello!"))


def test_stores_keep_sessions_of_equal_names_apart_in_lists(both: Stubs, agent: str) -> None:
    key = session.SessionKey(agent=agent, session_id="same")
    both.append(key, text("one"), metadata=SCRATCH)
    request = history.ListSessionsRequest(agent=agent)

    assert not both.histories.ListSessions(request).sessions
    assert [found.key for found in both.histories.ListSessions(request, metadata=SCRATCH).sessions] == [key]

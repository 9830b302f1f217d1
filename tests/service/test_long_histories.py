"""Histories that are long, or whose messages are large: bounded pages, windows beyond one answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import grpc
import pytest

from memoryd import MemoryClient, Message, Text, Window, user
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from tests.adapters import EACH_QUICK_ADAPTER
from tests.conftest import ServerOn
from tests.servers import ServerProcess
from tests.service.wire import Stubs, refused, seqs, text

KIB = 1024
MIB = 1024 * KIB
PIECE_BYTES = 7 * MIB // 2
MESSAGES = 10_300
AGENT = "long histories"
LONG = session.SessionKey(agent=AGENT, session_id="10,300 messages of 2 KiB")
LARGE = session.SessionKey(agent=AGENT, session_id="50 messages of 900 KiB")


def long_text(number: int) -> str:
    return f"{number:08d} " + "lorem ipsum dolor sit amet " * 76


@pytest.fixture(scope="module")
def long_server_on(server_on: ServerOn) -> Callable[[str], str]:
    """The addresses of servers by the name of their adapter, that hold the session LONG, in which every 1,000th message
    is of the run "rare"."""

    @cache
    def fill(name: str) -> str:
        address = server_on(name).address
        with MemoryClient(address) as client:
            client.session(agent=LONG.agent, id=LONG.session_id).append_all(_long_messages())
        return address

    return fill


def _long_messages() -> Iterator[Message]:
    for number in range(1, MESSAGES + 1):
        run_id = "rare" if number % 1_000 == 0 else ""
        yield Message(role=user("").role, content=(Text(long_text(number)),), run_id=run_id)


@pytest.fixture(params=EACH_QUICK_ADAPTER)
def long_server(request: pytest.FixtureRequest, long_server_on: Callable[[str], str]) -> str:
    """The address of such a server on each adapter in turn."""
    return long_server_on(request.param.name)


@pytest.fixture
def long_stubs(long_server: str) -> Iterator[Stubs]:
    with Stubs(long_server) as stubs:
        yield stubs


@pytest.fixture
def long_client(long_server: str) -> Iterator[MemoryClient]:
    with MemoryClient(long_server) as client:
        yield client


class TestPages:
    def test_hold_a_thousand_messages_at_most(self, long_stubs: Stubs) -> None:
        request = history.ListMessagesRequest(session=LONG, page_size=1_000_000)
        answer = long_stubs.histories.ListMessages(request)

        assert seqs(answer.messages) == list(range(1, 1_001))
        assert answer.next_page_token

    @pytest.mark.parametrize("order", [history.LIST_ORDER_ASCENDING, history.LIST_ORDER_DESCENDING])
    def test_examine_ten_thousand_messages_when_they_filter(
        self, long_stubs: Stubs, order: history.ListOrder.ValueType
    ) -> None:
        """A page may then hold fewer messages, or none, and still have a next one (AIP-158)."""
        rare = history.MessageFilter(run_id="rare")
        pages = [seqs(page) for page in long_stubs.pages(LONG, filter=rare, order=order)]
        nothing = long_stubs.pages(LONG, filter=history.MessageFilter(run_id="never"), order=order)

        expected = list(range(1_000, MESSAGES, 1_000))
        if order == history.LIST_ORDER_DESCENDING:
            expected.reverse()
        assert list(itertools.chain.from_iterable(pages)) == expected
        assert len(pages) == 2
        assert nothing == [[], []]

    def test_begin_where_messages_are(self, long_stubs: Stubs) -> None:
        """Bounds of seqs far beyond the history cost no empty pages."""
        far = history.MessageFilter(run_id="rare", to_seq=2**62)
        pages = long_stubs.pages(LONG, filter=far, order=history.LIST_ORDER_DESCENDING)

        assert [len(page) for page in pages] == [10, 0]
        beyond = history.MessageFilter(run_id="rare", from_seq=2**62)
        assert long_stubs.pages(LONG, filter=beyond) == [[]]


class TestWindows:
    """A window of 10,000 messages of 2 KiB, through a client with gRPC's default limit of 4 MiB."""

    def check(self, found: list[pb.Message], stats: window.WindowStats) -> None:
        assert seqs(found) == list(range(301, MESSAGES + 1))
        assert all(message.content.parts[0].text == long_text(message.seq) for message in found)
        assert stats.window_message_count == 10_000
        assert (stats.left_out.limit_count, stats.left_out.limit_from_seq, stats.left_out.limit_to_seq) == (300, 1, 300)

    def test_arrive_by_a_bare_stream(self, long_stubs: Stubs) -> None:
        pieces = long_stubs.stream(LONG, limit=10_000)

        self.check([message for piece in pieces for message in piece.messages], pieces[-1].stats)
        assert all(piece.ByteSize() <= PIECE_BYTES + 4 * KIB for piece in pieces)
        assert [piece.HasField("stats") for piece in pieces] == [False] * (len(pieces) - 1) + [True]

    def test_arrive_through_the_sdk(self, long_client: MemoryClient) -> None:
        found: Window = long_client.session(agent=LONG.agent, id=LONG.session_id).window(messages=10_000)

        assert [message.seq for message in found] == list(range(301, MESSAGES + 1))
        assert all(message.text == long_text(message.seq) for message in found)
        assert found.stats.window_message_count == 10_000

    def test_are_too_large_for_one_answer(self, long_stubs: Stubs) -> None:
        refusal = refused(lambda: long_stubs.load(LONG, limit=10_000))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WINDOW_TOO_LARGE")
        assert int(refusal.metadata["bytes"]) > 20_000 * KIB
        assert refusal.metadata["limit"] == str(PIECE_BYTES)
        assert "StreamWindow" in refusal.text

    def test_just_within_one_answer_are_served(self, long_stubs: Stubs) -> None:
        """The largest window that one answer holds reaches a default client; one message more is refused."""
        low, high = 1_000, 2_000
        while high - low > 1:
            middle = (low + high) // 2
            try:
                long_stubs.load(LONG, limit=middle)
            except grpc.RpcError:
                high = middle
            else:
                low = middle

        answer = long_stubs.load(LONG, limit=low)
        assert seqs(answer.messages) == list(range(MESSAGES - low + 1, MESSAGES + 1))
        assert PIECE_BYTES - 64 * KIB < answer.ByteSize() <= PIECE_BYTES + 4 * KIB
        assert refused(lambda: long_stubs.load(LONG, limit=high)).reason == "WINDOW_TOO_LARGE"

    def test_in_tokens_arrive_too(self, long_stubs: Stubs) -> None:
        pieces = long_stubs.stream(LONG, mode=2, limit=2_000_000)
        found = [message for piece in pieces for message in piece.messages]
        stats = pieces[-1].stats

        assert stats.window_token_count == sum(message.token_count for message in found) <= 2_000_000
        assert stats.window_token_count + found[0].token_count > 2_000_000
        assert seqs(found) == list(range(MESSAGES - len(found) + 1, MESSAGES + 1))
        assert len(found) > 3_000

    @pytest.mark.parametrize("any_server", EACH_QUICK_ADAPTER, indirect=True)
    def test_that_lose_their_history_on_the_way_are_aborted(self, stubs: Stubs, agent: str) -> None:
        """History taken away while a window is streamed (design section 3): never a window with a gap. The client's
        flow control holds the rest of the stream back until the clear is made."""
        key = session.SessionKey(agent=agent, session_id="s")
        for number in range(20):
            stubs.append(key, text(f"{number:02d}" + "x" * 1_000_000), text("y" * 1_000_000))
        stream = stubs.windows.StreamWindow(window.StreamWindowRequest(session=key), timeout=60)
        first = next(stream)
        assert seqs(first.messages) == [1, 2, 3]
        assert stubs.clear(key) == 40

        refusal = refused(lambda: list(stream))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "WINDOW_CHANGED")


@pytest.mark.parametrize("any_server", EACH_QUICK_ADAPTER, indirect=True)
def test_a_default_client_pages_through_fifty_messages_of_900_kib(any_server: ServerProcess) -> None:
    with Stubs(any_server.address) as stubs, MemoryClient(any_server.address) as client:
        for number in range(50):
            stubs.append(LARGE, text(f"{number:02d}" + "z" * (900 * KIB - 2)))
        pages = stubs.pages(LARGE, page_size=1_000)
        assert seqs(itertools.chain.from_iterable(pages)) == list(range(1, 51))
        assert all(len(page[0].content.parts[0].text) == 900 * KIB for page in pages)
        assert all(sum(message.ByteSize() for message in page) <= PIECE_BYTES for page in pages)

        messages = list(client.session(agent=LARGE.agent, id=LARGE.session_id).messages())
        assert [message.text[:3] for message in messages] == [f"{number:02d}z" for number in range(50)]
        found = client.session(agent=LARGE.agent, id=LARGE.session_id).window(messages=50)
        assert [message.seq for message in found] == list(range(1, 51))

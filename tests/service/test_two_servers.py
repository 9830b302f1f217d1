"""Two servers on one database: what one commits, the other sees at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from memoryd import AsyncMemoryClient, user
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import history_service_pb2_grpc
from memoryd.v1 import session_pb2 as session
from tests.servers import ServerProcess
from tests.service.lossy_proxy import LossyProxy
from tests.service.wire import Stubs, calls, new_key, refused, results, seqs, text

CLIENTS = 50


@pytest.fixture
def key(agent: str) -> session.SessionKey:
    return new_key(agent)


async def append_at_once(addresses: list[str], key: session.SessionKey) -> list[int]:
    """Lets a client for each address append one message, all at once and each on a connection of its own.

    Returns: the seqs that they were given.
    """
    own_connection = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    channels = [grpc.aio.insecure_channel(address, options=own_connection) for address in addresses]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))

    async def append(number: int, channel: Any) -> int:
        request = history.AppendMessagesRequest(session=key, messages=[text(f"of client {number}", id=f"{number}")])
        answer = await history_service_pb2_grpc.HistoryServiceStub(channel).AppendMessages(request, timeout=60)
        assert [message.id for message in answer.messages] == [f"{number}"]
        return int(answer.messages[0].seq)

    found = await asyncio.gather(*(append(number, channel) for number, channel in enumerate(channels)))
    await asyncio.gather(*(channel.close() for channel in channels))
    return list(found)


class TestManyClients:
    """50 clients begin one session at once: all is stored, in one order (invariants 1 to 3)."""

    def check(self, stubs: Stubs, key: session.SessionKey, given: list[int]) -> None:
        listed = stubs.messages(key)
        assert seqs(listed) == list(range(1, CLIENTS + 1))
        assert sorted(given) == list(range(1, CLIENTS + 1))
        assert [int(message.id) for message in listed] == sorted(range(CLIENTS), key=lambda number: given[number])
        assert stubs.session(key).message_count == CLIENTS

    async def test_through_one_server(self, any_server: ServerProcess, stubs: Stubs, key: session.SessionKey) -> None:
        given = await append_at_once([any_server.address] * CLIENTS, key)
        self.check(stubs, key, given)

    async def test_through_two_servers(
        self, pair: tuple[str, str], here: Stubs, there: Stubs, key: session.SessionKey
    ) -> None:
        given = await append_at_once(list(itertools.islice(itertools.cycle(pair), CLIENTS)), key)
        self.check(here, key, given)
        self.check(there, key, given)


class TestLostAnswers:
    """An append whose answer is lost is stored once, whoever takes the retry (invariant 2)."""

    @pytest.fixture
    async def proxy(self, pair: tuple[str, str]) -> AsyncIterator[LossyProxy]:
        async with LossyProxy.run(pair[0]) as proxy:
            yield proxy

    @pytest.mark.parametrize("other", [False, True], ids=["the same server", "the other server"])
    async def test_are_retried_by_the_sdk(
        self, pair: tuple[str, str], proxy: LossyProxy, there: Stubs, agent: str, other: bool
    ) -> None:
        async with AsyncMemoryClient(proxy.address) as client:
            await client.store()
            proxy.losing = True
            session_ = client.session(agent=agent)
            key = session.SessionKey(agent=agent, session_id=session_.id)
            call = asyncio.create_task(session_.append(user("Hello!"), user("Are you there?")))
            await asyncio.to_thread(wait_for, there, key, [1, 2])
            assert not call.done()
            proxy.target = pair[1] if other else pair[0]
            proxy.losing = False
            proxy.cut()

            assert [message.seq for message in await call] == [1, 2]
            assert seqs(there.messages(key)) == [1, 2]

    def test_are_recognized_by_the_other_server(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        by_ids = here.append(key, text("one", id="a"))
        by_request = here.append(key, text("two"), request_id="r")
        there.append(key, text("three"))

        assert there.append(key, text("one", id="a")) == by_ids
        assert there.append(key, text("two"), request_id="r") == by_request
        assert refused(lambda: there.append(key, text("other", id="a"))).reason == "MESSAGE_ID_CONFLICT"
        assert refused(lambda: there.append(key, text("other"), request_id="r")).reason == "REQUEST_ID_CONFLICT"
        assert seqs(here.messages(key)) == [1, 2, 3]


def wait_for(stubs: Stubs, key: session.SessionKey, expected: list[int]) -> None:
    """Returns when a session that has not begun yet holds messages with these seqs."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with suppress(grpc.RpcError):
            if seqs(stubs.messages(key)) == expected:
                return
    raise AssertionError("the messages were never stored")


class TestWhatOneChanges:
    """A record that a server remembers serves commits only: every refusal and every answer rests on the store
    (design section 5)."""

    def test_by_an_append_is_in_the_others_windows_and_lists(
        self, here: Stubs, there: Stubs, key: session.SessionKey
    ) -> None:
        for number in range(1, 6):
            writer, reader = (here, there) if number % 2 else (there, here)
            assert seqs(writer.append(key, text(f"{number}"))) == [number]
            expected = list(range(1, number + 1))
            assert seqs(reader.messages(key)) == seqs(reader.load(key).messages) == expected
            assert reader.session(key).last_seq == number

    def test_by_a_clear_is_seen_at_once(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        here.append(key, text("one"), text("two"))
        assert there.clear(key) == 2

        assert here.messages(key) == []
        assert not here.load(key).messages
        assert here.session(key).message_count == 0
        assert here.clear(key) == 0
        assert seqs(here.append(key, text("three"))) == [3]
        assert seqs(there.load(key).messages) == [3]

    def test_by_clearing_the_agent_is_seen_at_once(self, here: Stubs, there: Stubs, agent: str) -> None:
        keys = [new_key(agent) for _ in range(3)]
        for key in keys:
            here.append(key, text("one"))
        there.histories.ClearAgentHistory(history.ClearAgentHistoryRequest(agent=agent))

        assert [here.messages(key) for key in keys] == [[], [], []]
        assert seqs(here.append(keys[0], text("two"))) == [2]

    def test_refuses_nothing_by_an_old_seq(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        here.append(key, text("one"))
        there.append(key, text("two"))

        assert seqs(here.append(key, text("three"), expected_last_seq=2)) == [3]
        there.append(key, text("four"))
        refusal = refused(lambda: here.append(key, text("five"), expected_last_seq=3))
        assert (refusal.reason, refusal.metadata["actual"]) == ("LAST_SEQ_MISMATCH", "4")

    def test_begins_a_session_for_both(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        assert refused(lambda: here.session(key)).reason == "SESSION_NOT_FOUND"
        there.append(key, text("one"))

        assert seqs(here.append(key, text("two"), expected_last_seq=1)) == [2]
        assert [
            found.key for found in here.histories.ListSessions(history.ListSessionsRequest(agent=key.agent)).sessions
        ] == [key]

    def test_answers_calls_that_the_other_armed(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        here.append(key, text("go"), calls("a", "b"))
        there.append(key, results("b"))
        assert seqs(here.load(key).messages) == [1]
        here.append(key, results("a"))

        assert seqs(there.load(key).messages) == [1, 2, 4, 3]

    def test_moves_etags(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        here.append(key, text("one"))

        def update(stubs: Stubs, user_id: str, etag: str) -> session.Session:
            changed = session.Session(key=key, user_id=user_id, etag=etag)
            mask = FieldMask(paths=["user_id"])
            return stubs.histories.UpdateSession(
                history.UpdateSessionRequest(session=changed, update_mask=mask)
            ).session

        old = here.session(key).etag
        new = update(there, "ada", old).etag
        refusal = refused(lambda: update(here, "bob", old))
        assert (refusal.reason, refusal.metadata["etag"]) == ("ETAG_MISMATCH", new)
        assert update(here, "bob", new).user_id == there.session(key).user_id == "bob"

    def test_shapes_windows_by_the_session_policy(self, here: Stubs, there: Stubs, key: session.SessionKey) -> None:
        here.append(key, text("one"), text("two"), text("three"))
        assert len(here.load(key).messages) == 3
        changed = session.Session(key=key)
        changed.policy.window.limit = 1
        there.histories.UpdateSession(history.UpdateSessionRequest(session=changed))

        assert seqs(here.load(key).messages) == [3]


def test_a_fork_that_is_repeated_while_it_is_made_gets_its_first_answer(here: Stubs, there: Stubs, agent: str) -> None:
    """A caller that gave up waiting repeats its call, and the other server takes it (invariant 2)."""
    source = new_key(agent)
    here.append(source, text("one"), text("two"))
    for _ in range(10):
        request = history.ForkSessionRequest(source=source, target=new_key(agent), request_id="r")
        with ThreadPoolExecutor(8) as threads:
            answers = threads.map(
                lambda stubs, request=request: stubs.histories.ForkSession(request), (here, there) * 4
            )
        assert all(answer == history.ForkSessionResponse(copied_message_count=2, last_seq=2) for answer in answers)


def test_page_tokens_hold_on_both(here: Stubs, there: Stubs, key: session.SessionKey) -> None:
    """Servers are stateless: a page token of one is good at the other."""
    here.append(key, text("one"), text("two"))
    request = history.ListMessagesRequest(session=key, page_size=1)
    request.page_token = here.histories.ListMessages(request).next_page_token

    assert seqs(there.histories.ListMessages(request).messages) == [2]


def test_batches_of_concurrent_writers_stay_whole(here: Stubs, there: Stubs, key: session.SessionKey) -> None:
    """Each append's messages stand side by side, whoever else appends (invariant 3)."""

    def write(stubs: Stubs, writer: str) -> None:
        for number in range(20):
            stubs.append(key, *(text(f"{writer} {number}") for _ in range(3)))

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, (here, there, here, there), "abcd"))
    found = [message.content.parts[0].text for message in here.messages(key)]
    assert len(found) == 4 * 20 * 3
    batches = [said for said, _ in itertools.groupby(found)]
    assert sorted(batches) == sorted(f"{writer} {number}" for writer in "abcd" for number in range(20))

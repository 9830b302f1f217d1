"""Summaries of servers that share a database, stop or are killed (invariants 9, 10 and 16): one fold of a session at a
time, and none that is half done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from tests.adapters import EACH_SHARED_ADAPTER
from tests.servers import ServerProcess
from tests.service import short_leases
from tests.service.summarized import (
    CURRENT,
    DELETE,
    HEADING,
    KEEP,
    SHORT_LEASES,
    Endpoint,
    check_reference,
    converse,
    load,
    set_policy,
    texts,
    wait_until,
)
from tests.service.wire import Stubs, new_key, seqs, text
from tests.summarizers.faulty_endpoint import GOOD

MADE: Final = f"{HEADING}The project is called Atlas."
"""What the endpoint makes of everything, as windows show it."""


@dataclass(frozen=True)
class Pair:
    """Two servers on one database, and the endpoint that both summarize with."""

    servers: tuple[ServerProcess, ServerProcess]
    endpoint: Endpoint


@pytest.fixture(scope="module", params=EACH_SHARED_ADAPTER)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("summaries")
    with ExitStack() as running:
        endpoint = running.enter_context(Endpoint())
        url = running.enter_context(request.param.emptied(directory))
        flags = ("--store", f"default={url}", "--tokenizer", "estimate")
        servers = []
        for number in (1, 2):
            log = directory / f"server-{number}.log"
            server = ServerProcess(*flags, environment=endpoint.environment, log=log, wrapper=SHORT_LEASES)
            running.callback(server.close)
            servers.append(server)
        yield Pair((servers[0], servers[1]), endpoint)


@pytest.fixture
def endpoint(pair: Pair) -> Iterator[Endpoint]:
    yield pair.endpoint
    pair.endpoint.release()


@pytest.fixture
def here(pair: Pair) -> Iterator[Stubs]:
    with Stubs(pair.servers[0].address) as stubs:
        yield stubs


@pytest.fixture
def there(pair: Pair) -> Iterator[Stubs]:
    with Stubs(pair.servers[1].address) as stubs:
        yield stubs


@pytest.fixture
def key(here: Stubs, agent: str) -> session.SessionKey:
    """A session of which messages 1 to 3 are due to be folded; they all name the agent."""
    key = new_key(agent)
    here.append(key, *(text(f"{agent}: fact {number}.") for number in range(1, 7)))
    set_policy(here, key, "openai")
    return key


@pytest.mark.parametrize("retention", [KEEP, DELETE], ids=["keep", "delete"])
def test_early_facts_are_there_after_a_restart(pair: Pair, agent: str, retention: policies.Retention.ValueType) -> None:
    key = new_key(agent)
    server = pair.servers[0]
    with Stubs(server.address) as stubs:
        converse(stubs, key, retention)
        check_reference(stubs, key, retention)
        before = load(stubs, key), stubs.chain(key)
    assert server.stop() == 0
    server.restart()
    with Stubs(server.address) as stubs:
        assert (load(stubs, key), stubs.chain(key)) == before
        check_reference(stubs, key, retention)


def test_two_servers_that_load_at_once_make_one_call(
    endpoint: Endpoint, here: Stubs, there: Stubs, key: session.SessionKey
) -> None:
    """All loads wait for the one summary, whoever makes it."""
    endpoint.hold()
    with ThreadPoolExecutor(8) as threads:
        loads = [threads.submit(load, stubs, key) for stubs in (here, there) * 4]
        wait_until(lambda: bool(endpoint.about(key.agent)))
        appended = there.append(key, text(f"{key.agent}: fact 7."))
        endpoint.release()
        answers = [each.result() for each in loads]
    assert seqs(appended) == [7]
    assert len(endpoint.about(f"{key.agent}: fact 3.")) == 1
    for answer in answers:
        assert texts(answer)[0] == MADE
        assert answer.stats.uncovered_message_count == 0


def test_a_clear_through_the_other_server_stays_cleared(
    endpoint: Endpoint, here: Stubs, there: Stubs, key: session.SessionKey
) -> None:
    """The late summary is discarded."""
    endpoint.hold()
    with ThreadPoolExecutor(1) as threads:
        loaded = threads.submit(load, here, key)
        wait_until(lambda: bool(endpoint.about(key.agent)))
        there.clear(key)
        endpoint.release()
        assert not loaded.result().messages
    for stubs in (here, there):
        assert not load(stubs, key).messages
        assert stubs.chain(key) == []


def test_a_drain_gives_up_what_it_has_leased(
    pair: Pair, endpoint: Endpoint, there: Stubs, key: session.SessionKey
) -> None:
    """The server ends although the model does not answer, and another one need not wait for the end of the lease."""
    server = pair.servers[0]
    endpoint.hold()
    with Stubs(server.address) as stubs:
        load(stubs, key, wait=False)
        wait_until(lambda: bool(endpoint.about(key.agent)))
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 15
    endpoint.reply = GOOD
    began = time.monotonic()
    answer = load(there, key)
    assert time.monotonic() - began < short_leases.SECONDS
    assert texts(answer) == [MADE, *(f"{key.agent}: fact {number}." for number in (4, 5, 6))]
    server.restart()


def test_a_server_killed_between_call_and_commit_loses_nothing(
    pair: Pair, endpoint: Endpoint, there: Stubs, key: session.SessionKey
) -> None:
    """The other one takes over when the lease is over; until then it serves the messages as they are."""
    server = pair.servers[0]
    endpoint.hold()
    with Stubs(server.address) as stubs:
        load(stubs, key, wait=False)
        wait_until(lambda: bool(endpoint.about(key.agent)))
        server.kill()
    endpoint.reply = GOOD
    assert texts(load(there, key, wait=False)) == [f"{key.agent}: fact {number}." for number in (3, 4, 5, 6)]
    wait_until(lambda: load(there, key).stats.summary_state == CURRENT)
    assert texts(load(there, key)) == [MADE, *(f"{key.agent}: fact {number}." for number in (4, 5, 6))]
    assert [summary.covered_message_count for summary in there.chain(key)] == [3]
    assert seqs(there.messages(key, view=history.MESSAGE_VIEW_ALL)) == [1, 2, 3, 4, 5, 6]
    server.restart()
    with Stubs(server.address) as stubs:
        assert load(stubs, key) == load(there, key)

"""Clients of all languages write to one session, and each reads what all wrote (design section 10).

Invariants 1 to 4.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from memoryd.v1 import history_service_pb2, message_pb2
from memoryd.v1.session_pb2 import SessionKey
from tests.conformance import conformance_pb2 as pb
from tests.conformance.conftest import DriverOf
from tests.conformance.drivers import LANGUAGES, REPLY_SECONDS, Driver
from tests.conftest import StartServer
from tests.databases.servers import free_ports
from tests.servers import ServerProcess

CLIENT: Final = "one session"
APPENDS_AT_ONCE: Final = 20
"""Of each language."""
APPENDS: Final = 1_000
"""Of each language, while the server is killed and restarted."""
IN_FLIGHT: Final = 8

LARGE: Final = "x😀" * 200_000
"""1 MB."""


def message(
    id: str, *parts: message_pb2.Part, role: message_pb2.Role.ValueType = message_pb2.ROLE_USER
) -> message_pb2.Message:
    return message_pb2.Message(id=id, role=role, content=message_pb2.Content(parts=parts))


def awkward(prefix: str) -> list[message_pb2.Message]:
    """What a layer in between might change: emoji, NUL, 2^53 + 1, 1 MB."""
    arguments = '{"n": 9007199254740993, "n": 1.0, "s": "\\ud800"}'
    call = message_pb2.ToolCall(id=f"{prefix}-call", name="f", arguments=arguments)
    result = message_pb2.ToolResult(call_id=f"{prefix}-call", parts=[message_pb2.Part(text="a\0b")])
    return [
        message(f"{prefix}-emoji", message_pb2.Part(text="👩‍👩‍👧‍👦 e\u0301 \ufeff\r\n\u2028")),
        message(f"{prefix}-call", message_pb2.Part(tool_call=call), role=message_pb2.ROLE_ASSISTANT),
        message(f"{prefix}-result", message_pb2.Part(tool_result=result), role=message_pb2.ROLE_TOOL),
        message(f"{prefix}-large", message_pb2.Part(text=LARGE)),
    ]


def append(key: SessionKey, *messages: message_pb2.Message) -> pb.Command:
    request = history_service_pb2.AppendMessagesRequest(session=key, messages=messages)
    return pb.Command(client=CLIENT, append=request)


def read(driver: Driver, key: SessionKey) -> list[message_pb2.Message]:
    request = history_service_pb2.ListMessagesRequest(session=key, view=history_service_pb2.MESSAGE_VIEW_ALL)
    command = pb.Command(client=CLIENT, list_messages=pb.ListMessages(request=request))
    return list(driver.call(command).messages.messages)


def said(messages: list[message_pb2.Message]) -> list[message_pb2.Message]:
    """Messages without what the server tells of them."""
    return [message_pb2.Message(id=each.id, role=each.role, content=each.content) for each in messages]


@pytest.fixture(scope="session")
def drivers(driver_of: DriverOf) -> list[Driver]:
    return [driver_of(language.name) for language in LANGUAGES]


def test_each_reads_byte_for_byte_what_all_wrote_in_turn(
    drivers: list[Driver], any_server: ServerProcess, agent: str
) -> None:
    key = SessionKey(agent=agent, session_id="one")
    for driver in drivers:
        driver.connect(any_server.address, CLIENT)
        driver.call(append(key, *awkward(driver.language)))
    written = [each for driver in drivers for each in awkward(driver.language)]
    for driver in drivers:
        found = read(driver, key)
        assert said(found) == written, driver.language
        assert [each.seq for each in found] == [*range(1, len(written) + 1)]


def test_each_reads_what_all_wrote_at_once(drivers: list[Driver], any_server: ServerProcess, agent: str) -> None:
    key = SessionKey(agent=agent, session_id="one")
    written: dict[str, message_pb2.Message] = {}
    waiting = []
    for driver in drivers:
        driver.connect(any_server.address, CLIENT)
    for number in range(APPENDS_AT_ONCE):
        for driver in drivers:
            name = f"{driver.language}-{number}"
            pair = [message(f"{name}-{half}", message_pb2.Part(text=f"{name} 😀\0 {half}")) for half in "ab"]
            written |= {each.id: each for each in pair}
            waiting.append(driver.send(append(key, *pair)))
    for reply in waiting:
        assert not (answer := reply.result(REPLY_SECONDS)).HasField("failure"), answer.failure
    histories = [read(driver, key) for driver in drivers]
    for each in itertools.chain.from_iterable(histories):
        # What a Date of JavaScript holds.
        each.create_time.FromMilliseconds(each.create_time.ToMilliseconds())
    assert all(history == histories[0] for history in histories)
    found = said(histories[0])
    assert sorted(each.id for each in found) == sorted(written)
    assert all(each == written[each.id] for each in found)
    # The two of an append stand together: it is one batch.
    assert all(first.id[:-1] == second.id[:-1] for first, second in zip(found[::2], found[1::2], strict=True))


def test_a_thousand_appends_of_each_outlast_a_server_that_is_killed_and_restarted(
    drivers: list[Driver], start_server: StartServer, tmp_path: Path
) -> None:
    """All are stored once, and nothing here repeats a call."""
    [port] = free_ports(1)
    store = f"default=sqlite:///{tmp_path / 'memoryd.db'}"
    server = start_server("--listen", f"127.0.0.1:{port}", "--store", store)
    keys = {driver: SessionKey(agent="a", session_id=driver.language) for driver in drivers}
    done = itertools.count(1)
    is_midway = threading.Event()

    def send(driver: Driver, number: int) -> None:
        driver.call(append(keys[driver], message(f"m{number}", message_pb2.Part(text=str(number)))))
        if next(done) >= APPENDS * len(drivers) // 2:
            is_midway.set()

    for driver in drivers:
        driver.connect(server.address, CLIENT)
    with ExitStack() as running:
        callers = {driver: running.enter_context(ThreadPoolExecutor(IN_FLIGHT)) for driver in drivers}
        sent = [callers[driver].submit(send, driver, number) for number in range(APPENDS) for driver in drivers]
        assert is_midway.wait(REPLY_SECONDS)
        server.kill()
        server.restart()
        for each in sent:
            each.result()
    for driver in drivers:
        found = read(driver, keys[driver])
        assert sorted(each.id for each in found) == sorted(f"m{number}" for number in range(APPENDS))
        assert all(each.content.parts[0].text == each.id[1:] for each in found)

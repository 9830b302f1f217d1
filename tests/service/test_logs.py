"""What the log tells and what it never does (design section 9, and the docstring of `memoryd_server.logs`)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import grpc
import pytest
import structlog
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from memoryd.v1 import (
    agent_service_pb2,
    history_service_pb2,
    memory_context_service_pb2,
    run_service_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)
from memoryd.v1 import message_pb2 as pb
from memoryd_server import logs
from memoryd_server.engine.errors import field_invalid
from memoryd_server.stores.base import StoreUnavailable
from tests.conftest import StartServer
from tests.process_logging import logging_put_back
from tests.servers import ServerProcess
from tests.service import run_calls as runs
from tests.service.in_process import HookedStore, serving, until
from tests.service.test_metrics import read, url_of
from tests.service.wire import Stubs, new_key, refused, text

MARKER: Final = "canary4711"
"""Planted in every field of every request."""

DEEP: Final = 5
"""How deep requests are filled: messages may hold themselves."""

UNWANTED: Final[Sequence[frozenset[str]]] = (
    frozenset(),
    frozenset({"request_id", "page_token", "resume_token", "etag", "update_mask", "expected_last_seq", "summary"}),
)
"""Fields that are left out. With all of them many calls are refused; without these, most are done."""

SERVICES: Final[Sequence[ServiceDescriptor]] = [
    descriptor
    for module in (
        history_service_pb2,
        window_service_pb2,
        agent_service_pb2,
        store_service_pb2,
        summary_service_pb2,
        memory_context_service_pb2,
        run_service_pb2,
    )
    for descriptor in module.DESCRIPTOR.services_by_name.values()
]

METHODS: Final = sorted(
    (method for service in SERVICES for method in service.methods),
    key=lambda method: (
        method.name.startswith(("Clear", "Erase", "Delete")),
        method.name.startswith(("Redact", "Rewind")),
        not method.name.startswith(("Put", "Append", "Create")),
    ),
)
"""Those first that write what others read, and those last that take it away."""


def fill(message: Message, unwanted: frozenset[str], depth: int = 0) -> None:
    """Puts the marker into all texts and bytes of a message, and something that will do into its other fields. Of
    fields of which one may be set, the last one stays; the parts of a message are of every kind.
    """
    for field in message.DESCRIPTOR.fields:
        if field.name in unwanted:
            continue
        if field.message_type is None:
            fill_value(message, field)
        elif field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[MARKER] = MARKER
        elif depth < DEEP:
            inside = getattr(message, field.name)
            if field.is_repeated:
                for kind in kinds_of(field.message_type):
                    one = inside.add()
                    fill(one, unwanted, depth + 1)
                    if kind is not None:
                        set_only(one, kind, unwanted, depth + 1)
            else:
                inside.SetInParent()
                fill(inside, unwanted, depth + 1)


def fill_value(message: Message, field: Any) -> None:
    values = {
        FieldDescriptor.CPPTYPE_STRING: MARKER if field.type == FieldDescriptor.TYPE_STRING else MARKER.encode(),
        FieldDescriptor.CPPTYPE_BOOL: True,
    }
    value = values.get(field.cpp_type, 1)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def kinds_of(descriptor: Any) -> Sequence[Any]:
    """The fields of which a message sets one, or one None."""
    choices = [oneof for oneof in descriptor.oneofs if len(oneof.fields) > 1]
    return list(choices[0].fields) if choices else [None]


def set_only(message: Message, kind: Any, unwanted: frozenset[str], depth: int) -> None:
    if kind.message_type is None:
        fill_value(message, kind)
    elif depth < DEEP:
        inside = getattr(message, kind.name)
        inside.SetInParent()
        fill(inside, unwanted, depth + 1)


def request_of(method: MethodDescriptor, unwanted: frozenset[str]) -> Message:
    request = GetMessageClass(method.input_type)()
    fill(request, unwanted)
    if isinstance(request, history_service_pb2.AppendMessagesRequest):
        give_each_part_its_message(request)
    elif unwanted and method.containing_service.name == "MemoryContextService":
        make_valid(request)
    return request


def make_valid(request: Any) -> None:
    """Puts values where a marker will not do, into a request about memory."""
    for field, value in {
        "name": "MEMORY.md",
        "date": "2026-01-02",
        "time_zone": "",
        "create_only": False,
        "budget": 0,
    }.items():
        if field in request.DESCRIPTOR.fields_by_name:
            setattr(request, field, value)


def give_each_part_its_message(request: history_service_pb2.AppendMessagesRequest) -> None:
    """No role may carry parts of all kinds."""
    (whole,) = request.messages
    del request.messages[:]
    for number, part in enumerate(whole.content.parts):
        message = request.messages.add()
        message.CopyFrom(whole)
        message.id += str(number) if number else ""
        message.role = pb.ROLE_TOOL if part.HasField("tool_result") else pb.ROLE_ASSISTANT
        del message.content.parts[:]
        message.content.parts.append(part)


def call(channel: grpc.Channel, method: MethodDescriptor, request: Message) -> str:
    """Makes a call, of a stream up to its first answer. Returns: its status."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    stub: Any = make(
        path,
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    metadata = (("authorization", f"Bearer {MARKER}"), ("memoryd-correlation-id", method.name))
    try:
        answer = stub(request, timeout=10, metadata=metadata)
        if method.server_streaming:
            next(answer, None)
            answer.cancel()
    except grpc.RpcError as error:
        failed: Any = error
        return str(failed.code().name)
    return "OK"


def lines(server: ServerProcess) -> Iterator[Mapping[str, Any]]:
    for line in server.log_text().splitlines():
        yield json.loads(line)


def test_nothing_that_a_caller_sent_is_told(start_server: StartServer) -> None:
    """A marker in every field of every RPC comes neither into the log, at its most talkative, nor into the metrics."""
    server = start_server(
        *("--store", "default=memory://", "--tokenizer", "estimate", "--metrics-listen", "127.0.0.1:0"),
        *("--log-level", "debug", "--log-format", "json"),
    )
    url = url_of(server)
    statuses: dict[str, set[str]] = {}
    with grpc.insecure_channel(server.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        for unwanted in UNWANTED:
            for method in METHODS:
                request = request_of(method, unwanted)
                if request.DESCRIPTOR.fields and not unwanted:
                    assert MARKER.encode() in request.SerializeToString(), method.name
                statuses.setdefault(method.name, set()).add(call(channel, method, request))
    metrics = read(url)
    assert server.stop() == 0

    done = {name for name, ended in statuses.items() if "OK" in ended}
    assert done >= {"AppendMessages", "GetMessage", "ListMessages", "LoadWindow", "WatchMessages"}
    assert done >= {"UpdateSession", "UpdateAgent", "RedactMessage", "RewindSession", "ClearHistory", "EraseUser"}
    assert done >= {method.name for method in METHODS if method.containing_service.name == "MemoryContextService"}
    assert done >= {"CreateRun", "GetRun", "ListRuns", "ListRunSteps", "ClaimRun"}
    assert MARKER not in server.log_text()
    assert MARKER not in metrics.text
    told = {line["method"].rpartition("/")[2] for line in lines(server) if line["event"] == "call"}
    assert told == {method.name for method in METHODS}
    assert "traceback" not in server.log_text().lower()


def test_nothing_of_a_run_is_told(start_server: StartServer, agent: str) -> None:
    """Nor of what is refused, with texts that quote it, and of what background work ends."""
    server = start_server(
        *("--store", "default=memory://", "--tokenizer", "estimate", "--metrics-listen", "127.0.0.1:0"),
        *("--log-level", "debug", "--log-format", "json"),
    )
    url = url_of(server)
    run = runs.run_of(new_key(agent), MARKER)
    said = [text(MARKER, id=MARKER, metadata=MARKER)]
    with Stubs(server.address) as stubs:
        fence = runs.create(stubs, run, metadata=MARKER, holder=MARKER).fence
        runs.step(stubs, run, fence, 1, MARKER.encode(), *said, content_type=MARKER)
        for refusal in (
            refused(lambda: runs.create(stubs, run, metadata="other")),
            refused(lambda: runs.claim(stubs, run, request_id=MARKER)),
            refused(lambda: runs.step(stubs, run, fence, 1, b"other")),
            refused(lambda: runs.delete(stubs, run)),
        ):
            assert MARKER in refusal.text
        runs.step(stubs, run, fence, 2, status=runs.AWAITING_APPROVAL, status_reason=MARKER)
        etag = runs.get(stubs, run).etag
        runs.update(stubs, run_service_pb2.Run(key=run, metadata=f"{MARKER}!", etag=etag))
        fence = runs.claim(stubs, run, holder=MARKER, request_id=MARKER).fence
        runs.release(stubs, run, fence, status_reason=MARKER)
        fence = runs.claim(stubs, agent, holder=MARKER).fence
        runs.step(stubs, run, fence, 3, MARKER.encode(), status=runs.FAILED, status_reason=MARKER)
        assert MARKER in str(runs.runs(stubs, agent))
        assert runs.delete(stubs, run)
    metrics = read(url)
    assert server.stop() == 0
    assert [line["method"] for line in lines(server) if line["event"] == "call"]
    for told in (server.log_text(), metrics.text):
        assert MARKER not in told
        assert fence not in told


def test_each_line_of_a_call_tells_whose_it_is(start_server: StartServer, agent: str) -> None:
    """Correlation id and tenant; those of the server's own work have none, and those about a store name it."""
    server = start_server(
        *("--store", "default=memory://", "--tokenizer", "estimate", "--log-level", "debug", "--log-format", "json")
    )
    append = history_service_pb2.DESCRIPTOR.services_by_name["HistoryService"].methods_by_name["AppendMessages"]
    session = new_key(agent)
    with grpc.insecure_channel(server.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        for messages in ([text("hello")], []):
            request = history_service_pb2.AppendMessagesRequest(session=session, messages=messages)
            call(channel, append, request)
    assert server.stop() == 0

    done, refused = (line for line in lines(server) if line["event"] == "call")
    for line in (done, refused):
        assert line["correlation_id"] == "AppendMessages"
        assert line["tenant"] == "default"
    assert (done["status"], refused["status"]) == ("OK", "INVALID_ARGUMENT")
    assert refused["reason"] == "FIELD_REQUIRED"
    assert "reason" not in done
    opened = [line for line in lines(server) if line.get("store") == "default"]
    assert [line["event"] for line in opened] == [
        "store opened",
        "this store is not durable",
    ]
    assert all("correlation_id" not in line for line in lines(server) if line["event"] != "call")


async def test_a_commit_is_logged_as_the_stores_and_not_as_one_calls() -> None:
    """It serves all calls that share it: of whichever tenant, with whichever id."""
    store = HookedStore()
    bound: dict[str, dict[str, Any]] = {}

    async def note(method: str) -> None:
        bound[method] = structlog.contextvars.get_contextvars()

    store.before = note
    session = new_key("agent")
    append = history_service_pb2.AppendMessagesRequest(session=session, messages=[text("hello")])
    with structlog.contextvars.bound_contextvars(store="default"):
        async with serving(store) as (_, stubs):
            await stubs.histories.AppendMessages(append)
            await stubs.windows.LoadWindow(window_service_pb2.LoadWindowRequest(session=session))

    assert bound["commit"] == {"store": "default"}
    assert "correlation_id" in bound["load"]


class TestAnErrorsTraceback:
    def test_holds_its_place_and_not_its_text(self) -> None:
        def fail() -> None:
            try:
                dict[str, str]()[MARKER]
            except KeyError as error:
                raise ValueError(f"no {MARKER}") from error

        with pytest.raises(ValueError, match=MARKER) as caught:
            fail()
        told = logs.format_exception((caught.type, caught.value, caught.tb))

        assert MARKER not in told
        first, second = told.split("which led to:")
        assert "KeyError (its text is left out" in first
        assert "ValueError (its text is left out" in second
        for part in (first, second):
            assert "Traceback (most recent call last):" in part
            assert f'{__file__}", line ' in part

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (StoreUnavailable("the disk is full"), "StoreUnavailable: the disk is full"),
            (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
            (AttributeError("'None' has no attribute 'x'"), "AttributeError: 'None' has no attribute 'x'"),
            (ExceptionGroup("several", [ValueError(MARKER), OSError("gone")]), "OSError: gone"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_holds_a_text_that_quotes_nobody(self, error: Exception, expected: str) -> None:
        told = logs.format_exception((type(error), error, None))
        assert expected in told
        assert MARKER not in told

    def test_holds_what_a_database_calls_it(self) -> None:
        error = ValueError(MARKER)
        error.sqlstate = "23505"  # type: ignore[attr-defined]
        told = logs.format_exception((type(error), error, None))
        assert "ValueError (sqlstate 23505, its text is left out" in told
        assert MARKER not in told

    def test_holds_none_of_a_refusal(self) -> None:
        error = field_invalid("session.agent", f"{MARKER} is taken")
        assert MARKER not in logs.format_exception((type(error), error, None))


@pytest.fixture
def logging_as_a_server_does() -> Iterator[None]:
    with logging_put_back():
        yield


@pytest.mark.usefixtures("logging_as_a_server_does")
class TestSetUp:
    @pytest.mark.parametrize("format_", ["console", "json"])
    def test_leaves_the_debug_lines_of_other_libraries_out(
        self, format_: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Drivers log commands with their values there."""
        logs.set_up("debug", format_)
        logging.getLogger("pymongo.command").debug("insert %s", MARKER)
        logging.getLogger("pymongo.command").info("connected")
        logging.getLogger("memoryd_server.engine").debug("looking")

        told = capsys.readouterr().err
        assert MARKER not in told
        assert "connected" in told
        assert "looking" in told

    @pytest.mark.parametrize("format_", ["console", "json"])
    def test_formats_errors_of_every_logger_alike(self, format_: str, capsys: pytest.CaptureFixture[str]) -> None:
        logs.set_up("info", format_)
        try:
            raise ValueError("-".join(("can", "ary")))
        except ValueError:
            logging.getLogger("memoryd_server.engine").exception("it failed")
            structlog.stdlib.get_logger("memoryd.errors").exception("it failed")

        told = capsys.readouterr().err
        assert told.count("ValueError (its text is left out") == 2
        assert "can-ary" not in told

    async def test_hears_of_errors_that_nobody_awaited(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.set_up("info", "console")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.tell_of_loop_error)
        loop.call_soon(int, MARKER)
        told = ""

        def heard() -> bool:
            nonlocal told
            told += capsys.readouterr().err
            return "unexpected error in the background" in told

        await until(heard)
        assert "ValueError (its text is left out" in told
        assert MARKER not in told

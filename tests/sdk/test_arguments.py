"""A mistake in a call is named by its argument, before any request is made."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from memoryd import (
    AsyncMemoryClient,
    Media,
    MemoryClient,
    Policy,
    SessionSettings,
    Text,
    WindowMode,
    WindowOptions,
    assistant,
    call,
    tool,
    user,
)
from memoryd.v1.history_service_pb2 import GetSessionResponse
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers

WRONG: Any = 5
HUGE = 2**70


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


def session(memory: AsyncMemoryClient) -> Any:
    return memory.session(agent="a", id="s")


BEYOND: dict[str, tuple[Callable[[AsyncMemoryClient], Any], str]] = {
    "tokens": (lambda m: session(m).window(tokens=HUGE), "tokens is beyond 64 bits; it can be 1 to 100,000,000"),
    "messages": (lambda m: session(m).window(messages=-HUGE), "messages is beyond 64 bits; it can be 1 to 100,000"),
    "digits": (lambda m: session(m).window(tokens=10**5_000), "tokens is beyond 64 bits"),
    "from_seq": (lambda m: listed(session(m).messages(from_seq=HUGE)), "from_seq is beyond 64 bits; it can be 0 to 9,"),
    "to_seq": (lambda m: listed(session(m).messages(to_seq=2**63)), "to_seq is beyond 64 bits"),
    "page_size": (lambda m: listed(session(m).messages(page_size=2**31)), "page_size is beyond 32 bits; .* 1 to 1,000"),
    "page_size of sessions": (lambda m: listed(m.sessions(page_size=HUGE)), "page_size is beyond 32 bits"),
    "page_size of agents": (lambda m: listed(m.agents(page_size=HUGE)), "page_size is beyond 32 bits"),
    "seq": (lambda m: session(m).message(seq=HUGE), "seq is beyond 64 bits"),
    "last seq": (lambda m: session(m).append(user("a"), expected_last_seq=HUGE), "expected_last_seq is beyond 64 bits"),
    "policy": (
        lambda m: m.agent("a").update(policy=Policy(window=WindowOptions(mode=WindowMode.TOKENS, limit=HUGE))),
        "limit is beyond 64 bits; it can be 1 to 100,000 messages or 1 to 100,000,000 tokens",
    ),
    "settings": (
        lambda m: session(m).append(user("a"), create=SessionSettings(policy=Policy(window=WindowOptions(limit=HUGE)))),
        "limit is beyond 64 bits",
    ),
    "media": (lambda m: session(m).append(user([Media(uri="x", size=HUGE)])), "size of a Media part is beyond 64 bits"),
    "timeout": (lambda m: session(m).info(timeout=10**400), "timeout is not finite"),
    "infinite timeout": (lambda m: session(m).info(timeout=float("inf")), "timeout is not finite; give the seconds"),
    "agent": (lambda m: m.session(agent="\ud800").info(), "agent holds half of a surrogate pair"),
}

OF_ANOTHER_TYPE: dict[str, tuple[Callable[[AsyncMemoryClient], Any], str]] = {
    "messages": (
        lambda m: session(m).window(messages="5"),
        "messages is of type str; give an integer: 1 to 100,000",
    ),
    "tokens": (lambda m: session(m).window(tokens=4e3), "tokens is of type float; give an integer"),
    "from_seq": (lambda m: listed(session(m).messages(from_seq=None)), "from_seq is None; give an integer"),
    "seq": (lambda m: session(m).message(seq="5"), "seq is of type str; give an integer"),
    "message id": (lambda m: session(m).message(id=WRONG), "id is of type int; give text"),
    "agent None": (lambda m: m.session(agent=None).info(), "agent is None; give text, for example 'assistant'"),  # type: ignore[arg-type]
    "agent": (lambda m: m.session(agent=WRONG).info(), "agent is of type int; give text"),
    "id": (lambda m: m.session(agent="a", id=WRONG).info(), "id is of type int; give text, for example 'user_123'"),
    "name": (lambda m: m.agent(WRONG).info(), "name is of type int; give text"),
    "cleared agent": (lambda m: m.clear_agent(WRONG), "agent is of type int; give text"),
    "user_id": (lambda m: listed(m.sessions(user_id=WRONG)), "user_id is of type int; give text"),
    "run_id": (lambda m: listed(session(m).messages(run_id=WRONG)), "run_id is of type int; give text"),
    "request_id": (lambda m: session(m).append(user("a"), request_id=WRONG), "request_id is of type int; give text"),
    "store": (lambda m: m.store(WRONG), "name is of type int; give text"),
    "timeout": (lambda m: session(m).info(timeout="5"), "timeout is of type str; give the seconds"),
    "a span": (lambda m: session(m).info(timeout=timedelta(seconds=5)), "timeout is of type timedelta; give the sec"),
}


@pytest.mark.parametrize(("attempt", "complaint"), BEYOND.values(), ids=BEYOND)
async def test_values_that_no_request_can_carry_are_named(
    attempt: Callable[[AsyncMemoryClient], Any], complaint: str, connect: Connect, scripted: ScriptedServer
) -> None:
    with pytest.raises(ValueError, match=complaint):
        await attempt(connect(scripted.address))
    assert scripted.requests == []


@pytest.mark.parametrize(("attempt", "complaint"), OF_ANOTHER_TYPE.values(), ids=OF_ANOTHER_TYPE)
async def test_values_of_another_type_are_named(
    attempt: Callable[[AsyncMemoryClient], Any], complaint: str, connect: Connect, scripted: ScriptedServer
) -> None:
    with pytest.raises(TypeError, match=complaint):
        await attempt(connect(scripted.address))
    assert scripted.requests == []


@pytest.mark.parametrize("client", [MemoryClient, AsyncMemoryClient])
def test_a_client_needs_an_address_and_a_timeout(client: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"address is None; give text, for example '127\.0\.0\.1:7600'"):
        client(None)
    with pytest.raises(ValueError, match=r"address is empty; give the server's host:port"):
        client("")
    with pytest.raises(TypeError, match="store is of type int; give text"):
        client(store=WRONG)
    for timeout in ("30", None):
        with pytest.raises(TypeError, match=r"timeout is .*; give the seconds that a call may take, for example 30"):
            client(timeout=timeout)
    for endless in (float("nan"), float("inf"), 10**400, Decimal("inf")):
        with pytest.raises(ValueError, match="timeout is not finite"):
            client(timeout=endless)


async def test_any_finite_number_is_a_timeout(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("GetSession", *[answers(GetSessionResponse())] * 3)
    for timeout in (20, Decimal(20), 1e9):
        await connect(scripted.address).session(agent="a", id="s").info(timeout=timeout)  # type: ignore[arg-type]
    assert len(scripted.asked("GetSession")) == 3


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: user(WRONG), "content is of type int; give text, or a list of parts"),
        (lambda: user({"role": "user"}), "content is of type dict; give text, or a list of parts"),  # type: ignore[arg-type]
        (lambda: user(b"Hello!"), "content is of type bytes; give text"),  # type: ignore[arg-type]
        (lambda: user(Text("Hello!")), "content is of type Text; give text, or a list"),  # type: ignore[arg-type]
        (lambda: tool("a", None), "content is None; give the result as text"),  # type: ignore[arg-type]
        (lambda: assistant(tool_calls=call("f")), "tool_calls is of type ToolCall; give a list"),  # type: ignore[arg-type]
        (lambda: assistant(tool_calls=None), "tool_calls is None; give a list"),  # type: ignore[arg-type]
    ],
)
def test_content_of_another_type_is_named(attempt: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        attempt()

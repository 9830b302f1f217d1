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
    ProjectFiles,
    Role,
    SessionSettings,
    StoredMemory,
    Text,
    UserFiles,
    WindowMode,
    WindowOptions,
    assistant,
    call,
    from_anthropic,
    from_openai,
    from_openai_responses,
    tool,
    user,
)
from memoryd.v1.history_service_pb2 import GetSessionResponse, ListMessagesResponse
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
    "no timeout": (lambda m: session(m).info(timeout=0), "timeout is 0; give the seconds .*, more than 0"),
    "a timeout that is over": (lambda m: session(m).append(user("a"), timeout=-5), "timeout is -5; give the seconds"),
    "a list without time": (lambda m: listed(m.sessions(timeout=-1)), "timeout is -1; give the seconds"),
    "agent": (lambda m: m.session(agent="\ud800").info(), "agent holds half of a surrogate pair"),
    "budget": (lambda m: m.render_context(budget=HUGE), "budget is beyond 32 bits; it can be 256 to 100,000"),
    "style": (lambda m: m.render_context(style="plain"), "style is 'plain'; it can be one of 'enclosed', 'openhands'"),
    "a tier twice": (
        lambda m: m.render_context(StoredMemory(user="mia"), user=UserFiles()),
        "user memory has one place: give either stored with a user, or user",
    ),
    "another's tier": (
        lambda m: m.render_context(project=StoredMemory(user="mia")),
        r"project is a StoredMemory without a project; give StoredMemory\(project=…\)",
    ),
    "no owner": (lambda m: StoredMemory(), "whose memory"),
    "an empty owner": (lambda m: StoredMemory(user="mia", project=""), "project is empty; give the id of a project"),
    "no folder": (lambda m: ProjectFiles(""), "workspace is no path; give that of a folder, for example '.'"),
    "a folder with U+0000": (lambda m: UserFiles("a\0b"), "path is no path"),
    "a folder beyond UTF-8": (lambda m: UserFiles("\ud800"), "path is no path"),
    "nobody's files": (lambda m: m.files(), "memory files have one owner: give either user or project"),
    "files of two": (lambda m: m.files(user="mia", project="atlas"), "give either user or project"),
    "memory": (lambda m: m.files(user="mia").put("\ud800"), "content holds half of a surrogate pair"),
    "version": (lambda m: m.files(user="mia").get(version=HUGE), "version is beyond 64 bits; it can be 1 or more"),
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
    "stored": (lambda m: m.render_context(WRONG), r"stored is of type int; give StoredMemory\(…\)"),
    "a user's files": (
        lambda m: m.render_context(user=ProjectFiles(".")),  # type: ignore[arg-type]
        r"user is of type ProjectFiles; give UserFiles\(…\), StoredMemory\(user=…\) or None",
    ),
    "a folder": (lambda m: UserFiles(WRONG), "path is of type int; give the path of a folder, such as '~/.openhands"),
    "a folder as bytes": (lambda m: ProjectFiles(b"."), "workspace is of type bytes"),  # type: ignore[arg-type]
    "an owner": (lambda m: m.files(project=WRONG), "project is of type int; give text, for example 'atlas'"),
    "memory": (lambda m: m.files(user="mia").put(WRONG), "content is of type int; give text"),
    "entries": (lambda m: m.files(user="mia").add([WRONG]), "an entry is of type int; give text"),
    "date": (lambda m: m.files(user="mia").log("a", WRONG), "date is of type int; give text"),
    "a flag for a timeout": (
        lambda m: session(m).info(timeout=True),
        "timeout is of type bool; give the seconds that a",
    ),
    "a flag for a number": (lambda m: session(m).window(tokens=True), "tokens is of type bool; give an integer: 1 to"),
    "no roles": (lambda m: listed(session(m).messages(roles=None)), r"roles is None; give a list, .* \['system'\]"),
    "no statuses": (lambda m: listed(m.runs(agent="a", statuses=WRONG)), "statuses is of type int; give a list"),
    "messages of OpenAI's": (
        lambda m: from_openai(WRONG),
        r"messages is of type int; give a list of messages, for example \[\{'role': 'user'",
    ),
    "one message of OpenAI's": (
        lambda m: from_openai({"role": "user", "content": "Hello!"}),  # type: ignore[dict-item]
        "messages is of type dict; give a list of messages",
    ),
    "messages of Anthropic's": (lambda m: from_anthropic(WRONG), "messages is of type int; give a list of messages"),
    "a text for Anthropic's": (
        lambda m: from_anthropic("Hello!"),  # type: ignore[arg-type]
        "messages is of type str; give a list of messages",
    ),
    "items": (lambda m: from_openai_responses(WRONG), "items is of type int; give text, or a list of items, for"),
    "one item": (
        lambda m: from_openai_responses({"role": "user", "content": "Hello!"}),  # type: ignore[dict-item]
        "items is of type dict; give text, or a list of items",
    ),
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


async def test_one_role_is_as_good_as_a_list_of_one(connect: Connect, scripted: ScriptedServer) -> None:
    scripted.script("ListMessages", *[answers(ListMessagesResponse())] * 3)
    for roles in ("user", Role.USER, [Role.USER]):
        await listed(session(connect(scripted.address)).messages(roles=roles))
    assert len(set(scripted.asked("ListMessages"))) == 1


def test_numbers_that_json_does_not_have_are_named() -> None:
    with pytest.raises(ValueError, match="metadata is no JSON"):
        user("a", metadata={"a": float("nan")})
    with pytest.raises(ValueError, match="arguments is no JSON"):
        call("f", {"a": float("inf")})


def test_each_number_of_seconds_says_what_it_is() -> None:
    memory = MemoryClient()
    with pytest.raises(ValueError, match="retry_for is not finite; give the seconds for which an outage is waited for"):
        memory.summary_tasks(agent="a", retry_for=float("nan"))
    with pytest.raises(ValueError, match="retry_for is not finite; give the seconds for which an outage is waited for"):
        memory.session(agent="a", id="s").watch(retry_for=float("nan"))
    with pytest.raises(TypeError, match="lease_for is of type bool; give the seconds that a lease lasts"):
        memory.summary_tasks(agent="a", lease_for=True)
    memory.close()


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
    with pytest.raises(ValueError, match="timeout is 0; give the seconds that a call may take, more than 0"):
        client(timeout=0)


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
        (lambda: user("a", metadata={"a": {1}}), "metadata is no JSON .*set.*; give a mapping of what JSON can say"),
        (lambda: call("f", {"a": b"b"}), "arguments is no JSON .*bytes.*; give a mapping of what JSON can say"),
    ],
)
def test_content_of_another_type_is_named(attempt: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        attempt()

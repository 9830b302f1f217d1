"""Bad input: each gets the status, the reason and the field, a text that tells what to do, and nothing is written."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import agent_service_pb2 as agents
from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from tests.service import memory_calls as files
from tests.service.memory_calls import INDEX, Source, project, user
from tests.service.wire import Stubs, calls, new_key, refused, results, text

KIB: Final = 1024
MIB: Final = 1024 * KIB
INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT

REQUIRED: Final = "FIELD_REQUIRED"
BAD: Final = "FIELD_INVALID"
TOO_LARGE: Final = "FIELD_TOO_LARGE"

LONG: Final = "x" * 257
LONG_IN_BYTES: Final = "é" * 129
NUL: Final = "a\0b"

Call = Callable[[Stubs, session.SessionKey], object]


def appending(*messages: pb.Message, **fields: Any) -> Call:
    return lambda stubs, key: stubs.append(key, *messages, **fields)


def loading(**options: Any) -> Call:
    return lambda stubs, key: stubs.load(key, **options)


def listing(**fields: Any) -> Call:
    return lambda stubs, key: stubs.histories.ListMessages(history.ListMessagesRequest(session=key, **fields))


def filtering(**conditions: Any) -> Call:
    return listing(filter=history.MessageFilter(**conditions))


def creating(**settings: Any) -> Call:
    return appending(text("m"), create=history.SessionSettings(**settings))


def updating(*paths: str, **fields: Any) -> Call:
    def call(stubs: Stubs, key: session.SessionKey) -> object:
        changed = session.Session(key=key, **fields)
        request = history.UpdateSessionRequest(session=changed, update_mask=FieldMask(paths=paths))
        return stubs.histories.UpdateSession(request)

    return call


def updating_agent(*paths: str, **fields: Any) -> Call:
    def call(stubs: Stubs, key: session.SessionKey) -> object:
        changed = agents.Agent(agent=key.agent, **fields)
        return stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=changed, update_mask=FieldMask(paths=paths)))

    return call


def getting(**by: Any) -> Call:
    return lambda stubs, key: stubs.histories.GetMessage(history.GetMessageRequest(session=key, **by))


def with_parts(*parts: pb.Part, role: pb.Role.ValueType = pb.ROLE_USER) -> pb.Message:
    return pb.Message(role=role, content=pb.Content(parts=parts))


def windowing(**options: Any) -> policies.Policy:
    return policies.Policy(window=policies.WindowOptions(**options))


CALL_PART: Final = pb.Part(tool_call=pb.ToolCall(id="c"))
RESULT_PART: Final = pb.Part(tool_result=pb.ToolResult(call_id="c"))
FIRST_PART: Final = "messages[0].content.parts[0]"


@dataclass(frozen=True)
class Case:
    """A call that must fail, on a session that holds one message."""

    call: Call
    reason: str
    field: str
    limit: int | None = None
    """With FIELD_TOO_LARGE: the limit that the answer names."""
    says: str = ""
    """What the text must say."""


CASES: Final[dict[str, Case]] = {
    # Appends
    "no messages": Case(appending(), REQUIRED, "messages", says="1 to 256"),
    "too many messages": Case(appending(*[text("m")] * 257), TOO_LARGE, "messages", limit=256, says="several appends"),
    "messages too large together": Case(
        appending(*[text("x" * (MIB + MIB // 2))] * 3),
        TOO_LARGE,
        "messages",
        limit=7 * MIB // 2,
        says="several appends",
    ),
    "a message of 5 MB": Case(appending(text("m"), text("x" * 5_000_000)), TOO_LARGE, "messages[1]", limit=2 * MIB),
    "a message just over 2 MiB": Case(appending(text("x" * 2 * MIB)), TOO_LARGE, "messages[0]", limit=2 * MIB),
    "bytes over 2 MiB": Case(
        appending(with_parts(pb.Part(media=pb.Media(data=b"\0" * 2 * MIB)))), TOO_LARGE, "messages[0]", limit=2 * MIB
    ),
    "two messages with one id": Case(appending(text("a", id="i"), text("b", id="i")), BAD, "messages[1].id"),
    "a message id over the limit": Case(appending(text("m", id=LONG)), TOO_LARGE, "messages[0].id", limit=256),
    "a message id with U+0000": Case(appending(text("m", id=NUL)), BAD, "messages[0].id", says="U+0000"),
    "a run id over the limit": Case(appending(text("m", run_id=LONG)), TOO_LARGE, "messages[0].run_id", limit=256),
    "a run id with U+0000": Case(appending(text("m", run_id=NUL)), BAD, "messages[0].run_id"),
    "a name over the limit": Case(appending(text("m", name=LONG)), TOO_LARGE, "messages[0].name", limit=256),
    "a name with U+0000": Case(appending(text("m", name=NUL)), BAD, "messages[0].name"),
    "metadata over the limit": Case(
        appending(text("m", metadata="é" * (32 * KIB) + "x")), TOO_LARGE, "messages[0].metadata", limit=64 * KIB
    ),
    "a request id over the limit": Case(appending(text("m"), request_id=LONG), TOO_LARGE, "request_id", limit=256),
    "a request id with U+0000": Case(appending(text("m"), request_id=NUL), BAD, "request_id"),
    "a negative expected seq": Case(appending(text("m"), expected_last_seq=-1), BAD, "expected_last_seq"),
    "no role": Case(appending(text("m"), pb.Message(content=pb.Content())), BAD, "messages[1].role", says="USER"),
    "an unknown role": Case(appending(pb.Message(role=77)), BAD, "messages[0].role", says="77"),  # type: ignore[arg-type]
    "a part without a kind": Case(appending(with_parts(pb.Part())), REQUIRED, FIRST_PART, says="kind"),
    "a part without a kind in a result": Case(
        appending(with_parts(pb.Part(tool_result=pb.ToolResult(parts=[pb.Part()])), role=pb.ROLE_TOOL)),
        REQUIRED,
        f"{FIRST_PART}.tool_result.parts[0]",
    ),
    "a call within a result": Case(
        appending(with_parts(pb.Part(tool_result=pb.ToolResult(parts=[CALL_PART])), role=pb.ROLE_TOOL)),
        BAD,
        f"{FIRST_PART}.tool_result.parts[0]",
        says="tool_call",
    ),
    "reasoning within a result": Case(
        appending(
            with_parts(pb.Part(tool_result=pb.ToolResult(parts=[pb.Part(reasoning=pb.Reasoning())])), role=pb.ROLE_TOOL)
        ),
        BAD,
        f"{FIRST_PART}.tool_result.parts[0]",
    ),
    **{
        f"a result in a message of role {pb.Role.Name(role)}": Case(
            appending(with_parts(RESULT_PART, role=role)), BAD, f"{FIRST_PART}.tool_result", says="TOOL and USER"
        )
        for role in (pb.ROLE_ASSISTANT, pb.ROLE_SYSTEM, pb.ROLE_DEVELOPER)
    },
    **{
        f"a call in a message of role {pb.Role.Name(role)}": Case(
            appending(with_parts(CALL_PART, RESULT_PART, role=role)), BAD, f"{FIRST_PART}.tool_call", says="ASSISTANT"
        )
        for role in (pb.ROLE_USER, pb.ROLE_TOOL, pb.ROLE_SYSTEM)
    },
    "a TOOL message without a result": Case(
        appending(text("done", pb.ROLE_TOOL)), BAD, "messages[0].content", says="tool_result"
    ),
    "a TOOL message without content": Case(appending(pb.Message(role=pb.ROLE_TOOL)), BAD, "messages[0].content"),
    "a call id over the limit": Case(
        appending(calls("c", LONG)), TOO_LARGE, "messages[0].content.parts[1].tool_call.id"
    ),
    "a call id with U+0000": Case(appending(calls(NUL)), BAD, f"{FIRST_PART}.tool_call.id"),
    "a result's call id over the limit": Case(
        appending(results(LONG_IN_BYTES)), TOO_LARGE, f"{FIRST_PART}.tool_result.call_id", limit=256
    ),
    "a result's call id with U+0000": Case(appending(results(NUL)), BAD, f"{FIRST_PART}.tool_result.call_id"),
    "media without a source": Case(appending(with_parts(pb.Part(media=pb.Media()))), REQUIRED, f"{FIRST_PART}.media"),
    "media of a negative size": Case(
        appending(with_parts(pb.Part(media=pb.Media(uri="u", size=-1)))), BAD, f"{FIRST_PART}.media.size"
    ),
    "media without a source in a result": Case(
        appending(with_parts(pb.Part(tool_result=pb.ToolResult(parts=[pb.Part(media=pb.Media())])), role=pb.ROLE_TOOL)),
        REQUIRED,
        f"{FIRST_PART}.tool_result.parts[0].media",
    ),
    # Settings
    "a user id over the limit": Case(creating(user_id=LONG), TOO_LARGE, "create.user_id", limit=256),
    "a user id with U+0000": Case(creating(user_id=NUL), BAD, "create.user_id"),
    "too many labels": Case(
        creating(labels={f"label {number}": "" for number in range(65)}), TOO_LARGE, "create.labels", limit=64
    ),
    "an empty label key": Case(creating(labels={"": "v"}), REQUIRED, "create.labels['']"),
    "a label key over the limit": Case(creating(labels={LONG: "v"}), TOO_LARGE, f"create.labels[{LONG!r}]", limit=256),
    "a label value over the limit": Case(creating(labels={"k": LONG}), TOO_LARGE, "create.labels['k']", limit=256),
    "a label value with U+0000": Case(creating(labels={"k": NUL}), BAD, "create.labels['k']"),
    **{
        f"a label value of two lines, {name}": Case(
            creating(labels={"k": value}), BAD, "create.labels['k']", says="line"
        )
        for name, value in {"LF": "a\nb", "CR": "a\rb", "LF at the end": "a\n", "U+2028": "a\u2028b"}.items()
    },
    "a label key of two lines": Case(creating(labels={"a\nb": "v"}), BAD, "create.labels['a\\nb']", says="line"),
    "an unknown tokenizer": Case(creating(tokenizer=77), BAD, "create.tokenizer", says="o200k_base"),
    "a policy limit of 0": Case(creating(policy=windowing(limit=0)), BAD, "create.policy.window.limit"),
    "an unknown mode in a policy": Case(creating(policy=windowing(mode=77)), BAD, "create.policy.window.mode"),
    # Updates
    **{
        f"a ttl of {seconds} s and {nanos} ns": Case(
            creating(ttl=Duration(seconds=seconds, nanos=nanos)), BAD, "create.ttl", says=says
        )
        for seconds, nanos, says in (
            (0, 0, "less than a second"),
            (0, 1, "less than a second"),
            (0, 999_999_999, "1 to 3,162,240,000 seconds"),
            (-1, -1, "1 to 3,162,240,000 seconds"),
            (1, -1, "signs of seconds and nanos differ"),
            (-1, 1, "signs of seconds and nanos differ"),
            (1, 1_000_000_000, "no valid Duration"),
            (3_162_240_001, 0, "1 to 3,162,240,000 seconds"),
        )
    },
    "an update to a ttl that is no Duration": Case(
        updating("ttl", ttl=Duration(seconds=1, nanos=-1)), BAD, "session.ttl", says="signs"
    ),
    "an update of an unknown path": Case(updating("user_id", "key.agent"), BAD, "update_mask", says="'key.agent'"),
    "an update of what only the server gives": Case(updating("last_seq"), BAD, "update_mask", says="policy.window"),
    "an update of an unknown option": Case(updating("policy.window.depth"), BAD, "update_mask"),
    "an update to a user id over the limit": Case(
        updating("user_id", user_id=LONG), TOO_LARGE, "session.user_id", limit=256
    ),
    "an update to labels of two lines": Case(updating("labels", labels={"k": "a\nb"}), BAD, "session.labels['k']"),
    "an update to a limit of 0": Case(
        updating("policy", policy=windowing(limit=0)), BAD, "session.policy.window.limit"
    ),
    "an update of the limit alone to 0": Case(
        updating("policy.window.limit", policy=windowing(limit=0)), BAD, "session.policy.window.limit"
    ),
    "an agent's update of an unknown path": Case(updating_agent("agent"), BAD, "update_mask", says="policy.window"),
    "an agent's update to a limit of 0": Case(
        updating_agent("policy", policy=windowing(limit=0)), BAD, "agent.policy.window.limit"
    ),
    "an agent's update to an unknown mode": Case(
        updating_agent("policy", policy=windowing(mode=77)), BAD, "agent.policy.window.mode"
    ),
    # Windows
    "an unknown mode": Case(loading(mode=77), BAD, "options.mode", says="MESSAGES, TOKENS"),
    "a limit of 0": Case(loading(limit=0), BAD, "options.limit", says="1 or more"),
    "a negative limit": Case(loading(limit=-5), BAD, "options.limit"),
    "a limit of too many messages": Case(loading(limit=100_001), BAD, "options.limit", says="100,000"),
    "a limit of too many tokens": Case(loading(mode=2, limit=100_000_001), BAD, "options.limit", says="100,000,000"),
    "an unknown choice for open calls": Case(loading(open_calls=77), BAD, "options.open_calls", says="SYNTHESIZE"),
    "an unknown choice for oversize": Case(loading(oversize=77), BAD, "options.oversize", says="SHORTEN"),
    "a streamed limit of 0": Case(lambda stubs, key: stubs.stream(key, limit=0), BAD, "options.limit"),
    # Lists
    "a negative page size": Case(listing(page_size=-1), BAD, "page_size"),
    "a malformed page token": Case(listing(page_token="?"), "PAGE_TOKEN_INVALID", "page_token", says="without a token"),
    "a page token that is too long": Case(listing(page_token="A" * 100_000), "PAGE_TOKEN_INVALID", "page_token"),
    "a page token of another language": Case(listing(page_token="ключ"), "PAGE_TOKEN_INVALID", "page_token"),
    "an unknown order": Case(listing(order=77), BAD, "order", says="descending"),
    "an unknown view": Case(listing(view=77), BAD, "view", says="active"),
    "an unknown role in a filter": Case(filtering(roles=[77]), BAD, "filter.roles", says="USER"),
    "a negative first seq": Case(filtering(from_seq=-1), BAD, "filter.from_seq"),
    "a negative last seq": Case(filtering(to_seq=-1), BAD, "filter.to_seq"),
    "a run id over the limit in a filter": Case(filtering(run_id=LONG), TOO_LARGE, "filter.run_id", limit=256),
    "a time that is none": Case(filtering(from_time=Timestamp(nanos=-1)), BAD, "filter.from_time"),
    "a time beyond the calendar": Case(filtering(to_time=Timestamp(seconds=2**62)), BAD, "filter.to_time"),
    "a message by nothing": Case(getting(), REQUIRED, "by"),
    "a message by an empty id": Case(getting(id=""), REQUIRED, "id"),
    "a message by seq 0": Case(getting(seq=0), BAD, "seq"),
    "a message by an id over the limit": Case(getting(id=LONG), TOO_LARGE, "id", limit=256),
    "sessions in pages of a negative size": Case(
        lambda stubs, key: stubs.histories.ListSessions(history.ListSessionsRequest(page_size=-1)), BAD, "page_size"
    ),
    "sessions of an agent over the limit": Case(
        lambda stubs, key: stubs.histories.ListSessions(history.ListSessionsRequest(agent=LONG)), TOO_LARGE, "agent"
    ),
    "sessions of a user with U+0000": Case(
        lambda stubs, key: stubs.histories.ListSessions(history.ListSessionsRequest(user_id=NUL)), BAD, "user_id"
    ),
    "sessions by a malformed token": Case(
        lambda stubs, key: stubs.histories.ListSessions(history.ListSessionsRequest(page_token="AAAA")),
        "PAGE_TOKEN_INVALID",
        "page_token",
    ),
    "agents in pages of a negative size": Case(
        lambda stubs, key: stubs.agents.ListAgents(agents.ListAgentsRequest(page_size=-1)), BAD, "page_size"
    ),
    "agents by a malformed token": Case(
        lambda stubs, key: stubs.agents.ListAgents(agents.ListAgentsRequest(page_token="AAAA")),
        "PAGE_TOKEN_INVALID",
        "page_token",
    ),
}


@pytest.fixture
def key(stubs: Stubs, agent: str) -> session.SessionKey:
    """A session that holds one message."""
    key = new_key(agent)
    stubs.append(key, text("one", id="one"))
    return key


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_its_field(stubs: Stubs, key: session.SessionKey, name: str) -> None:
    case = CASES[name]
    before = (stubs.messages(key), stubs.session(key), stubs.agents.GetAgent(agents.GetAgentRequest(agent=key.agent)))
    refusal = refused(lambda: case.call(stubs, key))

    assert (refusal.code, refusal.reason) == (INVALID, case.reason)
    assert refusal.metadata["field"] == case.field
    assert case.field.partition("[")[0] in refusal.text
    assert case.says in refusal.text
    if case.reason == TOO_LARGE:
        limit = int(refusal.metadata["limit"])
        assert limit == (case.limit or limit)
        assert int(refusal.metadata["actual"]) > limit
        assert f"{limit:,}" in refusal.text
    after = (stubs.messages(key), stubs.session(key), stubs.agents.GetAgent(agents.GetAgentRequest(agent=key.agent)))
    assert after == before


WITH_A_KEY: Final[dict[str, Call]] = {
    "AppendMessages": appending(text("m")),
    "ListMessages": listing(),
    "GetMessage": getting(seq=1),
    "GetSession": lambda stubs, key: stubs.session(key),
    "UpdateSession": updating("user_id", user_id="u"),
    "ClearHistory": lambda stubs, key: stubs.clear(key),
    "LoadWindow": loading(),
    "StreamWindow": lambda stubs, key: stubs.stream(key),
}

BAD_NAMES: Final = {
    "empty": ("", REQUIRED),
    "over the limit": (LONG, TOO_LARGE),
    "over the limit in bytes": (LONG_IN_BYTES, TOO_LARGE),
    "with U+0000": (NUL, BAD),
}


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("field", ["agent", "session_id"])
@pytest.mark.parametrize("method", WITH_A_KEY)
def test_a_bad_session_name_is_refused_by_every_method(
    sqlite_stubs: Stubs, agent: str, method: str, field: str, name: str
) -> None:
    """An empty name is never "all" (design section 3)."""
    bad, reason = BAD_NAMES[name]
    names = {"agent": agent, "session_id": "s"} | {field: bad}
    refusal = refused(lambda: WITH_A_KEY[method](sqlite_stubs, session.SessionKey(**names)))

    parent = "session.key" if method == "UpdateSession" else "session"
    assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, reason, f"{parent}.{field}")


def test_a_request_without_a_session_is_refused(sqlite_stubs: Stubs) -> None:
    refusal = refused(lambda: sqlite_stubs.windows.LoadWindow(window.LoadWindowRequest()))
    assert (refusal.reason, refusal.metadata["field"]) == (REQUIRED, "session.agent")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_agent_name_is_refused_by_every_method(sqlite_stubs: Stubs, name: str) -> None:
    bad, reason = BAD_NAMES[name]
    stubs = sqlite_stubs
    clear = history.ClearAgentHistoryRequest(agent=bad)
    for call, field in (
        (lambda: stubs.histories.ClearAgentHistory(clear), "agent"),
        (lambda: stubs.agents.GetAgent(agents.GetAgentRequest(agent=bad)), "agent"),
        (lambda: stubs.agents.UpdateAgent(agents.UpdateAgentRequest(agent=agents.Agent(agent=bad))), "agent.agent"),
    ):
        refusal = refused(call)
        assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, reason, field)


FileCall = Callable[[Stubs, memory.MemoryOwner], object]


def putting(content: bytes = b"- new\n", name: str = INDEX, **fields: Any) -> FileCall:
    return lambda stubs, owner: files.put(stubs, owner, content, name, **fields)


def adding(*entries: str, **fields: Any) -> FileCall:
    return lambda stubs, owner: files.add(stubs, owner, *entries, **fields)


def logging(said: str = "hello", **fields: Any) -> FileCall:
    return lambda stubs, owner: files.log(stubs, owner, said, **fields)


def listing_files(**fields: Any) -> FileCall:
    return lambda stubs, owner: stubs.memory.ListMemoryFiles(memory.ListMemoryFilesRequest(owner=owner, **fields))


def rendering(user: Source | None = None, project: Source | None = None, **fields: Any) -> FileCall:
    return lambda stubs, owner: files.render(stubs, user, project, **fields)


BY_NAME: Final[dict[str, Callable[..., object]]] = {
    "PutMemoryFile": lambda stubs, owner, name: files.put(stubs, owner, b"- new\n", name),
    "GetMemoryFile": files.get,
    "DeleteMemoryFile": files.delete,
    "ListMemoryFileVersions": files.versions,
}
BAD_FILE_NAMES: Final = {
    "": REQUIRED,
    **dict.fromkeys(
        (
            "../x",
            "../MEMORY.md",
            "/MEMORY.md",
            "MEMORY.MD",
            "memory.md",
            "MEMORY.md ",
            "MEMORY.md\n",
            "MEMORY.md\0",
            "MEMORY",
            "2026-02-30.md",
            "2026-13-01.md",
            "0000-01-01.md",
            "2026-1-1.md",
            "2026-01-01",
            "20260101.md",
            "٢٠٢٦-٠١-٠١.md",
            "2026-W01-1.md",
            LONG,
        ),
        BAD,
    ),
}

FILE_CASES: Final[dict[str, tuple[FileCall, str, str]]] = {
    "content over 1 MiB": (putting(b"x" * (MIB + 1)), TOO_LARGE, "content"),
    "an author over the limit": (putting(author=LONG), TOO_LARGE, "author"),
    "an author with U+0000": (putting(author=NUL), BAD, "author"),
    "an etag together with create_only": (putting(etag="e", create_only=True), BAD, "create_only"),
    "a request id over the limit": (putting(request_id=LONG), TOO_LARGE, "request_id"),
    "a request id with U+0000": (putting(request_id=NUL), BAD, "request_id"),
    "a negative version": (lambda stubs, owner: files.get(stubs, owner, version=-1), BAD, "version"),
    "files in pages of a negative size": (listing_files(page_size=-1), BAD, "page_size"),
    "files by a malformed token": (listing_files(page_token="AAAA"), "PAGE_TOKEN_INVALID", "page_token"),
    "no entries": (adding(), REQUIRED, "entries"),
    "257 entries": (adding(*(f"- {number}" for number in range(257))), TOO_LARGE, "entries"),
    "an empty entry": (adding("- one", ""), REQUIRED, "entries[1]"),
    "an entry of white space": (adding(" \t\u2003"), REQUIRED, "entries[0]"),
    "an entry of two lines": (adding("- one", "- two\n- three"), BAD, "entries[1]"),
    "an entry with CR": (adding("- one\r"), BAD, "entries[0]"),
    "an entry over 4 KiB": (adding("é" * 2 * KIB + "x"), TOO_LARGE, "entries[0]"),
    "an author of entries over the limit": (adding("- one", author=LONG_IN_BYTES), TOO_LARGE, "author"),
    "a request id of entries with U+0000": (adding("- one", request_id=NUL), BAD, "request_id"),
    "no text to log": (logging(""), REQUIRED, "text"),
    "white space to log": (logging(" \n\t\u2028"), REQUIRED, "text"),
    "a text to log over 1 MiB": (logging("x" * (MIB + 1)), TOO_LARGE, "text"),
    "an unknown time zone": (logging(time_zone="Europe/Atlantis"), BAD, "time_zone"),
    "a time zone that is a path": (logging(time_zone="../../etc/passwd"), BAD, "time_zone"),
    "a time zone that is a directory": (logging(time_zone="Europe"), BAD, "time_zone"),
    "a time zone with U+0000": (logging(time_zone=NUL), BAD, "time_zone"),
    "a time zone over the limit": (logging(time_zone=LONG), TOO_LARGE, "time_zone"),
    "a date together with a time zone": (logging(date="2026-01-02", time_zone="UTC"), BAD, "time_zone"),
    **{
        f"the date {date!r:.20}": (logging(date=date), BAD, "date")
        for date in ("2026-02-30", "today", "2026-1-1", "../2026-01-01", "2026-01-01.md", LONG)
    },
    "an author of a log with U+0000": (logging(author=NUL), BAD, "author"),
    "a request id of a log over the limit": (logging(request_id=LONG), TOO_LARGE, "request_id"),
    **{
        f"a budget of {budget}": (rendering(budget=budget), BAD, "budget")
        for budget in (-1, 1, 255, 100_001, 2**31 - 1)
    },
    "an unknown style": (rendering(style=77), BAD, "style"),
    "a negative style": (rendering(style=-1), BAD, "style"),
    "an agent over the limit": (rendering(agent=LONG), TOO_LARGE, "agent"),
    "an agent with U+0000": (rendering(agent=NUL), BAD, "agent"),
    "an empty id of a stored tier": (rendering(Source(stored="")), REQUIRED, "user.stored"),
    "an id of a stored tier over the limit": (rendering(None, Source(stored=LONG)), TOO_LARGE, "project.stored"),
    "an id of a stored tier with U+0000": (rendering(Source(stored=NUL)), BAD, "user.stored"),
    "an inline text over 1 MiB": (rendering(Source(text="é" * (MIB // 2) + "x")), TOO_LARGE, "user.text"),
    "inline data over 1 MiB": (rendering(None, Source(data=b"x" * (MIB + 1))), TOO_LARGE, "project.data"),
    "a label over the limit": (rendering(Source(label="x" * (4 * KIB + 1))), TOO_LARGE, "user.label"),
    "a reason over the limit": (rendering(None, Source(unreadable=LONG)), TOO_LARGE, "project.unreadable"),
}
"""Calls about the memory of an owner who has one file, the reason that they get, and the field that it names. They are
refused before any store is asked."""


@pytest.fixture
def owner(sqlite_stubs: Stubs, agent: str) -> memory.MemoryOwner:
    """A user who has an index."""
    owner = user(agent)
    files.put(sqlite_stubs, owner, b"- one\n")
    return owner


def check_refusal_about_memory(
    stubs: Stubs, owner: memory.MemoryOwner, call: Callable[[], object], reason: str, field: str
) -> None:
    refusal = refused(call)
    assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, reason, field)
    assert field.partition("[")[0] in refusal.text
    if reason == TOO_LARGE:
        limit = int(refusal.metadata["limit"])
        assert int(refusal.metadata["actual"]) > limit
        assert f"{limit:,}" in refusal.text
    assert files.listed(stubs, owner) == [INDEX]
    assert [each.version for each in files.versions(stubs, owner)] == [1]
    assert files.content_of(stubs, owner) == b"- one\n"


@pytest.mark.parametrize("name", FILE_CASES)
def test_bad_input_about_memory_is_refused_with_its_field(
    sqlite_stubs: Stubs, owner: memory.MemoryOwner, name: str
) -> None:
    call, reason, field = FILE_CASES[name]
    check_refusal_about_memory(sqlite_stubs, owner, partial(call, sqlite_stubs, owner), reason, field)


@pytest.mark.parametrize("method", BY_NAME)
def test_a_bad_name_of_a_memory_file_is_refused_by_every_method(
    sqlite_stubs: Stubs, owner: memory.MemoryOwner, method: str
) -> None:
    for name, reason in BAD_FILE_NAMES.items():
        call = partial(BY_NAME[method], sqlite_stubs, owner, name)
        check_refusal_about_memory(sqlite_stubs, owner, call, reason, "name")


WITH_AN_OWNER: Final[dict[str, FileCall]] = {
    **{method: partial(lambda call, stubs, owner: call(stubs, owner, INDEX), call) for method, call in BY_NAME.items()},
    "ListMemoryFiles": listing_files(),
    "AddMemoryEntries": adding("- one"),
    "AppendDailyLog": logging(),
}


@pytest.mark.parametrize("method", WITH_AN_OWNER)
def test_a_bad_owner_is_refused_by_every_method(sqlite_stubs: Stubs, method: str) -> None:
    """An empty name is never "all" (design section 3)."""
    for bad, reason in BAD_NAMES.values():
        for owner, field in ((user(bad), "owner.user_id"), (project(bad), "owner.project_id")):
            refusal = refused(partial(WITH_AN_OWNER[method], sqlite_stubs, owner))
            assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, reason, field)
    refusal = refused(lambda: WITH_AN_OWNER[method](sqlite_stubs, memory.MemoryOwner()))
    assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, REQUIRED, "owner")


def test_memory_at_its_limits_is_taken(stubs: Stubs, agent: str) -> None:
    longest = "x" * 256
    owner = project((agent + longest)[:256])
    entries = [f"- {number:03d}" + "x" * (4 * KIB - 5) for number in range(255)]
    assert files.add(stubs, owner, *entries, "é", author=longest, request_id=longest).added_count == 256
    files.put(stubs, owner, b"x" * MIB, "0001-01-01.md", author=longest)
    files.put(stubs, owner, b"", "9999-12-31.md")
    at_limits = [Source(label="x" * 4 * KIB, **source) for source in ({"data": b"x" * MIB}, {"unreadable": longest})]

    assert files.listed(stubs, owner) == [INDEX, "9999-12-31.md", "0001-01-01.md"]
    for budget in (256, 100_000):
        assert files.render(stubs, *at_limits, budget=budget, agent="").user.dropped_line_count == 1


def test_names_at_their_limit_are_taken(stubs: Stubs, agent: str) -> None:
    longest = "x" * 256
    key = session.SessionKey(agent=(agent + longest)[:256], session_id=longest)
    labels = {f"{number:0>256}": longest for number in range(64)}
    message = calls(longest, "", id=longest, name=longest, run_id=longest, metadata="x" * 64 * KIB)
    stubs.append(key, message, request_id=longest, create=history.SessionSettings(user_id=longest, labels=labels))

    assert stubs.session(key).labels == labels
    assert stubs.session(key).user_id == longest


def test_messages_at_their_limits_are_taken(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    stubs.append(key, text("x" * (2 * MIB - 100)))
    stubs.append(key, text("x" * (2 * MIB - 100)), text("x" * (MIB + MIB // 2 - 100)))
    stubs.append(key, *[text("")] * 256)

    assert stubs.session(key).message_count == 3 + 256


def test_a_request_of_17_mb_is_refused_by_grpc(stubs: Stubs, key: session.SessionKey) -> None:
    """Over what the server receives at all: RESOURCE_EXHAUSTED, and the connection goes on."""
    with pytest.raises(grpc.RpcError) as caught:
        stubs.append(key, *[text("x" * 1_000_000)] * 17)
    failed: Any = caught.value

    assert failed.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(stubs.messages(key)) == 1


def test_a_record_that_is_full_is_refused(stubs: Stubs, key: session.SessionKey) -> None:
    """Labels whose text takes more room in the record than in UTF-8 (control characters are escaped)."""
    labels = {f"{number:02d}": "\x01" * 256 for number in range(64)}
    request = history.UpdateSessionRequest(session=session.Session(key=key, labels=labels))
    refusal = refused(lambda: stubs.histories.UpdateSession(request))

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RECORD_TOO_LARGE")
    assert "labels" in refusal.text
    assert not stubs.session(key).labels


class TestForeignPageTokens:
    """A page token is good for the query that gave it, and for no other."""

    def token(self, stubs: Stubs, **fields: Any) -> str:
        found = stubs.histories.ListMessages(history.ListMessagesRequest(page_size=1, **fields)).next_page_token
        assert found
        return found

    @pytest.fixture
    def filled(self, stubs: Stubs, key: session.SessionKey) -> session.SessionKey:
        stubs.append(key, text("two"), text("three"))
        return key

    @pytest.mark.parametrize(
        "other",
        [
            {"order": history.LIST_ORDER_DESCENDING},
            {"view": history.MESSAGE_VIEW_ALL},
            {"filter": history.MessageFilter(run_id="r")},
            {"filter": history.MessageFilter(roles=[pb.ROLE_USER])},
            {"filter": history.MessageFilter(to_seq=2)},
            {"filter": history.MessageFilter(from_time=Timestamp(seconds=1))},
        ],
    )
    def test_of_another_query(self, stubs: Stubs, filled: session.SessionKey, other: dict[str, Any]) -> None:
        token = self.token(stubs, session=filled)
        refusal = refused(lambda: self.ask(stubs, filled, token, **other))

        assert (refusal.code, refusal.reason) == (INVALID, "PAGE_TOKEN_INVALID")
        assert refusal.metadata["field"] == "page_token"

    def ask(self, stubs: Stubs, key: session.SessionKey, token: str, **fields: Any) -> object:
        return stubs.histories.ListMessages(history.ListMessagesRequest(session=key, page_token=token, **fields))

    def test_of_another_method(self, stubs: Stubs, filled: session.SessionKey) -> None:
        for number in range(2):
            stubs.append(session.SessionKey(agent=filled.agent, session_id=f"{number}"), text("one"))
        of_messages = self.token(stubs, session=filled)
        of_sessions = stubs.histories.ListSessions(
            history.ListSessionsRequest(agent=filled.agent, page_size=1)
        ).next_page_token

        assert refused(lambda: self.ask(stubs, filled, of_sessions)).reason == "PAGE_TOKEN_INVALID"
        request = history.ListSessionsRequest(agent=filled.agent, page_token=of_messages)
        assert refused(lambda: stubs.histories.ListSessions(request)).reason == "PAGE_TOKEN_INVALID"
        everyone = history.ListSessionsRequest(page_token=of_sessions)
        assert refused(lambda: stubs.histories.ListSessions(everyone)).reason == "PAGE_TOKEN_INVALID"

    def test_of_another_owner_of_memory(self, stubs: Stubs, agent: str) -> None:
        for owner in (user(agent), project(agent)):
            for name in (INDEX, "2026-01-02.md"):
                files.put(stubs, owner, b"- one\n", name)
        token = stubs.memory.ListMemoryFiles(memory.ListMemoryFilesRequest(owner=user(agent), page_size=1))
        assert token.next_page_token
        for other in (project(agent), user(f"{agent} ")):
            refusal = refused(partial(listing_files(page_token=token.next_page_token), stubs, other))
            assert (refusal.reason, refusal.metadata["field"]) == ("PAGE_TOKEN_INVALID", "page_token")

    def test_that_are_damaged(self, stubs: Stubs, filled: session.SessionKey) -> None:
        token = self.token(stubs, session=filled)
        alphabet = string.ascii_letters
        for place, character in enumerate(token):
            other = alphabet[(alphabet.find(character) + 7) % len(alphabet)]
            damaged = token[:place] + other + token[place + 1 :]
            try:
                self.ask(stubs, filled, damaged)
            except grpc.RpcError as error:
                failed: Any = error
                assert failed.code() == INVALID
            else:
                # Base64 may spell the same bytes in several ways, in its last character.
                assert place == len(token) - 1
        assert refused(lambda: self.ask(stubs, filled, token[:-2])).reason == "PAGE_TOKEN_INVALID"
        assert refused(lambda: self.ask(stubs, filled, token + "AA")).reason == "PAGE_TOKEN_INVALID"


class TestMissing:
    """What does not exist is NOT_FOUND, with its name, and never an empty answer (invariant 12)."""

    READS: Final = {name: call for name, call in WITH_A_KEY.items() if name not in ("AppendMessages", "ClearHistory")}

    @pytest.mark.parametrize("method", READS)
    def test_a_session_that_does_not_exist(self, stubs: Stubs, agent: str, method: str) -> None:
        key = new_key(agent)
        refusal = refused(lambda: WITH_A_KEY[method](stubs, key))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        assert (refusal.metadata["agent"], refusal.metadata["session_id"]) == (key.agent, key.session_id)
        assert "an append begins it" in refusal.text
        assert not stubs.histories.ListSessions(history.ListSessionsRequest(agent=agent)).sessions

    @pytest.mark.parametrize(("by", "named"), [({"seq": 2}, "2"), ({"seq": 2**63 - 1}, None), ({"id": "two"}, "two")])
    def test_a_message_that_does_not_exist(
        self, stubs: Stubs, key: session.SessionKey, by: dict[str, Any], named: str | None
    ) -> None:
        refusal = refused(lambda: getting(**by)(stubs, key))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")
        assert refusal.metadata["message"] == (named or str(2**63 - 1))

    def test_a_message_that_was_cleared(self, stubs: Stubs, key: session.SessionKey) -> None:
        stubs.clear(key)

        assert refused(lambda: getting(seq=1)(stubs, key)).reason == "MESSAGE_NOT_FOUND"
        assert refused(lambda: getting(id="one")(stubs, key)).reason == "MESSAGE_NOT_FOUND"


class TestUnknownMethods:
    @pytest.mark.parametrize(
        "method", ["/memoryd.v1.RunService/StealRun", "/memoryd.v9.HistoryService/AppendMessages", "/x"]
    )
    def test_are_unimplemented_with_a_reason(self, sqlite_stubs: Stubs, method: str) -> None:
        call: Any = sqlite_stubs.channel.unary_unary(method)
        refusal = refused(lambda: call(b"", timeout=10))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")
        assert method in refusal.text

    def test_are_refused_as_streams_too(self, sqlite_stubs: Stubs) -> None:
        call: Any = sqlite_stubs.channel.stream_stream("/memoryd.v1.RunService/StealRun")
        refusal = refused(lambda: list(call(iter([b""]), timeout=10)))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")


@pytest.mark.parametrize("method", ["GetSession", "AppendMessages"])
@pytest.mark.parametrize(
    "request_bytes", [b"\xff\xff\xff", b"\x0a\x04\x0a\x02\xed\xa0"], ids=["no message", "text that is no UTF-8"]
)
def test_a_request_that_cannot_be_read_is_refused(sqlite_stubs: Stubs, method: str, request_bytes: bytes) -> None:
    """Some clients send half of a surrogate pair as it is; they are told, without inner texts (12)."""
    call: Any = sqlite_stubs.channel.unary_unary(f"/memoryd.v1.HistoryService/{method}")
    refusal = refused(lambda: call(request_bytes, timeout=10))

    assert (refusal.code, refusal.reason, refusal.metadata["field"]) == (INVALID, BAD, "request")
    assert "UTF-8" in refusal.text
    assert "DecodeError" not in refusal.text


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\n"])
def test_what_is_told_of_a_huge_value_fits_an_answer(sqlite_stubs: Stubs, agent: str, character: str) -> None:
    """Status details over 16 KiB would reach the caller as RESOURCE_EXHAUSTED, without the reason."""
    huge = character * 500_000
    key = new_key(agent)
    sqlite_stubs.append(key, text("one"))
    for call, reason in (
        (updating(huge), BAD),
        (updating("labels", labels={huge: ""}), TOO_LARGE),
        (creating(labels={"k": huge}), TOO_LARGE),
        (appending(text("m", id=huge)), TOO_LARGE),
    ):
        refusal = refused(partial(call, sqlite_stubs, key))
        assert (refusal.code, refusal.reason) == (INVALID, reason)

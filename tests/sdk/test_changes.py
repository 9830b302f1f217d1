"""What the clients do to a real server's histories: fork, rewind, redact, erase, expire; each for sync and async."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memoryd import (
    FOREVER,
    AsyncMemoryClient,
    AsyncSession,
    ErasedUser,
    FieldInvalid,
    FieldRequired,
    LastSeqMismatch,
    Media,
    MemoryClient,
    MessageNotFound,
    RequestIdConflict,
    RewoundSession,
    SessionExists,
    SessionNotFound,
    SessionSettings,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    call,
    from_anthropic,
    from_openai,
    new_id,
    to_anthropic,
    to_openai,
    tool,
    user,
)
from tests.sdk import anthropic_shapes, openai_shapes
from tests.servers import ServerProcess
from tests.service.lossy_proxy import LossyProxy

SEARCH = call("search", {"q": "secret"}, id="c1")
TURN = (
    user("find the secret"),
    assistant("Let me see.", tool_calls=[SEARCH]),
    tool("c1", "a secret"),
    assistant("Done."),
)


async def texts(session: AsyncSession) -> list[str]:
    return [message.text async for message in session.messages(view="all")]


async def test_a_rewind_takes_away_what_follows(memory: AsyncMemoryClient, agent: str) -> None:
    """Later seqs go on, and calls whose results are gone wait for results again (invariant 11)."""
    session = memory.session(agent=agent)
    await session.append(*TURN)
    assert await session.rewind(2, expected_last_seq=4) == RewoundSession(message_count=2, open_call_count=1)
    assert await texts(session) == ["find the secret", "Let me see."]
    (answered,) = await session.append(tool("c1", "another"))
    assert answered.seq == 5
    assert (await session.info()).open_call_count == 0
    assert await session.rewind(9) == RewoundSession(message_count=0, open_call_count=0)
    with pytest.raises(LastSeqMismatch) as error:
        await session.rewind(0, expected_last_seq=4)
    assert error.value.actual == 5
    assert (await session.rewind(0)).message_count == 3
    with pytest.raises(FieldInvalid):
        await session.rewind(-1)
    with pytest.raises(SessionNotFound):
        await memory.session(agent=agent).rewind(0)


async def test_a_request_is_carried_out_once(memory: AsyncMemoryClient, agent: str) -> None:
    """A repeat with the request id gives the first answer and takes nothing more away (invariant 2)."""
    session = memory.session(agent=agent)
    await session.append(user("a"), user("b"), user("c"))
    rewind, clear, copy = new_id(), new_id(), new_id()
    first = await session.rewind(2, request_id=rewind)
    await session.append(user("d"))
    assert await session.rewind(2, request_id=rewind) == first
    assert await texts(session) == ["a", "b", "d"]
    fork = await session.fork(request_id=copy)
    assert (await session.fork(fork.id, request_id=copy)).id == fork.id
    assert await session.clear(request_id=clear) == 3
    await session.append(user("e"))
    assert await session.clear(request_id=clear) == 3
    assert await texts(session) == ["e"]
    with pytest.raises(RequestIdConflict):
        await session.rewind(1, request_id=rewind)


async def test_a_fork_is_a_session_of_its_own(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent, id="s")
    settings = SessionSettings(user_id=f"{agent}-mia", labels={"a": "1"}, ttl=timedelta(days=3))
    await session.append(*TURN, create=settings)
    fork = await session.fork()
    assert fork.agent == agent
    assert fork.id not in ("s", "")
    info = await fork.info()
    assert (info.user_id, dict(info.labels), info.ttl) == (f"{agent}-mia", {"a": "1"}, timedelta(days=3))
    copied, source = [[m async for m in each.messages()] for each in (fork, session)]
    assert [(m.seq, m.id, m.content) for m in copied] == [(m.seq, m.id, m.content) for m in source]
    await fork.append(user("on"))
    assert (await session.info()).last_seq == 4

    part = await session.fork("part", agent=f"{agent}-2", through_seq=2)
    assert (part.agent, part.id, (await part.info()).open_call_count) == (f"{agent}-2", "part", 1)
    target = memory.session(agent=agent, id="given")
    assert (await session.fork(target)).id == "given"
    assert await texts(target) == await texts(session)
    with pytest.raises(SessionExists):
        await session.fork("part", agent=f"{agent}-2")
    with pytest.raises(ValueError, match="leave agent out"):
        await session.fork(target, agent="x")
    with pytest.raises(SessionNotFound):
        await memory.session(agent=agent).fork()


async def test_a_redacted_message_keeps_its_place_and_nothing_of_what_it_said(
    memory: AsyncMemoryClient, agent: str
) -> None:
    session = memory.session(agent=agent)
    messages = [
        user([Text("secret"), Media("image/png", data=b"secret")], name="mia", metadata={"secret": 1}),
        *TURN[1:3],
    ]
    await session.append(*messages)
    said, asked, answered = [await session.redact(seq=seq, reason="a password") for seq in (1, 2, 3)]
    assert [(m.seq, m.id, m.role) for m in (said, asked, answered)] == [
        (seq, m.id, m.role) for seq, m in enumerate(messages, 1)
    ]
    assert (said.text, said.name, said.metadata, said.extra) == ("[REDACTED]", None, "", "")
    assert asked.tool_calls == (ToolCall("c1", "search", "{}"),)
    assert answered.tool_results == (ToolResult("c1", parts=(Text("[REDACTED]"),)),)
    assert said.redaction is not None
    assert said.redaction.reason == "a password"
    assert abs(datetime.now(UTC) - said.redaction.redact_time) < timedelta(minutes=5)
    stored = [message async for message in session.messages()]
    assert stored == [said, asked, answered]
    assert [message.redaction for message in stored] == [m.redaction for m in (said, asked, answered)]
    assert "secret" not in repr(stored) + repr(await session.window())
    assert await session.redact(id=messages[0].id, reason="again") == said
    with pytest.raises(MessageNotFound):
        await session.redact(seq=9)
    with pytest.raises(ValueError, match="give either seq or id"):
        await session.redact()
    with pytest.raises(FieldInvalid):
        await session.redact(seq=2, reason="two\nlines")


@pytest.mark.parametrize("shape", openai_shapes.SHAPES)
async def test_redacted_openai_messages_stay_valid(memory: AsyncMemoryClient, agent: str, shape: str) -> None:
    """The converters say what is left: the role, calls with their ids and names, results with their ids."""
    source = openai_shapes.SHAPES[shape]
    session = memory.session(agent=agent)
    (sent,) = from_openai([source])
    await session.append(sent)
    redacted = await session.redact(seq=1)
    (written,) = to_openai([redacted])
    assert written["role"] == ("tool" if source["role"] == "function" else source["role"])
    assert [(each["id"], each["function"]) for each in written.get("tool_calls") or ()] == [
        (each.id, {"name": each.name, "arguments": "{}"}) for each in sent.tool_calls
    ]
    assert [written.get("tool_call_id")] == [result.call_id for result in sent.tool_results] or [None]
    if not sent.tool_calls:
        assert written["content"] == ("[REDACTED]" if sent.content else source.get("content"))
    for message in to_anthropic([redacted])["messages"]:
        assert set(message) == {"role", "content"}


async def test_redacted_conversations_stay_valid_for_providers(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(*from_anthropic(**anthropic_shapes.CONVERSATION))
    before = to_anthropic(await session.window())
    for seq in range(1, (await session.info()).last_seq + 1):
        await session.redact(seq=seq)
    after = to_anthropic(await session.window())
    assert after["system"] == "[REDACTED]"
    assert [message["role"] for message in after["messages"]] == [message["role"] for message in before["messages"]]
    assert pairs(after) == pairs(before)
    inputs = [block["input"] for block in blocks(after) if block["type"] == "tool_use"]
    assert inputs == [{} for _ in inputs]


def blocks(prompt: Any) -> list[dict[str, Any]]:
    contents = [message["content"] for message in prompt["messages"]]
    return [block for content in contents if isinstance(content, list) for block in content]


def pairs(prompt: Any) -> list[tuple[str, str]]:
    """Calls and results, in their order."""
    named = {"tool_use": "id", "tool_result": "tool_use_id"}
    return [(block["type"], block[named[block["type"]]]) for block in blocks(prompt) if block["type"] in named]


async def test_an_erased_user_owns_nothing(memory: AsyncMemoryClient, agent: str) -> None:
    mia, eve = f"{agent}-mia", f"{agent}-eve"
    for number, owner in enumerate([mia, mia, eve]):
        session = memory.session(agent=agent, id=str(number))
        await session.append(user("a"), user("b"), create=SessionSettings(user_id=owner))
    erased = await memory.erase_user(mia)
    assert (erased.session_count, erased.message_count) == (2, 4)
    assert erased.lookup_count >= 4
    assert [info.session_id async for info in memory.sessions(agent=agent)] == ["2"]
    with pytest.raises(SessionNotFound):
        await memory.session(agent=agent, id="0").info()
    assert await memory.erase_user(mia) == ErasedUser(session_count=0, message_count=0, lookup_count=0)
    with pytest.raises(FieldRequired):
        await memory.erase_user("")


async def test_a_ttl_is_given_changed_and_taken_away(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("a"), create=SessionSettings(ttl=timedelta(hours=1, microseconds=1)))
    info = await session.info()
    assert info.ttl == timedelta(hours=1, microseconds=1)
    assert info.expire_time is not None
    assert abs(info.expire_time - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)
    assert (await session.update(labels={"a": "1"})).ttl == timedelta(hours=1, microseconds=1)
    assert (await session.update(ttl=timedelta(days=36_500))).ttl == timedelta(days=36_500)
    info = await session.update(ttl=FOREVER)
    assert (info.ttl, info.expire_time, dict(info.labels)) == (None, None, {"a": "1"})
    for ttl in (timedelta(0), timedelta(days=40_000), timedelta(seconds=-5)):
        with pytest.raises(FieldInvalid) as error:
            await session.update(ttl=ttl)
        assert error.value.field == "session.ttl"
    with pytest.raises(TypeError, match=r"ttl is of type int; give a timedelta, for example timedelta\(days=30\)"):
        await session.update(ttl=5)  # type: ignore[arg-type]
    forever = memory.session(agent=agent)
    await forever.append(user("a"), create=SessionSettings(ttl=FOREVER))
    assert (await forever.info()).ttl is None


Change = Callable[[AsyncSession], Awaitable[object]]
LOST: dict[str, tuple[Change, object, list[str]]] = {
    "rewind": (lambda session: session.rewind(1), RewoundSession(message_count=2, open_call_count=0), ["a", "later"]),
    "clear": (lambda session: session.clear(), 3, ["later"]),
}


@pytest.mark.parametrize("change", LOST)
async def test_a_change_whose_answer_was_lost_takes_nothing_more_away(
    change: str, server: ServerProcess, agent: str
) -> None:
    """The SDK tries again with the request id of the first try; what came meanwhile stays (invariant 2)."""
    make, answer, left = LOST[change]
    async with _lossy(server, agent) as (proxy, there, here):
        await here.append(user("a"), user("b"), user("c"))
        await there.info()
        proxy.losing = True
        changing = asyncio.ensure_future(make(there))
        while (await here.info()).message_count == 3:
            pass
        await here.append(user("later"))
        proxy.losing = False
        proxy.cut()
        assert await changing == answer
        assert await texts(here) == left


async def test_a_fork_whose_answer_was_lost_is_made_once(server: ServerProcess, agent: str) -> None:
    async with _lossy(server, agent) as (proxy, there, here), AsyncMemoryClient(server.address) as memory:
        await here.append(user("a"))
        await there.info()
        proxy.losing = True
        forking = asyncio.create_task(there.fork())
        while len([info async for info in memory.sessions(agent=agent)]) < 2:
            pass
        proxy.losing = False
        proxy.cut()
        fork = await forking
        assert await texts(memory.session(agent=agent, id=fork.id)) == ["a"]
        assert len([info async for info in memory.sessions(agent=agent)]) == 2


@asynccontextmanager
async def _lossy(server: ServerProcess, agent: str) -> AsyncIterator[tuple[LossyProxy, AsyncSession, AsyncSession]]:
    """A proxy, a session beyond it, and the same session reached directly."""
    async with (
        LossyProxy.run(server.address) as proxy,
        AsyncMemoryClient(proxy.address) as there,
        AsyncMemoryClient(server.address) as here,
    ):
        yield proxy, there.session(agent=agent, id="s"), here.session(agent=agent, id="s")


def test_handles_of_a_sync_client_are_forked_too(server: ServerProcess, agent: str) -> None:
    with MemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        session.append(user("a"))
        assert session.fork(memory.session(agent=agent, id="x")).id == "x"

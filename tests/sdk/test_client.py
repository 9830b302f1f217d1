"""What the clients do with a real server; each test holds for the sync and for the async client."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memoryd import (
    AsyncMemoryClient,
    Data,
    EtagMismatch,
    FieldInvalid,
    FieldRequired,
    FieldTooLarge,
    InvalidArgument,
    LastSeqMismatch,
    LeftOutMessage,
    LeftOutReason,
    Media,
    MemoryClient,
    Message,
    MessageIdConflict,
    MessageNotFound,
    OpenCalls,
    Oversize,
    Policy,
    Reasoning,
    Refusal,
    RequestIdConflict,
    Role,
    SessionNotFound,
    SessionSettings,
    StoreUnknown,
    SummaryState,
    Text,
    Tokenizer,
    ToolCall,
    ToolResult,
    WindowMode,
    WindowOptions,
    WindowTooSmall,
    assistant,
    call,
    developer,
    from_anthropic,
    from_openai,
    system,
    to_anthropic,
    to_openai,
    tool,
    user,
)
from tests.sdk import anthropic_shapes, openai_shapes
from tests.sdk.conftest import Connect
from tests.sdk.conversions import exact
from tests.sdk.openai_shapes import TRANSCRIPTS
from tests.servers import ServerProcess

SEARCH = call("search", {"q": "x"}, id="c1")


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


async def test_what_is_appended_comes_back_equal(memory: AsyncMemoryClient, agent: str) -> None:
    """Every kind of part, absent and empty content and names, and texts of all sorts (invariant 4)."""
    sent = [
        system("Be brief.", name="boss"),
        developer([], name=""),
        user(None),
        user("a\x00b\r\n 🙂 日本語", metadata={"n": 2**70}),
        user([Text(""), Media("image/png", data=b"\x00\xff"), Media("", "file_1", size=7), Data('{"a":1,"a":2}')]),
        assistant(
            [Reasoning("hm", "sig"), Text("a"), Refusal("no"), ToolCall("c", "f", '{"a": "\\ud800", '), Text("b")]
        ),
        tool("c", [Text("1"), Refusal("2"), Data("3"), Media("a/b", data=b"")], name="f", is_error=True),
        assistant(tool_calls=[ToolCall("", "f", "")]),
        user([ToolResult(""), Text("c")]),
    ]
    session = memory.session(agent=agent)
    appended = await session.append(*sent)
    stored = await listed(session.messages())
    assert stored == sent
    assert [message.id for message in stored] == [message.id for message in sent]
    assert [message.seq for message in stored] == list(range(1, 10))
    assert [(m.id, m.seq, m.create_time, m.token_count) for m in stored] == [
        (a.id, a.seq, a.create_time, a.token_count) for a in appended
    ]
    assert abs(datetime.now(UTC) - appended[0].create_time) < timedelta(minutes=5)
    assert all(message.token_count > 0 for message in stored)


async def test_an_append_of_the_same_messages_is_stored_once(memory: AsyncMemoryClient, agent: str) -> None:
    """Messages have their ids from the start, so an append can be repeated (invariant 2)."""
    session = memory.session(agent=agent)
    messages = [user("yes"), user("yes")]
    first = await session.append(*messages)
    assert await session.append(*messages) == first
    assert (await session.info()).message_count == 2
    with pytest.raises(MessageIdConflict) as error:
        await session.append(replace(messages[0], content=(Text("no"),)))
    assert error.value.metadata["message_id"] == messages[0].id


async def test_an_append_of_one_request_is_stored_once(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    message = user("yes")
    first = await session.append(message, request_id="r1")
    assert await session.append(message, request_id="r1") == first
    with pytest.raises(RequestIdConflict):
        await session.append(user("no"), request_id="r1")


async def test_a_message_without_an_id_gets_one(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    (appended,) = await session.append(Message(role=Role.USER, content=(Text("a"),), id=""))
    assert len(appended.id) == 32


async def test_an_append_may_expect_a_last_seq(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("a"), expected_last_seq=0)
    window = await session.window()
    await session.append(user("b"), expected_last_seq=window.stats.last_seq)
    with pytest.raises(LastSeqMismatch) as error:
        await session.append(user("c"), expected_last_seq=1)
    assert error.value.actual == 2
    assert (await session.info()).last_seq == 2


async def test_a_session_begins_with_its_settings(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent, id="s")
    policy = Policy(
        window=WindowOptions(mode=WindowMode.MESSAGES, limit=2, open_calls=OpenCalls.KEEP, pin_system=False)
    )
    settings = SessionSettings(
        user_id="mia", labels={"color": "red", "size": ""}, tokenizer=Tokenizer.CL100K_BASE, policy=policy
    )
    await session.append(user("a"), user("b"), assistant("c"), create=settings)
    info = await session.info()
    assert (info.agent, info.session_id, info.user_id, dict(info.labels)) == (
        agent,
        "s",
        "mia",
        {"color": "red", "size": ""},
    )
    assert (info.tokenizer, info.policy) == (Tokenizer.CL100K_BASE, policy)
    assert (info.message_count, info.last_seq, info.open_call_count) == (3, 3, 0)
    assert info.create_time is not None
    assert info.create_time.tzinfo is UTC
    assert info.token_count == sum([message.token_count async for message in session.messages()])
    assert [message.text for message in await session.window()] == ["b", "c"]


async def test_a_session_gets_an_id_when_none_is_given(memory: AsyncMemoryClient, agent: str) -> None:
    first, second = memory.session(agent=agent), memory.session(agent=agent)
    assert first.id != second.id
    await first.append(user("a"))
    assert [info.session_id async for info in memory.sessions(agent=agent)] == [first.id]


async def test_pages_are_walked_to_the_end(memory: AsyncMemoryClient, agent: str) -> None:
    """Order comes from seq alone (invariant 1)."""
    session = memory.session(agent=agent)
    await session.append(*(user(str(number)) for number in range(25)))
    expected = [str(number) for number in range(25)]
    for page_size in (0, 1, 10, 25, 1000):
        assert [m.text async for m in session.messages(page_size=page_size)] == expected
        assert [m.text async for m in session.messages(page_size=page_size, order="descending")] == expected[::-1]


async def test_lists_are_filtered(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("a"), assistant("b"), replace(user("c"), run_id="run-1"))
    await session.append(user("d"))

    async def seqs(**filters: Any) -> list[int]:
        return [message.seq async for message in session.messages(**filters)]

    assert await seqs(roles=["user"]) == [1, 3, 4]
    assert await seqs(roles=(Role.ASSISTANT, "user"), order="descending", page_size=1) == [4, 3, 2, 1]
    assert await seqs(run_id="run-1") == [3]
    assert await seqs(from_seq=2, to_seq=3) == [2, 3]
    times = [message.create_time async for message in session.messages() if message.create_time]
    assert await seqs(from_time=times[0]) == [1, 2, 3, 4]
    assert await seqs(to_time=times[0]) == []
    assert await seqs(from_time=times[3] + timedelta(seconds=1)) == []
    assert await seqs(view="all", roles=["tool"]) == []


async def test_one_message_is_read_by_seq_or_id(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    appended = await session.append(user("a"), user("b"))
    assert (await session.message(seq=2)).text == "b"
    assert (await session.message(id=appended[0].id)).text == "a"
    with pytest.raises(MessageNotFound):
        await session.message(seq=3)
    with pytest.raises(ValueError, match="either seq or id"):
        await session.message()
    with pytest.raises(ValueError, match="either seq or id"):
        await session.message(seq=1, id="a")


async def test_windows_are_cut_as_asked(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(
        system("s"), user("u1"), tool("nobody", "orphan"), assistant("a1"), user("u2"), assistant(tool_calls=[SEARCH])
    )

    async def texts(**options: Any) -> list[str]:
        return [m.text or m.role.value for m in await session.window(**options)]

    assert await texts(messages=3) == ["s", "a1", "u2"]
    assert await texts(messages=2, pin_system=False) == ["a1", "u2"]
    assert await texts(messages=10) == ["s", "u1", "a1", "u2"]
    assert await texts(messages=10, open_calls="keep") == ["s", "u1", "a1", "u2", "assistant"]
    assert await texts(messages=4, open_calls=OpenCalls.SYNTHESIZE) == ["s", "u2", "assistant", "tool"]
    assert await texts(messages=1, pin_system=False, open_calls="keep", start_with_user=True) == ["assistant"]
    assert await texts(tokens=100_000) == ["s", "u1", "a1", "u2"]
    with pytest.raises(WindowTooSmall):
        await session.window(tokens=1, oversize=Oversize.FAIL)

    synthesized = (await session.window(messages=4, open_calls="synthesize")).messages[-1]
    assert (synthesized.seq, synthesized.tool_results[0].call_id) == (0, "c1")
    stats = (await session.window(messages=3, explain=True)).stats
    assert (stats.mode, stats.limit, stats.history_message_count, stats.window_message_count) == (
        WindowMode.MESSAGES,
        3,
        6,
        3,
    )
    assert (stats.pinned_message_count, stats.first_seq, stats.last_seq) == (1, 4, 6)
    assert (stats.left_out.limit_count, stats.left_out.limit_from_seq) == (1, 2)
    assert 2 <= stats.left_out.limit_to_seq < 4
    assert (stats.left_out.orphan_result_count, stats.left_out.open_tool_call_count) == (1, 1)
    assert stats.left_out.messages == (
        LeftOutMessage(seq=6, reason=LeftOutReason.OPEN_TOOL_CALL),
        LeftOutMessage(seq=3, reason=LeftOutReason.ORPHAN_RESULT),
    )
    assert stats.summary_state is SummaryState.NONE
    assert len(stats.prefix_digest) == 32
    assert stats.limit_used_percent == 100.0


async def test_arguments_that_cannot_be_are_named_before_any_call(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    with pytest.raises(ValueError, match="either messages or tokens"):
        await session.window(messages=1, tokens=1)
    with pytest.raises(ValueError, match="open_calls is 'drop'; it can be one of 'omit', 'synthesize', 'keep'"):
        await session.window(open_calls="drop")
    with pytest.raises(ValueError, match="oversize is 'cut'"):
        await session.window(oversize="cut")
    with pytest.raises(ValueError, match="order is 'up'; it can be one of 'ascending', 'descending'"):
        await listed(session.messages(order="up"))
    with pytest.raises(ValueError, match="roles is 'critic'"):
        await listed(session.messages(roles=["critic"]))
    with pytest.raises(ValueError, match="from_time has no time zone"):
        await listed(session.messages(from_time=datetime(2026, 1, 1)))  # noqa: DTZ001
    with pytest.raises(ValueError, match="nothing to update: give user_id or labels or ttl or policy"):
        await session.update()
    with pytest.raises(ValueError, match=r"half of a surrogate pair \(U\+D83D\)"):
        await session.append(user("a \ud83d"))
    with pytest.raises(SessionNotFound):
        await session.info()


async def test_wrong_requests_name_the_field(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    with pytest.raises(FieldInvalid) as invalid:
        await session.window(messages=0)
    assert invalid.value.field == "options.limit"
    with pytest.raises(FieldRequired) as required:
        await memory.session(agent="").append(user("a"))
    assert required.value.field == "session.agent"
    with pytest.raises(FieldTooLarge) as large:
        await session.append(user("a" * 5_000_000))
    assert large.value.metadata["limit"] == str(2 * 1024 * 1024)
    with pytest.raises(InvalidArgument):
        await session.append()
    with pytest.raises(SessionNotFound) as missing:
        await session.info()
    assert missing.value.correlation_id
    assert missing.value.correlation_id in str(missing.value)


async def test_settings_of_a_session_change(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    await session.append(user("a"), create=SessionSettings(user_id="mia", labels={"a": "1"}))
    first = await session.info()
    policy = Policy(window=WindowOptions(limit=5, oversize=Oversize.FAIL, start_with_user=True))
    changed = await session.update(policy=policy, etag=first.etag)
    assert (changed.user_id, dict(changed.labels), changed.policy) == ("mia", {"a": "1"}, policy)
    changed = await session.update(user_id="", labels={})
    assert (changed.user_id, dict(changed.labels), changed.policy) == ("", {}, policy)
    assert (await session.update(policy=Policy())).policy == Policy()
    with pytest.raises(EtagMismatch) as error:
        await session.update(user_id="eve", etag=first.etag)
    assert error.value.etag == (await session.info()).etag
    with pytest.raises(SessionNotFound):
        await memory.session(agent=agent).update(user_id="eve")


async def test_clearing_takes_what_is_named(memory: AsyncMemoryClient, agent: str) -> None:
    """Clear keeps the record, and later seqs go on (invariant 11)."""
    sessions = [memory.session(agent=agent, id=str(number)) for number in range(3)]
    other = memory.session(agent=f"{agent}-other", id="0")
    for session in (*sessions, other):
        await session.append(user("a"), user("b"))
    assert await sessions[0].clear() == 2
    assert await sessions[0].clear() == 0
    assert await listed(sessions[0].messages()) == []
    assert (await sessions[0].append(user("c")))[0].seq == 3
    cleared = await memory.clear_agent(agent)
    assert (cleared.session_count, cleared.message_count) == (3, 5)
    assert (await other.info()).message_count == 2
    assert await memory.session(agent=agent, id="unknown").clear() == 0
    with pytest.raises(InvalidArgument):
        await memory.clear_agent("")


async def test_settings_of_an_agent_change(memory: AsyncMemoryClient, agent: str) -> None:
    handle = memory.agent(agent)
    fresh = await handle.info()
    assert (fresh.agent, fresh.policy, fresh.update_time) == (agent, Policy(), None)
    policy = Policy(window=WindowOptions(mode=WindowMode.TOKENS, limit=4_000))
    changed = await handle.update(policy=policy, etag=fresh.etag)
    assert (changed.policy, (await handle.info()).policy) == (policy, policy)
    assert changed.update_time is not None
    with pytest.raises(EtagMismatch):
        await handle.update(policy=Policy(), etag=fresh.etag)
    with pytest.raises(ValueError, match="nothing to update: give policy"):
        await handle.update()
    assert agent in [info.agent async for info in memory.agents(page_size=2)]


async def test_sessions_are_listed_by_agent_and_user(memory: AsyncMemoryClient, agent: str) -> None:
    for number in range(5):
        session = memory.session(agent=agent, id=str(number))
        await session.append(user("a"), create=SessionSettings(user_id=f"{agent}-{number % 2}"))
    assert sorted([s.session_id async for s in memory.sessions(agent=agent, page_size=2)]) == list("01234")
    assert sorted([s.session_id async for s in memory.sessions(user_id=f"{agent}-1")]) == ["1", "3"]
    assert [s.session_id async for s in memory.sessions(agent=agent, user_id="nobody")] == []


async def test_stores_tell_about_themselves(memory: AsyncMemoryClient, connect: Connect, server: ServerProcess) -> None:
    store = await memory.store()
    assert (store.type, store.reachable, store.durable, store.default) == ("sqlite", True, True, True)
    assert await memory.stores() == [store]
    assert await memory.store_type() == "sqlite"
    assert await connect(server.address, store=store.name).store_type() == "sqlite"
    with pytest.raises(StoreUnknown) as error:
        await connect(server.address, store="nowhere").store_type()
    assert store.name in error.value.metadata["stores"]
    with pytest.raises(StoreUnknown):
        await memory.store("nowhere")


async def test_any_number_of_messages_is_appended_in_batches(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    messages = [user(str(number)) for number in range(600)] + [user("x" * 1_500_000) for _ in range(5)]
    appended = await session.append_all(iter(messages), create=SessionSettings(user_id="mia"))
    assert [result.seq for result in appended] == list(range(1, 606))
    assert [result.id for result in appended] == [message.id for message in messages]
    assert await session.append_all(messages) == appended
    info = await session.info()
    assert (info.message_count, info.user_id) == (605, "mia")
    assert await session.append_all([]) == []


async def test_a_window_of_any_size_arrives(memory: AsyncMemoryClient, agent: str) -> None:
    """10,000 messages of 2 KiB: over what one answer may hold, so the client streams them by itself."""
    session = memory.session(agent=agent)
    await session.append_all(user(f"{number:05}" + "x" * 2_043) for number in range(10_000))
    window = await session.window(messages=10_000)
    assert [message.seq for message in window] == list(range(1, 10_001))
    assert [message.text[:5] for message in window] == [f"{number:05}" for number in range(10_000)]
    assert len(window) == window.stats.window_message_count == 10_000


async def test_large_messages_are_paged_within_grpcs_limit(memory: AsyncMemoryClient, agent: str) -> None:
    """A default client receives 4 MiB at most: 50 messages of 900 KiB come on pages that are cut by bytes."""
    session = memory.session(agent=agent)
    await session.append_all(user(f"{number:02}" + "x" * 900 * 1024) for number in range(50))
    assert [m.text[:2] async for m in session.messages(page_size=1000)] == [f"{number:02}" for number in range(50)]


async def test_openai_messages_come_back_from_the_server(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    sources = list(openai_shapes.SHAPES.values())
    await session.append_all(from_openai(sources))
    assert exact(to_openai(await listed(session.messages()))) == exact(sources)
    session = memory.session(agent=agent)
    await session.append_all(from_openai(openai_shapes.CONVERSATION))
    assert to_openai(await session.window()) == openai_shapes.CONVERSATION
    texts = [source["content"] for source in to_openai(await session.window(tokens=40))]
    assert texts[0] == "You are a travel agent."
    assert texts[-1] == "I could not book it."


async def test_anthropic_messages_come_back_from_the_server(memory: AsyncMemoryClient, agent: str) -> None:
    session = memory.session(agent=agent)
    sources = {"messages": list(anthropic_shapes.SHAPES.values())}
    await session.append_all(from_anthropic(**sources))
    assert exact(to_anthropic(await listed(session.messages()))) == exact(sources)
    session = memory.session(agent=agent)
    await session.append_all(from_anthropic(**anthropic_shapes.CONVERSATION))
    assert to_anthropic(await session.window()) == anthropic_shapes.CONVERSATION


@pytest.mark.skipif(not TRANSCRIPTS.exists(), reason="the transcripts are not here")
async def test_real_transcripts_come_back_from_the_server(memory: AsyncMemoryClient, agent: str) -> None:
    with TRANSCRIPTS.open(encoding="utf-8") as lines:
        conversations = [json.loads(line) for line in lines]
    for conversation in conversations:
        session = memory.session(agent=agent, id=conversation["session_id"])
        await session.append_all(from_openai(conversation["messages"]))
        assert to_openai(await listed(session.messages())) == conversation["messages"]
        assert to_openai(await session.window()) == conversation["messages"]


async def test_shortened_windows_keep_their_form(memory: AsyncMemoryClient, agent: str) -> None:
    """A window may shorten texts to fit (invariant 7): what the converters noted beside them still holds."""
    block = anthropic_shapes.text("word " * 2_000, **anthropic_shapes.CACHED)
    session = memory.session(agent=agent)
    await session.append(
        *from_anthropic(
            [
                anthropic_shapes.by_assistant(anthropic_shapes.use("a", "read", **anthropic_shapes.CACHED)),
                anthropic_shapes.by_user(anthropic_shapes.result("a", content=[block], is_error=False), block),
            ]
        )
    )
    window = await session.window(tokens=300)
    assert window.stats.shortened_seqs == (2,)
    calls, answers = to_anthropic(window)["messages"]
    assert calls == anthropic_shapes.by_assistant(anthropic_shapes.use("a", "read", **anthropic_shapes.CACHED))
    result, text = answers["content"]
    assert {**text, "text": ""} == anthropic_shapes.text("", **anthropic_shapes.CACHED)
    assert {**result, "content": []} == anthropic_shapes.result("a", content=[], is_error=False)
    assert {**result["content"][0], "text": ""} == anthropic_shapes.text("", **anthropic_shapes.CACHED)
    for shown in (text["text"], result["content"][0]["text"]):
        assert len(shown) < 2_000
        assert "seq 2" in shown


async def test_windows_without_lost_results_are_valid_for_anthropic(memory: AsyncMemoryClient, agent: str) -> None:
    """A USER message with results whose calls are gone is shown without them (invariant 6)."""
    session = memory.session(agent=agent)
    cached = anthropic_shapes.text("Go on.", **anthropic_shapes.CACHED)
    lost = anthropic_shapes.result("gone", content="1", is_error=False, **anthropic_shapes.CACHED)
    await session.append(*from_anthropic([anthropic_shapes.by_user(lost, cached)]))
    assert to_anthropic(await session.window()) == {"messages": [anthropic_shapes.by_user(cached)]}


async def test_handles_show_what_they_name(memory: AsyncMemoryClient) -> None:
    session = memory.session(agent="a", id="b")
    assert (session.agent, session.id, memory.agent("a").name) == ("a", "b", "a")


async def test_a_closed_client_says_so(connect: Connect, server: ServerProcess) -> None:
    memory = connect(server.address)
    await memory.stores()
    await memory.close()
    with pytest.raises(RuntimeError, match="this client is closed; make a new"):
        await memory.stores()


@pytest.mark.parametrize("client", [MemoryClient, AsyncMemoryClient])
def test_wrong_settings_of_a_client_are_named(client: type[MemoryClient]) -> None:
    with pytest.raises(ValueError, match="timeout is 0; give the seconds"):
        client(timeout=0)
    for store in ("", "größe", "a\nb"):
        with pytest.raises(ValueError, match="the name of a store is printable ASCII"):
            client(store=store)


def test_the_sync_client_is_a_context_manager(server: ServerProcess, agent: str) -> None:
    with MemoryClient(server.address) as memory:
        session = memory.session(agent=agent, id="s")
        assert repr(session) == f"Session(agent={agent!r}, id='s')"
        assert repr(memory.agent("a")) == "Agent('a')"
        session.append(user("a"))
    with pytest.raises(RuntimeError, match="closed"):
        session.info()


async def test_the_async_client_is_a_context_manager(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent, id="s")
        assert repr(session) == f"AsyncSession(agent={agent!r}, id='s')"
        assert repr(memory.agent("a")) == "AsyncAgent('a')"
        await session.append(user("a"))
    with pytest.raises(RuntimeError, match="closed"):
        await session.info()


async def test_async_calls_run_side_by_side(server: ServerProcess, agent: str) -> None:
    """50 appends at once to one new session: all are stored, seq 1 to 50."""
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        appended = await asyncio.gather(*(session.append(user(str(number))) for number in range(50)))
        assert sorted(result.seq for (result,) in appended) == list(range(1, 51))


async def test_a_cancelled_call_leaves_the_client_usable(server: ServerProcess, agent: str) -> None:
    async with AsyncMemoryClient(server.address) as memory:
        session = memory.session(agent=agent)
        task = asyncio.create_task(session.append(user("a")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.append(user("b"))
        assert [m.text async for m in session.messages()][-1] == "b"

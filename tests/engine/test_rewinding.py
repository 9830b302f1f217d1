"""Rewinds leave everything as if what they took away had never been appended (invariant 11)."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import rewinding
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.stores.base import Committed
from memoryd_server.stores.records import EventKind, WindowOptions
from tests.engine.likeness import assert_like_fresh
from tests.engine.messages import KEY, assistant, batches, calls, developer, histories, results, system, user
from tests.engine.sessions import Conversation, append_input, conversation, plan, record_of


@given(st.data())
@settings(max_examples=150)
async def test_all_is_as_if_what_was_taken_away_had_never_been_appended(data: st.DataObject) -> None:
    session = Conversation()
    kept: list[tuple[int, IncomingMessage]] = []
    last_seq = 0
    for _ in range(data.draw(st.integers(1, 3), label="rounds")):
        for batch in data.draw(histories(8).flatmap(batches), label="appended"):
            await session.append(*batch)
            for message in batch:
                last_seq += 1
                kept.append((last_seq, message))
        to_seq = data.draw(st.integers(0, last_seq), label="rewound to")
        await session.rewind(to_seq)
        kept = [(seq, message) for seq, message in kept if seq <= to_seq]
        await assert_like_fresh(session, kept)
    await session.append(*(batch := data.draw(histories(6), label="appended at last")))
    kept += enumerate(batch, last_seq + 1)
    await assert_like_fresh(session, kept)


async def test_a_call_whose_result_is_taken_away_waits_for_it_again() -> None:
    session = await conversation(user("hi"), calls("a", "b"), results("a"), results("b"))
    await session.rewind(3)
    assert session.record is not None
    assert session.record.open_call_count == 1
    await session.append(results("b", text="again"))
    window, _ = await session.window(WindowOptions())
    assert [message.seq for message in window] == [1, 2, 3, 5]


async def test_a_call_that_lost_its_id_to_a_later_one_gets_it_back() -> None:
    session = await conversation(calls("same"), user("hi"), calls("same"))
    await session.rewind(2)
    await session.append(results("same"))
    window, _ = await session.window(WindowOptions())
    assert [message.seq for message in window] == [1, 4, 2]


async def test_a_call_that_was_one_too_many_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the oldest call closes (invariant 17), until what closed it is taken away."""
    monkeypatch.setattr(limits, "MAX_OPEN_CALLS", 2)
    session = await conversation(calls("a", "b"), calls("c"))
    assert session.record is not None
    assert [call.token for call in session.record.open_state.calls] == ["=b", "=c"]
    await session.rewind(1)
    assert [call.token for call in session.record.open_state.calls] == ["=a", "=b"]


async def test_instructions_go_on_opening_the_history_behind_a_rewind() -> None:
    """They are pinned as the instructions that open it (invariant 7)."""
    session = await conversation(system("a"), developer("b"), user("hi"), assistant("hello"))
    await session.rewind(1)
    await session.append(developer("c"), user("hi"))
    assert session.record is not None
    assert session.record.opening_to == 5
    window, stats = await session.window(WindowOptions(limit=4))
    assert ([message.seq for message in window], stats.pins) == ([1, 5, 6], 2)


async def test_a_rewind_to_the_end_changes_nothing() -> None:
    session = await conversation(user("hi"), assistant("hello"))
    before = session.record
    await session.rewind(2)
    assert session.record == before
    await session.rewind(99)
    assert session.record == before


async def test_a_rewind_to_the_beginning_takes_all_and_later_seqs_go_on() -> None:
    session = await conversation(user("hi"), calls("a"))
    await session.rewind(0)
    await session.append(results("a"), user("new"))
    assert session.record is not None
    assert (session.record.last_seq, session.record.orphan_messages, session.record.messages) == (4, 1, 2)


async def test_it_tells_watchers_which_messages_went() -> None:
    session = await conversation(*(user(str(number)) for number in range(5)))
    await session.rewind(2)
    assert session.record is not None
    page = await session.store.list_events(KEY, session.record.incarnation, 0, 10)
    assert page is not None
    (event,) = page.events
    assert (event.kind, event.from_seq, event.to_seq, event.messages) == (EventKind.REWOUND, 3, 5, 3)
    assert (event.after_seq, event.epoch, event.number) == (5, session.record.epoch, session.record.version)


async def test_answers_that_were_stored_without_an_undo_leave_their_calls_without_one() -> None:
    """A server of an earlier version stored them."""
    session = await conversation(user("hi"), calls("a", "b"))
    change, _ = plan(append_input([results("a"), results("b"), user("thanks")]), session.record)
    assert change is not None
    bare = [msgspec.structs.replace(message, undo="") for message in change.messages]
    assert await session.store.commit([dataclasses.replace(change, messages=bare)]) == [Committed()]
    session.record = record_of(change)
    await session.rewind(3)
    assert session.record is not None
    assert (session.record.open_messages, session.record.open_call_count) == (2, 0)
    window, stats = await session.window(WindowOptions())
    assert ([message.seq for message in window], stats.left_out.open_count) == ([1], 2)


async def test_a_session_holds_a_bounded_number_of_removed_ranges() -> None:
    session = await conversation(user("first"))
    for _ in range(limits.MAX_REMOVED_RANGES):
        await session.append(user("kept"), user("taken away"))
        assert session.record is not None
        await session.rewind(session.record.last_seq - 1)
    await session.append(user("kept"), user("taken away"))
    assert session.record is not None
    with pytest.raises(RequestError) as refused:
        await session.rewind(session.record.last_seq - 1)
    assert refused.value.reason == Reason.RECORD_TOO_LARGE
    assert refused.value.retry_after == limits.PURGE_DELAY_SECONDS


@pytest.mark.parametrize("to_seq", [None, -1])
async def test_it_asks_for_a_seq(to_seq: int | None) -> None:
    session = await conversation(user("hi"))
    with pytest.raises(RequestError) as refused:
        await rewinding.rewind(session.runtime, KEY, to_seq)
    assert refused.value.metadata["field"] == "to_seq"


async def test_a_condition_on_the_last_seq_is_checked_and_a_replay_comes_before_it() -> None:
    """Replays are recognized before `expected_last_seq` (invariant 2)."""
    session = await conversation(*(user(str(number)) for number in range(5)))
    with pytest.raises(RequestError) as refused:
        await rewinding.rewind(session.runtime, KEY, 2, 4)
    assert refused.value.reason == Reason.LAST_SEQ_MISMATCH
    first = await rewinding.rewind(session.runtime, KEY, 2, 5, "request")
    loaded = await session.store.load(KEY)
    assert loaded is not None
    session.record = loaded.record
    await session.append(user("new"))
    assert await rewinding.rewind(session.runtime, KEY, 2, 5, "request") == first == (3, 0)
    assert len(await session.stored()) == 3

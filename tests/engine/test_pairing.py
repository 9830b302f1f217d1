"""Pairing at append against a naive reading of the whole history (invariants 6 and 17)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import tokens
from memoryd_server.engine.changes import SessionSettings, birth
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.stores.records import OpenState, Record, RemovedRange, Role, Usability, encode_record, replace
from tests.engine import reference
from tests.engine.messages import (
    assistant,
    batches,
    calls,
    developer,
    histories,
    results,
    system,
    user,
    user_results,
)
from tests.engine.reference import NO_CALL
from tests.engine.sessions import TIME, Conversation, append_input, conversation, plan, record_of

FEW_OPEN_CALLS = 3


@contextmanager
def _few_open_calls() -> Iterator[None]:
    """A limit of open calls that short histories reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_OPEN_CALLS", FEW_OPEN_CALLS)
        yield


Place = tuple[int, int, Usability, int, tuple[int, ...], int]


def _expected(history: reference.History) -> dict[int, Place]:
    return {
        message.seq: (
            message.head,
            message.position,
            history.usability(message),
            len(message.calls),
            message.answers,
            message.prior_user,
        )
        for message in history.messages
    }


async def _placed(session: Conversation) -> dict[int, Place]:
    return {
        message.seq: (
            message.head,
            message.position,
            message.usability,
            message.calls,
            message.answers,
            message.prior_user,
        )
        for message in await session.stored()
    }


def _assert_record_tells_the_history(record: Record, history: reference.History) -> None:
    messages = history.messages
    usabilities = [history.usability(message) for message in messages]
    waiting_groups = {call.head for call in history.waiting}
    opening = history.opening
    assert record.messages == len(messages)
    assert record.tokens == sum(message.tokens for message in messages)
    assert record.open_messages == usabilities.count(Usability.OPEN)
    assert record.orphan_messages == usabilities.count(Usability.ORPHAN)
    assert record.last_user == max((message.seq for message in messages if history.is_user_turn(message)), default=0)
    assert (record.opening_to if record.opening_to >= record.first_seq else 0) == (opening[-1].seq if opening else 0)
    state = record.open_state
    assert sorted((call.head, index, call.token) for call in state.calls for index in call.indexes) == [
        (call.head, call.index, id_token(call.id)) for call in history.waiting
    ]
    assert record.open_call_count == len(history.waiting)
    assert [call.head for call in state.calls] == sorted(call.head for call in state.calls)
    assert {group.head: (group.messages, group.tokens, group.waiting, group.lost) for group in state.groups} == {
        head: _group(history, head) for head in waiting_groups
    }
    assert [group.head for group in state.groups] == sorted(waiting_groups)


def _group(history: reference.History, head: int) -> tuple[int, int, int, bool]:
    members = [message for message in history.messages if message.head == head]
    answered = sum(answer != NO_CALL for message in members for answer in message.answers)
    waiting = sum(call.head == head for call in history.waiting)
    return len(members), sum(message.tokens for message in members), waiting, answered + waiting < len(members[0].calls)


@given(st.data())
@settings(max_examples=250)
async def test_messages_are_placed_as_the_whole_history_says_however_it_is_cut_into_appends(
    data: st.DataObject,
) -> None:
    """(invariants 6 and 17)"""
    history = data.draw(histories(24))
    session = Conversation()
    for batch in data.draw(batches(history)):
        await session.append(*batch)
        expected = session.reference()
        assert session.record is not None
        assert await _placed(session) == _expected(expected)
        _assert_record_tells_the_history(session.record, expected)


@given(st.data())
@settings(max_examples=150)
def test_the_oldest_call_beyond_the_limit_closes_and_its_group_stays_open(data: st.DataObject) -> None:
    """(invariant 17)"""
    history = data.draw(histories(24))
    record: Record | None = None
    placed: dict[int, Usability] = {}
    heads: dict[int, int] = {}
    for batch in data.draw(batches(history)):
        with _few_open_calls():
            change, _ = plan(append_input(batch), record)
        assert change is not None
        record = record_of(change)
        placed.update((message.seq, message.usability) for message in change.messages)
        heads.update((message.seq, message.head) for message in change.messages)
        placed.update((seq, Usability.USABLE) for seq, head in heads.items() if head in change.completed)
        assert record.open_call_count <= FEW_OPEN_CALLS
    if record is None:
        return
    prices = append_input(history).tokens
    expected = reference.pair(history, prices, most_open=FEW_OPEN_CALLS)
    assert placed == {message.seq: expected.usability(message) for message in expected.messages}
    assert heads == {message.seq: message.head for message in expected.messages}
    _assert_record_tells_the_history(record, expected)


@given(st.data())
@settings(max_examples=60)
async def test_a_cleared_history_pairs_from_its_new_beginning(data: st.DataObject) -> None:
    """Calls of before are forgotten, instructions open the history again, seqs go on (invariant 11)."""
    session = Conversation()
    await session.append(*data.draw(histories(8)))
    await session.clear()
    await session.append(*data.draw(histories(8)))
    if session.record is None:
        return
    expected = session.reference()
    assert await _placed(session) == _expected(expected)
    _assert_record_tells_the_history(session.record, expected)


async def _usabilities(session: Conversation) -> Sequence[Usability]:
    return [message.usability for message in await session.stored()]


async def test_an_answer_consumes_the_call_so_that_a_second_answer_is_without_call() -> None:
    session = await conversation(calls("a"), results("a"), results("a"))
    assert await _usabilities(session) == [Usability.USABLE, Usability.USABLE, Usability.ORPHAN]


async def test_a_re_armed_id_replaces_the_older_call_which_then_stays_open_for_ever() -> None:
    session = await conversation(calls("a"), calls("a"), results("a"), results("a"))
    assert await _usabilities(session) == [Usability.OPEN, Usability.USABLE, Usability.USABLE, Usability.ORPHAN]
    assert session.record is not None
    assert session.record.open_state.groups == ()


async def test_re_arming_one_id_of_a_group_leaves_its_other_calls_to_be_answered() -> None:
    session = await conversation(calls("a", "b"), calls("a"), results("b"), results("a"))
    stored = await session.stored()
    assert [message.head for message in stored] == [1, 2, 1, 2]
    assert await _usabilities(session) == [Usability.OPEN, Usability.USABLE, Usability.OPEN, Usability.USABLE]


async def test_calls_of_one_message_that_share_an_id_are_answered_in_their_order() -> None:
    """As providers need that send empty ids."""
    session = await conversation(calls("", "", ""), results(""), results("", ""))
    stored = await session.stored()
    assert [message.answers for message in stored] == [(), (0,), (1, 2)]
    assert await _usabilities(session) == [Usability.USABLE] * 3


async def test_a_message_belongs_to_the_group_of_the_first_call_that_it_answers() -> None:
    """Its results for other groups count as results without call, and those calls can still be answered."""
    session = await conversation(calls("a"), calls("b"), results("b", "a"), results("a"))
    stored = await session.stored()
    assert [message.head for message in stored] == [1, 2, 2, 1]
    assert stored[2].answers == (0, NO_CALL)
    assert await _usabilities(session) == [Usability.USABLE] * 4


async def test_results_without_a_call_before_the_first_pairing_result_do_not_choose_the_group() -> None:
    session = await conversation(calls("a"), results("unknown", "a"))
    stored = await session.stored()
    assert (stored[1].head, stored[1].answers) == (1, (NO_CALL, 0))
    assert await _usabilities(session) == [Usability.USABLE] * 2


async def test_a_user_message_with_words_beside_its_lost_results_is_a_user_turn() -> None:
    session = await conversation(user_results("lost", text="go on"), user_results("lost"), assistant("yes"))
    assert await _usabilities(session) == [Usability.USABLE, Usability.ORPHAN, Usability.USABLE]
    assert (await session.stored())[2].prior_user == 1


async def test_a_user_message_that_answers_a_call_is_no_user_turn() -> None:
    session = await conversation(user("hi"), calls("a"), user_results("a", text="here"), assistant("thanks"))
    assert (await session.stored())[3].prior_user == 1


async def test_instructions_open_the_history_up_to_the_first_other_message() -> None:
    session = await conversation(system("1"), developer("2"), user("3"), system("4"))
    assert session.record is not None
    assert session.record.opening_to == 2


async def test_instructions_after_another_first_message_open_nothing() -> None:
    session = await conversation(user("1"), system("2"))
    assert session.record is not None
    assert session.record.opening_to < session.record.first_seq


async def test_the_257th_open_call_closes_the_oldest() -> None:
    """(invariant 17)"""
    session = Conversation()
    await session.append(*(calls(f"call-{number}") for number in range(limits.MAX_OPEN_CALLS)))
    await session.append(calls("one-more"))
    await session.append(results("call-0"), results("call-1"), results("one-more"))
    stored = await session.stored()
    assert stored[-3].usability == Usability.ORPHAN
    assert stored[0].usability == Usability.OPEN
    assert [message.head for message in stored[-2:]] == [2, limits.MAX_OPEN_CALLS + 1]


async def test_a_message_with_more_calls_than_can_be_open_stays_open() -> None:
    ids = [f"call-{number}" for number in range(limits.MAX_OPEN_CALLS + 2)]
    session = await conversation(calls(*ids), *(results(call_id) for call_id in ids))
    assert session.record is not None
    assert session.record.open_state == OpenState()
    assert session.record.orphan_messages == 2
    assert session.record.open_messages == 1 + limits.MAX_OPEN_CALLS


def _are_accepted(labels: dict[str, str]) -> bool:
    try:
        plan(append_input([user("hi")], settings=SessionSettings("u" * limits.MAX_ID_BYTES, labels)), None)
    except RequestError as error:
        return error.reason != Reason.RECORD_TOO_LARGE
    return True


def _awkward_ids() -> list[str]:
    """256 ids of 256 bytes: what JSON escapes, what UTF-8 makes long, and what is plain."""
    kinds = ["\x01" * 250, "🧑" * 62, '"' * 250, "\\" * 250, "a" * 250, "\x1f" * 42, "日" * 83, "'" * 46, "z" * 46]
    return [f"{number:03}{kinds[number % len(kinds)]}" for number in range(limits.MAX_OPEN_CALLS)]


@pytest.mark.parametrize("grouped", ["one message", "a message each"])
def test_a_record_holds_256_open_calls_of_the_longest_ids(grouped: str) -> None:
    """A session's record stays within 64 KiB (design section 1), far into a long history."""
    ids = _awkward_ids()
    assert all(len(call_id.encode()) <= limits.MAX_ID_BYTES for call_id in ids)
    batch = [calls(*ids)] if grouped == "one message" else [calls(call_id) for call_id in ids]
    long_history = replace(birth(SessionSettings(), tokens.ESTIMATE, TIME), last_seq=10**12, tokens=10**15)
    change, _ = plan(append_input(batch), long_history)
    assert change is not None
    assert record_of(change).open_call_count == limits.MAX_OPEN_CALLS
    assert len(encode_record(record_of(change))) <= limits.MAX_RECORD_BYTES


def test_the_largest_settings_that_are_accepted_leave_room_for_256_open_calls() -> None:
    """Settings never stand in the way of an append (`limits.MAX_SETTINGS_BYTES`), up to a billion messages."""
    labels = {f"{number:02}{'k' * 254}": "" for number in range(limits.MAX_LABELS)}
    for length in range(1, limits.MAX_LABEL_BYTES):
        larger = labels | {f"{length % limits.MAX_LABELS:02}{'k' * 254}": "\x01" * 160}
        if not _are_accepted(larger):
            break
        labels = larger
    else:
        pytest.fail("these labels were to reach the limit")
    accepted = SessionSettings("u" * limits.MAX_ID_BYTES, labels)
    used = replace(
        birth(accepted, tokens.ESTIMATE, TIME),
        last_seq=10**9,
        tokens=10**12,
        version=10**9,
        removed=(RemovedRange(1, 10**8, TIME),),
    )
    change, _ = plan(append_input([calls(call_id) for call_id in _awkward_ids()]), used)
    assert change is not None
    assert record_of(change).open_call_count == limits.MAX_OPEN_CALLS


@given(st.text(max_size=90), st.text(max_size=90))
def test_no_two_call_ids_share_a_token(one: str, other: str) -> None:
    """(invariant 5)"""
    assert (id_token(one) == id_token(other)) == (one == other)


def test_a_call_id_that_looks_like_the_digest_of_another_is_not_taken_for_it() -> None:
    long_id = "x" * 200
    assert id_token(id_token(long_id)) != id_token(long_id)
    assert id_token(id_token("short")) != id_token("short")


def test_only_the_first_message_can_make_an_empty_id_wait() -> None:
    """An empty id is an id like any other."""
    record = None
    for message in (calls(""), results("")):
        change, _ = plan(append_input([message]), record)
        assert change is not None
        record = record_of(change)
    assert record is not None
    assert record.open_state == OpenState()
    assert record.open_messages == 0


def test_every_role_can_stand_in_any_place() -> None:
    messages: list[IncomingMessage] = [system("s"), developer("d"), user("u"), assistant("a"), calls("a"), results("a")]
    change, answer = plan(append_input(messages), None)
    assert change is not None
    assert [message.role for message in change.messages] == [
        Role.SYSTEM,
        Role.DEVELOPER,
        Role.USER,
        Role.ASSISTANT,
        Role.ASSISTANT,
        Role.TOOL,
    ]
    assert [appended.seq for appended in answer] == [1, 2, 3, 4, 5, 6]

"""What leases, commits and reverts of summaries do to a session's record (invariants 9 to 11)."""

from __future__ import annotations

import pytest

from memoryd_server import limits
from memoryd_server.engine import changes, summary_changes, summary_links
from memoryd_server.engine.changes import SessionSettings, StaleRead
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.summary_changes import Fold, LeaseTaken, LeaseVoid, Made
from memoryd_server.stores.records import (
    Covered,
    EventKind,
    Folding,
    Record,
    Retention,
    StoredSummary,
    encode_record,
    replace,
)
from tests.engine.folded_sessions import SECOND
from tests.engine.messages import KEY, assistant, calls, results, user
from tests.engine.sessions import TIME, append_input, plan, record_of


def history(*batches: list[IncomingMessage]) -> Record:
    """A record after these appends."""
    record: Record | None = None
    for number, batch in enumerate(batches):
        change, _ = plan(append_input(batch, settings=SessionSettings(), made=f"batch-{number}"), record)
        record = record_of(change)
    assert record is not None
    return record


def fold(record: Record, seqs: list[int], *, to_head: int | None = None, covers: Covered | None = None) -> Fold:
    """A fold of these messages, which were read with this record."""
    to_seq = max(seqs)
    return Fold(record, seqs, to_seq if to_head is None else to_head, to_seq, 0, covers or Covered(len(seqs)))


def leased(record: Record, wanted: Fold, *, lease: str = "lease", now: int = TIME) -> Record:
    """The record once the fold is leased for 30 seconds."""
    folding = Folding(lease=lease, until=now + 30 * SECOND, summarizer="extractive")
    change, new = summary_changes.plan_lease(record, KEY, wanted, folding, now)
    assert change is not None
    assert (change.messages, change.events) == ((), ())
    return new


def made(retention: Retention = Retention.KEEP) -> Made:
    return Made("text", "extractive", "model", 1, 8, 100, retention)


def committed(
    record: Record, *, lease: str = "lease", retention: Retention = Retention.KEEP
) -> tuple[Record, StoredSummary]:
    """The record and the summary that a commit makes."""
    change, (new, summary) = summary_changes.plan_commit(record, KEY, lease, made(retention), TIME + SECOND)
    assert change is not None
    (event,) = change.events
    assert (event.kind, event.number, event.epoch) == (EventKind.SUMMARIZED, new.version, record.epoch + 1)
    return new, summary


USERS = [user("1"), user("2"), user("3"), user("4")]


def test_one_lease_at_a_time_and_the_next_once_it_is_over() -> None:
    record = history(USERS)
    first = leased(record, fold(record, [1, 2]))
    with pytest.raises(LeaseTaken) as taken:
        leased(first, fold(first, [1, 2]), lease="other", now=TIME + 30 * SECOND - 1)
    assert taken.value.until == TIME + 30 * SECOND
    second = leased(first, fold(first, [1, 2]), lease="other", now=TIME + 30 * SECOND)
    assert (second.folding.attempts, second.folding.failure) == (1, summary_changes.EXPIRED)
    with pytest.raises(LeaseVoid):
        committed(second)
    committed(second, lease="other")


def test_nobody_holds_the_empty_lease() -> None:
    record = history(USERS)
    with pytest.raises(LeaseVoid):
        committed(record, lease="")
    with pytest.raises(LeaseVoid):
        summary_changes.plan_commit(None, KEY, "lease", made(), TIME)


def test_a_fold_that_was_read_before_history_was_taken_away_is_not_leased() -> None:
    record = history(USERS)
    change, _ = changes.plan_clear(record, KEY, TIME)
    with pytest.raises(StaleRead):
        leased(record_of(change), fold(record, [1, 2]))


@pytest.mark.parametrize(("to_head", "is_stale"), [(1, True), (0, False)])
def test_a_fold_that_was_read_before_one_of_its_calls_was_answered_is_not_leased(to_head: int, is_stale: bool) -> None:
    record = history([calls("a"), user("on")])
    change, _ = plan(append_input([results("a")], made="late"), record)
    later = record_of(change)
    wanted = fold(record, [1], to_head=to_head)
    if is_stale:
        with pytest.raises(StaleRead):
            leased(later, wanted)
    else:
        leased(later, wanted)


def test_appends_keep_a_lease_unless_they_answer_a_call_in_it() -> None:
    record = history([calls("a"), user("on"), calls("b")])
    held = leased(record, fold(record, [1, 2]))
    change, _ = plan(append_input([user("more"), results("b")], made="more"), held)
    assert record_of(change).folding == held.folding
    change, _ = plan(append_input([results("a")], made="late"), held)
    assert record_of(change).folding.lease == ""


def test_a_commit_costs_the_same_whatever_it_covers() -> None:
    """O(1) (invariant 17): one summary, one event, no message."""
    record = history(USERS)
    held = leased(record, fold(record, list(range(1, 4)), covers=Covered(1_000_000, 9_000_000, 99_000_000)))
    change, (new, summary) = summary_changes.plan_commit(held, KEY, "lease", made(), TIME)
    assert change is not None
    assert (change.messages, change.replaced, change.completed, change.lookups) == ((), (), (), ())
    assert (change.new_summaries, change.dropped_summaries, len(change.events)) == ((summary,), (), 1)
    assert len(encode_record(new)) < len(encode_record(record)) + 200


def test_a_group_that_is_folded_open_closes_and_a_revert_has_its_calls_wait_again() -> None:
    record = history([calls("a", "b"), user("on"), results("a"), user("and on"), calls("c"), user("1")])
    assert record.open_call_count == 2
    new, summary = committed(leased(record, fold(record, [1, 3, 2], to_head=2)))
    assert (new.open_call_count, [call.token for call in new.open_state.calls]) == (1, ["=c"])
    change, back = summary_changes.plan_revert(new, KEY, new, summary, TIME)
    assert change is not None
    assert change.dropped_summaries == (1,)
    assert back.open_state == record.open_state
    assert (back.open_call_count, back.summaries, back.folding.held_at) == (2, (), 6)
    assert back.epoch == record.epoch + 2


def test_a_call_whose_id_was_armed_again_since_stays_lost_when_its_summary_is_taken_back() -> None:
    record = history([calls("a"), user("on"), user("and on")])
    new, summary = committed(leased(record, fold(record, [1, 2])))
    change, _ = plan(append_input([calls("a")], made="again"), new)
    again = record_of(change)
    _, back = summary_changes.plan_revert(again, KEY, again, summary, TIME)
    assert [(call.token, call.head) for call in back.open_state.calls] == [("=a", 4)]
    assert [group.head for group in back.open_state.groups] == [4]


def test_no_more_calls_wait_after_a_revert_than_a_record_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OPEN_CALLS", 2)
    record = history([calls("a", "b"), user("on"), user("and on")])
    new, summary = committed(leased(record, fold(record, [1, 2])))
    change, _ = plan(append_input([calls("c")], made="more"), new)
    more = record_of(change)
    _, back = summary_changes.plan_revert(more, KEY, more, summary, TIME)
    assert [call.token for call in back.open_state.calls] == ["=b", "=c"]
    assert [(group.head, group.waiting, group.lost) for group in back.open_state.groups] == [
        (1, 1, True),
        (4, 1, False),
    ]


def test_a_group_of_the_present_turn_must_not_be_folded() -> None:
    beyond = 1 << 62
    assert summary_changes.ceiling(history([user("go"), calls("a"), assistant("on")])) == 2
    assert summary_changes.ceiling(history([user("go"), calls("a"), user("on")])) == beyond
    assert summary_changes.ceiling(history([user("go"), calls("a"), user("on"), calls("b", "c"), results("b")])) == 4
    assert summary_changes.ceiling(history([user("go"), calls("a"), results("a")])) == beyond


def test_originals_go_with_the_commit_but_not_where_one_lies_beyond_the_boundary() -> None:
    record = history([user("1"), calls("a"), user("2"), results("a"), user("3")])
    late, _ = committed(leased(record, fold(record, [1, 2, 4], to_head=2)), retention=Retention.DELETE)
    assert (late.removed, late.messages, late.summaries[-1].is_final) == ((), 5, False)
    gone, _ = committed(leased(late, fold(late, [3], to_head=4)), retention=Retention.DELETE)
    assert [(removed.from_seq, removed.to_seq) for removed in gone.removed] == [(1, 4)]
    assert (gone.messages, gone.summaries[-1].messages, gone.summaries[-1].stored) == (1, 4, Covered())
    assert all(link.is_final for link in gone.summaries)
    with pytest.raises(RequestError) as refused:
        summary_links.without(gone, gone.summaries[-1:])
    assert refused.value.reason == Reason.ORIGINALS_REMOVED


@pytest.mark.parametrize(("attempts", "asked", "pause"), [(0, 0.0, 5), (3, 0.0, 40), (3, 300.0, 300), (40, 0.0, 3_600)])
def test_pauses_double_up_to_an_hour(attempts: int, asked: float, pause: int) -> None:
    record = history(USERS)
    held = leased(record, fold(record, [1, 2]))
    held = replace(held, folding=Folding(lease="lease", until=TIME, attempts=attempts, wanted=7))
    change, _ = summary_changes.plan_fail(held, KEY, "lease", "timeout", asked, TIME)
    failed = record_of(change).folding
    assert (failed.lease, failed.attempts, failed.failure, failed.wanted) == ("", attempts + 1, "timeout", 7)
    assert failed.retry_at == TIME + pause * SECOND


def test_a_released_lease_leaves_no_trace_but_earlier_failures() -> None:
    record = history(USERS)
    change, _ = summary_changes.plan_release(leased(record, fold(record, [1])), KEY, "lease")
    assert record_of(change).folding == record.folding


def test_a_session_waits_for_a_client_since_the_first_time() -> None:
    record = history(USERS)
    change, _ = summary_changes.plan_want(record, KEY, TIME)
    waiting = record_of(change)
    assert waiting.fold_at == TIME
    assert summary_changes.plan_want(waiting, KEY, TIME + 1) == (None, None)
    newer = replace(waiting, version=waiting.version + 1)
    assert summary_changes.plan_unwant(newer, KEY, waiting) == (None, None)
    change, _ = summary_changes.plan_unwant(waiting, KEY, waiting)
    assert record_of(change).fold_at is None

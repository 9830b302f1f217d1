"""Plans of clears, updates and births as pure functions of the record (design section 5, invariant 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from memoryd_server import limits
from memoryd_server.engine import changes, tokens
from memoryd_server.engine.changes import RequestMark, SessionSettings, SessionUpdate, TokenizerDiffers, etag_of
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.policies import PolicyUpdate
from memoryd_server.stores.base import Version
from memoryd_server.stores.records import (
    OpenCalls,
    OpenState,
    Policy,
    Record,
    RemovedRange,
    WindowMode,
    WindowOptions,
    encode_record,
    replace,
)
from tests.engine.messages import KEY, assistant, calls, developer, histories, results, system, user
from tests.engine.sessions import SECRET, TIME, append_input, conversation, plan, record_of

SETTINGS = SessionSettings("user", {"team": "blue"}, None, Policy(WindowOptions(limit=20)))


def born(*, settings: SessionSettings = SETTINGS) -> Record:
    """A session with a few messages and an open call."""
    change, _ = plan(append_input([system("rules"), user("hi"), calls("a")], settings=settings), None)
    assert change is not None
    return record_of(change)


def updated(record: Record, update: SessionUpdate) -> Record:
    change, answer = changes.plan_update(record, KEY, update)
    if change is None:
        assert answer is record
        return record
    assert change.record == answer
    assert change.expected == Version(record.incarnation, record.version)
    return answer


class TestBirth:
    def test_the_first_append_begins_the_session_with_its_settings(self) -> None:
        change, answer = plan(append_input([user("hi")], settings=SETTINGS), None)
        assert change is not None
        assert change.expected is None
        record = record_of(change)
        assert (record.version, record.last_seq, record.epoch, record.first_seq) == (1, 1, 1, 1)
        assert (record.user_id, record.labels, record.policy) == ("user", {"team": "blue"}, SETTINGS.policy)
        assert (record.created, record.activity, record.tokenizer) == (TIME, TIME, tokens.ESTIMATE)
        assert answer[0].created == TIME

    def test_every_life_has_an_incarnation_of_its_own(self) -> None:
        incarnations = {born().incarnation for _ in range(50)}
        assert len(incarnations) == 50
        assert all(len(incarnation) == 32 and int(incarnation, 16) >= 0 for incarnation in incarnations)

    def test_settings_of_a_later_append_are_ignored(self) -> None:
        """`create` applies only when the session begins (design section 3)."""
        record = born()
        change, _ = plan(append_input([user("hi")], settings=SessionSettings("other", {"team": "red"})), record)
        assert change is not None
        assert (record_of(change).user_id, record_of(change).labels) == ("user", {"team": "blue"})

    def test_messages_counted_in_another_vocabulary_must_be_counted_again(self) -> None:
        """A session's vocabulary is fixed when it begins (invariant 8)."""
        with pytest.raises(TokenizerDiffers) as differs:
            plan(append_input([user("hi")], tokenizer=tokens.O200K_BASE), born())
        assert differs.value.tokenizer == tokens.ESTIMATE

    def test_a_change_rests_on_the_state_that_it_was_planned_on(self) -> None:
        record = born()
        change, _ = plan(append_input([user("hi")]), record)
        assert change is not None
        assert change.expected == Version(record.incarnation, record.version)
        assert record_of(change).incarnation == record.incarnation
        assert record_of(change).version == record.version + 1

    @pytest.mark.parametrize(("later", "moves"), [(0, False), (999_999, False), (1_000_000, True)])
    def test_activity_lags_by_less_than_a_second(self, later: int, moves: bool) -> None:
        """It spares most appends the writes to indexes (`limits.ACTIVITY_LAG_SECONDS`)."""
        change, _ = changes.plan_append(append_input([user("hi")]), lambda: TIME + later, born(), ())
        assert change is not None
        assert record_of(change).activity == (TIME + later if moves else TIME)
        assert change.messages[0].created == TIME + later


class TestClear:
    def test_it_takes_all_messages_and_keeps_the_rest(self) -> None:
        """Clear keeps record and settings (invariant 11)."""
        record = updated(born(), SessionUpdate(user_id="someone"))
        change, cleared = changes.plan_clear(record, KEY, TIME + 5)
        assert change is not None
        new = record_of(change)
        assert cleared == (3,)
        assert (new.messages, new.tokens, new.open_messages, new.orphan_messages) == (0, 0, 0, 0)
        assert (new.open_call_count, new.open_state, new.last_user) == (0, OpenState(), 0)
        assert (new.user_id, new.labels, new.policy) == ("someone", record.labels, record.policy)
        assert (new.tokenizer, new.created, new.activity) == (record.tokenizer, record.created, record.activity)
        assert etag_of(new) == etag_of(record)
        assert new.epoch == record.epoch + 1
        assert new.removed == (RemovedRange(1, 3, TIME + 5),)
        assert (change.messages, change.lookups, change.completed) == ((), (), ())

    def test_later_seqs_go_on(self) -> None:
        """A seq is never used again (design section 1, invariant 11)."""
        change, _ = changes.plan_clear(born(), KEY, TIME)
        assert change is not None
        append, answer = plan(append_input([developer("new rules"), user("hi")]), record_of(change))
        assert append is not None
        assert [appended.seq for appended in answer] == [4, 5]
        assert (record_of(append).first_seq, record_of(append).opening_to, record_of(append).last_user) == (4, 4, 5)

    def test_a_result_of_before_is_without_call_afterwards(self) -> None:
        """Open calls are forgotten."""
        change, _ = changes.plan_clear(born(), KEY, TIME)
        assert change is not None
        append, _ = plan(append_input([results("a")]), record_of(change))
        assert append is not None
        assert record_of(append).orphan_messages == 1

    def test_nothing_to_clear_is_no_change(self) -> None:
        """Clearing something unknown removes nothing and answers 0 (invariant 11)."""
        change, _ = changes.plan_clear(born(), KEY, TIME)
        assert change is not None
        assert changes.plan_clear(record_of(change), KEY, TIME) == (None, (0,))
        assert changes.plan_clear(None, KEY, TIME) == (None, (0,))

    def test_many_clears_share_removed_ranges_while_the_purge_waits(self) -> None:
        """The record does not grow with them (`limits.MAX_REMOVED_RANGES`), and what was removed first does not wait
        for the last.
        """
        record = born()
        for round_ in range(100):
            change, _ = changes.plan_clear(record, KEY, TIME + round_)
            append, _ = plan(append_input([user("hi")]), record_of(change))
            record = record_of(append)
        removed = record.removed
        assert len(removed) == limits.MAX_REMOVED_RANGES
        assert removed[0] == RemovedRange(1, 3, TIME)
        assert removed[-1] == RemovedRange(removed[-2].to_seq + 1, record.first_seq - 1, TIME + 99)

    def test_a_clear_with_a_request_id_answers_its_replay_and_takes_nothing_more_away(self) -> None:
        """(AIP-155)"""
        mark = RequestMark.of((SECRET,), "request", "ClearHistory")
        change, first = changes.plan_clear(born(), KEY, TIME, mark)
        assert change is not None
        append, _ = plan(append_input([user("hi")]), record_of(change))
        assert changes.plan_clear(record_of(append), KEY, TIME, mark, change.lookups) == (None, first)
        other = RequestMark.of((SECRET,), "request", "RewindSession", 0)
        with pytest.raises(RequestError) as refused:
            changes.plan_clear(record_of(append), KEY, TIME, other, change.lookups)
        assert refused.value.reason == Reason.REQUEST_ID_CONFLICT

    def test_a_request_id_is_remembered_also_when_there_was_nothing_to_clear(self) -> None:
        """Else its replay would take away what came in between."""
        mark = RequestMark.of((SECRET,), "request", "ClearHistory")
        empty, _ = changes.plan_clear(born(), KEY, TIME)
        change, counts = changes.plan_clear(record_of(empty), KEY, TIME, mark)
        assert change is not None
        assert (counts, len(change.lookups), record_of(change).epoch) == ((0,), 1, record_of(empty).epoch)

    def test_a_purged_range_is_forgotten_and_a_grown_one_is_not(self) -> None:
        change, _ = changes.plan_clear(born(), KEY, TIME)
        assert change is not None
        (removed,) = record_of(change).removed
        forgotten, _ = changes.plan_forget_removed(record_of(change), KEY, removed)
        assert forgotten is not None
        assert record_of(forgotten).removed == ()
        grown = replace(record_of(change), removed=(RemovedRange(1, 9, TIME + 1),))
        assert changes.plan_forget_removed(grown, KEY, removed) == (None, None)
        assert changes.plan_forget_removed(None, KEY, removed) == (None, None)

    @given(histories(10))
    @settings(max_examples=40)
    async def test_it_answers_how_many_messages_there_were(self, sent: list[IncomingMessage]) -> None:
        """Orphans and open groups count."""
        session = await conversation(*sent)
        assert changes.plan_clear(session.record, KEY, TIME)[1] == (len(sent),)


def whole_policy(window: WindowOptions) -> PolicyUpdate:
    return PolicyUpdate(Policy(window), whole=True)


def policy_fields(**fields: Any) -> PolicyUpdate:
    return PolicyUpdate(Policy(WindowOptions(**fields)), window_fields=tuple(fields))


class TestUpdate:
    def test_what_is_not_given_stays(self) -> None:
        record = born()
        assert updated(record, SessionUpdate(user_id="other")).labels == record.labels
        assert updated(record, SessionUpdate(labels={})).user_id == "user"
        assert updated(record, SessionUpdate(labels={})).labels == {}
        assert updated(record, SessionUpdate(user_id="")).user_id == ""

    def test_a_policy_changes_as_a_whole_or_in_single_fields(self) -> None:
        """Update masks on partial updates (design section 3)."""
        record = born()
        whole = updated(record, SessionUpdate(policy=whole_policy(WindowOptions(mode=WindowMode.TOKENS))))
        assert whole.policy == Policy(WindowOptions(mode=WindowMode.TOKENS))
        field = updated(record, SessionUpdate(policy=policy_fields(open_calls=OpenCalls.KEEP)))
        assert field.policy == Policy(WindowOptions(limit=20, open_calls=OpenCalls.KEEP))
        unset = updated(record, SessionUpdate(policy=policy_fields(limit=None)))
        assert unset.policy == Policy()

    def test_an_update_that_changes_nothing_is_no_change(self) -> None:
        record = born()
        same = SessionUpdate(
            "user", {"team": "blue"}, policy=PolicyUpdate(record.policy, whole=True), etag=etag_of(record)
        )
        assert changes.plan_update(record, KEY, same) == (None, record)
        assert changes.plan_update(record, KEY, SessionUpdate()) == (None, record)

    def test_the_etag_changes_with_settings_and_with_nothing_else(self) -> None:
        """(AIP-154; `Session.etag`)"""
        record = born()
        append, _ = plan(append_input([user("hi")]), record)
        assert append is not None
        assert etag_of(record_of(append)) == etag_of(record)
        etags = {etag_of(record)}
        for name in "abcabc":
            record = updated(record, SessionUpdate(user_id=name))
            etags.add(etag_of(record))
        assert len(etags) == 7

    def test_another_life_has_other_etags(self) -> None:
        assert etag_of(born()) != etag_of(born())

    @pytest.mark.parametrize("etag", ["x", "0", " "])
    def test_another_etag_is_a_mismatch(self, etag: str) -> None:
        record = born()
        with pytest.raises(RequestError) as refused:
            changes.plan_update(record, KEY, SessionUpdate(user_id="other", etag=etag))
        assert refused.value.reason == Reason.ETAG_MISMATCH
        assert refused.value.metadata == {"etag": etag_of(record)}
        assert updated(record, SessionUpdate(user_id="other", etag=etag_of(record))).user_id == "other"

    def test_an_etag_is_checked_even_where_nothing_would_change(self) -> None:
        with pytest.raises(RequestError) as refused:
            changes.plan_update(born(), KEY, SessionUpdate(etag="old"))
        assert refused.value.reason == Reason.ETAG_MISMATCH

    def test_an_unknown_session_is_not_found(self) -> None:
        with pytest.raises(RequestError) as refused:
            changes.plan_update(None, KEY, SessionUpdate(user_id="someone"))
        assert refused.value.reason == Reason.SESSION_NOT_FOUND
        assert refused.value.metadata == {"agent": "agent", "session_id": "session"}

    def test_a_field_that_makes_the_policy_impossible_is_refused(self) -> None:
        """A limit of tokens may be too large as one of messages."""
        record = updated(
            born(), SessionUpdate(policy=whole_policy(WindowOptions(WindowMode.TOKENS, limits.MAX_WINDOW_TOKENS)))
        )
        with pytest.raises(RequestError) as refused:
            changes.plan_update(record, KEY, SessionUpdate(policy=policy_fields(mode=WindowMode.MESSAGES)))
        assert refused.value.reason == Reason.FIELD_INVALID


def _labels(size: int) -> Mapping[str, str]:
    return {f"{number:03}": "v" * size for number in range(limits.MAX_LABELS)}


class TestSize:
    ESCAPED: Mapping[str, str] = {f"{number:02}{'k' * 254}": "\x01" * 255 for number in range(limits.MAX_LABELS)}
    """Within the limit of each label, and far over that of settings, since JSON escapes them."""

    def test_the_most_and_longest_plain_labels_fit(self) -> None:
        record = updated(
            born(), SessionUpdate(user_id="u" * limits.MAX_ID_BYTES, labels=_labels(limits.MAX_LABEL_BYTES))
        )
        assert len(encode_record(record)) <= limits.MAX_RECORD_BYTES

    def test_settings_over_their_size_are_refused_and_name_it(self) -> None:
        """RESOURCE_EXHAUSTED for a quota (design section 3, Limits)."""
        with pytest.raises(RequestError, match="fewer or shorter labels") as refused:
            changes.plan_update(born(), KEY, SessionUpdate(labels=self.ESCAPED))
        assert refused.value.reason == Reason.RECORD_TOO_LARGE
        assert refused.value.metadata["limit"] == str(limits.MAX_SETTINGS_BYTES)
        assert int(refused.value.metadata["actual"]) > limits.MAX_SETTINGS_BYTES

    def test_a_session_cannot_begin_with_them_either(self) -> None:
        with pytest.raises(RequestError) as refused:
            plan(append_input([assistant("hi")], settings=SessionSettings(labels=self.ESCAPED)), None)
        assert refused.value.reason == Reason.RECORD_TOO_LARGE

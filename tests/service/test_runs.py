"""Runs on a server of each store: their life, their steps, what is kept of them, and to whom calls are answered again
(invariant 15)."""

from __future__ import annotations

import itertools
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.service import run_calls as calls
from tests.service.run_calls import (
    AWAITING_APPROVAL,
    AWAITING_BUDGET,
    CANCELLED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    RUNNING,
    run_of,
)
from tests.service.test_rebirth import wait_until_gone
from tests.service.wire import Stubs, as_sent, new_key, refused, seqs, text

MIB = 1024 * 1024

AWKWARD = (
    "",
    "{}",
    '{"big": 9007199254740993, "small": 1e-400, "a": 1, "a": 2}',
    "a\0b",
    "\U0001f600 \ufeff\u2028\r\n\t",
)
"""Texts that a store or a codec may be tempted to change."""


@pytest.fixture
def key(agent: str) -> session.SessionKey:
    return new_key(agent)


@pytest.fixture
def run(key: session.SessionKey) -> pb.RunKey:
    return run_of(key)


class TestALife:
    def test_begins_held_and_ends_with_a_step(self, stubs: Stubs, run: pb.RunKey) -> None:
        begun = calls.create(stubs, run, metadata="{}", holder="worker 1")
        assert (begun.run.key, begun.run.status, begun.run.holder, begun.run.metadata) == (
            run,
            RUNNING,
            "worker 1",
            "{}",
        )
        assert begun.fence
        assert begun.run.lease_expire_time.ToSeconds() - begun.run.create_time.ToSeconds() == 600
        assert calls.get(stubs, run) == begun.run
        assert stubs.session(run.session).message_count == 0

        first = calls.step(stubs, run, begun.fence, 1, b"one", text("question"), text("answer"), content_type="a/b")
        assert seqs(first.messages) == [1, 2]
        assert (first.status, first.lease_expire_time) == (RUNNING, begun.run.lease_expire_time)
        last = calls.step(stubs, run, begun.fence, 2, status=COMPLETED, status_reason="done")
        assert (last.status, last.HasField("lease_expire_time")) == (COMPLETED, False)

        ended = calls.get(stubs, run)
        assert (ended.status, ended.status_reason, ended.step_count) == (COMPLETED, "done", 2)
        assert ended.end_time == ended.update_time == last.create_time
        assert not ended.HasField("lease_expire_time")
        assert ended.etag == last.etag != first.etag
        assert [
            (each.number, each.payload, each.first_seq, each.message_count, each.status)
            for each in calls.steps(stubs, run)
        ] == [
            (1, b"one", 1, 2, RUNNING),
            (2, b"", 0, 0, COMPLETED),
        ]
        assert calls.steps(stubs, run)[0].content_type == "a/b"
        assert calls.steps(stubs, run)[0].create_time == first.create_time
        said = stubs.messages(run.session)
        assert [message.run_id for message in said] == ["run", "run"]
        assert seqs(stubs.messages(run.session, filter=history.MessageFilter(run_id="run"))) == [1, 2]

    def test_begins_queued_for_whoever_claims_it(self, stubs: Stubs, run: pb.RunKey) -> None:
        begun = calls.create(stubs, run, queued=True, holder="nobody yet")
        assert (begun.fence, begun.run.status, begun.run.holder) == ("", INTERRUPTED, "")
        assert not begun.run.HasField("lease_expire_time")

        claimed = calls.claim(stubs, run.session.agent, holder="worker 2")
        assert (claimed.run.key, claimed.run.status, claimed.run.holder) == (run, RUNNING, "worker 2")
        assert claimed.run.recovery_count == 0
        calls.step(stubs, run, claimed.fence, 1)
        assert calls.claim(stubs, run.session.agent) == pb.ClaimRunResponse()

    def test_without_an_id_gets_one(self, stubs: Stubs, key: session.SessionKey) -> None:
        first, second = (calls.create(stubs, pb.RunKey(session=key)) for _ in range(2))
        assert first.run.key.run_id
        assert first.run.key != second.run.key
        assert [each.key for each in calls.runs(stubs, key)] == [second.run.key, first.run.key]

    def test_begins_the_session_with_its_settings(self, stubs: Stubs, run: pb.RunKey) -> None:
        calls.create(stubs, run, create=history.SessionSettings(user_id="ada", labels={"a": "1"}))
        calls.create(stubs, run_of(run.session, "another"), create=history.SessionSettings(user_id="bob"))
        found = stubs.session(run.session)
        assert (found.user_id, dict(found.labels)) == ("ada", {"a": "1"})

    def test_goes_from_hand_to_hand_with_growing_fences(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Of two fences the later one is greater, byte by byte, also those of another run of the session."""
        other = run_of(run.session, "other")
        held = calls.create(stubs, run).fence
        fences = [held, calls.create(stubs, other).fence]
        for number in range(1, 4):
            calls.step(stubs, run, held, number, b"%d" % number)
            released = calls.release(stubs, run, held, status_reason="tired")
            assert (released.status, released.status_reason) == (INTERRUPTED, "tired")
            claimed = calls.claim(stubs, run, holder=f"worker {number}")
            assert (claimed.run.status_reason, claimed.run.step_count) == ("", number)
            held = claimed.fence
            fences.append(held)
        assert fences == sorted(fences, key=str.encode)
        assert len(set(fences)) == len(fences)
        assert [each.payload for each in calls.steps(stubs, run)] == [b"1", b"2", b"3"]
        assert calls.get(stubs, run).recovery_count == 0

    @pytest.mark.parametrize("status", [COMPLETED, pb.RUN_STATUS_BLOCKED, FAILED, CANCELLED, pb.RUN_STATUS_TIMEOUT])
    def test_that_ended_never_changes(self, sqlite_stubs: Stubs, run: pb.RunKey, status: calls.Status) -> None:
        stubs = sqlite_stubs
        fence = calls.create(stubs, run).fence
        ended = calls.update(stubs, pb.Run(key=run, status=status, status_reason="why"), fence=fence)
        assert (ended.status, ended.status_reason, ended.HasField("end_time")) == (status, "why", True)
        before = calls.all_of(stubs, run.session)
        for late in (
            lambda: calls.step(stubs, run, fence, 1),
            lambda: calls.renew(stubs, run, fence),
            lambda: calls.release(stubs, run, fence),
            lambda: calls.claim(stubs, run),
            lambda: calls.update(stubs, pb.Run(key=run, metadata="late"), fence=fence),
            lambda: calls.update(stubs, pb.Run(key=run, status=INTERRUPTED, etag=ended.etag)),
        ):
            refusal = refused(late)
            assert (refusal.reason, refusal.metadata["status"]) == ("RUN_ENDED", pb.RunStatus.Name(status)[11:])
        assert calls.claim(stubs, run.session.agent) == pb.ClaimRunResponse()
        assert calls.all_of(stubs, run.session) == before

    def test_ends_with_its_deletion(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Its messages stay, and its id is free for another run, of which a holder of the first one knows nothing."""
        old = calls.create(stubs, run).fence
        calls.step(stubs, run, old, 1, b"first", text("stays"), status=COMPLETED)
        assert calls.delete(stubs, run)
        assert not calls.delete(stubs, run)
        assert refused(lambda: calls.steps(stubs, run)).reason == "RUN_NOT_FOUND"
        assert seqs(stubs.messages(run.session)) == [1]

        new = calls.create(stubs, run)
        assert (new.run.step_count, calls.steps(stubs, run)) == (0, [])
        assert refused(lambda: calls.step(stubs, run, old, 1, b"late")).reason == "LEASE_LOST"
        calls.step(stubs, run, new.fence, 1, b"second", text("more"))
        assert [each.payload for each in calls.steps(stubs, run)] == [b"second"]


def test_an_approval_from_end_to_end(stubs: Stubs, run: pb.RunKey) -> None:
    """A worker pauses, another one can only claim it by its name, and goes on behind the last step."""
    agent = run.session.agent
    fence = calls.create(stubs, run, holder="first").fence
    calls.step(stubs, run, fence, 1, b"looked", text("May I?"))
    paused = calls.step(stubs, run, fence, 2, b"may I?", status=AWAITING_APPROVAL, status_reason="sends mail")
    assert (paused.status, paused.HasField("lease_expire_time")) == (AWAITING_APPROVAL, False)
    assert refused(lambda: calls.renew(stubs, run, fence)).reason == "LEASE_LOST"
    assert calls.claim(stubs, agent) == pb.ClaimRunResponse()

    (waiting,) = calls.runs(stubs, agent, AWAITING_APPROVAL)
    assert (waiting.key, waiting.status_reason, waiting.etag) == (run, "sends mail", paused.etag)
    approved = calls.update(stubs, pb.Run(key=run, metadata='{"approved_by": "ada"}', etag=waiting.etag))
    assert (approved.status, approved.status_reason) == (AWAITING_APPROVAL, "sends mail")
    assert refused(lambda: calls.update(stubs, pb.Run(key=run, metadata="late", etag=waiting.etag))).reason == (
        "ETAG_MISMATCH"
    )

    claimed = calls.claim(stubs, run, holder="second")
    assert (claimed.run.metadata, claimed.run.status_reason) == ('{"approved_by": "ada"}', "")
    assert claimed.run.recovery_count == 0
    (last,) = calls.steps(stubs, run, after=claimed.run.step_count - 1)
    assert (last.number, last.payload) == (2, b"may I?")
    calls.step(stubs, run, claimed.fence, 3, b"sent", text("Sent."), status=COMPLETED)
    assert [each.payload for each in calls.steps(stubs, run)] == [b"looked", b"may I?", b"sent"]
    assert calls.runs(stubs, agent, *calls.UNFINISHED) == []
    assert seqs(stubs.messages(run.session)) == [1, 2]


@pytest.mark.parametrize("status", [AWAITING_APPROVAL, AWAITING_BUDGET])
def test_what_waits_is_let_go_by_making_it_claimable(stubs: Stubs, run: pb.RunKey, status: calls.Status) -> None:
    """Instead of a claim by its name: INTERRUPTED, any worker takes it."""
    fence = calls.create(stubs, run).fence
    etag = calls.step(stubs, run, fence, 1, status=status).etag
    calls.update(stubs, pb.Run(key=run, status=INTERRUPTED, etag=etag))
    assert calls.claim(stubs, run.session.agent).run.key == run


class TestUpdates:
    def test_by_an_etag_take_the_lease_away(self, stubs: Stubs, run: pb.RunKey) -> None:
        begun = calls.create(stubs, run)
        cancelled = calls.update(
            stubs, pb.Run(key=run, status=CANCELLED, status_reason="not needed", etag=begun.run.etag)
        )
        assert (cancelled.status, cancelled.status_reason) == (CANCELLED, "not needed")
        assert refused(lambda: calls.step(stubs, run, begun.fence, 1)).reason == "RUN_ENDED"

    def test_change_what_the_mask_names(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run, metadata="old").fence
        wanted = pb.Run(key=run, status=INTERRUPTED, status_reason="why", metadata="new")
        only_metadata = calls.update(stubs, wanted, "metadata", fence=fence)
        assert (only_metadata.status, only_metadata.status_reason, only_metadata.metadata) == (RUNNING, "", "new")
        emptied = calls.update(stubs, pb.Run(key=run), "metadata", fence=fence)
        assert emptied.metadata == ""
        everything = calls.update(stubs, wanted, "*", fence=fence)
        assert (everything.status, everything.status_reason, everything.metadata) == (INTERRUPTED, "why", "new")
        assert calls.get(stubs, run) == everything

    def test_without_a_change_change_nothing(self, stubs: Stubs, run: pb.RunKey) -> None:
        begun = calls.create(stubs, run, metadata="same")
        again = calls.update(stubs, pb.Run(key=run, metadata="same"), fence=begun.fence)
        assert again == begun.run

    def test_are_overtaken_by_steps_and_renewals(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Both move the etag."""
        begun = calls.create(stubs, run)
        for change in (
            lambda: calls.step(stubs, run, begun.fence, 1),
            lambda: calls.renew(stubs, run, begun.fence),
        ):
            etag = calls.get(stubs, run).etag
            change()
            refusal = refused(lambda etag=etag: calls.update(stubs, pb.Run(key=run, status=CANCELLED, etag=etag)))  # type: ignore[misc]
            assert (refusal.reason, refusal.metadata["etag"]) == ("ETAG_MISMATCH", calls.get(stubs, run).etag)


class TestRepeatedCalls:
    """Each gets the first answer and changes nothing: a client repeats what it heard nothing of."""

    def test_of_create(self, stubs: Stubs, run: pb.RunKey) -> None:
        for id_, queued in (("held", False), ("queued", True)):
            key = run_of(run.session, id_)
            first = calls.create(stubs, key, queued=queued, metadata="m", holder="w")
            assert calls.create(stubs, key, queued=queued, metadata="m", holder="w") == first
            refusal = refused(lambda key=key, queued=queued: calls.create(stubs, key, queued=queued, metadata="n"))  # type: ignore[misc]
            assert refusal.reason == "RUN_EXISTS"

    def test_of_a_step(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Messages without ids get theirs once."""
        fence = calls.create(stubs, run).fence
        one = (b"one", text("a"), text("b"), text("c", id="mine"))
        first = calls.step(stubs, run, fence, 1, *one)
        assert calls.step(stubs, run, fence, 1, *one) == first
        second = calls.step(stubs, run, fence, 2, b"two", text("d"))
        again = calls.step(stubs, run, fence, 1, *one)
        assert (again.messages, again.create_time, again.etag) == (first.messages, first.create_time, second.etag)
        assert seqs(stubs.messages(run.session)) == [1, 2, 3, 4]
        assert len(calls.steps(stubs, run)) == 2

    def test_of_the_last_step(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Also once another worker claimed the run and went on."""
        fence = calls.create(stubs, run).fence
        said = (b"paused", text("a"))
        first = calls.step(stubs, run, fence, 1, *said, status=INTERRUPTED)
        assert calls.step(stubs, run, fence, 1, *said, status=INTERRUPTED) == first
        later = calls.claim(stubs, run).fence
        assert calls.step(stubs, run, fence, 1, *said, status=INTERRUPTED).messages == first.messages
        calls.step(stubs, run, later, 2, status=COMPLETED)
        again = calls.step(stubs, run, fence, 1, *said, status=INTERRUPTED)
        assert (again.messages, again.create_time, again.status) == (first.messages, first.create_time, COMPLETED)
        assert seqs(stubs.messages(run.session)) == [1]

    def test_of_a_named_claim(self, stubs: Stubs, run: pb.RunKey) -> None:
        calls.create(stubs, run, queued=True)
        first = calls.claim(stubs, run, holder="w", request_id="r")
        assert calls.claim(stubs, run, holder="w", request_id="r") == first
        for other in ({"request_id": "other"}, {}):
            refusal = refused(lambda other=other: calls.claim(stubs, run, **other))  # type: ignore[misc]
            assert refusal.reason == "RUN_NOT_CLAIMABLE"

    def test_of_a_release(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run).fence
        first = calls.release(stubs, run, fence, status_reason="tired")
        assert calls.release(stubs, run, fence, status_reason="tired") == first
        calls.claim(stubs, run)
        assert refused(lambda: calls.release(stubs, run, fence, status_reason="tired")).reason == "LEASE_LOST"

    def test_of_an_update_by_an_etag(self, stubs: Stubs, run: pb.RunKey) -> None:
        etag = calls.create(stubs, run, queued=True).run.etag
        for wanted in (pb.Run(key=run, metadata="approved"), pb.Run(key=run, status=CANCELLED)):
            wanted.etag = etag
            first = calls.update(stubs, wanted)
            assert calls.update(stubs, wanted) == first
            etag = first.etag

    def test_in_one_burst(self, stubs: Stubs, run: pb.RunKey) -> None:
        """Twenty tries of one step at once commit it once."""
        fence = calls.create(stubs, run).fence
        request = pb.CommitRunStepRequest(run=run, fence=fence, number=1, payload=b"one", messages=[text("a")])
        tries = [stubs.runs.CommitRunStep.future(request, timeout=30) for _ in range(20)]
        answers = [each.result() for each in tries]
        assert all(answer == answers[0] for answer in answers)
        assert len(calls.steps(stubs, run)) == len(stubs.messages(run.session)) == 1

    def test_with_other_content_are_refused(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run).fence
        calls.step(stubs, run, fence, 1, b"one", text("a"), content_type="a/b")
        before = calls.all_of(stubs, run.session)
        others: list[tuple[bytes, list[Any], str]] = [
            (b"two", [text("a")], "a/b"),
            (b"one", [text("a")], "a/c"),
            (b"one", [text("other")], "a/b"),
            (b"one", [text("a", id="mine")], "a/b"),
            (b"one", [], "a/b"),
            (b"one", [text("a"), text("b")], "a/b"),
        ]
        for payload, said, content_type in others:
            refusal = refused(
                lambda payload=payload, said=said, type_=content_type: calls.step(  # type: ignore[misc]
                    stubs, run, fence, 1, payload, *said, content_type=type_
                )
            )
            assert refusal.reason == "STEP_MISMATCH"
        assert calls.all_of(stubs, run.session) == before


class TestWhatIsKept:
    def test_of_payloads_is_byte_for_byte(self, stubs: Stubs, run: pb.RunKey) -> None:
        payloads = [bytes(range(256)), b"", b"\0", b"\xff" * 1_000, "é\U0001f600".encode(), b'{"a":9007199254740993}']
        fence = calls.create(stubs, run).fence
        for number, payload in enumerate(payloads, 1):
            calls.step(stubs, run, fence, number, payload, content_type=f"x/{number} \U0001f600")
        found = calls.steps(stubs, run)
        assert [each.payload for each in found] == payloads
        assert [each.content_type for each in found] == [f"x/{number} \U0001f600" for number in range(1, 7)]

    def test_of_texts_is_byte_for_byte(self, stubs: Stubs, key: session.SessionKey) -> None:
        for number, awkward in enumerate(AWKWARD):
            run = run_of(key, f"run {number} \U0001f600")
            begun = calls.create(stubs, run, metadata=awkward, holder="\U0001f600 w")
            assert calls.get(stubs, run).metadata == awkward
            ended = calls.step(stubs, run, begun.fence, 1, status=AWAITING_BUDGET, status_reason=awkward)
            assert calls.get(stubs, run).status_reason == awkward
            calls.update(stubs, pb.Run(key=run, metadata=awkward + "!", etag=ended.etag))
            found = calls.get(stubs, run)
            assert (found.key, found.metadata, found.holder) == (run, awkward + "!", "\U0001f600 w")
        assert {each.metadata for each in calls.runs(stubs, key)} == {awkward + "!" for awkward in AWKWARD}

    def test_of_messages_is_as_an_append_keeps_it(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run).fence
        said = [text(awkward, id=f"{n}", metadata=awkward) for n, awkward in enumerate(AWKWARD)]
        calls.step(stubs, run, fence, 1, b"", *said)
        for message in said:
            message.run_id = "run"
        assert [as_sent(message) for message in stubs.messages(run.session)] == said

    def test_at_its_limits(self, stubs: Stubs, agent: str) -> None:
        longest = "x" * 256
        run = run_of(session.SessionKey(agent=(agent + longest)[:256], session_id=longest), longest)
        fence = calls.create(stubs, run, metadata="m" * 65_536, holder=longest, lease_duration=Duration(seconds=3_600))
        said = [text(f"{number}") for number in range(256)]
        calls.step(stubs, run, fence.fence, 1, b"\xfe" * (2 * MIB), *said, content_type=longest)
        calls.release(stubs, run, fence.fence, status_reason="r" * 4_096)
        calls.claim(stubs, run, holder=longest, request_id=longest, lease_duration=Duration(seconds=3_600))
        (found,) = calls.steps(stubs, run)
        assert found.payload == b"\xfe" * (2 * MIB)
        assert (found.first_seq, found.message_count) == (1, 256)
        assert calls.get(stubs, run).metadata == "m" * 65_536


class TestPages:
    def test_of_steps_fit_a_default_client(self, stubs: Stubs, run: pb.RunKey) -> None:
        """At most 3.5 MiB of payloads, but always one step."""
        sizes = [2 * MIB, 2 * MIB, MIB, MIB // 2, MIB // 2, 1]
        fence = calls.create(stubs, run).fence
        for number, size in enumerate(sizes, 1):
            calls.step(stubs, run, fence, number, bytes([number]) * size)
        pages = calls.step_pages(stubs, run)
        found = [each for page in pages for each in page]
        assert [each.payload for each in found] == [bytes([n]) * size for n, size in enumerate(sizes, 1)]
        assert [each.number for each in found] == [1, 2, 3, 4, 5, 6]
        assert max(sum(len(each.payload) for each in page) for page in pages) <= 3.5 * MIB
        assert [len(page) for page in pages if page] == [1, 3, 2]

    def test_of_steps_go_on_behind_a_number(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run).fence
        for number in range(1, 8):
            calls.step(stubs, run, fence, number, b"%d" % number)
        for after, page_size in itertools.product((0, 3, 6, 7, 2**62), (1, 2, 3, 7, 1_000)):
            pages = calls.step_pages(stubs, run, after, page_size)
            assert all(len(page) <= page_size for page in pages)
            assert [each.number for page in pages for each in page] == list(range(min(after, 7) + 1, 8))

    def test_of_runs_are_newest_first(self, stubs: Stubs, agent: str) -> None:
        keys = [new_key(agent) for _ in range(3)]
        began = []
        for number in range(9):
            run = run_of(keys[number % 3], f"{number}")
            calls.create(stubs, run, queued=bool(number % 2))
            began.append(run)
        newest = began[::-1]
        for page_size in (1, 4, 9, 1_000):
            pages = calls.run_pages(stubs, agent, page_size=page_size)
            assert all(len(page) <= page_size for page in pages)
            assert [each.key for page in pages for each in page] == newest
            pages = calls.run_pages(stubs, keys[0], page_size=page_size)
            assert [each.key for page in pages for each in page] == [run for run in newest if run.session == keys[0]]
        assert [each.key for each in calls.runs(stubs, agent, INTERRUPTED)] == newest[1::2]
        assert [each.key for each in calls.runs(stubs, keys[1], RUNNING)] == [
            run for run in newest[0::2] if run.session == keys[1]
        ]
        assert calls.runs(stubs, agent, COMPLETED, FAILED) == []
        assert calls.runs(stubs, f"{agent} ") == []

    def test_of_runs_tell_what_get_tells(self, stubs: Stubs, run: pb.RunKey) -> None:
        begun = calls.create(stubs, run, metadata="m", holder="h")
        calls.step(stubs, run, begun.fence, 1, status=FAILED, status_reason="why")
        assert calls.runs(stubs, run.session) == calls.runs(stubs, run.session.agent) == [calls.get(stubs, run)]


class TestTheLongestWaiting:
    def test_is_claimed_first(self, stubs: Stubs, agent: str) -> None:
        """Whatever the session, and counted from when a run became claimable."""
        order = [run_of(new_key(agent)) for _ in range(4)]
        fence = calls.create(stubs, order[3]).fence
        for run in order[:3]:
            calls.create(stubs, run, queued=True)
        calls.release(stubs, order[3], fence)
        assert [calls.claim(stubs, agent).run.key for _ in order] == order
        assert calls.claim(stubs, agent) == pb.ClaimRunResponse()

    def test_is_left_alone_when_it_waits_for_something(self, stubs: Stubs, agent: str) -> None:
        for status in (AWAITING_APPROVAL, AWAITING_BUDGET, COMPLETED):
            run = run_of(new_key(agent))
            calls.step(stubs, run, calls.create(stubs, run).fence, 1, status=status)
        last = run_of(new_key(agent))
        calls.create(stubs, last, queued=True)
        assert calls.claim(stubs, agent).run.key == last
        assert calls.claim(stubs, agent) == pb.ClaimRunResponse()


class TestSessions:
    def test_that_are_cleared_or_rewound_keep_their_runs(self, stubs: Stubs, run: pb.RunKey) -> None:
        fence = calls.create(stubs, run).fence
        calls.step(stubs, run, fence, 1, b"one", text("a"), text("b"))
        stubs.histories.RewindSession(history.RewindSessionRequest(session=run.session, to_seq=1), timeout=30)
        calls.step(stubs, run, fence, 2, b"two", text("c"))
        stubs.clear(run.session)
        third = calls.step(stubs, run, fence, 3, b"three", text("d"))
        assert [each.payload for each in calls.steps(stubs, run)] == [b"one", b"two", b"three"]
        assert seqs(stubs.messages(run.session)) == seqs(third.messages)

    def test_whose_time_is_over_are_gone_with_their_runs_unless_one_goes_on(self, stubs: Stubs, agent: str) -> None:
        """Time to live does not run while a run is unfinished (invariant 18)."""
        ended, going, queued = (run_of(new_key(agent)) for _ in range(3))
        create = history.SessionSettings(ttl=Duration(seconds=1))
        old = calls.create(stubs, ended, create=create).fence
        fence = calls.create(stubs, going, create=create).fence
        calls.create(stubs, queued, create=create, queued=True)
        calls.step(stubs, ended, old, 1, b"gone", text("gone"), status=COMPLETED)
        wait_until_gone(stubs, ended.session)

        assert refused(lambda: calls.get(stubs, ended)).reason == "SESSION_NOT_FOUND"
        assert {each.key.session.session_id for each in calls.runs(stubs, agent)} == {
            going.session.session_id,
            queued.session.session_id,
        }
        assert not calls.delete(stubs, ended)
        calls.step(stubs, going, fence, 1, b"goes on", text("still here"))
        assert calls.claim(stubs, agent).run.key == queued

        new = calls.create(stubs, ended)
        assert (new.run.step_count, calls.steps(stubs, ended), stubs.messages(ended.session)) == (0, [], [])
        for late in (
            lambda: calls.step(stubs, ended, old, 1, b"gone", text("gone"), status=COMPLETED),
            lambda: calls.renew(stubs, ended, old),
            lambda: calls.release(stubs, ended, old),
            lambda: calls.update(stubs, pb.Run(key=ended, metadata="late"), fence=old),
        ):
            assert refused(late).reason == "LEASE_LOST"
        assert calls.get(stubs, ended) == new.run

    def test_of_an_erased_user_are_counted_with_runs_and_steps(self, stubs: Stubs, agent: str) -> None:
        user_id = f"user of {agent}"
        create = history.SessionSettings(user_id=user_id)
        of_user = [run_of(key, id_) for key in (new_key(agent), new_key(agent)) for id_ in ("a", "b")]
        other = run_of(new_key(agent))
        for number, run in enumerate([*of_user, other]):
            fence = calls.create(stubs, run, create=create if run is not other else history.SessionSettings()).fence
            for step in range(1, 3):
                status = COMPLETED if (step, number % 2) == (2, 0) else RUNNING
                calls.step(stubs, run, fence, step, b"%d" % step, text("hello"), status=status)
        erased = stubs.histories.EraseUser(history.EraseUserRequest(user_id=user_id), timeout=60)
        assert (erased.erased_session_count, erased.erased_message_count) == (2, 8)
        assert (erased.erased_run_count, erased.erased_run_step_count) == (4, 8)
        assert [each.key for each in calls.runs(stubs, agent)] == [other]
        assert len(calls.steps(stubs, other)) == 2
        assert {refused(lambda run=run: calls.get(stubs, run)).reason for run in of_user} == {"SESSION_NOT_FOUND"}  # type: ignore[misc]


def test_a_step_with_a_bad_message_is_nothing(stubs: Stubs, run: pb.RunKey) -> None:
    """Step, messages and status are one commit: of a refused one nothing is stored."""
    fence = calls.create(stubs, run).fence
    stubs.append(run.session, text("known", id="known"))
    before = calls.all_of(stubs, run.session)
    for said in ([text("new"), text("other", id="known")], [text("known", id="known")]):
        refusal = refused(
            lambda said=said: calls.step(stubs, run, fence, 1, b"one", *said, status=COMPLETED)  # type: ignore[misc]
        )
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "MESSAGE_ID_CONFLICT")
        assert refusal.metadata["message_id"] == "known"
    assert calls.all_of(stubs, run.session) == before
    assert seqs(calls.step(stubs, run, fence, 1, b"one", text("new")).messages) == [2]

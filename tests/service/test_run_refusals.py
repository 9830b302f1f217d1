"""What RunService refuses: each call gets the status, the reason and what belongs to it, and changes nothing."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import message_pb2 as messages
from memoryd.v1 import run_service_pb2 as pb
from memoryd.v1 import session_pb2 as session
from memoryd_server import limits
from tests.service import run_calls as calls
from tests.service.run_calls import AWAITING_APPROVAL, COMPLETED, INTERRUPTED, RUNNING, run_of
from tests.service.test_bad_input import BAD, INVALID, KIB, LONG, LONG_IN_BYTES, MIB, NUL, REQUIRED, TOO_LARGE
from tests.service.wire import Stubs, new_key, refused, text

FOREIGN: Final = "0" * 16 + "-" + "0" * 32
"""A fence as one looks, which no server has given."""


@dataclass(frozen=True)
class Held:
    """A run that has one step and is held."""

    run: pb.RunKey
    fence: str
    etag: str


def held(stubs: Stubs, agent: str) -> Held:
    run = run_of(new_key(agent))
    fence = calls.create(stubs, run).fence
    calls.step(stubs, run, fence, 1, b"one", text("one", id="one"))
    return Held(run, fence, calls.get(stubs, run).etag)


Call = Callable[[Stubs, Held], object]


def creating(run_id: str = "new", *, key: session.SessionKey | None = None, **fields: Any) -> Call:
    return lambda stubs, held: calls.create(stubs, run_of(key or held.run.session, run_id), **fields)


def stepping(number: int = 2, *said: messages.Message, payload: bytes = b"", **fields: Any) -> Call:
    def call(stubs: Stubs, held: Held) -> object:
        named: dict[str, Any] = {"run": held.run, "fence": held.fence} | fields
        request = pb.CommitRunStepRequest(number=number, payload=payload, messages=said, **named)
        return stubs.runs.CommitRunStep(request, timeout=30)

    return call


def updating(*paths: str, by: str = "fence", **fields: Any) -> Call:
    """As the holder; or by its etag, or by nothing."""

    def call(stubs: Stubs, held: Held) -> object:
        named: dict[str, Any] = {"key": held.run, "etag": held.etag if by == "etag" else ""} | fields
        return calls.update(stubs, pb.Run(**named), *paths, fence=held.fence if by == "fence" else "")

    return call


def claiming(**fields: Any) -> Call:
    return lambda stubs, held: stubs.runs.ClaimRun(pb.ClaimRunRequest(**{"run": held.run} | fields), timeout=30)


def renewing(**fields: Any) -> Call:
    def call(stubs: Stubs, held: Held) -> object:
        named: dict[str, Any] = {"run": held.run, "fence": held.fence} | fields
        return stubs.runs.RenewRunLease(pb.RenewRunLeaseRequest(**named), timeout=30)

    return call


def releasing(**fields: Any) -> Call:
    def call(stubs: Stubs, held: Held) -> object:
        named: dict[str, Any] = {"run": held.run, "fence": held.fence} | fields
        return stubs.runs.ReleaseRun(pb.ReleaseRunRequest(**named), timeout=30)

    return call


def listing(**fields: Any) -> Call:
    return lambda stubs, held: stubs.runs.ListRuns(pb.ListRunsRequest(**{"session": held.run.session} | fields))


def listing_steps(**fields: Any) -> Call:
    return lambda stubs, held: stubs.runs.ListRunSteps(pb.ListRunStepsRequest(**{"run": held.run} | fields))


@dataclass(frozen=True)
class Case:
    """A call that must fail, about a run that is held."""

    call: Call
    reason: str
    field: str
    limit: int | None = None
    """With FIELD_TOO_LARGE: the limit that the answer names."""
    says: str = ""
    """What the text must say."""


ON_A_RUN: Final[Mapping[str, Callable[[pb.RunKey], Call]]] = {
    "GetRun": lambda run: lambda stubs, _: calls.get(stubs, run),
    "CommitRunStep": lambda run: stepping(run=run),
    "ListRunSteps": lambda run: listing_steps(run=run),
    "UpdateRun": lambda run: updating(key=run, metadata="m"),
    "ClaimRun": lambda run: claiming(run=run),
    "RenewRunLease": lambda run: renewing(run=run),
    "ReleaseRun": lambda run: releasing(run=run),
    "DeleteRun": lambda run: lambda stubs, _: calls.delete(stubs, run),
}
"""The methods that name a run which is there."""

KEY: Final = session.SessionKey(agent="a", session_id="s")
BAD_RUN_KEYS: Final[Mapping[str, tuple[pb.RunKey, str, str]]] = {
    "nothing": (pb.RunKey(), REQUIRED, "session.agent"),
    "no agent": (run_of(session.SessionKey(session_id="s")), REQUIRED, "session.agent"),
    "no session id": (run_of(session.SessionKey(agent="a")), REQUIRED, "session.session_id"),
    "an agent over the limit": (run_of(session.SessionKey(agent=LONG, session_id="s")), TOO_LARGE, "session.agent"),
    "a session id with U+0000": (run_of(session.SessionKey(agent="a", session_id=NUL)), BAD, "session.session_id"),
    "a run id over the limit": (run_of(KEY, LONG), TOO_LARGE, "run_id"),
    "a run id over the limit in bytes": (run_of(KEY, LONG_IN_BYTES), TOO_LARGE, "run_id"),
    "a huge run id": (run_of(KEY, "é" * 500_000), TOO_LARGE, "run_id"),
    "a run id with U+0000": (run_of(KEY, NUL), BAD, "run_id"),
}

LEASES: Final = {
    "of half a second": Duration(nanos=500_000_000),
    "of nothing": Duration(),
    "of a negative time": Duration(seconds=-30),
    "of more than an hour": Duration(seconds=3_601),
    "of a moment more than an hour": Duration(seconds=3_600, nanos=1_000),
    "that is no Duration": Duration(seconds=30, nanos=1_000_000_000),
    "with two signs": Duration(seconds=30, nanos=-1),
    "beyond all bounds": Duration(seconds=2**62),
}
LEASING: Final[Mapping[str, Callable[..., Call]]] = {
    "CreateRun": creating,
    "a queued CreateRun": partial(creating, queued=True),
    "CommitRunStep": stepping,
    "ClaimRun": claiming,
    "ClaimRun of any": lambda **fields: claiming(**{"run": None, "agent": "nobody"} | fields),
    "RenewRunLease": renewing,
}

FENCES: Final = {
    "that is garbage": "garbage",
    "with a byte too few": FOREIGN[:-1],
    "with a byte too many": f"{FOREIGN}0",
    "in capitals": FOREIGN.replace("0", "A"),
    "with a line break": f"{FOREIGN}\n",
    "of other digits": FOREIGN.replace("0", "\u0660"),
    "with U+0000": NUL,
    "that is huge": "0" * 500_000,
}
FENCED: Final[Mapping[str, Callable[..., Call]]] = {
    "CommitRunStep": stepping,
    "RenewRunLease": renewing,
    "ReleaseRun": releasing,
}

CASES: Final[dict[str, Case]] = {
    **{
        f"{method} of {what}": Case(
            of(run),
            reason,
            f"run.{'key.' * (method == 'UpdateRun')}{field}",
            limit=256 if reason == TOO_LARGE else None,
        )
        for method, of in ON_A_RUN.items()
        for what, (run, reason, field) in BAD_RUN_KEYS.items()
    },
    **{
        f"{method} of no run id": Case(
            of(run_of(KEY, "")), REQUIRED, f"run.{'key.' * (method == 'UpdateRun')}run_id", says="the run's id"
        )
        for method, of in ON_A_RUN.items()
    },
    **{
        f"{method} with a lease {what}": Case(of(lease_duration=lease), BAD, "lease_duration")
        for method, of in LEASING.items()
        for what, lease in LEASES.items()
    },
    **{
        f"{method} with a fence {what}": Case(of(fence=fence), BAD, "fence")
        for method, of in FENCED.items()
        for what, fence in FENCES.items()
    },
    **{
        f"{method} without a fence": Case(of(fence=""), REQUIRED, "fence", says="created or claimed")
        for method, of in FENCED.items()
    },
    # CreateRun
    "a new run without a session": Case(
        creating(key=session.SessionKey(agent="a")), REQUIRED, "run.session.session_id"
    ),
    "a new run's id over the limit": Case(creating(LONG), TOO_LARGE, "run.run_id", limit=256),
    "a new run's id with U+0000": Case(creating(NUL), BAD, "run.run_id", says="U+0000"),
    "metadata over the limit": Case(creating(metadata="m" * (64 * KIB + 1)), TOO_LARGE, "metadata", limit=64 * KIB),
    "metadata over the limit in bytes": Case(
        creating(metadata="é" * (32 * KIB) + "x"), TOO_LARGE, "metadata", limit=64 * KIB
    ),
    "a holder over the limit": Case(creating(holder=LONG), TOO_LARGE, "holder", limit=256),
    "a holder with U+0000": Case(creating(holder=NUL), BAD, "holder"),
    "settings of too many labels": Case(
        creating(create={"labels": {f"{number}": "" for number in range(65)}}), TOO_LARGE, "create.labels", limit=64
    ),
    "settings of an unknown tokenizer": Case(creating(create={"tokenizer": 77}), BAD, "create.tokenizer"),
    "settings of no time to live": Case(creating(create={"ttl": Duration()}), BAD, "create.ttl"),
    # CommitRunStep
    "step 0": Case(stepping(0), BAD, "number", says="1 or more"),
    "step -1": Case(stepping(-1), BAD, "number"),
    "step -2^63": Case(stepping(-(2**63)), BAD, "number"),
    "a payload over the limit": Case(
        stepping(payload=b"\0" * (2 * MIB + 1)), TOO_LARGE, "payload", limit=2 * MIB, says="keep it elsewhere"
    ),
    "a content type over the limit": Case(stepping(content_type=LONG), TOO_LARGE, "content_type", limit=256),
    "a content type with U+0000": Case(stepping(content_type=NUL), BAD, "content_type"),
    "too many messages": Case(
        stepping(2, *[text("m")] * 257), TOO_LARGE, "messages", limit=256, says="in several steps"
    ),
    "messages too large together": Case(
        stepping(2, *[text("x" * (MIB + MIB // 2))] * 3),
        TOO_LARGE,
        "messages",
        limit=7 * MIB // 2,
        says="in several steps",
    ),
    "a message too large": Case(stepping(2, text("m"), text("x" * 2 * MIB)), TOO_LARGE, "messages[1]", limit=2 * MIB),
    "a message of another run": Case(
        stepping(2, text("m", run_id="run"), text("m", run_id="another")), BAD, "messages[1].run_id", says="'run'"
    ),
    "a message without a role": Case(stepping(2, messages.Message()), BAD, "messages[0].role"),
    "two messages with one id": Case(
        stepping(2, text("m", id="i"), text("n", id="i")), BAD, "messages[1].id", says="message of this step"
    ),
    "a message id with U+0000": Case(stepping(2, text("m", id=NUL)), BAD, "messages[0].id"),
    "an unknown status of a step": Case(stepping(status=77), BAD, "status", says="COMPLETED"),
    "a negative status of a step": Case(stepping(status=-1), BAD, "status"),
    "a reason over the limit": Case(
        stepping(status=COMPLETED, status_reason="r" * (4 * KIB + 1)), TOO_LARGE, "status_reason", limit=4 * KIB
    ),
    "a reason of a step that leaves the run as it is": Case(stepping(status_reason="r"), BAD, "status_reason"),
    "a reason of RUNNING": Case(stepping(status=RUNNING, status_reason="r"), BAD, "status_reason", says="RUNNING"),
    # UpdateRun
    "neither a fence nor an etag": Case(updating(by="nothing", metadata="m"), REQUIRED, "run.etag", says="fence"),
    "an update with a fence that is garbage": Case(
        lambda stubs, held: calls.update(stubs, pb.Run(key=held.run, metadata="m"), fence="garbage"), BAD, "fence"
    ),
    "an unknown path": Case(updating("holder", metadata="m"), BAD, "update_mask", says="'holder'"),
    "an unknown path beside a known one": Case(updating("metadata", "key.run_id", metadata="m"), BAD, "update_mask"),
    "an unknown status": Case(updating(status=77), BAD, "run.status", says="77"),
    "no status by a mask": Case(updating("status"), BAD, "run.status"),
    "RUNNING by an etag": Case(updating(by="etag", status=RUNNING), BAD, "run.status", says="claimed"),
    "a reason of a run that stays RUNNING": Case(updating(status_reason="r"), BAD, "run.status_reason", says="RUNNING"),
    "a new reason over the limit": Case(
        updating(status=COMPLETED, status_reason="é" * (2 * KIB) + "x"), TOO_LARGE, "run.status_reason", limit=4 * KIB
    ),
    "new metadata over the limit": Case(
        updating(metadata="m" * (64 * KIB + 1)), TOO_LARGE, "run.metadata", limit=64 * KIB
    ),
    # ClaimRun, ReleaseRun
    "a claim of nothing": Case(claiming(run=None), REQUIRED, "of"),
    "a claim of an empty agent": Case(claiming(run=None, agent=""), REQUIRED, "agent"),
    "a claim of an agent over the limit": Case(claiming(run=None, agent=LONG), TOO_LARGE, "agent", limit=256),
    "a claim of an agent with U+0000": Case(claiming(run=None, agent=NUL), BAD, "agent"),
    "a claimer over the limit": Case(claiming(holder=LONG), TOO_LARGE, "holder", limit=256),
    "a claimer with U+0000": Case(claiming(holder=NUL), BAD, "holder"),
    "a request id over the limit": Case(claiming(request_id=LONG), TOO_LARGE, "request_id", limit=256),
    "a request id with U+0000": Case(claiming(request_id=NUL), BAD, "request_id"),
    "a release with a reason over the limit": Case(
        releasing(status_reason="r" * (4 * KIB + 1)), TOO_LARGE, "status_reason", limit=4 * KIB
    ),
    # Lists
    "a list of nothing": Case(listing(session=None), REQUIRED, "of"),
    "a list of an empty agent": Case(listing(session=None, agent=""), REQUIRED, "agent"),
    "a list of an agent over the limit": Case(listing(session=None, agent=LONG), TOO_LARGE, "agent", limit=256),
    "a list of a session without an id": Case(
        listing(session=session.SessionKey(agent="a")), REQUIRED, "session.session_id"
    ),
    "a list of an unknown status": Case(listing(statuses=[COMPLETED, 77]), BAD, "statuses", says="77"),
    "a list of no status": Case(listing(statuses=[0]), BAD, "statuses"),
    "a negative page size": Case(listing(page_size=-1), BAD, "page_size"),
    "a negative page size of steps": Case(listing_steps(page_size=-1), BAD, "page_size"),
    "steps after -1": Case(listing_steps(after_number=-1), BAD, "after_number"),
    "a made-up page token": Case(listing(page_token="made up"), "PAGE_TOKEN_INVALID", "page_token"),
    "a made-up page token of steps": Case(listing_steps(page_token="made up"), "PAGE_TOKEN_INVALID", "page_token"),
}


@pytest.fixture(scope="module")
def one(server: Any) -> Any:
    """A run on the shared server, for all calls that must leave it as it is."""
    with Stubs(server.address) as stubs:
        yield held(stubs, "test_run_refusals")


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_by_its_field(sqlite_stubs: Stubs, one: Held, case: str) -> None:
    before = calls.all_of(sqlite_stubs, one.run.session)
    expected = CASES[case]
    refusal = refused(lambda: expected.call(sqlite_stubs, one))

    assert (refusal.code, refusal.reason) == (INVALID, expected.reason)
    assert refusal.metadata["field"] == expected.field
    assert expected.field in refusal.text
    assert expected.says in refusal.text
    if expected.limit is not None:
        assert refusal.metadata["limit"] == str(expected.limit)
        assert int(refusal.metadata["actual"]) > expected.limit
    assert calls.all_of(sqlite_stubs, one.run.session) == before


class TestReasons:
    """Each on every store, with what belongs to it."""

    @pytest.fixture
    def held(self, stubs: Stubs, agent: str) -> Held:
        return held(stubs, agent)

    def check(
        self, stubs: Stubs, held: Held, call: Call, code: grpc.StatusCode, reason: str, **metadata: str
    ) -> float | None:
        """Returns: after how many seconds the caller may try again."""
        before = calls.all_of(stubs, held.run.session)
        refusal = refused(lambda: call(stubs, held))
        assert (refusal.code, refusal.reason) == (code, reason)
        names = {"agent": held.run.session.agent, "session_id": held.run.session.session_id}
        assert dict(refusal.metadata) == names | metadata | {"correlation_id": refusal.correlation_id}
        assert calls.all_of(stubs, held.run.session) == before
        return refusal.retry_seconds

    @pytest.mark.parametrize("method", [*ON_A_RUN, "ListRuns"])
    def test_no_such_session(self, stubs: Stubs, held: Held, method: str) -> None:
        """A read or a change begins none; to delete what is not there deletes nothing."""
        nobody = session.SessionKey(agent=held.run.session.agent, session_id="nobody")
        call = listing(session=nobody) if method == "ListRuns" else ON_A_RUN[method](run_of(nobody))
        if method == "DeleteRun":
            assert call(stubs, held) is False
        else:
            refusal = refused(lambda: call(stubs, held))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
            assert (refusal.metadata["agent"], refusal.metadata["session_id"]) == (nobody.agent, nobody.session_id)
            assert "it never began, has expired, or was erased" in refusal.text
        assert refused(lambda: stubs.session(nobody)).reason == "SESSION_NOT_FOUND"

    @pytest.mark.parametrize("method", [method for method in ON_A_RUN if method != "DeleteRun"])
    def test_no_such_run(self, stubs: Stubs, held: Held, method: str) -> None:
        call = ON_A_RUN[method](run_of(held.run.session, "none"))
        self.check(stubs, held, call, grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", run_id="none")
        told = refused(lambda: call(stubs, held)).text
        assert "it was never created, or is deleted: by somebody, or since its retention is over" in told

    def test_another_run_of_that_id(self, stubs: Stubs, held: Held) -> None:
        for call in (creating("run"), creating("run", queued=True), creating("run", metadata="other")):
            self.check(stubs, held, call, grpc.StatusCode.ALREADY_EXISTS, "RUN_EXISTS", run_id="run")
        calls.release(stubs, held.run, held.fence)
        self.check(stubs, held, creating("run"), grpc.StatusCode.ALREADY_EXISTS, "RUN_EXISTS", run_id="run")

    def test_a_run_that_another_holds(self, stubs: Stubs, held: Held) -> None:
        lost = partial(self.check, stubs, held, code=grpc.StatusCode.FAILED_PRECONDITION)
        retry = lost(claiming(), reason="RUN_NOT_CLAIMABLE", run_id="run", holder="")
        assert retry is not None
        assert 540 < retry <= 600
        calls.release(stubs, held.run, held.fence)
        calls.claim(stubs, held.run, holder="ada", lease_duration=Duration(seconds=60))
        retry = lost(claiming(), reason="RUN_NOT_CLAIMABLE", run_id="run", holder="ada")
        assert retry is not None
        assert 1 <= retry <= 60

    @pytest.mark.parametrize(
        "why", ["released", "another claimed it", "it waits", "another run's", "another session's"]
    )
    def test_a_lease_that_is_lost(self, stubs: Stubs, held: Held, why: str) -> None:
        fence = held.fence
        if why == "it waits":
            calls.step(stubs, held.run, fence, 2, status=AWAITING_APPROVAL)
        elif why == "another run's":
            fence = calls.create(stubs, run_of(held.run.session, "another")).fence
        elif why == "another session's":
            fence = calls.create(stubs, run_of(new_key(held.run.session.agent))).fence
        else:
            calls.release(stubs, held.run, fence)
            if why == "another claimed it":
                calls.claim(stubs, held.run)
        stale = Held(held.run, fence, held.etag)
        number = calls.get(stubs, held.run).step_count + 1
        for call in (
            stepping(number, text("late")),
            stepping(number, status=COMPLETED),
            renewing(),
            releasing(status_reason="late"),
            updating(metadata="late"),
            updating(status=COMPLETED),
        ):
            retry = self.check(stubs, stale, call, grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST", run_id="run")
            assert retry is None

    def test_a_run_that_ended(self, stubs: Stubs, held: Held) -> None:
        calls.step(stubs, held.run, held.fence, 2, status=COMPLETED)
        ended = partial(self.check, stubs, held, code=grpc.StatusCode.FAILED_PRECONDITION, reason="RUN_ENDED")
        for call in (stepping(3), claiming(), renewing(), releasing(), updating(metadata="late")):
            ended(call, run_id="run", status="COMPLETED")

    @pytest.mark.parametrize("number", [3, 4, 2**63 - 1])
    def test_a_step_that_is_not_the_next(self, stubs: Stubs, held: Held, number: int) -> None:
        call = stepping(number, text("early"), status=COMPLETED)
        names = {"run_id": "run", "number": str(number), "step_count": "1"}
        self.check(stubs, held, call, grpc.StatusCode.ABORTED, "STEP_MISMATCH", **names)

    def test_a_step_that_is_committed_with_other_content(self, stubs: Stubs, held: Held) -> None:
        call = stepping(1, payload=b"other")
        names = {"run_id": "run", "number": "1", "step_count": "1"}
        self.check(stubs, held, call, grpc.StatusCode.ABORTED, "STEP_MISMATCH", **names)

    def test_an_etag_of_before(self, stubs: Stubs, held: Held) -> None:
        calls.renew(stubs, held.run, held.fence)
        refusal = refused(lambda: updating(by="etag", metadata="late")(stubs, held))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
        assert refusal.metadata["etag"] == calls.get(stubs, held.run).etag

    def test_a_run_that_has_not_ended_is_not_deleted(self, stubs: Stubs, held: Held) -> None:
        for status in ("RUNNING", "INTERRUPTED"):
            self.check(
                stubs,
                held,
                ON_A_RUN["DeleteRun"](held.run),
                grpc.StatusCode.FAILED_PRECONDITION,
                "RUN_UNFINISHED",
                run_id="run",
                status=status,
            )
            if status == "RUNNING":
                calls.release(stubs, held.run, held.fence)

    def test_more_runs_than_a_session_may_have(self, stubs: Stubs, held: Held) -> None:
        """Those that ended do not count."""
        for number in range(limits.MAX_UNFINISHED_RUNS - 1):
            calls.create(stubs, run_of(held.run.session, f"{number}"), queued=True)
        for queued in (False, True):
            retry = self.check(
                stubs, held, creating(queued=queued), grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_RUNS", limit="64"
            )
            assert retry is None
        calls.step(stubs, held.run, held.fence, 2, status=COMPLETED)
        assert calls.create(stubs, run_of(held.run.session, "new")).run.status == RUNNING


class TestForeignPageTokens:
    """A page token is good for the query that gave it, and for no other."""

    @pytest.fixture
    def held(self, sqlite_stubs: Stubs, agent: str) -> Held:
        one = held(sqlite_stubs, agent)
        for number in range(2, 4):
            calls.step(sqlite_stubs, one.run, one.fence, number)
            calls.create(sqlite_stubs, run_of(one.run.session, f"{number}"), queued=True)
        return one

    @pytest.mark.parametrize(
        "other",
        [
            {"statuses": [INTERRUPTED]},
            {"agent": "another"},
            {"session": session.SessionKey(agent="another", session_id="another")},
        ],
    )
    def test_of_another_list(self, sqlite_stubs: Stubs, held: Held, other: dict[str, Any]) -> None:
        request = pb.ListRunsRequest(session=held.run.session, page_size=1)
        token = sqlite_stubs.runs.ListRuns(request).next_page_token
        assert token
        if "agent" in other:
            other = {"agent": held.run.session.agent, "session": None}
        refusal = refused(lambda: listing(page_token=token, **other)(sqlite_stubs, held))
        assert (refusal.code, refusal.reason) == (INVALID, "PAGE_TOKEN_INVALID")
        assert refused(lambda: listing_steps(page_token=token)(sqlite_stubs, held)).reason == "PAGE_TOKEN_INVALID"

    def test_of_other_steps(self, sqlite_stubs: Stubs, held: Held) -> None:
        request = pb.ListRunStepsRequest(run=held.run, page_size=1)
        token = sqlite_stubs.runs.ListRunSteps(request).next_page_token
        for call in (
            listing_steps(page_token=token, after_number=1),
            listing_steps(page_token=token, run=run_of(held.run.session, "2")),
            listing(page_token=token),
        ):
            assert refused(partial(call, sqlite_stubs, held)).reason == "PAGE_TOKEN_INVALID"

    def test_that_are_damaged(self, sqlite_stubs: Stubs, held: Held) -> None:
        request = pb.ListRunStepsRequest(run=held.run, page_size=1)
        token = sqlite_stubs.runs.ListRunSteps(request).next_page_token
        alphabet = string.ascii_letters
        # Base64 may spell the same bytes in several ways, in its last character.
        for place in range(len(token) - 1):
            other = alphabet[(alphabet.find(token[place]) + 7) % len(alphabet)]
            damaged = token[:place] + other + token[place + 1 :]
            refusal = refused(lambda damaged=damaged: listing_steps(page_token=damaged)(sqlite_stubs, held))  # type: ignore[misc]
            assert refusal.reason == "PAGE_TOKEN_INVALID"

"""How large a session's record gets when it holds as much of everything as it may (design section 1)."""

from __future__ import annotations

from typing import Final

from memoryd_server import limits
from memoryd_server.engine import changes, run_changes
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.engine.run_changes import NewRun
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.tokens import O200K_BASE
from memoryd_server.stores.records import (
    Covered,
    Folding,
    OpenCall,
    OpenCalls,
    OpenGroup,
    OpenState,
    Oversize,
    Policy,
    Record,
    RemovedRange,
    Retention,
    RunLink,
    RunState,
    RunStatus,
    SummaryLink,
    SummaryPolicy,
    WindowMode,
    WindowOptions,
    encode_open,
    encode_record,
    replace,
)
from tests.engine.messages import KEY
from tests.engine.sessions import TIME

MANY: Final = 10**9 - 1
"""Messages, tokens and versions of a session that is far beyond any."""
TOKEN: Final = id_token("x" * limits.MAX_ID_BYTES)
"""As long as any: those of short ids are no longer."""
COVERED: Final = Covered(MANY, MANY, MANY, MANY, MANY)
LONGEST_LABELS: Final = {f"{number:02}{'k' * 254}": "v" * 256 for number in range(limits.MAX_LABELS)}
LARGEST_POLICY: Final = Policy(
    WindowOptions(WindowMode.TOKENS, limits.MAX_WINDOW_TOKENS, True, True, OpenCalls.SYNTHESIZE, Oversize.SHORTEN),
    SummaryPolicy(False, "extractive", limits.MAX_SUMMARY_TOKENS, limits.MAX_WINDOW_TOKENS, Retention.DELETE, False),
)


def full_record() -> Record:
    """A record at every limit, but without settings; each of its open calls is of a group of its own, and of a run."""
    calls = (OpenCall(TOKEN, MANY, (0,)),) * limits.MAX_OPEN_CALLS
    open_groups = (OpenGroup(MANY, 1, MANY, 1, lost=False, run=TOKEN),) * limits.MAX_OPEN_CALLS
    state = RunState(RunStatus.RUNNING, MANY, MANY, MANY, TIME, TIME, recoveries=9)
    link = SummaryLink(MANY, MANY, MANY, MANY, MANY, limits.MAX_SUMMARY_TOKENS, limits.MIB, MANY, COVERED, True)
    return Record(
        incarnation="f" * 32,
        version=MANY,
        tokenizer=O200K_BASE,
        created=TIME,
        activity=TIME,
        appended=TIME,
        ttl=limits.MAX_TTL_SECONDS * 1_000_000,
        epoch=MANY,
        settings_version=MANY,
        first_seq=MANY,
        last_seq=MANY,
        rewound_to=MANY,
        opening_to=MANY,
        last_user=MANY,
        messages=MANY,
        tokens=MANY,
        bytes=MANY,
        open_messages=MANY,
        orphan_messages=MANY,
        largest=limits.MAX_MESSAGE_BYTES,
        open_call_count=limits.MAX_OPEN_CALLS,
        open=encode_open(OpenState(calls, open_groups)),
        removed=(RemovedRange(MANY, MANY, TIME),) * limits.MAX_REMOVED_RANGES,
        summaries=(link,) * limits.MAX_SUMMARIES,
        last_summary=MANY,
        folding=Folding(
            *("f" * 32, TIME, TIME, "extractive", MANY, MANY, MANY, MANY, MANY, COVERED),
            *(TIME, MANY, TIME, "unreachable or so", MANY),
        ),
        runs=(RunLink(TOKEN, state),) * limits.MAX_UNFINISHED_RUNS,
    )


def test_a_record_at_every_limit_is_within_its_own() -> None:
    """Every limit at once: settings never stand in the way of an append, a run or a summary."""
    assert len(encode_record(full_record())) + limits.MAX_SETTINGS_BYTES <= limits.MAX_RECORD_BYTES


def test_the_longest_plain_labels_are_accepted_beside_the_largest_policy() -> None:
    """64 of 256 bytes and as many again, and a user (design section 3, Limits)."""
    record = changes.birth(SessionSettings("u" * 256, LONGEST_LABELS, policy=LARGEST_POLICY), O200K_BASE, TIME)
    changes.check_settings_size(record)


def test_a_run_takes_as_much_of_a_record_as_the_largest_state_of_one() -> None:
    """The states above are those that the engine makes."""
    record = full_record()
    empty = replace(record, runs=())
    new = NewRun(RunKey(KEY, "x" * limits.MAX_ID_BYTES), "m", "h", 1_000_000, SessionSettings(), O200K_BASE)
    _, (after, _) = run_changes.plan_create(empty, new, TIME)
    one = replace(record, runs=record.runs[:1])
    assert len(encode_record(after)) <= len(encode_record(one)) + 1  # Its version is one more.

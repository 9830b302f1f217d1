"""The runs of an agent where calls for runs are measured, and how they are loaded: most have ended, some are queued,
and one is there for a worker to hold.

They are committed to the store many at once: by calls, so many would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from memoryd.v1.run_service_pb2 import RunKey
from memoryd.v1.session_pb2 import SessionKey
from memoryd_server.engine.changes import SessionSettings, birth
from memoryd_server.engine.record_tokens import id_token
from memoryd_server.engine.runtime import Runtime
from memoryd_server.interceptors.authentication import DEFAULT_TENANT
from memoryd_server.stores import records
from memoryd_server.stores.base import Change, Committed, RunChange
from memoryd_server.stores.records import RunHead, RunLink, RunState, RunStatus, StoredStep, replace
from tests.bench.histories import prose
from tests.bench.sessions import SessionPlan

QUEUED: Final = "queued"
"""The id of queued runs, each in a session of its own."""
HELD: Final = f"{0:032x}"
"""The id of the run that is there to be held: as long as those that the server makes."""
CLAIMS_IN_A_ROW: Final = 32
"""How many runs of an agent are claimed before they are given back. The calls for that fill caches of the machine: in
front of each claim, and of none of the floor's calls, they would make a difference that no claim is to blame for.
"""
QUEUED_RUNS: Final = 2 * CLAIMS_IN_A_ROW
"""Of each agent: enough for as many callers again that claim meanwhile."""

_TOGETHER: Final = 500
"""Rows of a commit."""
_SEED: Final = "memoryd/runs"
_PAYLOAD_BYTES: Final = 1_024

PAYLOAD: Final = " ".join(prose(Random(f"{_SEED}/{line}")) for line in range(8)).encode()[:_PAYLOAD_BYTES]
"""What a step that is measured holds: 1 KB of text."""
_LITTLE: Final = b"{}"
"""What stored steps hold: no call that is measured reads them."""


def held_run(session: SessionKey) -> RunKey:
    """The name of the run that is there to be held."""
    return RunKey(session=session, run_id=HELD)


async def load_runs(runtime: Runtime, plan: SessionPlan) -> None:
    """Stores the runs of an agent. Raises: RuntimeError when the store does not take them."""
    ended = plan.runs - QUEUED_RUNS - 1
    await _load_session(runtime, plan, plan.key.session_id, HELD, RunStatus.AWAITING_APPROVAL, 0)
    for number in range(QUEUED_RUNS):
        share = ended // QUEUED_RUNS + (number < ended % QUEUED_RUNS)
        await _load_session(runtime, plan, f"queue-{number}", QUEUED, RunStatus.INTERRUPTED, share)


async def _load_session(
    runtime: Runtime, plan: SessionPlan, session_id: str, unfinished: str, status: RunStatus, ended: int
) -> None:
    """Stores a session with an unfinished run, of as many steps as the plan says, and so many ended ones of one."""
    key = records.SessionKey(DEFAULT_TENANT, plan.agent, session_id)
    now = runtime.clock.now()
    record = birth(SessionSettings(), runtime.defaults.tokenizer, now)
    waiting = RunState(status, version=1, fence=1, steps=plan.steps, updated=now)
    over = RunState(RunStatus.COMPLETED, version=1, fence=1, steps=1, updated=now, ended=now)
    runs = [RunChange(unfinished, waiting, RunHead(now))]
    runs += [RunChange(f"ended-{number}", over, RunHead(now)) for number in range(ended)]
    steps = [StoredStep(unfinished, number, _LITTLE, "", now, fence=1) for number in range(1, plan.steps + 1)]
    steps += [StoredStep(f"ended-{number}", 1, _LITTLE, "", now, fence=1) for number in range(ended)]
    previous = None
    for some_runs, some_steps in _in_parts(runs, steps):
        record = replace(record, version=record.version + 1, runs=(RunLink(id_token(unfinished), waiting),))
        change = Change(key, previous, record, changed_runs=some_runs, new_steps=some_steps)
        if await runtime.store.commit([change]) != [Committed()]:
            raise RuntimeError(f"the runs of {key} were not stored")
        previous = record


def _in_parts(
    runs: Sequence[RunChange], steps: Sequence[StoredStep]
) -> Iterator[tuple[Sequence[RunChange], Sequence[StoredStep]]]:
    """What each commit stores: a run begins no later than its first step."""
    for first in range(0, max(len(runs), len(steps)), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        yield runs[part], steps[part]

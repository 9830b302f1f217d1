"""Which sessions a run needs, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from memoryd.v1 import message_pb2 as pb
from memoryd.v1.session_pb2 import SessionKey
from tests.bench.histories import Ending, ending, history
from tests.bench.options import Options

AGENT: Final = "bench"

LONGEST_OF_EACH_CALLER: Final = 10_000
"""Every caller appends to a session of its own. Beyond this length only the first caller's is as long as the history
asks; those of the others have this length."""


LONGEST_SUMMARIZED: Final = 100_000
"""Beyond this length no history has a summary: each takes in 1,000 messages, and a million take minutes."""

OPERATION_PAST_ENDINGS: Final = "load_window_20"
"""The operation that is also measured on histories with such an ending."""


class SessionPlan(msgspec.Struct, frozen=True):
    """A session and what it holds."""

    name: str
    mixed: int
    """Messages of the usual mix."""
    ending: Ending | None = None
    """What follows them, as many again."""
    summarized: bool = False
    """Whether all that windows of 20 do not hold is folded, by the agent's own model."""
    remembered: bool = False
    """Whether it is no session: a user and a project of the name have memory instead."""
    agent: str = AGENT
    runs: int = 0
    """How many runs its agent has; 0 for none."""
    steps: int = 0
    """How many steps those of them have that have not ended."""

    @property
    def key(self) -> SessionKey:
        return SessionKey(agent=self.agent, session_id=self.name)

    @property
    def length(self) -> int:
        return self.mixed * (2 if self.ending else 1)

    def messages(self) -> Iterator[pb.Message]:
        """What it holds, oldest first."""
        return chain(history(self.mixed), ending(self.ending, self.mixed) if self.ending else ())


def session_of(length: int, caller: int) -> SessionPlan:
    """The session to which a caller appends; the first caller's is also the one that all read.

    Names have one length, so that requests have one size.
    """
    mixed = length if caller == 0 else min(length, LONGEST_OF_EACH_CALLER)
    return SessionPlan(f"{mixed:09d}-{caller:03d}", mixed)


def summarized_session(length: int, purpose: str = "sum") -> SessionPlan:
    """A session of the usual mix with a current summary."""
    mixed = min(length, LONGEST_SUMMARIZED)
    return SessionPlan(f"{mixed:09d}-{purpose}", mixed, summarized=True)


def plain_session(length: int) -> SessionPlan:
    """What that is compared with: the same without a summary."""
    return session_of(min(length, LONGEST_SUMMARIZED), 0)


def session_with(kind: Ending, messages: int) -> SessionPlan:
    """A session whose last messages, so many, are of no use to windows."""
    return SessionPlan(f"{kind.value:_>13}", messages, kind)


def memory_plan() -> SessionPlan:
    """Memory in the store."""
    return SessionPlan("_______memory", 0, remembered=True)


def run_plan(runs: int, steps: int, purpose: str = "run") -> SessionPlan:
    """A session with a run of so many steps that is there to be held, of an agent with so many runs."""
    return SessionPlan("held", 0, agent=f"{runs:06d}-{steps:05d}-{purpose}", runs=runs, steps=steps)


def warm_up_runs(options: Options, store: str) -> SessionPlan:
    """Runs that are not measured."""
    return run_plan(min(options.runs_on(store)), min(options.run_steps_on(store)), "wrm")


def warm_up_session(options: Options, store: str, *, summarized: bool = False) -> SessionPlan:
    """A session that is not measured."""
    length = min(max(options.histories_on(store)), LONGEST_OF_EACH_CALLER)
    return summarized_session(length, "wrm") if summarized else SessionPlan("______warm_up", length)


def crowded_session(options: Options, store: str) -> SessionPlan:
    """The session that is measured among many others: of the shortest length, so that loading costs little."""
    return session_of(min(options.histories_on(store)), 0)


def needed(options: Options, store: str) -> list[SessionPlan]:
    """All sessions of a run on a store, short ones first."""
    writers = max(options.callers_on(store)) if options.appends else 1
    plans: set[SessionPlan] = set()
    if options.reads_histories:
        plans |= {session_of(length, caller) for length in options.histories_on(store) for caller in range(writers)}
        plans.add(warm_up_session(options, store))
    if options.remembers:
        plans.add(memory_plan())
    if options.works:
        fewest, *more = options.runs_on(store)
        plans |= {run_plan(fewest, steps) for steps in options.run_steps_on(store)}
        plans |= {run_plan(runs, min(options.run_steps_on(store))) for runs in more}
        plans.add(warm_up_runs(options, store))
    if options.summarizes:
        for length in options.histories_on(store):
            plans |= {plain_session(length), summarized_session(length)}
        plans.add(warm_up_session(options, store, summarized=True))
    if OPERATION_PAST_ENDINGS in options.operations:
        plans |= {session_with(kind, options.endings_on(store)) for kind in Ending}
    return sorted(plans, key=lambda plan: (plan.length, plan.agent, plan.name))


def write_plans(path: Path, plans: Iterable[SessionPlan]) -> None:
    """Hands the sessions on to another process."""
    path.write_bytes(msgspec.json.encode(list(plans)))


def read_plans(path: Path) -> list[SessionPlan]:
    """The inverse of `write_plans`."""
    return msgspec.json.decode(path.read_bytes(), type=list[SessionPlan])

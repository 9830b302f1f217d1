"""What is measured against what.

A case is one operation at one number of callers on one store. Its sides take turns: the operation on a history of each
length, its floor on the same server, and the same floor on a bare server. So the ratios to the floor, between
histories, and of floor to bare server all come from the same rounds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from memoryd.v1.session_pb2 import SessionKey
from tests.bench import operations, sessions
from tests.bench.floor import path, prepare_floor
from tests.bench.histories import Ending, Writer
from tests.bench.measuring import Measured, Round, Side, compare, run_slice
from tests.bench.operations import Operation
from tests.bench.options import Options
from tests.bench.sessions import SessionPlan
from tests.bench.settings import CROWDED

FLOOR: Final = "floor"
BARE: Final = "bare"


@dataclass(frozen=True, slots=True)
class Subject:
    """A history on which an operation is measured, under the names that rows have."""

    operation: str
    history: int
    """Messages of it, or steps of a run; 0 where neither is there."""
    sessions: tuple[SessionPlan, ...]
    """For each caller, the session that it calls for."""
    store: str = ""
    """The server's store with it; empty for the default."""
    among_runs: int = 0
    """How many runs its agent has, where there are more of them than elsewhere."""

    @property
    def name(self) -> str:
        return f"{self.operation}/{self.history}"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What was measured of a case."""

    store: str
    operation: str
    callers: int
    subjects: Mapping[Subject, Measured]
    floor: Measured
    bare: Measured


@dataclass(frozen=True, slots=True)
class Case:
    """One operation at one number of callers on one store."""

    store: str
    operation: Operation
    callers: int
    subjects: Sequence[Subject]

    async def run(self, server: grpc.aio.Channel, bare: grpc.aio.Channel, options: Options) -> CaseResult:
        """Measures it. Raises: WrongAnswer, grpc.aio.AioRpcError."""
        sides = await self.sides(server, bare)
        measured = await compare(sides, options)
        return CaseResult(
            self.store,
            self.operation.name,
            self.callers,
            {subject: measured[subject.name] for subject in self.subjects},
            measured[FLOOR],
            measured[BARE],
        )

    async def sides(self, server: grpc.aio.Channel, bare: grpc.aio.Channel) -> Mapping[str, Side]:
        """What takes turns: each subject by its name, `FLOOR` and `BARE`, which answer as the longest history does."""
        call = _callable(server, self.operation.method, self.operation)
        request = _requests(self.operation, server, self.longest.sessions[0].key, Writer(f"{self.name}/first"))()
        answer = await call(await request if inspect.isawaitable(request) else request)
        self.operation.check(answer)
        sides = {
            subject.name: self._side(_on(subject.store, call), subject, channel=server) for subject in self.subjects
        }
        for name, channel in ((FLOOR, server), (BARE, bare)):
            await prepare_floor(channel, self.operation, answer)
            floor = _callable(channel, path(self.operation), self.operation)
            sides[name] = self._side(floor, self.longest, role=name)
        return sides

    @property
    def longest(self) -> Subject:
        """The longest history of the usual mix."""
        usual = [subject for subject in self.subjects if subject.operation == self.operation.name]
        return max(usual, key=lambda subject: subject.history)

    @property
    def name(self) -> str:
        return f"{self.store}/{self.operation.name}/{self.callers}"

    def _side(
        self, call: Callable[[Any], Any], subject: Subject, *, channel: grpc.aio.Channel | None = None, role: str = ""
    ) -> Side:
        """A side that calls for a subject; without a channel for what comes before each call, it is a floor."""
        requests = []
        for caller, session in enumerate(subject.sessions):
            writer = Writer(f"{self.name}/{role or subject.name}/{caller}")
            requests.append(_requests(self.operation, channel, session.key, writer))
        return Side(call, requests, self.operation.check)


def cases(store: str, options: Options) -> Iterator[Case]:
    """All cases of a store. Those that only read come first: appended messages would change what is read."""
    for operation in sorted(operations.chosen(options.operations), key=lambda one: one.appends):
        for callers in callers_of(operation, options.callers_on(store)):
            yield Case(store, operation, callers, list(_subjects(store, operation, callers, options)))


def callers_of(operation: Operation, callers: Sequence[int]) -> Sequence[int]:
    """With how many callers an operation is measured, of those numbers."""
    return callers[:1] if operation.prepare else callers


def _requests(
    operation: Operation, channel: grpc.aio.Channel | None, key: SessionKey, writer: Writer
) -> Callable[[], Any]:
    """What makes the requests of a caller; those of a floor, without a channel, are only of their size."""
    if operation.prepare and channel is not None:
        return operation.prepare(channel, key, writer)
    return partial(operation.request, key, writer)


def _on(store: str, call: Callable[..., Any]) -> Callable[[Any], Any]:
    """The call on one of the server's stores."""
    return partial(call, metadata=(("memoryd-store", store),)) if store else call


def _subjects(store: str, operation: Operation, callers: int, options: Options) -> Iterator[Subject]:
    if operation.remembers:
        yield Subject(operation.name, 0, (sessions.memory_plan(),) * callers)
        return
    if operation.of_runs:
        yield from _subjects_with_runs(store, operation, callers, options)
        return
    if operation.summarized:
        yield from _summarized_subjects(store, operation, callers, options)
        return
    for length in options.histories_on(store):
        everyones = tuple(sessions.session_of(length, caller * operation.appends) for caller in range(callers))
        yield Subject(operation.name, length, everyones)
    if operation.name == sessions.OPERATION_PAST_ENDINGS:
        for kind in Ending:
            session = sessions.session_with(kind, options.endings_on(store))
            yield Subject(f"{operation.name}_past_{kind.value}", session.length, (session,) * callers)
    if callers == 1 and options.others_on(store):
        session = sessions.crowded_session(options, store)
        yield Subject(f"{operation.name}_among_{options.others_on(store)}", session.length, (session,), CROWDED)


def _subjects_with_runs(store: str, operation: Operation, callers: int, options: Options) -> Iterator[Subject]:
    """Runs of more and more steps, of an agent with few runs; and short ones, of agents with many."""
    fewest, *more = options.runs_on(store)
    for steps in options.run_steps_on(store):
        yield Subject(operation.name, steps, (sessions.run_plan(fewest, steps),) * callers)
    steps = min(options.run_steps_on(store))
    for runs in more:
        yield Subject(
            f"{operation.name}_among_{runs}", steps, (sessions.run_plan(runs, steps),) * callers, among_runs=runs
        )


def _summarized_subjects(store: str, operation: Operation, callers: int, options: Options) -> Iterator[Subject]:
    """Histories with summaries; and where it only reads, the same without."""
    for length in sorted({sessions.plain_session(length).length for length in options.histories_on(store)}):
        yield Subject(operation.name, length, (sessions.summarized_session(length),) * callers)
        if not operation.appends:
            yield Subject(without_summary(operation.name), length, (sessions.plain_session(length),) * callers)


def without_summary(operation: str) -> str:
    """What an operation on sessions with summaries is called where it is on sessions without."""
    return f"{operation}_without"


async def warm_up(server: grpc.aio.Channel, store: str, options: Options) -> None:
    """Has all operations called for a while on a session that is not measured, so that the server has all that it keeps
    while it serves."""
    for operation in operations.chosen(options.operations):
        if operation.remembers:
            key = sessions.memory_plan().key
        elif operation.of_runs:
            key = sessions.warm_up_runs(options, store).key
        else:
            key = sessions.warm_up_session(options, store, summarized=operation.summarized).key
        callers = max(callers_of(operation, options.callers_on(store)))
        writers = [Writer(f"warm up/{operation.name}/{caller}") for caller in range(callers)]
        requests = [_requests(operation, server, key, writer) for writer in writers]
        side = Side(_callable(server, operation.method, operation), requests, operation.check)
        await run_slice(side, options.warm_up_seconds, Round())


def _callable(channel: grpc.aio.Channel, method: str, operation: Operation) -> Callable[..., Any]:
    return channel.unary_unary(
        method,
        request_serializer=operation.request_type.SerializeToString,
        response_deserializer=operation.answer_type.FromString,
    )

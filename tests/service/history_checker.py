"""Decides whether some order of calls explains all their answers.

What is checked is linearizability (Herlihy and Wing): each call seems to happen at one moment between its invocation
and its response. The checker looks for such moments as Wing and Gong do, with the memory of Lowe and of Porcupine: a
search in depth over configurations, which are the set of calls that have happened and the state that they led to. From
a configuration, any call may happen next that was invoked before the first response of those that have not happened
yet, if `sequential_model` gives the very answer that was recorded. A configuration that was seen before is not searched
again, so that the work is bounded by the number of different configurations: it grows with the number of calls that
overlap, not with the length of the history.

- A call whose answer never came (the server was gone, or its deadline passed) may have happened at any moment after its
  invocation, or never. Its retry is a call of its own.
- A call that was refused as ABORTED for contention changed nothing by contract: the recorder leaves it out.
- A fork touches two sessions, and not at one moment: it reads its source, later its target begins. Both moments lie
  between its invocation and its response, in this order, and what was read at the first is what the target holds at the
  second. So a fork is two steps of the search, and sessions that forks connect are searched together. Sessions that
  nothing connects are searched apart: linearizability is a property of each object by itself.
- A call that fits here and changes nothing happens at once, without any alternative: whatever order explains the
  history still does with this call moved to the front. (Its answer tells that it changes nothing wherever it fits, or,
  of a replay or a repeated redaction, it changes nothing later either.)

Many unanswered calls make rejecting slow, since each may have happened anywhere. A search over `MOST_CONFIGURATIONS` is
given up with TooManyOrders: record fewer unanswered calls, or fewer that overlap.

It assumes one clock for all invocations and responses, calls that end (those of one client one after the other), words
that are never said twice, and that whoever repeats an append repeats all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.service.sequential_model import Answer, Call, Copy, Fork, State, birth, copy, step

MOST_CONFIGURATIONS: Final = 1_000_000
"""Bounds a search to a few minutes; histories of the tests need a few thousand."""


class TooManyOrders(Exception):
    """The search was given up: whether some order explains the history is not known."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call as its caller saw it."""

    begun: float
    ended: float
    """Irrelevant without an answer."""
    call: Call
    answer: Answer | None
    """None when none came: the call may have happened, may happen later, or never."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """No order of the calls explains their answers."""

    explained: Sequence[Recorded]
    """The most calls that some order explains, in that order."""
    stuck: Sequence[Recorded]
    """Those that could come next, none of which fits."""
    states: dict[str, State | None]
    """The sessions then."""

    def __str__(self) -> str:
        lines = ["no order of the calls explains their answers; furthest were:"]
        lines += [f"  {each.begun:.6f}..{each.ended:.6f} {each.call} -> {each.answer}" for each in self.explained[-12:]]
        lines.append("the sessions then:")
        lines += [f"  {name}: {state}" for name, state in self.states.items()]
        lines.append("none of these fits next:")
        lines += [f"  {each.begun:.6f}..{each.ended:.6f} {each.call} -> {each.answer}" for each in self.stuck]
        return "\n".join(lines)


def explain(history: Sequence[Recorded]) -> Unexplained | None:
    """Checks a history.

    Returns: None when some order explains it, else how far the search came. Raises: TooManyOrders.
    """
    for family in _families(history):
        problem = _Search(family).run()
        if problem is not None:
            return problem
    return None


def _families(history: Sequence[Recorded]) -> list[list[Recorded]]:
    """The calls of sessions that forks connect, together."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for each in history:
        if isinstance(each.call, Fork):
            parent[root(each.call.target)] = root(each.call.session)
    families: dict[str, list[Recorded]] = {}
    for each in history:
        families.setdefault(root(each.call.session), []).append(each)
    return list(families.values())


_FOREVER: Final = float("inf")
_NO_COPY: Final = -1


@dataclass(frozen=True, slots=True)
class _Step:
    """A moment of a call."""

    recorded: Recorded
    begun: float
    ended: float
    needs: int = _NO_COPY
    """The step before it: of a fork's second one, its first."""
    copies: bool = False
    """Whether it is a fork's first one."""


_World = tuple[int | Copy | None, ...]
"""The number of each session's state, then what each fork has read: what a configuration leads on from."""


class _Search:
    def __init__(self, history: Sequence[Recorded]) -> None:
        self._names = sorted(
            {each.call.session for each in history}
            | {each.call.target for each in history if isinstance(each.call, Fork)}
        )
        self._place = {name: place for place, name in enumerate(self._names)}
        self._steps = self._in_order(history)
        self._definite = sum(1 << number for number, each in enumerate(self._steps) if each.ended < _FOREVER)
        self._copy_place = {
            number: len(self._names) + place
            for place, number in enumerate(number for number, each in enumerate(self._steps) if each.copies)
        }
        self._states: list[State | None] = [None]
        self._numbers: dict[State | None, int] = {None: 0}
        self._known_steps: dict[tuple[int, int], tuple[int, Answer]] = {}

    @staticmethod
    def _in_order(history: Sequence[Recorded]) -> list[_Step]:
        steps: list[_Step] = []
        for each in sorted(history, key=lambda each: each.begun):
            ended = _FOREVER if each.answer is None else each.ended
            if isinstance(each.call, Fork):
                steps.append(_Step(each, each.begun, ended, copies=True))
                steps.append(_Step(each, each.begun, ended, needs=len(steps) - 1))
            else:
                steps.append(_Step(each, each.begun, ended))
        return steps

    def run(self) -> Unexplained | None:
        """Searches in depth. The path is on a stack of its own: histories are longer than Python's."""
        start: _World = (0,) * len(self._names) + (None,) * len(self._copy_place)
        done, world, path = self._settled(0, start, [])
        best = (done, world, path)
        seen = {(done, world)}
        stack = [(done, world, path, self._next(done, world))]
        while stack:
            done, _, path, following = stack[-1]
            if done & self._definite == self._definite:
                return None
            number, after = next(following, (None, None))
            if number is None or after is None:
                stack.pop()
                continue
            done, world, path = self._settled(done | 1 << number, after, [*path, number])
            if (done, world) in seen:
                continue
            if len(seen) == MOST_CONFIGURATIONS:
                raise TooManyOrders(str(self._unexplained(*best)))
            seen.add((done, world))
            if self._count(done) > self._count(best[0]):
                best = (done, world, path)
            stack.append((done, world, path, self._next(done, world)))
        return self._unexplained(*best)

    def _count(self, done: int) -> int:
        return (done & self._definite).bit_count()

    def _settled(self, done: int, world: _World, path: list[int]) -> tuple[int, _World, list[int]]:
        """The configuration after all calls that fit at once and change nothing."""
        moved = True
        while moved:
            moved = False
            for number in self._candidates(done):
                each = self._steps[number]
                if each.ended < _FOREVER and not each.copies and world in self._outcomes(number, world):
                    done |= 1 << number
                    path = [*path, number]
                    moved = True
        return done, world, path

    def _next(self, done: int, world: _World) -> Iterator[tuple[int, _World]]:
        for number in self._candidates(done):
            unanswered = self._steps[number].ended == _FOREVER
            for after in self._outcomes(number, world):
                # An unanswered call that changes nothing here may as well never happen, or later.
                if not (unanswered and after == world):
                    yield number, after

    def _candidates(self, done: int) -> list[int]:
        """The steps that may come next, those that ended first in front."""
        number = (~done & (done + 1)).bit_length() - 1
        first_response = _FOREVER
        found: list[int] = []
        while number < len(self._steps) and self._steps[number].begun <= first_response:
            each = self._steps[number]
            if not done >> number & 1:
                first_response = min(first_response, each.ended)
                if each.needs == _NO_COPY or done >> each.needs & 1:
                    found.append(number)
            number += 1
        found = [number for number in found if self._steps[number].begun <= first_response]
        return sorted(found, key=lambda number: self._steps[number].ended)

    def _outcomes(self, number: int, world: _World) -> Iterator[_World]:
        """The worlds to which a step may lead, given its answer."""
        each = self._steps[number]
        call, answer = each.recorded.call, each.recorded.answer
        place = self._place[call.session]
        if not isinstance(call, Fork):
            after, answered = self._step(self._number_at(world, place), number)
            if answer is None or answer == answered:
                yield _with(world, place, after)
        elif each.copies:
            read = copy(self._state_at(world, place), call)
            yield _with(world, self._copy_place[number], read)
        else:
            copy_place, target = self._copy_place[each.needs], self._place[call.target]
            copied = world[copy_place]
            assert not isinstance(copied, int)
            source, before = self._state_at(world, place), self._state_at(world, target)
            for after_birth, answered in birth(source, copied, before, call):
                if answer is None or answer == answered:
                    yield _with(_with(world, copy_place, None), target, self._number_of(after_birth))

    def _step(self, state: int, number: int) -> tuple[int, Answer]:
        known = self._known_steps.get((state, number))
        if known is None:
            after, answer = step(self._states[state], self._steps[number].recorded.call)
            known = self._known_steps[state, number] = (self._number_of(after), answer)
        return known

    def _number_of(self, state: State | None) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _number_at(self, world: _World, place: int) -> int:
        number = world[place]
        assert isinstance(number, int)
        return number

    def _state_at(self, world: _World, place: int) -> State | None:
        return self._states[self._number_at(world, place)]

    def _unexplained(self, done: int, world: _World, path: list[int]) -> Unexplained:
        return Unexplained(
            [self._steps[number].recorded for number in path],
            [self._steps[number].recorded for number in self._candidates(done)],
            {name: self._state_at(world, place) for name, place in self._place.items()},
        )


def _with(world: _World, place: int, value: int | Copy | None) -> _World:
    return (*world[:place], value, *world[place + 1 :])

"""The checker of histories finds what it is there to find: a checker that accepts everything would let any bug pass."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from tests.service.call_mix import CallMix
from tests.service.history_checker import Recorded, explain
from tests.service.sequential_model import (
    Answer,
    Append,
    Appended,
    Call,
    Clear,
    Cleared,
    Copy,
    Fork,
    Forked,
    GetSession,
    Listed,
    ListMessages,
    LoadWindow,
    Message,
    Redact,
    Refused,
    Rewind,
    Rewound,
    Seen,
    Session,
    State,
    Window,
    birth,
    copy,
    step,
)

History = list[Recorded]

ONE: Final = Append("s", (Message("one", id="1"),))
TWO: Final = Append("s", (Message("two"),))
THREE: Final = Append("s", (Message("three"),))
BOTH: Final = Append("s", (Message("a"), Message("b")))
ASK: Final = Append("s", (Message("ask", arms="c"),))
REPLY: Final = Append("s", (Message("reply", answers="c"),))
READ: Final = ListMessages("s")
READ_FORK: Final = ListMessages("fork")
FORK: Final = Fork("s", "fork")


def listed(*words: str) -> Listed:
    """A list of messages with seqs from 1; "" stands for one that is not there, "*" for a redacted one."""
    return Listed(tuple(Seen(seq, word.strip("*"), word == "*") for seq, word in enumerate(words, 1) if word))


def one_by_one(*calls: tuple[Call, Answer | None]) -> History:
    """Calls of which each begins when the one before it has ended."""
    return [Recorded(2.0 * at, 2.0 * at + 1, call, answer) for at, (call, answer) in enumerate(calls)]


def at_once(*calls: tuple[Call, Answer | None], begun: float, ended: float) -> History:
    return [Recorded(begun, ended, call, answer) for call, answer in calls]


EXPLAINED: Final[dict[str, History]] = {
    "nothing": [],
    "what is appended is read": one_by_one((ONE, Appended((1,))), (TWO, Appended((2,))), (READ, listed("one", "two"))),
    "no session": one_by_one((READ, Refused("SESSION_NOT_FOUND")), (Clear("s"), Cleared(0)), (ONE, Appended((1,)))),
    "appends at once, in either order": [
        *at_once((ONE, Appended((2,))), (TWO, Appended((1,))), begun=0, ended=1),
        *at_once((READ, listed("two", "one")), begun=2, ended=3),
    ],
    "a read beside an append sees it or not": [
        *one_by_one((ONE, Appended((1,)))),
        *at_once((TWO, Appended((2,))), (READ, listed("one")), (READ, listed("one", "two")), begun=2, ended=3),
    ],
    "a replay": one_by_one((ONE, Appended((1,))), (TWO, Appended((2,))), (ONE, Appended((1,)))),
    "a replay after a clear": one_by_one((ONE, Appended((1,))), (Clear("s"), Cleared(1)), (ONE, Appended((1,)))),
    "an unanswered append that happened": one_by_one((ONE, None), (READ, listed("one"))),
    "an unanswered append that never happened": one_by_one((ONE, None), (TWO, Appended((1,))), (READ, listed("two"))),
    "an unanswered append that happened late": one_by_one(
        (ONE, Appended((1,))), (TWO, None), (READ, listed("one")), (READ, listed("one", "two"))
    ),
    "an unanswered append and its retry": one_by_one((ONE, None), (ONE, Appended((1,))), (READ, listed("one"))),
    "seqs go on after a clear": one_by_one(
        (BOTH, Appended((1, 2))), (Clear("s"), Cleared(2)), (THREE, Appended((3,))), (READ, listed("", "", "three"))
    ),
    "seqs go on after a rewind": one_by_one(
        (BOTH, Appended((1, 2))),
        (Rewind("s", 1), Rewound(1, 0)),
        (THREE, Appended((3,))),
        (READ, listed("a", "", "three")),
    ),
    "a rewind has a call wait again": one_by_one(
        (ASK, Appended((1,))),
        (REPLY, Appended((2,))),
        (LoadWindow("s", 9), Window(listed("ask", "reply").messages, 2, 2)),
        (Rewind("s", 1), Rewound(1, 1)),
        (GetSession("s"), Session(1, 2, 1, 1, 0)),
        (LoadWindow("s", 9), Window((), 1, 2)),
    ),
    "a redaction keeps the slot": one_by_one(
        (BOTH, Appended((1, 2))), (Redact("s", 1), Seen(1, "", True)), (READ, listed("*", "b"))
    ),
    "a condition that fails": one_by_one(
        (ONE, Appended((1,))), (replace(TWO, expected_last_seq=0), Refused("LAST_SEQ_MISMATCH"))
    ),
    "a fork holds what its source held": one_by_one(
        (BOTH, Appended((1, 2))), (FORK, Forked(2, 2)), (READ_FORK, listed("a", "b")), (Clear("s"), Cleared(2))
    ),
    "a fork through a seq": one_by_one(
        (BOTH, Appended((1, 2))), (replace(FORK, through_seq=1), Forked(1, 1)), (READ_FORK, listed("a"))
    ),
    "a fork that reads its source before an append and begins behind it": [
        *one_by_one((ONE, Appended((1,)))),
        *at_once((FORK, Forked(1, 1)), begun=2, ended=9),
        *at_once((TWO, Appended((2,))), begun=3, ended=4),
        *at_once((READ_FORK, Refused("SESSION_NOT_FOUND")), begun=5, ended=6),
        *at_once((READ_FORK, listed("one")), begun=10, ended=11),
    ],
    "a fork whose source is cleared meanwhile": [
        *one_by_one((ONE, Appended((1,)))),
        *at_once((FORK, Refused("FORK_INTERRUPTED")), (Clear("s"), Cleared(1)), begun=2, ended=9),
        *at_once((READ_FORK, Refused("SESSION_NOT_FOUND")), begun=10, ended=11),
    ],
}

UNEXPLAINED: Final[dict[str, History]] = {
    "a lost append": one_by_one((ONE, Appended((1,))), (TWO, Appended((2,))), (READ, listed("one"))),
    "a session lost": one_by_one((ONE, Appended((1,))), (READ, Refused("SESSION_NOT_FOUND"))),
    "a message from nowhere": one_by_one((ONE, Appended((1,))), (READ, listed("one", "two"))),
    "an append that was stored twice": one_by_one((ONE, None), (ONE, Appended((1,))), (READ, listed("one", "one"))),
    "a replay with another answer": one_by_one((ONE, Appended((1,))), (ONE, Appended((2,)))),
    "a replay that restores what was cleared": one_by_one(
        (ONE, Appended((1,))), (Clear("s"), Cleared(1)), (ONE, Appended((1,))), (READ, listed("one"))
    ),
    "a stale read": one_by_one(
        (ONE, Appended((1,))), (TWO, Appended((2,))), (READ, listed("one", "two")), (READ, listed("one"))
    ),
    "an unanswered append that is seen and then not": one_by_one(
        (ONE, Appended((1,))), (TWO, None), (READ, listed("one", "two")), (READ, listed("one"))
    ),
    "reads at once that see two appends in opposite order": [
        *at_once((ONE, Appended((1,))), (TWO, None), (THREE, None), begun=0, ended=1),
        *at_once((READ, listed("one", "two")), begun=2, ended=3),
        *at_once((READ, listed("one", "three")), begun=4, ended=5),
    ],
    "a swapped order": one_by_one(
        (ONE, Appended((1,))), (TWO, Appended((2,))), (READ, Listed((Seen(2, "two"), Seen(1, "one"))))
    ),
    "seqs in the order opposite to time": one_by_one((ONE, Appended((2,))), (TWO, Appended((1,)))),
    "one seq twice": at_once((ONE, Appended((1,))), (TWO, Appended((1,))), begun=0, ended=1),
    "half a batch": one_by_one((BOTH, Appended((1, 2))), (READ, listed("a"))),
    "half of an unanswered batch": one_by_one((BOTH, None), (READ, listed("a"))),
    "a batch with another message inside": [
        *at_once((BOTH, Appended((1, 3))), (ONE, Appended((2,))), begun=0, ended=1),
    ],
    "a message seen after a clear": one_by_one((ONE, Appended((1,))), (Clear("s"), Cleared(1)), (READ, listed("one"))),
    "a clear that counts wrongly": one_by_one((BOTH, Appended((1, 2))), (Clear("s"), Cleared(1))),
    "messages cleared twice": one_by_one((BOTH, None), (Clear("s"), Cleared(2)), (Clear("s"), Cleared(2))),
    "a seq used again after a clear": one_by_one(
        (ONE, Appended((1,))), (Clear("s"), Cleared(1)), (TWO, Appended((1,)))
    ),
    "a seq used again after a rewind": one_by_one(
        (BOTH, Appended((1, 2))), (Rewind("s", 1), Rewound(1, 0)), (THREE, Appended((2,)))
    ),
    "a rewind that takes too much": one_by_one(
        (BOTH, Appended((1, 2))), (Rewind("s", 1), Rewound(1, 0)), (READ, listed())
    ),
    "a rewind after which a call counts as answered": one_by_one(
        (ASK, Appended((1,))), (REPLY, Appended((2,))), (Rewind("s", 1), Rewound(1, 0))
    ),
    "a window with half a group": one_by_one(
        (ASK, Appended((1,))), (LoadWindow("s", 9), Window(listed("ask").messages, 1, 1))
    ),
    "a window that splits a group": one_by_one(
        (ASK, Appended((1,))), (REPLY, Appended((2,))), (LoadWindow("s", 1), Window((Seen(2, "reply"),), 2, 2))
    ),
    "a redaction undone": one_by_one(
        (BOTH, Appended((1, 2))), (Redact("s", 1), Seen(1, "", True)), (READ, listed("a", "b"))
    ),
    "a redaction that takes the slot": one_by_one(
        (BOTH, Appended((1, 2))), (Redact("s", 1), Seen(1, "", True)), (READ, listed("", "b"))
    ),
    "a condition that was passed over": one_by_one(
        (ONE, Appended((1,))), (replace(TWO, expected_last_seq=0), Appended((2,)))
    ),
    "a condition that fails without reason": one_by_one(
        (ONE, Appended((1,))), (replace(TWO, expected_last_seq=1), Refused("LAST_SEQ_MISMATCH"))
    ),
    "a fork that misses a message": one_by_one(
        (BOTH, Appended((1, 2))), (FORK, Forked(2, 2)), (READ_FORK, listed("a"))
    ),
    "a fork that holds a later message": one_by_one(
        (ONE, Appended((1,))), (FORK, Forked(1, 1)), (TWO, Appended((2,))), (READ_FORK, listed("one", "two"))
    ),
    "a fork that holds what was cleared before it": one_by_one(
        (ONE, Appended((1,))), (Clear("s"), Cleared(1)), (FORK, Forked(1, 1))
    ),
    "a fork in part": [
        *one_by_one((BOTH, Appended((1, 2)))),
        *at_once((FORK, Forked(2, 2)), begun=2, ended=9),
        *at_once((READ_FORK, listed("a")), begun=3, ended=4),
    ],
    "a fork that takes its source along": one_by_one(
        (ONE, Appended((1,))), (FORK, Forked(1, 1)), (Clear("fork"), Cleared(1)), (READ, listed())
    ),
    "a fork that was interrupted by nothing": one_by_one((ONE, Appended((1,))), (FORK, Refused("FORK_INTERRUPTED"))),
    "a fork onto a name in use": one_by_one((ONE, Appended((1,))), (FORK, Forked(1, 1)), (FORK, Forked(1, 1))),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_history_that_some_order_explains_is_accepted(name: str) -> None:
    problem = explain(EXPLAINED[name])
    assert problem is None, str(problem)


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_a_history_that_no_order_explains_is_rejected(name: str) -> None:
    assert explain(UNEXPLAINED[name]) is not None


def test_what_is_rejected_is_told() -> None:
    told = str(explain(UNEXPLAINED["a message seen after a clear"]))
    assert "none of these fits next:" in told
    assert "Listed(messages=(Seen(seq=1, word='one'" in told.splitlines()[-1]


CLIENTS: Final = 5


class Simulation:
    """Clients of a service that is right: each call happens at a moment of its own between its begin and its end. Some
    are never answered, and happen late or never."""

    def __init__(self, seed: int, unanswered: float) -> None:
        self.unanswered = unanswered
        self.mix = CallMix(seed, ["a", "b"])
        self.random = self.mix.random
        self.states: dict[str, State | None] = {}
        self.history: History = []
        self._copies: dict[int, Copy | None] = {}
        self._under_way: dict[int, Recorded] = {}
        self._numbers = itertools.count()
        self._moments: list[tuple[float, int, Callable[[], object]]] = []

    def run(self, calls: int) -> History:
        """Returns: the history, at the end of which each session is read twice."""
        for client in range(CLIENTS):
            self._begin(client / CLIENTS)
        now = 0.0
        while len(self.history) < calls:
            now, _, what = heapq.heappop(self._moments)
            what()
        self.history += self._under_way.values()
        for name in (*self.mix.sessions, *self.mix.sessions):
            now += 2
            _, answer = step(self.states.get(name), ListMessages(name))
            self.history.append(Recorded(now, now + 1, ListMessages(name), answer))
        return self.history

    def _at(self, time: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._moments, (time, next(self._numbers), what))

    def _begin(self, begun: float) -> None:
        call, number = self.mix.next(), next(self._numbers)
        first = begun + self.random.random()
        last = first + self.random.random()
        ended = last + self.random.random()
        self._under_way[number] = Recorded(begun, ended, call, None)
        if isinstance(call, Fork):
            self._at(first, partial(self._copy, number, call))
        if self.random.random() >= self.unanswered:
            self._at(last, partial(self._happen, number, ended))
            return
        self._at(ended, partial(self._finish, number, ended, None))
        if self.random.random() < 0.5:
            self._at(last + 20 * self.random.random(), partial(self._carry_out, number, call))

    def _copy(self, number: int, call: Fork) -> None:
        self._copies[number] = copy(self.states.get(call.session), call)

    def _happen(self, number: int, ended: float) -> None:
        answer = self._carry_out(number, self._under_way[number].call)
        self._at(ended, partial(self._finish, number, ended, answer))

    def _carry_out(self, number: int, call: Call) -> Answer:
        if isinstance(call, Fork):
            source, target = self.states.get(call.session), self.states.get(call.target)
            outcomes = list(birth(source, self._copies.pop(number), target, call))
            self.states[call.target], answer = self.random.choice(outcomes)
        else:
            self.states[call.session], answer = step(self.states.get(call.session), call)
        return answer

    def _finish(self, number: int, ended: float, answer: Answer | None) -> None:
        recorded = self._under_way.pop(number)
        self.history.append(replace(recorded, answer=answer))
        self.mix.heard(recorded.call, answer)
        self._begin(ended)


SEEDS: Final = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_right_service_answers_is_accepted(seed: int) -> None:
    problem = explain(Simulation(seed, unanswered=0.03).run(250))
    assert problem is None, f"seed {seed}: {problem}"


def last_dropped(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return seen[:-1]


def first_dropped(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return seen[1:]


def last_doubled(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return (*seen, *(replace(each, seq=each.seq + 1) for each in seen[-1:]))


def order_swapped(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return seen[::-1]


def words_swapped(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    words = [each.word for each in seen]
    return tuple(replace(each, word=word) for each, word in zip(seen, words[::-1], strict=True))


def redaction_undone(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return tuple(replace(each, redacted=False, word=each.word or "word1") for each in seen)


def redacted(seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return tuple(Seen(each.seq, "", True) for each in seen)


@pytest.mark.parametrize(
    "tamper",
    [last_dropped, first_dropped, last_doubled, order_swapped, words_swapped, redaction_undone, redacted],
)
def test_one_read_that_is_tampered_with_is_noticed(tamper: Callable[[tuple[Seen, ...]], tuple[Seen, ...]]) -> None:
    """Among a hundred and fifty calls, of which one or two were never answered."""
    tampered = 0
    for seed in SEEDS:
        history = Simulation(seed, unanswered=0.01).run(150)
        last = history[-1].answer
        assert isinstance(last, Listed | Refused)
        if isinstance(last, Listed) and tamper(last.messages) != last.messages:
            tampered += 1
            history[-1] = replace(history[-1], answer=Listed(tamper(last.messages)))
            assert explain(history) is not None, f"seed {seed}"
    assert tampered

"""Chooses calls at random, with a seed: what clients of `test_histories_of_two_servers` do, and those of the simulation
by which `test_history_checker` tests the checker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final, TypeVar

from tests.service.sequential_model import (
    Answer,
    Append,
    Appended,
    Call,
    Clear,
    Fork,
    Forked,
    GetSession,
    ListMessages,
    LoadWindow,
    Message,
    Redact,
    Rewind,
)

_WEIGHTS: Final = {
    "append": 30,
    "list": 12,
    "window": 12,
    "get": 6,
    "redact": 8,
    "rewind": 7,
    "clear": 4,
    "fork": 7,
    "repeat": 10,
}
_CALL_IDS: Final = ("c1", "c2", "c3")
"""Few, so that calls are armed again before they are answered."""
_MOST_SESSIONS: Final = 8

_Repeatable = TypeVar("_Repeatable", Append, Clear, Rewind, Fork)


class CallMix:
    """The calls of a family of sessions: those that it begins with, and their forks."""

    def __init__(self, seed: int, sessions: Sequence[str]) -> None:
        self.random = random.Random(seed)
        self._sessions = list(sessions)
        self._first = sessions[0]
        self._numbers = itertools.count(1)
        self._last_seqs: dict[str, int] = {}
        self._repeatable: list[Append | Clear | Rewind | Fork] = []

    def next(self) -> Call:
        """The next call of any client."""
        kind = self.random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        session = self.random.choice(self._sessions)
        seq = self.random.randint(0, self._last_seqs.get(session, 0) + 1)
        match kind:
            case "list":
                return ListMessages(session)
            case "window":
                return LoadWindow(session, self.random.choice((1, 2, 3, 5, 1_000)))
            case "get":
                return GetSession(session)
            case "redact":
                return Redact(session, max(seq, 1))
            case "rewind":
                last_seq = self._last_seqs.get(session, 0)
                to_seq = max(seq, last_seq - 6)
                return self._remembered(Rewind(session, to_seq, self._request_id(), self._expected(session)))
            case "clear":
                return self._remembered(Clear(session, self._request_id()))
            case "fork" if len(self._sessions) < _MOST_SESSIONS:
                target = f"{self._first} fork {len(self._sessions)}"
                through_seq = max(seq, 1) if self.random.random() < 0.3 else None
                return self._remembered(Fork(session, target, through_seq, f"fork {next(self._numbers)}"))
            case "repeat" if self._repeatable:
                return self.random.choice(self._repeatable[-12:])
            case _:
                return self._append(session)

    def heard(self, call: Call, answer: Answer | None) -> None:
        """Tells what became of a call, so that later ones are about what is there."""
        match answer:
            case Appended(seqs):
                self._last_seqs[call.session] = max(self._last_seqs.get(call.session, 0), *seqs)
            case Forked(_, last_seq) if isinstance(call, Fork) and call.target not in self._sessions:
                self._sessions.append(call.target)
                self._last_seqs[call.target] = last_seq

    @property
    def sessions(self) -> Sequence[str]:
        """All sessions that there may be."""
        forks = {call.target for call in self._repeatable if isinstance(call, Fork)}
        return sorted({*self._sessions, *forks})

    def _append(self, session: str) -> Append:
        ids = self.random.random() < 0.6
        messages = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            word = f"word{next(self._numbers)}"
            kind = self.random.random()
            arms = self.random.choice(_CALL_IDS) if kind < 0.25 else ""
            answers = self.random.choice(_CALL_IDS) if kind > 0.75 else ""
            messages.append(Message(word, arms, answers, f"id {word.removeprefix('word')}" if ids else ""))
        call = Append(session, tuple(messages), self._request_id(), self._expected(session))
        return self._remembered(call)

    def _remembered(self, call: _Repeatable) -> _Repeatable:
        """What can be recognized when it is sent again, is sent again at times."""
        if call.request_id or _has_ids(call):
            self._repeatable.append(call)
        return call

    def _request_id(self) -> str:
        return f"request {next(self._numbers)}" if self.random.random() < 0.4 else ""

    def _expected(self, session: str) -> int | None:
        return self._last_seqs.get(session, 0) if self.random.random() < 0.1 else None


def _has_ids(call: Call) -> bool:
    return isinstance(call, Append) and all(message.id for message in call.messages)

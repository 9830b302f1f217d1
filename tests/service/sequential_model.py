"""What a session answers when calls come one after the other: the contract (invariants 1, 2, 6 and 11), written down as
pure functions of a state, with nothing shared with the server.

Small on purpose: a message is one word, a call or a result, windows are cut by messages with the default options, and
there is no SYSTEM message. Times, tokens and ids that the server makes are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

Answer = object
"""One of the answers below; calls whose answer never came have None."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is appended."""

    word: str
    """What it says; no two messages of a run say the same."""
    arms: str = ""
    """The id of the call that it makes; empty for none."""
    answers: str = ""
    """The id of the call that it answers; empty for none."""
    id: str = ""
    """Empty where the server makes it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as it is read."""

    seq: int
    word: str
    """Empty when it is redacted."""
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    session: str
    messages: tuple[Message, ...]
    request_id: str = ""
    expected_last_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clear:
    session: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Cleared:
    messages: int


@dataclass(frozen=True, slots=True)
class Rewind:
    session: str
    to_seq: int
    request_id: str = ""
    expected_last_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Rewound:
    removed: int
    open_calls: int


@dataclass(frozen=True, slots=True)
class Redact:
    session: str
    seq: int


@dataclass(frozen=True, slots=True)
class Fork:
    session: str
    target: str
    through_seq: int | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Forked:
    copied: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class ListMessages:
    session: str


@dataclass(frozen=True, slots=True)
class Listed:
    messages: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class LoadWindow:
    session: str
    limit: int


@dataclass(frozen=True, slots=True)
class Window:
    messages: tuple[Seen, ...]
    history_messages: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class GetSession:
    session: str


@dataclass(frozen=True, slots=True)
class Session:
    messages: int
    last_seq: int
    open_calls: int
    open_messages: int
    orphan_messages: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was refused with this reason, and changed nothing."""

    reason: str


Call = Append | Clear | Rewind | Redact | Fork | ListMessages | LoadWindow | GetSession


@dataclass(frozen=True, slots=True)
class Held:
    """A message that a session holds."""

    seq: int
    message: Message
    redacted: bool = False

    @property
    def seen(self) -> Seen:
        return Seen(self.seq, "" if self.redacted else self.message.word, self.redacted)


@dataclass(frozen=True, slots=True)
class State:
    """A session between two calls."""

    last_seq: int = 0
    epoch: int = 1
    """Grows when messages are taken away or redacted."""
    messages: tuple[Held, ...] = ()
    known: frozenset[tuple[str, Answer]] = frozenset()
    """Ids of messages and requests, with the first answer to them."""

    def first_answer(self, id_: str) -> Answer | None:
        return next((answer for known, answer in self.known if known == id_), None)

    def after(self, **changes: object) -> State:
        return replace(self, **changes)  # type: ignore[arg-type]


def step(state: State | None, call: Call) -> tuple[State | None, Answer]:
    """Carries out a call on its session, None when there is none. Forks are `copy` and `birth`."""
    match call:
        case Append():
            return _append(state, call)
        case Clear():
            return _clear(state, call)
        case Rewind() if state is not None:
            return _rewind(state, call)
        case Redact() if state is not None:
            return _redact(state, call)
        case ListMessages() if state is not None:
            return state, Listed(tuple(held.seen for held in state.messages))
        case LoadWindow() if state is not None:
            return state, _window(state, call.limit)
        case GetSession() if state is not None:
            paired = pair(state.messages)
            return state, Session(
                len(state.messages), state.last_seq, paired.open_calls, paired.open_messages, paired.orphans
            )
        case Rewind() | Redact() | ListMessages() | LoadWindow() | GetSession():
            return None, Refused("SESSION_NOT_FOUND")
        case Fork():
            raise TypeError("a fork is carried out in two steps")


def _append(state: State | None, call: Append) -> tuple[State | None, Answer]:
    before = state or State()
    if call.request_id and (first := before.first_answer(f"request {call.request_id}")):
        return state, first
    firsts = [before.first_answer(f"message {message.id}") for message in call.messages if message.id]
    if any(firsts):
        assert len(call.messages) == len(firsts)
        assert all(firsts), "batches are repeated whole"
        return state, Appended(tuple(seq for first in firsts if isinstance(first, Appended) for seq in first.seqs))
    if call.expected_last_seq not in (None, before.last_seq):
        return state, Refused("LAST_SEQ_MISMATCH")
    added = tuple(Held(seq, message) for seq, message in enumerate(call.messages, before.last_seq + 1))
    answer = Appended(tuple(held.seq for held in added))
    known = {(f"message {held.message.id}", Appended((held.seq,))) for held in added if held.message.id}
    return (
        before.after(
            last_seq=before.last_seq + len(added),
            messages=before.messages + added,
            known=_remembering(before.known | known, call.request_id, answer),
        ),
        answer,
    )


def _remembering(
    known: frozenset[tuple[str, Answer]], request_id: str, answer: Answer
) -> frozenset[tuple[str, Answer]]:
    return known | {(f"request {request_id}", answer)} if request_id else known


def _clear(state: State | None, call: Clear) -> tuple[State | None, Answer]:
    if state is None:
        return None, Cleared(0)
    if call.request_id and (first := state.first_answer(f"request {call.request_id}")):
        return state, first
    answer = Cleared(len(state.messages))
    return _taken_away(state, (), call.request_id, answer), answer


def _rewind(state: State, call: Rewind) -> tuple[State, Answer]:
    if call.request_id and (first := state.first_answer(f"request {call.request_id}")):
        return state, first
    if call.expected_last_seq not in (None, state.last_seq):
        return state, Refused("LAST_SEQ_MISMATCH")
    kept = tuple(held for held in state.messages if held.seq <= call.to_seq)
    answer = Rewound(len(state.messages) - len(kept), pair(kept).open_calls)
    return _taken_away(state, kept, call.request_id, answer), answer


def _taken_away(state: State, kept: tuple[Held, ...], request_id: str, answer: Answer) -> State:
    return state.after(
        epoch=state.epoch + (kept != state.messages),
        messages=kept,
        known=_remembering(state.known, request_id, answer),
    )


def _redact(state: State, call: Redact) -> tuple[State, Answer]:
    found = next((held for held in state.messages if held.seq == call.seq), None)
    if found is None:
        return state, Refused("MESSAGE_NOT_FOUND")
    if found.redacted:
        return state, found.seen
    without = replace(found, redacted=True)
    messages = tuple(without if held is found else held for held in state.messages)
    return state.after(epoch=state.epoch + 1, messages=messages), without.seen


@dataclass(frozen=True, slots=True)
class Copy:
    """What a fork has read of its source."""

    messages: tuple[Held, ...]
    epoch: int


def copy(source: State | None, call: Fork) -> Copy | None:
    """The first step of a fork: it reads the source. None when there is none."""
    if source is None:
        return None
    through = source.last_seq if call.through_seq is None else call.through_seq
    return Copy(tuple(held for held in source.messages if held.seq <= through), source.epoch)


def birth(
    source: State | None, copied: Copy | None, target: State | None, call: Fork
) -> Iterator[tuple[State | None, Answer]]:
    """The second step of a fork: the target begins. Several answers where the contract leaves the choice: when source
    and target are both unfit, and when the source lost messages after it was read."""
    if target is not None:
        if call.request_id and (first := target.first_answer(f"request {call.request_id}")):
            yield target, first
            return
        yield target, Refused("SESSION_EXISTS")
    if copied is None:
        yield target, Refused("SESSION_NOT_FOUND")
        return
    if source is None or source.epoch != copied.epoch:
        yield target, Refused("FORK_INTERRUPTED")
    if target is None:
        last_seq = copied.messages[-1].seq if copied.messages else 0
        answer = Forked(len(copied.messages), last_seq)
        known = _remembering(frozenset(), call.request_id, answer)
        yield State(last_seq=last_seq, messages=copied.messages, known=known), answer


@dataclass(frozen=True, slots=True)
class Paired:
    """A history whose results are paired with their calls."""

    groups: tuple[tuple[Held, ...], ...]
    """What windows may show, whole or not at all: by their first messages, oldest first."""
    open_calls: int
    open_messages: int
    orphans: int


@lru_cache(maxsize=100_000)
def pair(messages: Sequence[Held]) -> Paired:
    """Pairs by position: a call arms its id, the next result with that id consumes it, and a re-armed id leaves the
    older call without an answer for ever."""
    armed: dict[str, int] = {}
    unanswered: set[int] = set()
    groups: dict[int, list[Held]] = {}
    orphans = 0
    for held in messages:
        said = held.message
        if said.answers:
            head = armed.pop(said.answers, None)
            if head is None:
                orphans += 1
            else:
                groups[head].append(held)
                unanswered.discard(head)
            continue
        groups[held.seq] = [held]
        if said.arms:
            armed[said.arms] = held.seq
            unanswered.add(held.seq)
    return Paired(
        tuple(tuple(group) for head, group in groups.items() if head not in unanswered),
        open_calls=len(armed),
        open_messages=sum(len(groups[head]) for head in unanswered),
        orphans=orphans,
    )


def _window(state: State, limit: int) -> Window:
    chosen: list[Held] = []
    for group in reversed(pair(state.messages).groups):
        if chosen and len(chosen) + len(group) > limit:
            break
        chosen[:0] = group
    return Window(tuple(held.seen for held in chosen), len(state.messages), state.last_seq)

"""What happened to a history between two of its states, where messages were taken away or redacted in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from memoryd_server.stores.records import RemovedRange, StoredMessage, Usability

_REPLACEABLE: Final = ("tokens", "size", "name", "content", "metadata", "extra", "redaction")
"""What a redaction changes of a message."""

_LASTING: Final = ("seq", "head", "position", "role", "calls", "answers", "id", "run_id", "created")
"""What nothing changes."""


class NotALaterState(Exception):
    """One history is not a later state of the other."""


@dataclass(slots=True)
class HistoryChanges:
    """What makes the later state of the earlier one, as a change of a session says it."""

    new: list[StoredMessage] = field(default_factory=list)
    replaced: list[StoredMessage] = field(default_factory=list)
    completed: set[int] = field(default_factory=set)
    reopened: set[int] = field(default_factory=set)
    taken: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of seqs, both ends included, in which the later state holds nothing."""

    @property
    def count(self) -> int:
        """How many messages come along."""
        return len(self.new) + len(self.replaced)

    @property
    def bytes(self) -> int:
        """Their sizes."""
        return sum(message.size for message in (*self.new, *self.replaced))

    def removed(self, now: int) -> tuple[RemovedRange, ...]:
        """What is taken, as a record says it."""
        return tuple(RemovedRange(low, high, now) for low, high in self.taken)

    def put(self, earlier: StoredMessage, later: StoredMessage) -> None:
        """Notes what became of a message. Raises: NotALaterState."""
        if _fields(earlier, _LASTING) != _fields(later, _LASTING):
            raise NotALaterState
        if _fields(earlier, _REPLACEABLE) != _fields(later, _REPLACEABLE):
            self.replaced.append(later)
        if earlier.usability is not later.usability:
            turned = self.completed if later.usability is Usability.USABLE else self.reopened
            turned.add(later.head)

    def take(self, seq: int, last_kept: int) -> None:
        """Notes that a message is gone; `last_kept` is the last one before it that is not."""
        if self.taken and self.taken[-1][1] > last_kept:
            self.taken[-1] = (self.taken[-1][0], seq)
        else:
            self.taken.append((seq, seq))


async def changes_between(
    earlier: AsyncIterator[Sequence[StoredMessage]],
    later: AsyncIterator[Sequence[StoredMessage]],
    last_seq: int,
    most: int,
) -> HistoryChanges:
    """Walks two states of a history, page by page. `last_seq` is the earlier one's.

    Raises: NotALaterState, also when more than `most` messages would come along; what the walks raise.
    """
    changes = HistoryChanges()
    before, after = _each(earlier), _each(later)
    old, new = await anext(before, None), await anext(after, None)
    last_kept = 0
    while old is not None or new is not None:
        if new is None or (old is not None and old.seq < new.seq):
            assert old is not None
            changes.take(old.seq, last_kept)
            old = await anext(before, None)
            continue
        last_kept = new.seq
        if old is not None and old.seq == new.seq:
            changes.put(old, new)
            old = await anext(before, None)
        elif new.seq > last_seq:
            changes.new.append(new)
        else:
            raise NotALaterState
        if changes.count > most:
            raise NotALaterState
        new = await anext(after, None)
    return changes


async def _each(pages: AsyncIterator[Sequence[StoredMessage]]) -> AsyncIterator[StoredMessage]:
    async for page in pages:
        for message in page:
            yield message


def _fields(message: StoredMessage, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(getattr(message, name) for name in names)

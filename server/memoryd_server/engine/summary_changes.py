"""What summaries do to a session's record, as pure functions (invariants 9, 10 and 11).

A fold goes in three steps: it is planned on what was read (`folding`), leased, and committed. The lease in the record
holds all that the commit needs, so that the commit costs the same whatever it covers; and whatever takes messages away
or answers a call where the lease lies voids it in its own commit. So a commit under a lease that stands is right,
however much was appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import pairing
from memoryd_server.engine.changes import StaleRead, removing
from memoryd_server.engine.errors import RequestError, session_not_found
from memoryd_server.engine.summary_links import numbers, voided, without
from memoryd_server.stores.base import Change
from memoryd_server.stores.records import (
    NO_FOLDING,
    Covered,
    Event,
    EventKind,
    Folding,
    OpenState,
    Record,
    RemovedRange,
    Retention,
    SessionKey,
    StoredSummary,
    SummaryLink,
    encode_open,
    replace,
)

_SECOND: Final = 1_000_000

ABANDONED: Final = "abandoned"
"""The failure of a task that its client gave up since its model failed."""

EXPIRED: Final = "expired"
"""The failure of a fold of which nobody heard again."""


class LeaseVoid(Exception):
    """The lease is another's, over, or void since the history changed where it lies."""


class LeaseTaken(Exception):
    """Somebody makes the next summary already, until `until` of the store's clock."""

    def __init__(self, until: int) -> None:
        super().__init__(until)
        self.until = until


@dataclass(frozen=True, slots=True)
class Fold:
    """Which messages the next summary takes in beside the current one, as they were read."""

    read_in: Record
    """The record with which they were."""
    seqs: Sequence[int]
    """In reading order."""
    to_head: int
    to_seq: int
    pinned_to: int
    covers: Covered


def ceiling(record: Record) -> int:
    """The head of the oldest group that must not be folded yet; beyond all heads for none.

    A group with open calls is folded, as interrupted, only once a later USER message shows that its turn is over, and
    no unfinished run owns it.
    """
    unfinished = {link.token for link in record.runs}
    groups = record.open_state.groups
    open_heads = (group.head for group in groups if group.head > record.last_user or group.run in unfinished)
    return min(open_heads, default=1 << 62)


def _open_below(record: Record, to_head: int) -> OpenState:
    """The open calls and groups up to a boundary."""
    state = record.open_state
    return OpenState(
        tuple(call for call in state.calls if call.head <= to_head),
        tuple(group for group in state.groups if group.head <= to_head),
    )


def plan_lease(
    record: Record | None, key: SessionKey, fold: Fold, folding: Folding, now: int
) -> tuple[Change | None, Record]:
    """Plans to lease a fold: its change, and the record once that is committed. `folding` names the lease and its end.

    Raises: RequestError SESSION_NOT_FOUND; StaleRead when the history is no longer as it was read; LeaseTaken.
    """
    if record is None:
        raise session_not_found(key.agent, key.session_id)
    current = record.folding
    if current.lease and current.until > now:
        raise LeaseTaken(current.until)
    read = fold.read_in
    same = (record.incarnation, record.epoch) == (read.incarnation, read.epoch)
    if not same or _open_below(record, fold.to_head) != _open_below(read, fold.to_head):
        raise StaleRead
    base = record.summary
    expired = bool(current.lease)
    new = replace(
        record,
        version=record.version + 1,
        folding=Folding(
            lease=folding.lease,
            until=folding.until,
            begun=now,
            summarizer=folding.summarizer,
            base=base.number if base else 0,
            from_seq=min(fold.seqs),
            to_head=fold.to_head,
            to_seq=fold.to_seq,
            pinned_to=fold.pinned_to,
            covers=fold.covers,
            wanted=current.wanted,
            attempts=current.attempts + expired,
            failure=EXPIRED if expired else current.failure,
        ),
    )
    return Change(key, record, new), new


def plan_renew(record: Record | None, key: SessionKey, lease: str, until: int) -> tuple[Change | None, None]:
    """Plans to put off the end of a lease. Raises: LeaseVoid."""
    current = _leased(record, lease)
    folding = msgspec.structs.replace(current.folding, until=until)
    return Change(key, current, replace(current, version=current.version + 1, folding=folding)), None


@dataclass(frozen=True, slots=True)
class Made:
    """A summary that was made under a lease."""

    text: str
    summarizer: str
    model: str
    output_tokens: int
    """Of the text."""
    message_tokens: int
    """Of the message that shows it."""
    message_size: int
    """The encoded bytes of that."""
    retention: Retention


def plan_commit(
    record: Record | None, key: SessionKey, lease: str, made: Made, now: int
) -> tuple[Change | None, tuple[Record, StoredSummary]]:
    """Plans to commit a summary: its change, and what there is then. O(1) whatever it covers.

    Raises: LeaseVoid.
    """
    record = _leased(record, lease)
    folding, base = record.folding, record.summary
    number = record.last_summary + 1
    closed = _open_below(record, folding.to_head)
    kept_calls = tuple(call for call in record.open_state.calls if call.head > folding.to_head)
    kept_groups = tuple(group for group in record.open_state.groups if group.head > folding.to_head)
    covers = folding.covers
    link = SummaryLink(
        number=number,
        from_seq=min(base.from_seq, folding.from_seq) if base else folding.from_seq,
        to_head=folding.to_head,
        to_seq=max(base.to_seq, folding.to_seq) if base else folding.to_seq,
        pinned_to=folding.pinned_to,
        tokens=made.message_tokens,
        size=made.message_size,
        messages=(base.messages if base else 0) + covers.messages,
        stored=_sum(base.stored, covers) if base else covers,
    )
    summary = StoredSummary(
        number=number,
        previous=base.number if base else 0,
        text=made.text,
        from_seq=folding.from_seq,
        to_seq=folding.to_seq,
        messages=covers.messages,
        summarizer=made.summarizer,
        model=made.model,
        created=now,
        duration=max(0, now - folding.begun),
        input_tokens=covers.tokens + (base.tokens if base else 0),
        output_tokens=made.output_tokens,
        lease=lease,
        closed=encode_open(closed),
    )
    chain = (*record.summaries, link)
    dropped = tuple(older.number for older in chain[: -limits.MAX_SUMMARIES])
    new = replace(
        record,
        version=record.version + 1,
        epoch=record.epoch + 1,
        summaries=chain[-limits.MAX_SUMMARIES :],
        last_summary=number,
        folding=NO_FOLDING,
        open=encode_open(OpenState(kept_calls, kept_groups)) if closed.groups else record.open,
        open_call_count=record.open_call_count - sum(len(call.indexes) for call in closed.calls),
    )
    if made.retention == Retention.DELETE:
        new = _without_originals(record, new, now)
    change = Change(
        key,
        record,
        new,
        events=(_summarized(new, now),),
        new_summaries=(summary,),
        dropped_summaries=dropped,
    )
    return change, (new, summary)


def _without_originals(before: Record, record: Record, now: int) -> Record:
    """The record without the messages that its current summary stands for.

    Where one of them lies beyond the boundary, since a call was answered late, none is removed yet: the next summary
    whose boundary passes it takes them along. Removed ranges are of seqs, and what would be left of a range must not be
    shown.
    """
    link = record.summaries[-1]
    base = before.summary
    from_seq = max(record.first_seq, link.pinned_to + 1)
    if base is not None and base.is_final and base.pinned_to <= link.pinned_to:
        from_seq = max(from_seq, base.to_head + 1)
    if link.to_seq > link.to_head or from_seq > link.to_head:
        return record
    try:
        removed = removing(record, RemovedRange(from_seq, link.to_head, now))
    except RequestError:  # The record holds no more of them.
        return record
    gone = link.stored
    return replace(
        record,
        removed=removed,
        messages=record.messages - gone.messages,
        tokens=record.tokens - gone.tokens,
        bytes=record.bytes - gone.bytes,
        open_messages=record.open_messages - gone.open_messages,
        orphan_messages=record.orphan_messages - gone.orphan_messages,
        summaries=tuple(msgspec.structs.replace(link, stored=Covered(), is_final=True) for link in record.summaries),
    )


def _sum(first: Covered, second: Covered) -> Covered:
    return Covered(
        first.messages + second.messages,
        first.tokens + second.tokens,
        first.bytes + second.bytes,
        first.open_messages + second.open_messages,
        first.orphan_messages + second.orphan_messages,
    )


def plan_fail(
    record: Record | None, key: SessionKey, lease: str, failure: str, retry_after: float, now: int
) -> tuple[Change | None, Folding]:
    """Plans to end a lease whose work failed: the change, and the fold as it was leased. It is tried again with
    backoff, and no sooner than after `retry_after` seconds.

    Raises: LeaseVoid.
    """
    record = _leased(record, lease)
    attempts = record.folding.attempts + 1
    pause = max(retry_after, min(limits.MAX_FOLD_BACKOFF_SECONDS, limits.FOLD_BACKOFF_SECONDS * 2 ** (attempts - 1)))
    folding = Folding(
        wanted=record.folding.wanted, attempts=attempts, retry_at=now + int(pause * _SECOND), failure=failure
    )
    return Change(key, record, replace(record, version=record.version + 1, folding=folding)), record.folding


def plan_release(record: Record | None, key: SessionKey, lease: str) -> tuple[Change | None, None]:
    """Plans to give a lease up as if it had never been taken. Raises: LeaseVoid."""
    record = _leased(record, lease)
    folding = voided(record.folding)
    return Change(key, record, replace(record, version=record.version + 1, folding=folding)), None


def plan_want(record: Record | None, key: SessionKey, now: int) -> tuple[Change | None, None]:
    """Plans to have a session wait for a client that makes its next summary."""
    if record is None or record.folding.wanted:
        return None, None
    folding = msgspec.structs.replace(record.folding, wanted=now)
    return Change(key, record, replace(record, version=record.version + 1, folding=folding)), None


def plan_unwant(record: Record | None, key: SessionKey, seen: Record) -> tuple[Change | None, None]:
    """Plans to have a session wait no longer, if it is as it was `seen`."""
    if record is None or not record.folding.wanted or record.version != seen.version:
        return None, None
    folding = msgspec.structs.replace(record.folding, wanted=0)
    return Change(key, record, replace(record, version=record.version + 1, folding=folding)), None


def plan_revert(
    record: Record | None, key: SessionKey, read_in: Record, summary: StoredSummary, now: int
) -> tuple[Change | None, Record]:
    """Plans to take the current summary back: its change, and the record then. `summary` was read with `read_in`.

    Raises: RequestError (SESSION_NOT_FOUND, ORIGINALS_REMOVED), StaleRead.
    """
    if record is None:
        raise session_not_found(key.agent, key.session_id)
    if (record.incarnation, record.epoch) != (read_in.incarnation, read_in.epoch):
        raise StaleRead
    taken = record.summaries[-1:]
    new = replace(
        pairing.reopen(record, (summary.closed_state,)),
        version=record.version + 1,
        epoch=record.epoch + 1,
        summaries=without(record, taken),
        folding=Folding(held_at=record.last_seq),
    )
    change = Change(
        key,
        record,
        new,
        events=(_summarized(new, now),),
        dropped_summaries=numbers(taken),
    )
    return change, new


def _summarized(record: Record, now: int) -> Event:
    """Tells watchers which messages the current summary stands for."""
    link = record.summary
    from_seq, to_seq, count = (link.from_seq, link.to_seq, link.messages) if link else (0, 0, 0)
    return Event(record.version, EventKind.SUMMARIZED, record.last_seq, from_seq, to_seq, count, record.epoch, now)


def _leased(record: Record | None, lease: str) -> Record:
    if record is None or not lease or record.folding.lease != lease:
        raise LeaseVoid
    return record

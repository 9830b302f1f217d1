"""Which messages the next summary takes in (design section 6, invariants 9 and 10).

The boundary is set from the newest message back: what `keep` holds stays raw, and groups are whole. What lies before it
is taken in from the oldest message on, as much as one task holds; a long history takes several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from memoryd_server import limits
from memoryd_server.engine import tokens, windows
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.errors import session_not_found
from memoryd_server.engine.living import LivingSessions
from memoryd_server.engine.policies import FoldSettings
from memoryd_server.engine.summary_changes import Fold, ceiling
from memoryd_server.engine.summary_links import covered_by
from memoryd_server.engine.windows import Unit
from memoryd_server.stores.records import (
    Covered,
    Entry,
    OpenCalls,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    Usability,
    WindowMode,
)


@dataclass(frozen=True, slots=True)
class Task:
    """The work for one summary."""

    fold: Fold
    messages: Sequence[StoredMessage]
    """In reading order."""
    previous: StoredSummary | None


def may_exceed(record: Record, settings: FoldSettings) -> bool:
    """Whether raw messages, summary and pins together may exceed the limit of the stored policies: never False where
    they do, but for instructions that a smaller limit in tokens pins no longer, which the next fold takes in. Costs
    nothing, so that loads can ask each time.
    """
    if record.folding.held_at and record.folding.held_at == record.last_seq:
        return False
    link = record.summary
    if settings.window.open_calls == OpenCalls.SYNTHESIZE and record.open_messages > covered_by(link).open_messages:
        return True  # What synthesized results take, only the messages tell.
    if link is not None and _pins_fewer(record, settings, link.pinned_to):
        return True
    if settings.window.mode == WindowMode.MESSAGES:
        return _usable(record, settings) + (link is not None) > settings.window.limit
    raw = record.tokens - covered_by(link).tokens
    return raw + (link.tokens if link else 0) > settings.window.limit


def _pins_fewer(record: Record, settings: FoldSettings, pinned_to: int) -> bool:
    """Whether messages may be pinned no longer that were when the summary was made: they are neither in it nor shown
    then. By a limit in tokens, only the messages tell.
    """
    if pinned_to < record.first_seq:
        return False
    if settings.window.mode == WindowMode.TOKENS:
        return not settings.window.pin_system
    return not settings.window.pin_system or 2 * (pinned_to - record.first_seq + 1) > settings.window.limit


def _usable(record: Record, settings: FoldSettings) -> int:
    """How many stored messages, pins included, the windows of the stored policies could show beside the summary."""
    covered = covered_by(record.summary)
    usable = record.messages - covered.messages - (record.orphan_messages - covered.orphan_messages)
    if settings.window.open_calls == OpenCalls.OMIT:
        usable -= record.open_messages - covered.open_messages
    return usable


async def read_task(
    sessions: LivingSessions, key: SessionKey, settings: FoldSettings, *, although_it_fits: bool = False
) -> Task | None:
    """Reads the work for the next summary of a session; None when nothing has to be folded. With `although_it_fits`,
    what exceeds `keep` is folded although the window is not full.

    Raises: RequestError SESSION_NOT_FOUND; StaleRead when the session changes meanwhile; StoreUnavailable.
    """
    loaded = await sessions.load(key, windows.tail_of(settings.window, 0, summary=True))
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    link = loaded.record.summary
    opening = [entry for entry in loaded.opening if link is None or entry.seq <= link.pinned_to]
    tail = [entry for entry in loaded.tail if link is None or entry.head > link.to_head]
    pins, pins_price = windows.pins_of(settings.window, opening)
    units = windows.units_of(tail, pins)
    if settings.window.open_calls == OpenCalls.SYNTHESIZE:
        await _synthesize(sessions, key, loaded.record, units)
    boundary = _boundary(loaded.record, settings, pins, pins_price, units, although_it_fits=although_it_fits)
    if boundary is None:
        return None
    fold = await _read_fold(sessions, key, loaded.record, *boundary)
    if fold is None:
        return None
    return Task(fold, await _read_bodies(sessions, key, fold.read_in, fold.seqs), loaded.summary)


async def _synthesize(sessions: LivingSessions, key: SessionKey, record: Record, units: Sequence[Unit]) -> None:
    """Gives unanswered calls their marked results, as windows do."""
    heads = [unit.head.seq for unit in units if unit.is_open]
    if heads:
        bodies = {message.seq: message for message in await _read_bodies(sessions, key, record, heads)}
        windows.synthesize(units, bodies, await tokens.ready_counter(record.tokenizer))


def _boundary(
    record: Record,
    settings: FoldSettings,
    pins: Sequence[Entry],
    pins_price: int,
    units: Sequence[Unit],
    *,
    although_it_fits: bool,
) -> tuple[int, int] | None:
    """The seq of the last pinned message (0 for none), and the head up to which groups are to be folded."""
    link = record.summary
    by_tokens = settings.window.mode == WindowMode.TOKENS

    def price(unit: Unit) -> int:
        return unit.tokens if by_tokens else len(unit.entries)

    raw = sum(1 for unit in units for entry in unit.entries if entry.seq)
    is_whole = raw + len(pins) >= _usable(record, settings)
    pinned_to = pins[-1].seq if pins else 0
    unpinned = (pinned_to, link.to_head) if link is not None and pinned_to < link.pinned_to else None
    if not although_it_fits and is_whole:
        claimed = pins_price + ((link.tokens if by_tokens else 1) if link else 0)
        if claimed + sum(map(price, units)) <= settings.window.limit:
            return unpinned
    keep = settings.most_kept(pins_price)
    kept = 0
    for unit in units:
        keep -= price(unit)
        # The newest group stays raw, whatever it takes.
        if kept and keep < 0:
            break
        kept += 1
    if not kept or (is_whole and kept == len(units)):
        return unpinned
    to_head = min(units[kept - 1].head.seq, ceiling(record)) - 1
    return pinned_to, to_head


async def _read_fold(
    sessions: LivingSessions, key: SessionKey, record: Record, pinned_to: int, to_head: int
) -> Fold | None:
    """What one summary takes in of all that is to be folded: whole groups from the oldest on."""
    link = record.summary
    entries: list[Entry] = []
    from_head = pinned_to + 1
    if link is not None:
        # What was pinned when it was made, and is not any more.
        if pinned_to < link.pinned_to:
            entries += await _entries(sessions, key, record, pinned_to + 1, link.pinned_to)
        from_head = link.to_head + 1
    next_head = to_head + 1
    if from_head <= to_head:
        page = await _entries(sessions, key, record, from_head, to_head)
        if len(page) == limits.SUMMARY_TASK_MESSAGES and page[0].head != page[-1].head:
            # The last group may go on.
            next_head = page[-1].head
            page = [entry for entry in page if entry.head != next_head]
        entries += [entry for entry in page if entry.seq > pinned_to]
    taken: list[Entry] = []
    size = 0
    for head, group in groupby(entries, key=lambda entry: entry.head):
        members = list(group)
        size += sum(entry.size for entry in members)
        if taken and size > limits.SUMMARY_TASK_BYTES:
            next_head = head
            break
        taken += members
    if not taken:
        return None
    to_seq = max(entry.seq for entry in taken)
    base_head = link.to_head if link else 0
    return Fold(
        read_in=record,
        seqs=[entry.seq for entry in taken],
        # Where no raw message lies before the last that is folded, the two are one: then originals can be removed.
        to_head=max(base_head, to_seq if to_seq < next_head else max(entry.head for entry in taken)),
        to_seq=to_seq,
        pinned_to=pinned_to,
        covers=Covered(
            messages=len(taken),
            tokens=sum(entry.tokens for entry in taken),
            bytes=sum(entry.size for entry in taken),
            open_messages=sum(entry.usability is Usability.OPEN for entry in taken),
            orphan_messages=sum(entry.usability is Usability.ORPHAN for entry in taken),
        ),
    )


async def _entries(
    sessions: LivingSessions, key: SessionKey, record: Record, from_head: int, to_head: int
) -> Sequence[Entry]:
    read = await sessions.list_in_reading_order(
        key, record.incarnation, from_head, to_head, limits.SUMMARY_TASK_MESSAGES
    )
    if read is None or read[0].epoch != record.epoch:
        raise StaleRead
    return read[1]


async def _read_bodies(
    sessions: LivingSessions, key: SessionKey, record: Record, seqs: Sequence[int]
) -> Sequence[StoredMessage]:
    read = await sessions.read(key, record.incarnation, seqs)
    if read is None or read[0].epoch != record.epoch or len(read[1]) != len(seqs):
        raise StaleRead
    return read[1]

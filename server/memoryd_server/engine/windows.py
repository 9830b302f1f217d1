"""Windows, planned as pure functions (invariants 6 and 7).

A window is planned on entries, without bodies: the summary and pins, then whole groups from the newest back until one
does not fit, then perhaps a USER message in front. What a plan lacks, it asks for by `NeedsMessages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import summary_links
from memoryd_server.engine.content import Text, ToolCall, ToolResult, decode_parts, encode_parts
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.policies import WindowSettings
from memoryd_server.engine.tokens import Count, message_tokens
from memoryd_server.stores.base import Tail
from memoryd_server.stores.records import (
    Entry,
    OpenCalls,
    Oversize,
    Record,
    Role,
    StoredMessage,
    SummaryLink,
    Usability,
    WindowMode,
)

INTERRUPTED_TEXT: Final = "[interrupted: this call has no result]"
"""The synthesized answer to a call that has none."""

INTERRUPTED_METADATA: Final = '{"type":"interrupted_result"}'
"""Marks a synthesized result for programs."""

_SYNTHETIC_OVERHEAD_BYTES: Final = 160
"""Encoded bytes of a synthesized result beyond its ids and names."""


class NeedsMessages(Exception):
    """The plan needs the bodies of these messages, which the load did not bring."""

    def __init__(self, seqs: Sequence[int]) -> None:
        super().__init__(seqs)
        self.seqs = seqs


class Unit(msgspec.Struct):
    """What a window takes whole or not at all: a tool group, or a message outside of groups."""

    entries: list[Entry]
    """In reading order, synthesized results included."""
    tokens: int
    """Of all entries."""

    @property
    def head(self) -> Entry:
        """The group's assistant message, or the message outside of groups."""
        return self.entries[0]

    @property
    def is_open(self) -> bool:
        """Whether a call of the group is unanswered."""
        return self.entries[0].usability == Usability.OPEN


class LeftOut(msgspec.Struct, frozen=True):
    """What is not in a window. The counts of stored messages in it and of these add up to the history's."""

    limit_count: int
    limit_from_seq: int
    limit_to_seq: int
    orphan_count: int
    open_count: int


class WindowPlan(msgspec.Struct, frozen=True):
    """Which messages make up a window, in reading order."""

    pins: Sequence[Entry]
    summary: StoredMessage | None
    """The message that shows the summary."""
    front: Entry | None
    """The USER message that start_with_user put in front."""
    units: Sequence[Unit]
    """Oldest first."""
    over_limit: bool
    shortened: Sequence[int] = ()
    """The seqs whose texts are shortened."""
    shorten_to: int | None = None
    """The tokens that the newest group, the only one, must be shortened to before the plan holds."""

    entries: Sequence[Entry] = ()
    """All of the window's messages in reading order. Not given, but made of the others."""

    def __post_init__(self) -> None:
        entries = [*self.pins]
        if self.summary is not None:
            entries.append(self.summary)
        if self.front is not None:
            entries.append(self.front)
        for unit in self.units:
            entries += unit.entries
        msgspec.structs.force_setattr(self, "entries", entries)


class Shown(msgspec.Struct, frozen=True):
    """A summary that a window shows in the place of what it stands for."""

    link: SummaryLink
    message: StoredMessage


def tail_of(settings: WindowSettings, body_bytes: int, *, summary: bool = False) -> Tail:
    """What to load for a window."""
    by_tokens = settings.mode == WindowMode.TOKENS
    omit = settings.open_calls == OpenCalls.OMIT
    return Tail(
        usabilities=(Usability.USABLE,) if omit else (Usability.USABLE, Usability.OPEN),
        messages=limits.MAX_WINDOW_MESSAGES if by_tokens else settings.limit,
        tokens=settings.limit if by_tokens else None,
        opening=settings.pin_system,
        summary=summary,
        body_bytes=body_bytes,
    )


def plan_window(
    settings: WindowSettings,
    tail: Sequence[Entry],
    opening: Sequence[Entry],
    extra: Mapping[int, StoredMessage],
    count: Count,
    shown: Shown | None = None,
    gone_to: int = 0,
) -> WindowPlan:
    """Plans a window.

    `tail` and `opening` are what `tail_of` loads, `extra` what an earlier attempt asked for. `count` prices
    synthesized results. Messages up to the seq `gone_to` are removed, apart from pinned ones.

    Raises: NeedsMessages; RequestError WINDOW_TOO_SMALL.
    """
    by_tokens = settings.mode == WindowMode.TOKENS

    def price(unit: Unit) -> int:
        return unit.tokens if by_tokens else len(unit.entries)

    message: StoredMessage | None = None
    if shown is not None:
        message = shown.message
        opening = [entry for entry in opening if entry.seq <= shown.link.pinned_to]
        tail = [entry for entry in tail if entry.head > shown.link.to_head]
    pins, pins_price = pins_of(settings, opening)
    claimed = pins_price
    if message is not None:
        claimed += message.tokens if by_tokens else 1
    units = units_of(tail, pins)
    if settings.open_calls == OpenCalls.SYNTHESIZE:
        synthesize(units, extra, count)
    if not units:
        return WindowPlan(pins, message, None, (), over_limit=claimed > settings.limit)

    used = claimed + price(units[0])
    if used > settings.limit:
        return _oversize(settings, pins, message, units[0], room=settings.limit - claimed, needed=used)
    chosen = [units[0]]
    for unit in units[1:]:
        unit_price = price(unit)
        if used + unit_price > settings.limit:
            break
        used += unit_price
        chosen.append(unit)
    front = None
    if settings.start_with_user and message is None:
        front = _front(settings, chosen, used, price, {entry.seq: entry for entry in tail}, extra, gone_to)
    return WindowPlan(pins, message, front, chosen[::-1], over_limit=False)


def pins_of(settings: WindowSettings, opening: Sequence[Entry]) -> tuple[Sequence[Entry], int]:
    """The opening messages that take at most half the limit, and their price."""
    if not settings.pin_system:
        return (), 0
    pins: list[Entry] = []
    used = 0
    for entry in opening:
        price = entry.tokens if settings.mode == WindowMode.TOKENS else 1
        if 2 * (used + price) > settings.limit:
            break
        used += price
        pins.append(entry)
    return pins, used


def units_of(tail: Sequence[Entry], pins: Sequence[Entry] = ()) -> list[Unit]:
    """The whole groups of a tail without what is pinned, newest first. An oldest group whose head lies beyond the tail
    is not whole: it would not fit.
    """
    if pins:
        pinned = {entry.seq for entry in pins}
        tail = [entry for entry in tail if entry.seq not in pinned]
    units: list[Unit] = []
    group: list[Entry] = []
    for entry in tail:
        if entry.seq != entry.head:
            group.append(entry)
        elif group:
            entries = [entry, *reversed(group)]
            units.append(Unit(entries, sum(member.tokens for member in entries)))
            group = []
        else:
            units.append(Unit([entry], entry.tokens))
    return units


def synthesize(units: Sequence[Unit], extra: Mapping[int, StoredMessage], count: Count) -> None:
    """Gives each unanswered call of open groups a marked result, in the order of the calls. `extra` holds bodies of
    heads that came without.

    Raises: NeedsMessages.
    """
    missing = [
        unit.head.seq
        for unit in units
        if unit.is_open and not isinstance(unit.head, StoredMessage) and unit.head.seq not in extra
    ]
    if missing:
        raise NeedsMessages(missing)
    for unit in units:
        if not unit.is_open:
            continue
        head = unit.head if isinstance(unit.head, StoredMessage) else extra[unit.head.seq]
        calls = [part for part in decode_parts(head.content or "[]") if isinstance(part, ToolCall)]
        answered = {index for entry in unit.entries for index in entry.answers}
        results = [_interrupted(head, index, call, count) for index, call in enumerate(calls) if index not in answered]
        unit.entries = sorted([*unit.entries, *results], key=_reading_order)
        unit.tokens += sum(result.tokens for result in results)


def _reading_order(entry: Entry) -> tuple[int, int, int]:
    return entry.head, entry.position, entry.seq


def _interrupted(head: StoredMessage, index: int, call: ToolCall, count: Count) -> StoredMessage:
    result = ToolResult(call_id=call.id, name=call.name, is_error=True, parts=(Text(INTERRUPTED_TEXT),))
    return StoredMessage(
        seq=0,
        head=head.seq,
        position=1 + index,
        usability=Usability.OPEN,
        role=Role.TOOL,
        tokens=message_tokens(count, None, (result,)),
        size=_SYNTHETIC_OVERHEAD_BYTES + 2 * len(call.id.encode()) + len(call.name.encode()),
        calls=0,
        answers=(index,),
        prior_user=0,
        id="",
        name=None,
        content=encode_parts((result,)),
        run_id=head.run_id,
        metadata=INTERRUPTED_METADATA,
        extra="",
        created=head.created,
    )


def _oversize(
    settings: WindowSettings,
    pins: Sequence[Entry],
    summary: StoredMessage | None,
    newest: Unit,
    *,
    room: int,
    needed: int,
) -> WindowPlan:
    """A window whose newest group alone exceeds what summary and pins leave of the limit."""
    if settings.mode == WindowMode.TOKENS and settings.oversize == Oversize.FAIL:
        raise RequestError(
            Reason.WINDOW_TOO_SMALL,
            f"summary, pins and newest group need {needed:,} tokens, and options.limit is {settings.limit:,}: raise "
            "the limit, or let options.oversize be SHORTEN or RETURN",
            limit=settings.limit,
            needed=needed,
        )
    shorten = settings.mode == WindowMode.TOKENS and settings.oversize == Oversize.SHORTEN
    return WindowPlan(pins, summary, None, (newest,), over_limit=True, shorten_to=room if shorten else None)


def _front(
    settings: WindowSettings,
    chosen: list[Unit],
    used: int,
    price: Callable[[Unit], int],
    tail: Mapping[int, Entry],
    extra: Mapping[int, StoredMessage],
    gone_to: int,
) -> Entry | None:
    """The USER message to put in front of the chosen units (newest first); the oldest of them make room for it.

    Where even the newest unit alone leaves no room, the limit wins and the units stay as they are.
    """
    kept = len(chosen)
    while (head := chosen[kept - 1].head).role != Role.USER and head.prior_user > gone_to:
        front = tail.get(head.prior_user) or extra.get(head.prior_user)
        if front is None:
            raise NeedsMessages([head.prior_user])
        if used + price(Unit([front], front.tokens)) <= settings.limit:
            del chosen[kept:]
            return front
        if kept == 1:
            return None
        kept -= 1
        used -= price(chosen[kept])
    del chosen[kept:]
    return None


def with_shortened(plan: WindowPlan, shortened: Sequence[StoredMessage] | None) -> WindowPlan:
    """The plan after its newest group was shortened; None when that was not possible, and it is shown whole."""
    if shortened is None:
        return WindowPlan(plan.pins, plan.summary, plan.front, plan.units, over_limit=True)
    (unit,) = plan.units
    seqs = [new.seq for new, old in zip(shortened, unit.entries, strict=True) if new.tokens != old.tokens]
    tokens = sum(message.tokens for message in shortened)
    units = (Unit(list(shortened), tokens),)
    return WindowPlan(plan.pins, plan.summary, plan.front, units, over_limit=False, shortened=seqs)


def left_out(record: Record, settings: WindowSettings, plan: WindowPlan) -> LeftOut:
    """What is not in the window, in O(1) of the history."""
    omit = settings.open_calls == OpenCalls.OMIT
    link = record.summary if plan.summary is not None else None
    covered = summary_links.covered_by(link)
    open_count = record.open_messages - covered.open_messages if omit else 0
    orphan_count = record.orphan_messages - covered.orphan_messages
    # Only a synthesized result and the summary have no seq.
    shown = len(plan.entries) - (link is not None) if omit else sum(1 for entry in plan.entries if entry.seq)
    limit_count = record.messages - covered.messages - orphan_count - open_count - shown
    from_seq = to_seq = 0
    if limit_count:
        from_seq = record.first_seq + len(plan.pins)
        if link is not None and from_seq > link.pinned_to:
            from_seq = link.to_head + 1
        to_seq = plan.units[0].head.seq - 1 if plan.units else record.last_seq
    return LeftOut(limit_count, from_seq, to_seq, orphan_count, open_count)


def prefix_digest(record: Record, settings: WindowSettings, plan: WindowPlan) -> bytes:
    """SHA-256 over what shapes the window's beginning (design section 3, WindowStats).

    Appends make a window grow at its end, except where a group is completed after later messages became visible, or
    where an open group that is shown gets an answer: the seqs of such groups are part of the digest.
    """
    late: list[int] = []
    open_: list[tuple[int, list[int]]] = []
    earliest_behind = record.last_seq + 1
    for unit in reversed(plan.units):
        if len(unit.entries) == 1 and not unit.is_open:
            # Its place and the moment it became visible are one: it is never late itself.
            earliest_behind = unit.entries[0].seq if unit.entries[0].seq < earliest_behind else earliest_behind
            continue
        if unit.is_open:
            open_.append((unit.head.seq, [entry.seq for entry in unit.entries]))
            visible_at = unit.head.seq
        else:
            visible_at = max(entry.seq for entry in unit.entries)
            if visible_at > earliest_behind:
                late.append(unit.head.seq)
        earliest_behind = min(earliest_behind, visible_at)
    shape = (
        record.incarnation,
        record.epoch,
        [entry.seq for entry in plan.pins],
        plan.summary.id if plan.summary is not None else None,
        plan.front.seq if plan.front else 0,
        plan.units[0].head.seq if plan.units else 0,
        late,
        open_,
        int(settings.open_calls) if open_ else 0,
        [(seq, settings.limit) for seq in plan.shortened],
    )
    return sha256(msgspec.msgpack.encode(shape)).digest()


Life = tuple[str, int]
"""A session's incarnation and epoch: as long as both are the same, a stored message is the same."""


class SummaryState(IntEnum):
    """What is to be said of a session's next summary; the values are those of the protocol's enum."""

    NONE = 1
    CURRENT = 2
    PENDING = 3
    FAILED = 4


class WindowStats(msgspec.Struct, frozen=True):
    """What a window holds and what it does not; documented in the protocol's message of the same name."""

    life: Life
    history_messages: int
    history_tokens: int
    window_messages: int
    window_tokens: int
    settings: WindowSettings
    used_percent: float
    left_out: LeftOut
    uncovered: int
    over_limit: bool
    shortened: Sequence[int]
    prefix_digest: bytes
    pins: int
    last_seq: int
    first_seq: int
    explained: Sequence[Entry] = ()
    summary_id: str = ""
    summary_state: SummaryState = SummaryState.NONE
    summary_failure: str = ""


def stats_of(
    record: Record,
    settings: WindowSettings,
    plan: WindowPlan,
    explained: Sequence[Entry],
    summary_state: SummaryState = SummaryState.NONE,
) -> WindowStats:
    """The stats of a finished plan."""
    entries = plan.entries
    tokens = sum([entry.tokens for entry in entries])  # A list: it is on the path of every load.
    used = tokens if settings.mode == WindowMode.TOKENS else len(entries)
    left = left_out(record, settings, plan)
    before_units = len(plan.pins) + (plan.summary is not None)
    return WindowStats(
        life=(record.incarnation, record.epoch),
        history_messages=record.messages,
        history_tokens=record.tokens,
        window_messages=len(entries),
        window_tokens=tokens,
        settings=settings,
        used_percent=100 * used / settings.limit,
        left_out=left,
        uncovered=left.limit_count,
        over_limit=plan.over_limit,
        shortened=plan.shortened,
        prefix_digest=prefix_digest(record, settings, plan),
        pins=len(plan.pins),
        last_seq=record.last_seq,
        first_seq=entries[before_units].seq if len(entries) > before_units else 0,
        explained=explained,
        summary_id=plan.summary.id if plan.summary is not None else "",
        summary_state=summary_state,
        summary_failure=record.folding.failure if summary_state != SummaryState.NONE else "",
    )


def shown(message: StoredMessage) -> StoredMessage:
    """A message as windows show it: without results that answer no call of its group. Idempotent."""
    if -1 not in message.answers or message.content is None:
        return message
    answers = iter(message.answers)
    parts = [part for part in decode_parts(message.content) if not isinstance(part, ToolResult) or next(answers) >= 0]
    given = tuple(answer for answer in message.answers if answer >= 0)
    return msgspec.structs.replace(message, content=encode_parts(parts), answers=given)

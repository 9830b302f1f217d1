"""The chain of a session's summaries, as far as changes of the history must know it (invariants 10 and 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.stores.records import NO_FOLDING, Covered, Folding, Record, SummaryLink

NOTHING_COVERED = Covered()


def summary_id(record: Record, number: int) -> str:
    """The id of a session's summary: another one in each life, and in each fork. Empty for the number 0."""
    return f"summary-{record.incarnation[:8]}-{number}" if number else ""


def covered_by(link: SummaryLink | None) -> Covered:
    """What of the stored messages the summary stands for."""
    return link.stored if link else NOTHING_COVERED


def is_covered(link: SummaryLink, seq: int, head: int) -> bool:
    """Whether a summary stands for a message."""
    return head <= link.to_head and seq > link.pinned_to


def from_first(record: Record, goes: Callable[[SummaryLink], bool]) -> tuple[SummaryLink, ...]:
    """The summaries that must go with something that they stand for: the first such one, and all that come after it."""
    for index, link in enumerate(record.summaries):
        if goes(link):
            return record.summaries[index:]
    return ()


def without(record: Record, dropped: Sequence[SummaryLink]) -> tuple[SummaryLink, ...]:
    """The chain without its newest summaries.

    Raises: RequestError ORIGINALS_REMOVED when one of them stands for messages that are gone.
    """
    for link in dropped:
        if link.is_final:
            raise RequestError(
                Reason.ORIGINALS_REMOVED,
                f"the messages up to seq {link.to_seq} were removed when they were summarized (retention DELETE): what "
                "would bring them back cannot be done",
                summary_id=summary_id(record, link.number),
                to_seq=link.to_seq,
            )
    return record.summaries[: len(record.summaries) - len(dropped)]


def numbers(links: Sequence[SummaryLink]) -> tuple[int, ...]:
    """The numbers of summaries, in their order."""
    return tuple(link.number for link in links)


def voided(folding: Folding) -> Folding:
    """The state of a fold whose lease is void or given up: what was read for it may no longer be so."""
    if not folding.lease:
        return folding
    left = Folding(wanted=folding.wanted, attempts=folding.attempts, failure=folding.failure, held_at=folding.held_at)
    return NO_FOLDING if left == NO_FOLDING else left


def hold_of(folding: Folding) -> Folding:
    """What of a fold's state belongs to the history: that a summary was taken back, and nothing is folded before the
    next append. All else is the affair of one store.
    """
    return Folding(held_at=folding.held_at) if folding.held_at else NO_FOLDING


def after_append(folding: Folding, answered: Sequence[int]) -> Folding:
    """The state of a fold after an append that added messages to older groups, given by their heads: a lease that one
    of them lies in is void (invariant 10).
    """
    if folding.lease and any(head <= folding.to_head for head in answered):
        return voided(folding)
    return folding

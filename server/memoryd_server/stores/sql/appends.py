"""Chains of changes of one session that only add to it, or change its runs, made as one change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from memoryd_server.stores.base import Change, RunChange
from memoryd_server.stores.records import Lookup, LookupKind, StoredMessage, StoredStep, Usability


def merge_appends(changes: Sequence[Change], *, births: bool = False) -> Change | None:
    """The one change that a chain of changes of one session amounts to; None when they do more than to add to it and to
    change its runs, or do not rest one upon the other. With `births`, the first may be one.
    """
    first = changes[0]
    if not _only_adds(first) and not (births and _is_born(first)):
        return None
    if len(changes) == 1:
        return first
    messages: list[StoredMessage] = []
    steps: list[StoredStep] = []
    runs: dict[str, RunChange] = {}
    completed: list[int] = []
    lookups: list[Lookup] = []
    ids: set[tuple[LookupKind, str]] = set()
    record = first.previous
    for change in changes:
        if change is not first and (not _only_adds(change) or change.previous != record):
            return None
        record = change.record
        if change.completed:
            # Of groups whose messages an earlier change of the chain brings, these are written as complete.
            messages = [_completed(message, change.completed) for message in messages]
            completed += change.completed
        for changed in change.changed_runs:
            before = runs.get(changed.run_id)
            if before is not None and before.begins:
                return None
            head = changed.head or (before.head if before is not None else None)
            runs[changed.run_id] = replace(changed, head=head)
        messages += change.messages
        steps += change.new_steps
        lookups += change.lookups
        ids.update((lookup.kind, lookup.id) for lookup in change.lookups)
    if len(ids) < len(lookups):
        return None  # One of them repeats another, which is then known.
    return Change(
        *(first.key, first.previous, record, messages),
        completed=completed,
        changed_runs=list(runs.values()),
        new_steps=steps,
        lookups=lookups,
    )


def _only_adds(change: Change) -> bool:
    previous, record = change.previous, change.record
    return (
        previous is not None
        and record is not None
        and previous.incarnation == record.incarnation
        and previous.fold_at == record.fold_at
        and not (change.replaced or change.reopened or change.events or change.staging)
        and not (change.new_summaries or change.dropped_summaries)
    )


def _is_born(change: Change) -> bool:
    return (
        change.previous is None
        and change.record is not None
        and not (change.changed_runs or change.new_steps)
        and not (change.replaced or change.completed or change.reopened or change.events or change.staging)
        and not (change.new_summaries or change.dropped_summaries)
    )


def _completed(message: StoredMessage, heads: Sequence[int]) -> StoredMessage:
    if message.usability is Usability.OPEN and message.head in heads:
        return msgspec.structs.replace(message, usability=Usability.USABLE)
    return message

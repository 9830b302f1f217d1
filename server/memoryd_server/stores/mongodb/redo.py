"""What a commit carries in its session's document, to be written out to the other documents: the redo.

MongoDB changes one document at once and no more. So the compare-and-set on the session's document is the commit, and
brings along all that belongs to other documents. It stays there until the next compare-and-set takes its place, before
which whoever makes that sees to it that it is written out. Until then, readers that do not know that it is written out
add what it holds to what they find, or write it out themselves.

It may be written out by several servers at once, and by one that read it long ago: `operations` are such that this
changes nothing that came later.

- Documents are inserted, never replaced: a message that has got another body since keeps that.
- A body is replaced, and a group turned, only in messages that bear the stamp (`written`, `turned`) of an older version
  of the record. A later redaction or turn has stamped them with its own, and what was inserted later bears the version
  that brought it.
- What a dropped summary leaves, without its text, keeps its place from being taken again.
- A run's document bears the stamp of the version that last changed it, as do the steps, each of which one version
  brought. What a deleted run leaves bears that of the session at that time: what is older does not bring it back, and a
  run that begins later takes its place.
- Each names its documents by the session's home and life, which are never used again: after a death it cannot reach
  the next life, and after an erasure not the name's next home.
- What was deleted meanwhile it could bring back. So a server stops `HELP_SECONDS` after it has read a redo, in which
  it has one command to send; purges begin `limits.PURGE_DELAY_SECONDS` after the removal that they follow; and what was
  erased or swept at once is looked for again after that time (`LeftoverKind.ASHES`).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from bson import Binary
from pymongo import UpdateMany, UpdateOne

from memoryd_server.stores.base import Change, RunChange
from memoryd_server.stores.mongodb.documents import (
    DROPPED_AT,
    Document,
    document_of_event,
    document_of_lookup,
    document_of_message,
    document_of_run,
    document_of_step,
    document_of_summary,
    fields_of_run_head,
    fields_of_run_state,
    replacement_of,
)
from memoryd_server.stores.mongodb.layout import CarriedRuns, Pile, numbered_id, run_id_of
from memoryd_server.stores.records import (
    Event,
    Lookup,
    Record,
    RunHead,
    RunState,
    RunStatus,
    SessionKey,
    StoredMessage,
    StoredStep,
    encode_summary,
)
from memoryd_server.stores.walk import Segment, visible_segments

HELP_SECONDS: Final = 30.0
"""How long after it was read a redo may be written out: half of what purges wait for."""

DEFLATED_BYTES: Final = 4 * 1024 * 1024
"""From this size on it is compressed, since a document holds 16 MiB: what was received in 4 MiB may be six times as
large as JSON text, but only by escapes, of which little is left then."""

_PLAIN: Final = b"\x00"
_DEFLATED: Final = b"\x01"


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one change brings for other documents than its session's."""

    version: int
    """Of the record that it made."""
    messages: tuple[StoredMessage, ...] = ()
    replaced: tuple[StoredMessage, ...] = ()
    completed: tuple[int, ...] = ()
    reopened: tuple[int, ...] = ()
    shown: tuple[tuple[int, int], ...] = ()
    """With reopened groups: the ranges of seqs that the record shows."""
    hidden: tuple[tuple[int, int], ...] = ()
    """And those that it says are removed."""
    lookups: tuple[Lookup, ...] = ()
    events: tuple[Event, ...] = ()
    new_summaries: tuple[tuple[int, str], ...] = ()
    """Their numbers, and they as JSON texts."""
    dropped_summaries: tuple[int, ...] = ()
    changed_runs: tuple[RunChange, ...] = ()
    new_steps: tuple[StoredStep, ...] = ()

    @property
    def changes_messages(self) -> bool:
        """Whether it changes messages that are stored already."""
        return bool(self.replaced or self.completed or self.reopened)

    @property
    def size(self) -> int:
        """About how large it is, in bytes, by what may be large in it: messages, texts of summaries, and steps."""
        return (
            sum(message.size for message in self.messages)
            + sum(len(text) for _, text in self.new_summaries)
            + sum(len(step.payload) for step in self.new_steps)
        )


Parts = tuple[Part, ...]
"""Of the changes of one compare-and-set, in their order."""

_DECODER: Final = msgspec.msgpack.Decoder(Parts)


def parts_of(run: Sequence[Change]) -> list[Part]:
    """What changes of a life bring that one compare-and-set makes. A summary that another of them drops is not even
    carried.
    """
    dropped = {number for change in run for number in change.dropped_summaries}
    return [_part_of(change, dropped) for change in run]


def _part_of(change: Change, dropped: Collection[int]) -> Part:
    record = change.record
    assert record is not None
    return Part(
        version=record.version,
        messages=tuple(change.messages),
        replaced=tuple(change.replaced),
        completed=tuple(change.completed),
        reopened=tuple(change.reopened),
        shown=tuple(visible_segments(record)) if change.reopened else (),
        hidden=tuple((gone.from_seq, gone.to_seq) for gone in record.removed) if change.reopened else (),
        lookups=tuple(change.lookups),
        events=tuple(change.events),
        new_summaries=tuple(
            (summary.number, encode_summary(summary).decode())
            for summary in change.new_summaries
            if summary.number not in dropped
        ),
        dropped_summaries=tuple(change.dropped_summaries),
        changed_runs=tuple(change.changed_runs),
        new_steps=tuple(change.new_steps),
    )


def encode(parts: Sequence[Part]) -> Binary | None:
    """The redo as a session's document holds it; None when there is nothing to write out."""
    if not any(map(_brings_something, parts)):
        return None
    data = msgspec.msgpack.encode(parts)
    if len(data) < DEFLATED_BYTES:
        return Binary(_PLAIN + data)
    return Binary(_DEFLATED + zlib.compress(data, level=1))


def decode(redo: bytes | None) -> Parts:
    """The inverse of `encode`."""
    if not redo:
        return ()
    data = memoryview(redo)[1:]
    return _DECODER.decode(zlib.decompress(data) if redo[:1] == _DEFLATED else data)


def _brings_something(part: Part) -> bool:
    return bool(
        part.messages
        or part.changes_messages
        or part.lookups
        or part.events
        or part.new_summaries
        or part.dropped_summaries
        or part.changed_runs
        or part.new_steps
    )


def history_documents(home: str, life: int, parts: Sequence[Part]) -> list[Document]:
    """The documents of messages and look-ups that parts bring, for the collection `history`."""
    return [
        *(document_of_message(home, life, message, part.version) for part in parts for message in part.messages),
        *(document_of_lookup(home, life, lookup) for part in parts for lookup in part.lookups),
    ]


def insertions(documents: Sequence[Document]) -> list[Any]:
    """What inserts documents among other updates; those that are there stay as they are."""
    named = [({"_id": each["_id"], "home": each["home"]}, each) for each in documents]
    return [
        UpdateOne(name, {"$setOnInsert": {k: v for k, v in document.items() if k not in name}}, upsert=True)
        for name, document in named
    ]


def history_updates(home: str, life: int, parts: Sequence[Part]) -> list[Any]:
    """What changes messages that are stored, or that parts bring, in this order, behind the insertions."""
    return [operation for part in parts for operation in _of_part(home, life, part)]


def event_documents(home: str, life: int, parts: Sequence[Part]) -> list[Document]:
    """The documents of the collection `events`."""
    return [document_of_event(home, life, event) for part in parts for event in part.events]


def summary_updates(home: str, life: int, parts: Sequence[Part]) -> list[Any]:
    """What inserts summaries, and what takes away the dropped ones."""
    new = [document_of_summary(home, life, *summary) for part in parts for summary in part.new_summaries]
    return [
        *insertions(new),
        *(_drop(home, life, number) for part in parts for number in part.dropped_summaries),
    ]


class CarriedRun(NamedTuple):
    """What parts bring of a run, taken together."""

    version: int
    """Of the record that they made last of those that changed the run."""
    born: int | None
    """The one that began it; None where it was there before."""
    head: RunHead | None
    """None where it stays as it is stored."""
    state: RunState


def carried_runs(parts: Sequence[Part]) -> dict[str, CarriedRun]:
    """What parts bring of runs, by their ids."""
    runs: dict[str, CarriedRun] = {}
    for part in parts:
        for change in part.changed_runs:
            before = runs.get(change.run_id)
            born = part.version if change.begins else before and before.born
            runs[change.run_id] = CarriedRun(part.version, born, change.head or (before and before.head), change.state)
    return runs


def kind_of_carried(changes: Sequence[Change]) -> CarriedRuns | None:
    """What changes of a life bring of runs that one compare-and-set makes."""
    if not any(change.changed_runs for change in changes):
        return None
    return CarriedRuns.PLACES if any(map(_moves_runs, changes)) else CarriedRuns.STATES


def _moves_runs(change: Change) -> bool:
    """Whether it changes which runs the agent's lists hold, or which status they have there."""
    return any(run.begins or run.state.status.is_final for run in change.changed_runs) or (
        bool(change.changed_runs) and _statuses(change.previous) != _statuses(change.record)
    )


def _statuses(record: Record | None) -> dict[str, RunStatus]:
    return {link.token: link.state.status for link in record.runs} if record else {}


def run_updates(key: SessionKey, home: str, life: int, parts: Sequence[Part]) -> list[Any]:
    """What inserts runs and changes them."""
    return [
        operation for run_id, run in carried_runs(parts).items() for operation in _of_run(key, home, life, run_id, run)
    ]


def _of_run(key: SessionKey, home: str, life: int, run_id: str, run: CarriedRun) -> Iterator[Any]:
    id_ = run_id_of(home, life, run_id)
    older = {"_id": id_, "home": home, "written": {"$lt": run.version}}
    if run.born is None:
        head = fields_of_run_head(run.head) if run.head else {}
        state = fields_of_run_state(id_, run.state, run.version)
        yield UpdateOne({**older, "leaving": None}, {"$set": {**head, **state}})
        return
    assert run.head is not None
    document = document_of_run(key, home, life, run_id, run.head, run.state, run.born, run.version)
    # First: what a deleted run left may go in between.
    yield UpdateOne(older, {"$set": {k: v for k, v in document.items() if k not in ("_id", "home")}})
    yield from insertions([document])


def step_documents(home: str, life: int, parts: Sequence[Part]) -> list[Document]:
    """The documents of the collection `steps`."""
    return [document_of_step(home, life, step, part.version) for part in parts for step in part.new_steps]


def _drop(home: str, life: int, number: int) -> UpdateOne:
    return UpdateOne(
        {"_id": numbered_id(home, life, number), "home": home},
        {"$set": {"life": life, "number": number}, "$unset": {"summary": ""}, "$currentDate": {DROPPED_AT: True}},
        upsert=True,
    )


def _of_part(home: str, life: int, part: Part) -> Iterator[Any]:
    older = {"turned": {"$lt": part.version}}
    now = {"turned": part.version}
    of_life = {"home": home, "life": life}
    for head in part.completed:
        group = {**of_life, "pile": int(Pile.OPEN), "head": head}
        yield UpdateMany({**group, **older}, {"$set": {**now, "pile": int(Pile.USABLE)}})
    for head in part.reopened:
        group = {**of_life, "pile": int(Pile.USABLE), "head": head}
        # First: who reads the group as it was, and misses what is turned, finds the stamp on the answers that are gone.
        for low, high in _from(head, part.hidden):
            yield UpdateMany({**group, "seq": {"$gte": low, "$lte": high}, **older}, {"$set": now})
        for low, high in _from(head, part.shown):
            yield UpdateMany(
                {**group, "seq": {"$gte": low, "$lte": high}, **older}, {"$set": {**now, "pile": int(Pile.OPEN)}}
            )
    for message in part.replaced:
        stored = {"_id": numbered_id(home, life, message.seq), "home": home, "written": {"$lt": part.version}}
        yield UpdateOne(stored, replacement_of(message, part.version))


def _from(head: int, ranges: Sequence[tuple[int, int]]) -> list[Segment]:
    return [Segment(max(low, head), high) for low, high in ranges if high >= head]


def staged_documents(
    home: str, life: int, messages: Sequence[StoredMessage], lookups: Sequence[Lookup]
) -> list[Document]:
    """What adds to a staging: its messages are older than any version of the record that they will belong to."""
    return history_documents(home, life, [Part(0, messages=tuple(messages), lookups=tuple(lookups))])

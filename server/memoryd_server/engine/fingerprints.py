"""Digests of whole sessions, by which a copy is verified: equal ones mean that every read answers the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine.copied_versions import settled_state
from memoryd_server.engine.run_pages import list_runs, list_steps
from memoryd_server.engine.staging import Reads, SourceChanged, read_summaries
from memoryd_server.engine.summary_links import hold_of
from memoryd_server.stores.base import MessageQuery, Store
from memoryd_server.stores.records import (
    Record,
    RunLink,
    SessionKey,
    decode_record,
    encode_record,
    replace,
)

PAGE: Final = 4_000
"""Messages or look-ups that are read at once, but at most `limits.MAX_GROUP_COMMIT_BYTES` of messages. Many, since some
databases go through all that they hold for each page."""

LAST_SEQ: Final = 2**63 - 1

_ENCODER: Final = msgspec.json.Encoder()
_MODULUS: Final = 1 << 256
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 digests of a session's parts."""

    record: Record
    """With which the parts were read."""
    settled: bytes
    """Of the record, but for what each store does by itself: its version, what it has purged, folds under way, and who
    holds its runs."""
    messages: bytes
    """Of all messages, by seq, with all that is stored of them."""
    lookups: bytes
    """Of all look-ups of the session's name, in any order."""
    summaries: bytes
    """Of all summaries, by number."""
    runs: bytes
    """Of all runs with their steps, in any order, but for who holds them."""
    run_count: int
    step_count: int

    @property
    def digest(self) -> bytes:
        """Of the whole session."""
        return sha256(self.settled + self.messages + self.lookups + self.summaries + self.runs).digest()


async def take_fingerprint(
    store: Store,
    reads: Reads,
    key: SessionKey,
    read: Callable[[int], None] = lambda _: None,
    *,
    has_runs: bool = True,
) -> Fingerprint | None:
    """The fingerprint of a session; None when there is none. Costs O(history), in pages.

    `reads` is the store, or what a caller may see of it. `read` is told of messages, page by page. `has_runs`: whether
    the session may have runs, although its record tells of none.

    Raises: SourceChanged when the session changes meanwhile; StoreUnavailable.
    """
    lookups = _Multiset()
    after = ""
    while True:
        remembered = await store.list_lookups(key, PAGE, after)
        for lookup in remembered.lookups:
            lookups.add(_ENCODER.encode(lookup))
        after = remembered.after
        if not after:
            break
    messages = sha256()
    record: Record | None = None
    low, more = 1, True
    while more:
        query = MessageQuery(low, LAST_SEQ, descending=False, limit=PAGE, bytes=limits.MAX_GROUP_COMMIT_BYTES)
        page = await reads.list_messages(key, query)
        if page is None and record is None:
            return None
        if page is None or (record is not None and _state(page.record) != _state(record)):
            raise SourceChanged
        record = page.record
        messages.update(_ENCODER.encode_lines(page.messages))
        read(len(page.messages))
        more = page.more
        if more:
            low = page.messages[-1].seq + 1
    assert record is not None
    summaries = sha256(_ENCODER.encode_lines(await read_summaries(reads, key, record, record.summaries)))
    runs, steps = _Multiset(), 0
    if has_runs or record.runs:
        steps = await _add_runs(runs, store, key, record)
    return Fingerprint(
        *(record, sha256(settled(record)).digest(), messages.digest(), lookups.digest(), summaries.digest()),
        *(runs.digest(), runs.count, steps),
    )


async def _add_runs(runs: _Multiset, store: Store, key: SessionKey, record: Record) -> int:
    """Adds those of a session, read when its record is `record`. Returns: how many steps they have.

    Raises: SourceChanged, StoreUnavailable.
    """
    count = 0
    async for page in list_runs(store, key):
        for run in page:
            digest = sha256(_ENCODER.encode(msgspec.structs.replace(run, state=settled_state(run.state))))
            pages = list_steps(store, key, record.incarnation, run, most_bytes=limits.MAX_GROUP_COMMIT_BYTES)
            async for steps in pages:
                digest.update(_ENCODER.encode_lines(steps))
                count += len(steps)
            runs.add(digest.digest())
    if runs.count:
        loaded = await store.load(key)
        if loaded is None or _state(loaded.record) != _state(record):
            raise SourceChanged
    return count


def _state(record: Record) -> tuple[str, int]:
    return record.incarnation, record.version


def settled(record: Record) -> bytes:
    """What two records of the same session share, whatever store it is in."""
    runs = tuple(RunLink(link.token, settled_state(link.state)) for link in record.runs)
    return encode_record(replace(record, version=0, removed=(), folding=hold_of(record.folding), runs=runs))


def differing_fields(one: Record, other: Record) -> Sequence[str]:
    """The names of what differs between two records of the same session."""
    left, right = (msgspec.structs.asdict(decode_record(settled(record))) for record in (one, other))
    return [name for name, value in left.items() if right[name] != value]


class _Multiset:
    """A digest of texts that is the same in whatever order they come: the sum of those of each."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, text: bytes) -> None:
        self.count += 1
        self._sum += int.from_bytes(sha256(text).digest())

    def digest(self) -> bytes:
        return sha256(b"%d" % self.count + (self._sum % _MODULUS).to_bytes(_DIGEST_BYTES)).digest()

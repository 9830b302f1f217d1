"""Rewinds: takes away the newest messages as if they had never been appended (invariant 11)."""

from __future__ import annotations

from collections.abc import Sequence

from memoryd_server import limits
from memoryd_server.engine import changes, pairing, staging, summary_links
from memoryd_server.engine.changes import Newest, RequestMark, StaleRead
from memoryd_server.engine.errors import field_invalid, field_required, session_not_found
from memoryd_server.engine.incoming import check_key, check_text
from memoryd_server.engine.recognizing import recognizing
from memoryd_server.engine.replay import Secrets
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.steadiness import until_steady
from memoryd_server.stores.records import Entry, Record, SessionKey, StoredSummary, SummaryLink


async def rewind(
    runtime: Runtime,
    key: SessionKey,
    to_seq: int | None,
    expected_last_seq: int | None = None,
    request_id: str = "",
    *,
    deadline: float | None = None,
) -> tuple[int, int]:
    """Takes away the messages behind `to_seq`. Costs what it takes away.

    Returns: how many messages were taken away, and how many calls wait for results after it.
    Raises: RequestError (field errors, SESSION_NOT_FOUND, LAST_SEQ_MISMATCH, REQUEST_ID_CONFLICT, ORIGINALS_REMOVED,
    RECORD_TOO_LARGE, CONTENTION), StoreUnavailable.
    """
    check_key(key)
    check_text("request_id", request_id, limits.MAX_ID_BYTES)
    if to_seq is None:
        raise field_required("to_seq", "the seq after which messages are taken away; 0 takes all")
    if to_seq < 0:
        raise field_invalid("to_seq", "a seq is 0 or more")
    if expected_last_seq is not None and expected_last_seq < 0:
        raise field_invalid("expected_last_seq", "a seq is 0 or more")

    async def attempt(mark: RequestMark | None) -> tuple[int, int]:
        newest = await read_newest(runtime, key, to_seq)
        now = runtime.clock.now()
        removed, open_calls = await runtime.committer.run(
            key,
            lambda record, known: changes.plan_rewind(record, key, to_seq, newest, now, expected_last_seq, mark, known),
            ids=mark.ids if mark else (),
            deadline=deadline,
        )
        return removed, open_calls

    async def attempt_with(secrets: Secrets) -> tuple[int, int]:
        mark = RequestMark.of(secrets, request_id, "RewindSession", to_seq)
        return await until_steady(key, lambda: attempt(mark), deadline)

    return await recognizing(runtime, attempt_with)


async def read_newest(runtime: Runtime, key: SessionKey, to_seq: int) -> Newest:
    """The messages behind `to_seq`, without their bodies.

    Raises: RequestError SESSION_NOT_FOUND; StaleRead when the session changes meanwhile; StoreUnavailable.
    """
    loaded = await runtime.sessions.load(key)
    if loaded is None:
        raise session_not_found(key.agent, key.session_id)
    record = loaded.record
    # So that the commit does not begin with an older one.
    runtime.committer.records.put(key, record)
    taken: list[Entry] = []
    kept_seq, high = 0, record.last_seq
    while not kept_seq and high >= record.first_seq:
        page = await _entries(runtime, key, record, record.first_seq, high)
        if not page:
            break
        for entry in page:
            if entry.seq <= to_seq:
                kept_seq = entry.seq
                break
            taken.append(entry)
        high = page[-1].seq - 1
    members: dict[int, list[Entry]] = (
        {head: [] for head in pairing.unrecorded_heads(taken, kept_seq)} if kept_seq else {}
    )
    if members:
        await _read_members(runtime, key, record, members, kept_seq)
    withdrawn = summary_links.from_first(record, lambda link: link.to_seq > to_seq)
    closed = [summary.closed_state for summary in await read_summaries(runtime, key, record, withdrawn)]
    return Newest(record, taken, kept_seq, members, withdrawn, closed)


async def read_summaries(
    runtime: Runtime, key: SessionKey, record: Record, links: Sequence[SummaryLink]
) -> Sequence[StoredSummary]:
    """Summaries of a session's record, in their order. Raises: StaleRead when they are no longer there."""
    try:
        return await staging.read_summaries(runtime.sessions, key, record, links)
    except staging.SourceChanged:
        raise StaleRead from None


async def _read_members(
    runtime: Runtime, key: SessionKey, record: Record, members: dict[int, list[Entry]], kept_seq: int
) -> None:
    high = kept_seq
    while high >= min(members):
        page = await _entries(runtime, key, record, min(members), high)
        if not page:
            return
        for entry in page:
            if entry.head in members:
                members[entry.head].append(entry)
        high = page[-1].seq - 1


async def _entries(runtime: Runtime, key: SessionKey, record: Record, low: int, high: int) -> Sequence[Entry]:
    read = await runtime.sessions.list_entries(key, record.incarnation, low, high, limits.MAX_PAGE_ITEMS)
    if read is None or (read[0].epoch, read[0].last_seq) != (record.epoch, record.last_seq):
        raise StaleRead
    return read[1]

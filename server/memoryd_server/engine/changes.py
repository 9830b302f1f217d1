"""Changes of a session, planned as pure functions of its record (design section 5)."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from memoryd_server import limits
from memoryd_server.engine import pairing, replay, summary_links
from memoryd_server.engine.errors import Reason, RequestError, session_exists, session_not_found
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.policies import PolicyUpdate, check_policy, merge_policy
from memoryd_server.stores.base import Change
from memoryd_server.stores.records import (
    NO_FOLDING,
    Entry,
    Event,
    EventKind,
    Lookup,
    LookupKind,
    OpenState,
    Policy,
    Record,
    RemovedRange,
    Role,
    SessionKey,
    StoredMessage,
    StoredSummary,
    SummaryLink,
    encode_open,
    replace,
)


class TokenizerDiffers(Exception):
    """The messages were counted in another vocabulary than the session's: count again."""

    def __init__(self, tokenizer: str) -> None:
        super().__init__(tokenizer)
        self.tokenizer = tokenizer


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is created with."""

    user_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    tokenizer: str | None = None
    policy: Policy = Policy()
    ttl: int = 0
    """Microseconds; 0 for ever."""


@dataclass(frozen=True, slots=True)
class AppendInput:
    """An append with all that was worked out before the session is looked at."""

    key: SessionKey
    messages: Sequence[IncomingMessage]
    contents: Sequence[str | None]
    """For each message, its parts as JSON text."""
    tokens: Sequence[int]
    """The price of each message in `tokenizer`."""
    tokenizer: str
    birth_tokenizer: str
    """The vocabulary of the session if this append begins it."""
    digests: Sequence[replay.Digests]
    """Of each message."""
    batch_digests: replay.Digests
    request_id: str
    expected_last_seq: int | None
    settings: SessionSettings
    new_ids: Sequence[str]
    """For each message, its id: as sent, or made by the server."""


def new_incarnation() -> str:
    """128 random bits, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def birth(settings: SessionSettings, tokenizer: str, now: int) -> Record:
    """The record of a session that is about to be born; its version counts from the change that makes it."""
    return Record(
        incarnation=new_incarnation(),
        version=0,
        tokenizer=tokenizer,
        created=now,
        activity=now,
        appended=now,
        ttl=settings.ttl,
        user_id=settings.user_id,
        labels=dict(settings.labels),
        policy=settings.policy,
    )


def plan_append(
    wanted: AppendInput, clock: Callable[[], int], record: Record | None, known: Sequence[Lookup]
) -> tuple[Change | None, tuple[replay.Appended, ...]]:
    """Plans an append: its change, and the answer once that is committed. A replay has no change and the first answer.

    `clock` tells the store's time.

    Raises: RequestError (MESSAGE_ID_CONFLICT, REQUEST_ID_CONFLICT, LAST_SEQ_MISMATCH, RECORD_TOO_LARGE),
    TokenizerDiffers.
    """
    if known:
        first = replay.first_answer(wanted.messages, wanted.digests, wanted.request_id, wanted.batch_digests, known)
        if first is not None:
            return None, first
    _check_last_seq(wanted.expected_last_seq, 0 if record is None else record.last_seq)
    now = clock()
    if record is None:
        base = birth(wanted.settings, wanted.birth_tokenizer, now)
        check_settings_size(base)
    else:
        base = record
    if base.tokenizer != wanted.tokenizer:
        raise TokenizerDiffers(base.tokenizer)

    batch = [
        pairing.Candidate(Role(message.role), message.parts or (), tokens, message.size, message.run_id)
        for message, tokens in zip(wanted.messages, wanted.tokens, strict=True)
    ]
    placed, placements, completed = pairing.place(base, batch)
    messages: list[StoredMessage] = []
    answer: list[replay.Appended] = []
    lookups: list[Lookup] = []
    for message, content, candidate, place, id_, digests in zip(
        wanted.messages, wanted.contents, batch, placements, wanted.new_ids, wanted.digests, strict=True
    ):
        messages.append(
            StoredMessage(
                seq=place.seq,
                head=place.head,
                position=place.position,
                usability=place.usability,
                role=candidate.role,
                tokens=candidate.tokens,
                size=candidate.size,
                calls=place.calls,
                answers=place.answers,
                prior_user=place.prior_user,
                undo=place.undo,
                id=id_,
                name=message.name,
                content=content,
                run_id=message.run_id,
                metadata=message.metadata,
                extra=message.extra,
                created=now,
            )
        )
        appended = replay.Appended(id_, place.seq, now, candidate.tokens, message.memory_removed)
        answer.append(appended)
        lookups.append(replay.lookup(LookupKind.MESSAGE, id_, digests[0], (appended,)))
    if wanted.request_id:
        lookups.append(replay.lookup(LookupKind.REQUEST, wanted.request_id, wanted.batch_digests[0], answer))

    answered = [place.head for place in placements if place.head <= base.last_seq]
    new = replace(
        placed,
        version=base.version + 1,
        **active_at(base, now),
        folding=summary_links.after_append(base.folding, answered),
    )
    return (
        Change(wanted.key, record, new, messages=messages, completed=completed, lookups=lookups),
        tuple(answer),
    )


def active_at(record: Record, now: int) -> dict[str, int]:
    """The times of a record whose session takes an append or a step now, or ends a run."""
    lagged = now - record.activity >= limits.ACTIVITY_LAG_SECONDS * 1_000_000
    return {"appended": now, "activity": now if lagged else record.activity}


def _check_last_seq(expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        raise RequestError(
            Reason.LAST_SEQ_MISMATCH,
            f"the session's last seq is {actual}, not {expected} as expected; nothing was changed: read what is new, "
            "then try again",
            expected=expected,
            actual=actual,
        )


class StaleRead(Exception):
    """The history is no longer the one that was read for the plan: read again."""


@dataclass(frozen=True, slots=True)
class RequestMark:
    """What recognizes a replay of a request that appends nothing (AIP-155)."""

    request_id: str
    digests: replay.Digests
    """Of all that the request says."""

    @classmethod
    def of(cls, keys: replay.Secrets, request_id: str, *request: object) -> RequestMark | None:
        """The mark of a request that brings an id; None without one. `request`: its method and arguments."""
        return cls(request_id, replay.request_digests(keys, request)) if request_id else None

    @property
    def ids(self) -> tuple[tuple[LookupKind, str], ...]:
        """The look-up that the request adds."""
        return ((LookupKind.REQUEST, self.request_id),)


Counts = tuple[int, ...]
"""The answer of a request that appends nothing."""


def _first_counts(mark: RequestMark | None, known: Sequence[Lookup]) -> Counts | None:
    """The first answer to a replay. Raises: RequestError REQUEST_ID_CONFLICT."""
    return replay.first_counts(mark.request_id, mark.digests, known) if mark and known else None


def _untouched(key: SessionKey, record: Record) -> Change:
    """A change that only makes a new version."""
    return Change(key, record, replace(record, version=record.version + 1))


def plan_clear(
    record: Record | None, key: SessionKey, now: int, mark: RequestMark | None = None, known: Sequence[Lookup] = ()
) -> tuple[Change | None, Counts]:
    """Plans a clear: its change, and (how many messages it takes away,). Nothing to take away is no change (invariant
    11), unless a request is to be remembered.

    Raises: RequestError (REQUEST_ID_CONFLICT, RECORD_TOO_LARGE).
    """
    if (first := _first_counts(mark, known)) is not None:
        return None, first
    if record is None:
        return None, (0,)
    counts = (record.messages,)
    if record.messages == 0 and not record.summaries:
        return (_remembering(_untouched(key, record), mark, counts, now), counts) if mark else (None, counts)
    return _remembering(_taking_all(key, record, EventKind.CLEARED, now), mark, counts, now), counts


def _remembering(change: Change, mark: RequestMark | None, counts: Counts, now: int) -> Change:
    """The change with the look-up of its request."""
    if mark is None:
        return change
    return dataclasses.replace(change, lookups=(replay.counts_lookup(mark.request_id, mark.digests[0], counts, now),))


def _taking_all(
    key: SessionKey, record: Record, kind: EventKind, now: int, kept_summaries: tuple[SummaryLink, ...] = ()
) -> Change:
    new = replace(
        record,
        version=record.version + 1,
        epoch=record.epoch + 1,
        first_seq=record.last_seq + 1,
        rewound_to=0,
        opening_to=0,
        last_user=0,
        messages=0,
        tokens=0,
        bytes=0,
        open_messages=0,
        orphan_messages=0,
        open_call_count=0,
        open=encode_open(OpenState()),
        removed=removing(record, RemovedRange(record.first_seq, record.last_seq, now)),
        summaries=kept_summaries,
        folding=NO_FOLDING,
    )
    event = _event(record, new, kind, record.first_seq, record.last_seq, now)
    dropped = summary_links.numbers(record.summaries[len(kept_summaries) :])
    return Change(key, record, new, events=(event,), dropped_summaries=dropped)


def _event(before: Record, after: Record, kind: EventKind, from_seq: int, to_seq: int, now: int) -> Event:
    count = before.messages - after.messages or 1  # A redaction is about one message, and takes none away.
    return Event(after.version, kind, before.last_seq, from_seq, to_seq, count, after.epoch, now)


def removing(record: Record, removed: RemovedRange) -> tuple[RemovedRange, ...]:
    """The removed ranges of a record with a further one at its end. Of too many, the last two become one."""
    if len(record.removed) < limits.MAX_REMOVED_RANGES:
        return (*record.removed, removed)
    *earlier, last = record.removed
    if last.to_seq + 1 < removed.from_seq:
        raise RequestError(
            Reason.RECORD_TOO_LARGE,
            f"the session was rewound {limits.MAX_REMOVED_RANGES} times within {limits.PURGE_DELAY_SECONDS} s, the "
            "most that its record holds: try again in a minute",
            retry_after=limits.PURGE_DELAY_SECONDS,
            limit=limits.MAX_REMOVED_RANGES,
            actual=limits.MAX_REMOVED_RANGES + 1,
        )
    return (*earlier, RemovedRange(min(last.from_seq, removed.from_seq), removed.to_seq, removed.removed_at))


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest messages of a history, as a rewind must know them."""

    record: Record
    """As they were read: they are those of this incarnation, epoch and last seq."""
    taken: Sequence[Entry]
    """All that come behind the one that stays, newest first."""
    kept_seq: int
    """The newest message that stays; 0 when none does."""
    members: Mapping[int, Sequence[Entry]]
    """As `pairing.rewind` asks for them."""
    withdrawn: Sequence[SummaryLink] = ()
    """The summaries that stand for something behind the seq to which is rewound."""
    closed: Sequence[OpenState] = ()
    """What these had closed."""


def plan_rewind(
    record: Record | None,
    key: SessionKey,
    to_seq: int,
    newest: Newest,
    now: int,
    expected_last_seq: int | None = None,
    mark: RequestMark | None = None,
    known: Sequence[Lookup] = (),
) -> tuple[Change | None, Counts]:
    """Plans a rewind: its change, and (how many messages it takes away, how many calls are open after it).

    Raises: RequestError (SESSION_NOT_FOUND, LAST_SEQ_MISMATCH, REQUEST_ID_CONFLICT, ORIGINALS_REMOVED,
    RECORD_TOO_LARGE), StaleRead.
    """
    if (first := _first_counts(mark, known)) is not None:
        return None, first
    if record is None:
        raise session_not_found(key.agent, key.session_id)
    _check_last_seq(expected_last_seq, record.last_seq)
    _check_read(newest.record, record)
    if newest.record.last_seq != record.last_seq:
        raise StaleRead
    counts = (len(newest.taken), record.open_call_count)
    kept_summaries = summary_links.without(record, newest.withdrawn) if to_seq else ()
    if not newest.taken and (to_seq or not record.summaries):
        return (_remembering(_untouched(key, record), mark, counts, now), counts) if mark else (None, counts)
    if not newest.kept_seq:
        counts = (len(newest.taken), 0)
        change = _taking_all(key, record, EventKind.REWOUND, now, kept_summaries)
        return _remembering(change, mark, counts, now), counts
    covered_to = kept_summaries[-1].to_head if kept_summaries else 0
    rewound, reopened = pairing.rewind(record, newest.taken, newest.kept_seq, newest.members, newest.closed, covered_to)
    new = replace(
        rewound,
        version=record.version + 1,
        epoch=record.epoch + 1,
        removed=removing(record, RemovedRange(newest.kept_seq + 1, record.last_seq, now)),
        summaries=kept_summaries,
        folding=summary_links.voided(record.folding),
    )
    counts = (len(newest.taken), new.open_call_count)
    event = _event(record, new, EventKind.REWOUND, newest.taken[-1].seq, newest.taken[0].seq, now)
    change = Change(
        key,
        record,
        new,
        reopened=reopened,
        events=(event,),
        dropped_summaries=summary_links.numbers(newest.withdrawn),
    )
    return _remembering(change, mark, counts, now), counts


def plan_redact(
    record: Record | None,
    key: SessionKey,
    read_in: Record,
    message: StoredMessage,
    redacted: StoredMessage,
    closed: Sequence[OpenState] = (),
) -> tuple[Change | None, StoredMessage]:
    """Plans a redaction: its change, and the message as it will be. Summaries that stand for the message go with it.

    `message` is the message as it was read, `read_in` the record with which it was, `closed` what the summaries of
    `withdrawn_by_redaction` had closed.

    Raises: RequestError SESSION_NOT_FOUND, StaleRead.
    """
    if record is None:
        raise session_not_found(key.agent, key.session_id)
    _check_read(read_in, record)
    assert redacted.redaction is not None
    withdrawn = withdrawn_by_redaction(record, message)
    new = replace(
        pairing.reopen(record, closed),
        version=record.version + 1,
        epoch=record.epoch + 1,
        tokens=record.tokens + redacted.tokens - message.tokens,
        bytes=record.bytes + redacted.size - message.size,
        largest=max(record.largest, redacted.size),
        summaries=record.summaries[: len(record.summaries) - len(withdrawn)],
        folding=summary_links.voided(record.folding),
    )
    event = _event(record, new, EventKind.REDACTED, redacted.seq, redacted.seq, redacted.redaction.at)
    change = Change(
        key,
        record,
        new,
        replaced=(redacted,),
        events=(event,),
        dropped_summaries=summary_links.numbers(withdrawn),
    )
    return change, redacted


def withdrawn_by_redaction(record: Record, message: StoredMessage) -> tuple[SummaryLink, ...]:
    """The summaries that stand for a message: none of them may outlive its redaction (invariant 11)."""
    return summary_links.from_first(record, lambda link: summary_links.is_covered(link, message.seq, message.head))


def _check_read(read_in: Record, record: Record) -> None:
    """What was read of a history is still true while nothing is taken away. Raises: StaleRead."""
    if (read_in.incarnation, read_in.epoch) != (record.incarnation, record.epoch):
        raise StaleRead


def plan_fork(
    record: Record | None,
    key: SessionKey,
    fork: Record,
    staging: str,
    mark: RequestMark | None,
    known: Sequence[Lookup],
    now: int,
    summaries: Sequence[StoredSummary] = (),
) -> tuple[Change | None, Counts]:
    """Plans the birth of a session from a staging: its change, and (how many messages it holds, its last seq).

    Raises: RequestError (SESSION_EXISTS, REQUEST_ID_CONFLICT).
    """
    if (first := _first_counts(mark, known)) is not None:
        return None, first
    if record is not None:
        raise session_exists(key.agent, key.session_id)
    counts = (fork.messages, fork.last_seq)
    change = Change(key, None, fork, staging=staging, new_summaries=summaries)
    return _remembering(change, mark, counts, now), counts


def plan_expire(record: Record | None, key: SessionKey, now: int) -> tuple[Change | None, bool]:
    """Plans the death of a session if its time is over (invariant 18): its change, and whether it dies."""
    if record is None or not is_expired(record, now):
        return None, False
    return Change(key, record, None), True


def plan_erase(record: Record | None, key: SessionKey, user_id: str) -> tuple[Change | None, bool]:
    """Plans the death of a user's session: its change, and whether it dies."""
    if record is None or record.user_id != user_id:
        return None, False
    return Change(key, record, None), True


def is_expired(record: Record, now: int) -> bool:
    """Whether a session's time is over at `now` of the store's clock."""
    expires_at = record.expires_at
    return expires_at is not None and expires_at <= now


def plan_forget_removed(record: Record | None, key: SessionKey, purged: RemovedRange) -> tuple[Change | None, None]:
    """Plans to drop a removed range from the record, once nothing of it is stored any more."""
    if record is None or purged not in record.removed:
        return None, None
    kept = tuple(removed for removed in record.removed if removed != purged)
    return Change(key, record, replace(record, version=record.version + 1, removed=kept)), None


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """New values of a session's settings; None leaves one as it is."""

    user_id: str | None = None
    labels: Mapping[str, str] | None = None
    ttl: int | None = None
    """Microseconds; 0 for ever."""
    policy: PolicyUpdate | None = None
    etag: str = ""


def etag_of(record: Record) -> str:
    """The etag of a session's settings (AIP-154)."""
    return f"{record.incarnation[:8]}-{record.settings_version}"


def plan_update(record: Record | None, key: SessionKey, update: SessionUpdate) -> tuple[Change | None, Record]:
    """Plans an update of a session's settings: its change, and the record once that is committed.

    Raises: RequestError (SESSION_NOT_FOUND, ETAG_MISMATCH, RECORD_TOO_LARGE).
    """
    if record is None:
        raise session_not_found(key.agent, key.session_id)
    check_etag(update.etag, etag_of(record))
    user_id = record.user_id if update.user_id is None else update.user_id
    labels = record.labels if update.labels is None else dict(update.labels)
    ttl = record.ttl if update.ttl is None else update.ttl
    policy = merge_policy(record.policy, update.policy)
    check_policy("session.policy", policy)
    if (user_id, labels, ttl, policy) == (record.user_id, record.labels, record.ttl, record.policy):
        return None, record
    new = replace(
        record,
        version=record.version + 1,
        settings_version=record.settings_version + 1,
        user_id=user_id,
        labels=labels,
        ttl=ttl,
        policy=policy,
    )
    check_settings_size(new)
    return Change(key, record, new), new


def check_etag(given: str, current: str) -> None:
    """A conditional update's etag; an empty one sets no condition. Raises: RequestError ETAG_MISMATCH."""
    if given and given != current:
        raise RequestError(
            Reason.ETAG_MISMATCH,
            "the etag is not the current one: somebody else made a change; read again, then update",
            etag=current,
        )


def check_settings_size(record: Record) -> None:
    """Settings of this size and all open calls that there may be fit a record: an append never fails for its size."""
    size = len(msgspec.json.encode((record.user_id, record.labels, record.policy)))
    if size > limits.MAX_SETTINGS_BYTES:
        raise RequestError(
            Reason.RECORD_TOO_LARGE,
            f"labels, user and policy of the session would have {size:,} bytes, and the limit is "
            f"{limits.MAX_SETTINGS_BYTES:,}: use fewer or shorter labels",
            limit=limits.MAX_SETTINGS_BYTES,
            actual=size,
        )

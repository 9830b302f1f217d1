"""Changes of a session, planned as pure functions of its record (design section 5)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from memoryd_server import limits
from memoryd_server.engine import pairing, replay
from memoryd_server.engine.errors import Reason, RequestError, session_not_found
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.policies import check_policy, merge_policy
from memoryd_server.stores.base import Change
from memoryd_server.stores.records import (
    Lookup,
    LookupKind,
    OpenState,
    Policy,
    Record,
    RemovedRange,
    Role,
    SessionKey,
    StoredMessage,
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
    digests: Sequence[bytes]
    batch_digest: bytes
    request_id: str
    expected_last_seq: int | None
    settings: SessionSettings
    new_ids: Sequence[str]
    """For each message, its id: as sent, or made by the server."""


def birth(settings: SessionSettings, tokenizer: str, now: int) -> Record:
    """The record of a session that is about to be born; its version counts from the change that makes it."""
    return Record(
        incarnation=secrets.token_hex(16),
        version=0,
        tokenizer=tokenizer,
        created=now,
        activity=now,
        user_id=settings.user_id,
        labels=dict(settings.labels),
        policy=settings.policy,
    )


def plan_append(
    wanted: AppendInput, clock: Callable[[], int], record: Record | None, known: Sequence[Lookup]
) -> tuple[Change | None, tuple[replay.Appended, ...]]:
    """Plans an append: its change, and the answer once that is committed. A replay has no change and the first answer.

    `clock` tells the time of the server in microseconds.

    Raises: RequestError (MESSAGE_ID_CONFLICT, REQUEST_ID_CONFLICT, LAST_SEQ_MISMATCH, RECORD_TOO_LARGE),
    TokenizerDiffers.
    """
    if known:
        first = replay.first_answer(wanted.messages, wanted.digests, wanted.request_id, wanted.batch_digest, known)
        if first is not None:
            return None, first
    last_seq = 0 if record is None else record.last_seq
    if wanted.expected_last_seq is not None and wanted.expected_last_seq != last_seq:
        raise RequestError(
            Reason.LAST_SEQ_MISMATCH,
            f"the session's last seq is {last_seq}, not {wanted.expected_last_seq} as expected; nothing was written: "
            "read what is new, then append",
            expected=wanted.expected_last_seq,
            actual=last_seq,
        )
    now = clock()
    if record is None:
        base = birth(wanted.settings, wanted.tokenizer, now)
        _check_settings_size(base)
    else:
        base = record
    if base.tokenizer != wanted.tokenizer:
        raise TokenizerDiffers(base.tokenizer)

    batch = [
        pairing.Candidate(Role(message.role), message.parts or (), tokens, message.size)
        for message, tokens in zip(wanted.messages, wanted.tokens, strict=True)
    ]
    placed, placements, completed = pairing.place(base, batch)
    messages: list[StoredMessage] = []
    answer: list[replay.Appended] = []
    lookups: list[Lookup] = []
    for message, content, candidate, place, id_, digest in zip(
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
                id=id_,
                name=message.name,
                content=content,
                run_id=message.run_id,
                metadata=message.metadata,
                extra=message.extra,
                created=now,
            )
        )
        appended = replay.Appended(id_, place.seq, now, candidate.tokens)
        answer.append(appended)
        lookups.append(replay.lookup(LookupKind.MESSAGE, id_, digest, (appended,)))
    if wanted.request_id:
        lookups.append(replay.lookup(LookupKind.REQUEST, wanted.request_id, wanted.batch_digest, answer))

    active = now - base.activity >= limits.ACTIVITY_LAG_SECONDS * 1_000_000
    new = replace(placed, version=base.version + 1, activity=now if active else base.activity)
    return Change(wanted.key, record, new, messages, completed, lookups), tuple(answer)


def plan_clear(record: Record | None, key: SessionKey, now: int) -> tuple[Change | None, int]:
    """Plans a clear: its change, and how many messages it takes away. Nothing to take away is no change (invariant
    11).
    """
    if record is None or record.messages == 0:
        return None, 0
    new = replace(
        record,
        version=record.version + 1,
        epoch=record.epoch + 1,
        first_seq=record.last_seq + 1,
        opening_to=0,
        last_user=0,
        messages=0,
        tokens=0,
        bytes=0,
        open_messages=0,
        orphan_messages=0,
        open_call_count=0,
        open=encode_open(OpenState()),
        removed=_removing(record, RemovedRange(record.first_seq, record.last_seq, now)),
    )
    return Change(key, record, new), record.messages


def _removing(record: Record, removed: RemovedRange) -> tuple[RemovedRange, ...]:
    if record.removed and record.removed[-1].to_seq + 1 == removed.from_seq:
        earlier = record.removed[-1]
        return (*record.removed[:-1], RemovedRange(earlier.from_seq, removed.to_seq, removed.removed_at))
    return (*record.removed, removed)


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
    policy: Policy | None = None
    policy_fields: dict[str, object] | None = None
    """Single fields of `policy.window`, by name."""
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
    policy = merge_policy(record.policy, update.policy, update.policy_fields)
    check_policy("session.policy", policy)
    if (user_id, labels, policy) == (record.user_id, record.labels, record.policy):
        return None, record
    new = replace(
        record,
        version=record.version + 1,
        settings_version=record.settings_version + 1,
        user_id=user_id,
        labels=labels,
        policy=policy,
    )
    _check_settings_size(new)
    return Change(key, record, new), new


def check_etag(given: str, current: str) -> None:
    """A conditional update's etag; an empty one sets no condition. Raises: RequestError ETAG_MISMATCH."""
    if given and given != current:
        raise RequestError(
            Reason.ETAG_MISMATCH,
            "the etag is not the current one: somebody else made a change; read again, then update",
            etag=current,
        )


def _check_settings_size(record: Record) -> None:
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

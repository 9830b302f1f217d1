"""What is remembered about ids, so that a replay returns the first answer (invariant 2)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.stores.records import Lookup, LookupKind


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """The answer for one appended message."""

    id: str
    seq: int
    created: int
    tokens: int
    memory_removed: bool = False
    """Whether rendered memory was cut out of the message."""


Secrets = Sequence[bytes]
"""What digests are keyed with: the store's secret, and behind it those of stores from which sessions were copied, where
a digest may be of one of these."""

Digests = tuple[bytes, ...]
"""The digest of the same under each of the secrets. What is stored is the first."""

_DIGEST_BYTES: Final = 16
_ENCODER: Final = msgspec.json.Encoder()
_ANSWER: Final = msgspec.json.Decoder(tuple[Appended, ...])
_COUNTS: Final = msgspec.json.Decoder(tuple[int, ...])


def message_digests(secrets: Secrets, message: IncomingMessage, content: str | None) -> Digests:
    """The keyed digests of a message as it was received: without the key, they confirm no guess of the content.

    `content` is the JSON text of its parts.
    """
    received = (
        message.id,
        message.role,
        message.name,
        content,
        message.run_id,
        message.metadata,
        message.extra,
    )
    return _keyed(secrets, msgspec.msgpack.encode(received))


def batch_digests(secrets: Secrets, messages: Sequence[Digests]) -> Digests:
    """The keyed digests of a whole batch, from those of its messages."""
    return tuple(
        [
            _digest(secret, b"".join(digests))
            for secret, digests in zip(secrets, zip(*messages, strict=True), strict=True)
        ]
    )


def request_digests(secrets: Secrets, request: Sequence[object]) -> Digests:
    """The keyed digests of a request that appends nothing: of its method and all that it says."""
    return _keyed(secrets, msgspec.msgpack.encode(request))


def _keyed(secrets: Secrets, data: bytes) -> Digests:
    return tuple([_digest(secret, data) for secret in secrets])


def _digest(secret: bytes, data: bytes) -> bytes:
    return blake2b(data, key=secret, digest_size=_DIGEST_BYTES).digest()


def lookup(kind: LookupKind, id_: str, digest: bytes, answer: Sequence[Appended]) -> Lookup:
    """What is stored for an id."""
    return Lookup(kind, id_, digest, _ENCODER.encode(answer).decode(), answer[0].created)


def counts_lookup(request_id: str, digest: bytes, counts: Sequence[int], now: int) -> Lookup:
    """What is stored for a request that appends nothing, and answers with counts."""
    return Lookup(LookupKind.REQUEST, request_id, digest, _ENCODER.encode(counts).decode(), now)


def first_counts(request_id: str, digests: Digests, known: Sequence[Lookup]) -> tuple[int, ...] | None:
    """The first answer to a replay of such a request; None when it is not known.

    Raises: RequestError REQUEST_ID_CONFLICT when the id is known for another request.
    """
    for found in known:
        if (found.kind, found.id) == (LookupKind.REQUEST, request_id):
            if found.digest not in digests:
                raise request_id_conflict(request_id)
            return _COUNTS.decode(found.answer)
    return None


def request_id_conflict(request_id: str) -> RequestError:
    """ALREADY_EXISTS: the id of a request is known for another one."""
    return RequestError(
        Reason.REQUEST_ID_CONFLICT,
        f"request_id {request_id!r} was used for another request; nothing was written: use a new request_id",
        request_id=request_id,
    )


def answer_of(found: Lookup) -> tuple[Appended, ...]:
    """The first answer to an id."""
    return _ANSWER.decode(found.answer)


def message_ids(found: Lookup) -> Sequence[str]:
    """The messages that an id stands for; none when it is that of a request that appended nothing."""
    if found.kind is LookupKind.MESSAGE:
        return (found.id,)
    try:
        return [appended.id for appended in answer_of(found)]
    except msgspec.ValidationError:  # Counts.
        return ()


def first_answer(
    messages: Sequence[IncomingMessage],
    digests: Sequence[Digests],
    request_id: str,
    batch: Digests,
    known: Sequence[Lookup],
) -> tuple[Appended, ...] | None:
    """The first answer to a replayed append.

    Returns: None when nothing of the append is known.
    Raises: RequestError REQUEST_ID_CONFLICT or MESSAGE_ID_CONFLICT when an id is known with other content, or only
    some ids are.
    """
    by_id = {(found.kind, found.id): found for found in known}
    request = by_id.get((LookupKind.REQUEST, request_id)) if request_id else None
    if request is not None:
        if request.digest not in batch:
            raise request_id_conflict(request_id)
        return answer_of(request)

    found = [by_id.get((LookupKind.MESSAGE, message.id)) if message.id else None for message in messages]
    if not any(found):
        return None
    answers: list[Appended] = []
    for message, possible, earlier in zip(messages, digests, found, strict=True):
        if earlier is None or earlier.digest not in possible:
            conflicting = message if earlier is not None else messages[_first_index(found)]
            why = "with other content" if earlier is not None else "but other messages of this append are new"
            raise RequestError(
                Reason.MESSAGE_ID_CONFLICT,
                f"message id {conflicting.id!r} is known, {why}; nothing was written: use new ids for new messages, "
                "and repeat an append as it was",
                message_id=conflicting.id,
            )
        answers.extend(answer_of(earlier))
    return tuple(answers)


def _first_index(found: Sequence[Lookup | None]) -> int:
    return next(index for index, earlier in enumerate(found) if earlier is not None)

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


_DIGEST_BYTES: Final = 16
_ENCODER: Final = msgspec.json.Encoder()
_ANSWER: Final = msgspec.json.Decoder(tuple[Appended, ...])
_COUNTS: Final = msgspec.json.Decoder(tuple[int, ...])


def message_digest(secret: bytes, message: IncomingMessage, content: str | None) -> bytes:
    """A keyed digest of a message as it was received: without the key, it confirms no guess of the content.

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
    return blake2b(msgspec.msgpack.encode(received), key=secret, digest_size=_DIGEST_BYTES).digest()


def request_digest(secret: bytes, digests: Sequence[bytes]) -> bytes:
    """A keyed digest of a whole batch, from those of its messages."""
    return blake2b(b"".join(digests), key=secret, digest_size=_DIGEST_BYTES).digest()


def arguments_digest(secret: bytes, request: Sequence[object]) -> bytes:
    """A keyed digest of a request that appends nothing: its method and all that it says."""
    return blake2b(msgspec.msgpack.encode(request), key=secret, digest_size=_DIGEST_BYTES).digest()


def lookup(kind: LookupKind, id_: str, digest: bytes, answer: Sequence[Appended]) -> Lookup:
    """What is stored for an id."""
    return Lookup(kind, id_, digest, _ENCODER.encode(answer).decode(), answer[0].created)


def counts_lookup(request_id: str, digest: bytes, counts: Sequence[int], now: int) -> Lookup:
    """What is stored for a request that appends nothing, and answers with counts."""
    return Lookup(LookupKind.REQUEST, request_id, digest, _ENCODER.encode(counts).decode(), now)


def first_counts(request_id: str, digest: bytes, known: Sequence[Lookup]) -> tuple[int, ...] | None:
    """The first answer to a replay of such a request; None when it is not known.

    Raises: RequestError REQUEST_ID_CONFLICT when the id is known for another request.
    """
    for found in known:
        if (found.kind, found.id) == (LookupKind.REQUEST, request_id):
            if found.digest != digest:
                raise _request_id_conflict(request_id)
            return _COUNTS.decode(found.answer)
    return None


def _request_id_conflict(request_id: str) -> RequestError:
    return RequestError(
        Reason.REQUEST_ID_CONFLICT,
        f"request_id {request_id!r} was used for another request; nothing was written: use a new request_id",
        request_id=request_id,
    )


def answer_of(found: Lookup) -> tuple[Appended, ...]:
    """The first answer to an id."""
    return _ANSWER.decode(found.answer)


def first_answer(
    messages: Sequence[IncomingMessage],
    digests: Sequence[bytes],
    request_id: str,
    batch_digest: bytes,
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
        if request.digest != batch_digest:
            raise _request_id_conflict(request_id)
        return answer_of(request)

    found = [by_id.get((LookupKind.MESSAGE, message.id)) if message.id else None for message in messages]
    if not any(found):
        return None
    answers: list[Appended] = []
    for message, digest, earlier in zip(messages, digests, found, strict=True):
        if earlier is None or earlier.digest != digest:
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

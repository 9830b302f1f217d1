"""The opening of a session in its own document: who loads a window then needs no command for the messages that it
pins.

It is a copy, of what is small: of these messages each stands there as long as it is as stored. What changes any of them
takes the whole copy away, and loads read the opening from `history` until the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from bson import Binary

from memoryd_server.stores.base import Change
from memoryd_server.stores.mongodb.documents import Document
from memoryd_server.stores.records import Record, StoredMessage

OPENING: Final = "opening"
"""The field of a session's document: messages by seq."""

MAX_OPENING_BYTES: Final = 16 * 1024
"""Of the sizes of an opening that is copied, in bytes: each change of the session writes its document anew."""

_DECODER: Final = msgspec.msgpack.Decoder(StoredMessage)


def opening_update(previous: Record | None, run: Sequence[Change]) -> Document:
    """What changes of a session, which rest on the previous record of this life, do to the copy, as an update's
    operators.
    """
    record = run[-1].record
    assert record is not None
    if previous is None:
        copied = {str(seq): data for seq, data in _copies(record, run, 0)}
        return {"$set": {OPENING: copied}}
    if _is_stale(previous, record, run):
        return {"$unset": {OPENING: ""}}
    copied = {f"{OPENING}.{seq}": data for seq, data in _copies(record, run, previous.bytes)}
    return {"$set": copied} if copied else {}


def opening_of(stored: Mapping[str, Any] | None, first_seq: int, last_seq: int) -> list[StoredMessage] | None:
    """The messages of an opening, when all of them are in the copy."""
    if not stored:
        return None
    messages = []
    for seq in range(first_seq, last_seq + 1):
        data = stored.get(str(seq))
        if data is None:
            return None
        messages.append(_DECODER.decode(data))
    return messages


def _is_stale(previous: Record, record: Record, run: Sequence[Change]) -> bool:
    """Whether a change may touch what is in the copy."""
    if previous.first_seq != record.first_seq or set(record.removed) - set(previous.removed):
        return True
    last = max(previous.opening_to, record.opening_to)
    return record.opening_to < previous.opening_to or any(
        seq <= last
        for change in run
        for seq in (*change.completed, *change.reopened, *(message.seq for message in change.replaced))
    )


def _copies(record: Record, run: Sequence[Change], bytes_before: int) -> Iterator[tuple[int, Binary]]:
    """The messages that changes add to the opening; none when it is large with them."""
    added = [
        message for change in run for message in change.messages if record.first_seq <= message.seq <= record.opening_to
    ]
    if bytes_before + sum(message.size for message in added) <= MAX_OPENING_BYTES:
        for message in added:
            yield message.seq, Binary(msgspec.msgpack.encode(message))

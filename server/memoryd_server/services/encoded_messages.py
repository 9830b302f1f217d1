"""Remembers messages as windows showed them of late, encoded.

An agent loads a window every turn, and nearly all of it is what the turn before showed. Merging bytes that are ready
takes a third of the time of encoding a message, which is most of what a window from memory costs. Messages never change
within an epoch of a session's life, so the bytes are never stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memoryd.v1 import message_pb2
from memoryd_server.engine.windows import Life
from memoryd_server.limits import KIB, MIB
from memoryd_server.services.message_codec import MessageList, encode_message
from memoryd_server.stores.records import StoredMessage

GENERATION_BYTES: Final = 4 * MIB
"""The encoded bytes after which the older half of what is remembered is forgotten: at most twice as much is held."""

MOST_BYTES: Final = 16 * KIB
"""Larger messages are not remembered: they are few, and cost time in other places."""

_ENTRY_BYTES: Final = 250
"""What an entry takes beside the message."""


class EncodedMessages:
    """Two generations: what is used moves to the younger one, and what the older one still holds is forgotten with
    it.
    """

    def __init__(self) -> None:
        self._younger: dict[tuple[Life, int], bytes] = {}
        self._older: dict[tuple[Life, int], bytes] = {}
        self._bytes = 0

    def encode(self, life: Life, messages: Sequence[StoredMessage], changed: Sequence[int], into: MessageList) -> None:
        """Appends messages of a window to a repeated field. `changed` are the seqs of those that are not as stored."""
        for message in messages:
            if not message.seq or message.seq in changed or message.size > MOST_BYTES:
                encode_message(message, into.add())
            else:
                key = (life, message.seq)
                into.add().MergeFromString(self._younger.get(key) or self._remember(key, message))

    def _remember(self, key: tuple[Life, int], message: StoredMessage) -> bytes:
        encoded = self._older.get(key)
        if encoded is None:
            new = message_pb2.Message()
            encode_message(message, new)
            encoded = new.SerializeToString()
        self._younger[key] = encoded
        self._bytes += len(encoded) + _ENTRY_BYTES
        if self._bytes > GENERATION_BYTES:
            self._older, self._younger, self._bytes = self._younger, {}, 0
        return encoded

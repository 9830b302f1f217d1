"""Cutting many messages into appends that the server takes."""

from collections.abc import Iterable, Iterator

from memoryd.encoding import message_to_proto
from memoryd.messages import Message, several

BATCH_MESSAGES = 256
"""The most messages of one append (a limit of the server)."""
BATCH_BYTES = 3_407_872
"""3.25 MiB: the server's limit of 3.5 MiB for one append, less room for the rest of the request."""
_OVERHEAD = 8
"""More than what a message takes in a request beside its own bytes."""


def batches(messages: Message | Iterable[Message]) -> Iterator[list[Message]]:
    """Cuts messages, in their order, into lists that fit into one append each: at most 256 messages and 3.25 MiB.

    A message that alone is larger comes alone, for the server to say what is wrong with it. The input is read lazily.
    """
    batch: list[Message] = []
    size = 0
    for message in several(messages):
        added = message_to_proto(message).ByteSize() + _OVERHEAD
        if batch and (len(batch) == BATCH_MESSAGES or size + added > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += added
    if batch:
        yield batch

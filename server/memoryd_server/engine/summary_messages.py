"""The message that shows a summary in windows and lists (design section 6)."""

from __future__ import annotations

from typing import Final

import msgspec

from memoryd_server.engine import summary_links
from memoryd_server.engine.content import Text, encode_parts
from memoryd_server.engine.tokens import Count, message_tokens
from memoryd_server.stores.records import Record, Role, StoredMessage, StoredSummary, SummaryLink, Usability
from memoryd_server.summarizers.answers import MARKER

HEADING: Final = MARKER + "\n"
"""What the text of such a message begins with."""

_METADATA_BYTES: Final = 128
"""More than its metadata and its fields beside the text have, encoded."""


def summary_message(record: Record, link: SummaryLink, summary: StoredSummary) -> StoredMessage:
    """The message that shows a summary: it has an id and no seq."""
    metadata = msgspec.json.encode({"type": "history_summary", "from_seq": link.from_seq, "to_seq": link.to_seq})
    return StoredMessage(
        seq=0,
        head=0,
        position=0,
        usability=Usability.USABLE,
        role=Role.USER,
        tokens=link.tokens,
        size=link.size,
        calls=0,
        answers=(),
        prior_user=0,
        id=summary_links.summary_id(record, link.number),
        name=None,
        content=encode_parts((Text(HEADING + summary.text),)),
        run_id="",
        metadata=metadata.decode(),
        extra="",
        created=summary.created,
    )


def price(text: str, count: Count) -> tuple[int, int]:
    """The tokens and the encoded bytes of the message that shows a summary with this text."""
    shown = HEADING + text
    return message_tokens(count, None, (Text(shown),)), len(shown.encode()) + 2 * _METADATA_BYTES


def heading_tokens(count: Count) -> int:
    """The most that the message has beyond the tokens of its text."""
    return message_tokens(count, None, (Text(HEADING),)) + 1

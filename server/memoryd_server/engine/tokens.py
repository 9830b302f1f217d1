"""Token counts (invariant 8): additive over parts and messages, exact for the session's vocabulary, counted once at
append.

The vocabularies come from quicktok, which bundles the official ranks (no network), is linear on pathological text,
takes special markers such as `<|endoftext|>` as plain text in `count`, and releases the interpreter lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from memoryd_server.engine.content import Part, count_media, counted_texts

MESSAGE_TOKENS: Final = 4
"""Fixed price of a message for its role and framing, as OpenAI documents for its chat models."""

MEDIA_TOKENS: Final = 1_000
"""Fixed price of an image, a sound or a file: about that of a large image, and bounded whatever its size."""

INLINE_BYTES: Final = 64 * 1024
"""Texts up to this length (UTF-8 bytes) are counted on the event loop: that takes a fraction of a millisecond."""

Count = Callable[[str], int]
"""Counts the tokens of one text."""

O200K_BASE: Final = "o200k_base"
CL100K_BASE: Final = "cl100k_base"
ESTIMATE: Final = "estimate"

TOKENIZERS: Final = (O200K_BASE, CL100K_BASE, ESTIMATE)
"""The vocabularies that a session can be counted in."""

ESTIMATE_ASCII_PER_TOKEN: Final = 4


def estimate(text: str) -> int:
    """One token for every four ASCII characters, rounded up, and one for every other character."""
    if text.isascii():
        return -(-len(text) // ESTIMATE_ASCII_PER_TOKEN)
    ascii_count = len(text.encode("ascii", "ignore"))
    return -(-ascii_count // ESTIMATE_ASCII_PER_TOKEN) + len(text) - ascii_count


class _Vocabulary(Protocol):
    def count(self, text: str) -> int: ...


_loading = threading.Lock()


_loaded: Final[dict[str, Count]] = {}


def _load(tokenizer: str) -> Count:
    if tokenizer == ESTIMATE:
        return estimate
    import quicktok  # Loading a vocabulary takes 0.3 s and up to 64 MB: only those in use are loaded.

    return cast(_Vocabulary, quicktok.get_encoding(tokenizer)).count


def counter(tokenizer: str) -> Count:
    """The count function of a vocabulary. The first call for a vocabulary loads it, which takes up to 0.5 s.

    Raises: KeyError for an unknown name.
    """
    if tokenizer not in TOKENIZERS:
        raise KeyError(tokenizer)
    if (count := _loaded.get(tokenizer)) is not None:
        return count
    with _loading:
        return _loaded.setdefault(tokenizer, _loaded.get(tokenizer) or _load(tokenizer))


async def ready_counter(tokenizer: str) -> Count:
    """`counter`, without holding up the event loop while a vocabulary is loaded."""
    if is_loaded(tokenizer):
        return counter(tokenizer)
    return await asyncio.to_thread(counter, tokenizer)


def is_loaded(tokenizer: str) -> bool:
    """Whether `counter` answers at once."""
    return tokenizer in _loaded


def message_tokens(count: Count, name: str | None, parts: Sequence[Part]) -> int:
    """The price of a message: its texts, tool names, arguments and ids, its media, and `MESSAGE_TOKENS`."""
    tokens = MESSAGE_TOKENS + (count(name) if name else 0) + MEDIA_TOKENS * count_media(parts)
    for text in counted_texts(parts):
        tokens += count(text)
    return tokens

"""Ids that the SDK makes: of messages, of sessions, of tool calls."""

import secrets
import time

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62


def new_id() -> str:
    """Makes a UUID of version 7 (RFC 9562), ordered by time to a millisecond, as 32 lowercase hex digits."""
    milliseconds = time.time_ns() // 1_000_000 & ((1 << 48) - 1)
    return f"{milliseconds << 80 | _VERSION_7 | secrets.randbits(12) << 64 | _VARIANT | secrets.randbits(62):032x}"

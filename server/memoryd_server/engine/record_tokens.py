"""What stands in a session's record for the ids of callers, whatever their length."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

_PLAIN_BYTES: Final = 34
"""Ids up to this length (encoded) stand in the record as they are, longer ones as a digest, so that 256 open calls and
64 unfinished runs fit.
"""


def id_token(id_: str) -> str:
    """What stands for an id in the record: no two ids share a token."""
    if len(msgspec.json.encode(id_)) <= _PLAIN_BYTES:
        return "=" + id_
    return "#" + blake2b(id_.encode(), digest_size=16).hexdigest()

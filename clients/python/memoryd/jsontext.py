"""JSON as text: how the SDK writes it, and how it reads what others wrote."""

import json
import re
from enum import Enum
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(Enum):
    """What `json_value` answers for text that is not JSON."""

    UNREADABLE = "unreadable"


UNREADABLE = Unreadable.UNREADABLE


def json_text(value: object, *, allow_nan: bool = True) -> str:
    """Compact JSON of a value, which UTF-8 can encode: halves of surrogate pairs are escaped, other characters are not.

    Raises TypeError for what JSON cannot hold, and ValueError for what holds itself. NaN and infinities, which JSON has
    not and Python reads all the same, are ValueErrors unless `allow_nan`.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=allow_nan)
    return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text)


def json_value(text: str) -> Any:
    """The value of JSON text; UNREADABLE for what is not JSON, or nests or counts beyond Python's limits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode the text: whether it holds no half of a surrogate pair."""
    return _SURROGATE.search(text) is None

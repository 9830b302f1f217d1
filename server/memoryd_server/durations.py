"""Lengths of time as a person writes them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str, least_seconds: int, most_seconds: int) -> timedelta:
    """A length of time such as `90s`, `12h`, `30d`, `1d 12h`. Raises: ValueError, which says what it can be."""
    found = _DURATION.findall(text)
    if not found or _DURATION.sub("", text).strip():
        raise ValueError("it is a number and a unit of s, m, h, d, w: for example 30d or 12h")
    try:
        length = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in found), timedelta())
    except (OverflowError, ValueError):
        length = timedelta.max
    if not least_seconds <= length.total_seconds() <= most_seconds:
        years = most_seconds // (366 * 24 * 3600)
        raise ValueError(f"it can be {least_seconds} second{'s' * (least_seconds != 1)} to {years} years")
    return length

"""The cursor of session lists, for the adapters that number their sessions."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Cursor(NamedTuple):
    """A place in a list of sessions, which goes from the greatest (activity, number) to the least."""

    activity: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The inverse of `str`; the empty text is the place before the first session."""
        if not text:
            return cls(sys.maxsize, sys.maxsize)
        activity, number = text.split(".")
        return cls(int(activity), int(number))

    def __str__(self) -> str:
        return f"{self.activity}.{self.number}"

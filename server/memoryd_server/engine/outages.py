"""What people read of a store that does not answer: its cause, once, and that it is back."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from memoryd_server.stores.base import StoreUnavailable

_log = logging.getLogger(__name__)

_REPETITIONS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"Repeat the call; if it goes on, "), "If it goes on, "),
    (re.compile(r"Repeat the call(?: later)?\.(?: |$)"), ""),
    (re.compile(r"Repeat the call(?:;|:| later, or) (\w)"), lambda found: found[1].upper()),
    (re.compile(r"(?:: |, then )repeat the call(?=\.)"), ""),
)
"""How stores tell callers to repeat their calls, and what is left of it for others."""


def without_repetition(text: str) -> str:
    """What a store says of a failure, for people who made no call that could be repeated."""
    for pattern, replacement in _REPETITIONS:
        text = pattern.sub(replacement, text)
    return text.strip()


class Outage:
    """The times in which background work finds that a store does not answer. Each is logged when it begins, with its
    cause, and when it ends, however often the work is tried in between.
    """

    def __init__(self, store: str, work: str) -> None:
        """`work`: what is tried, as a sentence goes on behind "could not"."""
        self._store = store
        self._work = work
        self._goes_on = False

    def begin(self, error: StoreUnavailable) -> None:
        """The store did not answer."""
        if not self._goes_on:
            _log.warning(
                "could not %s in store %s; it is tried again until it works: %s",
                self._work,
                self._store,
                without_repetition(str(error)),
            )
        self._goes_on = True

    def end(self) -> None:
        """The store answered."""
        if self._goes_on:
            _log.info("store %s answers again", self._store)
        self._goes_on = False

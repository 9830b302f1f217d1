"""Outages, as those meet them who ask a server again and again: they are waited for, and told in the log once."""

import logging
import time
from typing import Final

from memoryd.arguments import RETRY_FOR, seconds
from memoryd.errors import Contention, DeadlineExceeded, MemorydError, TlsFailed, Unavailable

PASSING: Final = (Unavailable, DeadlineExceeded, Contention)
"""Errors of memoryd that tell of an outage, and of nothing that the caller did."""

log = logging.getLogger("memoryd")


class Outage:
    """Tells failures that pass from those that do not."""

    def __init__(self, *, begins: str, ends: str, retry_for: float | None = None) -> None:
        self._begins = begins
        self._ends = ends
        self._retry_for = None if retry_for is None else seconds(retry_for, "retry_for", RETRY_FOR)
        self._answered_ever = False
        self._since: float | None = None

    def answered(self) -> None:
        """Takes note of an answer."""
        if self._since is not None:
            log.info(self._ends)
        self._answered_ever = True
        self._since = None

    def failed(self, error: MemorydError) -> None:
        """Takes note of a failure. Raises the error when it is of no use to ask again."""
        if not isinstance(error, PASSING) or (isinstance(error, TlsFailed) and not self._answered_ever):
            raise error
        now = time.monotonic()
        since = now if self._since is None else self._since
        if self._retry_for is not None and now - since >= self._retry_for:
            raise error
        if self._since is None:
            self._since = since
            log.warning("%s, which is tried again: %s", self._begins, error)

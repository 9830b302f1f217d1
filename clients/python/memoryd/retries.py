"""How calls are tried again while the server is unavailable: the policy of all SDKs, in `clients/README.md`."""

import random
import time
from typing import Any, Final

import grpc

from memoryd.channel import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Deadline
from memoryd.errors import MemorydError, ServerDraining, StoreUnavailable
from memoryd.methods import Method

FIRST_TRIES: Final = 5
"""How often a call is tried on a server that has not answered this client yet: about 1.5 s, with the pauses between."""
RESTART_SECONDS: Final = 10.0
"""For how long a call is tried again, from its first failure on, on a server that has answered: as long as a restart
may take."""
_LONGEST_JITTER: Final = 1.2
"""Pauses are longer by up to a fifth, so that clients that lost one server do not come back all at once."""
_PASSING_REASONS: Final = frozenset({"", StoreUnavailable._of_reason, ServerDraining._of_reason})
"""The reasons of UNAVAILABLE with which a repeat is of use; none is given where no server of memoryd answered."""


class Server:
    """What a client knows of its server."""

    def __init__(self) -> None:
        self.has_answered = False
        """Whether one of memoryd has answered a call, be it with a refusal."""


class Tries:
    """The tries of one call."""

    def __init__(self, server: Server, method: Method[Any, Any], deadline: Deadline) -> None:
        self._server = server
        self._method = method
        self._deadline = deadline
        self._failed = 0
        self._since = 0.0

    def failed(self, error: MemorydError) -> float:
        """Takes note of a failure, and gives the pause before the next try, in seconds. Raises the error when there is
        to be none.
        """
        if error.reason:
            self._server.has_answered = True
        if not self._method.retried or error.code is not grpc.StatusCode.UNAVAILABLE:
            raise error
        if error.reason not in _PASSING_REASONS:
            raise error
        now = time.monotonic()
        if self._failed == 0:
            self._since = now
        pause = max(min(FIRST_PAUSE_SECONDS * 2.0**self._failed, LONGEST_PAUSE_SECONDS), error.retry_after or 0.0)
        pause *= random.uniform(1, _LONGEST_JITTER)
        self._failed += 1
        is_over = now + pause > self._since + RESTART_SECONDS or (
            not self._server.has_answered and self._failed >= FIRST_TRIES
        )
        # A try that has no time left would hide why the others failed.
        if is_over or pause + FIRST_PAUSE_SECONDS > self._deadline.left():
            raise error
        return pause

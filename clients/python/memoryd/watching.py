"""What a watch knows and decides, free of any way to make calls: the sync and the async client each carry it out."""

import logging
import math
import random
import time
from collections import deque
from typing import Final

import grpc

from memoryd.arguments import RETRY_FOR, SEQS, integer, seconds, string
from memoryd.decoding import watch_event_from_proto
from memoryd.errors import DeadlineExceeded, MemorydError, TlsFailed, TooManyWatchers, Unavailable, WatchStalled
from memoryd.events import WatchEvent
from memoryd.v1.history_service_pb2 import WatchMessagesRequest, WatchMessagesResponse
from memoryd.v1.session_pb2 import SessionKey

FIRST_PAUSE: Final = 0.1
"""Seconds, at most, before a watch that broke off is resumed for the first time; doubled with each time in vain."""
LONGEST_PAUSE: Final = 5.0
"""Seconds that no pause exceeds. A watch that stood for so long begins again with the first pause."""
_MOST_DOUBLINGS: Final = 10
"""More than it takes to get from the first pause to the longest."""
NO_DEADLINE: Final = math.inf
"""The seconds that a watch may take."""

_BROKEN_OFF = (Unavailable, WatchStalled, TooManyWatchers, DeadlineExceeded)
_LOST_ON_THE_WAY = (grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
"""What a lost connection may look like from behind a proxy, when no server of memoryd gave the reason. Where none ever
answered, it tells rather of a wrong address."""

_log = logging.getLogger("memoryd")


class Follower:
    """Follows one session: where it has got to, which events wait to be handed out, what becomes of a failure."""

    def __init__(
        self, session: SessionKey, *, resume_token: str | None, after_seq: int | None, retry_for: float | None
    ) -> None:
        if resume_token is not None and after_seq is not None:
            raise ValueError("a watch begins at one place: give either resume_token or after_seq")
        self.resume_token = string(resume_token or "", "resume_token", "what an event's resume_token holds")
        self._session = session
        self._after_seq = None if after_seq is None else integer(after_seq, "after_seq", SEQS)
        self._retry_for = None if retry_for is None else seconds(retry_for, "retry_for", RETRY_FOR)
        self._waiting: deque[WatchEvent] = deque()
        self._token_behind = ""
        self.stands = False
        """Whether a server has answered since the last failure."""
        self._stood_ever = False
        self._stands_since = 0.0
        self._in_vain = 0
        self._in_vain_since: float | None = None

    def request(self) -> WatchMessagesRequest:
        """The request that goes on behind the last event that was handed out."""
        after_seq = None if self.resume_token else self._after_seq
        return WatchMessagesRequest(session=self._session, resume_token=self.resume_token, after_seq=after_seq)

    def answered(self, response: WatchMessagesResponse) -> None:
        """Takes an answer in. Raises AnswerUnreadable for a message that this SDK does not know."""
        events = [watch_event_from_proto(event) for event in response.events]
        if not self.stands:
            self.stands = self._stood_ever = True
            self._stands_since = time.monotonic()
            if self._in_vain_since is not None:
                _log.info("the watch of session %r goes on", self._session.session_id)
                self._in_vain_since = None
        self._waiting.extend(events)
        self._token_behind = response.resume_token
        self._hand_on_token()

    def next_event(self) -> WatchEvent | None:
        """The next event that waits to be handed out; None when the next answer must be read first."""
        if not self._waiting:
            return None
        event = self._waiting.popleft()
        self.resume_token = event.resume_token or self.resume_token
        self._hand_on_token()
        return event

    def _hand_on_token(self) -> None:
        if not self._waiting:
            self.resume_token = self._token_behind or self.resume_token

    def broke_off(self, error: MemorydError) -> float:
        """The seconds to pause before the watch is resumed. Raises the error when that is of no use."""
        now = time.monotonic()
        if not self._may_pass(error):
            raise error
        if self.stands and now - self._stands_since >= LONGEST_PAUSE:
            self._in_vain = 0
        self.stands = False
        since = now if self._in_vain_since is None else self._in_vain_since
        if self._retry_for is not None and now - since >= self._retry_for:
            raise error
        if self._in_vain_since is None:
            self._in_vain_since = since
            _log.warning("the watch of session %r broke off and is resumed: %s", self._session.session_id, error)
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._in_vain)
        self._in_vain = min(self._in_vain + 1, _MOST_DOUBLINGS)
        return longest * random.uniform(0.5, 1)

    def _may_pass(self, error: MemorydError) -> bool:
        if isinstance(error, _BROKEN_OFF) and not isinstance(error, TlsFailed):
            return True
        lost = isinstance(error, TlsFailed) or (not error.reason and error.code in _LOST_ON_THE_WAY)
        return lost and self._stood_ever


def broken_off(address: str, code: grpc.StatusCode) -> MemorydError:
    """The error of a watch that ended without one: as if it were complete, or cancelled, though not by its reader."""
    return Unavailable(f"the watch was ended at {address} ({code.name})", code=code)

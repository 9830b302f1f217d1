"""Little reads on the event loop, as long as they are fast.

A read that finds its pages in memory takes less time than the hop to a thread and back, and with many callers the
threads contend with the loop for the interpreter lock: measured with 32 callers, windows of 20 messages came 1.6 times
as often when they were read on the loop. The disk may be slow at any moment, though. So only what is probably little
is read here, and a read that took long sends the following ones to the threads for a while: at worst, the loop stands
still once in that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from memoryd_server.limits import KIB
from memoryd_server.stores.base import Tail
from memoryd_server.stores.sql.reader import Reader

LITTLE_MESSAGES: Final = 64
"""Messages of a tail that is little."""

LITTLE_TOKENS: Final = 4_096
"""Tokens of one: some 50 messages, as they mostly are."""

LITTLE_BYTES: Final = 256 * KIB
"""The most that the bodies of one probably have together, or the contents of files: reading them takes a fraction of a
millisecond.
"""

LITTLE_FILES: Final = 8
"""Files that are little, if their contents are."""

LITTLE_RUNS: Final = 64
"""Names of runs in a list that is little."""

LONG_SECONDS: Final = 0.005
"""A read of this length has waited for the disk."""

PAUSE_SECONDS: Final = 1.0
"""How long reads then go to the threads."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def is_little(tail: Tail | None) -> bool:
    """Whether a load reads little, if the messages of the session are not large."""
    return tail is None or tail.messages <= LITTLE_MESSAGES or (tail.tokens or LITTLE_TOKENS + 1) <= LITTLE_TOKENS


class InlineReads:
    """A connection of the event loop's own."""

    def __init__(self, open_reader: Callable[[], Reader], clock: Callable[[], float] = time.monotonic) -> None:
        self._open_reader = open_reader
        self._clock = clock
        self._reader: Reader | None = None
        self._paused_until = 0.0

    def open(self) -> None:
        """Opens the connection."""
        self._reader = self._open_reader()

    def close(self) -> None:
        """Closes it; nothing is allowed any more."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def allowed(self) -> bool:
        """Whether reads have been fast of late."""
        return self._reader is not None and self._clock() >= self._paused_until

    def run(
        self, call: Callable[Concatenate[Reader, Arguments], Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Calls with the reader. Raises: what the call raises."""
        assert self._reader is not None
        started = self._clock()
        try:
            return call(self._reader, *args, **kwargs)
        finally:
            ended = self._clock()
            if ended - started > LONG_SECONDS:
                self._paused_until = ended + PAUSE_SECONDS

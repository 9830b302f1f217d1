"""Files that are read again when they change, without a restart."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

Value = TypeVar("Value")

INTERVAL_SECONDS: Final = 0.5
"""How often the files are read. A change is in force after two readings that agree, so within about a second and a
half: the contents are compared, since times and inodes tell less on network file systems and mounted secrets."""

_log: Final = structlog.stdlib.get_logger("memoryd.credentials")


class Unusable(Exception):
    """Files cannot be used. The text says which, why and what to do, and never what they hold."""


class ReloadedFiles(Generic[Value]):
    """What some files say together; what they said before, while they cannot be used."""

    def __init__(
        self, setting: str, paths: Sequence[Path], understand: Callable[[Sequence[Path], Sequence[bytes]], Value]
    ) -> None:
        """Reads the files. `setting` names them in the log; `understand` makes the value of what was read.

        Raises: Unusable, also when `understand` raises it.
        """
        self._setting = setting
        self._paths = paths
        self._understand = understand
        self._listeners: list[Callable[[], None]] = []
        contents = self._read()
        self.current = understand(paths, contents)
        self._seen = self._settled = _fingerprint(contents)

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Calls the listener, in the event loop, each time that `current` has become another."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Keeps `current` up to date. Ends by cancellation only."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Reads the files once; takes over what this and the last reading agree on.

        So nothing is taken from a file that is being written, or from a certificate whose key has yet to follow.
        """
        contents: Sequence[bytes] = ()
        try:
            contents = await asyncio.to_thread(self._read)
            seen = _fingerprint(contents)
        except Unusable as error:
            seen = str(error)
        settled, self._seen = seen == self._seen, seen
        if not settled or seen == self._settled:
            return
        self._settled = seen
        if not contents:
            self._complain(seen)
            return
        try:
            self.current = await asyncio.to_thread(self._understand, self._paths, contents)
        except Unusable as error:
            self._complain(str(error))
            return
        _log.info("read again", setting=self._setting)
        for listener in self._listeners:
            listener()

    def _read(self) -> Sequence[bytes]:
        contents = []
        for path in self._paths:
            try:
                contents.append(path.read_bytes())
            except OSError as error:
                raise Unusable(f"{path} cannot be read ({error.strerror})") from error
        return contents

    def _complain(self, problem: str) -> None:
        _log.error(
            "what was read before stays in force: mend the file, and it is read again by itself",
            setting=self._setting,
            problem=problem,
        )


def _fingerprint(contents: Sequence[bytes]) -> str:
    return " ".join(hashlib.sha256(content).hexdigest() for content in contents)

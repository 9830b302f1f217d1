"""What the engine tells of its work as it happens: a store's counts and sizes, for whoever keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from memoryd_server.stores.base import Change, Outcome

if TYPE_CHECKING:
    from memoryd_server.engine.windows import WindowStats


class Sweep(StrEnum):
    """What background work removes."""

    MESSAGES = "messages"
    """Messages that were taken out of their histories."""
    SESSIONS = "sessions"
    """Sessions that expired."""
    EVENTS = "events"
    """Events of watches that are too old to be resumed from."""
    LOOKUPS = "lookups"
    """Id look-ups whose session is gone and that are too old to be asked for."""


class Instruments:
    """The instruments of one store. These keep nothing; `memoryd_server.metrics` has some that count.

    All methods are called on the event loop, on the path of calls: they take microseconds and raise nothing.
    """

    def committed(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        """A commit was answered: each change with its outcome."""

    def window_cut(self, stats: WindowStats) -> None:
        """A window was made, with these stats."""

    def reached(self, reachable: bool) -> None:
        """The store was asked whether it answers."""

    def watchers(self, change: int) -> None:
        """A watch of a session began (1) or ended (-1)."""

    def swept(self, what: Sweep, count: int) -> None:
        """A round of background work ended well, having removed so many, perhaps none."""

    def sweep_failed(self, what: Sweep) -> None:
        """Background work failed: at one item, which is tried again later, or as a whole."""


NO_INSTRUMENTS: Final = Instruments()
"""Keep nothing, and cost a call each."""

"""What the engine tells of its work as it happens: a store's counts and sizes, for whoever keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memoryd_server.stores.base import Change, Deleted, Outcome
from memoryd_server.summarizers.base import FailureReason

if TYPE_CHECKING:
    from memoryd_server.engine.windows import WindowStats


COMMITTED: Final = "committed"
VOID: Final = "void"
"""The history changed where the fold lay."""
CANCELLED: Final = "cancelled"
"""The server drains."""
UNAVAILABLE: Final = "unavailable"
"""The store did not answer."""
ABANDONED: Final = "abandoned"
"""The model of a client failed."""

FOLD_OUTCOMES: Final = (COMMITTED, VOID, CANCELLED, UNAVAILABLE, ABANDONED, *FailureReason)
"""How folds end."""


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

    def expired(self, sessions: int) -> None:
        """Background work ended the lives of so many sessions whose ttl was over."""

    def abandoned(self, runs: int) -> None:
        """Background work ended so many runs that nobody had claimed for long."""

    def swept(self, deleted: Deleted) -> None:
        """A round of background work deleted these rows, perhaps none, and came to its end."""

    def fold_began(self) -> None:
        """The server leased a fold and works on it."""

    def fold_ended(self, outcome: str, seconds: float, messages: int) -> None:
        """A fold that began has ended: one of `FOLD_OUTCOMES`, how long it took, and how many messages it took in."""

    def task_ended(self, outcome: str, seconds: float, messages: int) -> None:
        """Likewise one of a client, which may have begun on another server."""

    def sweep_failed(self) -> None:
        """Background work failed at one session or as a whole; it is tried again later."""


NO_INSTRUMENTS: Final = Instruments()
"""Keep nothing, and cost a call each."""

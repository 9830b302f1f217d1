"""Claimable runs that were read ahead of their claims. So most claims of a busy agent are one trip to the store, and
workers of one server do not all go for the same run.

Another server may claim a run that was read ahead. The commit of a claim finds that, and no harm is done but the time:
so an agent whose runs others claim too is not read ahead of for some claims.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from memoryd_server.stores.base import ClaimableRun

READ_AHEAD: Final = 4
"""Runs that are read at once. More would make the reads longer that serve one claim alone."""
CAUTIOUS_CLAIMS: Final = 16
"""Claims of an agent that read one run alone after one that came too late."""
AGENTS: Final = 64
"""Agents whose runs are held, the last that were claimed from: with records of the largest size some 18 MiB."""


class Found(NamedTuple):
    """A run to be claimed."""

    whole: ClaimableRun
    is_ahead: bool
    """Whether it was read for an earlier claim, so that others may have claimed it since."""


class ClaimableRuns:
    """Those of one agent."""

    def __init__(self) -> None:
        self._ahead: deque[ClaimableRun] = deque()
        self._cautious = 0
        self._is_reading = False

    async def take(self, read: Callable[[int], Awaitable[Sequence[ClaimableRun]]]) -> Found | None:
        """The next run, which nobody else is given. `read`: reads the first runs, at most so many.

        Returns: None when there is none. Raises: what `read` raises.
        """
        if self._ahead:
            return Found(self._ahead.popleft(), is_ahead=True)
        if self._is_reading or self._cautious:
            self._cautious = max(0, self._cautious - 1)
            found = await read(1)
        else:
            self._is_reading = True
            try:
                found = await read(READ_AHEAD)
            finally:
                self._is_reading = False
            self._ahead.extend(found[1:])
        return Found(found[0], is_ahead=False) if found else None

    def came_too_late(self) -> None:
        """A run that was read ahead is not to be claimed any more: the others may not be, either."""
        self._ahead.clear()
        self._cautious = CAUTIOUS_CLAIMS


class ClaimableRunsOfAgents:
    """Those of the agents that were claimed from last."""

    def __init__(self) -> None:
        self._agents: OrderedDict[tuple[str, str], ClaimableRuns] = OrderedDict()

    def of(self, tenant: str, agent: str) -> ClaimableRuns:
        """Those of an agent."""
        runs = self._agents.setdefault((tenant, agent), ClaimableRuns())
        self._agents.move_to_end((tenant, agent))
        if len(self._agents) > AGENTS:
            self._agents.popitem(last=False)
        return runs

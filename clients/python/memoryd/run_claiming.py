"""How a worker asks for the next run, free of any way to make calls."""

import random
import time
from typing import Final

from memoryd import run_plans
from memoryd.arguments import seconds
from memoryd.outages import Outage
from memoryd.plans import Plan
from memoryd.run_work import holder_name
from memoryd.v1 import run_service_pb2 as pb

DEFAULT_POLL: Final = 1.0
"""Seconds, on average, between two questions for a run to claim while there is none."""
_POLL: Final = "the seconds between two questions for a run, more than 0, for example 1"


class Claiming:
    """Asks for runs of an agent: the request, and what becomes of failures."""

    def __init__(self, agent: str, *, holder: str | None, lease: float, poll: float) -> None:
        self.request = run_plans.claim(agent, holder=holder_name(holder), lease=lease)
        self.outage = Outage(begins="no run can be claimed", ends="runs are claimed again")
        self._poll = seconds(poll, "poll", _POLL)
        if self._poll <= 0:
            raise ValueError(f"poll is {self._poll:g}; give {_POLL}")

    def claimed(self) -> Plan[tuple[pb.ClaimRunRequest, pb.ClaimRunResponse, float] | None]:
        """Claims a run: what is held by which request, and since when. None when there is none to claim."""
        since = time.monotonic()
        response = yield from run_plans.claimed_of_agent(self.request)
        if not response.HasField("run"):
            return None
        named = pb.ClaimRunRequest(
            run=response.run.key, holder=self.request.holder, lease_duration=self.request.lease_duration
        )
        return named, response, since

    def pause(self) -> float:
        """The seconds until it is of use to ask again."""
        return self._poll * random.uniform(0.5, 1.5)

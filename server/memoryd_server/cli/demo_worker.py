"""A worker of the demo, which does a part of a run: `python -m memoryd_server.cli.demo_worker ADDRESS AGENT PART`.

What a run is for shows only when its parts are done by processes that know nothing of each other.
"""

import os
import sys
from typing import Final

from memoryd import MemoryClient, RunStatus, assistant, user

BEGIN: Final = "begin"
"""The part that ends with a question for an approval."""
GO_ON: Final = "go-on"
"""The part that begins where any worker may claim the run."""

SESSION: Final = "trip"
RUN: Final = "oslo"
STEPS: Final = 3
MESSAGES: Final = 4
"""What the whole run has in the end."""


def begin(memory: MemoryClient, agent: str) -> None:
    """Begins the run, and leaves it to whoever approves it."""
    with memory.run(memory.session(agent=agent, id=SESSION), RUN) as run:
        _tell(f"begins run {run.id}")
        run.step(messages=[user("Book me a flight to Oslo."), assistant("SK 803 leaves at 09:40 and costs 180 EUR.")])
        _tell("step 1: has found a flight")
        found = {"flight": "SK 803", "price": 180}
        ask = assistant("Shall I book it?")
        run.pause(RunStatus.AWAITING_APPROVAL, found, reason="it costs 180 EUR", messages=[ask])
        _tell("step 2: asks for an approval, and ends")


def go_on(memory: MemoryClient, agent: str) -> None:
    """Claims the run, and goes on behind its last step."""
    with memory.claims(agent, poll=0.1) as claims:
        for run in claims:
            with run:
                last = run.resume()
                assert last is not None
                found = last.json()
                _tell(f"claims run {run.id}, and reads in step {last.number}: {found['flight']}, {found['price']} EUR")
                run.step({"reference": "KX7PQ2"}, messages=[assistant("Booked: KX7PQ2 ✈️")])
                _tell(f"step {run.steps}: has booked it, and completes the run")
            return


def _tell(what: str) -> None:
    sys.stdout.write(f"process {os.getpid()}  {what}\n")


if __name__ == "__main__":
    address, agent, part = sys.argv[1:]
    with MemoryClient(address) as memory:
        {BEGIN: begin, GO_ON: go_on}[part](memory, agent)

"""Workers of two servers die at any moment: each step and message is there once, and every run ends (invariant 15)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memoryd_server.engine import histories
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.run_access import RunView
from memoryd_server.stores.records import RunStatus, SessionKey
from tests.adapters import EACH_ATOMIC_ADAPTER, Adapter
from tests.engine.folded_sessions import pass_time
from tests.engine.messages import KEY, user
from tests.engine.run_servers import LEASE, SECOND, Worker, servers_on

SESSIONS, RUNS, STEPS = 3, 4, 4
LOST = (Reason.LEASE_LOST, Reason.RUN_ENDED)


@dataclass
class Crew:
    """Workers that take runs up where others left them, and what they hold."""

    workers: list[Worker]
    rng: random.Random
    held: dict[tuple[SessionKey, str], list[str]] = field(default_factory=dict)
    """The fences of each run, as they were answered for claims."""

    async def work(self, worker: Worker) -> bool:
        """One worker's life: it claims a run and goes on with it until it dies. Returns: whether there was a run."""
        run = await worker.claim()
        if run is None:
            return False
        fences = self.held.setdefault((run.key.session, run.key.run_id), [])
        assert run.fence not in fences
        fences.append(run.fence)
        for number in range(run.run.state.steps + 1, STEPS + 1):
            if self.rng.random() < 0.25:
                return True  # Killed after a claim, or between two steps.
            if not await self._step(worker, run, number):
                return True
        return True

    async def _step(self, worker: Worker, run: RunView, number: int) -> bool:
        """Commits a step. Returns: whether the worker is still alive, and holds the run."""
        status = RunStatus.COMPLETED if number == STEPS else RunStatus.RUNNING
        message = user(f"{run.key.session.session_id} {run.key.run_id} {number}")
        call = asyncio.ensure_future(worker.step(run, number, message, status=status))
        dies = self.rng.random()
        if dies < 0.25:  # In the middle of it: whether it is committed, only the store knows.
            for _ in range(self.rng.randint(0, 6)):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            return False
        try:
            await call
            if dies > 0.85:  # The answer was lost, and the call is repeated.
                await worker.step(run, number, message, status=status)
        except RequestError as error:
            if error.reason not in LOST:
                raise
            return False
        return dies > 0.4  # Else killed when it was committed.


@pytest.mark.parametrize("adapter", EACH_ATOMIC_ADAPTER)
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_step_and_message_is_stored_once_whoever_dies(adapter: Adapter, seed: int, tmp_path: Path) -> None:
    async with servers_on(adapter, tmp_path, 2, run_recoveries=1_000) as servers:
        sessions = [KEY._replace(session_id=f"s{number}") for number in range(SESSIONS)]
        for session in sessions:
            for number in range(RUNS):
                await Worker(servers[number % 2], session).create(f"r{number}", queued=True)
        crew = Crew([Worker(servers[number % 2], name=f"{number}") for number in range(6)], random.Random(seed))
        for _ in range(200):
            found = await asyncio.gather(*map(crew.work, crew.workers))
            if not any(found):
                # Nobody is left who works: what is not claimable now is held by the dead.
                if not await servers[0].store.list_claimable(KEY.tenant, KEY.agent, 1 << 62, 1):
                    break
                pass_time(LEASE / SECOND + 1, *servers)
        for session in sessions:
            worker = Worker(servers[0], session)
            page, _ = await histories.list_messages(servers[1], histories.MessageList(session, page_size=1_000))
            texts = Counter(message.content for message in page)
            wanted = {f"{session.session_id} r{run} {step}" for run in range(RUNS) for step in range(1, STEPS + 1)}
            assert len(texts) == len(wanted) == texts.total()
            assert all(any(f'"{text}"' in (content or "") for content in texts) for text in wanted)
            for number in range(RUNS):
                view = await worker.get(f"r{number}")
                assert (view.run.state.status, view.run.state.steps) == (RunStatus.COMPLETED, STEPS)
                steps = await worker.steps(f"r{number}")
                assert [step.number for step in steps] == list(range(1, STEPS + 1))
                assert [step.messages for step in steps] == [1] * STEPS
                fences = crew.held[session, f"r{number}"]
                assert fences == sorted(fences)
            assert (await worker.record()).runs == ()

"""Runs through the engine's calls, on every store (invariants 2, 15 and 18)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from memoryd_server import limits
from memoryd_server.engine import changes, histories, run_claims, run_steps, runs
from memoryd_server.engine.claimable_runs import READ_AHEAD
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_changes import CommittedStep, Fence, RunUpdate, plan_claim, plan_update
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.sweeping import Sweeper
from memoryd_server.stores.base import Store
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import RunStatus, SessionKey
from tests.adapters import EACH_ADAPTER, EACH_ATOMIC_ADAPTER, Adapter
from tests.engine.folded_sessions import pass_time
from tests.engine.messages import KEY, assistant, user
from tests.engine.run_servers import LEASE, SECOND, Worker, name_of, servers_on
from tests.engine.sessions import runtime_on

TTL = 60 * SECOND
OTHER = SessionKey(KEY.tenant, KEY.agent, "other")


@pytest.fixture(params=EACH_ADAPTER)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    """A server on each store in turn."""
    async with servers_on(request.param, tmp_path) as [server]:
        yield server


@pytest.fixture
def worker(server: Runtime) -> Worker:
    return Worker(server)


@pytest.fixture(params=EACH_ATOMIC_ADAPTER)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two workers by two servers on one store."""
    adapter: Adapter = request.param
    async with servers_on(adapter, tmp_path, 2) as [here, there]:
        yield Worker(here, name="here"), Worker(there, name="there")


async def refused(call: Awaitable[object]) -> RequestError:
    with pytest.raises(RequestError) as error:
        await call
    return error.value


async def reason_of(call: Awaitable[object]) -> str:
    return (await refused(call)).reason


def counting(monkeypatch: pytest.MonkeyPatch, store: Store, *names: str) -> Counter[str]:
    """Counts calls of a store from now on."""
    counts: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def called(*arguments: object) -> object:
            counts[name] += 1
            return await call(*arguments)

        return called

    for name in names:
        monkeypatch.setattr(store, name, counted(name, getattr(store, name)))
    return counts


def answering(found: object) -> Callable[..., Awaitable[object]]:
    """A read of a store that finds this, whatever it is asked."""

    async def read(*_: object) -> object:
        return found

    return read


def told(answer: CommittedStep) -> tuple[object, ...]:
    return answer.messages, answer.created


class TestSteps:
    async def test_a_repeated_step_is_answered_as_at_first_whatever_came_since(self, worker: Worker) -> None:
        """With and without ids of its messages; under the next steps, another worker, and once the run ended."""
        run = await worker.create("run")
        sent = ((assistant("made"), user("named", id="named")), (assistant("made"),), ())
        first = [told(await worker.step(run, number, *messages)) for number, messages in enumerate(sent, 1)]
        last = (await worker.record()).last_seq

        async def again() -> list[tuple[object, ...]]:
            return [told(await worker.step(run, number, *messages)) for number, messages in enumerate(sent, 1)]

        assert await again() == first
        pass_time(LEASE / SECOND + 1, worker.server)
        assert await again() == first
        other = await worker.take("run")
        await worker.step(other, 4, user("of another"))
        assert await again() == first
        await worker.finish(other)
        assert await again() == first
        record = await worker.record()
        assert (record.last_seq, [step.number for step in await worker.steps("run")]) == (last + 1, [1, 2, 3, 4])

    async def test_the_last_step_can_be_repeated_although_it_ended_the_run(self, worker: Worker) -> None:
        run = await worker.create("run")
        first = await worker.step(run, 1, user("hi"), status=RunStatus.BLOCKED, reason="no key")
        again = await worker.step(run, 1, user("hi"), status=RunStatus.BLOCKED, reason="no key")
        assert again == first
        assert (await worker.get("run")).run.head.reason == "no key"
        assert await reason_of(worker.step(run, 2)) == Reason.RUN_ENDED

    async def test_a_step_that_is_to_set_another_status_is_no_repeated_one(self, worker: Worker) -> None:
        """A pause with the content of a step whose answer was lost: nobody may take the run for paused."""
        run = await worker.create("run")
        await worker.step(run, 1, user("hi", id="one"))
        for status in (RunStatus.AWAITING_APPROVAL, RunStatus.COMPLETED):
            assert await reason_of(worker.step(run, 1, user("hi", id="one"), status=status)) == Reason.STEP_MISMATCH
        await worker.step(run, 2, status=RunStatus.AWAITING_APPROVAL)
        for status in (RunStatus.RUNNING, RunStatus.COMPLETED):
            assert await reason_of(worker.step(run, 2, status=status)) == Reason.STEP_MISMATCH
        assert (await worker.get("run")).run.state.status is RunStatus.AWAITING_APPROVAL

    @pytest.mark.parametrize("field", ["payload", "a message", "a message less"])
    async def test_a_step_with_the_number_of_another_is_a_mismatch(self, worker: Worker, field: str) -> None:
        run = await worker.create("run")
        await worker.step(run, 1, user("hi", id="one"), payload=b"1")
        text = "ho" if field == "a message" else "hi"
        sent = [] if field == "a message less" else [user(text, id="one")]
        error = await refused(worker.step(run, 1, *sent, payload=b"2" if field == "payload" else b"1"))
        assert (error.reason, error.metadata["step_count"]) == (Reason.STEP_MISMATCH, "1")
        assert await reason_of(worker.step(run, 3)) == Reason.STEP_MISMATCH
        assert (await worker.record()).last_seq == 1

    async def test_the_same_step_of_another_worker_is_not_taken_for_a_repeated_one(self, worker: Worker) -> None:
        """Who lost the lease must not go on as if the step had been its own."""
        first = await worker.create("run")
        pass_time(LEASE / SECOND + 1, worker.server)
        second = await worker.take("run")
        await worker.step(second, 1, user("hi"))
        assert await reason_of(worker.step(first, 1, user("hi"))) == Reason.LEASE_LOST
        await worker.finish(second)
        assert await reason_of(worker.step(first, 1, user("hi"))) == Reason.RUN_ENDED
        assert (await worker.record()).messages == 1

    async def test_a_worker_that_stalls_past_its_lease_changes_nothing(self, worker: Worker) -> None:
        run = await worker.create("run")
        await worker.step(run, 1)
        pass_time(LEASE / SECOND, worker.server)
        before = await worker.record()
        for call in (
            worker.step(run, 2, user("late")),
            worker.step(run, 2, status=RunStatus.COMPLETED),
            worker.finish(run),
            runs.release(worker.server, run.key, run.fence),
            run_claims.renew(worker.server, run.key, run.fence),
        ):
            assert await reason_of(call) == Reason.LEASE_LOST
        assert await worker.record() == before
        assert (await worker.get("run")).run.state.steps == 1

    async def test_messages_whose_ids_are_known_commit_no_step(self, worker: Worker) -> None:
        run = await worker.create("run")
        await histories.append(worker.server, histories.Append(KEY, [user("hi", id="known")]))
        for sent in ([user("hi", id="known")], [user("new"), user("ho", id="known")]):
            error = await refused(worker.step(run, 1, *sent))
            assert (error.reason, error.metadata["message_id"]) == (Reason.MESSAGE_ID_CONFLICT, "known")
        assert (await worker.record()).messages == 1
        assert await worker.steps("run") == []
        await worker.step(run, 1, user("new"))

    async def test_a_step_with_messages_of_elsewhere_is_no_repeated_one(self, worker: Worker) -> None:
        """Although all else is the same, and these messages are known too."""
        run = await worker.create("run")
        await worker.step(run, 1, user("hi", id="one"))
        await worker.step(run, 2, user("hi", id="two"))
        assert await reason_of(worker.step(run, 1, user("hi", id="two"))) == Reason.STEP_MISMATCH

    async def test_messages_have_the_runs_id_and_consecutive_seqs(self, worker: Worker) -> None:
        run = await worker.create("run")
        await histories.append(worker.server, histories.Append(KEY, [user("before")]))
        answer = await worker.step(run, 1, user("one"), user("two"))
        page, _ = await histories.list_messages(worker.server, histories.MessageList(KEY, run_id="run"))
        assert [(message.seq, message.id) for message in page] == [(each.seq, each.id) for each in answer.messages]
        [step] = await worker.steps("run")
        assert (step.first_seq, step.messages, step.payload) == (2, 2, b"payload")

    async def test_two_calls_of_one_step_at_once_commit_it_once(self, pair: tuple[Worker, Worker]) -> None:
        here, there = pair
        run = await here.create("run")
        for number in range(1, 6):
            calls = [worker.step(run, number, user("hi")) for worker in (here, there, here)]
            answers = await asyncio.gather(*calls)
            assert len({str(told(answer)) for answer in answers}) == 1
        assert (await here.record()).messages == len(await there.steps("run")) == 5


class TestCreation:
    async def test_the_65th_unfinished_run_is_refused_until_one_ends(self, worker: Worker) -> None:
        for number in range(limits.MAX_UNFINISHED_RUNS):
            await worker.create(f"run {number}", queued=bool(number))
        error = await refused(worker.create("one more"))
        assert (error.reason, error.metadata["limit"]) == (Reason.TOO_MANY_RUNS, "64")
        assert (await worker.create("run 7", queued=True)).run.state.version == 1  # A repeated call.
        await worker.update(await worker.get("run 9"), RunStatus.CANCELLED, by_etag=True)
        await worker.create("one more")
        assert len((await worker.record()).runs) == limits.MAX_UNFINISHED_RUNS

    async def test_an_id_whose_run_was_deleted_half_way_begins_again_with_a_greater_fence(self, worker: Worker) -> None:
        first = await worker.create("run")
        for number in (1, 2, 3):
            await worker.step(first, number)
        ended = await worker.finish(first)
        assert await worker.server.store.delete_run(name_of(ended), 2) == 2
        assert await reason_of(worker.get("run")) == Reason.RUN_NOT_FOUND
        second = await worker.create("run")
        assert second.fence > first.fence
        assert second.etag not in (first.etag, ended.etag)
        assert await worker.steps("run") == []
        assert await reason_of(worker.step(first, 1)) == Reason.LEASE_LOST
        await worker.step(second, 1)

    async def test_a_run_begins_its_session_and_anothers_settings_do_not_matter(self, worker: Worker) -> None:
        await worker.create("run", ttl=TTL)
        assert ((await worker.record()).ttl, (await worker.record()).user_id) == (TTL, "user")
        await worker.create("other", ttl=2 * TTL)
        assert (await worker.record()).ttl == TTL

    async def test_without_an_id_each_call_begins_another_run(self, worker: Worker) -> None:
        views = [await worker.create("") for _ in range(3)]
        assert sorted(await worker.listed()) == sorted(view.key.run_id for view in views)

    @pytest.mark.parametrize("warm", [False, True])
    async def test_two_servers_that_begin_one_run_both_get_it(self, pair: tuple[Worker, Worker], warm: bool) -> None:
        """Whatever they remember of the session."""
        here, there = pair
        there.name = here.name
        if warm:
            for worker in (here, there, here):
                await histories.append(worker.server, histories.Append(KEY, [user("hi")]))
        for number in range(5):
            views = await asyncio.gather(*(worker.create(f"run {number}") for worker in (here, there, here)))
            assert len({(view.fence, view.etag) for view in views}) == 1
        assert len(await here.listed()) == 5

    async def test_of_two_servers_that_begin_different_runs_of_one_id_one_does(
        self, pair: tuple[Worker, Worker]
    ) -> None:
        here, there = pair
        for number in range(5):
            calls = [worker.create(f"run {number}") for worker in (here, there)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            [error] = [answer for answer in answers if isinstance(answer, RequestError)]
            assert error.reason == Reason.RUN_EXISTS
            [view] = [answer for answer in answers if isinstance(answer, RunView)]
            assert (await here.get(f"run {number}")).run == view.run


class TestClaims:
    async def test_each_run_is_claimed_by_one_of_many_who_ask_at_once(self, pair: tuple[Worker, Worker]) -> None:
        here, there = pair
        for number in range(12):
            await Worker(here.server, KEY._replace(session_id=f"{number % 3}")).create(f"{number}", queued=True)
        claims = await asyncio.gather(*(worker.claim() for worker in (here, there) * 8))
        taken = [view.run.id for view in claims if view is not None]
        assert sorted(taken, key=int) == [f"{number}" for number in range(12)]
        assert claims.count(None) == 4

    async def test_one_of_two_gets_a_run_that_both_have_just_read(self, pair: tuple[Worker, Worker]) -> None:
        for number in range(5):
            await pair[0].create(f"run {number}", queued=True)
            answers = await asyncio.gather(*(worker.claim(f"run {number}") for worker in pair), return_exceptions=True)
            [error] = [answer for answer in answers if isinstance(answer, RequestError)]
            assert error.reason == Reason.RUN_NOT_CLAIMABLE
            assert 1 <= float(error.retry_after or 0) <= 30

    async def test_any_run_is_found_and_read_at_once(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim is a read and a commit; a list, and a run by its name, are read when that was in vain."""
        await worker.create("run", queued=True)
        store = worker.server.store
        found = await store.load_claimable(KEY.tenant, KEY.agent, 1 << 62, 1)
        with monkeypatch.context() as patched:
            for name in ("list_claimable", "load_run", "load"):
                patched.setattr(store, name, None)
            patched.setattr(store, "load_claimable", answering(found))
            run = await worker.take()
        assert run.run == (await worker.get("run")).run

    async def test_a_run_that_was_taken_since_it_was_found_leaves_the_others(
        self, pair: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there = pair
        for run_id in ("first", "second"):
            await here.create(run_id, queued=True)
        found = await here.server.store.load_claimable(KEY.tenant, KEY.agent, 1 << 62, 1)
        taken = await there.take()
        monkeypatch.setattr(here.server.store, "load_claimable", answering(found))
        assert {taken.run.id, (await here.take()).run.id} == {"first", "second"}
        assert await here.claim() is None

    async def test_most_claims_of_one_worker_read_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs are read ahead, and claimed in their order."""
        worker = Worker(runtime_on(InMemoryStore()))
        for number in range(9):
            await Worker(worker.server, KEY._replace(session_id=f"{number}")).create(f"{number}", queued=True)
        store = worker.server.store
        reads = counting(monkeypatch, store, "load_claimable", "load")
        assert [(await worker.take()).key.run_id for _ in range(9)] == [f"{number}" for number in range(9)]
        assert reads == Counter(load_claimable=-(-9 // READ_AHEAD))
        assert await worker.claim() is None

    async def test_workers_of_one_server_take_what_was_read_ahead_without_a_conflict(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker = Worker(runtime_on(InMemoryStore()))
        for number in range(READ_AHEAD):
            await Worker(worker.server, KEY._replace(session_id=f"{number}")).create(f"{number}", queued=True)
        first = await worker.take()
        reads = counting(monkeypatch, worker.server.store, "load_claimable", "list_claimable", "load_run")
        others = await asyncio.gather(*(worker.take() for _ in range(READ_AHEAD - 1)))
        assert len({view.key.run_id for view in (first, *others)}) == READ_AHEAD
        assert reads == Counter()

    async def test_what_was_read_ahead_and_claimed_elsewhere_hides_no_other(
        self, pair: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Then the longest waiting one is read anew, and for a while each claim reads one."""
        here, there = pair
        for number in range(12):
            await Worker(here.server, KEY._replace(session_id=f"{number:02}")).create(f"{number:02}", queued=True)
        assert (await here.take()).key.run_id == "00"
        for number in range(1, 6):
            assert (await there.take()).key.run_id == f"{number:02}"
        assert (await here.take()).key.run_id == "06"
        reads = counting(monkeypatch, here.server.store, "load_claimable")
        for number in range(7, 10):
            assert (await here.take()).key.run_id == f"{number:02}"
        assert reads == Counter(load_claimable=3)

    async def test_what_was_read_ahead_of_a_session_that_changed_since_is_claimed(self, worker: Worker) -> None:
        """Two runs of one session, and an append: each changes the record that the next was read with."""
        for number in range(3):
            await worker.create(f"{number}", queued=True)
        assert (await worker.take()).key.run_id == "0"
        await histories.append(worker.server, histories.Append(KEY, [user("hi")]))
        assert [(await worker.take()).key.run_id for _ in range(2)] == ["1", "2"]

    async def test_what_was_read_ahead_and_deleted_since_is_passed_over(self, worker: Worker) -> None:
        sessions = [KEY._replace(session_id=f"{number}") for number in range(3)]
        for number, key in enumerate(sessions):
            await Worker(worker.server, key).create(f"{number}", queued=True)
        assert (await worker.take()).key.run_id == "0"
        second = await runs.get(worker.server, RunKey(sessions[1], "1"))
        await worker.update(second, RunStatus.CANCELLED, by_etag=True)
        await runs.delete(worker.server, second.key)
        assert (await worker.take()).key.run_id == "2"
        assert await worker.claim() is None

    async def test_what_waits_for_somebody_is_claimed_by_name_only(self, worker: Worker) -> None:
        for status in (RunStatus.AWAITING_APPROVAL, RunStatus.AWAITING_BUDGET):
            run = await worker.create(status.name)
            await worker.step(run, 1, status=status, reason="ask")
        assert await worker.claim() is None
        assert (await worker.take("AWAITING_BUDGET")).run.head.reason == ""
        waiting = await worker.get("AWAITING_APPROVAL")
        await worker.update(waiting, RunStatus.INTERRUPTED, by_etag=True)
        assert (await worker.take()).key.run_id == "AWAITING_APPROVAL"

    async def test_an_orphan_is_recovered_three_times_and_then_fails_with_a_reason(self, worker: Worker) -> None:
        run = await worker.create("run")
        for recoveries in range(1, 4):
            pass_time(LEASE / SECOND + 1, worker.server)
            claimed = await worker.take()
            assert claimed.run.state.recoveries == recoveries
            assert claimed.fence > run.fence
            run = claimed
        pass_time(LEASE / SECOND + 1, worker.server)
        await worker.create("queued", queued=True)
        assert (await worker.take()).key.run_id == "queued"
        failed = (await worker.get("run")).run
        assert (failed.state.status, failed.state.recoveries) == (RunStatus.FAILED, 3)
        assert "3 times" in failed.head.reason
        assert await reason_of(worker.claim("run")) == Reason.RUN_ENDED


class TestExpiry:
    """A session's time does not run while a run of it is unfinished (invariant 18)."""

    async def test_it_begins_when_the_last_run_ends(self, worker: Worker) -> None:
        run = await worker.create("run", ttl=TTL)
        paused = await worker.step(run, 1, status=RunStatus.AWAITING_APPROVAL)
        assert paused.state.status is RunStatus.AWAITING_APPROVAL
        pass_time(10 * TTL / SECOND, worker.server)
        assert (await worker.get("run")).run.state.steps == 1
        await worker.update(await worker.get("run"), RunStatus.CANCELLED, by_etag=True)
        pass_time(TTL / SECOND - 2, worker.server)
        assert await worker.listed() == ["run"]
        pass_time(3, worker.server)
        assert await reason_of(worker.get("run")) == Reason.SESSION_NOT_FOUND

    async def test_lists_of_the_agent_pass_over_expired_sessions(self, worker: Worker) -> None:
        await worker.finish(await worker.create("gone", ttl=TTL))
        other = Worker(worker.server, OTHER)
        await other.create("stays")
        pass_time(TTL / SECOND + 1, worker.server)
        assert await worker.listed(of_agent=True) == ["stays"]
        assert await reason_of(worker.listed()) == Reason.SESSION_NOT_FOUND
        assert not await runs.delete(worker.server, worker.key("gone"))

    @pytest.mark.parametrize("swept", [False, True])
    async def test_a_session_that_is_born_again_knows_no_earlier_fence_or_run(
        self, worker: Worker, swept: bool
    ) -> None:
        old = await worker.create("run", ttl=TTL)
        await worker.step(old, 1, user("hi"))
        await worker.finish(old)
        pass_time(TTL / SECOND + 1, worker.server)
        if swept:
            died = await worker.server.committer.run(
                KEY,
                lambda record, _known: changes.plan_expire(record, KEY, worker.server.clock.now()),
                expired_too=True,
            )
            assert died
        new = await worker.create("run")
        assert (new.incarnation == old.incarnation, new.run.state.steps) == (False, 0)
        for call in (
            worker.step(old, 1, user("hi")),
            worker.step(old, 2),
            worker.finish(old),
            run_claims.renew(worker.server, old.key, old.fence),
        ):
            assert await reason_of(call) == Reason.LEASE_LOST
        assert await reason_of(worker.update(old, RunStatus.CANCELLED, by_etag=True)) == Reason.ETAG_MISMATCH
        assert await worker.steps("run") == []
        assert (await worker.record()).messages == 0

    async def test_a_sweep_leaves_a_session_with_an_unfinished_run(self, worker: Worker) -> None:
        """Also one whose time was over by the index when the run began."""
        pass_time(-10 * TTL / SECOND, worker.server)
        await histories.append(
            worker.server, histories.Append(KEY, [user("hi")], settings=changes.SessionSettings(ttl=2 * TTL))
        )
        pass_time(TTL / SECOND, worker.server)
        run = await worker.create("run")
        report = await Sweeper(worker.server, alone=False).sweep()
        assert report is not None
        assert (report.expired, report.failures) == (0, 0)
        pass_time(9 * TTL / SECOND, worker.server)
        await worker.update(await worker.get("run"), RunStatus.CANCELLED, by_etag=True)
        assert (await worker.get("run")).run.id == run.key.run_id


class TestPages:
    async def test_of_steps(self, worker: Worker) -> None:
        run = await worker.create("run")
        for number in range(1, 8):
            await worker.step(run, number)
        seen: list[int] = []
        token, tokens = "", []
        while True:
            steps, token = await run_steps.list_(worker.server, run.key, 1, 2, token)
            seen += [step.number for step in steps]
            if not token:
                break
            tokens.append(token)
        assert (seen, len(tokens)) == ([2, 3, 4, 5, 6, 7], 2)
        for after, key, foreign in (
            (2, run.key, tokens[0]),
            (1, worker.key("other"), tokens[0]),
            (1, run.key, tokens[0][:-2]),
        ):
            call = run_steps.list_(worker.server, key, after, 2, foreign)
            assert await reason_of(call) == Reason.PAGE_TOKEN_INVALID
        [last], more = await run_steps.list_(worker.server, run.key, 6)
        assert (last.number, more) == (7, "")

    async def test_of_steps_are_bounded_by_bytes(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "MAX_PAGE_BYTES", 1_000)
        run = await worker.create("run")
        for number, size in enumerate((600, 300, 200, 2_000), 1):
            await worker.step(run, number, payload=b"x" * size)
        token, pages = "", []
        while True:
            steps, token = await run_steps.list_(worker.server, run.key, 0, 100, token)
            pages.append([step.number for step in steps])
            if not token:
                break
        assert pages == [[1, 2], [3], [4]]

    async def test_of_steps_do_not_go_on_in_another_life(self, worker: Worker) -> None:
        run = await worker.create("run", ttl=TTL)
        for number in (1, 2, 3):
            await worker.step(run, number)
        _, token = await run_steps.list_(worker.server, run.key, 0, 1)
        await worker.finish(run)
        pass_time(TTL / SECOND + 1, worker.server)
        await worker.create("run")
        call = run_steps.list_(worker.server, run.key, 0, 1, token)
        assert await reason_of(call) == Reason.PAGE_TOKEN_INVALID

    @pytest.mark.parametrize("of_agent", [False, True])
    async def test_of_runs_newest_first(self, worker: Worker, of_agent: bool) -> None:
        for number in range(6):
            run = await worker.create(f"{number}")
            if number % 2:
                await worker.finish(run)
        agent = KEY.agent if of_agent else ""
        session = None if of_agent else KEY

        async def walk(*statuses: RunStatus) -> tuple[list[str], list[str]]:
            seen: list[str] = []
            tokens: list[str] = []
            token = ""
            while True:
                views, token = await runs.list_(
                    *(worker.server, KEY.tenant),
                    session=session,
                    agent=agent,
                    statuses=statuses,
                    page_size=2,
                    page_token=token,
                )
                seen += [view.key.run_id for view in views]
                if not token:
                    return seen, tokens
                tokens.append(token)

        seen, tokens = await walk()
        assert seen == ["5", "4", "3", "2", "1", "0"]
        assert (await walk(RunStatus.COMPLETED))[0] == ["5", "3", "1"]
        assert (await walk(RunStatus.RUNNING, RunStatus.COMPLETED))[0] == seen
        assert (await walk(RunStatus.FAILED))[0] == []
        for foreign in (
            {"session": OTHER, "page_token": tokens[0]},
            {"session": session, "agent": agent, "statuses": [RunStatus.RUNNING], "page_token": tokens[0]},
            {"session": session, "agent": agent, "page_token": "?" + tokens[0]},
        ):
            call = runs.list_(worker.server, KEY.tenant, **foreign)
            assert await reason_of(call) == Reason.PAGE_TOKEN_INVALID


class TestRepeatedUpdates:
    """A repeated update gets its first answer; the same one by anybody else does not."""

    async def test_of_a_run_that_has_ended(self, worker: Worker) -> None:
        begun = await worker.create("run")
        pass_time(LEASE / SECOND + 1, worker.server)
        taken = await worker.take("run")
        ended = await worker.update(taken, RunStatus.CANCELLED, "enough", by_etag=True)
        assert await worker.update(taken, RunStatus.CANCELLED, "enough", by_etag=True) == ended
        for other, by_etag in ((begun, True), (ended, True), (begun, False)):
            call = worker.update(other, RunStatus.CANCELLED, "enough", by_etag=by_etag)
            assert await reason_of(call) == Reason.RUN_ENDED
        assert await reason_of(worker.update(taken, RunStatus.FAILED, "enough", by_etag=True)) == Reason.RUN_ENDED
        assert await worker.get("run") == ended

    async def test_of_a_run_that_was_given_up(self, worker: Worker) -> None:
        first = await worker.create("run")
        pass_time(LEASE / SECOND + 1, worker.server)
        second = await worker.take("run")
        released = await runs.release(worker.server, second.key, second.fence, "tired")
        assert await runs.release(worker.server, second.key, second.fence, "tired") == released
        assert await reason_of(runs.release(worker.server, first.key, first.fence, "tired")) == Reason.LEASE_LOST
        assert await reason_of(runs.release(worker.server, second.key, second.fence, "sick")) == Reason.LEASE_LOST
        await worker.take("run")
        assert await reason_of(runs.release(worker.server, second.key, second.fence, "tired")) == Reason.LEASE_LOST

    async def test_no_update_rests_on_what_a_run_said_before_another_one(self, worker: Worker) -> None:
        """Nor a claim, or a step that ends the run: what was read of it is no longer so, and is read again."""
        server = worker.server
        first = await worker.create("run")
        await runs.update(server, runs.Update(first.key, first.fence, metadata="changed"))
        record, clock, fence = await worker.record(), server.clock, Fence.parse(first.fence)
        with pytest.raises(changes.StaleRead):
            plan_update(record, first.key, first.run, RunUpdate(RunStatus.COMPLETED), fence, clock)
        with pytest.raises(changes.StaleRead):
            plan_claim(record, first.key, first.run, "h", LEASE, "", 3, clock, queued_only=False)
        assert (await worker.finish(first)).run.head.metadata == "changed"


async def test_only_a_run_that_has_ended_is_deleted_and_its_messages_stay(worker: Worker) -> None:
    run = await worker.create("run")
    await worker.step(run, 1, user("hi"))
    assert await reason_of(runs.delete(worker.server, run.key)) == Reason.RUN_UNFINISHED
    await worker.finish(run)
    assert await runs.delete(worker.server, run.key)
    assert not await runs.delete(worker.server, run.key)
    assert await reason_of(worker.get("run")) == Reason.RUN_NOT_FOUND
    assert (await worker.record()).messages == 1
    assert await reason_of(worker.step(run, 1, user("hi"))) == Reason.RUN_NOT_FOUND


def test_a_fence_is_read_back_and_the_later_one_is_the_greater_text() -> None:
    """(invariant 15)"""
    life = "0123456789abcdef" * 2
    fences = [Fence(number, life) for number in (1, 2, 9, 10, 255, 256, 1 << 40)]
    texts = [str(fence) for fence in fences]
    assert texts == sorted(texts)
    assert [Fence.parse(text) for text in texts] == fences
    for wrong in (texts[0][:-1], texts[0].upper(), "1-" + life, texts[0] + "\n"):
        with pytest.raises(RequestError) as error:
            Fence.parse(wrong)
        assert error.value.reason == Reason.FIELD_INVALID

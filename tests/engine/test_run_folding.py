"""What a run still works at is not folded away: its open calls are answered when somebody resumes it (invariant 10)."""

from __future__ import annotations

import msgspec
import pytest

from memoryd_server.engine import run_changes, summary_changes
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.clock import StoreClock
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.run_access import RunView
from memoryd_server.engine.run_changes import NewRun, RunUpdate
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.tokens import ESTIMATE
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Record, RunStatus, StoredRun
from tests.engine.folded_sessions import FoldedSession, KnowingSummarizer, folding_policy, pass_time, server_on
from tests.engine.messages import KEY, assistant, calls, results, user
from tests.engine.run_servers import LEASE, SECOND, Worker
from tests.engine.sessions import TIME, append_input, plan, record_of

BEYOND = 1 << 62


def of_run(message: IncomingMessage, run_id: str = "run") -> IncomingMessage:
    return msgspec.structs.replace(message, run_id=run_id)


def begun(record: Record | None, run_id: str = "run") -> tuple[Record, StoredRun]:
    new = NewRun(RunKey(KEY, run_id), "", "", LEASE, SessionSettings(), ESTIMATE)
    return run_changes.plan_create(record, new, TIME)[1]


def appended(record: Record, *messages: IncomingMessage) -> Record:
    return record_of(plan(append_input(messages, made=f"made-{record.version}"), record)[0])


def ended(record: Record, run: StoredRun, status: RunStatus = RunStatus.COMPLETED) -> Record:
    etag = run_changes.etag_of(record.incarnation, run.state)
    clock = StoreClock(InMemoryStore())
    change, _ = run_changes.plan_update(record, RunKey(KEY, run.id), run, RunUpdate(status), etag, clock)
    return record_of(change)


class TestCeiling:
    def test_a_group_of_an_unfinished_run_is_not_folded_after_a_later_user_message(self) -> None:
        record, run = begun(None)
        record = appended(record, user("go"), of_run(calls("a")), user("and?"), assistant("wait"), user("still?"))
        assert summary_changes.ceiling(record) == 2
        assert summary_changes.ceiling(ended(record, run)) == BEYOND

    @pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.AWAITING_APPROVAL])
    def test_nor_while_the_run_waits(self, status: RunStatus) -> None:
        record, run = begun(None)
        record = appended(record, user("go"), of_run(calls("a")), user("and?"))
        assert summary_changes.ceiling(ended(record, run, status)) == 2

    def test_it_is_folded_once_it_is_answered(self) -> None:
        record, _ = begun(None)
        record = appended(record, user("go"), of_run(calls("a")), user("and?"), of_run(results("a")))
        assert summary_changes.ceiling(record) == BEYOND

    def test_a_group_is_held_back_by_its_own_run_alone(self) -> None:
        record, one = begun(None, "one")
        record, two = begun(record, "two")
        record = appended(record, of_run(calls("a"), "one"), of_run(calls("b"), "two"), calls("c"), user("and?"))
        assert summary_changes.ceiling(record) == 1
        assert summary_changes.ceiling(ended(record, two)) == 1
        assert summary_changes.ceiling(ended(record, one)) == 2
        assert summary_changes.ceiling(ended(ended(record, one), two)) == BEYOND

    def test_calls_of_a_run_that_has_ended_or_never_was_are_nobodys(self) -> None:
        record, run = begun(None)
        record = appended(ended(record, run), of_run(calls("a")), of_run(calls("b"), "none"), user("and?"))
        assert [group.run for group in record.open_state.groups] == ["", ""]
        assert summary_changes.ceiling(record) == BEYOND

    def test_long_ids_of_runs_are_told_apart(self) -> None:
        one, other = "x" * 255 + "1", "x" * 255 + "2"
        record, run = begun(None, one)
        record = appended(record, of_run(calls("a"), one), of_run(calls("b"), other), user("and?"))
        assert [bool(group.run) for group in record.open_state.groups] == [True, False]
        assert summary_changes.ceiling(record) == 1
        assert summary_changes.ceiling(ended(record, run)) == BEYOND


async def _paused() -> tuple[FoldedSession, Worker, RunView]:
    """A session whose run waits for an approval, with an open call and much that came since."""
    summarizer = KnowingSummarizer()
    session = FoldedSession(server_on(InMemoryStore(), summarizer), summarizer, folding_policy(6, keep=2))
    await session.append(user("hello"), assistant("hi"))
    worker = Worker(session.runtime)
    run = await worker.create("run")
    answer = await worker.step(run, 1, user("go"), calls("pay"), status=RunStatus.AWAITING_APPROVAL)
    session.living.update(message.seq for message in answer.messages)
    for number in range(4):
        await session.append(user(f"and {number}?"), assistant("it waits"))
    return session, worker, run


async def test_a_paused_run_finds_its_call_open_and_its_answer_completes_the_group() -> None:
    session, worker, _ = await _paused()
    await session.check_window()
    assert await session.summarized() == {1, 2, 3}
    await session.check()
    run = await worker.take("run")
    answer = await worker.step(run, 2, results("pay"))
    session.living.update(message.seq for message in answer.messages)
    assert (await session.record()).open_call_count == 0
    assert [message.head for message in await session.stored()][-1] == 4
    await worker.finish(run)
    await session.append(user("more"), assistant("yes"), user("and more"))
    await session.check_window()
    assert await session.summarized() >= {1, 2, 3, 4}
    await session.check()


@pytest.mark.parametrize("how", ["cancelled", "recovered too often"])
async def test_once_the_run_ended_its_open_group_is_folded_as_interrupted(how: str) -> None:
    session, worker, _ = await _paused()
    await session.check_window()
    if how == "cancelled":
        await worker.update(await worker.get("run"), RunStatus.CANCELLED, by_etag=True)
    else:
        for _ in range(4):
            await worker.take("run")
            pass_time(LEASE / SECOND + 1, worker.server)
        assert await worker.claim() is None
        assert (await worker.get("run")).run.state.status is RunStatus.FAILED
    await session.append(user("more"), assistant("yes"), user("and more"))
    await session.check_window()
    assert await session.summarized() >= {1, 2, 3, 4, 5}
    assert (await session.record()).open_call_count == 0
    await session.check()

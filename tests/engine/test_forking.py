"""A fork copies, keeps seqs and user, is invisible until complete, and fails when the source loses messages (invariant
11).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import forking, histories, run_claims, run_steps, runs, summary_changes
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.forking import Fork
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.run_errors import RunKey
from memoryd_server.engine.run_steps import StepCommit
from memoryd_server.stores.base import Change, Committed, MessageQuery
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Lookup, RunStatus, SessionKey, StoredMessage
from tests.engine.likeness import assert_like_fresh
from tests.engine.messages import KEY, batches, calls, results, user
from tests.engine.messages import histories as message_histories
from tests.engine.sessions import Conversation, conversation

FORK = SessionKey(KEY.tenant, KEY.agent, "fork")


async def forked(source: Conversation, **options: object) -> Conversation:
    """The fork of a session."""
    await forking.fork(source.runtime, Fork(KEY, FORK, **options))  # type: ignore[arg-type]
    fork = Conversation(source.tokenizer, source.store, sent=list(source.sent), key=FORK)
    loaded = await source.store.load(FORK)
    assert loaded is not None
    fork.record = loaded.record
    return fork


@given(st.data())
@settings(max_examples=100)
async def test_a_fork_is_like_a_session_of_the_copied_messages(data: st.DataObject) -> None:
    source = Conversation()
    kept: list[tuple[int, IncomingMessage]] = []
    last_seq = 0
    for _ in range(data.draw(st.integers(1, 2), label="rounds")):
        for batch in data.draw(message_histories(8).flatmap(batches), label="appended"):
            await source.append(*batch)
            for message in batch:
                last_seq += 1
                kept.append((last_seq, message))
        to_seq = data.draw(st.integers(0, last_seq), label="rewound to")
        await source.rewind(to_seq)
        kept = [(seq, message) for seq, message in kept if seq <= to_seq]
    through = data.draw(st.none() | st.integers(1, last_seq), label="through")
    fork = await forked(source, through_seq=through)
    copied = [(seq, message) for seq, message in kept if through is None or seq <= through]
    await assert_like_fresh(fork, copied)
    await assert_like_fresh(source, kept)
    assert fork.record is not None
    assert fork.record.last_seq == (copied[-1][0] if copied else 0)


async def test_it_keeps_user_labels_ttl_and_policy_and_begins_a_life_of_its_own() -> None:
    source = Conversation()
    settings_ = SessionSettings("user", {"team": "blue"}, ttl=60_000_000)
    await histories.append(source.runtime, histories.Append(KEY, [user("hi")], settings=settings_))
    fork = await forked(source)
    assert fork.record is not None
    record = await histories.get_session(source.runtime, KEY)
    assert (fork.record.user_id, fork.record.labels, fork.record.ttl) == ("user", {"team": "blue"}, 60_000_000)
    assert fork.record.incarnation != record.incarnation
    assert fork.record.version == 1


async def test_ids_find_messages_in_the_fork_and_a_repeated_append_is_recognized() -> None:
    source = Conversation()
    append = histories.Append(KEY, [user("hi", id="known")])
    first = await histories.append(source.runtime, append)
    await forked(source)
    message = await histories.get_message(source.runtime, FORK, seq=None, id_="known")
    assert message.seq == 1
    again = histories.Append(FORK, append.messages)
    assert await histories.append(source.runtime, again) == first


async def test_many_messages_are_copied_in_batches() -> None:
    source = Conversation()
    for start in range(0, 2 * limits.STAGING_BATCH + 10, 10):
        await source.append(*(user(f"message {start + index}") for index in range(10)))
    fork = await forked(source)
    assert len(await fork.stored()) == len(await source.stored()) == 530


@pytest.mark.parametrize("taken", [True, False])
async def test_the_target_must_be_a_name_that_was_never_used(taken: bool) -> None:
    source = await conversation(user("hi"))
    await histories.append(source.runtime, histories.Append(FORK, [user("there")]))
    if not taken:  # It is dead, and its look-ups still hold.
        record = await histories.get_session(source.runtime, FORK)
        assert await source.store.commit([Change(FORK, record, None)]) == [Committed()]
    with pytest.raises(RequestError) as refused:
        await forking.fork(source.runtime, Fork(KEY, FORK))
    assert refused.value.reason == Reason.SESSION_EXISTS
    with pytest.raises(RequestError) as refused:
        await forking.fork(source.runtime, Fork(KEY, KEY))
    assert refused.value.reason == Reason.SESSION_EXISTS


async def test_a_replay_gives_the_first_answer() -> None:
    """(AIP-155)"""
    source = await conversation(user("hi"), user("there"))
    first = await forking.fork(source.runtime, Fork(KEY, FORK, request_id="request"))
    await source.append(user("more"))
    assert await forking.fork(source.runtime, Fork(KEY, FORK, request_id="request")) == first == (2, 2)
    with pytest.raises(RequestError) as refused:
        await forking.fork(source.runtime, Fork(KEY, FORK, 1, "request"))
    assert refused.value.reason == Reason.REQUEST_ID_CONFLICT


class _BusyStore(InMemoryStore):
    """Does something to the source between the copy's batches."""

    def __init__(self) -> None:
        super().__init__()
        self.between: list[object] = []
        self.session: Conversation | None = None

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await super().stage(staging, messages, lookups, due)
        assert await super().list_messages(FORK, MessageQuery(1, 99, False, 99, 9_999)) is None  # Not visible yet.
        if self.between:
            await self.between.pop()  # type: ignore[misc]


async def _busy(*messages: IncomingMessage) -> tuple[Conversation, _BusyStore]:
    store = _BusyStore()
    source = Conversation(store=store)
    for message in messages:
        await source.append(message)
    return source, store


@pytest.mark.parametrize("loss", ["clear", "rewind", "erase"])
async def test_it_fails_when_the_source_loses_messages_meanwhile(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGING_BATCH", 1)
    source, store = await _busy(user("a"), user("b"), user("c"))
    match loss:
        case "clear":
            store.between = [source.clear()]
        case "rewind":
            store.between = [source.rewind(2)]
        case _:
            record = source.record
            assert record is not None
            store.between = [store.commit([Change(KEY, record, None)])]
    with pytest.raises(RequestError) as refused:
        await forking.fork(source.runtime, Fork(KEY, FORK))
    assert refused.value.reason in (Reason.FORK_INTERRUPTED, Reason.SESSION_NOT_FOUND)
    assert await store.load(FORK) is None
    assert not store._stagings  # Nothing of it is left.


async def test_what_is_appended_meanwhile_is_not_in_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it answers a call of which the fork has no answer."""
    monkeypatch.setattr(limits, "STAGING_BATCH", 1)
    source, store = await _busy(user("a"), calls("x"), user("c"))
    store.between = [source.append(results("x"))]
    fork = await forked(source)
    assert [message.seq for message in await fork.stored()] == [1, 2, 3]
    assert fork.record is not None
    assert (fork.record.open_call_count, fork.record.open_messages) == (1, 1)
    await fork.append(results("x", text="of the fork"))
    assert fork.record.open_messages == 0
    assert [message.usability for message in await fork.stored()] == [0, 0, 0, 0]


async def test_an_empty_history_can_be_forked() -> None:
    source = await conversation(user("a"))
    await source.clear()
    fork = await forked(source)
    assert fork.record is not None
    assert (fork.record.messages, fork.record.last_seq, fork.record.first_seq) == (0, 0, 1)


class TestRuns:
    """Runs stay the source's, and whoever holds one there has no claim on the fork (invariant 15)."""

    @pytest.fixture
    async def source(self) -> Conversation:
        """A session with an ended and an unfinished run, the latter with an open call."""
        source = Conversation()
        settings_ = SessionSettings(ttl=60_000_000)
        await histories.append(source.runtime, histories.Append(KEY, [user("hi")], settings=settings_))
        for name in ("ended", "held"):
            run = await runs.create(source.runtime, runs.Creation(RunKey(KEY, name)))
            step = StepCommit(run.key, run.fence, 1, b"step", "", [user("go"), calls(f"call of {name}")])
            await run_steps.commit(source.runtime, step)
            if name == "ended":
                status = int(RunStatus.COMPLETED)
                await runs.update(source.runtime, runs.Update(run.key, run.fence, status=status))
        return source

    @pytest.mark.parametrize("through_seq", [None, 5, 3, 1])
    async def test_stay_the_source_s(self, source: Conversation, through_seq: int | None) -> None:
        held = await runs.get(source.runtime, RunKey(KEY, "held"))
        fork = await forked(source, through_seq=through_seq)
        assert fork.record is not None
        assert fork.record.runs == ()
        assert await runs.list_(source.runtime, KEY.tenant, session=FORK) == ([], "")
        with pytest.raises(RequestError) as refused:
            await run_claims.renew(source.runtime, RunKey(FORK, "held"), held.fence)
        assert refused.value.reason == Reason.LEASE_LOST
        await run_claims.renew(source.runtime, held.key, held.fence)

    async def test_do_not_keep_a_fork_from_expiring(self, source: Conversation) -> None:
        """(invariant 18)"""
        fork = await forked(source)
        record = await histories.get_session(source.runtime, KEY)
        assert record.expires_at is None
        assert fork.record is not None
        assert fork.record.expires_at == fork.record.appended + 60_000_000

    async def test_do_not_keep_the_calls_of_a_fork_from_being_folded(self, source: Conversation) -> None:
        """(invariant 10) Nor does another run that begins in the fork."""
        fork = await forked(source)
        assert fork.record is not None
        assert [group.head for group in fork.record.open_state.groups] == [3, 5]
        await runs.create(source.runtime, runs.Creation(RunKey(FORK, "another")))
        for key in (KEY, FORK):
            await histories.append(source.runtime, histories.Append(key, [user("later")]))
        here, there = [await histories.get_session(source.runtime, key) for key in (KEY, FORK)]
        assert summary_changes.ceiling(here) == 5
        assert summary_changes.ceiling(there) > there.last_seq

    async def test_of_the_same_ids_begin_in_a_fork_anew(self, source: Conversation) -> None:
        await forked(source)
        for name in ("ended", "held"):
            run = await runs.create(source.runtime, runs.Creation(RunKey(FORK, name)))
            assert (run.run.state.steps, run.run.state.version) == (0, 1)

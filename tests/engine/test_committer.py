"""The committer (design section 5): shared commits, conflicts, refusals, faults and cancelled callers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from memoryd_server import limits
from memoryd_server.engine import changes, committer, replay, tokens
from memoryd_server.engine.changes import SessionSettings, SessionUpdate, TokenizerDiffers
from memoryd_server.engine.committer import LAST_WORD_SECONDS, Committer
from memoryd_server.engine.content import Part, decode_parts
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.stores.base import Change, Committed, Outcome, StoreUnavailable
from memoryd_server.stores.records import LookupKind, Record, SessionKey, StoredMessage, replace
from tests.engine import reference
from tests.engine.faulty_store import FaultyStore, Gate, failing
from tests.engine.messages import KEY, calls, results, system, user
from tests.engine.sessions import TIME, append_input

OTHER_KEY = SessionKey("default", "agent", "other session")


class Server:
    """A committer on a store, as one server process has it."""

    def __init__(self, store: FaultyStore | None = None) -> None:
        self.store = store or FaultyStore()
        self.committer = Committer(self.store, rng=random.Random(1))

    async def append(
        self,
        *messages: IncomingMessage,
        key: SessionKey = KEY,
        expected_last_seq: int | None = None,
        weight: int = 0,
        deadline: float | None = None,
        tokenizer: str = tokens.ESTIMATE,
    ) -> Sequence[replay.Appended]:
        wanted = append_input(
            messages,
            key=key,
            expected_last_seq=expected_last_seq,
            tokenizer=tokenizer,
            made=f"made-{random.getrandbits(64)}",
        )
        return await self.committer.run(
            key,
            partial(changes.plan_append, wanted, lambda: TIME),
            weight=weight,
            ids=[(LookupKind.MESSAGE, id_) for id_ in wanted.new_ids],
            deadline=deadline,
        )

    async def update(self, update: SessionUpdate) -> Record:
        return await self.committer.run(KEY, lambda record, _: changes.plan_update(record, KEY, update))

    async def clear(self) -> int:
        (count,) = await self.committer.run(KEY, lambda record, _: changes.plan_clear(record, KEY, TIME))
        return count

    async def give_birth(self) -> int:
        """Begins a session where there is none. Returns: how many messages there are, in it or in another."""

        def plan(record: Record | None, _: object) -> tuple[Change | None, int]:
            if record is not None:
                return None, record.messages
            return Change(KEY, None, replace(changes.birth(SessionSettings(), tokens.ESTIMATE, TIME), version=1)), 0

        return await self.committer.run(KEY, plan, unborn=True)

    def another(self) -> Server:
        """Another server process on the same data."""
        return Server(FaultyStore(self.store.store))

    async def stored(self, key: SessionKey = KEY) -> Sequence[StoredMessage]:
        loaded = await self.store.store.load(key)
        if loaded is None:
            return []
        seqs = range(1, loaded.record.last_seq + 1)
        read = await self.store.store.read(key, loaded.record.incarnation, seqs)
        assert read is not None
        return read[1]


async def settle(rounds: int = 20) -> None:
    """Lets everything run that can."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def read(server: Server) -> Record:
    """The session's record as it is stored, past what the server counts."""
    loaded = await server.store.store.load(KEY)
    assert loaded is not None
    return loaded.record


def text_of(message: StoredMessage) -> str:
    assert message.content is not None
    return message.content


class TestSharedCommits:
    async def test_appends_that_wait_share_a_commit_and_keep_their_order(self) -> None:
        """Calls for one session are planned one upon the other."""
        server = Server()
        gate = Gate()
        server.store.before_commit.append(gate)
        first = asyncio.ensure_future(server.append(user("0")))
        await gate.reached.wait()
        waiting = [asyncio.ensure_future(server.append(user(str(number)))) for number in range(1, 30)]
        await settle()
        gate.open()
        answers = await asyncio.gather(first, *waiting)
        assert [answer[0].seq for answer in answers] == list(range(1, 31))
        assert [len(commit) for commit in server.store.commits] == [1, 29]
        assert [f'"{number}"' in text_of(message) for number, message in enumerate(await server.stored())] == [
            True
        ] * 30

    async def test_tool_calls_and_their_results_pair_within_a_shared_commit(self) -> None:
        """(invariant 6)"""
        server = Server()
        await server.append(user("go"))
        await asyncio.gather(server.append(calls("a")), server.append(calls("b")), server.append(results("a", "x")))
        stored = await server.stored()
        assert [(message.head, message.usability.name) for message in stored] == [
            (1, "USABLE"),
            (2, "USABLE"),
            (3, "OPEN"),
            (2, "USABLE"),
        ]

    async def test_sessions_share_a_commit_and_each_gets_its_own_answer(self) -> None:
        server = Server()
        await server.append(user("first"), key=OTHER_KEY)
        loads = server.store.loads
        results_ = await asyncio.gather(
            server.append(user("blocks")),
            *(server.append(user("1"), key=SessionKey("default", "agent", str(number))) for number in range(10)),
            server.append(user("2"), key=OTHER_KEY, expected_last_seq=7),
            server.append(user("3"), key=OTHER_KEY),
            return_exceptions=True,
        )
        refused = [result for result in results_ if isinstance(result, RequestError)]
        assert [error.reason for error in refused] == [Reason.LAST_SEQ_MISMATCH]
        assert len(results_) - len(refused) == 12
        assert max(len(commit) for commit in server.store.commits) == 11
        assert server.store.loads - loads == 12

    async def test_a_group_holds_at_most_256_changes(self) -> None:
        """(`limits.MAX_GROUP_COMMIT_CHANGES`)"""
        server = Server()
        await asyncio.gather(*(server.append(user(str(number))) for number in range(600)))
        sizes = [len(commit) for commit in server.store.commits]
        assert sum(sizes) == 600
        assert max(sizes) == limits.MAX_GROUP_COMMIT_CHANGES
        assert [message.seq for message in await server.stored()] == list(range(1, 601))

    async def test_a_group_holds_at_most_4_mib_but_always_one_change(self) -> None:
        """(`limits.MAX_GROUP_COMMIT_BYTES`)"""
        server = Server()
        weights = [1, 1_500_000, 1_500_000, 1_500_000, 100, 9_000_000, 100, 4_194_304, 1]
        await asyncio.gather(
            *(server.append(user(str(number)), weight=weight) for number, weight in enumerate(weights))
        )
        assert [len(commit) for commit in server.store.commits] == [1, 2, 2, 1, 1, 1, 1]
        assert [message.seq for message in await server.stored()] == list(range(1, 10))

    @pytest.mark.parametrize("most", [1, 3])
    async def test_a_group_holds_at_most_as_many_sessions_as_the_store_takes(self, most: int) -> None:
        """(`CommitLimits.sessions`)"""
        server = Server(FaultyStore(sessions=most))
        keys = [SessionKey("default", "agent", str(number)) for number in range(7)]
        await asyncio.gather(*(server.append(user(str(number)), key=keys[number % 7]) for number in range(70)))
        held = [len({change.key for change in commit}) for commit in server.store.commits]
        assert max(held) == most
        for key in keys:
            assert [message.seq for message in await server.stored(key)] == list(range(1, 11))

    async def test_calls_of_one_session_keep_their_order_whatever_they_wait_for(self) -> None:
        """For a commit of their session, or for room in the next one."""
        server = Server(FaultyStore(concurrency=2))
        gate = Gate()
        server.store.before_commit.append(gate)
        callers = [asyncio.ensure_future(server.append(user("0")))]
        await gate.reached.wait()
        callers.append(asyncio.ensure_future(server.append(user("1"))))
        others = [
            asyncio.ensure_future(server.append(user("large"), key=OTHER_KEY, weight=limits.MAX_GROUP_COMMIT_BYTES))
            for _ in range(3)
        ]
        callers.append(asyncio.ensure_future(server.append(user("2"))))
        await settle()
        gate.open()
        await asyncio.gather(*callers, *others)
        assert [(await caller)[0].seq for caller in callers] == [1, 2, 3]

    async def test_a_warm_append_reads_nothing(self) -> None:
        """One round trip (design section 5)."""
        server = Server()
        await server.append(user("cold"))
        loads = server.store.loads
        await server.append(user("warm"))
        assert server.store.loads == loads

    @pytest.mark.parametrize("concurrency", [1, 2, 5])
    async def test_commits_under_way_at_once_never_hold_the_same_session(self, concurrency: int) -> None:
        """`FaultyStore.commit` asserts it (`CommitLimits.concurrency`)."""
        server = Server(FaultyStore(concurrency=concurrency))
        rng = random.Random(concurrency)

        async def dawdle() -> None:
            await settle(rng.randrange(4))

        server.store.always = dawdle
        keys = [SessionKey("default", "agent", str(number)) for number in range(8)]

        async def append(number: int) -> None:
            await settle(rng.randrange(30))
            await server.append(user(str(number)), key=rng.choice(keys))

        await asyncio.gather(*(append(number) for number in range(200)))
        assert server.store.most_under_way == concurrency
        stored = [message.seq for key in keys for message in await server.stored(key)]
        assert len(stored) == 200
        assert server.committer.stats.conflicts == 0


class TestUnborn:
    async def test_a_session_that_is_known_not_to_be_there_is_born_without_a_read(self) -> None:
        server = Server()
        await server.give_birth()
        assert (server.store.loads, len(await server.stored())) == (0, 0)
        assert await server.store.store.load(KEY) is not None

    async def test_one_that_came_after_all_is_read_before_the_answer(self) -> None:
        """What its caller saw is true no more (design section 5)."""
        server = Server()
        await server.another().append(user("hi"))
        assert await server.give_birth() == 1
        assert server.store.loads == 1


class TestSeenRecords:
    """What a caller has just read, a commit may rest on (`Committer.saw`)."""

    async def test_a_record_that_was_just_read_is_not_read_again(self) -> None:
        server = Server()
        other = server.another()
        await other.append(user("1"))
        server.committer.saw(KEY, await read(server))
        [answer] = await server.append(user("2"))
        assert (answer.seq, server.store.loads, server.committer.stats.conflicts) == (2, 0, 0)

    async def test_a_record_that_is_older_than_the_known_one_is_not_taken(self) -> None:
        server = Server()
        await server.append(user("1"))
        old = await read(server)
        await server.append(user("2"))
        loads = server.store.loads
        server.committer.saw(KEY, old)
        [answer] = await server.append(user("3"))
        assert (answer.seq, server.store.loads, server.committer.stats.conflicts) == (3, loads, 0)

    async def test_a_newer_one_is_taken(self) -> None:
        server = Server()
        other = server.another()
        await server.append(user("1"))
        for number in (2, 3):
            await other.append(user(f"{number}"))
        server.committer.saw(KEY, await read(server))
        [answer] = await server.append(user("4"))
        assert (answer.seq, server.committer.stats.conflicts) == (4, 0)

    async def test_one_of_another_life_is_taken_whatever_its_version(self) -> None:
        server = Server()
        other = server.another()
        for number in range(3):
            await server.append(user(f"{number}"))
        before = await read(server)
        assert await server.store.store.commit([Change(KEY, before, None)]) == [Committed()]
        await other.append(user("of the next life"))
        born = await read(server)
        assert born.version < before.version
        server.committer.saw(KEY, born)
        [answer] = await server.append(user("more"))
        assert (answer.seq, server.committer.stats.conflicts) == (2, 0)

    async def test_one_that_is_no_longer_true_costs_a_conflict_and_nothing_else(self) -> None:
        server = Server()
        other = server.another()
        await other.append(user("1"))
        old = await read(server)
        await other.append(user("2"))
        server.committer.saw(KEY, old)
        [answer] = await server.append(user("3"))
        assert (answer.seq, server.committer.stats.conflicts) == (3, 1)

    async def test_a_refusal_rests_on_a_fresh_read_all_the_same(self) -> None:
        server = Server()
        other = server.another()
        await other.append(user("1"))
        old = await read(server)
        await other.append(user("2"))
        server.committer.saw(KEY, old)
        [answer] = await server.append(user("3"), expected_last_seq=2)
        assert answer.seq == 3


class TestOtherServers:
    async def test_a_conflict_is_planned_again_and_committed(self) -> None:
        server = Server()
        await server.append(user("1"))
        await server.another().append(user("2"))
        (answer,) = await server.append(user("3"))
        assert answer.seq == 3
        assert server.committer.stats.conflicts == 1

    async def test_a_birth_that_another_server_wins_becomes_an_append(self) -> None:
        server = Server()
        other = server.another()

        async def overtake() -> None:
            await other.append(user("1"), user("2"))

        server.store.before_commit.append(overtake)
        assert (await server.append(user("3")))[0].seq == 3
        assert len({message.id for message in await server.stored()}) == 3

    async def test_a_refusal_is_read_again_when_another_server_changed_the_session(self) -> None:
        """Every refusal reads first (design section 5)."""
        server = Server()
        await server.append(user("1"))
        await server.another().append(user("2"))
        assert (await server.append(user("3"), expected_last_seq=2))[0].seq == 3

    async def test_an_expectation_that_held_only_in_the_cache_is_refused(self) -> None:
        server = Server()
        await server.append(user("1"))
        await server.another().append(user("2"))
        with pytest.raises(RequestError) as refused:
            await server.append(user("3"), expected_last_seq=1)
        assert refused.value.reason == Reason.LAST_SEQ_MISMATCH
        assert refused.value.metadata == {"expected": "1", "actual": "2"}

    async def test_a_change_of_nothing_is_read_again_too(self) -> None:
        """Every no-op reads first (design section 5)."""
        server = Server()
        await server.append(user("1"))
        await server.update(SessionUpdate(user_id="mine"))
        await server.another().update(SessionUpdate(user_id="theirs"))
        assert (await server.update(SessionUpdate(user_id="mine"))).user_id == "mine"
        loaded = await server.store.store.load(KEY)
        assert loaded is not None
        assert loaded.record.user_id == "mine"

    async def test_a_clear_reads_again_before_it_says_that_there_was_nothing(self) -> None:
        server = Server()
        await server.append(user("1"))
        await server.clear()
        await server.another().append(user("2"))
        assert await server.clear() == 1

    async def test_an_etag_that_the_cache_does_not_know_yet_is_accepted(self) -> None:
        server = Server()
        await server.append(user("1"))
        current = await server.another().update(SessionUpdate(user_id="theirs"))
        changed = await server.update(SessionUpdate(user_id="mine", etag=changes.etag_of(current)))
        assert changed.user_id == "mine"

    async def test_a_refusal_never_rests_on_a_change_that_is_not_committed(self) -> None:
        """The change before it in the same commit may yet be refused."""
        first = Server()
        await first.append(user("1"))
        etag = changes.etag_of(await first.update(SessionUpdate(user_id="someone")))
        server = first.another()

        async def overtake() -> None:
            await first.append(user("2"))

        server.store.before_commit.extend([settle, overtake])
        _, unconditional, conditional = await asyncio.gather(
            server.append(user("blocks"), key=OTHER_KEY),
            server.update(SessionUpdate(labels={"by": "the one without a condition"})),
            server.update(SessionUpdate(user_id="mine", etag=etag)),
        )
        assert conditional.user_id == unconditional.user_id == "mine"
        assert unconditional.version > conditional.version

    async def test_a_replay_that_reaches_another_server_gets_the_first_answer(self) -> None:
        """(invariant 2)"""
        server = Server()
        first = await server.append(user("1", id="one"), user("2", id="two"))
        assert list(await server.another().append(user("1", id="one"), user("2", id="two"))) == list(first)
        assert len(await server.stored()) == 2

    async def test_a_replay_at_another_server_is_told_before_the_expected_seq_is_looked_at(self) -> None:
        """(invariant 2)"""
        server = Server()
        first = await server.append(user("1", id="one"), expected_last_seq=0)
        assert list(await server.another().append(user("1", id="one"), expected_last_seq=0)) == list(first)

    async def test_the_same_append_twice_at_once_is_stored_once(self) -> None:
        """A caller that retries while its first try is still under way (invariant 2)."""
        server = Server()
        await server.append(user("0"))
        answers = await asyncio.gather(*(server.append(user("1", id="one")) for _ in range(5)))
        assert {answer[0].seq for answer in answers} == {2}
        assert len(await server.stored()) == 2

    async def test_a_known_id_refuses_its_own_append_alone(self) -> None:
        """Others of the session that were planned upon it are planned again, and that is no contention."""
        server = Server()
        await server.append(user("1", id="one"))
        _, conflicting, *others = await asyncio.gather(
            server.append(user("blocks"), key=OTHER_KEY),
            server.append(user("other", id="one")),
            *(server.append(user(str(number)), deadline=time.monotonic() - 1) for number in range(2, 6)),
            return_exceptions=True,
        )
        assert server.committer.stats.conflicts == 0
        assert isinstance(conflicting, RequestError)
        assert conflicting.reason == Reason.MESSAGE_ID_CONFLICT
        assert [message.seq for message in await server.stored()] == [1, 2, 3, 4, 5]
        assert sorted(answer[0].seq for answer in others) == [2, 3, 4, 5]  # type: ignore[index]

    async def test_messages_counted_in_another_vocabulary_go_back_to_their_caller(self) -> None:
        """To be counted again (invariant 8)."""
        server = Server()
        await server.append(user("1"))
        with pytest.raises(TokenizerDiffers):
            await server.append(user("2"), tokenizer=tokens.O200K_BASE)
        assert (await server.append(user("3")))[0].seq == 2

    async def test_a_chain_whose_first_change_loses_is_planned_again_as_a_whole(self) -> None:
        """What was planned upon a refused change rests on messages that are not there, even where another server has
        brought the session to the same version (invariants 1 and 17)."""
        server = Server()
        await server.append(system("rules"))
        other = server.another()
        await other.append(user("theirs"), user("theirs too"))

        blocked = asyncio.ensure_future(server.append(user("blocks"), key=OTHER_KEY))
        await asyncio.sleep(0)
        await asyncio.gather(blocked, server.append(user("mine")), server.append(user("mine too")))
        await assert_consistent(server)
        assert [message.seq for message in await server.stored()] == [1, 2, 3, 4, 5]


async def assert_consistent(server: Server, key: SessionKey = KEY) -> None:
    """The record tells what a scan of the messages tells, and every message is placed as the whole history says."""
    loaded = await server.store.store.load(key)
    assert loaded is not None
    record = loaded.record
    stored = await server.stored(key)
    assert [message.seq for message in stored] == list(range(record.first_seq, record.last_seq + 1))
    sent = [
        IncomingMessage("", message.role, message.name, _parts(message), "", "", "", message.size) for message in stored
    ]
    history = reference.pair(sent, [message.tokens for message in stored], first_seq=record.first_seq)
    assert record.messages == len(stored)
    assert record.tokens == sum(message.tokens for message in stored)
    for message, expected in zip(stored, history.messages, strict=True):
        assert (message.head, message.answers, message.prior_user) == (
            expected.head,
            expected.answers,
            expected.prior_user,
        )
        assert message.usability == history.usability(expected)
    assert [(call.head, index) for call in record.open_state.calls for index in call.indexes] == [
        (call.head, call.index) for call in history.waiting
    ]


def _parts(message: StoredMessage) -> tuple[Part, ...] | None:
    return None if message.content is None else decode_parts(message.content)


class TestContention:
    async def test_a_change_that_always_loses_ends_with_its_deadline(self) -> None:
        """ABORTED with RetryInfo, and nothing is written (design section 5)."""
        server = Server()
        other = server.another()
        await server.append(user("mine"))

        async def overtake() -> None:
            await other.append(user("theirs"))

        server.store.always = overtake
        start = time.monotonic()
        with pytest.raises(RequestError) as refused:
            await server.append(user("never"), deadline=start + LAST_WORD_SECONDS + 0.03)
        assert time.monotonic() - start < 5
        assert refused.value.reason == Reason.CONTENTION
        assert refused.value.retry_after is not None
        assert refused.value.retry_after > 0
        assert not any("never" in text_of(message) for message in await server.stored())
        assert server.committer.stats.conflicts >= 2

        server.store.always = None
        await server.append(user("after"))
        await assert_consistent(server)

    async def test_a_deadline_that_has_passed_still_allows_one_try(self) -> None:
        """A conflict then ends it at once."""
        server = Server()
        assert (await server.append(user("1"), deadline=time.monotonic() - 1))[0].seq == 1
        await server.another().append(user("2"))
        with pytest.raises(RequestError) as refused:
            await server.append(user("3"), deadline=time.monotonic() - 1)
        assert refused.value.reason == Reason.CONTENTION

    async def test_patience_without_a_deadline_has_an_end_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No call waits for ever (invariant 16)."""
        monkeypatch.setattr(committer, "PATIENCE_SECONDS", 0.02)
        server = Server()
        other = server.another()

        async def overtake() -> None:
            await other.append(user("theirs"))

        server.store.always = overtake
        with pytest.raises(RequestError) as refused:
            await server.append(user("never"))
        assert refused.value.reason == Reason.CONTENTION

    async def test_one_contended_session_does_not_hold_up_the_others(self) -> None:
        server = Server()
        other = server.another()

        async def overtake() -> None:
            await other.append(user("theirs"))

        await server.append(user("mine"))
        server.store.before_commit.extend([overtake] * 3)
        await asyncio.gather(server.append(user("mine too")), server.append(user("1"), key=OTHER_KEY))
        assert len(await server.stored(OTHER_KEY)) == 1
        await assert_consistent(server)


class TestFaults:
    async def test_a_store_that_fails_fails_every_call_of_the_commit_and_no_later_one(self) -> None:
        """A failed write is an error for each caller (invariant 12)."""
        server = Server()
        await server.append(user("1"))
        server.store.before_commit.append(failing(StoreUnavailable("the disk is full")))
        outcomes = await asyncio.gather(
            server.append(user("2")), server.append(user("3"), key=OTHER_KEY), return_exceptions=True
        )
        assert isinstance(outcomes[0], StoreUnavailable)
        assert str(outcomes[0]) == "the disk is full"
        assert (await server.append(user("4")))[0].seq == 2
        await assert_consistent(server)

    async def test_callers_of_one_failed_commit_get_exceptions_of_their_own(self) -> None:
        server = Server()
        gate = Gate()
        server.store.before_commit.extend([gate, failing(StoreUnavailable("gone"))])
        first = asyncio.ensure_future(server.append(user("1")))
        await gate.reached.wait()
        rest = [asyncio.ensure_future(server.append(user(str(number)))) for number in range(3)]
        await settle()
        gate.open()
        await first
        errors = await asyncio.gather(*rest, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 3
        assert len({id(error) for error in errors}) == 3

    async def test_an_unknown_error_fails_its_calls_and_leaves_the_committer_usable(self) -> None:
        """(invariants 12 and 16)"""
        server = Server()
        server.store.before_load.append(failing(RuntimeError("a bug")))
        with pytest.raises(RuntimeError, match="a bug"):
            await server.append(user("1"))
        server.store.before_commit.append(failing(KeyError("a bug")))
        with pytest.raises(KeyError):
            await server.append(user("2"))
        assert (await server.append(user("3")))[0].seq == 1

    async def test_a_commit_that_was_made_but_not_answered_is_found_by_its_ids(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A retry of an append whose answer was lost is stored once (invariant 2)."""
        server = Server()
        await server.append(user("1"))
        commit = server.store.store.commit

        async def lose_the_answer(changes_: Sequence[Change]) -> Sequence[Outcome]:
            monkeypatch.undo()
            await commit(changes_)
            raise StoreUnavailable("the connection broke")

        monkeypatch.setattr(server.store.store, "commit", lose_the_answer)
        with pytest.raises(StoreUnavailable):
            await server.append(user("2", id="two"))
        assert [(appended.id, appended.seq) for appended in await server.append(user("2", id="two"))] == [("two", 2)]
        assert (await server.append(user("3")))[0].seq == 3
        await assert_consistent(server)

    async def test_an_inner_cancellation_reaches_the_callers_and_nobody_waits_for_ever(self) -> None:
        """(invariant 16)"""
        server = Server()
        server.store.before_commit.append(failing(asyncio.CancelledError()))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server.append(user("1")), 5)
        assert (await server.append(user("2")))[0].seq == 1

    async def test_a_plan_that_fails_fails_its_own_call_alone(self) -> None:
        server = Server()
        await server.append(user("1"))

        def broken(record: Record | None, known: object) -> tuple[None, None]:
            raise ZeroDivisionError

        bad, good = await asyncio.gather(
            server.committer.run(KEY, broken), server.append(user("2")), return_exceptions=True
        )
        assert isinstance(bad, ZeroDivisionError)
        assert not isinstance(good, BaseException)


class TestCancelledCallers:
    async def test_a_call_that_is_cancelled_while_it_waits_is_not_made(self) -> None:
        """(invariant 16)"""
        server = Server()
        gate = Gate()
        server.store.before_commit.append(gate)
        blocker = asyncio.ensure_future(server.append(user("1")))
        await gate.reached.wait()
        waiting = asyncio.ensure_future(server.append(user("never")))
        await settle()
        waiting.cancel()
        gate.open()
        await blocker
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await server.append(user("2")))[0].seq == 2
        await assert_consistent(server)

    async def test_a_call_that_is_cancelled_during_its_commit_is_made_whole(self) -> None:
        """All messages of an append, or none (invariants 3 and 16)."""
        server = Server()
        gate = Gate()
        server.store.before_commit.append(gate)
        caller = asyncio.ensure_future(server.append(user("1"), user("2"), user("3")))
        await gate.reached.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        gate.open()
        await settle()
        assert [message.seq for message in await server.stored()] == [1, 2, 3]
        assert (await server.append(user("4")))[0].seq == 4
        await assert_consistent(server)

    async def test_200_cancelled_appends_leave_the_session_as_if_some_had_never_been_sent(self) -> None:
        """(invariant 16)"""
        server = Server()
        rng = random.Random(7)

        async def dawdle() -> None:
            await settle(rng.randrange(5))

        server.store.always = dawdle
        callers = []
        for number in range(200):
            callers.append(asyncio.ensure_future(server.append(calls("a"), results("a"), user(str(number)))))
            await settle(rng.randrange(3))
            rng.choice(callers).cancel()
        done = await asyncio.gather(*callers, return_exceptions=True)
        assert any(isinstance(answer, asyncio.CancelledError) for answer in done)
        await server.committer.close()
        stored = await server.stored()
        assert len(stored) % 3 == 0
        answered = [answer[0].seq for answer in done if not isinstance(answer, BaseException)]
        assert set(answered) <= {message.seq for message in stored}
        await assert_consistent(server)

    async def test_a_call_that_is_cancelled_during_its_backoff_is_forgotten(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(committer, "FIRST_BACKOFF_SECONDS", 60.0)
        monkeypatch.setattr(committer, "LAST_BACKOFF_SECONDS", 60.0)
        monkeypatch.setattr(committer, "PATIENCE_SECONDS", 600.0)
        server = Server()
        await server.append(user("1"))
        other = server.another()

        async def interfere() -> None:
            await other.append(user("2"))

        # Before the first attempt and before the one that follows at once.
        server.store.before_commit += [interfere, interfere]
        caller = asyncio.ensure_future(server.append(user("never")))
        await settle(200)
        assert server.committer.stats.conflicts == 2
        assert not caller.done()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (await server.append(user("4")))[0].seq == 4
        await asyncio.wait_for(server.committer.close(), 5)


class TestClose:
    async def test_it_waits_for_the_commit_under_way_and_those_behind_it(self) -> None:
        """Drain: what was accepted ends with an answer (invariant 16)."""
        server = Server()
        gate = Gate()
        server.store.before_commit.append(gate)
        callers = [asyncio.ensure_future(server.append(user(str(number)))) for number in range(5)]
        await gate.reached.wait()
        closing = asyncio.ensure_future(server.committer.close())
        await settle()
        assert not closing.done()
        gate.open()
        await closing
        assert sorted([(await caller)[0].seq for caller in callers]) == [1, 2, 3, 4, 5]

    async def test_it_waits_for_a_call_that_is_about_to_try_again(self) -> None:
        """A conflict is under way until its caller has an answer (invariant 16)."""
        server = Server()
        await server.append(user("1"))
        await server.another().append(user("2"))
        caller = asyncio.ensure_future(server.append(user("3")))
        await settle()
        assert server.committer.stats.conflicts == 1
        await asyncio.wait_for(server.committer.close(), 5)
        assert (await asyncio.wait_for(caller, 5))[0].seq == 3

    async def test_nothing_to_wait_for_is_closed_at_once(self) -> None:
        await Server().committer.close()


class TestManyServers:
    @pytest.mark.parametrize("seed", range(12))
    async def test_servers_that_share_a_store_keep_every_record_true(self, seed: int) -> None:
        """Appends, tool calls and results, clears and updates of three servers on two sessions, interleaved at random:
        the record of each session tells what a scan of its messages tells (invariants 1, 3 and 17)."""
        rng = random.Random(seed)
        first = Server()
        servers = [first, first.another(), first.another()]

        async def dawdle() -> None:
            await settle(rng.randrange(6))

        async def work(server: Server, key: SessionKey) -> list[replay.Appended]:
            answers: list[replay.Appended] = []
            for number in range(12):
                id_ = rng.choice("ab")
                kind = rng.randrange(10)
                if kind == 0 and key == KEY:
                    await server.clear()
                elif kind == 1 and key == KEY:
                    with suppress(RequestError):
                        await server.update(SessionUpdate(user_id=f"user-{number}"))
                else:
                    batch = rng.choice(
                        [[user(str(number))], [calls(id_)], [results(id_)], [calls(id_), user("note"), results(id_)]]
                    )
                    answers += await server.append(*batch, key=key)
            return answers

        for server in servers:
            server.store.always = dawdle
        keys = [KEY, OTHER_KEY]
        done = await asyncio.gather(*(work(server, key) for server in servers for key in keys))
        for key, answers in zip(keys, (done[::2], done[1::2]), strict=True):
            seqs = [appended.seq for appended in itertools.chain(*answers)]
            assert sorted(seqs) == list(range(1, len(seqs) + 1))
            await assert_consistent(first, key)

"""A copy holds what its source does, whatever is read of it and whatever is done with it then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import (
    agents,
    copying,
    histories,
    loading,
    pacing,
    redacting,
    rewinding,
    session_copying,
    summaries,
    tokens,
)
from memoryd_server.engine.agents import AgentUpdate
from memoryd_server.engine.changes import SessionSettings, SessionUpdate
from memoryd_server.engine.copying import Difference, SameStore, Scope, Tally
from memoryd_server.engine.errors import RequestError
from memoryd_server.engine.histories import Append, MessageList
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.policies import PolicyUpdate
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.stores.base import (
    Change,
    Committed,
    Lookup,
    LookupPage,
    MessagePage,
    MessageQuery,
    Outcome,
    SessionQuery,
    StoreUnavailable,
)
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import (
    OpenCalls,
    Policy,
    Retention,
    SessionKey,
    StoredMessage,
    SummaryPolicy,
    WindowOptions,
    replace,
)
from tests.engine.messages import KEY, batches, calls, results, user
from tests.engine.messages import histories as message_histories

OTHER = KEY._replace(session_id="other")
EVERYTHING = Scope()


async def opened(store: InMemoryStore | None = None) -> Runtime:
    """A store with a secret of its own."""
    store = store or InMemoryStore()
    return Runtime("default", store, await store.open(), Defaults(tokenizer=tokens.ESTIMATE))


@dataclass
class Witness:
    """Hears how a copy goes on."""

    differences: list[Difference] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    at_each_step: Callable[[], None] = lambda: None

    def copying(self) -> None:
        self.steps.append("copying")

    def comparing(self) -> None:
        self.steps.append("comparing")

    def looking_again(self) -> None:
        self.steps.append("looking again")

    def advanced(self) -> None:
        self.at_each_step()

    def differs(self, difference: Difference) -> None:
        self.differences.append(difference)


async def copied(source: Runtime, target: Runtime, scope: Scope = EVERYTHING, witness: Witness | None = None) -> Tally:
    """Copies, after which all must be the same."""
    tally = Tally()
    witness = witness or Witness()
    await copying.copy(source, target, scope, tally, witness)
    assert witness.differences == []
    assert tally.different == 0
    return tally


async def differences(source: Runtime, target: Runtime) -> list[Difference]:
    """What a copy lists."""
    witness, tally = Witness(), Tally()
    await copying.copy(source, target, EVERYTHING, tally, witness)
    assert tally.different + tally.failed + tally.agents == len(witness.differences)
    assert tally.settled >= tally.sessions
    return witness.differences


async def append(runtime: Runtime, *messages: IncomingMessage, key: SessionKey = KEY, **fields: Any) -> None:
    await histories.append(runtime, Append(key, messages, **fields))


# What is read of a session


async def pages(runtime: Runtime, key: SessionKey, **query: Any) -> list[StoredMessage]:
    """All messages that a query lists, page by page."""
    found: list[StoredMessage] = []
    token = ""
    while True:
        messages, token = await histories.list_messages(runtime, MessageList(key, page_token=token, **query))
        found += messages
        if not token:
            return found


QUERIES: tuple[dict[str, Any], ...] = (
    {},
    {"page_size": 3},
    {"page_size": 2, "order": 2},
    {"roles": frozenset({3}), "page_size": 2},
)
WINDOWS = (
    WindowOptions(limit=3),
    WindowOptions(limit=7, start_with_user=True, pin_system=False),
    WindowOptions(open_calls=OpenCalls.KEEP),
    WindowOptions(limit=5, open_calls=OpenCalls.SYNTHESIZE),
)


async def all_reads(runtime: Runtime, key: SessionKey) -> list[Any]:
    """Whatever a caller may read of a session, but for its version."""
    reads: list[Any] = [replace(await histories.get_session(runtime, key), version=0, removed=())]
    reads += [await pages(runtime, key, **query) for query in QUERIES]
    reads += [await loading.load(runtime, WindowRequest(key, options)) for options in WINDOWS]
    ids = [message.id for message in reads[1] if message.seq]
    reads += [await histories.get_message(runtime, key, seq=None, id_=id_) for id_ in ids]
    lookups = (await runtime.store.list_lookups(key, 10_000)).lookups
    reads.append(sorted(lookups, key=lambda lookup: (lookup.kind, lookup.id)))
    return reads


async def assert_same(source: Runtime, target: Runtime, key: SessionKey = KEY) -> None:
    assert await all_reads(target, key) == await all_reads(source, key)


# What is done with a session

Call = Callable[[Runtime], Awaitable[Any]]


def appending(batch: Sequence[IncomingMessage], number: int) -> Call:
    """An append whose ids are known, some with a request id."""
    messages = [msgspec.structs.replace(message, id=f"{number}-{index}") for index, message in enumerate(batch)]
    request_id = f"request-{number}" if number % 2 else ""
    return lambda runtime: histories.append(runtime, Append(KEY, messages, request_id))


def calling(data: st.DataObject, number: int, last_seq: int) -> Call:
    """Another call that changes a session."""
    request_id = f"request-{number}" if number % 3 else ""
    kind = data.draw(st.sampled_from(["clear", "rewind", "rewind", "redact", "redact", "update"]), label="call")
    if kind == "clear":
        return lambda runtime: histories.clear(runtime, KEY, request_id)
    seq = data.draw(st.integers(max(0, last_seq - 4), last_seq), label="seq")
    if kind == "rewind":
        return lambda runtime: rewinding.rewind(runtime, KEY, seq, None, request_id)
    if kind == "redact":
        return lambda runtime: redacting.redact(runtime, KEY, "a reason", seq=max(1, seq), id_=None)
    update = SessionUpdate(user_id=f"user-{number}", labels={"number": f"{number}"}, ttl=number * 10**12)
    return lambda runtime: histories.update_session(runtime, KEY, update)


async def attempted(runtime: Runtime, call: Call) -> Any:
    """What a call answers, or why it is refused."""
    try:
        return await call(runtime)
    except RequestError as error:
        return error.reason, error.metadata


def without_times(answer: Any) -> Any:
    """An answer as it is in any store at any time."""
    text = msgspec.json.decode(msgspec.json.encode(answer))

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(each) for name, each in value.items() if name not in _TIMES}
        if isinstance(value, list):
            return [strip(each) for each in value]
        return 0 if isinstance(value, int) and value > 10**15 else value

    return strip(text)


_TIMES = ("created", "appended", "activity", "version", "removed", "redaction")


@contextmanager
def always_staged() -> Iterator[None]:
    """Copies as longer sessions are copied: staged, in many small pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_copying, "BIRTH_LOOKUPS", 1)
        patch.setattr(session_copying, "PAGE", 3)
        yield


@given(st.data(), st.booleans())
@settings(max_examples=60)
async def test_a_copy_answers_all_reads_and_all_replays_as_its_source_and_goes_on_like_it(
    data: st.DataObject, staged: bool
) -> None:
    """Whatever happened to the session before, between two copies, and after them (invariants 1, 2, 4, 6 and 11)."""
    source, target = await opened(), await opened()
    made: list[tuple[Call, Any]] = []
    last_seq = 0

    async def go_on(rounds: int) -> None:
        nonlocal last_seq
        for _ in range(rounds):
            new = [
                appending(batch, len(made) + number)
                for number, batch in enumerate(data.draw(message_histories(6).flatmap(batches), label="appended"))
            ]
            if last_seq:
                new.insert(data.draw(st.integers(0, len(new)), label="place"), calling(data, 100 + len(made), last_seq))
            made.extend([(call, await attempted(source, call)) for call in new])
            last_seq = (await histories.get_session(source, KEY)).last_seq

    await go_on(data.draw(st.integers(1, 3), label="rounds before"))
    with always_staged() if staged else nullcontext():
        await copied(source, target)
    await assert_same(source, target)
    await go_on(data.draw(st.integers(0, 2), label="rounds between"))
    tally = await copied(source, target)
    assert tally.new == 0
    await assert_same(source, target)
    for call, _ in made:
        assert without_times(await attempted(target, call)) == without_times(await attempted(source, call))
    for number, batch in enumerate(data.draw(message_histories(6).flatmap(batches), label="after")):
        call = appending(batch, 1_000 + number)
        assert without_times(await attempted(target, call)) == without_times(await attempted(source, call))
    here, there = await all_reads(source, KEY), await all_reads(target, KEY)
    # Look-ups of what came after are keyed with each store's own secret; windows tell digests of ids alone.
    assert without_times(there[:5]) == without_times(here[:5])


def long_talk(count: int, start: int = 0) -> list[IncomingMessage]:
    return [user(f"message {number}", id=f"m{number}") for number in range(start, start + count)]


@pytest.fixture
async def source() -> Runtime:
    return await opened()


@pytest.fixture
async def target() -> Runtime:
    return await opened()


async def test_one_that_fits_is_born_in_one_commit_with_others_and_a_longer_one_is_staged(
    source: Runtime, target: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_copying, "PAGE", 100)
    commits: list[int] = []
    plain_commit = target.store.commit

    async def commit(changes: Sequence[Change]) -> Sequence[Outcome]:
        commits.append(len(changes))
        return await plain_commit(changes)

    monkeypatch.setattr(target.store, "commit", commit)
    for number in range(20):
        await append(source, *long_talk(2), key=KEY._replace(session_id=f"short {number}"))
    for start in range(0, 500, 100):
        await append(source, *long_talk(100, start))
    tally = await copied(source, target)
    assert (tally.sessions, tally.messages, tally.new, tally.written, tally.same) == (21, 540, 21, 540, 21)
    assert sum(commits) == 21
    assert max(commits) > 1
    await assert_same(source, target)
    assert tally.compared == tally.handled == 540


async def test_the_life_is_the_source_s_and_the_version_is_far_ahead(source: Runtime, target: Runtime) -> None:
    """So that fences which the source gives out never hold in the copy (invariant 15)."""
    for message in long_talk(3):
        await append(source, message)
    await copied(source, target)
    here, there = await histories.get_session(source, KEY), await histories.get_session(target, KEY)
    assert there == replace(here, version=there.version)
    assert here.version == 3
    assert there.version > 1_000_000_000


async def test_a_second_copy_passes_over_what_is_there(source: Runtime, target: Runtime) -> None:
    for number in range(5):
        await append(source, *long_talk(3), key=KEY._replace(session_id=f"{number}"))
    await copied(source, target)
    before = [await all_reads(target, KEY._replace(session_id=f"{number}")) for number in range(5)]
    versions = [(await histories.get_session(target, KEY._replace(session_id=f"{n}"))).version for n in range(5)]
    tally = await copied(source, target)
    assert (tally.new, tally.updated, tally.known, tally.written, tally.same) == (0, 0, 5, 0, 5)
    assert before == [await all_reads(target, KEY._replace(session_id=f"{number}")) for number in range(5)]
    assert versions == [
        (await histories.get_session(target, KEY._replace(session_id=f"{n}"))).version for n in range(5)
    ]


async def test_a_second_copy_adds_what_came_since(source: Runtime, target: Runtime) -> None:
    await append(source, user("hi", id="1"), calls("a", "b"), results("a"))
    await copied(source, target)
    await append(source, results("b"), *long_talk(600 // 3), request_id="request")
    await append(source, *long_talk(200, 200))
    await histories.update_session(source, KEY, SessionUpdate(user_id="ada", labels={"a": "b"}, ttl=10**12))
    await histories.clear(source, OTHER, "not there")
    tally = await copied(source, target)
    assert (tally.new, tally.updated, tally.written) == (0, 1, 401)
    await assert_same(source, target)
    page = await target.store.list_sessions(SessionQuery(KEY.tenant, None, "ada", 10))
    assert [key for key, _ in page.sessions] == [KEY]


async def test_ids_that_were_remembered_without_a_change_of_the_history_are_added(
    source: Runtime, target: Runtime
) -> None:
    """By its record the copy is the same."""
    await append(source, user("hi"))
    await histories.clear(source, KEY)
    await copied(source, target)
    assert await histories.clear(source, KEY, "request") == 0
    tally = await copied(source, target)
    assert tally.updated == 1
    await append(target, user("later"))
    assert await histories.clear(target, KEY, "request") == 0
    assert (await histories.get_session(target, KEY)).messages == 1


async def test_a_copy_of_a_copy_recognizes_what_was_appended_to_either(source: Runtime, target: Runtime) -> None:
    """(invariant 2)"""
    last = await opened()
    first = await histories.append(source, Append(KEY, [user("1", id="one")], "first"))
    await copied(source, target)
    second = await histories.append(target, Append(KEY, [user("2", id="two")], "second"))
    await copied(target, last)
    assert await histories.append(last, Append(KEY, [user("1", id="one")], "first")) == first
    assert await histories.append(last, Append(KEY, [user("2", id="two")])) == second
    with pytest.raises(RequestError):
        await histories.append(last, Append(KEY, [user("2!", id="two")]))


async def test_there_and_back(source: Runtime, target: Runtime) -> None:
    """What was appended to the copy comes back to where it came from."""
    await append(source, *long_talk(3))
    await copied(source, target)
    await append(target, *long_talk(3, 3))
    tally = await copied(target, source)
    assert (tally.updated, tally.written) == (1, 3)
    await assert_same(source, target)
    assert list(await source.store.adopted_secrets()) == [target.info.secret]


async def test_the_same_store_is_refused(source: Runtime) -> None:
    again = Runtime("again", source.store, source.info, source.defaults)
    with pytest.raises(SameStore):
        await copied(source, again)


class TestScope:
    async def test_all_tenants_agents_and_users_by_default(self, source: Runtime, target: Runtime) -> None:
        keys = [SessionKey(tenant, agent, "s") for tenant in ("t", "u") for agent in ("a", "b")]
        for key in keys:
            await append(source, *long_talk(2), key=key)
        await copied(source, target)
        for key in keys:
            await assert_same(source, target, key)

    @pytest.mark.parametrize(
        ("scope", "expected"),
        [
            (Scope(tenants=frozenset({"t"})), {"t a u", "t a v", "t b u"}),
            (Scope(agents=frozenset({"a"})), {"t a u", "t a v", "u a u"}),
            (Scope(users=frozenset({"u"})), {"t a u", "t b u", "u a u"}),
            (Scope(frozenset({"t"}), frozenset({"a"}), frozenset({"u"})), {"t a u"}),
            (Scope(agents=frozenset({"a", "b"}), users=frozenset({"v", "u"})), {"t a u", "t a v", "t b u", "u a u"}),
            (Scope(agents=frozenset({"unknown"})), set()),
        ],
    )
    async def test_only_what_is_asked_for(
        self, source: Runtime, target: Runtime, scope: Scope, expected: set[str]
    ) -> None:
        for name in ("t a u", "t a v", "t b u", "u a u"):
            tenant, agent, user_id = name.split()
            key = SessionKey(tenant, agent, name)
            await append(source, *long_talk(1), key=key, settings=SessionSettings(user_id))
        tally = await copied(source, target, scope)
        found = set()
        for tenant in ("t", "u"):
            page = await target.store.list_sessions(SessionQuery(tenant, None, None, 10))
            found |= {key.session_id for key, _ in page.sessions}
        assert found == expected
        assert tally.sessions == tally.same == len(expected)

    async def test_what_is_over_stays_behind(self, source: Runtime, target: Runtime) -> None:
        """Sessions whose time is over, and what earlier lives of a name held; their ids stay remembered."""
        await append(source, user("old", id="old"), settings=SessionSettings(ttl=1_000_000))
        await append(source, user("over"), key=OTHER, settings=SessionSettings(ttl=1_000_000))
        for key in (KEY, OTHER):
            record = await histories.get_session(source, key)
            past = replace(record, version=2, activity=record.activity - 10**7, appended=record.appended - 10**7)
            assert await source.store.commit([Change(key, record, past)]) == [Committed()]
            source.committer.records.drop(key)
        await append(source, user("new", id="new"))
        tally = await copied(source, target)
        assert tally.sessions == 1
        assert [message.id for message in await pages(target, KEY)] == ["new"]
        await assert_same(source, target)


class TestAgents:
    POLICY = Policy(WindowOptions(limit=3))

    async def test_settings_are_copied_with_or_without_sessions(self, source: Runtime, target: Runtime) -> None:
        for agent in ("agent", "idle"):
            await agents.update(source, "default", agent, AgentUpdate(PolicyUpdate(self.POLICY, whole=True)))
        await append(source, *long_talk(9))
        await copied(source, target)
        for agent in ("agent", "idle"):
            here, there = await agents.get(source, "default", agent), await agents.get(target, "default", agent)
            assert there == msgspec.structs.replace(here, version=1)
        await assert_same(source, target)

    async def test_of_a_user_s_sessions_those_agents_alone(self, source: Runtime, target: Runtime) -> None:
        for agent in ("agent", "idle"):
            await agents.update(source, "default", agent, AgentUpdate(PolicyUpdate(self.POLICY, whole=True)))
        await append(source, *long_talk(9), settings=SessionSettings("ada"))
        await copied(source, target, Scope(users=frozenset({"ada"})))
        assert [record.agent for record in await target.store.list_agents("default", "", 10)] == ["agent"]
        await assert_same(source, target)

    async def test_that_differ_are_listed_and_left_alone(self, source: Runtime, target: Runtime) -> None:
        await agents.update(source, "default", "agent", AgentUpdate(PolicyUpdate(self.POLICY, whole=True)))
        await agents.update(
            target, "default", "agent", AgentUpdate(PolicyUpdate(Policy(WindowOptions(limit=4)), whole=True))
        )
        before = await agents.get(target, "default", "agent")
        (difference,) = await differences(source, target)
        assert (difference.agent, difference.session_id) == ("agent", None)
        assert "settings differ" in difference.what
        assert await agents.get(target, "default", "agent") == before


async def change(runtime: Runtime, kind: str) -> None:
    """Something that a copy did not do."""
    match kind:
        case "appended":
            await append(runtime, user("own"))
        case "cleared":
            await histories.clear(runtime, KEY)
        case "rewound":
            await rewinding.rewind(runtime, KEY, 2)
        case "redacted":
            await redacting.redact(runtime, KEY, "", seq=2, id_=None)
        case "settings":
            await histories.update_session(runtime, KEY, SessionUpdate(labels={"a": "b"}))


class TestSourcesThatRest:
    @pytest.mark.parametrize("request_id", ["", "request"])
    @pytest.mark.parametrize("kind", ["clear", "rewind"])
    async def test_a_copy_follows_what_was_taken_since(
        self, source: Runtime, target: Runtime, kind: str, request_id: str
    ) -> None:
        """Also where the look-up of the request is all that is left to copy."""
        await append(source, *long_talk(5))
        await copied(source, target)
        if kind == "clear":
            await histories.clear(source, KEY, request_id)
        else:
            await rewinding.rewind(source, KEY, 3, None, request_id)
        await copied(source, target)
        await assert_same(source, target)


class TestSummaries:
    """Sessions of which the oldest messages are folded."""

    @pytest.fixture(params=Retention, ids=lambda retention: retention.name)
    async def folded(self, request: pytest.FixtureRequest, source: Runtime) -> Runtime:
        policy = Policy(WindowOptions(limit=4), SummaryPolicy(retention=request.param))
        await append(source, *long_talk(7), settings=SessionSettings(policy=policy))
        await loading.load(source, WindowRequest(KEY))
        await append(source, *long_talk(2, start=7))
        await loading.load(source, WindowRequest(KEY))
        return source

    async def chain(self, runtime: Runtime) -> list[tuple[str, str, int]]:
        views = await summaries.list_(runtime, KEY)
        return [(view.id, view.summary.text, view.link.messages) for view in views]

    @pytest.mark.parametrize("staged", [False, True])
    async def test_are_copied_with_their_chain(self, folded: Runtime, target: Runtime, staged: bool) -> None:
        with always_staged() if staged else nullcontext():
            await copied(folded, target)
        assert len(await self.chain(target)) == 2
        assert await self.chain(target) == await self.chain(folded)
        await assert_same(folded, target)

    async def test_a_copy_follows_folds_and_what_is_taken_back(self, folded: Runtime, target: Runtime) -> None:
        await copied(folded, target)

        async def take_back() -> None:
            with suppress(RequestError):  # Originals may be removed.
                await summaries.revert(folded, KEY, (await summaries.list_(folded, KEY))[0].id)

        for step in (
            lambda: append(folded, *long_talk(3, start=9)),
            lambda: loading.load(folded, WindowRequest(KEY)),
            take_back,
            lambda: redacting.redact(folded, KEY, "", seq=12, id_=None),
            lambda: loading.load(folded, WindowRequest(KEY)),
            lambda: rewinding.rewind(folded, KEY, 11),
            lambda: histories.clear(folded, KEY),
        ):
            await step()
            await copied(folded, target)
            assert await self.chain(target) == await self.chain(folded)
            # Windows are not loaded here: they would fold.
            assert await pages(target, KEY) == await pages(folded, KEY)

    async def test_a_fold_under_way_is_the_source_s_own_affair(self, source: Runtime, target: Runtime) -> None:
        policy = Policy(WindowOptions(limit=4), SummaryPolicy(summarizer="client"))
        await append(source, *long_talk(7), settings=SessionSettings(policy=policy))
        await loading.load(source, WindowRequest(KEY))
        task = await summaries.lease_task(source, key=KEY)
        assert task is not None
        await copied(source, target)
        there = await summaries.lease_task(target, key=KEY)
        assert there is not None
        assert (await summaries.commit_task(target, KEY, there.token, "There.", "")).summary.text == "There."
        assert (await summaries.commit_task(source, KEY, task.token, "Here.", "")).summary.text == "Here."

    async def test_a_summary_that_was_taken_back_stays_so_in_the_copy(self, source: Runtime, target: Runtime) -> None:
        policy = Policy(WindowOptions(limit=4), SummaryPolicy())
        await append(source, *long_talk(7), settings=SessionSettings(policy=policy))
        await copied(source, target)
        await loading.load(source, WindowRequest(KEY))
        (view,) = await summaries.list_(source, KEY)
        await summaries.revert(source, KEY, view.id)
        await copied(source, target)
        for runtime in (source, target):
            _, stats = await loading.load(runtime, WindowRequest(KEY))
            assert stats.summary_id == ""
        await copied(source, target)
        await append(source, *long_talk(1, start=7))
        await loading.load(source, WindowRequest(KEY))
        await copied(source, target)

    async def test_a_summary_that_differs_is_found(self, folded: Runtime, target: Runtime) -> None:
        await copied(folded, target)
        loaded = await target.store.load(KEY)
        assert loaded is not None
        record = loaded.record
        read = await target.store.read_summaries(KEY, record.incarnation, [record.summaries[-1].number])
        assert read is not None
        other = msgspec.structs.replace(read[1][0], text="Something else.")
        new = replace(record, version=record.version + 1)
        assert await target.store.commit([Change(KEY, record, new, new_summaries=(other,))]) == [Committed()]
        (difference,) = await differences(folded, target)
        assert "its summaries" in difference.what


class TestDifferences:
    @pytest.mark.parametrize("goes_on", [False, True])
    @pytest.mark.parametrize("kind", ["appended", "cleared", "rewound", "redacted", "settings"])
    async def test_what_others_changed_in_the_target_is_listed_and_left_alone(
        self, source: Runtime, target: Runtime, kind: str, goes_on: bool
    ) -> None:
        await append(source, *long_talk(5))
        await copied(source, target)
        await change(target, kind)
        if goes_on:
            await append(source, *long_talk(3, 5))
        before = await all_reads(target, KEY)
        (difference,) = await differences(source, target)
        assert (difference.tenant, difference.agent, difference.session_id) == KEY
        assert "changed in the target" in difference.what or "differ" in difference.what
        assert difference.advice
        assert await all_reads(target, KEY) == before

    async def test_another_session_of_the_name_is_listed_and_left_alone(self, source: Runtime, target: Runtime) -> None:
        await append(source, *long_talk(5))
        await append(target, *long_talk(5))
        before = await all_reads(target, KEY)
        (difference,) = await differences(source, target)
        assert "another session of this name" in difference.what
        assert await all_reads(target, KEY) == before

    async def test_other_sessions_of_the_target_are_nobody_s_concern(self, source: Runtime, target: Runtime) -> None:
        await append(source, *long_talk(5))
        await append(target, *long_talk(5), key=OTHER)
        before = await all_reads(target, OTHER)
        await copied(source, target)
        assert await all_reads(target, OTHER) == before

    async def test_a_byte_that_differs_is_found(self, source: Runtime, target: Runtime) -> None:
        """By its record, by counts and by ids the copy is the same."""
        for start in (0, 150):
            await append(source, *long_talk(150, start))
        await copied(source, target)
        record = await histories.get_session(target, KEY)
        read = await target.store.read(KEY, record.incarnation, [171])
        assert read is not None
        damaged = msgspec.structs.replace(read[1][0], metadata="\0")
        damage = Change(KEY, record, replace(record, version=record.version + 1), replaced=[damaged])
        assert await target.store.commit([damage]) == [Committed()]
        (difference,) = await differences(source, target)
        assert difference.what == "its messages differ"

    async def test_ids_that_the_copy_lacks_are_added(self, source: Runtime, target: Runtime) -> None:
        """As when a copy was interrupted before it had them all."""
        await append(source, *long_talk(3), request_id="request")
        record = await histories.get_session(source, KEY)
        messages = await pages(source, KEY)
        without_ids = Change(KEY, None, replace(record, version=1), messages=messages)
        assert await target.store.commit([without_ids]) == [Committed()]
        tally = await copied(source, target)
        assert (tally.updated, tally.written) == (1, 0)
        await assert_same(source, target)

    async def test_an_id_that_stands_for_something_else_is_listed(self, source: Runtime, target: Runtime) -> None:
        await append(source, *long_talk(3))
        record = await histories.get_session(source, KEY)
        messages = await pages(source, KEY)
        lookups = (await source.store.list_lookups(KEY, 10)).lookups
        lookups = [msgspec.structs.replace(lookups[0], digest=b"another"), *lookups[1:]]
        other = Change(KEY, None, replace(record, version=1), messages=messages, lookups=lookups)
        assert await target.store.commit([other]) == [Committed()]
        (difference,) = await differences(source, target)
        assert "known for something else" in difference.what

    async def test_more_losses_than_fit_into_a_change_are_listed(
        self, source: Runtime, target: Runtime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session_copying, "BIRTH_MESSAGES", 20)
        await append(source, *long_talk(100))
        await copied(source, target)
        for seq in range(1, 22):
            await redacting.redact(source, KEY, "", seq=seq, id_=None)
        (difference,) = await differences(source, target)
        assert "much of it" in difference.what

    async def test_a_session_that_ended_in_the_target_is_copied_once_nothing_is_left_of_it(
        self, source: Runtime, target: Runtime
    ) -> None:
        """Its copy has the very incarnation of what waits there to be deleted."""
        await append(source, *long_talk(3))
        await copied(source, target)
        record = await histories.get_session(target, KEY)
        assert await target.store.commit([Change(KEY, record, None)]) == [Committed()]
        for staged in (False, True):
            with always_staged() if staged else nullcontext():
                (difference,) = await differences(source, target)
            assert "ended" in difference.what
            assert "a day" in difference.advice
        later = await target.store.now() + (limits.LOOKUP_SECONDS + 1) * 1_000_000
        while (await target.store.sweep(later, 1_000)).total:
            pass
        await copied(source, target)
        await assert_same(source, target)

    async def test_a_copy_whose_time_is_over_lives_again_with_what_came_since(
        self, source: Runtime, target: Runtime
    ) -> None:
        await append(source, *long_talk(3), settings=SessionSettings(ttl=10**12))
        await copied(source, target)
        record = await histories.get_session(target, KEY)
        past = replace(record, version=2, activity=record.activity - 10**13, appended=record.appended - 10**13)
        assert await target.store.commit([Change(KEY, record, past)]) == [Committed()]
        target.committer.records.drop(KEY)
        await append(source, *long_talk(3, 3))
        await copied(source, target)
        await assert_same(source, target)


class InterruptedStore(InMemoryStore):
    """Fails at a write, before or after it is made; or does something else then."""

    WRITES = ("commit", "stage", "begin_staging", "adopt_secret", "save_agent")

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.at = 0
        self.after = False
        self.action: Callable[[], Awaitable[None]] | None = None

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        self.writes += 1
        if self.writes != self.at:
            return await write()
        if self.after:
            await write()
        if self.action is not None:
            await self.action()
            return None if self.after else await write()
        raise StoreUnavailable("the test says so")

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        made: Sequence[Outcome] = await self._write(lambda: InMemoryStore.commit(self, changes))
        return made

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._write(lambda: InMemoryStore.stage(self, staging, messages, lookups, due))

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        name: str = await self._write(lambda: InMemoryStore.begin_staging(self, tenant, user_id, due))
        return name

    async def adopt_secret(self, secret: bytes) -> None:
        await self._write(lambda: InMemoryStore.adopt_secret(self, secret))


async def staging_count(runtime: Runtime) -> int:
    """How many rows of stagings a sweep takes away once they are due."""
    later = await runtime.store.now() + (limits.STAGING_SECONDS + 1) * 1_000_000
    return (await runtime.store.sweep(later, 10_000)).messages


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again by itself."""
    monkeypatch.setattr(pacing, "TRIES", 1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 16))
async def test_a_copy_that_fails_at_any_write_is_completed_by_a_repetition(
    source: Runtime, impatient: None, at: int, after: bool
) -> None:
    """(invariant 3)"""
    store = InterruptedStore()
    target = await opened(store)
    with always_staged():
        await append(source, *long_talk(8), request_id="request")
        await append(source, *long_talk(1), key=OTHER)
        await agents.update(source, "default", "agent", AgentUpdate(PolicyUpdate(TestAgents.POLICY, whole=True)))
        store.at, store.after = at, after
        with suppress(StoreUnavailable):
            await copying.copy(source, target, EVERYTHING, Tally(), Witness())
        store.at = 0
        await copied(source, target)
    for key in (KEY, OTHER):
        await assert_same(source, target, key)
    assert await staging_count(target) == 0


@pytest.mark.parametrize("at", range(1, 10))
async def test_a_copy_that_is_cancelled_at_any_write_leaves_no_staging(source: Runtime, at: int) -> None:
    """As by Ctrl-C."""
    store = InterruptedStore()
    target = await opened(store)
    await append(source, *long_talk(8))
    with always_staged():
        copy = asyncio.create_task(copying.copy(source, target, EVERYTHING, Tally(), Witness()))

        async def cancel() -> None:
            copy.cancel()
            await asyncio.sleep(0)

        store.at, store.action = at, cancel
        await asyncio.gather(copy, return_exceptions=True)
        assert copy.cancelled() or store.writes < at
        assert await staging_count(target) == 0
        store.at = 0
        await copied(source, target)
    await assert_same(source, target)


async def goes_on(runtime: Runtime, kind: str) -> None:
    """What a source may do while it is copied."""
    match kind:
        case "completes a group and appends":
            await append(runtime, results("call"), *long_talk(5, 100), request_id="later")
        case "is born anew":
            record = await histories.get_session(runtime, KEY)
            assert await runtime.store.commit([Change(KEY, record, None)]) == [Committed()]
            runtime.committer.records.drop(KEY)
            await append(runtime, user("another life"))
        case "changes hands":
            await histories.update_session(runtime, KEY, SessionUpdate(user_id="ada"))
        case _:
            await change(runtime, kind)


GOINGS_ON = (
    "completes a group and appends",
    "cleared",
    "rewound",
    "redacted",
    "settings",
    "is born anew",
    "changes hands",
)


@pytest.mark.parametrize("at", range(2, 8))
@pytest.mark.parametrize("kind", GOINGS_ON)
async def test_a_source_that_goes_on_while_it_is_copied_is_copied_as_it_is_then(
    source: Runtime, kind: str, at: int
) -> None:
    store = InterruptedStore()
    target = await opened(store)
    await append(source, user("hi"), calls("call"), *long_talk(6))
    store.at, store.action = at, lambda: goes_on(source, kind)
    with always_staged():
        await copied(source, target)
    await assert_same(source, target)


async def test_a_session_that_is_gone_before_it_is_copied_is_none(source: Runtime) -> None:
    store = InterruptedStore()
    target = await opened(store)
    await append(source, *long_talk(6))

    async def end() -> None:
        record = await histories.get_session(source, KEY)
        assert await source.store.commit([Change(KEY, record, None)]) == [Committed()]

    store.at, store.action = 3, end
    with always_staged():
        tally = await copied(source, target)
    assert (tally.new, tally.same) == (0, 0)
    assert await target.store.load(KEY) is None


async def test_sessions_that_are_born_or_move_while_others_are_copied_are_copied_too(
    source: Runtime, target: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is walked from the newest on: what becomes active moves to where the walk has been."""
    monkeypatch.setattr(copying, "PAGE_SESSIONS", 2)
    names = [KEY._replace(session_id=f"{number}") for number in range(20)]
    for number, key in enumerate(names):
        await append(source, *long_talk(1), key=key)
        record = await histories.get_session(source, key)
        old = replace(record, version=2, activity=record.activity - 10**9 - number, appended=0)
        assert await source.store.commit([Change(key, record, old)]) == [Committed()]
        source.committer.records.drop(key)
    new = KEY._replace(session_id="new")
    waiting = [append(source, *long_talk(1, 1), key=names[-1]), append(source, *long_talk(1), key=new)]
    witness = Witness()
    plain_compare = session_copying.SessionCopier.compare

    async def compare(self: session_copying.SessionCopier, key: SessionKey) -> session_copying.Copied:
        if waiting:
            await waiting.pop()
        return await plain_compare(self, key)

    monkeypatch.setattr(session_copying.SessionCopier, "compare", compare)
    tally = await copied(source, target, witness=witness)
    assert tally.sessions == 20
    for key in (*names, new):
        await assert_same(source, target, key)
    assert witness.steps == ["copying", "comparing", "looking again"]


class TestTally:
    """Each session counts once, as what happened to it, however often it is looked at."""

    async def test_of_every_kind(self, source: Runtime, target: Runtime) -> None:
        names = [KEY._replace(session_id=name) for name in ("new", "updated", "known", "different", "other")]
        for key in names[1:]:
            await append(source, *long_talk(3), key=key)
        await copied(source, target)
        await append(source, *long_talk(3), key=names[0])
        await append(source, *long_talk(2, 3), key=names[1])
        await append(target, user("own"), key=names[3])
        await append(target, *long_talk(1), key=names[4]._replace(session_id="another life"))
        await append(source, *long_talk(1), key=names[4]._replace(session_id="another life"))
        witness, tally = Witness(), Tally()
        await copying.copy(source, target, EVERYTHING, tally, witness)
        assert (tally.new, tally.updated, tally.known, tally.different, tally.failed) == (1, 1, 2, 2, 0)
        assert tally.settled == tally.sessions == 6
        assert tally.compared == tally.handled == tally.messages == 3 + 5 + 3 + 3 + 3 + 1
        assert tally.written == 5
        assert sorted(difference.session_id or "" for difference in witness.differences) == [
            "another life",
            "different",
        ]

    async def test_of_what_failed(self, target: Runtime, impatient: None) -> None:
        """It is not said to be in the target, and not to be copied either."""
        source = await opened(UnreadableStore(StoreUnavailable("a shard is down")))
        for key in (KEY, OTHER):
            await append(source, *long_talk(3), key=key)
        witness, tally = Witness(), Tally()
        await copying.copy(source, target, EVERYTHING, tally, witness)
        assert (tally.new, tally.known, tally.different, tally.failed, tally.settled) == (1, 0, 0, 1, 2)
        assert [difference.failed for difference in witness.differences] == [True]
        assert tally.handled == tally.compared == 6

    async def test_of_messages_that_are_staged_again(self, source: Runtime) -> None:
        """A staging that is lost counts for nothing."""
        store = InterruptedStore()
        target = await opened(store)
        await append(source, *long_talk(8))
        store.at, store.action = 5, lambda: goes_on(source, "cleared")
        with always_staged():
            tally = await copied(source, target)
        assert (tally.new, tally.written, tally.compared) == (1, 0, 0)


class TestNamesThatMatchNothing:
    @pytest.mark.parametrize(
        ("scope", "named"),
        [
            (Scope(), []),
            (Scope(agents=frozenset({"a", "idle"})), []),
            (Scope(tenants=frozenset({"t"}), agents=frozenset({"a"}), users=frozenset({"u"})), []),
            (Scope(agents=frozenset({"a", "A"})), ["agent 'A'"]),
            (Scope(users=frozenset({"u", "nosuch"})), ["user 'nosuch'"]),
            (Scope(tenants=frozenset({"nosuch"})), ["tenant 'nosuch'"]),
            (Scope(tenants=frozenset({"nosuch"}), agents=frozenset({"a"})), ["tenant 'nosuch'", "agent 'a'"]),
            (Scope(agents=frozenset({"idle"}), users=frozenset({"u"})), ["agent 'idle'", "user 'u'"]),
            (Scope(agents=frozenset({"a"}), users=frozenset({"v"})), ["agent 'a'", "user 'v'"]),
        ],
    )
    async def test_are_named(self, source: Runtime, target: Runtime, scope: Scope, named: list[str]) -> None:
        """An agent of which there are settings alone is there; names that no session has together are not."""
        for agent, user_id in (("a", "u"), ("b", "v")):
            await append(source, user("hi"), key=SessionKey("t", agent, "s"), settings=SessionSettings(user_id))
        await agents.update(source, "t", "idle", AgentUpdate(PolicyUpdate(TestAgents.POLICY, whole=True)))
        assert (await copied(source, target, scope)).unmatched == named


class TestAdvice:
    """What to do about a session that differs, by whether the target's ends by itself."""

    async def test_where_it_never_expires(self, source: Runtime, target: Runtime) -> None:
        await append(source, user("hi"))
        await append(target, user("hi"))
        (difference,) = await differences(source, target)
        assert "copy into another store" in difference.advice
        assert "it has no ttl, so it stays for ever" in difference.advice
        assert "UpdateSession" in difference.advice

    async def test_where_it_expires(self, source: Runtime, target: Runtime) -> None:
        await append(source, user("hi"))
        await append(target, user("hi"), settings=SessionSettings(ttl=3_600_000_000))
        (difference,) = await differences(source, target)
        record = await histories.get_session(target, KEY)
        assert record.expires_at is not None
        assert f"{datetime.fromtimestamp(record.expires_at / 1e6, UTC):%Y-%m-%d %H:%M} UTC" in difference.advice
        assert "no ttl" not in difference.advice

    async def test_is_about_what_differs(self, source: Runtime, target: Runtime) -> None:
        """In whole sentences, whatever differs."""
        await append(source, *long_talk(2))
        await copied(source, target)
        record = await histories.get_session(target, KEY)
        read = await target.store.read(KEY, record.incarnation, [2])
        assert read is not None
        damaged = msgspec.structs.replace(read[1][0], metadata="\0")
        other = replace(record, version=2, tokens=record.tokens + 1)
        assert await target.store.commit([Change(KEY, record, other, replaced=[damaged])]) == [Committed()]
        (difference,) = await differences(source, target)
        assert difference.what == "its record differs in tokens, and its messages differ"


class OverloadedStore(InMemoryStore):
    """Answers two calls at once, and none of more, as a database that is given more than it can do."""

    MOST = 2

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0
        self.refused = 0

    async def _answer(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.under_way += 1
        try:
            for _ in range(20):
                await asyncio.sleep(0)
            if self.under_way > self.MOST:
                self.refused += 1
                raise StoreUnavailable("too much at once")
            return await call()
        finally:
            self.under_way -= 1

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._answer(lambda: InMemoryStore.stage(self, staging, messages, lookups, due))

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        page: MessagePage | None = await self._answer(lambda: InMemoryStore.list_messages(self, key, query))
        return page

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        page: LookupPage = await self._answer(lambda: InMemoryStore.list_lookups(self, key, limit, after))
        return page


@pytest.mark.parametrize("overloaded", ["source", "target"])
async def test_a_store_that_answers_little_at_once_is_asked_for_little_at_once(
    monkeypatch: pytest.MonkeyPatch, overloaded: str
) -> None:
    """The copy of many long sessions ends, and is complete; what is tried again counts once."""
    monkeypatch.setattr(pacing, "FIRST_PAUSE_SECONDS", 0.0001)
    store = OverloadedStore()
    source = await opened(store if overloaded == "source" else None)
    target = await opened(store if overloaded == "target" else None)
    names = [KEY._replace(session_id=f"{number}") for number in range(30)]
    for key in names:
        await append(source, *long_talk(8), key=key)
    witness, tally = Witness(), Tally()
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, tally.compared, tally.handled)

    witness.at_each_step = look
    with always_staged():
        await copying.copy(source, target, EVERYTHING, tally, witness)
    assert witness.differences == []
    assert store.refused
    assert (tally.new, tally.same, tally.handled, tally.compared) == (30, 30, 240, 240)
    assert most == 240
    for key in names:
        await assert_same(source, target, key)


class UnreadableStore(InMemoryStore):
    """Cannot read one of its sessions."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> Any:
        if key == KEY and self.error is not None:
            raise self.error
        return await super().list_lookups(key, limit, after)


@pytest.mark.parametrize("error", [StoreUnavailable("a shard is down"), ValueError("what is stored is damaged")])
async def test_one_session_that_cannot_be_read_is_listed_and_keeps_no_other_back(
    target: Runtime, impatient: None, error: Exception
) -> None:
    store = UnreadableStore(error)
    source = await opened(store)
    for key in (KEY, OTHER):
        await append(source, *long_talk(3), key=key)
    (difference,) = await differences(source, target)
    assert difference.session_id == KEY.session_id
    assert difference.what.startswith("it could not be copied: ")
    # Unknown errors may quote what is stored.
    assert ("a shard is down" in difference.what) == isinstance(error, StoreUnavailable)
    await assert_same(source, target, OTHER)
    store.error = None
    await copied(source, target)
    await assert_same(source, target)


async def test_a_store_that_answers_again_in_time_is_waited_for(
    source: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_SECONDS", 0.001)
    store = InterruptedStore()
    target = await opened(store)
    await append(source, *long_talk(3))
    store.at = 2
    await copied(source, target)
    await assert_same(source, target)


class GoneStore(InterruptedStore):
    """Does not answer any more once a write failed."""

    async def ping(self) -> None:
        if self.at and self.writes >= self.at:
            raise StoreUnavailable("nobody answers")


async def test_a_store_that_stays_away_ends_the_copy(source: Runtime, impatient: None) -> None:
    store = GoneStore()
    target = await opened(store)
    for key in (KEY, OTHER):
        await append(source, *long_talk(3), key=key)
    store.at = 2
    tally, witness = Tally(), Witness()
    with pytest.raises(StoreUnavailable):
        await copying.copy(source, target, EVERYTHING, tally, witness)
    assert (tally.sessions, tally.messages, tally.same) == (2, 6, 0)
    assert witness.differences == []

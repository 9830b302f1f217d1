"""Random operations against every adapter at once: all give the same answers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from memoryd_server.stores.base import (
    Change,
    Committed,
    Known,
    Loaded,
    MessagePage,
    MessageQuery,
    SessionQuery,
    Store,
    Tail,
)
from memoryd_server.stores.records import (
    AgentRecord,
    Lookup,
    LookupKind,
    Record,
    RemovedRange,
    Role,
    SessionKey,
    StoredMessage,
    Usability,
    replace,
)
from memoryd_server.stores.registry import create_store
from tests.adapters import ADAPTERS
from tests.stores.builders import change_of, lookup, message, new_record

Answer = TypeVar("Answer")

tenants = st.sampled_from(["t", "T"])
agents = st.sampled_from(["a", "a ", "é"])
users = st.sampled_from(["", "u", "U"])
keys = st.builds(SessionKey, tenants, agents, st.sampled_from(["s", "S"]))
usabilities = st.sets(st.sampled_from(Usability), min_size=1).map(tuple)
seq_numbers = st.integers(1, 60)
ids = st.sampled_from([f"m{number}" for number in range(12)])
bounds = st.integers(1, 12)


class EqualAnswers(RuleBasedStateMachine):
    """Holds one store of each adapter that is here, and the records of their sessions as far as commits told."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._data = ExitStack()
        self._records: dict[SessionKey, Record] = {}
        self._past: dict[SessionKey, list[Record]] = {}
        self._stores: list[Store] = []

    @initialize()
    def open(self) -> None:
        directory = Path(self._data.enter_context(tempfile.TemporaryDirectory()))
        for adapter in (adapter for adapter in ADAPTERS if adapter.is_here):
            store = create_store("test", adapter.type, self._data.enter_context(adapter.data(directory)))
            self._runner.run(store.open())
            self._stores.append(store)

    def teardown(self) -> None:
        for store in self._stores:
            self._runner.run(store.close())
        self._runner.close()
        self._data.close()

    def ask(self, call: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """The answer of all stores."""

        async def ask_all() -> list[Answer]:
            return [await call(store) for store in self._stores]

        first, *others = self._runner.run(ask_all())
        for other in others:
            assert _plain(other) == _plain(first)
        return first

    @rule(data=st.data(), count=st.integers(1, 4))
    def commit(self, data: st.DataObject, count: int) -> None:
        # As in the contract, a change may rest on the one before it: drafts are of the records as they would then be.
        drafts = dict(self._records)
        changes = []
        for _ in range(count):
            change = self._draft_change(data, drafts)
            drafts[change.key] = change.record
            changes.append(change)
        outcomes = self.ask(lambda store: store.commit(changes))
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome == Committed():
                self._keep(change)

    def _keep(self, change: Change) -> None:
        self._records[change.key] = change.record
        self._past.setdefault(change.key, []).append(change.record)

    def _draft_change(self, data: st.DataObject, drafts: dict[SessionKey, Record]) -> Change:
        draw = data.draw
        key = draw(keys)
        record = drafts.get(key)
        lookups = [lookup(id_, draw(st.sampled_from(LookupKind))) for id_ in draw(st.sets(ids, max_size=2))]
        if record is None or draw(st.integers(0, 9)) == 0:
            born = new_record(incarnation=f"{draw(st.integers(0, 1 << 64)):032x}", user_id=draw(users))
            change = change_of(key, replace(born, version=0), *self._draft_messages(draw, born), lookups=lookups)
            return replaced(change, previous=None)
        if draw(st.integers(0, 4)) == 0 and key in self._past:
            record = draw(st.sampled_from(self._past[key]))  # Perhaps an old one.
        fields: dict[str, Any] = {}
        if draw(st.booleans()):
            fields["activity"] = draw(st.integers(0, 9))
        if draw(st.booleans()):
            fields["user_id"] = draw(users)
        if record.last_seq and draw(st.integers(0, 3)) == 0:
            low, high = sorted((draw(st.integers(1, record.last_seq)), draw(st.integers(1, record.last_seq))))
            fields["removed"] = (*record.removed, RemovedRange(low, high, draw(st.integers(0, 9))))
        if draw(st.integers(0, 9)) == 0:
            fields["first_seq"] = record.last_seq + 1
        fields["opening_to"] = draw(st.integers(0, record.last_seq))
        completed = draw(st.sets(st.integers(1, record.last_seq), max_size=2)) if record.last_seq else ()
        messages = self._draft_messages(draw, record)
        return change_of(key, record, *messages, completed=sorted(completed), lookups=lookups, **fields)

    def _draft_messages(self, draw: Callable[[st.SearchStrategy[Any]], Any], record: Record) -> list[StoredMessage]:
        return [
            message(
                seq,
                head=draw(st.sampled_from([seq, max(1, seq - 1), max(1, seq - 3)])),
                position=draw(st.integers(0, 2)),
                usability=draw(st.sampled_from(Usability)),
                role=draw(st.sampled_from(Role)),
                tokens=draw(st.integers(0, 20)),
                size=draw(st.integers(1, 20)),
                run_id=draw(st.sampled_from(["", "r", "R"])),
                content=draw(st.sampled_from([None, "", "text", "\x00é"])),
                created=draw(st.integers(0, 9)),
            )
            for seq in range(record.last_seq + 1, record.last_seq + 1 + draw(st.integers(0, 4)))
        ]

    @rule(
        key=keys,
        tail=st.none()
        | st.builds(
            Tail,
            usabilities=usabilities,
            messages=bounds,
            tokens=st.none() | st.integers(1, 80),
            opening=st.booleans(),
            body_bytes=st.integers(0, 150),
        ),
    )
    def load(self, key: SessionKey, tail: Tail | None) -> None:
        loaded = self.ask(lambda store: store.load(key, tail))
        assert (loaded and loaded.record) == self._records.get(key)

    @rule(key=keys, seqs=st.lists(seq_numbers, max_size=8), stranger=st.booleans())
    def read(self, key: SessionKey, seqs: list[int], stranger: bool) -> None:
        record = self._records.get(key)
        incarnation = "0" * 32 if stranger or record is None else record.incarnation
        self.ask(lambda store: store.read(key, incarnation, seqs))

    @rule(
        key=keys,
        query=st.builds(
            MessageQuery,
            from_seq=seq_numbers,
            to_seq=seq_numbers,
            descending=st.booleans(),
            limit=bounds,
            bytes=st.integers(1, 100),
            roles=st.frozensets(st.sampled_from(Role)),
            run_id=st.sampled_from(["", "r", "R"]),
            from_time=st.none() | st.integers(0, 9),
            to_time=st.none() | st.integers(0, 9),
        ),
    )
    def list_messages(self, key: SessionKey, query: MessageQuery) -> None:
        self.ask(lambda store: store.list_messages(key, query))

    @rule(key=keys, usabilities=usabilities, limit=bounds)
    def list_unusable(self, key: SessionKey, usabilities: tuple[Usability, ...], limit: int) -> None:
        self.ask(lambda store: store.list_unusable(key, usabilities, limit))

    @rule(key=keys, kind=st.sampled_from(LookupKind), ids=st.lists(ids, max_size=6))
    def find(self, key: SessionKey, kind: LookupKind, ids: list[str]) -> None:
        self.ask(lambda store: store.find(key, kind, ids))

    @rule(
        tenant=tenants,
        agent=st.none() | agents,
        user_id=st.none() | st.sampled_from(["u", "U"]),
        limit=st.integers(1, 3),
    )
    def list_sessions(self, tenant: str, agent: str | None, user_id: str | None, limit: int) -> None:
        # Cursors are each store's own.
        after = dict.fromkeys(self._stores, "")
        while True:

            async def page(store: Store) -> tuple[list[tuple[SessionKey, Record]], bool]:
                answer = await store.list_sessions(SessionQuery(tenant, agent, user_id, limit, after[store]))
                after[store] = answer.after
                return list(answer.sessions), bool(answer.after)

            sessions, more = self.ask(page)
            assert all(self._records[key] == record for key, record in sessions)
            if not more:
                break

    @rule(before=st.integers(0, 10))
    def list_purgeable(self, before: int) -> None:
        async def call(store: Store) -> list[SessionKey]:
            return sorted(await store.list_purgeable(before, 100))

        purgeable = self.ask(call)
        assert purgeable == sorted(
            key for key, record in self._records.items() if any(gone.removed_at < before for gone in record.removed)
        )

    @rule(key=keys, limit=st.integers(1, 5), stranger=st.booleans())
    def purge(self, key: SessionKey, limit: int, stranger: bool) -> None:
        record = self._records.get(key)
        if record is None:
            incarnation, ranges = "0" * 32, [(1, 60)]
        else:
            incarnation = "0" * 32 if stranger else record.incarnation
            ranges = [(gone.from_seq, gone.to_seq) for gone in record.removed]
        for low, high in ranges:

            async def call(store: Store, low: int = low, high: int = high) -> int:
                return await store.purge(key, incarnation, low, high, limit)

            self.ask(call)

    @rule(key=keys)
    def purge_all(self, key: SessionKey) -> None:
        record = self._records.get(key)
        if record is None:
            return
        for gone in record.removed:

            async def call(store: Store, gone: RemovedRange = gone) -> int:
                return await store.purge(key, record.incarnation, gone.from_seq, gone.to_seq, 3)

            while self.ask(call):
                pass
        change = change_of(key, record, removed=())
        assert self.ask(lambda store: store.commit([change])) == [Committed()]
        self._keep(change)

    @rule(tenant=tenants, agent=agents, version=st.integers(1, 3), updated=st.integers(0, 99))
    def save_agent(self, tenant: str, agent: str, version: int, updated: int) -> None:
        self.ask(lambda store: store.save_agent(AgentRecord(tenant, agent, version, updated)))

    @rule(tenant=tenants, agent=agents)
    def load_agent(self, tenant: str, agent: str) -> None:
        self.ask(lambda store: store.load_agent(tenant, agent))

    @rule(tenant=tenants, after=st.just("") | agents, limit=st.integers(1, 3))
    def list_agents(self, tenant: str, after: str, limit: int) -> None:
        self.ask(lambda store: store.list_agents(tenant, after, limit))


def _plain(answer: Any) -> Any:
    """The answer without what the contract leaves open: the kinds of its sequences, and the order of look-ups."""
    match answer:
        case Known(lookups):
            return "known", _plain(lookups)
        case Loaded(record, tail, opening):
            return record, list(tail), list(opening)
        case MessagePage(record, messages, more):
            return record, list(messages), more
        case tuple() | list() if not hasattr(answer, "_fields"):
            if answer and isinstance(answer[0], Lookup):
                return sorted(answer, key=lambda found: (found.kind, found.id))
            return [_plain(part) for part in answer]
    return answer


TestEqualAnswers = EqualAnswers.TestCase
TestEqualAnswers.settings = settings(max_examples=40, stateful_step_count=40)

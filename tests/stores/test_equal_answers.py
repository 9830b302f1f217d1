"""Random operations against every adapter at once: all give the same answers."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from memoryd_server.stores.base import (
    Change,
    Committed,
    Deleted,
    Due,
    EventPage,
    Known,
    Loaded,
    MessagePage,
    MessageQuery,
    SessionQuery,
    StagingLost,
    Store,
    Tail,
)
from memoryd_server.stores.records import (
    AgentRecord,
    Lookup,
    LookupKind,
    Record,
    Redaction,
    RemovedRange,
    Role,
    SessionKey,
    StoredMessage,
    Usability,
)
from memoryd_server.stores.registry import create_store
from tests.adapters import ADAPTERS
from tests.databases.kinds import MONGODB
from tests.stores.builders import TIME, birth, change_of, death, event, grown, lookup, message, new_record, rebirth

Answer = TypeVar("Answer")

tenants = st.sampled_from(["t", "T"])
agents = st.sampled_from(["a", "a ", "é"])
users = st.sampled_from(["", "u", "U"])
keys = st.sampled_from(
    [SessionKey("t", "a", "s"), SessionKey("t", "a", "S"), SessionKey("t", "a ", "s"), SessionKey("T", "é", "s")]
)
"""Few, so that sessions grow, die and live again."""
usabilities = st.sets(st.sampled_from(Usability), min_size=1).map(tuple)
seq_numbers = st.integers(1, 60)
IDS = [f"m{number}" for number in range(12)]
ids = st.sampled_from(IDS)
bounds = st.integers(1, 12)

MINUTE = 60 * 1_000_000
DAY = 24 * 60 * MINUTE
NEVER = 1 << 62
NOW = time.time_ns() // 1_000


Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Staging:
    """A staging that every store was asked to begin; it may be lost since."""

    names: dict[Store, str]
    messages: dict[int, StoredMessage] = field(default_factory=dict)


class EqualAnswers(RuleBasedStateMachine):
    """Holds one store of each adapter that is here, and the records of their sessions as far as commits told."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._data = ExitStack()
        self._records: dict[SessionKey, Record] = {}
        self._past: dict[SessionKey, list[Record]] = {}
        self._stores: list[Store] = []
        self._stagings: list[Staging] = []
        self._lives = itertools.count(1)

    @initialize()
    def open(self) -> None:
        directory = Path(self._data.enter_context(tempfile.TemporaryDirectory()))
        # Of the servers that stand in for MongoDB, FerretDB is too slow for so many steps.
        for adapter in (adapter for adapter in ADAPTERS if adapter.is_here and adapter.database is not MONGODB):
            store = create_store("test", adapter.type, self._data.enter_context(adapter.emptied(directory)))
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

    @rule(data=st.data(), count=st.integers(2, 8))
    def commit(self, data: st.DataObject, count: int) -> None:
        # As in the contract, a change may rest on the one before it: drafts are of the records as they would then be.
        drafts = dict(self._records)
        changes = []
        for _ in range(count):
            change = self._draft_change(data.draw, drafts)
            _keep(drafts, change)
            changes.append(change)
        self._make(changes)

    def _make(self, changes: list[Change]) -> None:
        def adopting(store: Store) -> list[Change]:
            """The changes, with the names that this store gave to stagings."""
            return [replaced(change, staging=self._name(change.staging, store)) for change in changes]

        outcomes = self.ask(lambda store: store.commit(adopting(store)))
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome == Committed():
                _keep(self._records, change)
                if change.record is not None:
                    self._past.setdefault(change.key, []).append(change.record)
        for key in {change.key: None for change in changes}:
            self._look_at(key)

    def _look_at(self, key: SessionKey) -> None:
        """Compares what is stored of a session."""
        incarnation = self._incarnation(key, stranger=False)
        self.ask(lambda store: store.list_messages(key, MessageQuery(1, 100, False, 100, 1 << 20)))
        self.ask(lambda store: store.list_entries(key, incarnation, 1, 100, 100))
        self.ask(lambda store: store.list_events(key, incarnation, 0, 100))
        self.ask(lambda store: store.find(key, LookupKind.MESSAGE, IDS))

    def _name(self, number: str, store: Store) -> str:
        return self._stagings[int(number)].names[store] if number else ""

    def _draft_change(self, draw: Draw, drafts: dict[SessionKey, Record]) -> Change:
        key = draw(keys)
        record = drafts.get(key)
        lookups = [lookup(id_, draw(st.sampled_from(LookupKind))) for id_ in draw(st.sets(ids, max_size=2))]
        if record is None or draw(st.integers(0, 9)) == 0:
            return self._draft_birth(draw, key, lookups)
        if draw(st.integers(0, 4)) == 0 and key in self._past:
            record = draw(st.sampled_from(self._past[key]))  # Perhaps an old one, or of an earlier life.
        match draw(st.integers(0, 11)):
            case 0:
                return death(key, record)
            case 1:
                fields = self._draft_life(draw)
                messages = self._draft_messages(draw, 0)
                return rebirth(key, record, *messages, lookups=lookups, **fields)
        fields = self._draft_fields(draw, record)
        seqs = st.sets(st.integers(1, record.last_seq), max_size=2).map(sorted) if record.last_seq else st.just([])
        completed = draw(seqs)
        version = record.version + 1
        return change_of(
            key,
            record,
            *self._draft_messages(draw, record.last_seq),
            completed=completed,
            lookups=lookups,
            events=[event(version, created=draw(st.sampled_from([TIME, NOW])))] if draw(st.integers(0, 3)) == 0 else (),
            **self._draft_redaction(draw, key, record, completed),
            **fields,
        )

    def _draft_birth(self, draw: Draw, key: SessionKey, lookups: list[Lookup]) -> Change:
        fields = self._draft_life(draw)
        if not self._stagings or draw(st.booleans()):
            return birth(key, *self._draft_messages(draw, 0), lookups=lookups, **fields)
        number = self._draft_staging(draw)
        # Look-ups of the adopting commit differ from the staged ones, as the ids of requests do.
        lookups = [lookup(f"own {each.id}") for each in lookups]
        counts = grown(new_record(), list(self._stagings[number].messages.values()))
        return birth(key, staging=str(number), lookups=lookups, **{**counts, **fields})

    def _draft_staging(self, draw: Draw) -> int:
        """One of the last, which may live yet."""
        back: int = draw(st.integers(1, min(3, len(self._stagings))))
        return len(self._stagings) - back

    def _draft_life(self, draw: Draw) -> dict[str, Any]:
        return {
            "incarnation": f"{next(self._lives):032x}",
            "user_id": draw(users),
            "activity": draw(st.integers(0, 9)),
            "ttl": draw(st.sampled_from([0, 0, 1, 5])),
        }

    def _draft_fields(self, draw: Draw, record: Record) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if draw(st.booleans()):
            fields["activity"] = draw(st.integers(0, 9))
        if draw(st.booleans()):
            fields["user_id"] = draw(users)
        if draw(st.integers(0, 3)) == 0:
            fields["ttl"] = draw(st.sampled_from([0, 1, 5]))
        if record.last_seq and draw(st.integers(0, 3)) == 0:
            low, high = sorted((draw(st.integers(1, record.last_seq)), draw(st.integers(1, record.last_seq))))
            fields["removed"] = (*record.removed, RemovedRange(low, high, draw(st.integers(0, 9))))
        if draw(st.integers(0, 9)) == 0:
            fields["first_seq"] = record.last_seq + 1
        fields["opening_to"] = draw(st.integers(0, record.last_seq))
        return fields

    def _draft_redaction(self, draw: Draw, key: SessionKey, record: Record, completed: Sequence[int]) -> dict[str, Any]:
        """Replaced messages, which must be stored, and a group that is opened again."""
        if record != self._records.get(key) or draw(st.integers(0, 2)):
            return {}
        stored = self.ask(lambda store: store.list_messages(key, MessageQuery(1, 60, True, 3, 1 << 20)))
        if stored is None or not stored.messages:
            return {}
        chosen = draw(st.sampled_from(list(stored.messages)))
        redacted = message(
            chosen.seq,
            content=draw(st.sampled_from([None, "redacted"])),
            metadata=draw(st.sampled_from(["", "\x00"])),
            redaction=Redaction(draw(st.integers(0, 9)), "é"),
            tokens=draw(st.integers(0, 20)),
            size=draw(st.integers(1, 20)),
        )
        if draw(st.booleans()):
            return {"replaced": [redacted]}
        return {} if chosen.head in completed else {"reopened": [chosen.head]}

    def _draft_messages(self, draw: Draw, last_seq: int) -> list[StoredMessage]:
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
                undo=draw(st.sampled_from(["", '{"a":1}'])),
            )
            for seq in range(last_seq + 1, last_seq + 1 + draw(st.integers(0, 4)))
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

    def _incarnation(self, key: SessionKey, stranger: bool) -> str:
        """That of the session, or that of an earlier life or of none at all."""
        living = self._records.get(key)
        if living is not None and not stranger:
            return living.incarnation
        earlier = [record.incarnation for record in self._past.get(key, []) if record != living]
        return earlier[0] if earlier and earlier[0] != (living and living.incarnation) else "0" * 32

    @rule(key=keys, seqs=st.lists(seq_numbers, max_size=8), stranger=st.booleans())
    def read(self, key: SessionKey, seqs: list[int], stranger: bool) -> None:
        incarnation = self._incarnation(key, stranger)
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

    @rule(key=keys, from_seq=seq_numbers, to_seq=seq_numbers, limit=bounds, stranger=st.booleans())
    def list_entries(self, key: SessionKey, from_seq: int, to_seq: int, limit: int, stranger: bool) -> None:
        incarnation = self._incarnation(key, stranger)
        self.ask(lambda store: store.list_entries(key, incarnation, from_seq, to_seq, limit))

    @rule(key=keys, after=st.integers(0, 12), limit=st.integers(1, 5), stranger=st.booleans())
    def list_events(self, key: SessionKey, after: int, limit: int, stranger: bool) -> None:
        incarnation = self._incarnation(key, stranger)
        self.ask(lambda store: store.list_events(key, incarnation, after, limit))

    @rule(due=st.sampled_from(Due), before=st.integers(0, 15), limit=st.integers(1, 3))
    def list_due(self, due: Due, before: int, limit: int) -> None:
        async def call(store: Store) -> list[SessionKey]:
            keys: list[SessionKey] = []
            after = ""
            while True:
                page = await store.list_due(due, before, limit, after)
                keys += page.keys
                after = page.after
                if not after:
                    return keys

        # Sessions that are due since the same moment come in an order of each store's own.
        async def in_order(store: Store) -> list[tuple[int, SessionKey]]:
            keys = await call(store)
            times = [_due_at(self._records[key], due) for key in keys]
            assert times == sorted(times)
            return sorted(zip(times, keys, strict=True))

        expected = [(_due_at(record, due), key) for key, record in self._records.items()]
        assert self.ask(in_order) == sorted((at, key) for at, key in expected if at < before)

    @rule(tenant=tenants, user_id=users, minutes=st.sampled_from([-1, 5, 120]))
    def begin_staging(self, tenant: str, user_id: str, minutes: int) -> None:
        staging = Staging({})

        async def call(store: Store) -> None:
            due = await store.now() + minutes * MINUTE
            staging.names[store] = await store.begin_staging(tenant, user_id, due)

        self.ask(call)
        self._stagings.append(staging)

    @precondition(lambda self: self._stagings)
    @rule(data=st.data(), minutes=st.sampled_from([-1, 5, 120]))
    def stage(self, data: st.DataObject, minutes: int) -> None:
        staging = self._stagings[self._draft_staging(data.draw)]
        last = max(staging.messages, default=0)
        messages = self._draft_messages(data.draw, last)
        if last and data.draw(st.booleans()):
            messages.insert(0, staging.messages[last])  # Added again.
        lookups = [lookup(id_) for id_ in data.draw(st.sets(ids, max_size=2))]

        async def call(store: Store) -> bool:
            try:
                await store.stage(staging.names[store], messages, lookups, await store.now() + minutes * MINUTE)
            except StagingLost:
                return False
            return True

        if self.ask(call):
            staging.messages.update((each.seq, each) for each in messages)

    @precondition(lambda self: self._stagings)
    @rule(data=st.data())
    def end_staging(self, data: st.DataObject) -> None:
        staging = self._stagings[self._draft_staging(data.draw)]
        self.ask(lambda store: store.end_staging(staging.names[store]))

    @rule(ahead=st.sampled_from([0, 10 * MINUTE, 2 * DAY]), limit=st.sampled_from([1, 5, 1000]))
    def sweep(self, ahead: int, limit: int) -> None:
        async def call(store: Store) -> int:
            now = await store.now() + ahead
            total = Deleted()
            while (deleted := await store.sweep(now, limit)).total:
                total += deleted
            # What an ended staging held is deleted at once or by a sweep, as each store likes it.
            return total.sessions

        self.ask(call)
        for key in self._past:
            self._look_at(key)

    @rule(tenant=tenants, user_id=st.sampled_from(["u", "U"]), limit=st.sampled_from([1, 5, 1000]))
    def erase(self, tenant: str, user_id: str, limit: int) -> None:
        async def call(store: Store) -> int:
            total = Deleted()
            while (deleted := await store.erase(tenant, user_id, limit)).total:
                total += deleted
            return total.sessions

        self.ask(call)
        for key in self._past:
            self._look_at(key)

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
        self._make([change])
        assert self._records[key] == change.record

    @rule(tenant=tenants, agent=agents, version=st.integers(1, 3), updated=st.integers(0, 99))
    def save_agent(self, tenant: str, agent: str, version: int, updated: int) -> None:
        self.ask(lambda store: store.save_agent(AgentRecord(tenant, agent, version, updated)))

    @rule(tenant=tenants, agent=agents)
    def load_agent(self, tenant: str, agent: str) -> None:
        self.ask(lambda store: store.load_agent(tenant, agent))

    @rule(tenant=tenants, after=st.just("") | agents, limit=st.integers(1, 3))
    def list_agents(self, tenant: str, after: str, limit: int) -> None:
        self.ask(lambda store: store.list_agents(tenant, after, limit))


def _keep(records: dict[SessionKey, Record], change: Change) -> None:
    """Notes what a change makes of its session."""
    if change.record is None:
        records.pop(change.key, None)
    else:
        records[change.key] = change.record


def _due_at(record: Record, due: Due) -> int:
    at = {
        Due.PURGE: record.purge_at,
        Due.ABANDONMENT: record.abandon_at,
        Due.EXPIRY: record.expiry_listed_at,
    }[due]
    return NEVER if at is None else at


def _plain(answer: Any) -> Any:
    """The answer without what the contract leaves open: the kinds of its sequences, and the order of look-ups."""
    match answer:
        case Known(lookups):
            return "known", _plain(lookups)
        case Loaded(record, tail, opening):
            return record, list(tail), list(opening)
        case MessagePage(record, messages, more):
            return record, list(messages), more
        case EventPage(record, events):
            return record, list(events)
        case tuple() | list() if not hasattr(answer, "_fields"):
            if answer and isinstance(answer[0], Lookup):
                return sorted(answer, key=lambda found: (found.kind, found.id))
            return [_plain(part) for part in answer]
    return answer


TestEqualAnswers = EqualAnswers.TestCase
TestEqualAnswers.settings = settings(max_examples=10, stateful_step_count=25)

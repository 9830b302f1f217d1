"""Several servers on one database: whatever they do beside each other, each session is as its commits made it."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import (
    Change,
    Committed,
    Conflict,
    Deleted,
    Lost,
    MessageQuery,
    Outcome,
    StagingLost,
    Store,
    Taken,
)
from memoryd_server.stores.records import LookupKind, Record, SessionKey, StoredMessage
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores import contender
from tests.stores.builders import (
    Session,
    birth,
    change_of,
    death,
    erased,
    event,
    grown,
    listed,
    lookup,
    message,
    new_incarnation,
    new_record,
    rebirth,
    seqs,
    swept,
)
from tests.stores.conftest import OpenStore

pytestmark = pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)

ROOT = Path(__file__).parents[2]
KEYS = [SessionKey("tenant", "agent", f"session{number}") for number in range(4)]
USERS = ("kept", "erased")
MOVES = 40
"""What each player does: enough for every pair of calls to meet, in seconds."""
FAR = 10 * 24 * 3600 * 1_000_000


class Player:
    """A server's part in a game: it changes sessions as an engine would, and notes what it was told was made.

    Messages carry their life's incarnation as their run, so that one that is seen in another life shows itself.
    """

    def __init__(self, store: Store, name: str, seed: int) -> None:
        self.store = store
        self.name = name
        self.random = random.Random(f"{seed} {name}")
        self.moves = 0
        self.outcomes: list[str] = []
        self.ids: list[tuple[SessionKey, str]] = []
        """Of messages that were committed, in the order of their commits."""

    async def play(self) -> None:
        for _ in range(MOVES):
            key = self.random.choice(KEYS)
            loaded = await self.store.load(key)
            change = await self.draw_change(key, loaded.record if loaded else None)
            if change is not None:
                [outcome] = await self.store.commit([change])
                self.note(change, outcome)

    def note(self, change: Change, outcome: Outcome) -> None:
        self.outcomes.append(type(outcome).__name__)
        allowed: tuple[type[Outcome], ...] = (Committed, Conflict)
        if change.staging:
            allowed = (Committed, Conflict, Taken, Lost)
        assert isinstance(outcome, allowed)
        if outcome == Committed():
            self.ids += [(change.key, message.id) for message in change.messages]

    async def draw_change(self, key: SessionKey, record: Record | None) -> Change | None:
        self.moves += 1
        if record is None:
            return await self.draw_birth(key)
        match self.random.randrange(8):
            case 0:
                return death(key, record)
            case 1:
                incarnation = new_incarnation()
                new = self.draw_messages(incarnation, 0)
                ids = [lookup(each.id) for each in new]
                user_id = self.random.choice(USERS)
                return rebirth(key, record, *new, lookups=ids, incarnation=incarnation, user_id=user_id)
        new = self.draw_messages(record.incarnation, record.last_seq)
        told = [event(record.version + 1, created=await self.store.now())]
        return change_of(key, record, *new, lookups=[lookup(each.id) for each in new], events=told)

    async def draw_birth(self, key: SessionKey) -> Change | None:
        incarnation, user_id = new_incarnation(), self.random.choice(USERS)
        messages = self.draw_messages(incarnation, 0)
        if self.random.randrange(2):
            ids = [lookup(each.id) for each in messages]
            return birth(key, *messages, lookups=ids, incarnation=incarnation, user_id=user_id)
        due = await self.store.now() + FAR
        staging = await self.store.begin_staging(key.tenant, user_id, due)
        try:
            for each in messages:
                await self.store.stage(staging, [each], [lookup(each.id)], due)
        except StagingLost:
            assert user_id == "erased"
            return None
        counts = grown(new_record(), messages)
        return birth(key, staging=staging, incarnation=incarnation, user_id=user_id, **counts)

    def draw_messages(self, incarnation: str, last_seq: int) -> list[StoredMessage]:
        return [
            message(last_seq + number, id=f"{self.name} {self.moves} {number}", run_id=incarnation)
            for number in range(1, self.random.randrange(2, 5))
        ]


async def look(store: Store) -> None:
    """Every session is whole, and shows its own life alone (invariant 3)."""
    for key in KEYS:
        page = await store.list_messages(key, MessageQuery(1, 1 << 40, False, 1 << 20, 1 << 40))
        if page is not None:
            assert seqs(page.messages) == [*range(1, page.record.last_seq + 1)]
            assert {stored.run_id for stored in page.messages} == {page.record.incarnation}
            found = await store.list_events(key, page.record.incarnation, 0, 1 << 20)
            assert found is None or all(each.number <= found.record.version for each in found.events)


async def delete(store: Store) -> None:
    """Takes away all that is due, and what is left of a user."""
    now = await store.now()
    for seconds in (limits.PURGE_DELAY_SECONDS + 1, limits.LOOKUP_SECONDS + 1):
        await store.sweep(now + seconds * 1_000_000, 5)
    await store.erase("tenant", "erased", 5)


@pytest.mark.parametrize("seed", [1, 2])
async def test_sessions_stay_whole_whatever_happens_beside_them(open_store: OpenStore, seed: int) -> None:
    """Deaths, rebirths, forks, sweeps and erasure beside appends (invariants 3 and 18)."""
    servers = [await open_store() for _ in range(2)]
    players = [Player(servers[number % 2], f"player {number}", seed) for number in range(4)]
    playing = asyncio.gather(*(player.play() for player in players))

    async def meanwhile(act: Callable[[Store], Awaitable[None]], store: Store) -> None:
        while not playing.done():
            await act(store)
            await asyncio.sleep(0)

    await asyncio.gather(
        playing, *(meanwhile(look, server) for server in servers), *(meanwhile(delete, server) for server in servers)
    )
    told = [outcome for player in players for outcome in player.outcomes]
    assert {"Committed", "Conflict"} <= set(told)
    for server in servers:
        await look(server)
        for key in KEYS:
            await assert_ids_hold(server, key)
    await assert_nothing_is_left(servers[0])


async def assert_ids_hold(store: Store, key: SessionKey) -> None:
    """Each message of a living session is known by its id (invariant 2)."""
    if await store.load(key) is None:
        return
    ids = [stored.id for stored in await Session(store, key).stored()]
    found = await store.find(key, LookupKind.MESSAGE, ids)
    assert sorted(each.id for each in found) == sorted(ids)


async def assert_nothing_is_left(store: Store) -> None:
    """Once all are dead, sweeps take everything."""
    for key in KEYS:
        loaded = await store.load(key)
        if loaded is not None:
            assert await store.commit([death(key, loaded.record)]) == [Committed()]
    assert await listed(store) == []
    await erased(store, "erased")
    await swept(store, 100 * limits.LOOKUP_SECONDS)
    assert await swept(store, 100 * limits.LOOKUP_SECONDS) == Deleted()
    for key in KEYS:
        due = await store.now() + FAR
        staging = await store.begin_staging("tenant", "kept", due)
        assert await store.commit([birth(key, staging=staging)]) == [Committed()]
        assert await Session(store, key).stored() == []


async def test_several_sweeps_and_erasures_at_once_delete_each_row_once(open_store: OpenStore) -> None:
    servers = [await open_store() for _ in range(3)]
    session = Session(servers[0], KEYS[0])
    for key in KEYS:
        session = Session(servers[0], key)
        ids = [lookup(f"{number}") for number in range(50)]
        await session.commit(*(message(seq) for seq in range(1, 51)), lookups=ids, user_id="erased")
        await session.die()
    rounds = [swept(servers[0], limits.LOOKUP_SECONDS + 60, 20), swept(servers[1], limits.LOOKUP_SECONDS + 60, 20)]
    deleted = sum(await asyncio.gather(*rounds, erased(servers[2], "erased", limit=20)), Deleted())
    assert deleted == Deleted(messages=200, lookups=200, sessions=4)
    assert await erased(servers[0], "erased", limit=20) == Deleted()


@pytest.mark.parametrize("anew", [True])
async def test_several_processes_open_one_new_database_at_once_and_share_it(
    store_url: str, open_store: OpenStore
) -> None:
    names = ("one", "two", "three")
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.stores.contender", store_url, name), cwd=ROOT, stdout=subprocess.PIPE
        )
        for name in names
    ]
    answers = []
    for process in processes:
        output, _ = await process.communicate()
        assert process.returncode == 0
        answers.append(json.loads(output))
    assert len({answer["secret"] for answer in answers}) == 1
    stored = await Session(await open_store(), contender.SESSION).stored()
    assert seqs(stored) == [*range(1, len(names) * contender.APPENDS + 1)]
    assert sorted(message.id for message in stored) == sorted(
        f"{name}-{number}" for name in names for number in range(contender.APPENDS)
    )

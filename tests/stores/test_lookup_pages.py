"""`list_lookups`: all that is remembered about the ids of a session's name, page by page."""

from __future__ import annotations

import pytest

from memoryd_server import limits
from memoryd_server.stores.base import Lookup, LookupKind, Store
from memoryd_server.stores.records import SessionKey
from tests.stores.builders import Session, erased, lookup, swept
from tests.stores.conftest import NewSession
from tests.stores.test_exactness import NAMES

KEY = SessionKey("tenant", "agent", "session")


async def pages(store: Store, key: SessionKey, limit: int) -> list[Lookup]:
    """All look-ups of a session's name, page by page."""
    found: list[Lookup] = []
    after = ""
    while True:
        page = await store.list_lookups(key, limit, after)
        assert len(page.lookups) <= limit
        found += page.lookups
        after = page.after
        if not after:
            return found
        assert len(page.lookups) == limit


def in_order(lookups: list[Lookup]) -> list[Lookup]:
    return sorted(lookups, key=lambda each: (each.kind, each.id))


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 100])
async def test_tells_each_once(session: Session, store: Store, limit: int) -> None:
    sent = [lookup(f"{number:02}", kind) for number in range(4) for kind in LookupKind]
    for each in sent:
        await session.commit(lookups=[each])
    found = await pages(store, session.key, limit)
    assert in_order(found) == in_order(sent)
    assert await pages(store, session.key, limit) == found


async def test_tells_each_as_it_was_stored(session: Session, store: Store) -> None:
    """(invariants 4 and 5)"""
    sent = [lookup(name, kind, digest=name.encode()) for name in (*NAMES, ".", "1.", "0.a") for kind in LookupKind]
    await session.commit(lookups=sent)
    for limit in (1, 3, 1_000):
        found = await pages(store, session.key, limit)
        assert in_order(found) == in_order(sent)
        types = {(type(each.kind), type(each.id), type(each.digest), type(each.created)) for each in found}
        assert types == {(LookupKind, str, bytes, int)}, "no type of a driver's own"


async def test_of_another_session_are_none(new_session: NewSession, store: Store) -> None:
    """(invariant 5)"""
    for session in (new_session("s"), new_session("s", agent="other"), new_session("s", tenant="other")):
        await session.commit(lookups=[lookup("own", digest=repr(session.key).encode())])
        found = await pages(store, session.key, 10)
        assert found == [lookup("own", digest=repr(session.key).encode())]
    assert await pages(store, SessionKey("tenant", "agent", "unknown"), 10) == []


async def test_of_earlier_lives_are_told_too(session: Session, store: Store) -> None:
    """They belong to the name (invariant 2), also while no session has it."""
    await session.commit(lookups=[lookup("b")])
    await session.be_reborn(lookups=[lookup("a")])
    assert in_order(await pages(store, session.key, 1)) == [lookup("a"), lookup("b")]
    await session.die()
    assert in_order(await pages(store, session.key, 1)) == [lookup("a"), lookup("b")]
    await session.commit(lookups=[lookup("c")])
    assert in_order(await pages(store, session.key, 1)) == [lookup("a"), lookup("b"), lookup("c")]


async def test_of_a_forgotten_name_are_none(session: Session, store: Store) -> None:
    await session.commit(lookups=[lookup("a")])
    await session.die()
    await swept(store, limits.LOOKUP_SECONDS + 1)
    assert await pages(store, session.key, 10) == []


async def test_of_an_erased_life_are_none(session: Session, store: Store) -> None:
    await session.commit(lookups=[lookup("a"), lookup("b")], user_id="user")
    await session.be_reborn(lookups=[lookup("c")], user_id="other")
    await erased(store, "user")
    assert await pages(store, session.key, 10) == [lookup("c")]


async def test_of_a_staging_are_told_with_its_session(store: Store) -> None:
    staging = await store.begin_staging(KEY.tenant, "", 1 << 60)
    await store.stage(staging, [], [lookup("a"), lookup("a", LookupKind.REQUEST)], 1 << 60)
    assert await pages(store, KEY, 10) == []
    await Session(store, KEY).commit(staging=staging, lookups=[lookup("own")])
    expected = [lookup("a"), lookup("own"), lookup("a", LookupKind.REQUEST)]
    assert in_order(await pages(store, KEY, 1)) == expected


async def test_a_page_goes_on_behind_the_last_one_although_others_come(session: Session, store: Store) -> None:
    """Those that are there all the time are told exactly once."""
    lasting = [lookup(f"m{number}") for number in range(10)]
    await session.commit(lookups=lasting)
    found: list[Lookup] = []
    after = ""
    for number in range(10):
        page = await store.list_lookups(session.key, 2, after)
        found += page.lookups
        after = page.after
        if not after:
            break
        await session.commit(lookups=[lookup(f"a{number}"), lookup(f"z{number}"), lookup(f"m5 {number}")])
    assert in_order([each for each in found if each in lasting]) == lasting

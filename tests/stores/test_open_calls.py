"""A record's open calls: up to 256 of them, which are most of it, and which most changes leave as they are."""

from __future__ import annotations

import pytest

from memoryd_server.limits import MAX_OPEN_CALLS
from memoryd_server.stores.base import Conflict, SessionQuery, Store
from memoryd_server.stores.records import RemovedRange, replace
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import (
    TIME,
    Session,
    born,
    change_of,
    lookup,
    message,
    new_incarnation,
    open_calls,
)
from tests.stores.conftest import NewSession, OpenStore

MANY = open_calls(MAX_OPEN_CALLS)
FEW = open_calls(2)
NONE = open_calls(0)


async def is_answered(session: Session) -> bool:
    """Whether every way to the record leads to the one that was committed last."""
    store, key, record = session.store, session.key, session.record
    assert record is not None
    loaded = await store.load(key)
    assert loaded is not None
    read = await store.read(key, record.incarnation, [1])
    assert read is not None
    listed = await store.list_sessions(SessionQuery(key.tenant, None, None, 10, ""))
    [conflict] = await store.commit([change_of(key, replace(record, version=record.version + 1))])
    assert isinstance(conflict, Conflict)
    with_tail = await session.load(messages=1, body_bytes=1 << 20)
    records = [loaded.record, with_tail.record, (await session.page()).record, read[0], dict(listed.sessions)[key]]
    return all(each == record for each in [*records, conflict.record or record])


@pytest.mark.parametrize("before", [NONE, FEW, MANY], ids=["none", "few", "many"])
@pytest.mark.parametrize("after", [NONE, FEW, MANY], ids=["none", "few", "many"])
@pytest.mark.parametrize("messages", [1, 2])
async def test_become_more_and_fewer(
    session: Session, before: dict[str, object], after: dict[str, object], messages: int
) -> None:
    await session.commit(message(1), **before)
    assert await is_answered(session)
    await session.commit(*(message(2 + number) for number in range(messages)), **after)
    assert await is_answered(session)


async def test_of_about_any_length_come_back(session: Session) -> None:
    for calls in range(40):
        await session.commit(message(calls + 1), **open_calls(calls))
        assert await is_answered(session)


async def test_stay_as_they_are_with_changes_that_leave_them_so(session: Session) -> None:
    await session.commit(message(1), **MANY)
    await session.commit(message(2), lookups=[lookup("message-2")])
    await session.commit(message(3), message(4))
    await session.commit(message(5), user_id="user", activity=TIME + 1)
    await session.commit(removed=(RemovedRange(1, 1, TIME),))
    await session.commit(replaced=[message(2, content="[]")])
    assert await is_answered(session)


async def test_change_beside_those_of_other_sessions(new_session: NewSession, store: Store) -> None:
    sessions = [new_session() for _ in range(4)]
    for session, calls in zip(sessions, (MANY, MANY, FEW, NONE), strict=True):
        await session.commit(message(1), **calls)
    changes = []
    for session, fields in zip(sessions, ({}, open_calls(200, first=7), MANY, {}), strict=True):
        assert session.record is not None
        changes.append(change_of(session.key, session.record, message(2), **fields))
    await store.commit(changes)
    for session, change in zip(sessions, changes, strict=True):
        session.record = born(change)
        assert await is_answered(session)


async def test_end_with_their_life(session: Session) -> None:
    await session.commit(message(1), **MANY)
    await session.be_reborn(message(1), incarnation=new_incarnation())
    assert await is_answered(session)
    await session.commit(message(2), **MANY)
    await session.die()
    await session.commit(message(1))
    assert await is_answered(session)


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
async def test_are_those_of_the_server_that_changed_them_last(open_store: OpenStore, session: Session) -> None:
    record = await session.commit(message(1), **MANY)
    other = Session(await open_store(), session.key, record)
    await other.commit(message(2), **open_calls(MAX_OPEN_CALLS, first=9))
    late = change_of(session.key, record, message(2, id="late"))
    assert await session.store.commit([late]) == [Conflict(other.record)]
    session.record = other.record
    await session.commit(message(3))
    assert await is_answered(session)

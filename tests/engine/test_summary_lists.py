"""What lists and watches tell of summaries, and how long summaries live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.engine import erasing, histories, summaries, watching
from memoryd_server.engine.changes import SessionUpdate
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import MessageList
from memoryd_server.engine.summary_messages import HEADING
from memoryd_server.engine.watching import Happening, WatchKind
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Policy, Retention, StoredMessage, WindowOptions
from tests.engine.folded_sessions import (
    SECOND,
    FoldedSession,
    Held,
    KnowingSummarizer,
    folding_policy,
    is_covered,
    pass_time,
    server_on,
)
from tests.engine.messages import histories as any_histories
from tests.engine.messages import system, user

ACTIVE, ALL = 1, 2
ASCENDING, DESCENDING = 1, 2


async def begin(policy: Policy) -> FoldedSession:
    summarizer = KnowingSummarizer()
    return FoldedSession(server_on(InMemoryStore(), summarizer), summarizer, policy)


async def pages(
    session: FoldedSession, *, page_size: int = 0, order: int = 0, view: int = 0, from_seq: int = 0
) -> list[Sequence[StoredMessage]]:
    """All pages of a list."""
    token, found = "", []
    while True:
        page, token = await histories.list_messages(
            session.runtime, MessageList(session.key, page_size, token, order, view, from_seq=from_seq)
        )
        found.append(page)
        if not token:
            return found


@given(st.data())
@settings(max_examples=60)
async def test_the_active_view_shows_the_summary_and_then_what_it_does_not_stand_for(data: st.DataObject) -> None:
    """Page by page, in both orders; the view of all messages has no summary (design section 3)."""
    retention = data.draw(st.sampled_from(Retention), label="retention")
    session = await begin(folding_policy(data.draw(st.integers(2, 6)), retention=retention))
    for _ in range(2):
        await session.append(*data.draw(any_histories(12).filter(bool), label="appended"))
        await session.check_window()
    link = (await session.record()).summary
    stored = await session.stored()
    active = [message.seq for message in stored if link is None or not is_covered(link, message)]
    shown = [] if link is None else [0]
    for size in (1, 2, 100):
        for order, seqs in ((ASCENDING, active), (DESCENDING, active[::-1])):
            found = await pages(session, page_size=size, order=order, view=ACTIVE)
            assert [message.seq for page in found for message in page] == [*shown, *seqs]
            assert all(len(page) <= size for page in found)
            assert all(page for page in found[:-1])
        found = await pages(session, page_size=size, view=ALL)
        assert [message.seq for page in found for message in page] == [message.seq for message in stored]
    if link is not None:
        summary = (await pages(session, view=ACTIVE))[0][0]
        assert summary.id == (await summaries.get(session.runtime, session.key)).id
        assert summary.content is not None
        assert HEADING.strip() in summary.content


async def test_a_list_that_is_narrowed_shows_no_summary() -> None:
    session = await begin(folding_policy(4))
    await session.append(system("be brief"), *(user(str(number)) for number in range(8)))
    await session.load()
    assert [message.seq for message in (await pages(session, from_seq=2))[0]] == [8, 9]
    assert [message.seq for message in (await pages(session, from_seq=2, view=ALL))[0]] == list(range(2, 10))
    assert [message.seq for message in (await pages(session))[0]] == [0, 1, 8, 9]


async def test_the_chain_tells_where_each_summary_comes_from() -> None:
    session = await begin(folding_policy(4, keep=1))
    for _ in range(3):
        await session.append(*(user("word " * 9) for _ in range(5)))
        await session.load()
    views = await summaries.list_(session.runtime, session.key)
    assert [view.is_current for view in views] == [True, False, False]
    assert [view.previous_id for view in views] == [*(view.id for view in views[1:]), ""]
    spans = [(view.summary.from_seq, view.summary.to_seq, view.summary.messages) for view in reversed(views)]
    assert spans == [(1, 4, 4), (5, 9, 5), (10, 14, 5)]
    assert [(view.link.from_seq, view.link.to_seq) for view in views] == [(1, 14), (1, 9), (1, 4)]
    for newer, older in pairwise(view.summary for view in views):
        assert newer.input_tokens > newer.output_tokens > 0
        assert newer.created >= older.created
        assert newer.duration >= 0
    for view in views:
        assert await summaries.get(session.runtime, session.key, view.id) == view
    with pytest.raises(RequestError) as refused:
        await summaries.get(session.runtime, session.key, "summary-other-1")
    assert refused.value.reason == Reason.SUMMARY_NOT_FOUND


async def test_only_the_current_summary_is_taken_back_and_only_while_originals_are_kept() -> None:
    session = await begin(folding_policy(4, keep=1))
    for _ in range(2):
        await session.append(*(user("word") for _ in range(5)))
        await session.load()
    current, earlier = await summaries.list_(session.runtime, session.key)
    with pytest.raises(RequestError) as refused:
        await summaries.revert(session.runtime, session.key, earlier.id)
    assert refused.value.reason == Reason.ETAG_MISMATCH
    assert await summaries.revert(session.runtime, session.key, current.id) is not None
    await session.check()
    await session.adopt(folding_policy(4, keep=1, retention=Retention.DELETE))
    await session.append(user("word"))
    await session.load()
    with pytest.raises(RequestError) as refused:
        await session.revert()
    assert refused.value.reason == Reason.ORIGINALS_REMOVED
    await session.check()


async def _next(session: FoldedSession, token: str) -> Happening:
    """The first that a watch tells which resumes there."""
    async with aclosing(watching.watch(session.runtime, session.key, token)) as watch, asyncio.timeout(20):
        async for answer in watch:
            if answer.happenings:
                return answer.happenings[0]
    raise AssertionError("a watch ends by an error alone")


async def test_a_watch_tells_each_summary_once_in_its_place_and_resumes_behind_it() -> None:
    session = await begin(folding_policy(4, keep=1))
    await session.append(user("first"))
    async with aclosing(watching.watch(session.runtime, session.key)) as watch:
        token = (await anext(watch)).resume_token
    await session.append(*(user(str(number)) for number in range(4)))
    await session.load()
    await session.append(user("next"))
    await session.revert()
    told: list[tuple[str, int, int]] = []
    while len(told) < 7:
        happening = await _next(session, token)
        told.append((happening.kind.name, happening.from_seq, happening.to_seq))
        token = happening.resume_token
    assert told == [
        *(("APPENDED", seq, seq) for seq in range(2, 6)),
        ("SUMMARIZED", 1, 4),
        ("APPENDED", 6, 6),
        ("SUMMARIZED", 0, 0),
    ]
    await session.append(user("last"))
    happening = await _next(session, token)
    assert (happening.kind, happening.from_seq) == (WatchKind.APPENDED, 7)


async def test_an_erasure_takes_summaries_along_and_counts_them() -> None:
    session = await begin(folding_policy(4))
    await session.append(*(user(str(number)) for number in range(8)))
    await session.load()
    incarnation = (await session.record()).incarnation
    assert len(await session.chain()) == 1
    await erasing.erase_user(session.runtime, session.key.tenant, "user")
    assert await session.runtime.store.read_summaries(session.key, incarnation, [1]) is None
    session.living.clear()
    await session.append(*(user(str(number)) for number in range(3)))
    with pytest.raises(RequestError) as refused:
        await summaries.get(session.runtime, session.key)
    assert refused.value.reason == Reason.SUMMARY_NOT_FOUND
    await session.check()


async def test_a_summary_is_gone_with_its_session_also_one_that_comes_too_late() -> None:
    """An expired session is gone with all that belonged to it; the next append begins a new life (invariant 18)."""
    session = await begin(folding_policy(4, keep=1))
    await session.append(*(user(str(number)) for number in range(5)))
    await session.load()
    await histories.update_session(session.runtime, session.key, SessionUpdate(ttl=60 * SECOND))
    await session.append(*(user(str(number)) for number in range(5)))
    held = Held()
    session.summarizer.behaviours.append(held)
    loading = asyncio.create_task(session.load())
    await held.begun.wait()
    pass_time(61, session.runtime)
    held.let_go.set()
    for call in (loading, session.load(), summaries.get(session.runtime, session.key)):
        with pytest.raises(RequestError) as refused:
            await call
        assert refused.value.reason == Reason.SESSION_NOT_FOUND
    session.living.clear()
    assert await session.append(user("new")) == [1]
    assert await session.chain() == []
    await session.check_window()
    await session.check()


async def test_a_smaller_window_is_told_what_it_does_not_hold() -> None:
    session = await begin(folding_policy(4))
    await session.append(*(user(str(number)) for number in range(8)))
    await session.load()
    assert (await session.record()).summary is not None
    window, stats = await session.load(WindowOptions(limit=3))
    assert [message.seq for message in window] == [0, 7, 8]
    assert stats.uncovered == 1

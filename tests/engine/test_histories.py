"""Appends and lists through the engine's own calls (invariants 1, 2 and 8; design section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server import limits
from memoryd_server.engine import histories, tokens
from memoryd_server.engine.changes import SessionSettings
from memoryd_server.engine.content import Text
from memoryd_server.engine.errors import Reason, RequestError
from memoryd_server.engine.histories import Append, MessageList
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.runtime import Runtime
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Role, StoredMessage
from tests.engine import reference
from tests.engine.messages import KEY, spoken, system, user
from tests.engine.sessions import runtime_on

LONG = "The quick brown fox jumps over the lazy dog. " * 4_000
"""Over `tokens.INLINE_BYTES`."""


def fresh() -> Runtime:
    return runtime_on(InMemoryStore(), tokens.O200K_BASE)


class TestAppend:
    async def test_a_session_is_counted_in_the_vocabulary_that_it_began_with(self) -> None:
        """Whatever later appends, or other servers, suppose (invariant 8)."""
        runtime = fresh()
        other = runtime_on(runtime.store, tokens.ESTIMATE)  # type: ignore[arg-type]
        settings_ = SessionSettings(tokenizer=tokens.CL100K_BASE)
        answers = [
            *await histories.append(runtime, Append(KEY, [user("日本語")], settings=settings_)),
            *await histories.append(other, Append(KEY, [user("日本語")])),
            *await histories.append(runtime, Append(KEY, [user("日本語")], settings=SessionSettings())),
        ]
        price = reference.price_in_tokens(tokens.counter(tokens.CL100K_BASE), None, (Text("日本語"),))
        assert [answer.tokens for answer in answers] == [price] * 3
        assert (await histories.get_session(runtime, KEY)).tokenizer == tokens.CL100K_BASE

    async def test_two_births_at_once_agree_on_one_vocabulary(self) -> None:
        runtime = fresh()
        names = [tokens.CL100K_BASE, tokens.ESTIMATE, tokens.O200K_BASE] * 3
        wanted = [Append(KEY, [user("日本語")], settings=SessionSettings(tokenizer=name)) for name in names]
        answers = await asyncio.gather(*(histories.append(runtime, append) for append in wanted))
        record = await histories.get_session(runtime, KEY)
        price = reference.price_in_tokens(tokens.counter(record.tokenizer), None, (Text("日本語"),))
        assert {answer.tokens for (answer,) in answers} == {price}
        assert record.tokens == 9 * price

    async def test_long_texts_are_counted_as_short_ones_are(self) -> None:
        """Off the event loop (invariant 8)."""
        runtime = fresh()
        (answer,) = await histories.append(runtime, Append(KEY, [spoken(Role.USER, Text(LONG))]))
        assert answer.tokens == 4 + tokens.counter(tokens.O200K_BASE)(LONG)

    async def test_the_server_makes_ids_where_the_caller_gives_none(self) -> None:
        runtime = fresh()
        answers = await histories.append(runtime, Append(KEY, [user("a"), user("b", id="mine"), user("c")]))
        ids = [answer.id for answer in answers]
        assert ids[1] == "mine"
        assert len(set(ids)) == 3
        for answer in answers:
            assert (await histories.get_message(runtime, KEY, seq=None, id_=answer.id)).seq == answer.seq

    @pytest.mark.parametrize("messages", [[], [user("x", id="same"), user("y", id="same")], [spoken(Role.TOOL)]])
    async def test_a_batch_that_is_refused_begins_no_session(self, messages: list[IncomingMessage]) -> None:
        """Nothing is written (design section 3)."""
        runtime = fresh()
        with pytest.raises(RequestError):
            await histories.append(runtime, Append(KEY, messages))
        with pytest.raises(RequestError) as missing:
            await histories.get_session(runtime, KEY)
        assert missing.value.reason == Reason.SESSION_NOT_FOUND


@contextmanager
def _short_scans(seqs: int) -> Iterator[None]:
    """A bound of the seqs that a filtered page examines which short histories reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_PAGE_SCAN", seqs)
        yield


async def _pages(runtime: Runtime, request: MessageList, most: int = 200) -> AsyncIterator[Sequence[StoredMessage]]:
    token = ""
    for _ in range(most):
        page, token = await histories.list_messages(runtime, replace(request, page_token=token))
        yield page
        if not token:
            return
    pytest.fail("the pages do not end")


async def _listed(runtime: Runtime, request: MessageList) -> list[int]:
    return [message.seq async for page in _pages(runtime, request) for message in page]


def _history(length: int) -> list[IncomingMessage]:
    """Roles and runs in turn."""
    roles = (Role.USER, Role.ASSISTANT, Role.SYSTEM)
    return [
        msgspec.structs.replace(spoken(roles[number % 3], Text(str(number))), run_id=f"run-{number % 2}")
        for number in range(length)
    ]


class TestList:
    @given(
        st.integers(1, 20),
        st.integers(0, 7),
        st.integers(1, 6),
        st.sampled_from([0, 1, 2]),
        st.frozensets(st.sampled_from([int(role) for role in Role]), max_size=2),
        st.sampled_from(["", "run-0", "run-1", "run-2"]),
        st.integers(0, 22),
        st.integers(0, 22),
        st.integers(0, 5),
    )
    @settings(max_examples=120)
    async def test_the_pages_hold_every_match_once_and_in_order(
        self,
        length: int,
        page_size: int,
        scan: int,
        order: int,
        roles: frozenset[int],
        run_id: str,
        from_seq: int,
        to_seq: int,
        cleared: int,
    ) -> None:
        """Whatever the filter, the order, the size of pages, and the bound of what one examines (AIP-158)."""
        runtime = fresh()
        if cleared:
            await histories.append(runtime, Append(KEY, _history(cleared)))
            await histories.clear(runtime, KEY)
        sent = _history(length)
        await histories.append(runtime, Append(KEY, sent))
        request = MessageList(KEY, page_size, "", order, 0, roles, run_id, from_seq, to_seq)
        with _short_scans(scan):
            found = await _listed(runtime, request)
        expected = [
            seq
            for seq, message in enumerate(sent, cleared + 1)
            if (not roles or message.role in roles)
            and (not run_id or message.run_id == run_id)
            and seq >= from_seq
            and (not to_seq or seq <= to_seq)
        ]
        assert found == (expected[::-1] if order == 2 else expected)

    @pytest.mark.parametrize("order", [1, 2])
    @pytest.mark.parametrize("run_id", ["", "run-1"])
    async def test_a_clear_between_two_pages_takes_its_messages_and_no_others(self, order: int, run_id: str) -> None:
        """However far the page's place lies before what is left."""
        runtime = fresh()
        await histories.append(runtime, Append(KEY, _history(20)))
        request = MessageList(KEY, 2, "", order, run_id=run_id)
        with _short_scans(4):
            pages = _pages(runtime, request)
            before = [message.seq for message in await anext(pages)]
            await histories.clear(runtime, KEY)
            await histories.append(runtime, Append(KEY, _history(6)))
            after = [message.seq async for page in pages for message in page]
        assert len(before) == 2
        later = [seq for seq in range(21, 27) if not run_id or seq % 2 == 0]
        assert after == (later if order == 1 else [])

    async def test_messages_that_are_appended_between_two_pages_come_at_the_end(self) -> None:
        """Nothing is told twice and nothing is passed over (invariant 1)."""
        runtime = fresh()
        await histories.append(runtime, Append(KEY, _history(5)))
        pages = _pages(runtime, MessageList(KEY, 2))
        seqs = [message.seq for message in await anext(pages)]
        await histories.append(runtime, Append(KEY, [system("later")]))
        seqs += [message.seq async for page in pages for message in page]
        assert seqs == [1, 2, 3, 4, 5, 6]

    async def test_a_token_of_another_list_is_refused(self) -> None:
        """A foreign token is PAGE_TOKEN_INVALID (design section 3)."""
        runtime = fresh()
        await histories.append(runtime, Append(KEY, _history(9)))
        _, token = await histories.list_messages(runtime, MessageList(KEY, 2))
        for other in (
            MessageList(KEY, 2, token, order=2),
            MessageList(KEY, 2, token, roles=frozenset({3})),
            MessageList(KEY, 2, token, run_id="run-1"),
            MessageList(KEY, 2, token, from_seq=1),
            MessageList(KEY, 2, token, to_seq=9),
            MessageList(KEY, 2, token, view=2),
            MessageList(KEY._replace(session_id="other"), 2, token),
            MessageList(KEY._replace(tenant="other"), 2, token),
        ):
            with pytest.raises(RequestError) as refused:
                await histories.list_messages(runtime, other)
            assert refused.value.reason == Reason.PAGE_TOKEN_INVALID

    async def test_the_size_of_the_next_page_may_differ(self) -> None:
        """(AIP-158)"""
        runtime = fresh()
        await histories.append(runtime, Append(KEY, _history(9)))
        _, token = await histories.list_messages(runtime, MessageList(KEY, 2))
        page, token = await histories.list_messages(runtime, MessageList(KEY, 500, token))
        assert [message.seq for message in page] == [3, 4, 5, 6, 7, 8, 9]
        assert token == ""

"""Clients of two servers on one database, all at once: some order of their calls explains all that they were answered
(`history_checker` tells how that is decided)."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import window_service_pb2 as window
from memoryd.v1.session_pb2 import SessionKey
from tests.adapters import EACH_SHARED_ADAPTER, Adapter
from tests.conftest import StartServer
from tests.service.call_mix import CallMix
from tests.service.conftest import Addresses
from tests.service.history_checker import Recorded, explain
from tests.service.in_process import AsyncStubs, connect, until
from tests.service.sequential_model import (
    Answer,
    Append,
    Appended,
    Call,
    Clear,
    Cleared,
    Fork,
    Forked,
    GetSession,
    Listed,
    ListMessages,
    LoadWindow,
    Message,
    Redact,
    Refused,
    Rewind,
    Rewound,
    Seen,
    Session,
    Window,
)
from tests.service.wire import refusal_of

CLIENTS: Final = 6
"""On one family of sessions: half of them at each server."""
CALLS: Final = 45
"""Of each client."""
HASTY: Final = 0.02
"""The share of calls that are given a few milliseconds, so that their outcome may stay unknown."""
SEEDS: Final = (1, 2)

ANSWERS: Final = (Appended, Cleared, Rewound, Seen, Forked, Listed, Window, Session, Refused)

_WORD: Final = re.compile(rb"word\d+")
_NOBODY_KNOWS: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class Family:
    """Sessions of one agent, their clients, and what these record."""

    def __init__(self, agent: str, seed: int) -> None:
        self.agent = agent
        self.seed = seed
        self.mix = CallMix(seed, ["a", "b"])
        self.history: list[Recorded] = []

    async def run_client(self, stubs: AsyncStubs, *, hasty: float = 0, otherwise: AsyncStubs | None = None) -> None:
        """Makes CALLS calls, at `otherwise` once the server is gone."""
        for _ in range(CALLS):
            call, random = self.mix.next(), self.mix.random
            timeout = random.uniform(0.001, 0.01) if random.random() < hasty else 30
            answer = await self.record(stubs, call, timeout)
            if answer is None and otherwise is not None:
                stubs = otherwise

    async def record(self, stubs: AsyncStubs, call: Call, timeout: float = 30) -> Answer | None:
        """Makes a call, and records it unless it was refused for contention and so changed nothing."""
        begun = time.perf_counter()
        try:
            answer = await self._carry_out(stubs, call, timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in _NOBODY_KNOWS:
                answer = None
            else:
                refusal = refusal_of(error)
                if refusal.reason == "CONTENTION":
                    return Refused(refusal.reason)
                answer = Refused(refusal.reason)
        self.history.append(Recorded(begun, time.perf_counter(), call, answer))
        self.mix.heard(call, answer)
        return answer

    async def read_all(self, stubs: AsyncStubs) -> None:
        for name in self.mix.sessions:
            await self.record(stubs, ListMessages(name))
            await self.record(stubs, LoadWindow(name, 1_000))
            await self.record(stubs, GetSession(name))

    async def _carry_out(self, stubs: AsyncStubs, call: Call, timeout: float) -> Answer:
        key = self._key(call.session)
        match call:
            case Append():
                appended = await stubs.histories.AppendMessages(
                    history.AppendMessagesRequest(
                        session=key,
                        messages=[encoded(message) for message in call.messages],
                        request_id=call.request_id,
                        expected_last_seq=call.expected_last_seq,
                    ),
                    timeout=timeout,
                )
                return Appended(tuple(message.seq for message in appended.messages))
            case Clear():
                request = history.ClearHistoryRequest(session=key, request_id=call.request_id)
                cleared = await stubs.histories.ClearHistory(request, timeout=timeout)
                return Cleared(cleared.cleared_message_count)
            case Rewind():
                rewound = await stubs.histories.RewindSession(
                    history.RewindSessionRequest(
                        session=key,
                        to_seq=call.to_seq,
                        request_id=call.request_id,
                        expected_last_seq=call.expected_last_seq,
                    ),
                    timeout=timeout,
                )
                return Rewound(rewound.removed_message_count, rewound.open_call_count)
            case Redact():
                redaction = history.RedactMessageRequest(session=key, seq=call.seq)
                return seen((await stubs.histories.RedactMessage(redaction, timeout=timeout)).message)
            case Fork():
                forked = await stubs.histories.ForkSession(
                    history.ForkSessionRequest(
                        source=key,
                        target=self._key(call.target),
                        through_seq=call.through_seq,
                        request_id=call.request_id,
                    ),
                    timeout=timeout,
                )
                return Forked(forked.copied_message_count, forked.last_seq)
            case ListMessages():
                listing = history.ListMessagesRequest(session=key, page_size=1_000)
                page = await stubs.histories.ListMessages(listing, timeout=timeout)
                assert not page.next_page_token
                return Listed(tuple(map(seen, page.messages)))
            case LoadWindow():
                load = window.LoadWindowRequest(session=key)
                load.options.limit = call.limit
                loaded = await stubs.windows.LoadWindow(load, timeout=timeout)
                stats = loaded.stats
                return Window(tuple(map(seen, loaded.messages)), stats.history_message_count, stats.last_seq)
            case GetSession():
                request_ = history.GetSessionRequest(session=key)
                found = (await stubs.histories.GetSession(request_, timeout=timeout)).session
                return Session(
                    found.message_count,
                    found.last_seq,
                    found.open_call_count,
                    found.open_message_count,
                    found.orphan_message_count,
                )

    def _key(self, session: str) -> SessionKey:
        return SessionKey(agent=self.agent, session_id=session)


def encoded(message: Message) -> pb.Message:
    said = pb.Part(text=message.word)
    if message.arms:
        called = pb.ToolCall(id=message.arms, name="f", arguments=f'"{message.word}"')
        return pb.Message(
            id=message.id, role=pb.ROLE_ASSISTANT, content=pb.Content(parts=[said, pb.Part(tool_call=called)])
        )
    if message.answers:
        result = pb.Part(tool_result=pb.ToolResult(call_id=message.answers, parts=[said]))
        return pb.Message(id=message.id, role=pb.ROLE_TOOL, content=pb.Content(parts=[result]))
    return pb.Message(id=message.id, role=pb.ROLE_USER, content=pb.Content(parts=[said]))


def seen(message: pb.Message) -> Seen:
    """A message as the model sees it. A word that a redaction left anywhere counts as said."""
    words = set(_WORD.findall(message.SerializeToString()))
    assert len(words) <= 1
    return Seen(message.seq, "".join(word.decode() for word in words), message.HasField("redaction"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_some_order_explains_all_answers(pair: Addresses, agent: str, seed: int) -> None:
    """Appends, clears, rewinds, redactions, forks and reads, some of them given up by their callers and repeated."""
    family = Family(agent, seed)
    async with AsyncExitStack() as opened:
        stubs = [AsyncStubs(await opened.enter_async_context(connect(pair[client % 2]))) for client in range(CLIENTS)]
        await asyncio.gather(*(family.run_client(each, hasty=HASTY) for each in stubs))
        await family.read_all(stubs[0])
        await family.read_all(stubs[1])
    check(family)


def check(family: Family) -> None:
    """Some order explains the history, which holds answers of all kinds."""
    kinds = Counter(type(each.answer).__name__ for each in family.history)
    print(f"seed {family.seed}: {dict(kinds)}")
    assert kinds.keys() >= {kind.__name__ for kind in ANSWERS}
    problem = explain(family.history)
    assert problem is None, f"seed {family.seed}: {problem}"


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER)
async def test_some_order_explains_all_answers_when_a_server_is_killed(
    adapter: Adapter, start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    """In the middle, the first server ends as in a crash: what it had not answered happened or not, and nothing of it
    is half done. Its clients go on at the other one, and repeat what can be repeated."""
    family = Family(agent, seed=3)
    with adapter.emptied(tmp_path) as url:
        arguments = ("--store", f"default={url}", "--tokenizer", "estimate")
        mortal, other = start_server(*arguments), start_server(*arguments)
        async with AsyncExitStack() as opened:
            stubs = [
                AsyncStubs(await opened.enter_async_context(connect(server.address)))
                for server in (mortal, other)
                for _ in range(CLIENTS // 2)
            ]
            busy = asyncio.gather(*(family.run_client(each, otherwise=stubs[-1]) for each in stubs))
            await until(lambda: len(family.history) > CLIENTS * CALLS // 3)
            mortal.kill()
            await busy
            await family.read_all(stubs[-1])
    assert sum(each.answer is None for each in family.history) >= 1
    check(family)

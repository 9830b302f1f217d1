"""What calls cost, counted in steps and not in time (invariant 17): a history that ends in thousands of orphans or open
groups, or that is long, or stands among many sessions, makes nothing dearer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event, make_url
from sqlalchemy.engine import Engine

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from memoryd_server.stores.base import Store
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.sql.sqlite import SQLiteStore
from tests.service.in_process import AsyncStubs, serving
from tests.service.wire import Stubs, calls, new_key, results, seqs, text

ENDING: Final = 5_000
"""How many orphans or open groups a history ends in, where costs are measured."""

HIDDEN: Final = 1_000
"""And where they are not: many times what a window shows, and what a record keeps of open calls."""

SHOWN: Final = 20

ENDINGS: Final[dict[str, Callable[[int], pb.Message]]] = {
    "orphans": lambda number: results(f"nobody {number}"),
    "open groups": lambda number: calls(f"waiting {number}"),
    "open groups of one id": lambda number: calls("again"),
    "ordinary messages": lambda number: text(f"{number}"),
}


def beginning() -> list[pb.Message]:
    """A conversation of 40 messages, half of them in tool groups."""
    messages = [text("rules", pb.ROLE_SYSTEM)]
    for number in range(10):
        messages += [text(f"question {number}"), calls(f"c{number}"), results(f"c{number}")]
        messages.append(text(f"answer {number}", pb.ROLE_ASSISTANT))
    return messages


def batches(messages: Sequence[pb.Message]) -> Iterator[Sequence[pb.Message]]:
    for start in range(0, len(messages), 250):
        yield messages[start : start + 250]


class TestWindowsOfHistoriesThatEndBadly:
    @pytest.mark.parametrize("ending", ["orphans", "open groups", "open groups of one id"])
    def test_are_those_of_what_is_before(self, stubs: Stubs, agent: str, ending: str) -> None:
        """A thousand messages that no window shows do not end it."""
        key = new_key(agent)
        stubs.append(key, *beginning())
        before = stubs.load(key, limit=SHOWN)
        for batch in batches([ENDINGS[ending](number) for number in range(HIDDEN)]):
            stubs.append(key, *batch)
        after = stubs.load(key, limit=SHOWN)

        assert list(after.messages) == list(before.messages)
        assert len(after.messages) == SHOWN
        assert stubs.load(key, mode=policies.WINDOW_MODE_TOKENS, limit=200).messages
        explained = stubs.load(key, limit=SHOWN, explain=True).stats.left_out
        assert explained.orphan_result_count + explained.open_tool_call_count == HIDDEN
        assert seqs(explained.messages) == list(range(41 + HIDDEN, 41 + HIDDEN - 100, -1))  # type: ignore[arg-type]
        assert stubs.session(key).open_call_count <= 256
        # A call that is among the newest still waits for its result.
        if ending == "open groups":
            stubs.append(key, results(f"waiting {HIDDEN - 1}"))
            assert seqs(stubs.load(key, limit=2, pin_system=False).messages) == [41 + HIDDEN, 42 + HIDDEN]


class Steps:
    """Counts the steps of SQLite's machine on all connections of this process, in tens."""

    EVERY: Final = 10

    def __init__(self) -> None:
        self.count = 0

    def attach(self, connection: Any, _: object) -> None:
        connection.set_progress_handler(self._step, self.EVERY)

    def _step(self) -> int:
        self.count += 1
        return 0


class Calls:
    """Counts the calls of Python functions in this thread, in which the in-memory store does all its work."""

    def __init__(self) -> None:
        self.count = 0

    def _called(self, frame: Any, kind: str, argument: Any) -> None:
        del frame, argument
        self.count += kind in ("call", "c_call")

    def __enter__(self) -> Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


Measure = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]


@pytest.fixture(params=["sqlite", "in_memory"])
async def measured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[AsyncStubs, Measure]]:
    """A server in this process, and what measures the work that a call makes for its store: the median of five."""
    store: Store
    steps = Steps()
    if request.param == "sqlite":
        event.listen(Engine, "connect", steps.attach)
        store = SQLiteStore(make_url(f"sqlite:///{tmp_path / 'memoryd.db'}"))
    else:
        store = InMemoryStore()

    async def work_of(call: Callable[[], Awaitable[Any]]) -> int:
        counts = []
        for _ in range(5):
            if request.param == "sqlite":
                before = steps.count
                await call()
                counts.append(steps.count - before)
            else:
                with Calls() as counted:
                    await call()
                counts.append(counted.count)
        return sorted(counts)[2]

    async with serving(store) as (_, stubs):
        yield stubs, work_of
    if request.param == "sqlite":
        event.remove(Engine, "connect", steps.attach)


async def append(stubs: AsyncStubs, key: session.SessionKey, messages: Sequence[pb.Message]) -> None:
    for batch in batches(messages):
        await stubs.histories.AppendMessages(history.AppendMessagesRequest(session=key, messages=batch))


Operation = Callable[[AsyncStubs, session.SessionKey], Awaitable[Any]]


def loading(**options: Any) -> Operation:
    request = policies.WindowOptions(**options)
    return lambda stubs, key: stubs.windows.LoadWindow(window.LoadWindowRequest(session=key, options=request))


OPERATIONS: Final[dict[str, Operation]] = {
    "a window in messages": loading(limit=SHOWN),
    "a window in tokens": loading(mode=policies.WINDOW_MODE_TOKENS, limit=200),
    "a window that starts with a user": loading(limit=SHOWN - 1, start_with_user=True),
    "an append of one message": lambda stubs, key: stubs.histories.AppendMessages(
        history.AppendMessagesRequest(session=key, messages=[text("more", pb.ROLE_ASSISTANT)])
    ),
    "an append of a group": lambda stubs, key: stubs.histories.AppendMessages(
        history.AppendMessagesRequest(session=key, messages=[calls("g"), results("g")])
    ),
    "a page": lambda stubs, key: stubs.histories.ListMessages(
        history.ListMessagesRequest(session=key, page_size=SHOWN, order=history.LIST_ORDER_DESCENDING)
    ),
    "the session": lambda stubs, key: stubs.histories.GetSession(history.GetSessionRequest(session=key)),
}

MARGIN: Final = 1.25
"""Trees grow deeper by a level, a record by the calls that wait."""

FEW: Final = 60
"""What gRPC and the event loop do more or less from call to call."""


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_history_costs_the_same_however_it_ends(measured: tuple[AsyncStubs, Measure], ending: str) -> None:
    stubs, work_of = measured
    short, long = (session.SessionKey(agent="a", session_id=name) for name in ("short", "long"))
    few = 400  # more open calls than a record keeps, so that both records are as full as they get
    await append(stubs, short, [*beginning(), *(ENDINGS[ending](number) for number in range(few))])
    await append(stubs, long, [*beginning(), *(ENDINGS[ending](number) for number in range(ENDING))])

    before = {name: await work_of(partial(operation, stubs, short)) for name, operation in OPERATIONS.items()}
    after = {name: await work_of(partial(operation, stubs, long)) for name, operation in OPERATIONS.items()}
    assert dearer(before, after) == {}


async def test_a_session_costs_the_same_among_many(measured: tuple[AsyncStubs, Measure]) -> None:
    stubs, work_of = measured
    key = session.SessionKey(agent="a", session_id="mine")
    await append(stubs, key, beginning())
    before = {name: await work_of(partial(operation, stubs, key)) for name, operation in OPERATIONS.items()}
    for number in range(1_000):
        await append(stubs, session.SessionKey(agent="a", session_id=f"other {number}"), [text("one")])

    after = {name: await work_of(partial(operation, stubs, key)) for name, operation in OPERATIONS.items()}
    assert dearer(before, after) == {}


def dearer(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The operations that cost more than before, with both counts."""
    return {name: (before[name], after[name]) for name in OPERATIONS if after[name] > MARGIN * before[name] + FEW}

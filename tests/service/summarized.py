"""What tests of summaries share: an endpoint that a test turns as it likes, servers that use it, policies."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import policy_pb2 as policies
from memoryd.v1 import session_pb2 as session
from memoryd.v1 import window_service_pb2 as window
from memoryd.v1.message_pb2 import ROLE_ASSISTANT
from tests.service import short_leases
from tests.service.wire import Stubs, new_key, seqs, text
from tests.summarizers.faulty_endpoint import GOOD, FaultyEndpoint, Received, Reply

SHORT_LEASES: Final = (sys.executable, short_leases.__file__)
"""The wrapper of a server whose folds are free again soon after it was killed."""

HEADING: Final = "[CONVERSATION SUMMARY]\n"

KEEP: Final = policies.RETENTION_KEEP
DELETE: Final = policies.RETENTION_DELETE
CURRENT: Final = window.SUMMARY_STATE_CURRENT
PENDING: Final = window.SUMMARY_STATE_PENDING
FAILED: Final = window.SUMMARY_STATE_FAILED

TURNS: Final = (
    ("My project is called Atlas.", "Noted: the project is called Atlas."),
    ("It ships on Friday.", "Atlas ships on Friday, then."),
    ("The team is Ada, Grace and Linus.", "Three people: Ada, Grace and Linus."),
    ("What is the project called, and when does it ship?", "Atlas, and on Friday."),
)


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


class Endpoint:
    """An OpenAI-compatible endpoint on a thread of its own. `reply` answers all requests until another one is set."""

    def __init__(self) -> None:
        self.reply: Reply = GOOD
        self._endpoint = FaultyEndpoint(self._answer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._opened = asyncio.Event()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        await self.reply(writer)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._endpoint.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._endpoint.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def hold(self, then: Reply = GOOD) -> None:
        """Keeps requests waiting from now on, until `release`."""
        opened = self._opened = asyncio.Event()

        async def reply(writer: asyncio.StreamWriter) -> None:
            await opened.wait()
            await then(writer)

        self.reply = reply

    def release(self) -> None:
        """Answers those that wait; later ones do not wait."""
        self.reply = GOOD
        self._loop.call_soon_threadsafe(self._opened.set)

    def about(self, words: str) -> list[Received]:
        """The requests so far with these words in them."""
        return [received for received in tuple(self._endpoint.received) if words in json.dumps(received.body)]

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of a server that summarizes with it: one attempt each, so that failures are told soon."""
        return {
            "MEMORYD_OPENAI__BASE_URL": self._endpoint.url,
            "MEMORYD_OPENAI__MODEL": "model",
            "MEMORYD_OPENAI__KEY_VARIABLE": "",
            "MEMORYD_OPENAI__ATTEMPTS": "1",
        }


def policy_of(summarizer: str = "", *, limit: int = 4, tokens: bool = False, **summary: Any) -> policies.Policy:
    """A policy with summaries; `summary` are fields of SummaryPolicy."""
    mode = policies.WINDOW_MODE_TOKENS if tokens else policies.WINDOW_MODE_MESSAGES
    return policies.Policy(
        window=policies.WindowOptions(mode=mode, limit=limit),
        summary=policies.SummaryPolicy(summarizer=summarizer, **summary),
    )


def set_policy(stubs: Stubs, key: session.SessionKey, summarizer: str = "", **fields: Any) -> None:
    """Stores a policy with summaries for a session that is there; `fields` are those of `policy_of`."""
    changed = session.Session(key=key, policy=policy_of(summarizer, **fields))
    stubs.histories.UpdateSession(history.UpdateSessionRequest(session=changed), timeout=30)


def load(
    stubs: Stubs, key: session.SessionKey, *, wait: bool | None = None, timeout: float = 30
) -> window.LoadWindowResponse:
    """Loads the window of the stored policy."""
    return stubs.windows.LoadWindow(window.LoadWindowRequest(session=key, wait_for_summary=wait), timeout=timeout)


def said(message: Any) -> str:
    """The texts of a message."""
    return "".join(part.text for part in message.content.parts)


def texts(answer: window.LoadWindowResponse) -> list[str]:
    """What the messages of a window say."""
    return [said(message) for message in answer.messages]


def converse(stubs: Stubs, key: session.SessionKey, retention: policies.Retention.ValueType) -> None:
    """Holds the reference conversation, with a window of four messages, loaded before each answer."""
    settings = history.SessionSettings(policy=policy_of("extractive", limit=4, retention=retention))
    for said, answered in TURNS:
        stubs.append(key, text(said), create=settings)
        load(stubs, key)
        stubs.append(key, text(answered, role=ROLE_ASSISTANT))
    load(stubs, key)


def check_reference(stubs: Stubs, key: session.SessionKey, retention: policies.Retention.ValueType) -> None:
    """The reference conversation's window, and what the history still lists."""
    answer = load(stubs, key)
    summary, *raw = texts(answer)
    assert summary.startswith(HEADING)
    assert "Atlas" in summary
    assert "Friday" in summary
    assert raw == [TURNS[2][1], *TURNS[3]]
    assert answer.stats.summary_state == CURRENT
    assert answer.stats.uncovered_message_count == 0
    listed = seqs(stubs.messages(key, view=history.MESSAGE_VIEW_ALL))
    assert listed == ([1, 2, 3, 4, 5, 6, 7, 8] if retention == KEEP else [6, 7, 8])
    assert seqs(stubs.messages(key)) == [0, 6, 7, 8]
    newest = stubs.chain(key)[0]
    assert newest.covered_from_seq == 1
    assert newest.covered_message_count == newest.to_seq == 5
    assert newest.originals_removed == (retention == DELETE)
    assert answer.stats.summary_id == newest.id


def waiting(stubs: Stubs, agent: str, **policy: Any) -> session.SessionKey:
    """A session whose next summary waits for a client."""
    key = new_key(agent)
    stubs.append(key, *(text(f"Fact {number} of Atlas.") for number in range(1, 7)))
    set_policy(stubs, key, "client", **policy)
    assert load(stubs, key).stats.summary_state == PENDING
    return key

"""A session on the in-memory store that engine tests append to and load from, beside what the reference makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memoryd_server.engine import changes, loading, replay, rewinding, tokens
from memoryd_server.engine.changes import AppendInput, SessionSettings
from memoryd_server.engine.histories import Append, prepare
from memoryd_server.engine.incoming import IncomingMessage
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.runtime import Defaults, Runtime
from memoryd_server.engine.windows import WindowStats
from memoryd_server.stores.base import Change, Committed, StoreInfo
from memoryd_server.stores.memory import InMemoryStore
from memoryd_server.stores.records import Lookup, Record, SessionKey, StoredMessage, WindowOptions
from tests.engine import reference
from tests.engine.messages import KEY

SECRET = b"secret of the engine's own tests"
TIME = 1_700_000_000_000_000
"""Some microsecond."""


def append_input(
    messages: Sequence[IncomingMessage],
    *,
    key: SessionKey = KEY,
    tokenizer: str = tokens.ESTIMATE,
    request_id: str = "",
    expected_last_seq: int | None = None,
    settings: SessionSettings = SessionSettings(),
    made: str = "made",
) -> AppendInput:
    """What the engine works out before it looks at the session; `made` begins the ids that the server makes."""
    append = Append(key, messages, request_id, expected_last_seq, settings)
    new_ids = [message.id or f"{made}-{index}" for index, message in enumerate(messages)]
    return prepare(append, new_ids, (SECRET,), tokenizer, tokenizer)


def plan(
    wanted: AppendInput, record: Record | None, known: Sequence[Lookup] = ()
) -> tuple[Change | None, Sequence[replay.Appended]]:
    """`plan_append` at a fixed time."""
    return changes.plan_append(wanted, lambda: TIME, record, known)


def record_of(change: Change | None) -> Record:
    """The record that a change makes, which there is."""
    assert change is not None
    assert change.record is not None
    return change.record


def runtime_on(store: InMemoryStore, tokenizer: str = tokens.ESTIMATE) -> Runtime:
    """What a server holds of the store."""
    return Runtime("default", store, StoreInfo("in_memory", False, (), SECRET), Defaults(tokenizer=tokenizer))


@dataclass
class Conversation:
    """One session: what was appended, and what the store made of it."""

    tokenizer: str = tokens.ESTIMATE
    store: InMemoryStore = field(default_factory=InMemoryStore)
    record: Record | None = None
    sent: list[IncomingMessage] = field(default_factory=list)
    """All that was ever appended, by seq."""
    key: SessionKey = KEY

    def __post_init__(self) -> None:
        self.runtime = runtime_on(self.store, self.tokenizer)

    async def append(self, *messages: IncomingMessage) -> None:
        """Appends a batch."""
        if not messages:
            return
        wanted = append_input(messages, key=self.key, tokenizer=self.tokenizer, made=f"message-{len(self.sent)}")
        change, _ = plan(wanted, self.record)
        assert change is not None
        assert await self.store.commit([change]) == [Committed()]
        self.record = change.record
        self.sent += messages

    async def clear(self) -> None:
        """Takes all messages away."""
        change, _ = changes.plan_clear(self.record, self.key, TIME)
        if change is not None:
            assert await self.store.commit([change]) == [Committed()]
            self.record = change.record

    async def rewind(self, to_seq: int) -> None:
        """Takes away the messages behind a seq; `sent` keeps them, as seqs are never used again."""
        await rewinding.rewind(self.runtime, self.key, to_seq)
        loaded = await self.store.load(self.key)
        assert loaded is not None
        self.record = loaded.record

    async def stored(self) -> Sequence[StoredMessage]:
        """All messages of the history by seq, as they stand in the store now."""
        assert self.record is not None
        read = await self.store.read(self.key, self.record.incarnation, range(1, self.record.last_seq + 1))
        assert read is not None
        return read[1]

    def reference(self) -> reference.History:
        """The history as an independent reading of the design pairs it."""
        assert self.record is not None
        count = tokens.counter(self.tokenizer)
        history = self.sent[self.record.first_seq - 1 :]
        prices = [reference.price_in_tokens(count, message.name, message.parts or ()) for message in history]
        return reference.pair(history, prices, first_seq=self.record.first_seq)

    async def window(
        self, options: WindowOptions, *, explain: bool = False
    ) -> tuple[Sequence[StoredMessage], WindowStats]:
        """A window in one piece."""
        return await loading.load(self.runtime, WindowRequest(self.key, options, explain))

    async def streamed(self, options: WindowOptions) -> tuple[Sequence[StoredMessage], WindowStats]:
        """A window in pieces, put together."""
        messages: list[StoredMessage] = []
        async for piece, stats in loading.stream(self.runtime, WindowRequest(self.key, options)):
            messages += piece
            if stats is not None:
                return messages, stats
        raise AssertionError("a stream ends with the stats")


async def conversation(*messages: IncomingMessage, tokenizer: str = tokens.ESTIMATE) -> Conversation:
    """A session with these messages, appended one by one."""
    session = Conversation(tokenizer)
    for message in messages:
        await session.append(message)
    return session

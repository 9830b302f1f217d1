"""The async client: the same names and arguments as the sync one in `memoryd.client`, where they are described.

async with AsyncMemoryClient("127.0.0.1:7600") as memory:
    session = memory.session(agent="assistant", id="user_123")
    await session.append(user("My project is called Atlas."))
    messages = to_openai(await session.window(tokens=4_000))
    async for message in session.messages():
        print(message.seq, message.text)
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from memoryd import paging, plans
from memoryd.arguments import string
from memoryd.batches import batches
from memoryd.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT, Deadline, Target, channel_options
from memoryd.errors import typed_error
from memoryd.histories import (
    AgentInfo,
    AppendedMessage,
    ClearedAgent,
    ListOrder,
    MessageView,
    SessionInfo,
    SessionSettings,
)
from memoryd.ids import new_id
from memoryd.messages import Message, Role
from memoryd.methods import STUBS
from memoryd.policies import OpenCalls, Oversize, Policy
from memoryd.stores import StoreInfo
from memoryd.windows import Window

Result = TypeVar("Result")
Item = TypeVar("Item")


class AsyncConnection:
    """A channel, made by the first call in its event loop, and the loop that carries plans out on it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._channel: grpc.aio.Channel | None = None
        self._stubs: Mapping[type[Any], Any] = {}
        self._closed = False

    async def run(self, plan: plans.Plan[Result], timeout: float | None) -> Result:
        """Carries a plan out within the timeout (in seconds; None: the client's) and returns its result."""
        deadline = Deadline(self.target.timeout if timeout is None else timeout)
        try:
            call = next(plan)
            while True:
                try:
                    answer = await self._answer(call, deadline)
                except grpc.RpcError as failed:
                    call = plan.throw(typed_error(failed, self.target.address, call.method, deadline.seconds))
                else:
                    call = plan.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    async def iterate(self, pages: paging.Pages[Item], timeout: float | None) -> AsyncIterator[Item]:
        """Gives the items of all pages, each page read when the one before is used up, within the timeout."""
        while pages.left:
            for item in await self.run(pages.next_page(), timeout):
                yield item

    async def close(self) -> None:
        """Closes the channel."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def _answer(self, call: plans.Call[Any, Any], deadline: Deadline) -> Any:
        if self._closed:
            raise RuntimeError("this client is closed; make a new AsyncMemoryClient")
        if self._channel is None:
            self._channel = channel = self._opened()
            self._stubs = {stub: stub(channel) for stub in STUBS}
        method = getattr(self._stubs[call.method.stub], call.method.name)
        answer = method(call.request, timeout=deadline.left(), metadata=self.target.metadata)
        return [response async for response in answer] if call.streaming else await answer

    def _opened(self) -> grpc.aio.Channel:
        target = self.target
        options = channel_options(target.address)
        if target.credentials is None:
            return grpc.aio.insecure_channel(target.address, options=options)
        return grpc.aio.secure_channel(target.address, target.credentials, options=options)


class AsyncMemoryClient:
    """A client of a memoryd server for one event loop. Close it, or use it as an async context manager.

    Otherwise like `memoryd.MemoryClient`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        store: str | None = None,
        token: str | None = None,
        ca: str | PathLike[str] | bytes | None = None,
        tls: bool | None = None,
        allow_token_without_tls: bool = False,
    ) -> None:
        """Makes a client.

        Args:
            address: The server's `host:port`. With TLS, the host must be a name (or an IP address) of its certificate.
            timeout: The seconds that one operation may take; each operation can be given its own.
            store: The name of the server's store to use; None for the server's default.
            token: What shows the server who calls, made by `memoryd token create`; None for a server without tokens.
            ca: The certificates, in PEM, of the CA that vouches for the server: the path of their file, or its bytes.
            tls: Whether to encrypt; None for yes with a `ca` and no without. True without a `ca` trusts the public CAs
                that gRPC brings, or those of the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names.
            allow_token_without_tls: Sends the token unencrypted, also to another machine: for a network where nobody
                else can read. Without it, that is a ValueError.
        """
        self._connection = AsyncConnection(
            Target(address, timeout, store, token, ca, tls, allow_token_without_tls=allow_token_without_tls)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Operations after that raise RuntimeError."""
        await self._connection.close()

    def session(self, *, agent: str, id: str | None = None) -> "AsyncSession":
        """Names a session; nothing is called. Without an id a new one is made: read it from `AsyncSession.id`."""
        return AsyncSession(self._connection, agent, new_id() if id is None else id)

    def sessions(
        self, *, agent: str = "", user_id: str = "", page_size: int = 0, timeout: float | None = None
    ) -> AsyncIterator[SessionInfo]:
        """Lists sessions, newest activity first. Like `MemoryClient.sessions`."""
        return self._connection.iterate(
            paging.session_pages(agent=agent, user_id=user_id, page_size=page_size), timeout
        )

    def agent(self, name: str) -> "AsyncAgent":
        """Names an agent; nothing is called."""
        return AsyncAgent(self._connection, name)

    def agents(self, *, page_size: int = 0, timeout: float | None = None) -> AsyncIterator[AgentInfo]:
        """Lists the agents that have settings or sessions, by name."""
        return self._connection.iterate(paging.agent_pages(page_size=page_size), timeout)

    async def clear_agent(self, agent: str, *, timeout: float | None = None) -> ClearedAgent:
        """Takes away the messages of every session of an agent. Like `MemoryClient.clear_agent`."""
        return await self._connection.run(plans.clear_agent(agent), timeout)

    async def store(self, name: str | None = None, *, timeout: float | None = None) -> StoreInfo:
        """Tells about a store, and whether it answers now. Without a name: the one that this client uses."""
        return await self._connection.run(plans.store(name), timeout)

    async def stores(self, *, timeout: float | None = None) -> list[StoreInfo]:
        """Tells about all stores of the server, the default first, and whether they answer now."""
        return await self._connection.run(plans.stores(), timeout)

    async def store_type(self, *, timeout: float | None = None) -> str:
        """The kind of the store that this client uses, for example `sqlite`."""
        return (await self.store(timeout=timeout)).type


class AsyncSession:
    """One conversation of one agent. Made by `AsyncMemoryClient.session`; it begins with its first append."""

    def __init__(self, connection: AsyncConnection, agent: str, id: str) -> None:
        self._connection = connection
        self._key = plans.session_key(agent, id)

    @property
    def agent(self) -> str:
        """The agent that owns the conversation."""
        return self._key.agent

    @property
    def id(self) -> str:
        """The session's id."""
        return self._key.session_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(agent={self.agent!r}, id={self.id!r})"

    async def append(
        self,
        *messages: Message,
        request_id: str | None = None,
        expected_last_seq: int | None = None,
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> list[AppendedMessage]:
        """Appends messages, all or none. Like `Session.append`."""
        return await self._connection.run(
            plans.append(
                self._key, messages, request_id=request_id, expected_last_seq=expected_last_seq, create=create
            ),
            timeout,
        )

    async def append_all(
        self,
        messages: Iterable[Message],
        *,
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> list[AppendedMessage]:
        """Appends any number of messages, in as many calls as needed. Like `Session.append_all`."""
        appended: list[AppendedMessage] = []
        for batch in batches(messages):
            appended += await self.append(*batch, create=create, timeout=timeout)
        return appended

    def messages(
        self,
        *,
        order: ListOrder | str = ListOrder.ASCENDING,
        page_size: int = 0,
        roles: Iterable[Role | str] = (),
        run_id: str = "",
        from_seq: int = 0,
        to_seq: int = 0,
        from_time: datetime | None = None,
        to_time: datetime | None = None,
        view: MessageView | str = MessageView.ACTIVE,
        timeout: float | None = None,
    ) -> AsyncIterator[Message]:
        """Iterates over the session's messages by seq, reading page after page. Like `Session.messages`."""
        pages = paging.message_pages(
            self._key,
            order=order,
            page_size=page_size,
            roles=roles,
            run_id=run_id,
            from_seq=from_seq,
            to_seq=to_seq,
            from_time=from_time,
            to_time=to_time,
            view=view,
        )
        return self._connection.iterate(pages, timeout)

    async def message(self, *, seq: int | None = None, id: str | None = None, timeout: float | None = None) -> Message:
        """Reads one message, by seq or by id. SessionNotFound or MessageNotFound without it."""
        return await self._connection.run(plans.message(self._key, seq=seq, id=id), timeout)

    async def window(
        self,
        *,
        messages: int | None = None,
        tokens: int | None = None,
        pin_system: bool | None = None,
        start_with_user: bool | None = None,
        open_calls: OpenCalls | str | None = None,
        oversize: Oversize | str | None = None,
        explain: bool = False,
        timeout: float | None = None,
    ) -> Window:
        """Loads the newest part of the history that fits, of any size. Like `Session.window`."""
        options = plans.window_options(
            messages=messages,
            tokens=tokens,
            pin_system=pin_system,
            start_with_user=start_with_user,
            open_calls=open_calls,
            oversize=oversize,
        )
        return await self._connection.run(plans.window(self._key, options, explain=explain), timeout)

    async def info(self, *, timeout: float | None = None) -> SessionInfo:
        """Reads the session's settings and counts. SessionNotFound without the session."""
        return await self._connection.run(plans.session_info(self._key), timeout)

    async def update(
        self,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        policy: Policy | None = None,
        etag: str | None = None,
        timeout: float | None = None,
    ) -> SessionInfo:
        """Changes the session's settings. Like `Session.update`."""
        return await self._connection.run(
            plans.update_session(self._key, user_id=user_id, labels=labels, policy=policy, etag=etag), timeout
        )

    async def clear(self, *, timeout: float | None = None) -> int:
        """Takes away the session's messages, keeps its settings, and tells how many there were. Later seqs go on."""
        return await self._connection.run(plans.clear_session(self._key), timeout)


class AsyncAgent:
    """An agent and the settings of its sessions. Made by `AsyncMemoryClient.agent`; it exists by being named."""

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        self._connection = connection
        self.name = string(name, "name", "assistant")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def info(self, *, timeout: float | None = None) -> AgentInfo:
        """Reads the agent's settings; those of an agent that was never updated are empty."""
        return await self._connection.run(plans.agent_info(self.name), timeout)

    async def update(
        self, *, policy: Policy | None = None, etag: str | None = None, timeout: float | None = None
    ) -> AgentInfo:
        """Replaces the agent's policy. Like `Agent.update`."""
        return await self._connection.run(plans.update_agent(self.name, policy=policy, etag=etag), timeout)

"""The async client: the same names and arguments as the sync one in `memoryd.client`, where they are described.

async with AsyncMemoryClient("127.0.0.1:7600") as memory:
    session = memory.session(agent="assistant", id="user_123")
    await session.append(user("My project is called Atlas."))
    messages = to_openai(await session.window(tokens=4_000))
    async for message in session.messages():
        print(message.seq, message.text)
"""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from memoryd import memory_plans, paging, plans, run_plans
from memoryd.aio_memory import AsyncMemoryContext, AsyncMemoryFiles
from memoryd.aio_run import AsyncRun, AsyncRunClaims
from memoryd.arguments import string
from memoryd.batches import batches
from memoryd.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT, Metadata, Target, store_name
from memoryd.connections import AsyncConnection, is_cancelled
from memoryd.errors import MemorydError, SummaryTaskVoid, typed_error
from memoryd.events import WatchEvent
from memoryd.histories import (
    AgentInfo,
    AppendedMessage,
    ClearedAgent,
    ErasedUser,
    ListOrder,
    MessageView,
    RewoundSession,
    SessionInfo,
    SessionSettings,
)
from memoryd.ids import new_id
from memoryd.memories import MemoryStyle
from memoryd.memory_contexts import Rendering
from memoryd.memory_sources import ProjectFiles, StoredMemory, UserFiles
from memoryd.messages import Message, Role
from memoryd.methods import WATCH_MESSAGES
from memoryd.outages import log
from memoryd.policies import OpenCalls, Oversize, Policy
from memoryd.run_claiming import DEFAULT_POLL, Claiming
from memoryd.run_work import DEFAULT_LEASE, holder_name
from memoryd.runs import RunInfo, RunStatus, RunStep
from memoryd.stores import StoreInfo
from memoryd.summaries import SummarizedSession, Summary
from memoryd.summary_work import Asking, LeasedTask
from memoryd.v1.summary_service_pb2 import SummaryTask as ProtoSummaryTask
from memoryd.watching import NO_DEADLINE, Follower, broken_off
from memoryd.windows import Window

Result = TypeVar("Result")
Item = TypeVar("Item")


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
        await self._connection.close(failed=isinstance(error, Exception))

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

    async def erase_user(self, user_id: str, *, timeout: float | None = None) -> ErasedUser:
        """Deletes all that a user owns. Like `MemoryClient.erase_user`."""
        return await self._connection.run(plans.erase_user(user_id), timeout)

    async def render_context(
        self,
        stored: StoredMemory | None = None,
        *,
        user: UserFiles | StoredMemory | None = None,
        project: ProjectFiles | StoredMemory | None = None,
        agent: str = "",
        budget: int | None = None,
        style: MemoryStyle | str = MemoryStyle.ENCLOSED,
        timeout: float | None = None,
    ) -> AsyncMemoryContext:
        """Renders an agent's memory into one bounded block for its prompt. Like `MemoryClient.render_context`.

        Files are read in a thread.
        """
        rendering = Rendering(stored, user, project, agent=agent, budget=budget, style=style)
        metadata = self._connection.metadata
        if rendering.has_files:
            await asyncio.to_thread(rendering.read)
        response = await self._connection.run(rendering.plan(), timeout, metadata)
        return AsyncMemoryContext(self._connection, metadata, rendering, response)

    def files(self, *, user: str | None = None, project: str | None = None) -> AsyncMemoryFiles:
        """Names the memory files of a user or of a project in the store; nothing is called."""
        return AsyncMemoryFiles(self._connection, memory_plans.owner(user=user, project=project))

    def summary_tasks(
        self, *, agent: str, lease_for: float | None = None, wait: bool = True, retry_for: float | None = None
    ) -> "AsyncSummaryTasks":
        """Iterates over the summaries that an agent's sessions wait for. Like `MemoryClient.summary_tasks`.

        Here a task of asyncio that is cancelled leaves its summary task free for others, also without an `async with`.
        """
        asking = Asking(agent, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return AsyncSummaryTasks(self._connection, asking)

    async def summarize_with(
        self,
        function: Callable[[str], str | Awaitable[str]],
        *,
        agent: str,
        model: str = "",
        lease_for: float | None = None,
        wait: bool = True,
        retry_for: float | None = None,
    ) -> int:
        """Summarizes an agent's sessions with a function from prompt to text. Like `MemoryClient.summarize_with`.

        The function may be async; a plain one is run in a thread.
        """
        tasks = self.summary_tasks(agent=agent, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return await _summarize_with(tasks, function, model)

    def run(
        self,
        session: "AsyncSession",
        id: str | None = None,
        *,
        metadata: str = "",
        holder: str | None = None,
        lease: float = DEFAULT_LEASE,
        create: SessionSettings | None = None,
    ) -> AsyncRun:
        """Names a new run of a session, which begins when it is entered. Like `MemoryClient.run`."""
        key = run_plans.run_key(plans.key_of(session, AsyncSession), new_id() if id is None else id)
        beginning = run_plans.creation(key, metadata=metadata, holder=holder_name(holder), lease=lease, create=create)
        return AsyncRun(self._connection, self._connection.metadata, session, beginning)

    def claim(
        self, session: "AsyncSession", run_id: str, *, holder: str | None = None, lease: float = DEFAULT_LEASE
    ) -> AsyncRun:
        """Names a run to go on with, which is claimed when it is entered. Like `MemoryClient.claim`."""
        key = run_plans.run_key(plans.key_of(session, AsyncSession), run_id, "run_id")
        beginning = run_plans.claim(key, holder=holder_name(holder), lease=lease, request_id=new_id())
        return AsyncRun(self._connection, self._connection.metadata, session, beginning)

    def claims(
        self, agent: str, *, holder: str | None = None, lease: float = DEFAULT_LEASE, poll: float = DEFAULT_POLL
    ) -> AsyncRunClaims:
        """Iterates over the runs of an agent that any worker may take up. Like `MemoryClient.claims`."""
        claiming = Claiming(agent, holder=holder, lease=lease, poll=poll)
        return AsyncRunClaims(self._connection, partial(AsyncSession, self._connection), claiming)

    async def enqueue_run(
        self,
        session: "AsyncSession",
        id: str | None = None,
        *,
        metadata: str = "",
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> RunInfo:
        """Begins a run for any worker to claim. Like `MemoryClient.enqueue_run`."""
        key = run_plans.run_key(plans.key_of(session, AsyncSession), new_id() if id is None else id)
        return await self._connection.run(run_plans.enqueue(key, metadata=metadata, create=create), timeout)

    async def get_run(self, session: "AsyncSession", id: str, *, timeout: float | None = None) -> RunInfo:
        """Reads a run. RunNotFound or SessionNotFound without it."""
        return await self._connection.run(
            run_plans.get(run_plans.run_key(plans.key_of(session, AsyncSession), id)), timeout
        )

    def runs(
        self,
        *,
        agent: str | None = None,
        session: "AsyncSession | None" = None,
        statuses: Iterable[RunStatus | str] = (),
        page_size: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[RunInfo]:
        """Lists the runs of a session, or of all sessions of an agent. Like `MemoryClient.runs`."""
        key = None if session is None else plans.key_of(session, AsyncSession)
        pages = paging.run_pages(agent=agent, session=key, statuses=statuses, page_size=page_size)
        return self._connection.iterate(pages, timeout)

    async def update_run(
        self,
        info: RunInfo,
        *,
        status: RunStatus | str | None = None,
        reason: str = "",
        metadata: str | None = None,
        timeout: float | None = None,
    ) -> RunInfo:
        """Changes a run that was just read, as who does not hold it. Like `MemoryClient.update_run`."""
        plan = run_plans.update(info, status=status, reason=reason, metadata=metadata)
        return await self._connection.run(plan, timeout)

    async def delete_run(self, session: "AsyncSession", id: str, *, timeout: float | None = None) -> bool:
        """Deletes a run that has ended, with its steps. Like `MemoryClient.delete_run`."""
        return await self._connection.run(
            run_plans.delete(run_plans.run_key(plans.key_of(session, AsyncSession), id)), timeout
        )

    def run_steps(
        self, session: "AsyncSession", id: str, after: int = 0, *, page_size: int = 0, timeout: float | None = None
    ) -> AsyncIterator[RunStep]:
        """Iterates over a run's steps by number. Like `MemoryClient.run_steps`."""
        key = run_plans.run_key(plans.key_of(session, AsyncSession), id)
        return self._connection.iterate(paging.run_step_pages(key, after=after, page_size=page_size), timeout)

    async def store(self, name: str | None = None, *, timeout: float | None = None) -> StoreInfo:
        """Tells about a store, and whether it answers now. Without a name: the one that this client uses."""
        return await self._connection.run(plans.store(name), timeout)

    async def stores(self, *, timeout: float | None = None) -> list[StoreInfo]:
        """Tells about all stores of the server, the default first, and whether they answer now."""
        return await self._connection.run(plans.stores(), timeout)

    async def store_type(self, *, timeout: float | None = None) -> str:
        """The kind of the store that this client uses, for example `sqlite`."""
        return (await self.store(timeout=timeout)).type

    async def switch_store(self, name: str, *, timeout: float | None = None) -> StoreInfo:
        """Uses another store of the server from now on, once it has answered. Like `MemoryClient.switch_store`."""
        store = await self._connection.run(plans.reachable_store(store_name(name, "name")), timeout)
        self._connection.metadata = self._connection.target.metadata(name)
        return store


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
        messages: Message | Iterable[Message],
        *,
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> list[AppendedMessage]:
        """Appends any number of messages, in as many calls as needed. Like `Session.append_all`."""
        metadata = self._connection.metadata
        appended: list[AppendedMessage] = []
        for batch in batches(messages):
            plan = plans.append(self._key, batch, create=create)
            appended += await self._connection.run(plan, timeout, metadata)
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
        summary: bool | None = None,
        wait_for_summary: bool | None = None,
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
        plan = plans.window(self._key, options, summary=summary, wait_for_summary=wait_for_summary, explain=explain)
        return await self._connection.run(plan, timeout)

    async def info(self, *, timeout: float | None = None) -> SessionInfo:
        """Reads the session's settings and counts. SessionNotFound without the session."""
        return await self._connection.run(plans.session_info(self._key), timeout)

    async def update(
        self,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: timedelta | None = None,
        policy: Policy | None = None,
        etag: str | None = None,
        timeout: float | None = None,
    ) -> SessionInfo:
        """Changes the session's settings. Like `Session.update`."""
        return await self._connection.run(
            plans.update_session(self._key, user_id=user_id, labels=labels, ttl=ttl, policy=policy, etag=etag), timeout
        )

    async def clear(self, *, request_id: str | None = None, timeout: float | None = None) -> int:
        """Takes away the session's messages. Like `Session.clear`."""
        return await self._connection.run(plans.clear_session(self._key, request_id=request_id), timeout)

    async def rewind(
        self,
        to_seq: int,
        *,
        expected_last_seq: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> RewoundSession:
        """Takes away the messages after a seq. Like `Session.rewind`."""
        plan = plans.rewind(self._key, to_seq, expected_last_seq=expected_last_seq, request_id=request_id)
        return await self._connection.run(plan, timeout)

    async def redact(
        self, *, seq: int | None = None, id: str | None = None, reason: str = "", timeout: float | None = None
    ) -> Message:
        """Takes away a message's content for good. Like `Session.redact`."""
        return await self._connection.run(plans.redact(self._key, seq=seq, id=id, reason=reason), timeout)

    async def fork(
        self,
        target: "str | AsyncSession | None" = None,
        *,
        agent: str | None = None,
        through_seq: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> "AsyncSession":
        """Copies the session into a new one. Like `Session.fork`."""
        if isinstance(target, AsyncSession):
            if agent is not None:
                raise ValueError(
                    "target is a session, which has its agent: leave agent out, or give the new session's id"
                )
            forked = target
        else:
            forked = AsyncSession(
                self._connection, self.agent if agent is None else agent, new_id() if target is None else target
            )
        plan = plans.fork(self._key, forked._key, through_seq=through_seq, request_id=request_id)
        await self._connection.run(plan, timeout)
        return forked

    async def summarize(self, *, timeout: float | None = None) -> SummarizedSession:
        """Folds now what exceeds `keep` of the stored policy. Like `Session.summarize`."""
        return await self._connection.run(plans.summarize(self._key), timeout)

    async def summary(self, id: str | None = None, *, timeout: float | None = None) -> Summary:
        """Reads the current summary, or one by id. SummaryNotFound when there is none."""
        return await self._connection.run(plans.summary(self._key, id), timeout)

    async def summaries(self, *, timeout: float | None = None) -> list[Summary]:
        """Reads the newest summaries, at most 16, the current one first. Like `Session.summaries`."""
        return await self._connection.run(plans.summaries(self._key), timeout)

    async def revert_summary(self, id: str, *, timeout: float | None = None) -> Summary | None:
        """Takes the current summary back. Like `Session.revert_summary`."""
        return await self._connection.run(plans.revert_summary(self._key, id), timeout)

    def summary_tasks(
        self, *, lease_for: float | None = None, wait: bool = True, retry_for: float | None = None
    ) -> "AsyncSummaryTasks":
        """Iterates over the session's summary tasks. Like `MemoryClient.summary_tasks`.

        SummariesDisabled or SummarizerDiffers when its stored policies have no summarizer `client`; SessionNotFound
        without the session.
        """
        asking = Asking(self._key, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return AsyncSummaryTasks(self._connection, asking)

    async def summarize_with(
        self,
        function: Callable[[str], str | Awaitable[str]],
        *,
        model: str = "",
        lease_for: float | None = None,
        wait: bool = True,
        retry_for: float | None = None,
    ) -> int:
        """Summarizes the session with a function. Like `MemoryClient.summarize_with`."""
        tasks = self.summary_tasks(lease_for=lease_for, wait=wait, retry_for=retry_for)
        return await _summarize_with(tasks, function, model)

    def watch(
        self, *, resume_token: str | None = None, after_seq: int | None = None, retry_for: float | None = None
    ) -> "AsyncWatch":
        """Follows what happens to the session: an async iterator over its events. Like `Session.watch`."""
        follower = Follower(self._key, resume_token=resume_token, after_seq=after_seq, retry_for=retry_for)
        return AsyncWatch(self._connection, follower)


class AsyncWatch(AsyncIterator[WatchEvent]):
    """An async iterator over what happens to a session. Made by `AsyncSession.watch`.

    Otherwise like `memoryd.Watch`; for one task at a time. When that is cancelled (by a timeout, for instance), so is
    the call, and the next event that is asked for resumes it.
    """

    def __init__(self, connection: AsyncConnection, follower: Follower) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._follower = follower
        self._call: Any = None
        self._closed = asyncio.Event()

    @property
    def resume_token(self) -> str:
        """Resumes a watch behind the last event that this one gave; empty while no server has answered."""
        return self._follower.resume_token

    async def __aenter__(self) -> Self:
        while not (self._follower.stands or self._closed.is_set()):
            await self._read()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def __anext__(self) -> WatchEvent:
        while not self._closed.is_set():
            if (event := self._follower.next_event()) is not None:
                return event
            await self._read()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Ends the watch. Another task that waits for its next event finds that there is none."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    async def _read(self) -> None:
        """Takes one answer in, or pauses after a failure. Raises what ends the watch."""
        address = self._connection.target.address
        try:
            if self._call is None:
                self._call = self._connection.begin(WATCH_MESSAGES, self._follower.request(), None, self._metadata)
            if (answer := await self._call.read()) is not grpc.aio.EOF:
                self._connection.server.has_answered = True
                self._follower.answered(answer)
                return
            error = broken_off(address, grpc.StatusCode.OK)
        except grpc.RpcError as failed:
            error = typed_error(failed, address, WATCH_MESSAGES, NO_DEADLINE)
            if not self._connection.server.has_answered:
                error = await self._connection.explained(error, WATCH_MESSAGES, NO_DEADLINE)
        except asyncio.CancelledError:
            # gRPC raises it for a call with the status CANCELLED, too, though nobody cancelled this task.
            if is_cancelled():
                self._forget_call()
                raise
            error = broken_off(address, grpc.StatusCode.CANCELLED)
        except BaseException:
            self._forget_call()
            raise
        self._forget_call()
        if not (self._closed.is_set() or self._connection.closed):
            pause = self._follower.broke_off(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), pause)

    def _forget_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


class AsyncSummaryTask(LeasedTask):
    """The work for one summary, leased to the iterator that gave it: `AsyncSummaryTasks`."""

    def __init__(self, connection: AsyncConnection, metadata: Metadata, task: ProtoSummaryTask) -> None:
        super().__init__(task)
        self._connection = connection
        self._metadata = metadata
        connection.leases[self] = self.abandon

    async def commit(self, text: str, model: str = "", *, timeout: float | None = None) -> Summary:
        """Commits the summary, and gives it. Like `SummaryTask.commit`."""
        plan = plans.commit_summary(self._key, self._token, text, model)
        try:
            summary = await self._connection.run(plan, timeout, self._metadata)
        except SummaryTaskVoid:
            self._settle()
            raise
        self._settle()
        return summary

    async def abandon(self, *, failed: bool = False, timeout: float | None = None) -> None:
        """Gives the task up. Like `SummaryTask.abandon`."""
        if not self.settled:
            self._settle()
            plan = plans.abandon_summary_task(self._key, self._token, failed=failed)
            await self._connection.run(plan, timeout, self._metadata)

    def _settle(self) -> None:
        self.settled = True
        self._connection.leases.pop(self, None)


class AsyncSummaryTasks(AsyncIterable[AsyncSummaryTask]):
    """The summary tasks of a session or an agent, to be iterated over. Made by `AsyncMemoryClient.summary_tasks`.

    Otherwise like `memoryd.SummaryTasks`; for one task of asyncio at a time.
    """

    def __init__(self, connection: AsyncConnection, asking: Asking) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._asking = asking
        self._task: AsyncSummaryTask | None = None
        self._entered = False
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed.set()
        await self._leave(failed=isinstance(error, Exception))

    async def __aiter__(self) -> AsyncIterator[AsyncSummaryTask]:
        reader = asyncio.current_task()
        try:
            while (task := await self._next()) is not None:
                yield task
                await self._leave(failed=True)
        finally:
            # An exception in the loop's body and a break look the same here: only an `async with` tells them apart.
            if not self._entered:
                await self._leave(failed=reader is None or not reader.cancelling())

    async def close(self) -> None:
        """Ends the iteration. Another task of asyncio that waits for the next task finds that there is none."""
        self._closed.set()
        await self._leave(failed=False)

    async def _next(self) -> AsyncSummaryTask | None:
        while not self._closed.is_set():
            plan = plans.lease_summary_task(self._asking.request)
            try:
                task = await self._connection.run(plan, None, self._metadata)
            except MemorydError as error:
                if not (self._closed.is_set() or self._connection.closed):
                    self._asking.failed(error)
            else:
                self._asking.answered(found=task is not None)
                if task is not None:
                    self._task = AsyncSummaryTask(self._connection, self._metadata, task)
                    return self._task
                if not self._asking.wait:
                    return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self._asking.pause())
        return None

    async def _leave(self, *, failed: bool) -> None:
        """Gives up the task that the loop has left, if it is not settled; a lease that cannot be ends by itself."""
        task, self._task = self._task, None
        if task is not None and not self._connection.closed:
            try:
                await task.abandon(failed=failed)
            except MemorydError as error:
                log.warning("%r could not be given up: %s", task, error)


async def _summarize_with(tasks: AsyncSummaryTasks, function: Callable[[str], str | Awaitable[str]], model: str) -> int:
    made = 0
    async with tasks:
        async for task in tasks:
            try:
                await task.commit(await _carried_out(function, task.prompt), model)
            except SummaryTaskVoid as error:
                log.info("%r: %s", task, error)
            except Exception:
                log.warning("%r was not summarized", task, exc_info=True)
            else:
                made += 1
    return made


async def _carried_out(function: Callable[[str], str | Awaitable[str]], prompt: str) -> str:
    """What a function gives. One that is not async is not for the event loop: it may take as long as a model does."""
    text: str | Awaitable[str]
    if inspect.iscoroutinefunction(function):
        text = function(prompt)
    else:
        text = await asyncio.to_thread(function, prompt)
    return await text if isinstance(text, Awaitable) else text


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
        self,
        *,
        policy: Policy | None = None,
        load_memory: bool | None = None,
        run_retention: timedelta | None = None,
        etag: str | None = None,
        timeout: float | None = None,
    ) -> AgentInfo:
        """Changes the agent's settings. Like `Agent.update`."""
        plan = plans.update_agent(
            self.name, policy=policy, load_memory=load_memory, run_retention=run_retention, etag=etag
        )
        return await self._connection.run(plan, timeout)

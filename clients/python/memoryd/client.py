"""The sync client.

>>> from memoryd import MemoryClient, to_openai, user
>>> with MemoryClient("127.0.0.1:7600") as memory:
...     session = memory.session(agent="assistant", id="user_123")
...     session.append(user("My project is called Atlas."))
...     messages = to_openai(session.window(tokens=4_000))
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from memoryd import memory_plans, paging, plans, run_plans
from memoryd.arguments import string
from memoryd.batches import batches
from memoryd.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT, Metadata, Target, store_name
from memoryd.connections import Connection
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
from memoryd.memory import MemoryContext, MemoryFiles
from memoryd.memory_contexts import Rendering
from memoryd.memory_sources import ProjectFiles, StoredMemory, UserFiles
from memoryd.messages import Message, Role
from memoryd.methods import WATCH_MESSAGES
from memoryd.outages import log
from memoryd.policies import OpenCalls, Oversize, Policy
from memoryd.run import Run, RunClaims
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


class MemoryClient:
    """A client of a memoryd server. Safe to use from several threads; close it, or use it as a context manager.

    No server is called until the first operation. Each operation raises a MemorydError when it fails: DeadlineExceeded
    after the timeout, ServerUnavailable when no server answers. Reads and changes that are safe to repeat (all but
    updates, the clearing of an agent and the deletion of a memory file) are tried again while the server is
    unavailable: for up to 10 seconds once it has answered, within the timeout.

    A TypeError or ValueError, raised before any call, names an argument that no request could carry: of another type,
    an integer beyond 64 bits, a timeout that is not finite.
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
        self._connection = Connection(
            Target(address, timeout, store, token, ca, tls, allow_token_without_tls=allow_token_without_tls)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close(failed=isinstance(error, Exception))

    def close(self) -> None:
        """Closes the connection. Operations after that raise RuntimeError."""
        self._connection.close()

    def session(self, *, agent: str, id: str | None = None) -> "Session":
        """Names a session; nothing is called. Without an id a new one is made: read it from `Session.id`."""
        return Session(self._connection, agent, new_id() if id is None else id)

    def sessions(
        self, *, agent: str = "", user_id: str = "", page_size: int = 0, timeout: float | None = None
    ) -> Iterator[SessionInfo]:
        """Lists the sessions of an agent, of a user, of both or (without either) of all, newest activity first."""
        return self._connection.iterate(
            paging.session_pages(agent=agent, user_id=user_id, page_size=page_size), timeout
        )

    def agent(self, name: str) -> "Agent":
        """Names an agent; nothing is called."""
        return Agent(self._connection, name)

    def agents(self, *, page_size: int = 0, timeout: float | None = None) -> Iterator[AgentInfo]:
        """Lists the agents that have settings or sessions, by name."""
        return self._connection.iterate(paging.agent_pages(page_size=page_size), timeout)

    def clear_agent(self, agent: str, *, timeout: float | None = None) -> ClearedAgent:
        """Takes away the messages of every session of an agent, and tells how many.

        Works session by session: a failure half way leaves some cleared, and the call can be repeated. InvalidArgument
        for an empty name.
        """
        return self._connection.run(plans.clear_agent(agent), timeout)

    def erase_user(self, user_id: str, *, timeout: float | None = None) -> ErasedUser:
        """Deletes all that a user owns in the client's store, expired sessions included, and tells how much.

        When it has answered, nothing of it is left in the database. A failure half way leaves a part, and the call can
        be repeated; it is tried again by itself, too. InvalidArgument for an empty user.
        """
        return self._connection.run(plans.erase_user(user_id), timeout)

    def render_context(
        self,
        stored: StoredMemory | None = None,
        *,
        user: UserFiles | StoredMemory | None = None,
        project: ProjectFiles | StoredMemory | None = None,
        agent: str = "",
        budget: int | None = None,
        style: MemoryStyle | str = MemoryStyle.ENCLOSED,
        timeout: float | None = None,
    ) -> MemoryContext:
        """Renders an agent's memory into one bounded block for its prompt, marked as unverified, with instructions for
        keeping it.

        >>> context = memory.render_context(user=UserFiles(), project=ProjectFiles("."))
        >>> system_prompt = "You are a travel agent. " + context.prompt

        Files of this machine are read now, in their folder alone and at most 1 MiB of each. What cannot be read is told
        in `warnings` and in the log `memoryd`, and the rest is rendered. So it is when no server answers within the
        timeout: the context is empty then, and the agent starts all the same.

        Args:
            stored: Both tiers from the store; or, tier by tier,
            user: where the user tier is: `UserFiles()` or `StoredMemory(user=…)`; None for nowhere,
            project: and the project tier: `ProjectFiles(workspace)` or `StoredMemory(project=…)`.
            agent: The agent whose prompt it is for: without `load_memory` in its settings, nothing is rendered. Empty:
                no agent is asked, and the call itself is the opt-in.
            budget: The most characters of headers, notices and memory together, 256 to 100,000; None for 6,000.
            style: The form of the block, `enclosed` or `openhands`.
            timeout: The seconds that the server's answer may take, retries included; None for the client's.
        """
        rendering = Rendering(stored, user, project, agent=agent, budget=budget, style=style)
        metadata = self._connection.metadata
        rendering.read()
        response = self._connection.run(rendering.plan(), timeout, metadata)
        return MemoryContext(self._connection, metadata, rendering, response)

    def files(self, *, user: str | None = None, project: str | None = None) -> MemoryFiles:
        """Names the memory files of a user or of a project in the store; nothing is called."""
        return MemoryFiles(self._connection, memory_plans.owner(user=user, project=project))

    def summary_tasks(
        self, *, agent: str, lease_for: float | None = None, wait: bool = True, retry_for: float | None = None
    ) -> "SummaryTasks":
        """Iterates over the summaries that an agent's sessions wait for, to make them with a model of your own.

        A session has a task when its stored policy has the summarizer `client` and a load finds that it must fold. Each
        task is leased to this iterator alone; `SummaryTask.commit` ends it. Where none waits, it asks again after a
        pause of 0.2 seconds, which grows to 5.

        A task that a turn of the loop leaves without a commit is given up at once. It then waits, 5 seconds and longer
        with each time, before it is leased again: the model failed. In a `with` of the iterator, a `break` (and what is
        no Exception, such as KeyboardInterrupt) leaves it free for others at once.

        Args:
            agent: Whose sessions.
            lease_for: The seconds that one summary may take, 1 to 600; None for the server's 60.
            wait: Whether to go on when no task waits; False ends the loop then.
            retry_for: The seconds for which it asks again while the server is unavailable, before it raises what is in
                the way; None for ever. Without `wait`, it raises at once.
        """
        asking = Asking(agent, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return SummaryTasks(self._connection, asking)

    def summarize_with(
        self,
        function: Callable[[str], str],
        *,
        agent: str,
        model: str = "",
        lease_for: float | None = None,
        wait: bool = True,
        retry_for: float | None = None,
    ) -> int:
        """Summarizes an agent's sessions with a function from prompt to text, and gives the number of summaries.

        Serves the tasks of `summary_tasks`. Where the function raises an Exception, or gives a text that is empty, the
        log `memoryd` says so, the task waits before it is tried again, and the next one is served.

        Args:
            function: Gets `SummaryTask.prompt`, and gives the summary that a model made of it.
            agent: Whose sessions.
            model: The name of the model, for the record.
            lease_for: The seconds that one summary may take, 1 to 600; None for the server's 60.
            wait: Whether to go on when no task waits; False returns then.
            retry_for: As in `summary_tasks`.
        """
        tasks = self.summary_tasks(agent=agent, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return _summarize_with(tasks, function, model)

    def run(
        self,
        session: "Session",
        id: str | None = None,
        *,
        metadata: str = "",
        holder: str | None = None,
        lease: float = DEFAULT_LEASE,
        create: SessionSettings | None = None,
    ) -> Run:
        """Names a new run of a session, which begins when it is entered, and the session with it if there is none.

        >>> with memory.run(session) as run:
        ...     run.step({"flight": "LH 1"}, messages=[assistant("I would take LH 1.")])
        ...     run.pause(RunStatus.AWAITING_APPROVAL, reason="books a flight")

        Entering it raises RunExists when the session has another run of the id, TooManyRuns when it has 64 unfinished
        ones. `Run` says what becomes of it then.

        Args:
            session: Whose messages the run produces.
            id: The run's id, unique within its session, at most 256 bytes; None makes one: read it from `Run.id`.
            metadata: Data of yours: text, JSON by convention, at most 64 KiB.
            holder: Who holds it, for people to read, at most 256 bytes; None for this machine and process.
            lease: The seconds, 1 to 3,600, after which another worker may claim it if this one was not heard of. It is
                renewed every third of that.
            create: Settings for a session that this run begins; ignored when it exists.
        """
        key = run_plans.run_key(plans.key_of(session, Session), new_id() if id is None else id)
        beginning = run_plans.creation(key, metadata=metadata, holder=holder_name(holder), lease=lease, create=create)
        return Run(self._connection, self._connection.metadata, session, beginning)

    def claim(self, session: "Session", run_id: str, *, holder: str | None = None, lease: float = DEFAULT_LEASE) -> Run:
        """Names a run to go on with, which is claimed when it is entered.

        >>> with memory.claim(session, "run-7") as run:
        ...     last = run.resume()

        Entering it raises RunNotClaimable while another worker holds it, RunEnded when it has ended, RunNotFound or
        SessionNotFound without it. A run that waits for an approval or a budget is claimed only so.

        Args:
            session: Whose run.
            run_id: The run's id.
            holder: As in `run`.
            lease: As in `run`.
        """
        key = run_plans.run_key(plans.key_of(session, Session), run_id, "run_id")
        beginning = run_plans.claim(key, holder=holder_name(holder), lease=lease, request_id=new_id())
        return Run(self._connection, self._connection.metadata, session, beginning)

    def claims(
        self, agent: str, *, holder: str | None = None, lease: float = DEFAULT_LEASE, poll: float = DEFAULT_POLL
    ) -> RunClaims:
        """Iterates over the runs of an agent that any worker may take up: queued ones, INTERRUPTED ones, and those
        whose lease is over. It has no end of its own.

        >>> for run in memory.claims("travel"):
        ...     try:
        ...         with run:
        ...             last = run.resume()
        ...     except Exception:
        ...         logging.exception("the work at %r failed", run)

        Each run is claimed already, and its lease renewed: the one that waits longest comes first, to one worker alone.
        What its block raises is recorded with it, and ends the loop, too, unless it is caught there. One that is not
        entered is released when the loop goes on or ends. While there is none, it asks again after a pause; while the
        server is unavailable too, and tells so in the log `memoryd`.

        Args:
            agent: Whose runs.
            holder: As in `run`.
            lease: As in `run`.
            poll: The seconds between two questions while there is none, on average: each pause is drawn from half of it
                to one and a half.
        """
        claiming = Claiming(agent, holder=holder, lease=lease, poll=poll)
        return RunClaims(self._connection, partial(Session, self._connection), claiming)

    def enqueue_run(
        self,
        session: "Session",
        id: str | None = None,
        *,
        metadata: str = "",
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> RunInfo:
        """Begins a run for any worker to claim, and the session if there is none. Arguments and errors as in `run`."""
        key = run_plans.run_key(plans.key_of(session, Session), new_id() if id is None else id)
        return self._connection.run(run_plans.enqueue(key, metadata=metadata, create=create), timeout)

    def get_run(self, session: "Session", id: str, *, timeout: float | None = None) -> RunInfo:
        """Reads a run. RunNotFound or SessionNotFound without it."""
        return self._connection.run(run_plans.get(run_plans.run_key(plans.key_of(session, Session), id)), timeout)

    def runs(
        self,
        *,
        agent: str | None = None,
        session: "Session | None" = None,
        statuses: Iterable[RunStatus | str] = (),
        page_size: int = 0,
        timeout: float | None = None,
    ) -> Iterator[RunInfo]:
        """Lists the runs of a session, or of all sessions of an agent, newest first.

        Args:
            agent: Of all sessions of this agent, or
            session: of this session: SessionNotFound without it.
            statuses: Only those of these statuses, or of this one; empty for all.
            page_size: The most runs of one page, up to 1,000; 0 for the server's default of 100.
            timeout: The seconds that each page may take; None for the client's.
        """
        key = None if session is None else plans.key_of(session, Session)
        pages = paging.run_pages(agent=agent, session=key, statuses=statuses, page_size=page_size)
        return self._connection.iterate(pages, timeout)

    def update_run(
        self,
        info: RunInfo,
        *,
        status: RunStatus | str | None = None,
        reason: str = "",
        metadata: str | None = None,
        timeout: float | None = None,
    ) -> RunInfo:
        """Changes a run that was just read, as who does not hold it: to approve or to cancel it, say.

        Any status but RUNNING may be set. It takes the lease from a holder, whose next call is refused: INTERRUPTED
        lets any worker claim the run. EtagMismatch when the run changed meanwhile (its steps and renewals do that,
        too): read it again. RunEnded when it has ended. Not tried again by itself.

        Args:
            info: The run as it was read, by `get_run` for instance.
            status: The new status; None leaves it.
            reason: Why, at most 4 KiB.
            metadata: In the place of what there is; None leaves it.
            timeout: The seconds that it may take; None for the client's.
        """
        plan = run_plans.update(info, status=status, reason=reason, metadata=metadata)
        return self._connection.run(plan, timeout)

    def delete_run(self, session: "Session", id: str, *, timeout: float | None = None) -> bool:
        """Deletes a run that has ended, with its steps, and tells whether there was one. Its messages stay.

        RunUnfinished for another. Not tried again by itself. (Runs that ended 30 days ago are deleted by themselves, or
        as `Agent.update` sets it.)
        """
        return self._connection.run(run_plans.delete(run_plans.run_key(plans.key_of(session, Session), id)), timeout)

    def run_steps(
        self, session: "Session", id: str, after: int = 0, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[RunStep]:
        """Iterates over a run's steps by number, reading page after page. RunNotFound or SessionNotFound without it.

        Args:
            session: Whose run.
            id: The run's id.
            after: Only steps with a greater number; 0 for all.
            page_size: The most steps of one page, up to 1,000; 0 for the server's default of 100.
            timeout: The seconds that each page may take; None for the client's.
        """
        key = run_plans.run_key(plans.key_of(session, Session), id)
        return self._connection.iterate(paging.run_step_pages(key, after=after, page_size=page_size), timeout)

    def store(self, name: str | None = None, *, timeout: float | None = None) -> StoreInfo:
        """Tells about a store, and whether it answers now. Without a name: the one that this client uses."""
        return self._connection.run(plans.store(name), timeout)

    def stores(self, *, timeout: float | None = None) -> list[StoreInfo]:
        """Tells about all stores of the server, the default first, and whether they answer now."""
        return self._connection.run(plans.stores(), timeout)

    def store_type(self, *, timeout: float | None = None) -> str:
        """The kind of the store that this client uses, for example `sqlite`."""
        return self.store(timeout=timeout).type

    def switch_store(self, name: str, *, timeout: float | None = None) -> StoreInfo:
        """Uses another store of the server from now on, once it has answered, and tells about it.

        Sessions and agents that were named before follow: they name the same keys in the new store. Nothing is copied
        (`memoryd copy` does that). Calls that other threads have begun, lists that are iterated over, appends of
        `append_all`, watches and the tools of rendered memory keep the store that they began with.

        The client goes on with the store it has when this fails: StoreUnknown when the server has none of this name
        (`stores` tells the names), StoreUnavailable when the store does not answer.
        """
        store = self._connection.run(plans.reachable_store(store_name(name, "name")), timeout)
        self._connection.metadata = self._connection.target.metadata(name)
        return store


class Session:
    """One conversation of one agent. Made by `MemoryClient.session`; it begins with its first append."""

    def __init__(self, connection: Connection, agent: str, id: str) -> None:
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

    def append(
        self,
        *messages: Message,
        request_id: str | None = None,
        expected_last_seq: int | None = None,
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> list[AppendedMessage]:
        """Appends messages, all or none, and begins the session if there is none.

        Safe to repeat with the same Message objects: what is stored already is recognized by the ids, and the first
        answer comes again (invariant 2 of the design).

        Args:
            messages: 1 to 256, together at most 3.5 MiB, each at most 2 MiB. `append_all` takes more.
            request_id: A mark of this request, at most 256 bytes; a repeat with other messages is RequestIdConflict.
            expected_last_seq: Append only if this is the session's last seq (0: no session yet), else LastSeqMismatch.
            create: Settings for a session that this append begins; ignored when it exists.
            timeout: The seconds that it may take, retries included; None for the client's.

        Returns:
            Id, seq, time and token count of each message, in their order.
        """
        return self._connection.run(
            plans.append(
                self._key, messages, request_id=request_id, expected_last_seq=expected_last_seq, create=create
            ),
            timeout,
        )

    def append_all(
        self,
        messages: Message | Iterable[Message],
        *,
        create: SessionSettings | None = None,
        timeout: float | None = None,
    ) -> list[AppendedMessage]:
        """Appends any number of messages, in as many calls as needed (`batches` cuts them).

        Each call is all or none, the whole is not: after an error the messages before it are stored. Repeating it with
        the same Message objects goes on where it stopped, as long as it is within 24 hours. The timeout holds for each
        call.
        """
        metadata = self._connection.metadata
        appended: list[AppendedMessage] = []
        for batch in batches(messages):
            plan = plans.append(self._key, batch, create=create)
            appended += self._connection.run(plan, timeout, metadata)
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
    ) -> Iterator[Message]:
        """Iterates over the session's messages by seq, reading page after page. SessionNotFound without the session.

        Args:
            order: `ascending` (oldest first) or `descending`.
            page_size: The most messages of one page, up to 1,000; 0 for the server's default of 100.
            roles: Only these roles, or this one; empty for all.
            run_id: Only messages of this run; empty for all.
            from_seq: Only from this seq on; 0 for no bound.
            to_seq: Only up to this seq, itself included; 0 for no bound.
            from_time: Only messages stored at this time or later; with a time zone.
            to_time: Only messages stored before this time; with a time zone.
            view: `active` (the current summary and what it does not cover) or `all` that is stored.
            timeout: The seconds that each page may take; None for the client's.
        """
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

    def message(self, *, seq: int | None = None, id: str | None = None, timeout: float | None = None) -> Message:
        """Reads one message, by seq or by id. SessionNotFound or MessageNotFound without it."""
        return self._connection.run(plans.message(self._key, seq=seq, id=id), timeout)

    def window(
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
        """Loads the newest part of the history that fits: whole tool groups, valid for a model's API.

        What is None comes from the session's stored policy, then the agent's, then the server's. A window of any size
        arrives: one over 3.5 MiB is streamed, and the stream begun again (up to five times) when history was taken away
        meanwhile. SessionNotFound without the session.

        Args:
            messages: The limit in messages, 1 to 100,000.
            tokens: The limit in tokens of the session's tokenizer, 1 to 100,000,000. Not together with `messages`.
            pin_system: Keep the SYSTEM and DEVELOPER messages that open the history.
            start_with_user: Put the newest USER message in front of a window that would begin with another role.
            open_calls: `omit` groups with unanswered calls, `synthesize` a result for each call, or `keep` them as they
                are.
            oversize: What to do when the newest group alone exceeds a token limit: `shorten`, `return` or `fail`
                (WindowTooSmall).
            summary: Show the session's summary in the place of what it covers. None: if the stored policies have
                summaries.
            wait_for_summary: Wait when the stored policies ask for a fold, at most 10 seconds. None: as they say.
            explain: Let the stats list messages that were left out.
            timeout: The seconds that it may take; None for the client's.
        """
        options = plans.window_options(
            messages=messages,
            tokens=tokens,
            pin_system=pin_system,
            start_with_user=start_with_user,
            open_calls=open_calls,
            oversize=oversize,
        )
        plan = plans.window(self._key, options, summary=summary, wait_for_summary=wait_for_summary, explain=explain)
        return self._connection.run(plan, timeout)

    def info(self, *, timeout: float | None = None) -> SessionInfo:
        """Reads the session's settings and counts. SessionNotFound without the session."""
        return self._connection.run(plans.session_info(self._key), timeout)

    def update(
        self,
        *,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: timedelta | None = None,
        policy: Policy | None = None,
        etag: str | None = None,
        timeout: float | None = None,
    ) -> SessionInfo:
        """Changes the session's settings. What is None stays; what is given replaces the old value as a whole.

        With an etag (from `info`) only if the settings are still those, else EtagMismatch. SessionNotFound without the
        session. Not tried again by itself.
        """
        return self._connection.run(
            plans.update_session(self._key, user_id=user_id, labels=labels, ttl=ttl, policy=policy, etag=etag), timeout
        )

    def clear(self, *, request_id: str | None = None, timeout: float | None = None) -> int:
        """Takes away the session's messages, keeps its settings, and tells how many there were. Later seqs go on.

        Tried again by itself; a repeat of yours with the same `request_id` takes nothing more away, and the first
        answer comes again. Without one, the SDK makes one for each call.
        """
        return self._connection.run(plans.clear_session(self._key, request_id=request_id), timeout)

    def rewind(
        self,
        to_seq: int,
        *,
        expected_last_seq: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> RewoundSession:
        """Takes away the messages after a seq, as if they had never been appended, and tells how many there were.

        Calls whose results are taken away wait for results again. Later seqs go on. Tried again by itself, without
        taking more away. SessionNotFound without the session.

        Args:
            to_seq: The seq after which messages are taken away; 0 takes all.
            expected_last_seq: Rewind only if this is the session's last seq, else LastSeqMismatch.
            request_id: A mark of this request, at most 256 bytes; a repeat with it takes nothing more away, and the
                first answer comes again. Without one, the SDK makes one for each call.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        plan = plans.rewind(self._key, to_seq, expected_last_seq=expected_last_seq, request_id=request_id)
        return self._connection.run(plan, timeout)

    def redact(
        self, *, seq: int | None = None, id: str | None = None, reason: str = "", timeout: float | None = None
    ) -> Message:
        """Takes away a message's content for good, by seq or by id, and gives the message as it is now.

        Its place, role and ids stay, so that windows stay valid, and a text "[REDACTED]" stands for what it said. What
        is redacted already is left as it is. SessionNotFound or MessageNotFound without it.

        Args:
            seq: Which message, or
            id: which one.
            reason: Why, for those who read the message later: at most 256 bytes, one line.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        return self._connection.run(plans.redact(self._key, seq=seq, id=id, reason=reason), timeout)

    def fork(
        self,
        target: "str | Session | None" = None,
        *,
        agent: str | None = None,
        through_seq: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> "Session":
        """Copies the session into a new one, which appears once it is complete, and gives that one.

        Messages keep their seqs and ids; user, labels, ttl and policy are copied, too. SessionNotFound without the
        session, SessionExists when the name is in use or was in the last 24 hours, ForkInterrupted when messages were
        taken away meanwhile: fork again then.

        Args:
            target: The new session's id, or the new session itself; None makes an id: read it from `Session.id`.
            agent: The agent that is to own it; None for the same one.
            through_seq: The newest seq to copy; None for all messages.
            request_id: A mark of this request, at most 256 bytes; a repeat with it (and the same target) finds the fork
                made. Without one, the SDK makes one for each call.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        if isinstance(target, Session):
            if agent is not None:
                raise ValueError(
                    "target is a session, which has its agent: leave agent out, or give the new session's id"
                )
            forked = target
        else:
            forked = Session(
                self._connection, self.agent if agent is None else agent, new_id() if target is None else target
            )
        plan = plans.fork(self._key, forked._key, through_seq=through_seq, request_id=request_id)
        self._connection.run(plan, timeout)
        return forked

    def summarize(self, *, timeout: float | None = None) -> SummarizedSession:
        """Folds now what exceeds `keep` of the stored policy, although the window may not be full yet.

        SummariesDisabled or SummarizerDiffers when the stored policies do not leave it to the server; SummarizerFailed,
        with nothing changed; SummaryUnderWay while another server does it. SessionNotFound without the session. Not
        tried again by itself, since each try may ask a model.
        """
        return self._connection.run(plans.summarize(self._key), timeout)

    def summary(self, id: str | None = None, *, timeout: float | None = None) -> Summary:
        """Reads the current summary, or one by id. SummaryNotFound when there is none."""
        return self._connection.run(plans.summary(self._key, id), timeout)

    def summaries(self, *, timeout: float | None = None) -> list[Summary]:
        """Reads the newest summaries, at most 16, the current one first: each knows its range and its predecessor."""
        return self._connection.run(plans.summaries(self._key), timeout)

    def revert_summary(self, id: str, *, timeout: float | None = None) -> Summary | None:
        """Takes the current summary back, and gives the one that is current then; None for none.

        The messages that it covered are shown again, and nothing is folded before the next append. EtagMismatch when
        another one is current, OriginalsRemoved when its messages are, SummaryNotFound without it. Not tried again by
        itself.
        """
        return self._connection.run(plans.revert_summary(self._key, id), timeout)

    def summary_tasks(
        self, *, lease_for: float | None = None, wait: bool = True, retry_for: float | None = None
    ) -> "SummaryTasks":
        """Iterates over the session's summary tasks. Like `MemoryClient.summary_tasks`.

        SummariesDisabled or SummarizerDiffers when its stored policies have no summarizer `client`; SessionNotFound
        without the session.
        """
        asking = Asking(self._key, lease_for=lease_for, wait=wait, retry_for=retry_for)
        return SummaryTasks(self._connection, asking)

    def summarize_with(
        self,
        function: Callable[[str], str],
        *,
        model: str = "",
        lease_for: float | None = None,
        wait: bool = True,
        retry_for: float | None = None,
    ) -> int:
        """Summarizes the session with a function. Like `MemoryClient.summarize_with`."""
        tasks = self.summary_tasks(lease_for=lease_for, wait=wait, retry_for=retry_for)
        return _summarize_with(tasks, function, model)

    def watch(
        self, *, resume_token: str | None = None, after_seq: int | None = None, retry_for: float | None = None
    ) -> "Watch":
        """Follows what happens to the session: an iterator over its events, in order, each once, without an end.

        The call begins with the first event that is asked for, or where a `with` is entered: from there on nothing is
        missed. When the connection is lost, the server drains or tells a slow reader to resume, the watch resumes by
        itself behind the last event that it gave, after a pause with jitter of up to 5 seconds, and tells so in the log
        `memoryd`. No timeout bounds it.

        Raises, while it is iterated over, SessionNotFound without the session and when it has expired or was erased;
        ResumeTokenInvalid for a token of something else; and what else is of no use to try again.

        Args:
            resume_token: Begin behind the event that had this token. After more than 24 hours, or in another session of
                this name, the first event is of kind RESYNC: read the session anew.
            after_seq: Begin behind this seq; 0 begins with the oldest message. Without either: with what happens now.
            retry_for: The seconds for which it tries to resume before it raises what is in the way; None for ever.
        """
        follower = Follower(self._key, resume_token=resume_token, after_seq=after_seq, retry_for=retry_for)
        return Watch(self._connection, follower)


class Watch(Iterator[WatchEvent]):
    """An iterator over what happens to a session. Made by `Session.watch`.

    Close it, or use it as a context manager, which makes it stand at once. After an error it can be iterated over
    again, and goes on behind the last event that it gave.
    """

    def __init__(self, connection: Connection, follower: Follower) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._follower = follower
        self._call: Any = None
        self._closed = threading.Event()

    @property
    def resume_token(self) -> str:
        """Resumes a watch behind the last event that this one gave; empty while no server has answered."""
        return self._follower.resume_token

    def __enter__(self) -> Self:
        while not (self._follower.stands or self._closed.is_set()):
            self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> WatchEvent:
        while not self._closed.is_set():
            if (event := self._follower.next_event()) is not None:
                return event
            self._read()
        raise StopIteration

    def close(self) -> None:
        """Ends the watch. Another thread that waits for its next event finds that there is none."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    def _read(self) -> None:
        """Takes one answer in, or pauses after a failure. Raises what ends the watch."""
        address = self._connection.target.address
        try:
            if self._call is None:
                self._call = self._connection.begin(WATCH_MESSAGES, self._follower.request(), None, self._metadata)
            if self._closed.is_set():  # Before there was a call that closing could cancel.
                self._call.cancel()
            if (answer := next(self._call, None)) is not None:
                self._connection.server.has_answered = True
                self._follower.answered(answer)
                return
            error = broken_off(address, grpc.StatusCode.OK)
        except grpc.RpcError as failed:
            error = typed_error(failed, address, WATCH_MESSAGES, NO_DEADLINE)
            if not self._connection.server.has_answered:
                error = self._connection.explained(error, WATCH_MESSAGES, NO_DEADLINE)
        except BaseException:
            self._forget_call()
            raise
        self._forget_call()
        if not (self._closed.is_set() or self._connection.closed):
            self._closed.wait(self._follower.broke_off(error))

    def _forget_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


class SummaryTask(LeasedTask):
    """The work for one summary, leased to the iterator that gave it: `SummaryTasks`."""

    def __init__(self, connection: Connection, metadata: Metadata, task: ProtoSummaryTask) -> None:
        super().__init__(task)
        self._connection = connection
        self._metadata = metadata
        connection.leases[self] = self.abandon

    def commit(self, text: str, model: str = "", *, timeout: float | None = None) -> Summary:
        """Commits the summary, and gives it. Safe to repeat: the first answer comes again.

        SummaryTaskVoid when the lease is over or the history changed where the task lies; FieldInvalid for a text that
        is empty or white, which is none: abandon the task instead.

        Args:
            text: The summary, at most 1 MiB. What is over `max_tokens` is cut at the end of a sentence.
            model: The name of the model that made it, for the record; at most 256 bytes.
            timeout: The seconds that it may take, retries included; None for the client's.
        """
        plan = plans.commit_summary(self._key, self._token, text, model)
        try:
            summary = self._connection.run(plan, timeout, self._metadata)
        except SummaryTaskVoid:
            self._settle()
            raise
        self._settle()
        return summary

    def abandon(self, *, failed: bool = False, timeout: float | None = None) -> None:
        """Gives the task up: as free for others at once, or as `failed`, to wait before it is leased again.

        Nothing happens when it is committed or its lease is over.
        """
        if not self.settled:
            self._settle()
            plan = plans.abandon_summary_task(self._key, self._token, failed=failed)
            self._connection.run(plan, timeout, self._metadata)

    def _settle(self) -> None:
        self.settled = True
        self._connection.leases.pop(self, None)


class SummaryTasks(Iterable[SummaryTask]):
    """The summary tasks of a session or an agent, to be iterated over. Made by `MemoryClient.summary_tasks`.

    Close it, or use it as a context manager; either gives up the task that was not committed.
    """

    def __init__(self, connection: Connection, asking: Asking) -> None:
        self._connection = connection
        self._metadata = connection.metadata
        self._asking = asking
        self._task: SummaryTask | None = None
        self._entered = False
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed.set()
        self._leave(failed=isinstance(error, Exception))

    def __iter__(self) -> Iterator[SummaryTask]:
        try:
            while (task := self._next()) is not None:
                yield task
                self._leave(failed=True)
        finally:
            # An exception in the loop's body and a break look the same here: only a `with` tells them apart.
            if not self._entered:
                self._leave(failed=True)

    def close(self) -> None:
        """Ends the iteration. Another thread that waits for the next task finds that there is none."""
        self._closed.set()
        self._leave(failed=False)

    def _next(self) -> SummaryTask | None:
        while not self._closed.is_set():
            plan = plans.lease_summary_task(self._asking.request)
            try:
                task = self._connection.run(plan, None, self._metadata)
            except MemorydError as error:
                if not (self._closed.is_set() or self._connection.closed):
                    self._asking.failed(error)
            else:
                self._asking.answered(found=task is not None)
                if task is not None:
                    self._task = SummaryTask(self._connection, self._metadata, task)
                    return self._task
                if not self._asking.wait:
                    return None
            self._closed.wait(self._asking.pause())
        return None

    def _leave(self, *, failed: bool) -> None:
        """Gives up the task that the loop has left, if it is not settled; a lease that cannot be ends by itself."""
        task, self._task = self._task, None
        if task is not None and not self._connection.closed:
            try:
                task.abandon(failed=failed)
            except MemorydError as error:
                log.warning("%r could not be given up: %s", task, error)


def _summarize_with(tasks: SummaryTasks, function: Callable[[str], str], model: str) -> int:
    made = 0
    with tasks:
        for task in tasks:
            try:
                task.commit(function(task.prompt), model)
            except SummaryTaskVoid as error:
                log.info("%r: %s", task, error)
            except Exception:
                log.warning("%r was not summarized", task, exc_info=True)
            else:
                made += 1
    return made


class Agent:
    """An agent and the settings of its sessions. Made by `MemoryClient.agent`; it exists by being named."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = string(name, "name", "assistant")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def info(self, *, timeout: float | None = None) -> AgentInfo:
        """Reads the agent's settings; those of an agent that was never updated are empty."""
        return self._connection.run(plans.agent_info(self.name), timeout)

    def update(
        self,
        *,
        policy: Policy | None = None,
        load_memory: bool | None = None,
        run_retention: timedelta | None = None,
        etag: str | None = None,
        timeout: float | None = None,
    ) -> AgentInfo:
        """Changes the agent's settings; servers may use the old ones for up to 5 seconds more. What is None stays.

        A policy replaces the old one as a whole. `load_memory` says whether `render_context(agent=…)` renders memory.
        `run_retention` is how long runs are kept after they ended: up to 100 years, timedelta(0) for ever, and
        SERVERS_DEFAULT (as before the first update) as the server's settings say; unfinished runs are always kept. With
        an etag (from `info`) only if the settings are still those, else EtagMismatch. Not tried again by itself.
        """
        plan = plans.update_agent(
            self.name, policy=policy, load_memory=load_memory, run_retention=run_retention, etag=etag
        )
        return self._connection.run(plan, timeout)

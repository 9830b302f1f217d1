"""What the Python driver does for each command, by the methods of the SDK's async client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC
from typing import Any, Final, TypeVar

import memoryd
from memoryd import enums
from memoryd.channel import DEFAULT_TIMEOUT
from memoryd.decoding import messages_from_proto, policy_from_proto
from memoryd.v1 import (
    agent_service_pb2,
    history_service_pb2,
    memory_context_service_pb2,
    run_service_pb2,
    session_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)
from tests.conformance import conformance_pb2 as pb
from tests.conformance.python import answers, measuring

Item = TypeVar("Item")

FEATURES: Final = ("openai_responses",)


class HeldBlock:
    """A run whose block is open, in a task of its own, as a user's would be."""

    def __init__(self, run: memoryd.AsyncRun) -> None:
        self.run = run
        self._leaving: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            async with self.run:
                self._entered.set_result(None)
                if (error := await self._leaving) is not None:
                    raise error
        except BaseException as error:
            if self._entered.done():
                raise
            self._entered.set_exception(error)

    async def enter(self) -> None:
        await self._entered

    async def leave(self, how: pb.LeaveRun) -> None:
        """Leaves the block. Raises what leaving it raises, apart from what its body ended with."""
        error = RuntimeError(how.error) if how.HasField("error") else None
        if how.cancelled:
            self._task.cancel()
        elif not self._leaving.done():
            self._leaving.set_result(error)
        [left] = await asyncio.gather(self._task, return_exceptions=True)
        if left is not None and left is not error and not isinstance(left, asyncio.CancelledError):
            raise left


class Client:
    """One of the driver's clients, with what commands gave a name."""

    def __init__(self, connect: pb.Connect) -> None:
        self.memory = memoryd.AsyncMemoryClient(
            connect.address,
            store=connect.store or None,
            token=connect.token or None,
            ca=connect.ca or None,
            allow_token_without_tls=connect.allow_token_without_tls,
            timeout=_seconds(connect, "timeout") or DEFAULT_TIMEOUT,
        )
        self.address = connect.address
        self._watches: dict[str, memoryd.AsyncWatch] = {}
        self._tasks: dict[str, memoryd.AsyncSummaryTask] = {}
        self._contexts: dict[str, memoryd.AsyncMemoryContext] = {}
        self._blocks: dict[str, HeldBlock] = {}
        self._loops: list[AsyncIterator[memoryd.AsyncSummaryTask]] = []
        """They give up what their bodies left: a task is kept by keeping its loop where it is."""
        self._open = AsyncExitStack()

    async def close(self) -> None:
        await self._open.aclose()
        await self.memory.close()

    def _session(self, key: session_pb2.SessionKey) -> memoryd.AsyncSession:
        return self.memory.session(agent=key.agent, id=key.session_id)

    def _files(self, owner: memory_context_service_pb2.MemoryOwner) -> memoryd.AsyncMemoryFiles:
        if owner.HasField("user_id"):
            return self.memory.files(user=owner.user_id)
        return self.memory.files(project=owner.project_id)

    async def carry_out(self, command: pb.Command) -> pb.Reply:
        """Carries a command out. Raises what the SDK raises."""
        name = command.WhichOneof("operation")
        assert name is not None
        operation: Callable[[Any, float | None], Awaitable[dict[str, Any]]] = getattr(self, name)
        timeout = _seconds(command, "timeout")
        return pb.Reply(**await operation(getattr(command, name), timeout))

    # Histories

    async def append(self, given: history_service_pb2.AppendMessagesRequest, timeout: float | None) -> dict[str, Any]:
        done = await self._session(given.session).append(
            *messages_from_proto(given.messages),
            request_id=given.request_id or None,
            expected_last_seq=given.expected_last_seq if given.HasField("expected_last_seq") else None,
            create=_settings(given),
            timeout=timeout,
        )
        return {"appended": answers.appended(done)}

    async def append_all(
        self, given: history_service_pb2.AppendMessagesRequest, timeout: float | None
    ) -> dict[str, Any]:
        done = await self._session(given.session).append_all(
            messages_from_proto(given.messages), create=_settings(given), timeout=timeout
        )
        return {"appended": answers.appended(done)}

    async def list_messages(self, given: pb.ListMessages, timeout: float | None) -> dict[str, Any]:
        request, which = given.request, given.request.filter
        messages = self._session(request.session).messages(
            order=(
                memoryd.ListOrder.DESCENDING
                if request.order == history_service_pb2.LIST_ORDER_DESCENDING
                else memoryd.ListOrder.ASCENDING
            ),
            view=(
                memoryd.MessageView.ALL
                if request.view == history_service_pb2.MESSAGE_VIEW_ALL
                else memoryd.MessageView.ACTIVE
            ),
            page_size=request.page_size,
            roles=[enums.ROLE.member_or_unspecified(role) for role in which.roles],
            run_id=which.run_id,
            from_seq=which.from_seq,
            to_seq=which.to_seq,
            from_time=which.from_time.ToDatetime(UTC) if which.HasField("from_time") else None,
            to_time=which.to_time.ToDatetime(UTC) if which.HasField("to_time") else None,
            timeout=timeout,
        )
        return {"messages": answers.messages(await _read(messages, given.take))}

    async def get_message(self, given: history_service_pb2.GetMessageRequest, timeout: float | None) -> dict[str, Any]:
        message = await self._session(given.session).message(**_by(given), timeout=timeout)
        return {"messages": answers.messages([message])}

    async def get_session(self, given: history_service_pb2.GetSessionRequest, timeout: float | None) -> dict[str, Any]:
        return {"session": answers.session(await self._session(given.session).info(timeout=timeout))}

    async def list_sessions(
        self, given: history_service_pb2.ListSessionsRequest, timeout: float | None
    ) -> dict[str, Any]:
        sessions = self.memory.sessions(
            agent=given.agent, user_id=given.user_id, page_size=given.page_size, timeout=timeout
        )
        return {"sessions": pb.Sessions(sessions=map(answers.session, await _read(sessions)))}

    async def update_session(
        self, given: history_service_pb2.UpdateSessionRequest, timeout: float | None
    ) -> dict[str, Any]:
        session = given.session
        changes: dict[str, Any] = {}
        for path in given.update_mask.paths:
            match path:
                case "user_id":
                    changes[path] = session.user_id
                case "labels":
                    changes[path] = dict(session.labels)
                case "ttl":
                    changes[path] = session.ttl.ToTimedelta() if session.HasField("ttl") else memoryd.FOREVER
                case "policy":
                    changes[path] = policy_from_proto(session.policy)
        info = await self._session(session.key).update(**changes, etag=session.etag or None, timeout=timeout)
        return {"session": answers.session(info)}

    async def clear_history(
        self, given: history_service_pb2.ClearHistoryRequest, timeout: float | None
    ) -> dict[str, Any]:
        session = self._session(given.session)
        return {"count": await session.clear(request_id=given.request_id or None, timeout=timeout)}

    async def clear_agent(
        self, given: history_service_pb2.ClearAgentHistoryRequest, timeout: float | None
    ) -> dict[str, Any]:
        cleared = await self.memory.clear_agent(given.agent, timeout=timeout)
        return {
            "cleared_agent": answers.fill(
                history_service_pb2.ClearAgentHistoryResponse(),
                cleared,
                cleared_session_count="session_count",
                cleared_message_count="message_count",
            )
        }

    async def redact_message(
        self, given: history_service_pb2.RedactMessageRequest, timeout: float | None
    ) -> dict[str, Any]:
        message = await self._session(given.session).redact(**_by(given), reason=given.reason, timeout=timeout)
        return {"messages": answers.messages([message])}

    async def rewind(self, given: history_service_pb2.RewindSessionRequest, timeout: float | None) -> dict[str, Any]:
        done = await self._session(given.session).rewind(
            given.to_seq,
            expected_last_seq=given.expected_last_seq if given.HasField("expected_last_seq") else None,
            request_id=given.request_id or None,
            timeout=timeout,
        )
        return {
            "rewound": answers.fill(
                history_service_pb2.RewindSessionResponse(), done, removed_message_count="message_count"
            )
        }

    async def fork(self, given: history_service_pb2.ForkSessionRequest, timeout: float | None) -> dict[str, Any]:
        await self._session(given.source).fork(
            self._session(given.target),
            through_seq=given.through_seq if given.HasField("through_seq") else None,
            request_id=given.request_id or None,
            timeout=timeout,
        )
        return {"forked": history_service_pb2.ForkSessionResponse()}

    async def erase_user(self, given: history_service_pb2.EraseUserRequest, timeout: float | None) -> dict[str, Any]:
        erased = await self.memory.erase_user(given.user_id, timeout=timeout)
        names = {
            field.name: field.name.removeprefix("erased_")
            for field in history_service_pb2.EraseUserResponse.DESCRIPTOR.fields
        }
        return {"erased": answers.fill(history_service_pb2.EraseUserResponse(), erased, **names)}

    async def open_watch(self, given: pb.OpenWatch, _timeout: float | None) -> dict[str, Any]:
        request = given.request
        watch = self._session(request.session).watch(
            resume_token=request.resume_token or None,
            after_seq=request.after_seq if request.HasField("after_seq") else None,
        )
        self._watches[given.name] = await self._open.enter_async_context(watch)
        return {"done": pb.Done()}

    async def next_events(self, given: pb.NextEvents, _timeout: float | None) -> dict[str, Any]:
        watch = self._watches[given.name]
        events = [answers.event(await anext(watch)) for _ in range(given.count)]
        return {"events": pb.Events(events=events, resume_token=watch.resume_token)}

    async def close_watch(self, given: pb.Named, _timeout: float | None) -> dict[str, Any]:
        await self._watches.pop(given.name).close()
        return {"done": pb.Done()}

    # Windows and summaries

    async def load_window(self, given: window_service_pb2.LoadWindowRequest, timeout: float | None) -> dict[str, Any]:
        options, has = given.options, given.options.HasField
        limit: dict[str, int] = {}
        if has("limit"):
            in_tokens = enums.WINDOW_MODE.member_or_unspecified(options.mode) is memoryd.WindowMode.TOKENS
            limit = {"tokens" if in_tokens else "messages": options.limit}
        window = await self._session(given.session).window(
            **limit,
            pin_system=options.pin_system if has("pin_system") else None,
            start_with_user=options.start_with_user if has("start_with_user") else None,
            open_calls=enums.OPEN_CALLS.member_or_unspecified(options.open_calls) if has("open_calls") else None,
            oversize=enums.OVERSIZE.member_or_unspecified(options.oversize) if has("oversize") else None,
            summary=given.summary if given.HasField("summary") else None,
            wait_for_summary=given.wait_for_summary if given.HasField("wait_for_summary") else None,
            explain=given.explain,
            timeout=timeout,
        )
        return {"window": answers.window(window)}

    async def summarize(self, given: summary_service_pb2.SummarizeRequest, timeout: float | None) -> dict[str, Any]:
        done = await self._session(given.session).summarize(timeout=timeout)
        return {
            "summarized": summary_service_pb2.SummarizeResponse(
                summary=None if done.summary is None else answers.summary(done.summary),
                folded_message_count=done.message_count,
            )
        }

    async def get_summary(self, given: summary_service_pb2.GetSummaryRequest, timeout: float | None) -> dict[str, Any]:
        session = self._session(given.session)
        return {"summaries": answers.summaries(await session.summary(given.summary_id or None, timeout=timeout))}

    async def list_summaries(
        self, given: summary_service_pb2.ListSummariesRequest, timeout: float | None
    ) -> dict[str, Any]:
        return {"summaries": answers.summaries(*await self._session(given.session).summaries(timeout=timeout))}

    async def revert_summary(
        self, given: summary_service_pb2.RevertSummaryRequest, timeout: float | None
    ) -> dict[str, Any]:
        session = self._session(given.session)
        return {"summaries": answers.summaries(await session.revert_summary(given.summary_id, timeout=timeout))}

    async def lease_summary_task(self, given: pb.LeaseSummaryTask, _timeout: float | None) -> dict[str, Any]:
        request = given.request
        lease = _seconds(request, "lease_duration")
        async for task in self._summary_tasks(request, lease_for=lease, wait=False):
            self._tasks[given.name] = task
            return {"summary_task": answers.summary_task(task)}
        return {}

    def _summary_tasks(
        self, of: summary_service_pb2.LeaseSummaryTaskRequest, *, lease_for: float | None, wait: bool
    ) -> AsyncIterator[memoryd.AsyncSummaryTask]:
        if of.HasField("session"):
            tasks = self._session(of.session).summary_tasks(lease_for=lease_for, wait=wait)
        else:
            tasks = self.memory.summary_tasks(agent=of.agent, lease_for=lease_for, wait=wait)
        loop = aiter(tasks)
        self._loops.append(loop)
        return loop

    async def commit_summary(self, given: pb.CommitSummary, timeout: float | None) -> dict[str, Any]:
        summary = await self._tasks[given.name].commit(given.text, given.model, timeout=timeout)
        return {"summaries": answers.summaries(summary)}

    async def abandon_summary_task(self, given: pb.AbandonSummaryTask, timeout: float | None) -> dict[str, Any]:
        await self._tasks[given.name].abandon(failed=given.failed, timeout=timeout)
        return {"done": pb.Done()}

    async def summarize_with(self, given: pb.SummarizeWith, _timeout: float | None) -> dict[str, Any]:
        def answer(_prompt: str) -> str:
            return given.answer

        if given.HasField("session"):
            count = await self._session(given.session).summarize_with(answer, model=given.model, wait=False)
        else:
            count = await self.memory.summarize_with(answer, agent=given.agent, model=given.model, wait=False)
        return {"count": count}

    # Memory

    async def render_memory(self, given: pb.RenderMemory, timeout: float | None) -> dict[str, Any]:
        context = await self.memory.render_context(
            user=_user_tier(given.user) if given.HasField("user") else None,
            project=_project_tier(given.project) if given.HasField("project") else None,
            agent=given.agent,
            budget=given.budget or None,
            style=(
                memoryd.MemoryStyle.OPENHANDS
                if given.style == memory_context_service_pb2.MEMORY_STYLE_OPENHANDS
                else memoryd.MemoryStyle.ENCLOSED
            ),
            timeout=timeout,
        )
        self._contexts[given.name] = context
        return {"rendered": answers.rendered(context)}

    async def tool_definitions(self, given: pb.ToolDefinitions, _timeout: float | None) -> dict[str, Any]:
        tools = self._contexts[given.name].tools
        return {"json": json.dumps(tools.anthropic() if given.format == pb.FORMAT_ANTHROPIC else tools.openai())}

    async def call_tool(self, given: pb.CallTool, timeout: float | None) -> dict[str, Any]:
        return {"text": await self._contexts[given.name].tools.call(given.tool, given.arguments, timeout=timeout)}

    async def get_memory_file(
        self, given: memory_context_service_pb2.GetMemoryFileRequest, timeout: float | None
    ) -> dict[str, Any]:
        file = await self._files(given.owner).get(given.name, given.version or None, timeout=timeout)
        return {
            "memory_file": memory_context_service_pb2.GetMemoryFileResponse(
                file=answers.memory_file(file), content=file.content
            )
        }

    async def put_memory_file(
        self, given: memory_context_service_pb2.PutMemoryFileRequest, timeout: float | None
    ) -> dict[str, Any]:
        info = await self._files(given.owner).put(
            given.content,
            given.name,
            etag=given.etag or None,
            create_only=given.create_only,
            author=given.author,
            allow_secrets=given.allow_secrets,
            request_id=given.request_id or None,
            timeout=timeout,
        )
        return {"memory_files": answers.memory_files(info)}

    async def list_memory_files(
        self, given: memory_context_service_pb2.ListMemoryFilesRequest, timeout: float | None
    ) -> dict[str, Any]:
        files = self._files(given.owner).list(page_size=given.page_size, timeout=timeout)
        return {"memory_files": answers.memory_files(*await _read(files))}

    async def delete_memory_file(
        self, given: memory_context_service_pb2.DeleteMemoryFileRequest, timeout: float | None
    ) -> dict[str, Any]:
        return {"flag": await self._files(given.owner).delete(given.name, given.etag or None, timeout=timeout)}

    async def list_memory_file_versions(
        self, given: memory_context_service_pb2.ListMemoryFileVersionsRequest, timeout: float | None
    ) -> dict[str, Any]:
        versions = await self._files(given.owner).versions(given.name, timeout=timeout)
        return {"memory_files": answers.memory_files(*versions)}

    async def add_memory_entries(
        self, given: memory_context_service_pb2.AddMemoryEntriesRequest, timeout: float | None
    ) -> dict[str, Any]:
        added = await self._files(given.owner).add(
            list(given.entries),
            given.author,
            given.allow_secrets,
            request_id=given.request_id or None,
            timeout=timeout,
        )
        return {
            "added": answers.fill(
                memory_context_service_pb2.AddMemoryEntriesResponse(),
                added,
                added_count="added",
                skipped_count="skipped",
            )
        }

    async def append_daily_log(
        self, given: memory_context_service_pb2.AppendDailyLogRequest, timeout: float | None
    ) -> dict[str, Any]:
        info = await self._files(given.owner).log(
            given.text,
            given.date or None,
            given.time_zone,
            given.author,
            given.allow_secrets,
            request_id=given.request_id or None,
            timeout=timeout,
        )
        return {"memory_files": answers.memory_files(info)}

    # Runs

    async def enqueue_run(self, given: run_service_pb2.CreateRunRequest, timeout: float | None) -> dict[str, Any]:
        info = await self.memory.enqueue_run(
            self._session(given.run.session),
            given.run.run_id or None,
            metadata=given.metadata,
            create=_settings(given),
            timeout=timeout,
        )
        return {"runs": _runs(info)}

    async def get_run(self, given: run_service_pb2.GetRunRequest, timeout: float | None) -> dict[str, Any]:
        session = self._session(given.run.session)
        return {"runs": _runs(await self.memory.get_run(session, given.run.run_id, timeout=timeout))}

    async def list_runs(self, given: run_service_pb2.ListRunsRequest, timeout: float | None) -> dict[str, Any]:
        by_session = given.HasField("session")
        runs = self.memory.runs(
            session=self._session(given.session) if by_session else None,
            agent=None if by_session else given.agent,
            statuses=[enums.RUN_STATUS.member_or_unspecified(status) for status in given.statuses],
            page_size=given.page_size,
            timeout=timeout,
        )
        return {"runs": _runs(*await _read(runs))}

    async def update_run(self, given: run_service_pb2.UpdateRunRequest, timeout: float | None) -> dict[str, Any]:
        wanted, paths = given.run, set(given.update_mask.paths)
        info = await self.memory.get_run(self._session(wanted.key.session), wanted.key.run_id, timeout=timeout)
        if wanted.etag:
            info = replace(info, etag=wanted.etag)
        info = await self.memory.update_run(
            info,
            status=enums.RUN_STATUS.member_or_unspecified(wanted.status) if "status" in paths else None,
            reason=wanted.status_reason if "status_reason" in paths else "",
            metadata=wanted.metadata if "metadata" in paths else None,
            timeout=timeout,
        )
        return {"runs": _runs(info)}

    async def delete_run(self, given: run_service_pb2.DeleteRunRequest, timeout: float | None) -> dict[str, Any]:
        session = self._session(given.run.session)
        return {"flag": await self.memory.delete_run(session, given.run.run_id, timeout=timeout)}

    async def list_run_steps(self, given: run_service_pb2.ListRunStepsRequest, timeout: float | None) -> dict[str, Any]:
        steps = self.memory.run_steps(
            self._session(given.run.session),
            given.run.run_id,
            given.after_number,
            page_size=given.page_size,
            timeout=timeout,
        )
        return {"run_steps": _steps(*await _read(steps))}

    async def begin_run(self, given: pb.BeginRun, _timeout: float | None) -> dict[str, Any]:
        run = self.memory.run(
            self._session(given.run.session), given.run.run_id or None, metadata=given.metadata, **_hold(given)
        )
        return await self._held(given.name, run)

    async def claim_run(self, given: pb.ClaimRun, _timeout: float | None) -> dict[str, Any]:
        if given.HasField("run"):
            session = self._session(given.run.session)
            return await self._held(given.name, self.memory.claim(session, given.run.run_id, **_hold(given)))
        patience = _seconds(given, "patience")
        try:
            async with asyncio.timeout(patience):
                async for run in self.memory.claims(given.agent, poll=0.05, **_hold(given)):
                    return await self._held(given.name, run)
        except TimeoutError:
            pass
        return {}

    async def _held(self, name: str, run: memoryd.AsyncRun) -> dict[str, Any]:
        block = HeldBlock(run)
        await block.enter()
        self._blocks[name] = block
        return {"held_run": answers.held_run(run)}

    async def look_at_run(self, given: pb.Named, _timeout: float | None) -> dict[str, Any]:
        return {"held_run": answers.held_run(self._blocks[given.name].run)}

    async def commit_run_step(self, given: pb.CommitRunStep, timeout: float | None) -> dict[str, Any]:
        step = await self._blocks[given.name].run.step(
            _payload(given.payload),
            messages=messages_from_proto(given.messages),
            content_type=given.payload.content_type or None,
            timeout=timeout,
        )
        return {"run_steps": _steps(step)}

    async def resume_run(self, given: pb.Named, timeout: float | None) -> dict[str, Any]:
        step = await self._blocks[given.name].run.resume(timeout=timeout)
        return {"run_steps": _steps(*(() if step is None else (step,)))}

    async def pause_run(self, given: pb.EndRun, timeout: float | None) -> dict[str, Any]:
        run = self._blocks[given.name].run
        await run.pause(
            enums.RUN_STATUS.member_or_unspecified(given.status),
            _payload(given.payload) if given.HasField("payload") else None,
            reason=given.reason,
            messages=messages_from_proto(given.messages),
            timeout=timeout,
        )
        return {"held_run": answers.held_run(run)}

    async def finish_run(self, given: pb.EndRun, timeout: float | None) -> dict[str, Any]:
        run = self._blocks[given.name].run
        await run.finish(
            enums.RUN_STATUS.member_or_unspecified(given.status),
            reason=given.reason,
            payload=_payload(given.payload) if given.HasField("payload") else None,
            messages=messages_from_proto(given.messages),
            timeout=timeout,
        )
        return {"held_run": answers.held_run(run)}

    async def leave_run(self, given: pb.LeaveRun, _timeout: float | None) -> dict[str, Any]:
        await self._blocks.pop(given.name).leave(given)
        return {"done": pb.Done()}

    # Agents and stores

    async def get_agent(self, given: agent_service_pb2.GetAgentRequest, timeout: float | None) -> dict[str, Any]:
        return {"agent": answers.agent(await self.memory.agent(given.agent).info(timeout=timeout))}

    async def update_agent(self, given: agent_service_pb2.UpdateAgentRequest, timeout: float | None) -> dict[str, Any]:
        agent = given.agent
        changes: dict[str, Any] = {}
        for path in given.update_mask.paths:
            match path:
                case "policy":
                    changes[path] = policy_from_proto(agent.policy)
                case "load_memory":
                    changes[path] = agent.load_memory
                case "run_retention" if not agent.HasField("run_retention"):
                    changes[path] = memoryd.SERVERS_DEFAULT
                case "run_retention":
                    changes[path] = agent.run_retention.ToTimedelta() or memoryd.FOREVER
        info = await self.memory.agent(agent.agent).update(**changes, etag=agent.etag or None, timeout=timeout)
        return {"agent": answers.agent(info)}

    async def list_agents(self, given: agent_service_pb2.ListAgentsRequest, timeout: float | None) -> dict[str, Any]:
        agents = await _read(self.memory.agents(page_size=given.page_size, timeout=timeout))
        return {"agents": pb.Agents(agents=map(answers.agent, agents))}

    async def get_store(self, given: store_service_pb2.GetStoreRequest, timeout: float | None) -> dict[str, Any]:
        return {"stores": _stores(await self.memory.store(given.name or None, timeout=timeout))}

    async def list_stores(self, _given: store_service_pb2.ListStoresRequest, timeout: float | None) -> dict[str, Any]:
        return {"stores": _stores(*await self.memory.stores(timeout=timeout))}

    async def switch_store(self, given: pb.SwitchStore, timeout: float | None) -> dict[str, Any]:
        return {"stores": _stores(await self.memory.switch_store(given.name, timeout=timeout))}

    async def store_type(self, _given: pb.StoreType, timeout: float | None) -> dict[str, Any]:
        return {"text": await self.memory.store_type(timeout=timeout)}

    # Messages

    async def to_messages(self, given: pb.ToMessages, _timeout: float | None) -> dict[str, Any]:
        source = json.loads(given.json)
        match given.format:
            case pb.FORMAT_OPENAI_CHAT:
                messages = memoryd.from_openai(source)
            case pb.FORMAT_ANTHROPIC:
                messages = memoryd.from_anthropic(**source)
            case _:
                messages = memoryd.from_openai_responses(source)
        return {"messages": answers.messages(messages)}

    async def from_messages(self, given: pb.FromMessages, _timeout: float | None) -> dict[str, Any]:
        messages = messages_from_proto(given.messages)
        made: Any
        match given.format:
            case pb.FORMAT_OPENAI_CHAT:
                made = memoryd.to_openai(messages)
            case pb.FORMAT_ANTHROPIC:
                made = memoryd.to_anthropic(messages)
            case _:
                made = memoryd.to_openai_responses(messages)
        return {"json": json.dumps(made)}

    async def make_message(self, given: pb.MakeMessage, _timeout: float | None) -> dict[str, Any]:
        content = given.text if given.HasField("text") else None
        match enums.ROLE.member_or_unspecified(given.role):
            case memoryd.Role.SYSTEM:
                message = memoryd.system(content)
            case memoryd.Role.DEVELOPER:
                message = memoryd.developer(content)
            case memoryd.Role.USER:
                message = memoryd.user(content)
            case memoryd.Role.ASSISTANT:
                calls = [memoryd.call(call.name, call.arguments, id=call.id or None) for call in given.calls]
                message = memoryd.assistant(content, tool_calls=calls)
            case _:
                message = memoryd.tool(given.call_id, given.text, is_error=given.is_error)
        return {"messages": answers.messages([message])}

    async def measure(self, given: pb.Measure, _timeout: float | None) -> dict[str, Any]:
        return {"measurement": await measuring.measure(given, self.memory, self.address)}


def _seconds(message: Any, field: str) -> float | None:
    """A length of time, where it is set."""
    return getattr(message, field).ToTimedelta().total_seconds() if message.HasField(field) else None


async def _read(items: AsyncIterator[Item], most: int = 0) -> list[Item]:
    read: list[Item] = []
    async for item in items:
        read.append(item)
        if len(read) == most:
            break
    return read


def _by(given: history_service_pb2.GetMessageRequest | history_service_pb2.RedactMessageRequest) -> dict[str, Any]:
    """How the request names its message."""
    by = given.WhichOneof("by")
    return {by: getattr(given, by)} if by else {}


def _settings(
    given: history_service_pb2.AppendMessagesRequest | run_service_pb2.CreateRunRequest,
) -> memoryd.SessionSettings | None:
    if not given.HasField("create"):
        return None
    create = given.create
    return memoryd.SessionSettings(
        user_id=create.user_id,
        labels=dict(create.labels),
        tokenizer=enums.TOKENIZER.member_or_unspecified(create.tokenizer),
        policy=policy_from_proto(create.policy) if create.HasField("policy") else None,
        ttl=create.ttl.ToTimedelta() if create.HasField("ttl") else None,
    )


def _user_tier(source: pb.TierSource) -> memoryd.UserFiles | memoryd.StoredMemory:
    return memoryd.UserFiles(source.files) if source.HasField("files") else memoryd.StoredMemory(user=source.stored)


def _project_tier(source: pb.TierSource) -> memoryd.ProjectFiles | memoryd.StoredMemory:
    if source.HasField("files"):
        return memoryd.ProjectFiles(source.files)
    return memoryd.StoredMemory(project=source.stored)


def _hold(given: pb.BeginRun | pb.ClaimRun) -> dict[str, Any]:
    lease = _seconds(given, "lease")
    return {"holder": given.holder or None} | ({} if lease is None else {"lease": lease})


def _payload(given: pb.Payload) -> Any:
    match given.WhichOneof("form"):
        case "text":
            return given.text
        case "json":
            return json.loads(given.json)
        case _:
            return given.data


def _runs(*infos: memoryd.RunInfo) -> pb.Runs:
    return pb.Runs(runs=map(answers.run, infos))


def _steps(*steps: memoryd.RunStep) -> pb.RunSteps:
    return pb.RunSteps(steps=map(answers.run_step, steps))


def _stores(*infos: memoryd.StoreInfo) -> pb.Stores:
    return pb.Stores(stores=map(answers.store, infos))

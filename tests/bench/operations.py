"""The calls that are measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from memoryd.v1.history_service_pb2 import (
    LIST_ORDER_DESCENDING,
    AppendMessagesRequest,
    AppendMessagesResponse,
    ListMessagesRequest,
    ListMessagesResponse,
)
from memoryd.v1.memory_context_service_pb2 import (
    MEMORY_TIER_STATE_TRUNCATED,
    MemorySource,
    RenderMemoryContextRequest,
    RenderMemoryContextResponse,
)
from memoryd.v1.policy_pb2 import WINDOW_MODE_MESSAGES, WINDOW_MODE_TOKENS, WindowOptions
from memoryd.v1.run_service_pb2 import (
    RUN_STATUS_RUNNING,
    ClaimRunRequest,
    ClaimRunResponse,
    CommitRunStepRequest,
    CommitRunStepResponse,
    RenewRunLeaseRequest,
    RenewRunLeaseResponse,
)
from memoryd.v1.session_pb2 import SessionKey
from memoryd.v1.summary_service_pb2 import (
    CommitSummaryRequest,
    CommitSummaryResponse,
    LeaseSummaryTaskRequest,
    LeaseSummaryTaskResponse,
)
from memoryd.v1.window_service_pb2 import LoadWindowRequest, LoadWindowResponse
from tests.bench import workers
from tests.bench.histories import SUMMARY, Writer
from tests.bench.memories import index
from tests.bench.runs import QUEUED

_WINDOW_MESSAGES: Final = 20
_WINDOW_TOKENS: Final = 2_000
_PAGE_MESSAGES: Final = 100
_TOKEN: Final = "x" * 60
"""As long as the tokens of tasks."""
_LARGEST_GROUP: Final = 4
"""Messages of the largest tool group, whose place at a window's end may stay empty."""
_LARGEST_GROUP_TOKENS: Final = 600


class WrongAnswer(Exception):
    """A call was answered, but not with what it must hold."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that is measured."""

    name: str
    method: str
    """Its path on the wire."""
    request_type: type[Message]
    answer_type: type[Message]
    request: Callable[[SessionKey, Writer], Message]
    """Makes a request for a session; appends take their messages from the writer."""
    is_right: Callable[[Any], bool]
    """Whether an answer holds what it must, in O(1)."""
    appends: bool = False
    summarized: bool = False
    """Whether it is called for sessions with summaries."""
    remembers: bool = False
    """Whether it is called for memory, of an owner with the name of a session, and for no session."""
    of_runs: bool = False
    """Whether it is called for runs: for the one of a session that is held, or for any of an agent."""
    chosen_with: str = ""
    """The operation with which it is measured; empty when a run chooses it by its own name."""
    prepare: Callable[[grpc.aio.Channel, SessionKey, Writer], Callable[[], Awaitable[Message]]] | None = None
    """For calls that something must come before: makes what does that for each, which is not measured, and makes the
    request. What `request` makes is then of its size, for the floor. Such calls are measured for one caller.
    """

    def check(self, answer: object) -> None:
        """Raises: WrongAnswer."""
        if not self.is_right(answer):
            raise WrongAnswer(f"{self.name} was answered with:\n{str(answer)[:2_000]}")


def _window_of(options: WindowOptions) -> Callable[[SessionKey, Writer], LoadWindowRequest]:
    return lambda key, _: LoadWindowRequest(session=key, options=options)


def _is_window_of_messages(answer: LoadWindowResponse) -> bool:
    return _WINDOW_MESSAGES - _LARGEST_GROUP < len(answer.messages) <= _WINDOW_MESSAGES


def _is_window_of_tokens(answer: LoadWindowResponse) -> bool:
    return _WINDOW_TOKENS - _LARGEST_GROUP_TOKENS < answer.stats.window_token_count <= _WINDOW_TOKENS


def _is_answer_to(appended: int) -> Callable[[AppendMessagesResponse], bool]:
    return lambda answer: len(answer.messages) == appended and answer.messages[-1].seq > appended


def _is_answer_to_step(messages: int) -> Callable[[CommitRunStepResponse], bool]:
    return lambda answer: answer.status == RUN_STATUS_RUNNING and len(answer.messages) == messages


_BUDGET: Final = 6_000
"""Characters of rendered memory: the default."""
_LONGEST_ENTRY: Final = 160
"""The room that may stay empty in each tier."""


def _is_full_block(answer: RenderMemoryContextResponse) -> bool:
    states = {answer.user.state, answer.project.state}
    return states == {MEMORY_TIER_STATE_TRUNCATED} and len(answer.block) > _BUDGET - 2 * _LONGEST_ENTRY


async def _leased(channel: grpc.aio.Channel, key: SessionKey, writer: Writer) -> CommitSummaryRequest:
    """Appends until the next summary is due, and leases its task."""
    append = channel.unary_unary(
        "/memoryd.v1.HistoryService/AppendMessages",
        request_serializer=AppendMessagesRequest.SerializeToString,
        response_deserializer=AppendMessagesResponse.FromString,
    )
    lease = channel.unary_unary(
        "/memoryd.v1.SummaryService/LeaseSummaryTask",
        request_serializer=LeaseSummaryTaskRequest.SerializeToString,
        response_deserializer=LeaseSummaryTaskResponse.FromString,
    )
    while True:
        await append(AppendMessagesRequest(session=key, messages=[writer.plain()]))
        answer: LeaseSummaryTaskResponse = await lease(LeaseSummaryTaskRequest(session=key))
        if answer.HasField("task"):
            return CommitSummaryRequest(session=key, task_token=answer.task.task_token, text=SUMMARY, model="bench")


ALL: Final = {
    operation.name: operation
    for operation in (
        Operation(
            "load_window_20",
            "/memoryd.v1.WindowService/LoadWindow",
            LoadWindowRequest,
            LoadWindowResponse,
            _window_of(WindowOptions(mode=WINDOW_MODE_MESSAGES, limit=_WINDOW_MESSAGES)),
            _is_window_of_messages,
        ),
        Operation(
            "load_window_20s",
            "/memoryd.v1.WindowService/LoadWindow",
            LoadWindowRequest,
            LoadWindowResponse,
            lambda key, _: LoadWindowRequest(
                session=key, options=WindowOptions(mode=WINDOW_MODE_MESSAGES, limit=_WINDOW_MESSAGES), summary=True
            ),
            _is_window_of_messages,
            summarized=True,
        ),
        Operation(
            "load_window_2000t",
            "/memoryd.v1.WindowService/LoadWindow",
            LoadWindowRequest,
            LoadWindowResponse,
            _window_of(WindowOptions(mode=WINDOW_MODE_TOKENS, limit=_WINDOW_TOKENS)),
            _is_window_of_tokens,
        ),
        Operation(
            "list_page",
            "/memoryd.v1.HistoryService/ListMessages",
            ListMessagesRequest,
            ListMessagesResponse,
            lambda key, _: ListMessagesRequest(session=key, page_size=_PAGE_MESSAGES, order=LIST_ORDER_DESCENDING),
            lambda answer: len(answer.messages) == _PAGE_MESSAGES,
        ),
        Operation(
            "append_1",
            "/memoryd.v1.HistoryService/AppendMessages",
            AppendMessagesRequest,
            AppendMessagesResponse,
            lambda key, writer: AppendMessagesRequest(session=key, messages=[writer.plain()]),
            _is_answer_to(1),
            appends=True,
        ),
        Operation(
            "append_10",
            "/memoryd.v1.HistoryService/AppendMessages",
            AppendMessagesRequest,
            AppendMessagesResponse,
            lambda key, writer: AppendMessagesRequest(session=key, messages=writer.ten()),
            _is_answer_to(10),
            appends=True,
        ),
        Operation(
            "commit_summary",
            "/memoryd.v1.SummaryService/CommitSummary",
            CommitSummaryRequest,
            CommitSummaryResponse,
            lambda key, _: CommitSummaryRequest(session=key, task_token=_TOKEN, text=SUMMARY, model="bench"),
            lambda answer: answer.summary.current and answer.summary.text == SUMMARY,
            appends=True,
            summarized=True,
            prepare=lambda *where: partial(_leased, *where),
        ),
        Operation(
            "render_context",
            "/memoryd.v1.MemoryContextService/RenderMemoryContext",
            RenderMemoryContextRequest,
            RenderMemoryContextResponse,
            lambda _, __: RenderMemoryContextRequest(
                user=MemorySource(data=index("user").encode()), project=MemorySource(data=index("project").encode())
            ),
            _is_full_block,
            remembers=True,
        ),
        Operation(
            "render_context_stored",
            "/memoryd.v1.MemoryContextService/RenderMemoryContext",
            RenderMemoryContextRequest,
            RenderMemoryContextResponse,
            lambda key, _: RenderMemoryContextRequest(
                user=MemorySource(stored=key.session_id), project=MemorySource(stored=key.session_id)
            ),
            _is_full_block,
            remembers=True,
            chosen_with="render_context",
        ),
        Operation(
            "claim_run",
            "/memoryd.v1.RunService/ClaimRun",
            ClaimRunRequest,
            ClaimRunResponse,
            workers.claim,
            lambda answer: bool(answer.fence) and answer.run.key.run_id == QUEUED,
            appends=True,
            of_runs=True,
            prepare=workers.claims,
        ),
        Operation(
            "commit_run_step",
            "/memoryd.v1.RunService/CommitRunStep",
            CommitRunStepRequest,
            CommitRunStepResponse,
            workers.step,
            _is_answer_to_step(0),
            appends=True,
            of_runs=True,
            prepare=workers.steps,
        ),
        Operation(
            "commit_run_step_1",
            "/memoryd.v1.RunService/CommitRunStep",
            CommitRunStepRequest,
            CommitRunStepResponse,
            workers.step_with_message,
            _is_answer_to_step(1),
            appends=True,
            of_runs=True,
            chosen_with="commit_run_step",
            prepare=workers.steps_with_message,
        ),
        Operation(
            "renew_run_lease",
            "/memoryd.v1.RunService/RenewRunLease",
            RenewRunLeaseRequest,
            RenewRunLeaseResponse,
            workers.renewal,
            lambda answer: answer.HasField("lease_expire_time"),
            appends=True,
            of_runs=True,
            prepare=workers.renewals,
        ),
    )
}


def chosen(names: Collection[str]) -> Sequence[Operation]:
    """The operations of a run that names these."""
    return [operation for operation in ALL.values() if (operation.chosen_with or operation.name) in names]

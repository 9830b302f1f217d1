"""Walking over the pages of lists."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from memoryd.arguments import PAGE_SIZES, SEQS, integer, string
from memoryd.decoding import (
    agent_info_from_proto,
    memory_file_info_from_proto,
    messages_from_proto,
    run_info_from_proto,
    run_step_from_proto,
    session_info_from_proto,
)
from memoryd.encoding import timestamp
from memoryd.enums import LIST_ORDER, MESSAGE_VIEW, ROLE, RUN_STATUS
from memoryd.histories import AgentInfo, ListOrder, MessageView, SessionInfo
from memoryd.memories import MemoryFileInfo
from memoryd.messages import Message, Role
from memoryd.methods import (
    LIST_AGENTS,
    LIST_MEMORY_FILES,
    LIST_MESSAGES,
    LIST_RUN_STEPS,
    LIST_RUNS,
    LIST_SESSIONS,
    Method,
)
from memoryd.plans import Plan, call
from memoryd.runs import RunInfo, RunStatus, RunStep
from memoryd.v1 import agent_service_pb2, history_service_pb2, memory_context_service_pb2, run_service_pb2
from memoryd.v1.session_pb2 import SessionKey

Item = TypeVar("Item")


class Pages(Generic[Item]):
    """The pages of a list, one after another. The last one is that without a next_page_token, not an empty one."""

    def __init__(self, method: Method[Any, Any], request: Any, items: Callable[[Any], Sequence[Item]]) -> None:
        self._method = method
        self._request = request
        self._items = items
        self.left = True
        """Whether there may be another page."""

    def next_page(self) -> Plan[Sequence[Item]]:
        """Plans the reading of the next page."""
        response = yield from call(self._method, self._request)
        self._request.page_token = response.next_page_token
        self.left = bool(response.next_page_token)
        return self._items(response)


def message_pages(
    session: SessionKey,
    *,
    order: ListOrder | str,
    page_size: int,
    roles: Iterable[Role | str],
    run_id: str,
    from_seq: int,
    to_seq: int,
    from_time: datetime | None,
    to_time: datetime | None,
    view: MessageView | str,
) -> Pages[Message]:
    """The pages of a session's messages."""
    request = history_service_pb2.ListMessagesRequest(
        session=session,
        page_size=_size(page_size),
        order=LIST_ORDER.number(LIST_ORDER.chosen(order, "order")),
        filter=history_service_pb2.MessageFilter(
            roles=ROLE.numbers(roles, "roles"),
            run_id=string(run_id, "run_id", "run-7"),
            from_seq=integer(from_seq, "from_seq", SEQS),
            to_seq=integer(to_seq, "to_seq", SEQS),
            from_time=None if from_time is None else timestamp(from_time, "from_time"),
            to_time=None if to_time is None else timestamp(to_time, "to_time"),
        ),
        view=MESSAGE_VIEW.number(MESSAGE_VIEW.chosen(view, "view")),
    )
    return Pages(LIST_MESSAGES, request, lambda response: messages_from_proto(response.messages))


def session_pages(*, agent: str, user_id: str, page_size: int) -> Pages[SessionInfo]:
    """The pages of the sessions of an agent, of a user, or of all."""
    request = history_service_pb2.ListSessionsRequest(
        agent=string(agent, "agent", "assistant"),
        user_id=string(user_id, "user_id", "mia"),
        page_size=_size(page_size),
    )
    return Pages(LIST_SESSIONS, request, lambda response: list(map(session_info_from_proto, response.sessions)))


def agent_pages(*, page_size: int) -> Pages[AgentInfo]:
    """The pages of all agents."""
    request = agent_service_pb2.ListAgentsRequest(page_size=_size(page_size))
    return Pages(LIST_AGENTS, request, lambda response: list(map(agent_info_from_proto, response.agents)))


def memory_file_pages(owner: memory_context_service_pb2.MemoryOwner, *, page_size: int) -> Pages[MemoryFileInfo]:
    """The pages of an owner's memory files."""
    request = memory_context_service_pb2.ListMemoryFilesRequest(owner=owner, page_size=_size(page_size))
    return Pages(LIST_MEMORY_FILES, request, lambda response: list(map(memory_file_info_from_proto, response.files)))


def run_pages(
    *, agent: str | None, session: SessionKey | None, statuses: Iterable[RunStatus | str], page_size: int
) -> Pages[RunInfo]:
    """The pages of the runs of a session, or of all sessions of an agent."""
    if (agent is None) == (session is None):
        raise ValueError("runs are listed of one agent or of one session: give either agent or session")
    request = run_service_pb2.ListRunsRequest(
        session=session,
        statuses=RUN_STATUS.numbers(statuses, "statuses"),
        page_size=_size(page_size),
    )
    if agent is not None:
        request.agent = string(agent, "agent", "assistant")
    return Pages(LIST_RUNS, request, lambda response: list(map(run_info_from_proto, response.runs)))


def run_step_pages(run: run_service_pb2.RunKey, *, after: int, page_size: int) -> Pages[RunStep]:
    """The pages of a run's steps."""
    request = run_service_pb2.ListRunStepsRequest(
        run=run, after_number=integer(after, "after", SEQS), page_size=_size(page_size)
    )
    return Pages(LIST_RUN_STEPS, request, lambda response: list(map(run_step_from_proto, response.steps)))


def _size(page_size: int) -> int:
    return integer(page_size, "page_size", PAGE_SIZES, bits=32)

"""The methods of the API that the SDK calls, and which of them are tried again."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from memoryd.v1.agent_service_pb2 import (
    GetAgentRequest,
    GetAgentResponse,
    ListAgentsRequest,
    ListAgentsResponse,
    UpdateAgentRequest,
    UpdateAgentResponse,
)
from memoryd.v1.agent_service_pb2_grpc import AgentServiceStub
from memoryd.v1.history_service_pb2 import (
    AppendMessagesRequest,
    AppendMessagesResponse,
    ClearAgentHistoryRequest,
    ClearAgentHistoryResponse,
    ClearHistoryRequest,
    ClearHistoryResponse,
    EraseUserRequest,
    EraseUserResponse,
    ForkSessionRequest,
    ForkSessionResponse,
    GetMessageRequest,
    GetMessageResponse,
    GetSessionRequest,
    GetSessionResponse,
    ListMessagesRequest,
    ListMessagesResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    RedactMessageRequest,
    RedactMessageResponse,
    RewindSessionRequest,
    RewindSessionResponse,
    UpdateSessionRequest,
    UpdateSessionResponse,
    WatchMessagesRequest,
    WatchMessagesResponse,
)
from memoryd.v1.history_service_pb2_grpc import HistoryServiceStub
from memoryd.v1.store_service_pb2 import GetStoreRequest, GetStoreResponse, ListStoresRequest, ListStoresResponse
from memoryd.v1.store_service_pb2_grpc import StoreServiceStub
from memoryd.v1.summary_service_pb2 import (
    AbandonSummaryTaskRequest,
    AbandonSummaryTaskResponse,
    CommitSummaryRequest,
    CommitSummaryResponse,
    GetSummaryRequest,
    GetSummaryResponse,
    LeaseSummaryTaskRequest,
    LeaseSummaryTaskResponse,
    ListSummariesRequest,
    ListSummariesResponse,
    RevertSummaryRequest,
    RevertSummaryResponse,
    SummarizeRequest,
    SummarizeResponse,
)
from memoryd.v1.summary_service_pb2_grpc import SummaryServiceStub
from memoryd.v1.window_service_pb2 import (
    LoadWindowRequest,
    LoadWindowResponse,
    StreamWindowRequest,
    StreamWindowResponse,
)
from memoryd.v1.window_service_pb2_grpc import WindowServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """A method of the API: the stub that has it, its name, and whether it is tried again on UNAVAILABLE.

    Tried again are reads and what a repeat does not change: an append, recognized by the ids of its messages; a clear,
    a rewind and a fork, recognized by the request id that the SDK makes; a redaction; and an erasure, whose second
    answer counts what was left. An update is not, since a repeat could undo another caller's later one (or, with an
    etag, fail against its own first try); nor is the clear of an agent, whose second answer would count nothing. A
    watch resumes by itself, behind what it has seen.
    """

    stub: type[Any]
    name: str
    retried: bool

    @property
    def service(self) -> str:
        """The full name of the service, for example `memoryd.v1.HistoryService`."""
        return f"memoryd.v1.{self.stub.__name__.removesuffix('Stub')}"


APPEND_MESSAGES: Method[AppendMessagesRequest, AppendMessagesResponse] = Method(
    HistoryServiceStub, "AppendMessages", retried=True
)
LIST_MESSAGES: Method[ListMessagesRequest, ListMessagesResponse] = Method(
    HistoryServiceStub, "ListMessages", retried=True
)
GET_MESSAGE: Method[GetMessageRequest, GetMessageResponse] = Method(HistoryServiceStub, "GetMessage", retried=True)
GET_SESSION: Method[GetSessionRequest, GetSessionResponse] = Method(HistoryServiceStub, "GetSession", retried=True)
LIST_SESSIONS: Method[ListSessionsRequest, ListSessionsResponse] = Method(
    HistoryServiceStub, "ListSessions", retried=True
)
UPDATE_SESSION: Method[UpdateSessionRequest, UpdateSessionResponse] = Method(
    HistoryServiceStub, "UpdateSession", retried=False
)
CLEAR_HISTORY: Method[ClearHistoryRequest, ClearHistoryResponse] = Method(
    HistoryServiceStub, "ClearHistory", retried=True
)
CLEAR_AGENT_HISTORY: Method[ClearAgentHistoryRequest, ClearAgentHistoryResponse] = Method(
    HistoryServiceStub, "ClearAgentHistory", retried=False
)
REDACT_MESSAGE: Method[RedactMessageRequest, RedactMessageResponse] = Method(
    HistoryServiceStub, "RedactMessage", retried=True
)
REWIND_SESSION: Method[RewindSessionRequest, RewindSessionResponse] = Method(
    HistoryServiceStub, "RewindSession", retried=True
)
FORK_SESSION: Method[ForkSessionRequest, ForkSessionResponse] = Method(HistoryServiceStub, "ForkSession", retried=True)
ERASE_USER: Method[EraseUserRequest, EraseUserResponse] = Method(HistoryServiceStub, "EraseUser", retried=True)
WATCH_MESSAGES: Method[WatchMessagesRequest, WatchMessagesResponse] = Method(
    HistoryServiceStub, "WatchMessages", retried=False
)
LOAD_WINDOW: Method[LoadWindowRequest, LoadWindowResponse] = Method(WindowServiceStub, "LoadWindow", retried=True)
STREAM_WINDOW: Method[StreamWindowRequest, StreamWindowResponse] = Method(
    WindowServiceStub, "StreamWindow", retried=True
)
GET_AGENT: Method[GetAgentRequest, GetAgentResponse] = Method(AgentServiceStub, "GetAgent", retried=True)
UPDATE_AGENT: Method[UpdateAgentRequest, UpdateAgentResponse] = Method(AgentServiceStub, "UpdateAgent", retried=False)
LIST_AGENTS: Method[ListAgentsRequest, ListAgentsResponse] = Method(AgentServiceStub, "ListAgents", retried=True)
GET_STORE: Method[GetStoreRequest, GetStoreResponse] = Method(StoreServiceStub, "GetStore", retried=True)
LIST_STORES: Method[ListStoresRequest, ListStoresResponse] = Method(StoreServiceStub, "ListStores", retried=True)
SUMMARIZE: Method[SummarizeRequest, SummarizeResponse] = Method(SummaryServiceStub, "Summarize", retried=False)
GET_SUMMARY: Method[GetSummaryRequest, GetSummaryResponse] = Method(SummaryServiceStub, "GetSummary", retried=True)
LIST_SUMMARIES: Method[ListSummariesRequest, ListSummariesResponse] = Method(
    SummaryServiceStub, "ListSummaries", retried=True
)
REVERT_SUMMARY: Method[RevertSummaryRequest, RevertSummaryResponse] = Method(
    SummaryServiceStub, "RevertSummary", retried=False
)
LEASE_SUMMARY_TASK: Method[LeaseSummaryTaskRequest, LeaseSummaryTaskResponse] = Method(
    SummaryServiceStub, "LeaseSummaryTask", retried=False
)
COMMIT_SUMMARY: Method[CommitSummaryRequest, CommitSummaryResponse] = Method(
    SummaryServiceStub, "CommitSummary", retried=True
)
ABANDON_SUMMARY_TASK: Method[AbandonSummaryTaskRequest, AbandonSummaryTaskResponse] = Method(
    SummaryServiceStub, "AbandonSummaryTask", retried=True
)

METHODS: tuple[Method[Any, Any], ...] = (
    APPEND_MESSAGES,
    LIST_MESSAGES,
    GET_MESSAGE,
    GET_SESSION,
    LIST_SESSIONS,
    UPDATE_SESSION,
    CLEAR_HISTORY,
    CLEAR_AGENT_HISTORY,
    REDACT_MESSAGE,
    REWIND_SESSION,
    FORK_SESSION,
    ERASE_USER,
    WATCH_MESSAGES,
    LOAD_WINDOW,
    STREAM_WINDOW,
    GET_AGENT,
    UPDATE_AGENT,
    LIST_AGENTS,
    GET_STORE,
    LIST_STORES,
    SUMMARIZE,
    GET_SUMMARY,
    LIST_SUMMARIES,
    REVERT_SUMMARY,
    LEASE_SUMMARY_TASK,
    COMMIT_SUMMARY,
    ABANDON_SUMMARY_TASK,
)
STUBS: frozenset[type[Any]] = frozenset(method.stub for method in METHODS)

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
from memoryd.v1.memory_context_service_pb2 import (
    AddMemoryEntriesRequest,
    AddMemoryEntriesResponse,
    AppendDailyLogRequest,
    AppendDailyLogResponse,
    DeleteMemoryFileRequest,
    DeleteMemoryFileResponse,
    GetMemoryFileRequest,
    GetMemoryFileResponse,
    ListMemoryFilesRequest,
    ListMemoryFilesResponse,
    ListMemoryFileVersionsRequest,
    ListMemoryFileVersionsResponse,
    PutMemoryFileRequest,
    PutMemoryFileResponse,
    RenderMemoryContextRequest,
    RenderMemoryContextResponse,
)
from memoryd.v1.memory_context_service_pb2_grpc import MemoryContextServiceStub
from memoryd.v1.run_service_pb2 import (
    ClaimRunRequest,
    ClaimRunResponse,
    CommitRunStepRequest,
    CommitRunStepResponse,
    CreateRunRequest,
    CreateRunResponse,
    DeleteRunRequest,
    DeleteRunResponse,
    GetRunRequest,
    GetRunResponse,
    ListRunsRequest,
    ListRunsResponse,
    ListRunStepsRequest,
    ListRunStepsResponse,
    ReleaseRunRequest,
    ReleaseRunResponse,
    RenewRunLeaseRequest,
    RenewRunLeaseResponse,
    UpdateRunRequest,
    UpdateRunResponse,
)
from memoryd.v1.run_service_pb2_grpc import RunServiceStub
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
    a rewind and a fork, recognized by the request id that the SDK makes; writes of memory
    files, recognized likewise; a redaction; an erasure, whose second answer counts what was left; a run that begins,
    recognized by its id, its steps, by their numbers, and the renewal and the release of its lease. An update is not,
    since a repeat could undo another caller's later one (or, with an etag or a fence, fail against its own first try);
    nor is the clear of an agent, whose second answer would count nothing, or the deletion of a memory file or a run,
    which could take away one that was made meanwhile, or a claim, which without a run's name would claim another. A
    watch resumes by itself, behind what it has seen; how a run's claim and end are, `run_plans` says.
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
RENDER_MEMORY_CONTEXT: Method[RenderMemoryContextRequest, RenderMemoryContextResponse] = Method(
    MemoryContextServiceStub, "RenderMemoryContext", retried=True
)
GET_MEMORY_FILE: Method[GetMemoryFileRequest, GetMemoryFileResponse] = Method(
    MemoryContextServiceStub, "GetMemoryFile", retried=True
)
PUT_MEMORY_FILE: Method[PutMemoryFileRequest, PutMemoryFileResponse] = Method(
    MemoryContextServiceStub, "PutMemoryFile", retried=True
)
LIST_MEMORY_FILES: Method[ListMemoryFilesRequest, ListMemoryFilesResponse] = Method(
    MemoryContextServiceStub, "ListMemoryFiles", retried=True
)
DELETE_MEMORY_FILE: Method[DeleteMemoryFileRequest, DeleteMemoryFileResponse] = Method(
    MemoryContextServiceStub, "DeleteMemoryFile", retried=False
)
LIST_MEMORY_FILE_VERSIONS: Method[ListMemoryFileVersionsRequest, ListMemoryFileVersionsResponse] = Method(
    MemoryContextServiceStub, "ListMemoryFileVersions", retried=True
)
ADD_MEMORY_ENTRIES: Method[AddMemoryEntriesRequest, AddMemoryEntriesResponse] = Method(
    MemoryContextServiceStub, "AddMemoryEntries", retried=True
)
APPEND_DAILY_LOG: Method[AppendDailyLogRequest, AppendDailyLogResponse] = Method(
    MemoryContextServiceStub, "AppendDailyLog", retried=True
)
CREATE_RUN: Method[CreateRunRequest, CreateRunResponse] = Method(RunServiceStub, "CreateRun", retried=True)
GET_RUN: Method[GetRunRequest, GetRunResponse] = Method(RunServiceStub, "GetRun", retried=True)
LIST_RUNS: Method[ListRunsRequest, ListRunsResponse] = Method(RunServiceStub, "ListRuns", retried=True)
COMMIT_RUN_STEP: Method[CommitRunStepRequest, CommitRunStepResponse] = Method(
    RunServiceStub, "CommitRunStep", retried=True
)
LIST_RUN_STEPS: Method[ListRunStepsRequest, ListRunStepsResponse] = Method(RunServiceStub, "ListRunSteps", retried=True)
UPDATE_RUN: Method[UpdateRunRequest, UpdateRunResponse] = Method(RunServiceStub, "UpdateRun", retried=False)
CLAIM_RUN: Method[ClaimRunRequest, ClaimRunResponse] = Method(RunServiceStub, "ClaimRun", retried=False)
RENEW_RUN_LEASE: Method[RenewRunLeaseRequest, RenewRunLeaseResponse] = Method(
    RunServiceStub, "RenewRunLease", retried=True
)
RELEASE_RUN: Method[ReleaseRunRequest, ReleaseRunResponse] = Method(RunServiceStub, "ReleaseRun", retried=True)
DELETE_RUN: Method[DeleteRunRequest, DeleteRunResponse] = Method(RunServiceStub, "DeleteRun", retried=False)

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
    RENDER_MEMORY_CONTEXT,
    GET_MEMORY_FILE,
    PUT_MEMORY_FILE,
    LIST_MEMORY_FILES,
    DELETE_MEMORY_FILE,
    LIST_MEMORY_FILE_VERSIONS,
    ADD_MEMORY_ENTRIES,
    APPEND_DAILY_LOG,
    CREATE_RUN,
    GET_RUN,
    LIST_RUNS,
    COMMIT_RUN_STEP,
    LIST_RUN_STEPS,
    UPDATE_RUN,
    CLAIM_RUN,
    RENEW_RUN_LEASE,
    RELEASE_RUN,
    DELETE_RUN,
)
STUBS: frozenset[type[Any]] = frozenset(method.stub for method in METHODS)

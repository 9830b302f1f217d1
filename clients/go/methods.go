package memoryd

import memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"

// retried names the methods that are tried again on UNAVAILABLE: reads and what a repeat does not change. An append is
// recognized by the ids of its messages; a clear, a rewind and a fork by the request id that the client makes; writes of
// memory files likewise; a run that begins by its id, its steps by their numbers, the renewal and the release of its lease
// by its fence. An update is not tried again, since a repeat could undo another caller's later one (or, with an etag or a
// fence, fail against its own first try); nor is the clear of an agent, whose second answer would count nothing, or the
// deletion of a memory file or a run, which could take away one that was made meanwhile; nor are folds, which may ask a
// model each time, and claims and leases, which could claim another. A watch resumes by itself.
var retried = map[string]bool{
	memorydv1.HistoryService_AppendMessages_FullMethodName:               true,
	memorydv1.HistoryService_ListMessages_FullMethodName:                 true,
	memorydv1.HistoryService_GetMessage_FullMethodName:                   true,
	memorydv1.HistoryService_GetSession_FullMethodName:                   true,
	memorydv1.HistoryService_ListSessions_FullMethodName:                 true,
	memorydv1.HistoryService_UpdateSession_FullMethodName:                false,
	memorydv1.HistoryService_ClearHistory_FullMethodName:                 true,
	memorydv1.HistoryService_ClearAgentHistory_FullMethodName:            false,
	memorydv1.HistoryService_RedactMessage_FullMethodName:                true,
	memorydv1.HistoryService_RewindSession_FullMethodName:                true,
	memorydv1.HistoryService_ForkSession_FullMethodName:                  true,
	memorydv1.HistoryService_EraseUser_FullMethodName:                    true,
	memorydv1.HistoryService_WatchMessages_FullMethodName:                false,
	memorydv1.WindowService_LoadWindow_FullMethodName:                    true,
	memorydv1.WindowService_StreamWindow_FullMethodName:                  true,
	memorydv1.AgentService_GetAgent_FullMethodName:                       true,
	memorydv1.AgentService_UpdateAgent_FullMethodName:                    false,
	memorydv1.AgentService_ListAgents_FullMethodName:                     true,
	memorydv1.StoreService_GetStore_FullMethodName:                       true,
	memorydv1.StoreService_ListStores_FullMethodName:                     true,
	memorydv1.SummaryService_Summarize_FullMethodName:                    false,
	memorydv1.SummaryService_GetSummary_FullMethodName:                   true,
	memorydv1.SummaryService_ListSummaries_FullMethodName:                true,
	memorydv1.SummaryService_RevertSummary_FullMethodName:                false,
	memorydv1.SummaryService_LeaseSummaryTask_FullMethodName:             false,
	memorydv1.SummaryService_CommitSummary_FullMethodName:                true,
	memorydv1.SummaryService_AbandonSummaryTask_FullMethodName:           true,
	memorydv1.MemoryContextService_RenderMemoryContext_FullMethodName:    true,
	memorydv1.MemoryContextService_GetMemoryFile_FullMethodName:          true,
	memorydv1.MemoryContextService_PutMemoryFile_FullMethodName:          true,
	memorydv1.MemoryContextService_ListMemoryFiles_FullMethodName:        true,
	memorydv1.MemoryContextService_DeleteMemoryFile_FullMethodName:       false,
	memorydv1.MemoryContextService_ListMemoryFileVersions_FullMethodName: true,
	memorydv1.MemoryContextService_AddMemoryEntries_FullMethodName:       true,
	memorydv1.MemoryContextService_AppendDailyLog_FullMethodName:         true,
	memorydv1.RunService_CreateRun_FullMethodName:                        true,
	memorydv1.RunService_GetRun_FullMethodName:                           true,
	memorydv1.RunService_ListRuns_FullMethodName:                         true,
	memorydv1.RunService_CommitRunStep_FullMethodName:                    true,
	memorydv1.RunService_ListRunSteps_FullMethodName:                     true,
	memorydv1.RunService_UpdateRun_FullMethodName:                        false,
	memorydv1.RunService_ClaimRun_FullMethodName:                         false,
	memorydv1.RunService_RenewRunLease_FullMethodName:                    true,
	memorydv1.RunService_ReleaseRun_FullMethodName:                       true,
	memorydv1.RunService_DeleteRun_FullMethodName:                        false,
}

func isRetried(method string) bool { return retried[method] }

package dev.memoryd;

import dev.memoryd.v1.AgentServiceGrpc;
import dev.memoryd.v1.HistoryServiceGrpc;
import dev.memoryd.v1.MemoryContextServiceGrpc;
import dev.memoryd.v1.RunServiceGrpc;
import dev.memoryd.v1.StoreServiceGrpc;
import dev.memoryd.v1.SummaryServiceGrpc;
import dev.memoryd.v1.WindowServiceGrpc;
import io.grpc.MethodDescriptor;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Which methods are tried again while the server is unavailable; {@link Tries} says how.
 *
 * <p>Tried again are reads and what a repeat does not change: an append, recognized by the ids of its messages; a clear, a
 * rewind and a fork, recognized by the request id that the client makes; writes of memory files, recognized likewise; a
 * redaction; an erasure, whose second answer counts what was left; a run that begins, recognized by its id, its steps, by their
 * numbers, and the renewal and the release of its lease. An update is not, since a repeat could undo another caller's later one
 * (or, with an etag or a fence, fail against its own first try); nor is the clear of an agent, whose second answer would count
 * nothing, or the deletion of a memory file or a run, which could take away one that was made meanwhile, or a claim, which
 * without a run's name would claim another. A watch resumes by itself, behind what it has seen.
 */
final class Methods {
  private static final Map<String, List<String>> RETRIED =
      Map.of(
          HistoryServiceGrpc.SERVICE_NAME,
          List.of(
              "AppendMessages",
              "ListMessages",
              "GetMessage",
              "GetSession",
              "ListSessions",
              "ClearHistory",
              "RedactMessage",
              "RewindSession",
              "ForkSession",
              "EraseUser"),
          WindowServiceGrpc.SERVICE_NAME,
          List.of("LoadWindow", "StreamWindow"),
          AgentServiceGrpc.SERVICE_NAME,
          List.of("GetAgent", "ListAgents"),
          StoreServiceGrpc.SERVICE_NAME,
          List.of("GetStore", "ListStores"),
          SummaryServiceGrpc.SERVICE_NAME,
          List.of("GetSummary", "ListSummaries", "CommitSummary", "AbandonSummaryTask"),
          MemoryContextServiceGrpc.SERVICE_NAME,
          List.of(
              "RenderMemoryContext",
              "GetMemoryFile",
              "PutMemoryFile",
              "ListMemoryFiles",
              "ListMemoryFileVersions",
              "AddMemoryEntries",
              "AppendDailyLog"),
          RunServiceGrpc.SERVICE_NAME,
          List.of(
              "CreateRun", "GetRun", "ListRuns", "CommitRunStep", "ListRunSteps", "RenewRunLease", "ReleaseRun"));

  private static final Set<String> RETRIED_NAMES = new HashSet<>();

  static {
    RETRIED.forEach((service, names) -> names.forEach(name -> RETRIED_NAMES.add(service + "/" + name)));
  }

  private Methods() {}

  static boolean isRetried(MethodDescriptor<?, ?> method) {
    return RETRIED_NAMES.contains(method.getFullMethodName());
  }
}

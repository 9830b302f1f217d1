package dev.memoryd;

import com.google.protobuf.FieldMask;
import dev.memoryd.v1.AppendMessagesRequest;
import dev.memoryd.v1.ClearHistoryRequest;
import dev.memoryd.v1.ForkSessionRequest;
import dev.memoryd.v1.GetMessageRequest;
import dev.memoryd.v1.GetSessionRequest;
import dev.memoryd.v1.GetSummaryRequest;
import dev.memoryd.v1.HistoryServiceGrpc;
import dev.memoryd.v1.ListMessagesRequest;
import dev.memoryd.v1.ListMessagesResponse;
import dev.memoryd.v1.ListSummariesRequest;
import dev.memoryd.v1.LoadWindowRequest;
import dev.memoryd.v1.LoadWindowResponse;
import dev.memoryd.v1.RedactMessageRequest;
import dev.memoryd.v1.RevertSummaryRequest;
import dev.memoryd.v1.RevertSummaryResponse;
import dev.memoryd.v1.RewindSessionRequest;
import dev.memoryd.v1.RewindSessionResponse;
import dev.memoryd.v1.SessionKey;
import dev.memoryd.v1.StreamWindowRequest;
import dev.memoryd.v1.StreamWindowResponse;
import dev.memoryd.v1.SummarizeRequest;
import dev.memoryd.v1.SummarizeResponse;
import dev.memoryd.v1.SummaryServiceGrpc;
import dev.memoryd.v1.UpdateSessionRequest;
import dev.memoryd.v1.WindowServiceGrpc;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;

/** One conversation of one agent. Made by {@link MemoryClient#session}; it begins with its first append. */
public final class Session {
  private static final int STREAM_ATTEMPTS = 5;

  private final Caller caller;
  private final SessionKey key;

  Session(Caller caller, SessionKey key) {
    this.caller = caller;
    this.key = key;
  }

  SessionKey key() {
    return key;
  }

  /** The agent that owns the conversation. */
  public String agent() {
    return key.getAgent();
  }

  /** The session's id. */
  public String id() {
    return key.getSessionId();
  }

  @Override
  public String toString() {
    return "Session[agent=" + agent() + ", id=" + id() + "]";
  }

  /** The same session with another timeout: what an operation may take, its retries included. */
  public Session withTimeout(Duration timeout) {
    return new Session(caller.within(timeout), key);
  }

  /** Appends messages, all or none, as {@link #append(List, AppendOptions)} does. */
  public List<AppendedMessage> append(Message... messages) {
    return append(Arrays.asList(Objects.requireNonNull(messages, "messages")), AppendOptions.DEFAULT);
  }

  /**
   * Appends messages, all or none, and begins the session if there is none.
   *
   * <p>Safe to repeat with the same Message objects: what is stored already is recognized by the ids, and the first answer comes
   * again.
   *
   * @param messages 1 to 256, together at most 3.5 MiB, each at most 2 MiB; {@link #appendAll} takes more
   * @param options conditions, and settings for a session that this append begins
   * @return id, seq, time and token count of each message, in their order
   */
  public List<AppendedMessage> append(List<Message> messages, AppendOptions options) {
    Objects.requireNonNull(messages, "messages");
    Objects.requireNonNull(options, "options");
    return append(caller, messages, options);
  }

  private List<AppendedMessage> append(Caller with, List<Message> messages, AppendOptions options) {
    AppendMessagesRequest.Builder request =
        AppendMessagesRequest.newBuilder()
            .setSession(key)
            .setRequestId(Protos.optional(options.requestId(), "requestId"));
    messages.forEach(message -> request.addMessages(Protos.toProto(message)));
    if (options.expectedLastSeq() != null) {
      request.setExpectedLastSeq(options.expectedLastSeq());
    }
    if (options.create() != null) {
      request.setCreate(Protos.settings(options.create()));
    }
    return with.call(HistoryServiceGrpc.getAppendMessagesMethod(), request.build()).getMessagesList().stream()
        .map(Protos::appended)
        .toList();
  }

  /** Appends any number of messages to the session, as {@link #appendAll(Iterable, SessionSettings)} does. */
  public List<AppendedMessage> appendAll(Iterable<Message> messages) {
    return appendAll(messages, SessionSettings.DEFAULT);
  }

  /**
   * Appends any number of messages, in as many calls as needed; {@link Batches} cuts them.
   *
   * <p>Each call is all or none, the whole is not: after an error the messages before it are stored. Repeating it with the same
   * Message objects goes on where it stopped, as long as it is within 24 hours. The timeout holds for each call.
   *
   * @param messages in their order
   * @param create settings for a session that this begins; ignored when it exists
   */
  public List<AppendedMessage> appendAll(Iterable<Message> messages, SessionSettings create) {
    Objects.requireNonNull(create, "create");
    Caller pinned = caller.pinned();
    AppendOptions options = AppendOptions.DEFAULT.withCreate(create);
    List<AppendedMessage> appended = new ArrayList<>();
    for (List<Message> batch : Batches.of(messages)) {
      appended.addAll(append(pinned, batch, options));
    }
    return appended;
  }

  /** The active messages, oldest first: the current summary, which has no seq, and what it does not cover. */
  public Pages<Message> messages() {
    return messages(MessageQuery.ACTIVE);
  }

  /** The session's messages by seq. {@link MemorydException.SessionNotFound} without the session. */
  public Pages<Message> messages(MessageQuery query) {
    Objects.requireNonNull(query, "query");
    Caller pinned = caller.pinned();
    dev.memoryd.v1.MessageFilter.Builder filter =
        dev.memoryd.v1.MessageFilter.newBuilder()
            .setRunId(Protos.text(query.runId(), "runId"))
            .setFromSeq(query.fromSeq())
            .setToSeq(query.toSeq());
    query.roles().forEach(role -> filter.addRoles(role.toApi()));
    if (query.fromTime() != null) {
      filter.setFromTime(Protos.timestamp(query.fromTime()));
    }
    if (query.toTime() != null) {
      filter.setToTime(Protos.timestamp(query.toTime()));
    }
    ListMessagesRequest request =
        ListMessagesRequest.newBuilder()
            .setSession(key)
            .setOrder(query.order().toApi())
            .setView(query.view().toApi())
            .setFilter(filter)
            .build();
    return new Pages<>(
        (token, size) -> {
          ListMessagesResponse page =
              pinned.call(
                  HistoryServiceGrpc.getListMessagesMethod(),
                  request.toBuilder().setPageSize(size).setPageToken(token).build());
          return new Pages.Page<>(Protos.messages(page.getMessagesList()), page.getNextPageToken());
        });
  }

  /** Reads one message by its seq. {@link MemorydException.MessageNotFound} without it. */
  public Message message(long seq) {
    return message(GetMessageRequest.newBuilder().setSeq(seq));
  }

  /** Reads one message by its id. {@link MemorydException.MessageNotFound} without it. */
  public Message message(String id) {
    return message(GetMessageRequest.newBuilder().setId(Protos.text(id, "id")));
  }

  private Message message(GetMessageRequest.Builder request) {
    return Protos.fromProto(
        caller.call(HistoryServiceGrpc.getGetMessageMethod(), request.setSession(key).build()).getMessage());
  }

  /** The window that the stored policies give. Like {@link #window(WindowRequest)}. */
  public Window window() {
    return window(WindowRequest.DEFAULT);
  }

  /**
   * Loads the newest part of the history that fits: whole tool groups, valid for a model's API.
   *
   * <p>What the request leaves out comes from the session's stored policy, then the agent's, then the server's. A window of any
   * size arrives: one over 3.5 MiB is streamed, and the stream begun again (up to five times) when history was taken away
   * meanwhile. {@link MemorydException.SessionNotFound} without the session.
   */
  public Window window(WindowRequest window) {
    Objects.requireNonNull(window, "window");
    LoadWindowRequest.Builder request =
        LoadWindowRequest.newBuilder()
            .setSession(key)
            .setOptions(Protos.options(window.options()))
            .setExplain(window.explained());
    if (window.summary() != null) {
      request.setSummary(window.summary());
    }
    if (window.waitForSummary() != null) {
      request.setWaitForSummary(window.waitForSummary());
    }
    Caller.Operation operation = caller.begin();
    try {
      LoadWindowResponse response = operation.call(WindowServiceGrpc.getLoadWindowMethod(), request.build());
      return new Window(Protos.messages(response.getMessagesList()), Protos.stats(response.getStats()));
    } catch (MemorydException.WindowTooLarge tooLarge) {
      return streamed(operation, request.build());
    }
  }

  private static Window streamed(Caller.Operation operation, LoadWindowRequest request) {
    StreamWindowRequest.Builder streamed =
        StreamWindowRequest.newBuilder()
            .setSession(request.getSession())
            .setOptions(request.getOptions())
            .setExplain(request.getExplain());
    if (request.hasSummary()) {
      streamed.setSummary(request.getSummary());
    }
    if (request.hasWaitForSummary()) {
      streamed.setWaitForSummary(request.getWaitForSummary());
    }
    for (int attempt = 1; ; attempt++) {
      try {
        return joined(operation.stream(WindowServiceGrpc.getStreamWindowMethod(), streamed.build()));
      } catch (MemorydException.WindowChanged changed) {
        if (attempt == STREAM_ATTEMPTS) {
          throw changed;
        }
      }
    }
  }

  private static Window joined(List<StreamWindowResponse> pieces) {
    if (pieces.isEmpty() || !pieces.get(pieces.size() - 1).hasStats()) {
      throw new MemorydException.AnswerUnreadable(
          MemorydException.details(
              "the stream of the window ended without its stats, so the window is not whole; load it again",
              Status.Code.DATA_LOSS));
    }
    List<Message> messages = new ArrayList<>();
    pieces.forEach(piece -> messages.addAll(Protos.messages(piece.getMessagesList())));
    return new Window(messages, Protos.stats(pieces.get(pieces.size() - 1).getStats()));
  }

  /** Reads the session's settings and counts. {@link MemorydException.SessionNotFound} without the session. */
  public SessionInfo info() {
    GetSessionRequest request = GetSessionRequest.newBuilder().setSession(key).build();
    return Protos.session(caller.call(HistoryServiceGrpc.getGetSessionMethod(), request).getSession());
  }

  /**
   * Changes the session's settings, and gives them. {@link MemorydException.SessionNotFound} without the session. Not tried
   * again by itself.
   */
  public SessionInfo update(SessionUpdate update) {
    Objects.requireNonNull(update, "update");
    FieldMask.Builder mask = FieldMask.newBuilder();
    dev.memoryd.v1.Session.Builder session =
        dev.memoryd.v1.Session.newBuilder().setKey(key).setEtag(Protos.optional(update.etag(), "etag"));
    if (update.userId() != null) {
      session.setUserId(Protos.text(update.userId(), "userId"));
      mask.addPaths("user_id");
    }
    if (update.labels() != null) {
      update
          .labels()
          .forEach((name, value) -> session.putLabels(Protos.text(name, "labels"), Protos.text(value, "labels")));
      mask.addPaths("labels");
    }
    if (update.ttl() != null) {
      if (!update.ttl().equals(SessionUpdate.FOREVER)) {
        session.setTtl(Protos.duration(update.ttl()));
      }
      mask.addPaths("ttl");
    }
    if (update.policy() != null) {
      session.setPolicy(Protos.policy(update.policy()));
      mask.addPaths("policy");
    }
    if (mask.getPathsCount() == 0) {
      throw new IllegalArgumentException("nothing to update: give userId, labels, ttl or policy");
    }
    UpdateSessionRequest request =
        UpdateSessionRequest.newBuilder().setSession(session).setUpdateMask(mask).build();
    return Protos.session(caller.call(HistoryServiceGrpc.getUpdateSessionMethod(), request).getSession());
  }

  /** Takes away the session's messages, keeps its settings, and tells how many there were. Later seqs go on. */
  public long clear() {
    return clear(null);
  }

  /**
   * Takes away the session's messages, as {@link #clear()} does.
   *
   * @param requestId a mark of this request, at most 256 bytes: a repeat with it takes nothing more away, and the first answer
   *     comes again; null: the client makes one for each call
   */
  public long clear(String requestId) {
    ClearHistoryRequest request =
        ClearHistoryRequest.newBuilder().setSession(key).setRequestId(Protos.marked(requestId)).build();
    return caller.call(HistoryServiceGrpc.getClearHistoryMethod(), request).getClearedMessageCount();
  }

  /** Takes away the messages after a seq, as if they had never been appended, and tells how many there were. */
  public RewoundSession rewind(long toSeq) {
    return rewind(toSeq, null, null);
  }

  /**
   * Takes away the messages after a seq. Calls whose results are taken away wait for results again. Later seqs go on. {@link
   * MemorydException.SessionNotFound} without the session.
   *
   * @param toSeq the seq after which messages are taken away; 0 takes all
   * @param expectedLastSeq rewind only if this is the session's last seq, else {@link MemorydException.LastSeqMismatch}; null
   *     for whatever it is
   * @param requestId as in {@link #clear(String)}
   */
  public RewoundSession rewind(long toSeq, Long expectedLastSeq, String requestId) {
    RewindSessionRequest.Builder request =
        RewindSessionRequest.newBuilder()
            .setSession(key)
            .setToSeq(toSeq)
            .setRequestId(Protos.marked(requestId));
    if (expectedLastSeq != null) {
      request.setExpectedLastSeq(expectedLastSeq);
    }
    RewindSessionResponse response =
        caller.call(HistoryServiceGrpc.getRewindSessionMethod(), request.build());
    return new RewoundSession(response.getRemovedMessageCount(), response.getOpenCallCount());
  }

  /**
   * Takes away a message's content for good, and gives the message as it is now.
   *
   * <p>Its place, role and ids stay, so that windows stay valid, and a text {@code [REDACTED]} stands for what it said. What is
   * redacted already is left as it is.
   *
   * @param seq which message
   * @param reason why, for those who read the message later: at most 256 bytes, one line; may be empty
   */
  public Message redact(long seq, String reason) {
    return redact(RedactMessageRequest.newBuilder().setSeq(seq), reason);
  }

  /** Takes away the content of the message with an id, as {@link #redact(long, String)} does. */
  public Message redact(String id, String reason) {
    return redact(RedactMessageRequest.newBuilder().setId(Protos.text(id, "id")), reason);
  }

  private Message redact(RedactMessageRequest.Builder request, String reason) {
    request.setSession(key).setReason(Protos.text(reason, "reason"));
    return Protos.fromProto(
        caller.call(HistoryServiceGrpc.getRedactMessageMethod(), request.build()).getMessage());
  }

  /** Copies the session into a new one of the same agent, with an id of its own, and gives that one. */
  public Session fork() {
    return fork(new Session(caller, Protos.key(agent(), Ids.newId())), null, null);
  }

  /** Copies the messages up to a seq into a new session of the same agent, with an id of its own, and gives that one. */
  public Session fork(long throughSeq) {
    return fork(new Session(caller, Protos.key(agent(), Ids.newId())), throughSeq, null);
  }

  /**
   * Copies the session into a new one, which appears once it is complete, and gives that one.
   *
   * <p>Messages keep their seqs and ids; user, labels, ttl and policy are copied, too. {@link MemorydException.SessionExists}
   * when the name is in use or was in the last 24 hours, {@link MemorydException.ForkInterrupted} when messages were taken away
   * meanwhile: fork again then.
   *
   * @param target the new session, also one of another agent
   * @param throughSeq the newest seq to copy; null for all messages
   * @param requestId a mark of this request, at most 256 bytes: a repeat with it (and the same target) finds the fork made;
   *     null: the client makes one for each call
   */
  public Session fork(Session target, Long throughSeq, String requestId) {
    Objects.requireNonNull(target, "target");
    ForkSessionRequest.Builder request =
        ForkSessionRequest.newBuilder()
            .setSource(key)
            .setTarget(target.key)
            .setRequestId(Protos.marked(requestId));
    if (throughSeq != null) {
      request.setThroughSeq(throughSeq);
    }
    caller.call(HistoryServiceGrpc.getForkSessionMethod(), request.build());
    return target;
  }

  /**
   * Folds now what exceeds {@code keep} of the stored policy, although the window may not be full yet.
   *
   * <p>{@link MemorydException.SummariesDisabled} or {@link MemorydException.SummarizerDiffers} when the stored policies do not
   * leave it to the server; {@link MemorydException.SummarizerFailed}, with nothing changed; {@link
   * MemorydException.SummaryUnderWay} while another server does it. Not tried again by itself, since each try may ask a model.
   */
  public SummarizedSession summarize() {
    SummarizeResponse response =
        caller.call(
            SummaryServiceGrpc.getSummarizeMethod(), SummarizeRequest.newBuilder().setSession(key).build());
    return new SummarizedSession(
        response.hasSummary() ? Protos.summary(response.getSummary()) : null, response.getFoldedMessageCount());
  }

  /** Reads the current summary. {@link MemorydException.SummaryNotFound} when there is none. */
  public Summary summary() {
    return summary("");
  }

  /** Reads a summary by its id. {@link MemorydException.SummaryNotFound} when there is none. */
  public Summary summary(String id) {
    GetSummaryRequest request =
        GetSummaryRequest.newBuilder().setSession(key).setSummaryId(Protos.text(id, "id")).build();
    return Protos.summary(caller.call(SummaryServiceGrpc.getGetSummaryMethod(), request).getSummary());
  }

  /** Reads the newest summaries, at most 16, the current one first: each knows its range and its predecessor. */
  public List<Summary> summaries() {
    ListSummariesRequest request = ListSummariesRequest.newBuilder().setSession(key).build();
    return caller.call(SummaryServiceGrpc.getListSummariesMethod(), request).getSummariesList().stream()
        .map(Protos::summary)
        .toList();
  }

  /**
   * Takes the current summary back, and gives the one that is current then; null for none.
   *
   * <p>The messages that it covered are shown again, and nothing is folded before the next append. {@link
   * MemorydException.EtagMismatch} when another one is current, {@link MemorydException.OriginalsRemoved} when its messages
   * are. Not tried again by itself.
   */
  public Summary revertSummary(String id) {
    RevertSummaryRequest request =
        RevertSummaryRequest.newBuilder().setSession(key).setSummaryId(Protos.text(id, "id")).build();
    RevertSummaryResponse response = caller.call(SummaryServiceGrpc.getRevertSummaryMethod(), request);
    return response.hasSummary() ? Protos.summary(response.getSummary()) : null;
  }

  /**
   * The session's summary tasks, for ever. Like {@link MemoryClient#summaryTasks}. {@link MemorydException.SummariesDisabled} or
   * {@link MemorydException.SummarizerDiffers} when its stored policies have no summarizer {@code client}.
   */
  public SummaryTasks summaryTasks(SummaryTasks.Options options) {
    return SummaryTasks.of(caller, key, options);
  }

  /** Summarizes the session with a function. Like {@link MemoryClient#summarizeWith}. */
  public int summarizeWith(Function<SummaryTask, String> function, String model, SummaryTasks.Options options) {
    return summaryTasks(options).serve(function, model);
  }

  /** Follows what happens to the session from now on. Like {@link #watch(Watch.Options)}. */
  public Watch watch() {
    return watch(Watch.Options.FROM_NOW);
  }

  /**
   * Follows what happens to the session: an iterator over its events, in order, each once, without an end.
   *
   * <p>The watch stands when this returns: from there on nothing is missed. When the connection is lost, the server drains or
   * tells a slow reader to resume, the watch resumes by itself behind the last event that it gave, after a pause with jitter of
   * up to 5 seconds, and tells so in the log {@code memoryd}. No timeout bounds it.
   *
   * <p>It throws {@link MemorydException.SessionNotFound} without the session and when it has expired or was erased; {@link
   * MemorydException.ResumeTokenInvalid} for a token of something else; and what else is of no use to try again.
   */
  public Watch watch(Watch.Options options) {
    return Watch.begin(caller.pinned(), key, options);
  }
}

package dev.memoryd.conformance;

import dev.memoryd.AddedEntries;
import dev.memoryd.Agent;
import dev.memoryd.AppendedMessage;
import dev.memoryd.Json;
import dev.memoryd.MemoryClient;
import dev.memoryd.MemoryContext;
import dev.memoryd.MemoryFile;
import dev.memoryd.MemoryFileInfo;
import dev.memoryd.MemoryFiles;
import dev.memoryd.Message;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Role;
import dev.memoryd.Run;
import dev.memoryd.RunClaims;
import dev.memoryd.RunInfo;
import dev.memoryd.RunOptions;
import dev.memoryd.RunStatus;
import dev.memoryd.RunStep;
import dev.memoryd.Session;
import dev.memoryd.SessionSettings;
import dev.memoryd.StoreInfo;
import dev.memoryd.Summary;
import dev.memoryd.SummaryTask;
import dev.memoryd.SummaryTasks;
import dev.memoryd.Watch;
import dev.memoryd.converters.Anthropic;
import dev.memoryd.converters.OpenAi;
import dev.memoryd.conformance.v1.Appended;
import dev.memoryd.conformance.v1.BeginRun;
import dev.memoryd.conformance.v1.CallTool;
import dev.memoryd.conformance.v1.ClaimRun;
import dev.memoryd.conformance.v1.Command;
import dev.memoryd.conformance.v1.CommitRunStep;
import dev.memoryd.conformance.v1.CommitSummary;
import dev.memoryd.conformance.v1.Connect;
import dev.memoryd.conformance.v1.Done;
import dev.memoryd.conformance.v1.EndRun;
import dev.memoryd.conformance.v1.Events;
import dev.memoryd.conformance.v1.Format;
import dev.memoryd.conformance.v1.FromMessages;
import dev.memoryd.conformance.v1.LeaseSummaryTask;
import dev.memoryd.conformance.v1.LeaveRun;
import dev.memoryd.conformance.v1.MakeMessage;
import dev.memoryd.conformance.v1.Messages;
import dev.memoryd.conformance.v1.NextEvents;
import dev.memoryd.conformance.v1.OpenWatch;
import dev.memoryd.conformance.v1.RenderMemory;
import dev.memoryd.conformance.v1.Reply;
import dev.memoryd.conformance.v1.SummarizeWith;
import dev.memoryd.conformance.v1.ToMessages;
import dev.memoryd.conformance.v1.ToolDefinitions;
import dev.memoryd.v1.AddMemoryEntriesRequest;
import dev.memoryd.v1.AddMemoryEntriesResponse;
import dev.memoryd.v1.AppendDailyLogRequest;
import dev.memoryd.v1.AppendMessagesRequest;
import dev.memoryd.v1.ClearAgentHistoryResponse;
import dev.memoryd.v1.CreateRunRequest;
import dev.memoryd.v1.DeleteMemoryFileRequest;
import dev.memoryd.v1.EraseUserResponse;
import dev.memoryd.v1.ForkSessionRequest;
import dev.memoryd.v1.ForkSessionResponse;
import dev.memoryd.v1.GetMemoryFileRequest;
import dev.memoryd.v1.GetMemoryFileResponse;
import dev.memoryd.v1.GetMessageRequest;
import dev.memoryd.v1.GetStoreRequest;
import dev.memoryd.v1.LeaseSummaryTaskRequest;
import dev.memoryd.v1.ListRunsRequest;
import dev.memoryd.v1.ListSessionsRequest;
import dev.memoryd.v1.LoadWindowResponse;
import dev.memoryd.v1.MemoryOwner;
import dev.memoryd.v1.PutMemoryFileRequest;
import dev.memoryd.v1.RedactMessageRequest;
import dev.memoryd.v1.RewindSessionRequest;
import dev.memoryd.v1.RewindSessionResponse;
import dev.memoryd.v1.RunKey;
import dev.memoryd.v1.SessionKey;
import dev.memoryd.v1.SummarizeResponse;
import dev.memoryd.v1.UpdateRunRequest;
import dev.memoryd.v1.WatchMessagesRequest;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDate;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** One of the driver's clients, with what commands gave a name: what it does for each command, by the SDK's methods. */
final class Client {
  /** Between two questions for a run to claim: a test has no second to lose. */
  private static final Duration POLL = Duration.ofMillis(50);

  private final MemoryClient memory;
  private final String address;
  private final Map<String, Watch> watches = new ConcurrentHashMap<>();
  private final Map<String, Leased> tasks = new ConcurrentHashMap<>();
  private final Map<String, MemoryContext> contexts = new ConcurrentHashMap<>();
  private final Map<String, HeldRun> runs = new ConcurrentHashMap<>();

  /** A task, and the iteration that gave it: it stands where it is, or would give the task up. */
  private record Leased(SummaryTasks tasks, SummaryTask task) {}

  Client(Connect connect) {
    MemoryClient.Builder builder = MemoryClient.builder(connect.getAddress());
    if (connect.hasTimeout()) {
      builder.timeout(Asked.duration(connect.getTimeout()));
    }
    if (!connect.getStore().isEmpty()) {
      builder.store(connect.getStore());
    }
    if (!connect.getToken().isEmpty()) {
      builder.token(connect.getToken());
    }
    if (!connect.getCa().isEmpty()) {
      builder.ca(Path.of(connect.getCa()));
    }
    if (connect.getAllowTokenWithoutTls()) {
      builder.allowTokenWithoutTls();
    }
    memory = builder.build();
    address = connect.getAddress();
  }

  void close() {
    watches.values().forEach(Watch::close);
    memory.close();
  }

  void carryOut(Command command, Reply.Builder reply) throws Exception {
    With with =
        new With(command.hasTimeout() ? memory.withTimeout(Asked.duration(command.getTimeout())) : memory);
    switch (command.getOperationCase()) {
      case APPEND -> reply.setAppended(with.append(command.getAppend()));
      case APPEND_ALL -> reply.setAppended(with.appendAll(command.getAppendAll()));
      case LIST_MESSAGES -> {
        dev.memoryd.conformance.v1.ListMessages list = command.getListMessages();
        Iterable<Message> pages =
            with.session(list.getRequest().getSession())
                .messages(Asked.query(list.getRequest()))
                .withPageSize(list.getRequest().getPageSize());
        Messages.Builder read = Messages.newBuilder();
        for (Message message : pages) {
          read.addMessages(Told.message(message));
          if (read.getMessagesCount() == list.getTake()) {
            break;
          }
        }
        reply.setMessages(read);
      }
      case GET_MESSAGE -> reply.setMessages(messages(List.of(with.message(command.getGetMessage()))));
      case GET_SESSION ->
          reply.setSession(Told.session(with.session(command.getGetSession().getSession()).info()));
      case LIST_SESSIONS -> {
        ListSessionsRequest list = command.getListSessions();
        reply.getSessionsBuilder();
        with.memory()
            .sessions(list.getAgent(), list.getUserId())
            .withPageSize(list.getPageSize())
            .forEach(info -> reply.getSessionsBuilder().addSessions(Told.session(info)));
      }
      case UPDATE_SESSION -> {
        dev.memoryd.v1.Session session = command.getUpdateSession().getSession();
        List<String> paths = command.getUpdateSession().getUpdateMask().getPathsList();
        reply.setSession(
            Told.session(with.session(session.getKey()).update(Asked.sessionUpdate(session, paths))));
      }
      case CLEAR_HISTORY ->
          reply.setCount(
              with.session(command.getClearHistory().getSession())
                  .clear(Asked.text(command.getClearHistory().getRequestId())));
      case CLEAR_AGENT ->
          reply.setClearedAgent(
              Told.fill(
                  ClearAgentHistoryResponse.newBuilder(),
                  with.memory().clearAgent(command.getClearAgent().getAgent())));
      case REDACT_MESSAGE -> reply.setMessages(messages(List.of(with.redact(command.getRedactMessage()))));
      case REWIND -> reply.setRewound(with.rewind(command.getRewind()));
      case FORK -> reply.setForked(with.fork(command.getFork()));
      case ERASE_USER ->
          reply.setErased(
              Told.fill(
                  EraseUserResponse.newBuilder(), with.memory().eraseUser(command.getEraseUser().getUserId())));
      case OPEN_WATCH -> {
        OpenWatch open = command.getOpenWatch();
        watches.put(open.getName(), with.watch(open.getRequest()));
        reply.setDone(Done.getDefaultInstance());
      }
      case NEXT_EVENTS -> reply.setEvents(next(command.getNextEvents()));
      case CLOSE_WATCH -> {
        named(watches, command.getCloseWatch().getName()).close();
        watches.remove(command.getCloseWatch().getName());
        reply.setDone(Done.getDefaultInstance());
      }
      case LOAD_WINDOW -> {
        var window =
            with.session(command.getLoadWindow().getSession()).window(Asked.window(command.getLoadWindow()));
        reply.setWindow(Told.fill(LoadWindowResponse.newBuilder(), window));
      }
      case SUMMARIZE ->
          reply.setSummarized(
              Told.fill(
                  SummarizeResponse.newBuilder(),
                  with.session(command.getSummarize().getSession()).summarize()));
      case GET_SUMMARY ->
          summaries(
              reply,
              List.of(
                  with.session(command.getGetSummary().getSession())
                      .summary(command.getGetSummary().getSummaryId())));
      case LIST_SUMMARIES ->
          summaries(reply, with.session(command.getListSummaries().getSession()).summaries());
      case REVERT_SUMMARY -> {
        Summary current =
            with.session(command.getRevertSummary().getSession())
                .revertSummary(command.getRevertSummary().getSummaryId());
        summaries(reply, current == null ? List.of() : List.of(current));
      }
      case LEASE_SUMMARY_TASK -> lease(with, command.getLeaseSummaryTask(), reply);
      case COMMIT_SUMMARY -> {
        CommitSummary commit = command.getCommitSummary();
        summaries(
            reply, List.of(named(tasks, commit.getName()).task().commit(commit.getText(), commit.getModel())));
      }
      case ABANDON_SUMMARY_TASK -> {
        named(tasks, command.getAbandonSummaryTask().getName())
            .task()
            .abandon(command.getAbandonSummaryTask().getFailed());
        reply.setDone(Done.getDefaultInstance());
      }
      case SUMMARIZE_WITH -> reply.setCount(with.summarize(command.getSummarizeWith()));
      case RENDER_MEMORY -> {
        RenderMemory render = command.getRenderMemory();
        MemoryContext context = with.memory().renderContext(Asked.memory(render));
        contexts.put(render.getName(), context);
        reply.setRendered(Told.rendered(context));
      }
      case TOOL_DEFINITIONS -> {
        ToolDefinitions wanted = command.getToolDefinitions();
        MemoryContext context = named(contexts, wanted.getName());
        reply.setJson(
            Json.write(
                wanted.getFormat() == Format.FORMAT_ANTHROPIC
                    ? context.tools().anthropic()
                    : context.tools().openAi()));
      }
      case CALL_TOOL -> {
        CallTool call = command.getCallTool();
        reply.setText(named(contexts, call.getName()).tools().call(call.getTool(), call.getArguments()));
      }
      case GET_MEMORY_FILE -> {
        GetMemoryFileRequest get = command.getGetMemoryFile();
        MemoryFile file = with.files(get.getOwner()).get(get.getName(), get.getVersion());
        reply.setMemoryFile(Told.fill(GetMemoryFileResponse.newBuilder(), file));
      }
      case PUT_MEMORY_FILE -> files(reply, List.of(with.put(command.getPutMemoryFile())));
      case LIST_MEMORY_FILES ->
          files(
              reply,
              with.files(command.getListMemoryFiles().getOwner())
                  .list()
                  .withPageSize(command.getListMemoryFiles().getPageSize()));
      case DELETE_MEMORY_FILE -> {
        DeleteMemoryFileRequest delete = command.getDeleteMemoryFile();
        reply.setFlag(
            with.files(delete.getOwner()).delete(delete.getName(), Asked.text(delete.getEtag())));
      }
      case LIST_MEMORY_FILE_VERSIONS ->
          files(
              reply,
              with.files(command.getListMemoryFileVersions().getOwner())
                  .versions(command.getListMemoryFileVersions().getName()));
      case ADD_MEMORY_ENTRIES ->
          reply.setAdded(
              Told.fill(AddMemoryEntriesResponse.newBuilder(), with.add(command.getAddMemoryEntries())));
      case APPEND_DAILY_LOG -> files(reply, List.of(with.log(command.getAppendDailyLog())));
      case ENQUEUE_RUN -> runs(reply, List.of(with.enqueue(command.getEnqueueRun())));
      case GET_RUN -> {
        RunKey key = command.getGetRun().getRun();
        runs(reply, List.of(with.memory().getRun(with.session(key.getSession()), key.getRunId())));
      }
      case LIST_RUNS -> runs(reply, with.runs(command.getListRuns()));
      case UPDATE_RUN -> runs(reply, List.of(with.update(command.getUpdateRun())));
      case DELETE_RUN -> {
        RunKey key = command.getDeleteRun().getRun();
        reply.setFlag(with.memory().deleteRun(with.session(key.getSession()), key.getRunId()));
      }
      case LIST_RUN_STEPS -> {
        RunKey key = command.getListRunSteps().getRun();
        steps(
            reply,
            with.memory()
                .runSteps(
                    with.session(key.getSession()), key.getRunId(), command.getListRunSteps().getAfterNumber())
                .withPageSize(command.getListRunSteps().getPageSize()));
      }
      case BEGIN_RUN -> {
        HeldRun held = with.begin(command.getBeginRun());
        runs.put(command.getBeginRun().getName(), held);
        reply.setHeldRun(Told.held(held.run()));
      }
      case CLAIM_RUN -> {
        HeldRun held = with.claim(command.getClaimRun());
        if (held != null) {
          runs.put(command.getClaimRun().getName(), held);
          reply.setHeldRun(Told.held(held.run()));
        }
      }
      case LOOK_AT_RUN -> reply.setHeldRun(Told.held(run(command.getLookAtRun().getName())));
      case COMMIT_RUN_STEP -> {
        CommitRunStep commit = command.getCommitRunStep();
        steps(
            reply,
            List.of(
                run(commit.getName())
                    .step(Asked.payload(commit.getPayload()), array(commit.getMessagesList()))));
      }
      case RESUME_RUN -> {
        RunStep last = run(command.getResumeRun().getName()).resume();
        steps(reply, last == null ? List.of() : List.of(last));
      }
      case PAUSE_RUN -> {
        EndRun end = command.getPauseRun();
        Run run = run(end.getName());
        run.pause(
            Asked.status(end.getStatus()),
            end.getReason(),
            end.hasPayload() ? Asked.payload(end.getPayload()) : null,
            array(end.getMessagesList()));
        reply.setHeldRun(Told.held(run));
      }
      case FINISH_RUN -> {
        EndRun end = command.getFinishRun();
        Run run = run(end.getName());
        run.finish(
            Asked.status(end.getStatus()),
            end.getReason(),
            end.hasPayload() ? Asked.payload(end.getPayload()) : null,
            array(end.getMessagesList()));
        reply.setHeldRun(Told.held(run));
      }
      case LEAVE_RUN -> {
        leave(command.getLeaveRun());
        reply.setDone(Done.getDefaultInstance());
      }
      case GET_AGENT -> reply.setAgent(Told.agent(with.memory().agent(command.getGetAgent().getAgent()).info()));
      case UPDATE_AGENT -> {
        dev.memoryd.v1.Agent given = command.getUpdateAgent().getAgent();
        Agent agent = with.memory().agent(given.getAgent());
        List<String> paths = command.getUpdateAgent().getUpdateMask().getPathsList();
        reply.setAgent(Told.agent(agent.update(Asked.agentUpdate(given, paths))));
      }
      case LIST_AGENTS -> {
        reply.getAgentsBuilder();
        with.memory()
            .agents()
            .withPageSize(command.getListAgents().getPageSize())
            .forEach(info -> reply.getAgentsBuilder().addAgents(Told.agent(info)));
      }
      case GET_STORE -> {
        GetStoreRequest get = command.getGetStore();
        stores(reply, List.of(get.getName().isEmpty() ? with.memory().store() : with.memory().store(get.getName())));
      }
      case LIST_STORES -> stores(reply, with.memory().stores());
      case SWITCH_STORE ->
          stores(reply, List.of(with.memory().switchStore(command.getSwitchStore().getName())));
      case STORE_TYPE -> reply.setText(with.memory().storeType());
      case TO_MESSAGES -> reply.setMessages(messages(read(command.getToMessages())));
      case FROM_MESSAGES -> reply.setJson(Json.write(written(command.getFromMessages())));
      case MAKE_MESSAGE -> reply.setMessages(messages(List.of(made(command.getMakeMessage()))));
      case MEASURE -> reply.setMeasurement(Measuring.measure(command.getMeasure(), memory, address));
      default -> throw new Fault("the driver does not know " + command.getOperationCase());
    }
  }

  private static <T> T named(Map<String, T> named, String name) {
    T found = named.get(name);
    if (found == null) {
      throw new Fault("nothing has the name " + name);
    }
    return found;
  }

  private Run run(String name) {
    return named(runs, name).run();
  }

  private Events next(NextEvents next) {
    Watch watch = named(watches, next.getName());
    Events.Builder events = Events.newBuilder();
    while (events.getEventsCount() < next.getCount()) {
      events.addEvents(Told.fill(dev.memoryd.v1.WatchEvent.newBuilder(), watch.next()));
    }
    return events.setResumeToken(watch.resumeToken()).build();
  }

  private void lease(With with, LeaseSummaryTask lease, Reply.Builder reply) {
    LeaseSummaryTaskRequest request = lease.getRequest();
    SummaryTasks.Options options = SummaryTasks.Options.WHAT_WAITS;
    if (request.hasLeaseDuration()) {
      options = options.withLease(Asked.duration(request.getLeaseDuration()));
    }
    SummaryTasks iteration =
        request.hasSession()
            ? with.session(request.getSession()).summaryTasks(options)
            : with.memory().summaryTasks(request.getAgent(), options);
    if (iteration.hasNext()) {
      Leased leased = new Leased(iteration, iteration.next());
      tasks.put(lease.getName(), leased);
      reply.setSummaryTask(Told.task(leased.task()));
    }
  }

  private void leave(LeaveRun leave) throws Exception {
    HeldRun held = named(runs, leave.getName());
    runs.remove(leave.getName());
    if (leave.getCancelled()) {
      held.cancel();
    } else {
      held.leave(leave.hasError() ? new RuntimeException(leave.getError()) : null);
    }
  }

  private static Message[] array(List<dev.memoryd.v1.Message> messages) {
    return Asked.messages(messages).toArray(Message[]::new);
  }

  private static Messages messages(List<Message> messages) {
    return Messages.newBuilder().addAllMessages(messages.stream().map(Told::message).toList()).build();
  }

  private static void summaries(Reply.Builder reply, List<Summary> summaries) {
    reply.getSummariesBuilder();
    summaries.forEach(
        summary ->
            reply.getSummariesBuilder().addSummaries(Told.fill(dev.memoryd.v1.Summary.newBuilder(), summary)));
  }

  private static void files(Reply.Builder reply, Iterable<MemoryFileInfo> files) {
    reply.getMemoryFilesBuilder();
    files.forEach(
        file -> reply.getMemoryFilesBuilder().addFiles(Told.fill(dev.memoryd.v1.MemoryFile.newBuilder(), file)));
  }

  private static void runs(Reply.Builder reply, Iterable<RunInfo> infos) {
    reply.getRunsBuilder();
    infos.forEach(info -> reply.getRunsBuilder().addRuns(Told.run(info)));
  }

  private static void steps(Reply.Builder reply, Iterable<RunStep> steps) {
    reply.getRunStepsBuilder();
    steps.forEach(
        step -> reply.getRunStepsBuilder().addSteps(Told.fill(dev.memoryd.v1.RunStep.newBuilder(), step)));
  }

  private static void stores(Reply.Builder reply, List<StoreInfo> stores) {
    reply.getStoresBuilder();
    stores.forEach(
        store -> reply.getStoresBuilder().addStores(Told.fill(dev.memoryd.v1.Store.newBuilder(), store)));
  }

  private static List<Message> read(ToMessages given) throws Json.Unreadable {
    Object source = Json.read(given.getJson());
    return switch (given.getFormat()) {
      case FORMAT_OPENAI_CHAT -> OpenAi.fromOpenAi((Iterable<?>) source);
      case FORMAT_ANTHROPIC -> {
        Map<?, ?> prompt = (Map<?, ?>) source;
        yield Anthropic.fromAnthropic((Iterable<?>) prompt.get("messages"), prompt.get("system"));
      }
      default -> throw new Fault("the SDK does not know " + given.getFormat());
    };
  }

  private static Object written(FromMessages given) {
    List<Message> messages = Asked.messages(given.getMessagesList());
    return switch (given.getFormat()) {
      case FORMAT_OPENAI_CHAT -> OpenAi.toOpenAi(messages);
      case FORMAT_ANTHROPIC -> {
        Anthropic.Prompt prompt = Anthropic.toAnthropic(messages);
        Map<String, Object> written = new LinkedHashMap<>();
        if (prompt.system() != null) {
          written.put("system", prompt.system());
        }
        written.put("messages", prompt.messages());
        yield written;
      }
      default -> throw new Fault("the SDK does not know " + given.getFormat());
    };
  }

  private static Message made(MakeMessage make) {
    Role role = Asked.role(make.getRole());
    ToolCall[] calls =
        make.getCallsList().stream()
            .map(
                call ->
                    call.getId().isEmpty()
                        ? ToolCall.of(call.getName(), call.getArguments())
                        : new ToolCall(call.getId(), call.getName(), call.getArguments()))
            .toArray(ToolCall[]::new);
    if (role == Role.TOOL) {
      return make.getIsError()
          ? Message.toolError(make.getCallId(), make.getText())
          : Message.tool(make.getCallId(), make.getText());
    }
    if (!make.hasText()) {
      return calls.length == 0 ? Message.of(role, null) : Message.of(role, List.of(calls));
    }
    return switch (role) {
      case SYSTEM -> Message.system(make.getText());
      case DEVELOPER -> Message.developer(make.getText());
      case ASSISTANT -> Message.assistant(make.getText(), calls);
      default -> Message.user(make.getText());
    };
  }

  /**
   * What calls the server, within a timeout.
   *
   * @param memory the client, with the command's timeout where it has one
   */
  private record With(MemoryClient memory) {
    Session session(SessionKey key) {
      return memory.session(key.getAgent(), key.getSessionId());
    }

    MemoryFiles files(MemoryOwner owner) {
      return owner.hasUserId() ? memory.userFiles(owner.getUserId()) : memory.projectFiles(owner.getProjectId());
    }

    Appended append(AppendMessagesRequest request) {
      return appended(
          session(request.getSession())
              .append(Asked.messages(request.getMessagesList()), Asked.append(request)));
    }

    Appended appendAll(AppendMessagesRequest request) {
      SessionSettings create =
          request.hasCreate() ? Asked.settings(request.getCreate()) : SessionSettings.DEFAULT;
      return appended(
          session(request.getSession()).appendAll(Asked.messages(request.getMessagesList()), create));
    }

    private static Appended appended(List<AppendedMessage> messages) {
      Appended.Builder appended = Appended.newBuilder();
      messages.forEach(
          message ->
              appended.addMessages(Told.fill(dev.memoryd.v1.AppendedMessage.newBuilder(), message)));
      return appended.build();
    }

    Message message(GetMessageRequest request) {
      Session session = session(request.getSession());
      return switch (request.getByCase()) {
        case SEQ -> session.message(request.getSeq());
        case ID -> session.message(request.getId());
        case BY_NOT_SET -> throw new Fault("the SDK reads a message by seq or id");
      };
    }

    Message redact(RedactMessageRequest request) {
      Session session = session(request.getSession());
      return switch (request.getByCase()) {
        case SEQ -> session.redact(request.getSeq(), request.getReason());
        case ID -> session.redact(request.getId(), request.getReason());
        case BY_NOT_SET -> throw new Fault("the SDK redacts a message by seq or id");
      };
    }

    RewindSessionResponse rewind(RewindSessionRequest request) {
      return Told.fill(
              RewindSessionResponse.newBuilder(),
              session(request.getSession())
                  .rewind(
                      request.getToSeq(),
                      request.hasExpectedLastSeq() ? request.getExpectedLastSeq() : null,
                      Asked.text(request.getRequestId())))
          .build();
    }

    ForkSessionResponse fork(ForkSessionRequest request) {
      session(request.getSource())
          .fork(
              session(request.getTarget()),
              request.hasThroughSeq() ? request.getThroughSeq() : null,
              Asked.text(request.getRequestId()));
      return ForkSessionResponse.getDefaultInstance();
    }

    Watch watch(WatchMessagesRequest request) {
      return session(request.getSession())
          .watch(
              new Watch.Options(
                  Asked.text(request.getResumeToken()),
                  request.hasAfterSeq() ? request.getAfterSeq() : null,
                  null));
    }

    int summarize(SummarizeWith given) {
      return given.hasSession()
          ? session(given.getSession())
              .summarizeWith(task -> given.getAnswer(), given.getModel(), SummaryTasks.Options.WHAT_WAITS)
          : memory.summarizeWith(
              given.getAgent(), task -> given.getAnswer(), given.getModel(), SummaryTasks.Options.WHAT_WAITS);
    }

    private static MemoryFiles.WriteOptions writing(String author, boolean allowSecrets, String requestId) {
      return new MemoryFiles.WriteOptions(author, allowSecrets, Asked.text(requestId));
    }

    MemoryFileInfo put(PutMemoryFileRequest put) {
      MemoryFiles.WriteOptions options = writing(put.getAuthor(), put.getAllowSecrets(), put.getRequestId());
      MemoryFiles files = files(put.getOwner());
      if (put.getCreateOnly()) {
        if (!put.getEtag().isEmpty()) {
          throw new Fault("the SDK makes a file or replaces one with an etag, never both");
        }
        return files.create(put.getName(), put.getContent(), options);
      }
      return files.put(put.getName(), put.getContent(), Asked.text(put.getEtag()), options);
    }

    AddedEntries add(AddMemoryEntriesRequest add) {
      return files(add.getOwner())
          .add(add.getEntriesList(), writing(add.getAuthor(), add.getAllowSecrets(), add.getRequestId()));
    }

    MemoryFileInfo log(AppendDailyLogRequest log) {
      MemoryFiles.WriteOptions options = writing(log.getAuthor(), log.getAllowSecrets(), log.getRequestId());
      if (!log.getDate().isEmpty()) {
        if (!log.getTimeZone().isEmpty()) {
          throw new Fault("the SDK logs on a date or on what is today in a time zone, never both");
        }
        return files(log.getOwner()).log(log.getText(), LocalDate.parse(log.getDate()), options);
      }
      ZoneId zone = log.getTimeZone().isEmpty() ? ZoneOffset.UTC : ZoneId.of(log.getTimeZone());
      return files(log.getOwner()).log(log.getText(), zone, options);
    }

    RunInfo enqueue(CreateRunRequest request) {
      RunOptions options =
          RunOptions.DEFAULT
              .withId(Asked.text(request.getRun().getRunId()))
              .withMetadata(request.getMetadata())
              .withCreate(request.hasCreate() ? Asked.settings(request.getCreate()) : null);
      return memory.enqueueRun(session(request.getRun().getSession()), options);
    }

    Iterable<RunInfo> runs(ListRunsRequest request) {
      RunStatus[] statuses = request.getStatusesList().stream().map(Asked::status).toArray(RunStatus[]::new);
      return (request.hasSession()
              ? memory.runs(session(request.getSession()), statuses)
              : memory.runs(request.getAgent(), statuses))
          .withPageSize(request.getPageSize());
    }

    RunInfo update(UpdateRunRequest request) {
      dev.memoryd.v1.Run wanted = request.getRun();
      List<String> paths = request.getUpdateMask().getPathsList();
      RunInfo info = memory.getRun(session(wanted.getKey().getSession()), wanted.getKey().getRunId());
      if (!wanted.getEtag().isEmpty()) {
        info = withEtag(info, wanted.getEtag());
      }
      return memory.updateRun(
          info,
          paths.contains("status") ? Asked.status(wanted.getStatus()) : null,
          paths.contains("status_reason") ? wanted.getStatusReason() : "",
          paths.contains("metadata") ? wanted.getMetadata() : null);
    }

    private static RunInfo withEtag(RunInfo info, String etag) {
      return new RunInfo(
          info.agent(),
          info.sessionId(),
          info.id(),
          info.status(),
          info.reason(),
          info.metadata(),
          info.holder(),
          info.steps(),
          info.recoveries(),
          info.leaseExpires(),
          info.created(),
          info.updated(),
          info.ended(),
          etag);
    }

    HeldRun begin(BeginRun begin) throws Exception {
      RunOptions options =
          Asked.holding(begin.getHolder(), begin.hasLease() ? begin.getLease() : null)
              .withId(Asked.text(begin.getRun().getRunId()))
              .withMetadata(begin.getMetadata());
      return HeldRun.enter(body -> memory.run(session(begin.getRun().getSession()), options, body));
    }

    HeldRun claim(ClaimRun claim) throws Exception {
      RunOptions options =
          Asked.holding(claim.getHolder(), claim.hasLease() ? claim.getLease() : null).withPoll(POLL);
      if (claim.hasRun()) {
        return HeldRun.enter(
            body ->
                memory
                    .claim(session(claim.getRun().getSession()), claim.getRun().getRunId(), options)
                    .work(body));
      }
      return HeldRun.enter(
          body -> {
            AtomicBoolean isDecided = new AtomicBoolean();
            try (RunClaims claims = memory.claims(claim.getAgent(), options)) {
              if (claim.hasPatience()) {
                CompletableFuture.delayedExecutor(
                        Asked.duration(claim.getPatience()).toMillis(), TimeUnit.MILLISECONDS)
                    .execute(
                        () -> {
                          if (isDecided.compareAndSet(false, true)) {
                            claims.close();
                          }
                        });
              }
              if (claims.hasNext() && isDecided.compareAndSet(false, true)) {
                claims.next().work(body);
              }
            }
          });
    }
  }
}

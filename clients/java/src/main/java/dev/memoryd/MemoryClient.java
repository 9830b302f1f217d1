package dev.memoryd;

import com.google.protobuf.FieldMask;
import dev.memoryd.v1.AgentServiceGrpc;
import dev.memoryd.v1.ClearAgentHistoryRequest;
import dev.memoryd.v1.ClearAgentHistoryResponse;
import dev.memoryd.v1.CreateRunRequest;
import dev.memoryd.v1.DeleteRunRequest;
import dev.memoryd.v1.EraseUserRequest;
import dev.memoryd.v1.EraseUserResponse;
import dev.memoryd.v1.GetRunRequest;
import dev.memoryd.v1.GetStoreRequest;
import dev.memoryd.v1.HistoryServiceGrpc;
import dev.memoryd.v1.ListAgentsRequest;
import dev.memoryd.v1.ListAgentsResponse;
import dev.memoryd.v1.ListRunStepsRequest;
import dev.memoryd.v1.ListRunStepsResponse;
import dev.memoryd.v1.ListRunsRequest;
import dev.memoryd.v1.ListRunsResponse;
import dev.memoryd.v1.ListSessionsRequest;
import dev.memoryd.v1.ListSessionsResponse;
import dev.memoryd.v1.ListStoresRequest;
import dev.memoryd.v1.MemoryOwner;
import dev.memoryd.v1.RunServiceGrpc;
import dev.memoryd.v1.StoreServiceGrpc;
import dev.memoryd.v1.UpdateRunRequest;
import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A client of a memoryd server. Safe to use from several threads; close it.
 *
 * <pre>{@code
 * try (MemoryClient memory = MemoryClient.connect("127.0.0.1:7600")) {
 *   Session session = memory.session("assistant", "user_123");
 *   session.append(Message.user("My project is called Atlas."));
 *   Window window = session.window(WindowRequest.tokens(4_000));
 *   List<Map<String, Object>> messages = OpenAi.toOpenAi(window);
 * }
 * }</pre>
 *
 * <p>No server is called until the first operation. Each operation throws a {@link MemorydException} when it fails: {@link
 * MemorydException.DeadlineExceeded} after the timeout, {@link MemorydException.ServerUnavailable} when no server answers. Reads
 * and changes that are safe to repeat (all but updates, the clearing of an agent and the deletion of a memory file or a run) are
 * tried again while the server is unavailable: for about 1.5 seconds where it has never answered this client, for up to 10 where
 * it has, within the timeout. "Retries" in clients/README.md of the repository has the rules.
 *
 * <p>An IllegalArgumentException or NullPointerException, thrown before any call, names an argument that no request could carry.
 * A thread that is interrupted while it waits for an answer gets {@link MemorydException.Cancelled}.
 */
public final class MemoryClient implements AutoCloseable {
  /** Where a server listens by default. */
  public static final String DEFAULT_ADDRESS = "127.0.0.1:7600";

  /** What an operation may take by default, its retries included. */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(30);

  private static final Pattern PRINTABLE = Pattern.compile("[ -~]+");
  private static final Pattern TOKEN = Pattern.compile("[!-~]+");
  private static final Pattern LOOPBACK =
      Pattern.compile("(localhost|127(\\.[0-9]{1,3}){3}|\\[?(0*:)*:0*1\\]?)(:[0-9]+)?");

  /** A host and its port; a host with colons is an IPv6 address, which stands in brackets. */
  private static final Pattern HOST_AND_PORT = Pattern.compile("(\\[[^\\[\\]]+\\]|[^:/\\[\\]\\s]+)(?::([0-9]{1,5}))?");

  /** What gRPC itself calls a target by, with a scheme of its own. */
  private static final Pattern TARGET = Pattern.compile("(dns|unix|unix-abstract|xds):.*");

  private static final Pattern WITH_SCHEME = Pattern.compile("[A-Za-z][A-Za-z0-9+.-]*://([^/]*).*");
  private static final int HIGHEST_PORT = 65_535;

  private final Caller caller;

  private MemoryClient(Caller caller) {
    this.caller = caller;
  }

  /** A client of the server at an address, {@code host:port}: without TLS and token. */
  public static MemoryClient connect(String address) {
    return builder(address).build();
  }

  /** Builds a client of the server at an address, {@code host:port}. */
  public static Builder builder(String address) {
    return new Builder(address);
  }

  /** What a client is made with. */
  public static final class Builder {
    private final String address;
    private Duration timeout = DEFAULT_TIMEOUT;
    private String store = Connection.DEFAULT_STORE;
    private String token;
    private byte[] ca;
    private Boolean tls;
    private boolean tokenWithoutTls;

    private Builder(String address) {
      this.address = reachable(Protos.text(address, "address"));
    }

    /** An address that a server can have: what gRPC is given beside that, it would try to reach until the timeout. */
    private static String reachable(String address) {
      String give = "; give the server's host:port, for example " + DEFAULT_ADDRESS;
      if (address.isEmpty()) {
        throw new IllegalArgumentException("address is empty" + give);
      }
      if (TARGET.matcher(address).matches()) {
        return address;
      }
      Matcher url = WITH_SCHEME.matcher(address);
      if (url.matches()) {
        throw new IllegalArgumentException(
            "address is '" + address + "'; give host:port without a scheme: '" + url.group(1) + "'"
                + (address.startsWith("https:") ? ", and tls(true) for a server with TLS" : ""));
      }
      Matcher parts = HOST_AND_PORT.matcher(address);
      if (!parts.matches()) {
        throw new IllegalArgumentException(
            "address is '" + address + "', which is no host and port" + give + ", or [::1]:7600 with IPv6");
      }
      int port = parts.group(2) == null ? HIGHEST_PORT : Integer.parseInt(parts.group(2));
      if (port < 1 || port > HIGHEST_PORT) {
        throw new IllegalArgumentException(
            "address is '" + address + "', and ports go from 1 to " + HIGHEST_PORT + give);
      }
      return address;
    }

    /** What one operation may take, its retries included; 30 seconds by default. */
    public Builder timeout(Duration timeout) {
      this.timeout = Caller.checked(timeout);
      return this;
    }

    /** The name of the server's store to use; without it, the server's default. */
    public Builder store(String store) {
      this.store = storeName(store, "store");
      return this;
    }

    /** What shows the server who calls, made by {@code memoryd token create}. */
    public Builder token(String token) {
      Objects.requireNonNull(token, "token");
      if (!TOKEN.matcher(token).matches()) {
        // Without the token itself.
        throw new IllegalArgumentException(
            token.isEmpty()
                ? "token is empty; give one that `memoryd token create` made"
                : "token holds white space or characters that no token has; give it as `memoryd token create` printed "
                    + "it, without the end of its line");
      }
      this.token = token;
      return this;
    }

    /** The certificates, in PEM, of the CA that vouches for the server; turns TLS on. */
    public Builder ca(byte[] pem) {
      this.ca = checked(pem.clone(), "ca");
      return this;
    }

    /** The file of the certificates, in PEM, of the CA that vouches for the server; turns TLS on. */
    public Builder ca(Path pem) {
      try {
        this.ca = checked(Files.readAllBytes(pem), "ca " + pem);
        return this;
      } catch (IOException unreadable) {
        throw new IllegalArgumentException("ca " + pem + " cannot be read; give the path of a PEM file", unreadable);
      }
    }

    private static byte[] checked(byte[] pem, String name) {
      try {
        if (!CertificateFactory.getInstance("X.509")
            .generateCertificates(new ByteArrayInputStream(pem))
            .isEmpty()) {
          return pem;
        }
      } catch (CertificateException damaged) {
        throw new IllegalArgumentException(name + " holds no certificate; give one or more, in PEM", damaged);
      }
      throw new IllegalArgumentException(name + " holds no certificate; give one or more, in PEM");
    }

    /** Whether to encrypt; true without a {@link #ca} trusts the CAs that this Java trusts. By default: with a CA alone. */
    public Builder tls(boolean tls) {
      this.tls = tls;
      return this;
    }

    /**
     * Sends the token unencrypted, also to another machine: for a network where nobody else can read. Without it, that is an
     * IllegalArgumentException.
     */
    public Builder allowTokenWithoutTls() {
      this.tokenWithoutTls = true;
      return this;
    }

    /** Makes the client. */
    public MemoryClient build() {
      if (ca != null && Boolean.FALSE.equals(tls)) {
        throw new IllegalArgumentException("ca is given and tls is false; leave one of them out");
      }
      boolean encrypted = tls == null ? ca != null : tls;
      boolean loopback = LOOPBACK.matcher(address).matches();
      if (token != null && !encrypted && !tokenWithoutTls && !loopback) {
        throw new IllegalArgumentException(
            "token would go to "
                + address
                + " unencrypted, for anybody on the way to read; give ca (the certificate of the server's CA) or "
                + "tls(true) (for one from a public CA), or accept it with allowTokenWithoutTls()");
      }
      return new MemoryClient(
          new Caller(new Connection(address, loopback, credentials(encrypted), token, store), timeout, null));
    }

    private ChannelCredentials credentials(boolean encrypted) {
      if (!encrypted) {
        return InsecureChannelCredentials.create();
      }
      if (ca == null) {
        return TlsChannelCredentials.create();
      }
      try {
        return TlsChannelCredentials.newBuilder().trustManager(new ByteArrayInputStream(ca)).build();
      } catch (IOException impossible) {
        throw new IllegalArgumentException("ca holds no certificate; give one or more, in PEM", impossible);
      }
    }
  }

  private static String storeName(String name, String argument) {
    Objects.requireNonNull(name, argument);
    if (!PRINTABLE.matcher(name).matches()) {
      throw new IllegalArgumentException(argument + " is '" + name + "'; the name of a store is printable ASCII");
    }
    return name;
  }

  /** The same client, on the same connection, with another timeout for its operations. Closing either closes both. */
  public MemoryClient withTimeout(Duration timeout) {
    return new MemoryClient(caller.within(timeout));
  }

  /** Gives back what is leased, and closes the connection. Operations after that throw IllegalStateException. */
  @Override
  public void close() {
    caller.connection().close();
  }

  /** Names a session, with an id that is made here; nothing is called. */
  public Session session(String agent) {
    return session(agent, Ids.newId());
  }

  /** Names a session; nothing is called. */
  public Session session(String agent, String id) {
    return new Session(caller, Protos.key(agent, id));
  }

  /** Lists all sessions, newest activity first. */
  public Pages<SessionInfo> sessions() {
    return sessions("", "");
  }

  /** Lists the sessions of an agent, of a user, or of both, newest activity first; either may be empty. */
  public Pages<SessionInfo> sessions(String agent, String userId) {
    Caller pinned = caller.pinned();
    ListSessionsRequest request =
        ListSessionsRequest.newBuilder()
            .setAgent(Protos.text(agent, "agent"))
            .setUserId(Protos.text(userId, "userId"))
            .build();
    return new Pages<>(
        (token, size) -> {
          ListSessionsResponse page =
              pinned.call(
                  HistoryServiceGrpc.getListSessionsMethod(),
                  request.toBuilder().setPageSize(size).setPageToken(token).build());
          return new Pages.Page<>(
              page.getSessionsList().stream().map(Protos::session).toList(), page.getNextPageToken());
        });
  }

  /** Names an agent; nothing is called. */
  public Agent agent(String name) {
    return new Agent(caller, name);
  }

  /** Lists the agents that have settings or sessions, by name. */
  public Pages<AgentInfo> agents() {
    Caller pinned = caller.pinned();
    return new Pages<>(
        (token, size) -> {
          ListAgentsResponse page =
              pinned.call(
                  AgentServiceGrpc.getListAgentsMethod(),
                  ListAgentsRequest.newBuilder().setPageSize(size).setPageToken(token).build());
          return new Pages.Page<>(
              page.getAgentsList().stream().map(Protos::agent).toList(), page.getNextPageToken());
        });
  }

  /**
   * Takes away the messages of every session of an agent, and tells how many. Works session by session: a failure half way
   * leaves some cleared, and the call can be repeated.
   */
  public ClearedAgent clearAgent(String agent) {
    ClearAgentHistoryResponse response =
        caller.call(
            HistoryServiceGrpc.getClearAgentHistoryMethod(),
            ClearAgentHistoryRequest.newBuilder().setAgent(Protos.text(agent, "agent")).build());
    return new ClearedAgent(response.getClearedSessionCount(), response.getClearedMessageCount());
  }

  /**
   * Deletes all that a user owns in the client's store, expired sessions included, and tells how much. When it has answered,
   * nothing of it is left in the database. A failure half way leaves a part, and the call can be repeated; it is tried again by
   * itself, too.
   */
  public ErasedUser eraseUser(String userId) {
    EraseUserResponse response =
        caller.call(
            HistoryServiceGrpc.getEraseUserMethod(),
            EraseUserRequest.newBuilder().setUserId(Protos.text(userId, "userId")).build());
    return new ErasedUser(
        response.getErasedSessionCount(),
        response.getErasedMessageCount(),
        response.getErasedLookupCount(),
        response.getErasedMemoryFileCount(),
        response.getErasedRunCount(),
        response.getErasedRunStepCount());
  }

  /**
   * Renders an agent's memory into one bounded block for its prompt, marked as unverified, with instructions for keeping it.
   *
   * <p>Files of this machine are read now, in their folder alone and at most 1 MiB of each. What cannot be read is told in the
   * warnings and in the log {@code memoryd}, and the rest is rendered. So it is when no server answers within the timeout: the
   * context is empty then, and the agent starts all the same.
   */
  public MemoryContext renderContext(MemoryRequest request) {
    return MemoryContext.render(caller, request);
  }

  /** Names the memory files of a user in the store; nothing is called. */
  public MemoryFiles userFiles(String user) {
    return new MemoryFiles(caller, MemoryOwner.newBuilder().setUserId(Protos.text(user, "user")).build());
  }

  /** Names the memory files of a project in the store; nothing is called. */
  public MemoryFiles projectFiles(String project) {
    return new MemoryFiles(
        caller, MemoryOwner.newBuilder().setProjectId(Protos.text(project, "project")).build());
  }

  /**
   * The summaries that an agent's sessions wait for, to make them with a model of your own.
   *
   * <p>A session has a task when its stored policy has the summarizer {@code client} and a load finds that it must fold. Each
   * task is leased to this iteration alone; {@link SummaryTask#commit} ends it.
   */
  public SummaryTasks summaryTasks(String agent, SummaryTasks.Options options) {
    return SummaryTasks.of(caller, agent, options);
  }

  /**
   * Summarizes an agent's sessions with a function from task to text, and gives the number of summaries.
   *
   * <p>Where the function throws, or gives a text that is empty, the log {@code memoryd} says so, the task waits before it is
   * tried again, and the next one is served.
   *
   * @param agent whose sessions
   * @param function gets a task, whose {@link SummaryTask#prompt} is for a model, and gives the summary that a model made of it
   * @param model the name of the model, for the record; may be empty
   * @param options how to ask for tasks
   */
  public int summarizeWith(
      String agent, Function<SummaryTask, String> function, String model, SummaryTasks.Options options) {
    return summaryTasks(agent, options).serve(function, model);
  }

  /**
   * Begins a run of a session (and the session if there is none), does the body's work, and records how it went: COMPLETED;
   * FAILED with the exception, which goes on; INTERRUPTED when the thread was interrupted. {@link Run#work} says more.
   *
   * <p>{@link MemorydException.RunExists} when the session has another run of the id, {@link MemorydException.TooManyRuns} when
   * it has 64 unfinished ones.
   */
  public <E extends Exception> void run(Session session, RunOptions options, Run.Body<E> body) throws E {
    Objects.requireNonNull(body, "body");
    openRun(session, options).work(body);
  }

  /** Begins a run of a session, held by the caller, who closes it: {@link Run#finish} or {@link Run#pause} come before that. */
  public Run openRun(Session session, RunOptions options) {
    return Run.created(caller, session, options);
  }

  /**
   * Claims a run by its name, to go on with it.
   *
   * <p>{@link MemorydException.RunNotClaimable} while another worker holds it, {@link MemorydException.RunEnded} when it has
   * ended, {@link MemorydException.NotFound} without it. A run that waits for an approval or a budget is claimed only so.
   */
  public Run claim(Session session, String runId, RunOptions options) {
    return Run.claimed(caller, session, runId, options);
  }

  /** Claims the run of an agent that waits longest, of those that any worker may take up; empty when there is none. */
  public Optional<Run> claimNext(String agent, RunOptions options) {
    return Optional.ofNullable(Run.claimedOf(caller.pinned(), agent, options));
  }

  /**
   * The runs of an agent that any worker may take up, claimed one after another: queued ones, INTERRUPTED ones, and those whose
   * lease is over, each to one worker alone. While there is none, it asks again after a pause; while the server is unavailable
   * too, and tells so in the log {@code memoryd}.
   */
  public RunClaims claims(String agent, RunOptions options) {
    return new RunClaims(caller, agent, options);
  }

  /** Begins a run for any worker to claim, and the session if there is none. Errors as in {@link #run}. */
  public RunInfo enqueueRun(Session session, RunOptions options) {
    CreateRunRequest request = RunCalls.creation(session, options).setQueued(true).build();
    return Protos.run(caller.call(RunServiceGrpc.getCreateRunMethod(), request).getRun());
  }

  /** Reads a run. {@link MemorydException.NotFound} without it. */
  public RunInfo getRun(Session session, String id) {
    GetRunRequest request = GetRunRequest.newBuilder().setRun(RunCalls.key(session, id)).build();
    return Protos.run(caller.call(RunServiceGrpc.getGetRunMethod(), request).getRun());
  }

  /** Lists the runs of all sessions of an agent, newest first; only those of the statuses, if any are given. */
  public Pages<RunInfo> runs(String agent, RunStatus... statuses) {
    return runs(ListRunsRequest.newBuilder().setAgent(Protos.text(agent, "agent")), statuses);
  }

  /** Lists the runs of a session, newest first; only those of the statuses, if any are given. */
  public Pages<RunInfo> runs(Session session, RunStatus... statuses) {
    Objects.requireNonNull(session, "session");
    return runs(ListRunsRequest.newBuilder().setSession(session.key()), statuses);
  }

  private Pages<RunInfo> runs(ListRunsRequest.Builder of, RunStatus... statuses) {
    Caller pinned = caller.pinned();
    ListRunsRequest request =
        of.addAllStatuses(Arrays.stream(statuses).map(RunStatus::toApi).toList()).build();
    return new Pages<>(
        (token, size) -> {
          ListRunsResponse page =
              pinned.call(
                  RunServiceGrpc.getListRunsMethod(),
                  request.toBuilder().setPageSize(size).setPageToken(token).build());
          return new Pages.Page<>(page.getRunsList().stream().map(Protos::run).toList(), page.getNextPageToken());
        });
  }

  /**
   * Gives another status to a run that was just read, as who does not hold it: to approve or to cancel it, say.
   *
   * <p>Any status but RUNNING may be set. It takes the lease from a holder, whose next call is refused: INTERRUPTED lets any
   * worker claim the run. {@link MemorydException.EtagMismatch} when the run changed meanwhile (its steps and renewals do that,
   * too): read it again. {@link MemorydException.RunEnded} when it has ended. Not tried again by itself.
   *
   * @param info the run as it was read, by {@link #getRun} for instance
   * @param status the new status; null leaves it
   * @param reason why, at most 4 KiB; may be empty
   * @param metadata data of yours, in the place of what there is; null leaves it
   */
  public RunInfo updateRun(RunInfo info, RunStatus status, String reason, String metadata) {
    Objects.requireNonNull(info, "info");
    FieldMask.Builder mask = FieldMask.newBuilder();
    dev.memoryd.v1.Run.Builder run =
        dev.memoryd.v1.Run.newBuilder()
            .setKey(RunCalls.key(session(info.agent(), info.sessionId()), info.id()))
            .setStatusReason(Protos.text(reason, "reason"))
            .setEtag(info.etag());
    if (status != null) {
      run.setStatus(status.toApi());
      mask.addPaths("status");
    }
    if (!reason.isEmpty()) {
      mask.addPaths("status_reason");
    }
    if (metadata != null) {
      run.setMetadata(Protos.text(metadata, "metadata"));
      mask.addPaths("metadata");
    }
    if (mask.getPathsCount() == 0) {
      throw new IllegalArgumentException("nothing to update: give status, reason or metadata");
    }
    UpdateRunRequest request = UpdateRunRequest.newBuilder().setRun(run).setUpdateMask(mask).build();
    return Protos.run(caller.call(RunServiceGrpc.getUpdateRunMethod(), request).getRun());
  }

  /**
   * Deletes a run that has ended, with its steps, and tells whether there was one. Its messages stay. {@link
   * MemorydException.RunUnfinished} for another. Not tried again by itself.
   */
  public boolean deleteRun(Session session, String id) {
    DeleteRunRequest request = DeleteRunRequest.newBuilder().setRun(RunCalls.key(session, id)).build();
    return caller.call(RunServiceGrpc.getDeleteRunMethod(), request).getDeleted();
  }

  /** Lists the steps of a run by number. {@link MemorydException.NotFound} without it. */
  public Pages<RunStep> runSteps(Session session, String id) {
    return runSteps(session, id, 0);
  }

  /** Lists the steps of a run with a greater number. */
  public Pages<RunStep> runSteps(Session session, String id, long after) {
    Caller pinned = caller.pinned();
    ListRunStepsRequest request =
        ListRunStepsRequest.newBuilder().setRun(RunCalls.key(session, id)).setAfterNumber(after).build();
    return new Pages<>(
        (token, size) -> {
          ListRunStepsResponse page =
              pinned.call(
                  RunServiceGrpc.getListRunStepsMethod(),
                  request.toBuilder().setPageSize(size).setPageToken(token).build());
          return new Pages.Page<>(
              page.getStepsList().stream().map(Protos::step).toList(), page.getNextPageToken());
        });
  }

  /** Tells about the store that this client uses, and whether it answers now. */
  public StoreInfo store() {
    return store("");
  }

  /** Tells about a store of the server, and whether it answers now. */
  public StoreInfo store(String name) {
    GetStoreRequest request = GetStoreRequest.newBuilder().setName(Protos.text(name, "name")).build();
    return Protos.store(caller.call(StoreServiceGrpc.getGetStoreMethod(), request).getStore());
  }

  /** Tells about all stores of the server, the default first, and whether they answer now. */
  public List<StoreInfo> stores() {
    return caller
        .call(StoreServiceGrpc.getListStoresMethod(), ListStoresRequest.getDefaultInstance())
        .getStoresList()
        .stream()
        .map(Protos::store)
        .toList();
  }

  /** The kind of the store that this client uses, for example {@code sqlite}. */
  public String storeType() {
    return store().type();
  }

  /**
   * Uses another store of the server from now on, once it has answered, and tells about it.
   *
   * <p>Sessions and agents that were named before follow: they name the same keys in the new store. Nothing is copied ({@code
   * memoryd copy} does that). Calls that other threads have begun, lists that are iterated over, appends of {@code appendAll},
   * watches, runs, summary tasks and the tools of rendered memory keep the store that they began with.
   *
   * <p>The client goes on with the store it has when this fails: {@link MemorydException.StoreUnknown} when the server has none
   * of this name ({@link #stores} tells the names), {@link MemorydException.StoreUnavailable} when the store does not answer.
   */
  public StoreInfo switchStore(String name) {
    StoreInfo found = store(storeName(name, "name"));
    if (!found.reachable()) {
      throw new MemorydException.StoreUnavailable(
          new MemorydException.Details(
              "the store "
                  + name
                  + " does not answer its server now: see the server's log, and switch when it answers again. The client "
                  + "goes on with the store that it used",
              Status.Code.UNAVAILABLE,
              "STORE_UNAVAILABLE",
              Map.of("store", name),
              null));
    }
    caller.connection().use(name);
    return found;
  }
}

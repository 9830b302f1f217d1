// The client.

import { create } from "@bufbuild/protobuf";

import { boolean, int64, type Integer, options as checked, SEQS, string } from "./arguments.js";
import { type CallOptions, callOptions, Connection, type Operation } from "./connection.js";
import { agentInfoFromProto, runInfoFromProto, runStepFromProto, sessionInfoFromProto, storeInfoFromProto } from "./decoding.js";
import { policyToProto, runRetention } from "./encoding.js";
import { RUN_STATUS } from "./enums.js";
import { StoreUnavailableError } from "./errors.js";
import {
  AgentService,
  GetAgentRequestSchema,
  ListAgentsRequestSchema,
  UpdateAgentRequestSchema,
} from "./gen/memoryd/v1/agent_service_pb.js";
import {
  ClearAgentHistoryRequestSchema,
  EraseUserRequestSchema,
  HistoryService,
  ListSessionsRequestSchema,
} from "./gen/memoryd/v1/history_service_pb.js";
import { DeleteRunRequestSchema, ListRunsRequestSchema, RunService } from "./gen/memoryd/v1/run_service_pb.js";
import { GetStoreRequestSchema, ListStoresRequestSchema, StoreService } from "./gen/memoryd/v1/store_service_pb.js";
import type { AgentInfo, ClearedAgent, ErasedUser, SessionInfo, SessionSettings } from "./histories.js";
import { newId } from "./ids.js";
import { type MemoryContext, renderContext, type RenderContextOptions } from "./memory-context.js";
import { MemoryFiles, type MemoryFilesOwner } from "./memory-files.js";
import { items, type ListOptions } from "./paging.js";
import type { Policy } from "./policies.js";
import { type ClaimsOptions, DEFAULT_LEASE_MS, holderName, type HoldOptions, Run, RunClaims, type RunOptions } from "./run.js";
import * as runCalls from "./run-calls.js";
import type { RunInfo, RunStatus, RunStep } from "./runs.js";
import { paths, Session } from "./session.js";
import type { StoreInfo } from "./stores.js";
import {
  type SummarizeWithOptions,
  summarizeWith,
  type SummaryTask,
  type SummaryTaskOptions,
  SummaryTasks,
} from "./summary-tasks.js";
import { type ClientOptions, DEFAULT_ADDRESS, storeName, Target } from "./target.js";

/** Which sessions a list shows: those of an agent, of a user, of both or (without either) all. */
export interface ListSessionsOptions extends ListOptions {
  readonly agent?: string | undefined;
  readonly userId?: string | undefined;
}

/** Which runs a list shows: those of a session, or of all sessions of an agent. */
export interface ListRunsOptions extends ListOptions {
  readonly agent?: string | undefined;
  readonly session?: Session | undefined;
  /** Only those of these statuses; empty for all. */
  readonly statuses?: Iterable<RunStatus> | undefined;
}

/** What a queued run takes. */
export interface EnqueueRunOptions extends CallOptions {
  /** The run's id; without it one is made. */
  readonly id?: string | undefined;
  /** Data of yours: text, JSON by convention, at most 64 KiB. */
  readonly metadata?: string | undefined;
  /** Settings for a session that this run begins; ignored when it exists. */
  readonly create?: SessionSettings | undefined;
}

/** What of a run changes. What is left out stays. */
export interface UpdateRunOptions extends CallOptions {
  /** The new status. */
  readonly status?: Exclude<RunStatus, "unspecified" | "running"> | undefined;
  /** Why, at most 4 KiB. */
  readonly reason?: string | undefined;
  /** In the place of what there is. */
  readonly metadata?: string | undefined;
}

/** What of an agent's settings changes. What is left out stays. */
export interface UpdateAgentOptions extends CallOptions {
  /** Replaces the old one as a whole. */
  readonly policy?: Policy | undefined;
  /** Whether `renderContext({ agent })` renders memory. */
  readonly loadMemory?: boolean | undefined;
  /**
   * How many milliseconds runs are kept after they ended: up to 100 years, FOREVER for ever, and null as the server's settings
   * say (as before the first update). Unfinished runs are always kept.
   */
  readonly runRetentionMs?: number | null | undefined;
  /** Change only if the settings are still those of this etag (from `info`), else EtagMismatchError. */
  readonly etag?: string | undefined;
}

/**
 * A client of a memoryd server.
 *
 * ```ts
 * await using memory = new MemoryClient("127.0.0.1:7600");
 * const session = memory.session({ agent: "assistant", id: "user_123" });
 * await session.append(user("My project is called Atlas."));
 * const messages = toOpenai(await session.window({ tokens: 4_000 }));
 * ```
 *
 * No server is called until the first operation. Each operation rejects with a MemorydError when it fails: DeadlineExceededError
 * after the timeout, ServerUnavailableError when no server answers. Reads and changes that are safe to repeat (all but updates,
 * the clearing of an agent and deletions) are tried again while the server is unavailable, within the timeout: five times on a
 * server that has not answered this client yet, for up to 10 s on one that has. The rules are in `clients/README.md`.
 *
 * A TypeError or RangeError, before any call, names an argument that no request could carry: of another type, an integer beyond
 * 64 bits, a timeout that is not finite.
 */
export class MemoryClient implements AsyncDisposable {
  readonly #connection: Connection;

  /** @param address The server's `host:port`. With TLS, the host must be a name (or an IP address) of its certificate. */
  constructor(address: string = DEFAULT_ADDRESS, options: ClientOptions = {}) {
    this.#connection = new Connection(new Target(address, checked(options)));
  }

  /** Gives up what is leased, and closes the connection. Operations after that reject. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Names a session; nothing is called. Without an id a new one is made: read it from `Session.id`. */
  session(name: { readonly agent: string; readonly id?: string | undefined }): Session {
    return new Session(this.#connection, name.agent, name.id ?? newId());
  }

  /** Lists sessions, newest activity first. */
  sessions(options: ListSessionsOptions = {}): AsyncGenerator<SessionInfo, void, undefined> {
    const query = {
      agent: string(options.agent ?? "", "agent", "assistant"),
      userId: string(options.userId ?? "", "userId", "mia"),
    };
    return items(this.#connection, options, async (operation, pageSize, pageToken) => {
      const request = create(ListSessionsRequestSchema, { ...query, pageSize, pageToken });
      const response = await operation.call(HistoryService.method.listSessions, request);
      return [response.sessions.map(sessionInfoFromProto), response.nextPageToken];
    });
  }

  /** Names an agent; nothing is called. */
  agent(name: string): Agent {
    return new Agent(this.#connection, name);
  }

  /** Lists the agents that have settings or sessions, by name. */
  agents(options: ListOptions = {}): AsyncGenerator<AgentInfo, void, undefined> {
    return items(this.#connection, options, async (operation, pageSize, pageToken) => {
      const request = create(ListAgentsRequestSchema, { pageSize, pageToken });
      const response = await operation.call(AgentService.method.listAgents, request);
      return [response.agents.map(agentInfoFromProto), response.nextPageToken];
    });
  }

  /**
   * Takes away the messages of every session of an agent, and tells how many. Works session by session: a failure half way leaves
   * some cleared, and the call can be repeated. FieldRequiredError for an empty name.
   */
  async clearAgent(agent: string, options: CallOptions = {}): Promise<ClearedAgent> {
    const request = create(ClearAgentHistoryRequestSchema, { agent: string(agent, "agent", "assistant") });
    const response = await this.#operation(options).call(HistoryService.method.clearAgentHistory, request);
    return { sessionCount: Number(response.clearedSessionCount), messageCount: Number(response.clearedMessageCount) };
  }

  /**
   * Deletes all that a user owns in the client's store, expired sessions included, and tells how much.
   *
   * When it has answered, nothing of it is left in the database. A failure half way leaves a part, and the call can be repeated;
   * it is tried again by itself, too. FieldRequiredError for an empty user.
   */
  async eraseUser(userId: string, options: CallOptions = {}): Promise<ErasedUser> {
    const request = create(EraseUserRequestSchema, { userId: string(userId, "userId", "mia") });
    const response = await this.#operation(options).call(HistoryService.method.eraseUser, request);
    return {
      sessionCount: Number(response.erasedSessionCount),
      messageCount: Number(response.erasedMessageCount),
      lookupCount: Number(response.erasedLookupCount),
      memoryFileCount: Number(response.erasedMemoryFileCount),
      runCount: Number(response.erasedRunCount),
      runStepCount: Number(response.erasedRunStepCount),
    };
  }

  /**
   * Renders an agent's memory into one bounded block for its prompt, marked as unverified, with instructions for keeping it.
   *
   * ```ts
   * const context = await memory.renderContext({ user: new UserFiles(), project: new ProjectFiles(".") });
   * const systemPrompt = `You are a travel agent. ${context.prompt}`;
   * ```
   *
   * Files of this machine are read now, in their folder alone and at most 1 MiB of each. What cannot be read is told in `warnings`
   * and to the logger, and the rest is rendered. So it is when no server answers within the timeout: the context is empty then,
   * and the agent starts all the same.
   */
  async renderContext(options: RenderContextOptions): Promise<MemoryContext> {
    return renderContext(this.#connection, checked(options));
  }

  /** Names the memory files of a user or of a project in the store; nothing is called. */
  files(owner: MemoryFilesOwner): MemoryFiles {
    return new MemoryFiles(this.#connection, owner);
  }

  /**
   * Iterates over the summaries that an agent's sessions wait for, to make them with a model of your own.
   *
   * ```ts
   * for await (const task of memory.summaryTasks("travel")) await task.commit(await model.ask(task.prompt));
   * ```
   *
   * A session has a task when its stored policy has the summarizer `client` and a load finds that it must fold. Each task is
   * leased to this iterator alone; `SummaryTask.commit` ends it. Where none waits, it asks again after a pause of 0.2 seconds,
   * which grows to 5.
   */
  summaryTasks(agent: string, options: SummaryTaskOptions = {}): SummaryTasks {
    return new SummaryTasks(this.#connection, string(agent, "agent", "assistant"), options);
  }

  /**
   * Summarizes an agent's sessions with a function from prompt to text, and gives the number of summaries.
   *
   * Serves the tasks of {@link summaryTasks}. Where the function fails, or gives a text that is empty, the logger is told, the
   * task waits before it is tried again, and the next one is served.
   */
  async summarizeWith(
    agent: string,
    summarize: (prompt: string, task: SummaryTask) => string | Promise<string>,
    options: SummarizeWithOptions = {},
  ): Promise<number> {
    const model = string(options.model ?? "", "model", "gpt-5-mini");
    return summarizeWith(this.#connection, this.summaryTasks(agent, options), summarize, model);
  }

  /**
   * Names a new run of a session. It begins with {@link Run.work}, and the session with it if there is none.
   *
   * ```ts
   * await memory.run(session).work(async (run) => {
   *   await run.step({ flight: "LH 1" }, { messages: [assistant("I would take LH 1.")] });
   *   await run.pause("awaiting_approval", { reason: "books a flight" });
   * });
   * ```
   */
  run(session: Session, options: RunOptions = {}): Run {
    const { id, metadata, holder, signal, create: settings } = checked(options);
    const leaseMs = options.leaseMs ?? DEFAULT_LEASE_MS;
    const key = runCalls.runKey(Session.keyOf(session), id ?? newId());
    const beginning = runCalls.creation(key, { metadata, create: settings, holder: holderName(holder), leaseMs });
    return new Run(this.#connection, this.#connection.metadata, session, beginning, leaseMs, signal);
  }

  /**
   * Names a run to go on with, which is claimed by {@link Run.work}. A run that waits for an approval or a budget is claimed only
   * so.
   *
   * ```ts
   * await memory.claim(session, "run-7").work(async (run) => {
   *   const last = await run.resume();
   * });
   * ```
   */
  claim(session: Session, runId: string, options: HoldOptions = {}): Run {
    const { holder, signal } = checked(options);
    const leaseMs = options.leaseMs ?? DEFAULT_LEASE_MS;
    const key = runCalls.runKey(Session.keyOf(session), runId);
    const beginning = runCalls.claim(key, { holder: holderName(holder), leaseMs, requestId: newId() });
    return new Run(this.#connection, this.#connection.metadata, session, beginning, leaseMs, signal);
  }

  /**
   * Iterates over the runs of an agent that any worker may take up: queued ones, interrupted ones, and those whose lease is over.
   * It has no end of its own.
   *
   * ```ts
   * for await (const run of memory.claims("travel")) {
   *   await run.work(async () => {
   *     const last = await run.resume();
   *   });
   * }
   * ```
   *
   * Each run is claimed already, and its lease renewed: the one that waits longest comes first, to one worker alone. One that is
   * not worked at is released when the loop goes on or ends. While there is none, it asks again after a pause; while the server
   * is unavailable too, and tells so to the logger. `options.signal` ends the loop and interrupts its runs.
   */
  claims(agent: string, options: ClaimsOptions = {}): RunClaims {
    return new RunClaims(this.#connection, agent, checked(options));
  }

  /** Begins a run for any worker to claim, and the session if there is none. Errors as in {@link Run.work}. */
  async enqueueRun(session: Session, options: EnqueueRunOptions = {}): Promise<RunInfo> {
    const { id, metadata, create: settings } = checked(options);
    const key = runCalls.runKey(Session.keyOf(session), id ?? newId());
    const request = runCalls.creation(key, { metadata, create: settings });
    const response = await this.#operation(options).call(RunService.method.createRun, request);
    return runInfoFromProto(response.run!);
  }

  /** Reads a run. RunNotFoundError or SessionNotFoundError without it. */
  async getRun(session: Session, id: string, options: CallOptions = {}): Promise<RunInfo> {
    return runCalls.get(this.#operation(options), runCalls.runKey(Session.keyOf(session), id));
  }

  /** Lists runs, newest first. SessionNotFoundError without the session. */
  runs(options: ListRunsOptions): AsyncGenerator<RunInfo, void, undefined> {
    const { agent, session, statuses } = checked(options);
    if ((agent === undefined) === (session === undefined)) {
      throw new TypeError("runs are listed of one agent or of one session: give either agent or session");
    }
    const of =
      session === undefined
        ? ({ case: "agent", value: string(agent as string, "agent", "assistant") } as const)
        : ({ case: "session", value: Session.keyOf(session) } as const);
    const query = { of, statuses: [...(statuses ?? [])].map((status) => RUN_STATUS.number(status, "statuses")) };
    return items(this.#connection, options, async (operation, pageSize, pageToken) => {
      const request = create(ListRunsRequestSchema, { ...query, pageSize, pageToken });
      const response = await operation.call(RunService.method.listRuns, request);
      return [response.runs.map(runInfoFromProto), response.nextPageToken];
    });
  }

  /**
   * Changes a run that was just read, as who does not hold it: to approve or to cancel it, say.
   *
   * Any status but `running` may be set. It takes the lease from a holder, whose next call is refused: `interrupted` lets any
   * worker claim the run. EtagMismatchError when the run changed meanwhile (its steps and renewals do that, too): read it again.
   * RunEndedError when it has ended. Not tried again by itself.
   *
   * @param info The run as it was read, by {@link getRun} for instance.
   */
  async updateRun(info: RunInfo, changes: UpdateRunOptions): Promise<RunInfo> {
    const request = runCalls.update(info, checked(changes, "changes"));
    const response = await this.#operation(changes).call(RunService.method.updateRun, request);
    return runInfoFromProto(response.run!);
  }

  /**
   * Deletes a run that has ended, with its steps, and tells whether there was one. Its messages stay. RunUnfinishedError for
   * another. Not tried again by itself. (Runs that ended 30 days ago are deleted by themselves, or as `Agent.update` sets it.)
   */
  async deleteRun(session: Session, id: string, options: CallOptions = {}): Promise<boolean> {
    const request = create(DeleteRunRequestSchema, { run: runCalls.runKey(Session.keyOf(session), id) });
    const response = await this.#operation(options).call(RunService.method.deleteRun, request);
    return response.deleted;
  }

  /**
   * Iterates over a run's steps by number, reading page after page. RunNotFoundError or SessionNotFoundError without it.
   *
   * @param options.after Only steps with a greater number; 0 for all.
   */
  runSteps(
    session: Session,
    id: string,
    options: ListOptions & { readonly after?: Integer | undefined } = {},
  ): AsyncGenerator<RunStep, void, undefined> {
    const run = runCalls.runKey(Session.keyOf(session), id);
    const afterNumber = int64(options.after ?? 0, "after", SEQS);
    return items(this.#connection, options, async (operation, pageSize, pageToken) => {
      const response = await runCalls.stepsPage(operation, { run, afterNumber, pageSize, pageToken });
      return [response.steps.map(runStepFromProto), response.nextPageToken];
    });
  }

  /** Tells about a store, and whether it answers now. Without `options.name`: the one that this client uses. */
  async store(options: CallOptions & { readonly name?: string | undefined } = {}): Promise<StoreInfo> {
    const request = create(GetStoreRequestSchema, { name: string(options.name ?? "", "name", "default") });
    const response = await this.#operation(options).call(StoreService.method.getStore, request);
    return storeInfoFromProto(response.store!);
  }

  /** Tells about all stores of the server, the default first, and whether they answer now. */
  async stores(options: CallOptions = {}): Promise<StoreInfo[]> {
    const request = create(ListStoresRequestSchema);
    const response = await this.#operation(options).call(StoreService.method.listStores, request);
    return response.stores.map(storeInfoFromProto);
  }

  /** The kind of the store that this client uses, for example `sqlite`. */
  async storeType(options: CallOptions = {}): Promise<string> {
    return (await this.store(options)).type;
  }

  /**
   * Uses another store of the server from now on, once it has answered, and tells about it.
   *
   * Sessions and agents that were named before follow: they name the same keys in the new store. Nothing is copied (`memoryd copy`
   * does that). Calls that have begun, lists that are iterated over, appends of `appendAll`, watches, runs and the tools of
   * rendered memory keep the store that they began with.
   *
   * The client goes on with the store it has when this fails: StoreUnknownError when the server has none of this name (`stores`
   * tells the names), StoreUnavailableError when the store does not answer.
   */
  async switchStore(name: string, options: CallOptions = {}): Promise<StoreInfo> {
    const store = await this.store({ ...callOptions(options), name: storeName(name, "name") });
    if (!store.reachable) {
      throw new StoreUnavailableError(
        `the store ${JSON.stringify(name)} does not answer its server now: see the server's log, and switch when it answers ` +
          "again. The client goes on with the store that it used",
        { code: "UNAVAILABLE", reason: "STORE_UNAVAILABLE", metadata: { store: name } },
      );
    }
    this.#connection.metadata = this.#connection.target.metadata(name);
    return store;
  }

  #operation(options: CallOptions): Operation {
    return this.#connection.operation(callOptions(options));
  }
}

/** An agent and the settings of its sessions. Made by `MemoryClient.agent`; it exists by being named. */
export class Agent {
  readonly name: string;
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, name: string) {
    this.#connection = connection;
    this.name = string(name, "name", "assistant");
  }

  /** Reads the agent's settings; those of an agent that was never updated are empty. */
  async info(options: CallOptions = {}): Promise<AgentInfo> {
    const operation = this.#connection.operation(callOptions(options));
    const request = create(GetAgentRequestSchema, { agent: this.name });
    return agentInfoFromProto((await operation.call(AgentService.method.getAgent, request)).agent!);
  }

  /** Changes the agent's settings; servers may use the old ones for up to 5 seconds more. Not tried again by itself. */
  async update(changes: UpdateAgentOptions): Promise<AgentInfo> {
    const { policy, loadMemory, runRetentionMs, etag } = checked(changes, "changes");
    const retention = runRetention(runRetentionMs);
    const request = create(UpdateAgentRequestSchema, {
      agent: {
        agent: this.name,
        ...(policy === undefined ? {} : { policy: policyToProto(policy) }),
        ...(loadMemory === undefined ? {} : { loadMemory: boolean(loadMemory, "loadMemory") }),
        ...(retention === undefined ? {} : { runRetention: retention }),
        etag: string(etag ?? "", "etag", "what info() told"),
      },
      updateMask: { paths: paths({ policy, load_memory: loadMemory, run_retention: runRetentionMs }) },
    });
    const operation = this.#connection.operation(callOptions(changes));
    return agentInfoFromProto((await operation.call(AgentService.method.updateAgent, request)).agent!);
  }

  toString(): string {
    return `Agent(${JSON.stringify(this.name)})`;
  }
}

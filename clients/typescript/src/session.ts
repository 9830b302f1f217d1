// Sessions: conversations, and all that is done to them.

import { create } from "@bufbuild/protobuf";

import { int64, type Integer, options as checked, SEQS, string } from "./arguments.js";
import { batches } from "./batches.js";
import { callOptions, type CallOptions, type Connection, type Operation } from "./connection.js";
import {
  appendedFromProto,
  messageFromProto,
  sessionInfoFromProto,
  summaryFromProto,
  windowStatsFromProto,
} from "./decoding.js";
import { labelsToProto, messageToProto, policyToProto, sessionSettingsToProto, timestamp, ttl, windowOptionsToProto } from "./encoding.js";
import { LIST_ORDER, MESSAGE_VIEW, ROLE } from "./enums.js";
import { AnswerUnreadableError, WindowChangedError, WindowTooLargeError } from "./errors.js";
import {
  AppendMessagesRequestSchema,
  ClearHistoryRequestSchema,
  ForkSessionRequestSchema,
  GetMessageRequestSchema,
  GetSessionRequestSchema,
  HistoryService,
  ListMessagesRequestSchema,
  RedactMessageRequestSchema,
  RewindSessionRequestSchema,
  UpdateSessionRequestSchema,
} from "./gen/memoryd/v1/history_service_pb.js";
import { type SessionKey, SessionKeySchema } from "./gen/memoryd/v1/session_pb.js";
import {
  GetSummaryRequestSchema,
  ListSummariesRequestSchema,
  RevertSummaryRequestSchema,
  SummarizeRequestSchema,
  SummaryService,
} from "./gen/memoryd/v1/summary_service_pb.js";
import {
  LoadWindowRequestSchema,
  type StreamWindowRequest,
  StreamWindowRequestSchema,
  WindowService,
} from "./gen/memoryd/v1/window_service_pb.js";
import type { AppendedMessage, ListOrder, MessageView, RewoundSession, SessionInfo, SessionSettings } from "./histories.js";
import { newId } from "./ids.js";
import type { Message, Role } from "./messages.js";
import { items, type ListOptions } from "./paging.js";
import type { OpenCalls, Oversize, Policy, WindowOptions } from "./policies.js";
import type { SummarizedSession, Summary } from "./stores.js";
import {
  type SummarizeWithOptions,
  summarizeWith,
  type SummaryTask,
  type SummaryTaskOptions,
  SummaryTasks,
} from "./summary-tasks.js";
import { Watch, type WatchOptions } from "./watch.js";
import { Window } from "./windows.js";

/** How often a window's stream is begun: again when history was taken away meanwhile. */
const STREAM_ATTEMPTS = 5;

/** What an append takes. */
export interface AppendOptions extends CallOptions {
  /** A mark of this request, at most 256 bytes; a repeat with other messages is RequestIdConflictError. */
  readonly requestId?: string | undefined;
  /** Append only if this is the session's last seq (0: no session yet), else LastSeqMismatchError. */
  readonly expectedLastSeq?: Integer | undefined;
  /** Settings for a session that this append begins; ignored when it exists. */
  readonly create?: SessionSettings | undefined;
}

/** What {@link Session.appendAll} takes. The timeout holds for each of its calls. */
export interface AppendAllOptions extends CallOptions {
  /** Settings for a session that this append begins; ignored when it exists. */
  readonly create?: SessionSettings | undefined;
}

/** Which messages a list shows. */
export interface ListMessagesOptions extends ListOptions {
  /** `ascending` (oldest first, the default) or `descending`. */
  readonly order?: ListOrder | undefined;
  /** Only these roles; empty for all. */
  readonly roles?: Iterable<Role> | undefined;
  /** Only messages of this run; empty for all. */
  readonly runId?: string | undefined;
  /** Only from this seq on; 0 for no bound. */
  readonly fromSeq?: Integer | undefined;
  /** Only up to this seq, itself included; 0 for no bound. */
  readonly toSeq?: Integer | undefined;
  /** Only messages stored at this time or later. */
  readonly fromTime?: Date | undefined;
  /** Only messages stored before this time. */
  readonly toTime?: Date | undefined;
  /** `active` (the current summary and what it does not cover, the default) or `all` that is stored. */
  readonly view?: MessageView | undefined;
}

/** Which message: by its seq or by its id. */
export type MessageName =
  | { readonly seq: Integer; readonly id?: undefined }
  | { readonly id: string; readonly seq?: undefined };

/** How a window is loaded. What is left out comes from the session's stored policy, then the agent's, then the server's. */
export interface LoadWindowOptions extends CallOptions {
  /** The limit in messages, 1 to 100,000. */
  readonly messages?: Integer | undefined;
  /** The limit in tokens of the session's tokenizer, 1 to 100,000,000. Not together with `messages`. */
  readonly tokens?: Integer | undefined;
  /** Keep the system and developer messages that open the history. */
  readonly pinSystem?: boolean | undefined;
  /** Put the newest user message in front of a window that would begin with another role. */
  readonly startWithUser?: boolean | undefined;
  /** `omit` groups with unanswered calls, `synthesize` a result for each call, or `keep` them as they are. */
  readonly openCalls?: OpenCalls | undefined;
  /** When the newest group alone exceeds a token limit: `shorten`, `return` or `fail` (WindowTooSmallError). */
  readonly oversize?: Oversize | undefined;
  /** Show the session's summary in the place of what it covers. Default: if the stored policies have summaries. */
  readonly summary?: boolean | undefined;
  /** Wait when the stored policies ask for a fold, at most 10 seconds. Default: as they say. */
  readonly waitForSummary?: boolean | undefined;
  /** Let the stats list messages that were left out. */
  readonly explain?: boolean | undefined;
}

/** What of a session's settings changes. What is left out stays; what is given replaces the old value as a whole. */
export interface UpdateSessionOptions extends CallOptions {
  readonly userId?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** FOREVER takes a ttl away. */
  readonly ttlMs?: number | undefined;
  readonly policy?: Policy | undefined;
  /** Change only if the settings are still those of this etag (from `info`), else EtagMismatchError. */
  readonly etag?: string | undefined;
}

/** What a repeat is recognized by. */
export interface RequestIdOptions extends CallOptions {
  /** A mark of this request, at most 256 bytes; a repeat with it gets the first answer. Without one, the SDK makes one. */
  readonly requestId?: string | undefined;
}

/** What a rewind takes. */
export interface RewindOptions extends RequestIdOptions {
  /** Rewind only if this is the session's last seq, else LastSeqMismatchError. */
  readonly expectedLastSeq?: Integer | undefined;
}

/** What a fork takes. */
export interface ForkOptions extends RequestIdOptions {
  /** The new session's id, or the new session itself; without it an id is made: read it from `Session.id`. */
  readonly target?: string | Session | undefined;
  /** The agent that is to own it; without it the same one. Not together with a session as target. */
  readonly agent?: string | undefined;
  /** The newest seq to copy; without it all messages. */
  readonly throughSeq?: Integer | undefined;
}

/** One conversation of one agent. Made by `MemoryClient.session`; it begins with its first append. */
export class Session {
  /** The agent that owns the conversation. */
  readonly agent: string;
  /** The session's id. */
  readonly id: string;
  readonly #connection: Connection;
  readonly #key: SessionKey;

  /** @internal */
  constructor(connection: Connection, agent: string, id: string) {
    this.#connection = connection;
    this.#key = create(SessionKeySchema, {
      agent: string(agent, "agent", "assistant"),
      sessionId: string(id, "id", "user_123"),
    });
    this.agent = agent;
    this.id = id;
  }

  /**
   * Appends messages, all or none, and begins the session if there is none.
   *
   * Safe to repeat with the same message objects: what is stored already is recognized by the ids, and the first answer comes
   * again.
   *
   * ```ts
   * await session.append(user("My project is called Atlas."));
   * await session.append([assistant("Noted."), user("What is it called?")], { timeoutMs: 5_000 });
   * ```
   *
   * @param messages One, or 1 to 256, together at most 3.5 MiB, each at most 2 MiB. `appendAll` takes more.
   * @returns Id, seq, time and token count of each message, in their order.
   */
  async append(messages: Message | readonly Message[], options: AppendOptions = {}): Promise<AppendedMessage[]> {
    return this.#append(messages, options, this.#operation(options));
  }

  async #append(
    messages: Message | readonly Message[],
    options: Omit<AppendOptions, keyof CallOptions>,
    operation: Operation,
  ): Promise<AppendedMessage[]> {
    const { requestId, expectedLastSeq, create: settings } = checked(options);
    const all: readonly Message[] = Array.isArray(messages) ? messages : [messages as Message];
    const request = create(AppendMessagesRequestSchema, {
      session: this.#key,
      messages: all.map(messageToProto),
      requestId: string(requestId ?? "", "requestId", "import-7"),
      ...expected(expectedLastSeq),
      ...(settings === undefined ? {} : { create: sessionSettingsToProto(settings) }),
    });
    const response = await operation.call(HistoryService.method.appendMessages, request);
    return response.messages.map(appendedFromProto);
  }

  /**
   * Appends any number of messages, in as many calls as needed ({@link batches} cuts them).
   *
   * Each call is all or none, the whole is not: after an error the messages before it are stored. Repeating it with the same
   * message objects goes on where it stopped, as long as it is within 24 hours.
   */
  async appendAll(
    messages: Iterable<Message> | AsyncIterable<Message>,
    options: AppendAllOptions = {},
  ): Promise<AppendedMessage[]> {
    const { metadata } = this.#connection;
    const appended: AppendedMessage[] = [];
    for await (const batch of batches(messages)) {
      const operation = this.#connection.operation(callOptions(options), metadata);
      appended.push(...(await this.#append(batch, { create: options.create }, operation)));
    }
    return appended;
  }

  /**
   * Iterates over the session's messages by seq, reading page after page. SessionNotFoundError without the session.
   *
   * ```ts
   * for await (const message of session.messages({ order: "descending" })) console.log(message.seq, textOf(message));
   * ```
   */
  messages(options: ListMessagesOptions = {}): AsyncGenerator<Message, void, undefined> {
    const { order, roles, runId, fromSeq, toSeq, fromTime, toTime, view } = checked(options);
    const query = {
      session: this.#key,
      order: LIST_ORDER.number(order ?? "ascending", "order"),
      filter: {
        roles: [...(roles ?? [])].map((role) => ROLE.number(role, "roles")),
        runId: string(runId ?? "", "runId", "run-7"),
        fromSeq: int64(fromSeq ?? 0, "fromSeq", SEQS),
        toSeq: int64(toSeq ?? 0, "toSeq", SEQS),
        ...(fromTime === undefined ? {} : { fromTime: timestamp(fromTime, "fromTime") }),
        ...(toTime === undefined ? {} : { toTime: timestamp(toTime, "toTime") }),
      },
      view: MESSAGE_VIEW.number(view ?? "active", "view"),
    };
    return items(this.#connection, options, async (operation, pageSize, pageToken) => {
      const request = create(ListMessagesRequestSchema, { ...query, pageSize, pageToken });
      const response = await operation.call(HistoryService.method.listMessages, request);
      return [response.messages.map(messageFromProto), response.nextPageToken];
    });
  }

  /** Reads one message, by seq or by id. SessionNotFoundError or MessageNotFoundError without it. */
  async message(which: MessageName, options: CallOptions = {}): Promise<Message> {
    const request = create(GetMessageRequestSchema, { session: this.#key, by: by(which) });
    const response = await this.#operation(options).call(HistoryService.method.getMessage, request);
    return messageFromProto(response.message!);
  }

  /**
   * Loads the newest part of the history that fits: whole tool groups, valid for a model's API.
   *
   * A window of any size arrives: one over 3.5 MiB is streamed, and the stream begun again (up to five times) when history was
   * taken away meanwhile. SessionNotFoundError without the session.
   */
  async window(options: LoadWindowOptions = {}): Promise<Window> {
    const { summary, waitForSummary, explain } = checked(options);
    const request = create(LoadWindowRequestSchema, {
      session: this.#key,
      options: windowOptionsToProto(windowOptions(options)),
      explain: explain ?? false,
      ...(summary === undefined ? {} : { summary }),
      ...(waitForSummary === undefined ? {} : { waitForSummary }),
    });
    const operation = this.#operation(options);
    try {
      const response = await operation.call(WindowService.method.loadWindow, request);
      return new Window(response.messages.map(messageFromProto), windowStatsFromProto(response.stats!));
    } catch (error) {
      if (!(error instanceof WindowTooLargeError)) throw error;
    }
    const { $typeName: _, ...same } = request;
    return streamedWindow(operation, create(StreamWindowRequestSchema, same));
  }

  /** Reads the session's settings and counts. SessionNotFoundError without the session. */
  async info(options: CallOptions = {}): Promise<SessionInfo> {
    const request = create(GetSessionRequestSchema, { session: this.#key });
    const response = await this.#operation(options).call(HistoryService.method.getSession, request);
    return sessionInfoFromProto(response.session!);
  }

  /** Changes the session's settings. SessionNotFoundError without the session. Not tried again by itself. */
  async update(changes: UpdateSessionOptions): Promise<SessionInfo> {
    const { userId, labels, ttlMs, policy, etag } = checked(changes, "changes");
    const lifetime = ttl(ttlMs);
    const request = create(UpdateSessionRequestSchema, {
      session: {
        key: this.#key,
        userId: string(userId ?? "", "userId", "mia"),
        labels: labelsToProto(labels ?? {}),
        ...(lifetime === undefined ? {} : { ttl: lifetime }),
        ...(policy === undefined ? {} : { policy: policyToProto(policy) }),
        etag: string(etag ?? "", "etag", "what info() told"),
      },
      updateMask: { paths: paths({ user_id: userId, labels, ttl: ttlMs, policy }) },
    });
    const response = await this.#operation(changes).call(HistoryService.method.updateSession, request);
    return sessionInfoFromProto(response.session!);
  }

  /**
   * Takes away the session's messages, keeps its settings, and tells how many there were. Later seqs go on. Tried again by
   * itself; a repeat of yours with the same `requestId` takes nothing more away.
   */
  async clear(options: RequestIdOptions = {}): Promise<number> {
    const request = create(ClearHistoryRequestSchema, { session: this.#key, requestId: marked(options.requestId) });
    const response = await this.#operation(options).call(HistoryService.method.clearHistory, request);
    return Number(response.clearedMessageCount);
  }

  /**
   * Takes away the messages after a seq (0 takes all), as if they had never been appended, and tells how many there were.
   *
   * Calls whose results are taken away wait for results again. Later seqs go on. Tried again by itself, without taking more
   * away. SessionNotFoundError without the session.
   */
  async rewind(toSeq: Integer, options: RewindOptions = {}): Promise<RewoundSession> {
    const request = create(RewindSessionRequestSchema, {
      session: this.#key,
      toSeq: int64(toSeq, "toSeq", SEQS),
      ...expected(options.expectedLastSeq),
      requestId: marked(options.requestId),
    });
    const response = await this.#operation(options).call(HistoryService.method.rewindSession, request);
    return { messageCount: Number(response.removedMessageCount), openCallCount: response.openCallCount };
  }

  /**
   * Takes away a message's content for good, and gives the message as it is now.
   *
   * Its place, role and ids stay, so that windows stay valid, and a text "[REDACTED]" stands for what it said. What is redacted
   * already is left as it is. SessionNotFoundError or MessageNotFoundError without it.
   *
   * @param which By seq or by id.
   * @param options.reason Why, for those who read the message later: at most 256 bytes, one line.
   */
  async redact(
    which: MessageName,
    options: CallOptions & { readonly reason?: string | undefined } = {},
  ): Promise<Message> {
    const reason = string(options.reason ?? "", "reason", "asked for by the user");
    const request = create(RedactMessageRequestSchema, { session: this.#key, by: by(which), reason });
    const response = await this.#operation(options).call(HistoryService.method.redactMessage, request);
    return messageFromProto(response.message!);
  }

  /**
   * Copies the session into a new one, which appears once it is complete, and gives that one.
   *
   * Messages keep their seqs and ids; user, labels, ttl and policy are copied, too. SessionNotFoundError without the session,
   * SessionExistsError when the name is in use or was in the last 24 hours, ForkInterruptedError when messages were taken away
   * meanwhile: fork again then.
   */
  async fork(options: ForkOptions = {}): Promise<Session> {
    const { target, agent, throughSeq } = checked(options);
    if (target instanceof Session && agent !== undefined) {
      throw new TypeError("target is a session, which has its agent: leave agent out, or give the new session's id");
    }
    const forked =
      target instanceof Session ? target : new Session(this.#connection, agent ?? this.agent, target ?? newId());
    const request = create(ForkSessionRequestSchema, {
      source: this.#key,
      target: forked.#key,
      ...(throughSeq === undefined ? {} : { throughSeq: int64(throughSeq, "throughSeq", SEQS) }),
      requestId: marked(options.requestId),
    });
    await this.#operation(options).call(HistoryService.method.forkSession, request);
    return forked;
  }

  /**
   * Folds now what exceeds `keep` of the stored policy, although the window may not be full yet.
   *
   * SummariesDisabledError or SummarizerDiffersError when the stored policies do not leave it to the server;
   * SummarizerFailedError, with nothing changed; SummaryUnderWayError while another server does it. Not tried again by itself,
   * since each try may ask a model.
   */
  async summarize(options: CallOptions = {}): Promise<SummarizedSession> {
    const request = create(SummarizeRequestSchema, { session: this.#key });
    const response = await this.#operation(options).call(SummaryService.method.summarize, request);
    const summary = response.summary === undefined ? undefined : summaryFromProto(response.summary);
    return { summary, messageCount: Number(response.foldedMessageCount) };
  }

  /** Reads the current summary, or the one with `options.id`. SummaryNotFoundError when there is none. */
  async summary(options: CallOptions & { readonly id?: string | undefined } = {}): Promise<Summary> {
    const summaryId = string(options.id ?? "", "id", "what a summary's id holds");
    const request = create(GetSummaryRequestSchema, { session: this.#key, summaryId });
    const response = await this.#operation(options).call(SummaryService.method.getSummary, request);
    return summaryFromProto(response.summary!);
  }

  /** Reads the newest summaries, at most 16, the current one first: each knows its range and its predecessor. */
  async summaries(options: CallOptions = {}): Promise<Summary[]> {
    const request = create(ListSummariesRequestSchema, { session: this.#key });
    const response = await this.#operation(options).call(SummaryService.method.listSummaries, request);
    return response.summaries.map(summaryFromProto);
  }

  /**
   * Takes the current summary back, and gives the one that is current then; undefined for none.
   *
   * The messages that it covered are shown again, and nothing is folded before the next append. EtagMismatchError when another
   * one is current, OriginalsRemovedError when its messages are, SummaryNotFoundError without it. Not tried again by itself.
   */
  async revertSummary(id: string, options: CallOptions = {}): Promise<Summary | undefined> {
    const summaryId = string(id, "id", "what a summary's id holds");
    const request = create(RevertSummaryRequestSchema, { session: this.#key, summaryId });
    const response = await this.#operation(options).call(SummaryService.method.revertSummary, request);
    return response.summary === undefined ? undefined : summaryFromProto(response.summary);
  }

  /**
   * Iterates over the session's summary tasks. Like `MemoryClient.summaryTasks`. SummariesDisabledError or
   * SummarizerDiffersError when its stored policies have no summarizer `client`; SessionNotFoundError without the session.
   */
  summaryTasks(options: SummaryTaskOptions = {}): SummaryTasks {
    return new SummaryTasks(this.#connection, this.#key, options);
  }

  /** Summarizes the session with a function. Like `MemoryClient.summarizeWith`. */
  summarizeWith(
    summarize: (prompt: string, task: SummaryTask) => string | Promise<string>,
    options: SummarizeWithOptions = {},
  ): Promise<number> {
    const model = string(options.model ?? "", "model", "gpt-5-mini");
    return summarizeWith(this.#connection, this.summaryTasks(options), summarize, model);
  }

  /**
   * Follows what happens to the session: an async iterator over its events, in order, each once, without an end.
   *
   * ```ts
   * for await (const event of session.watch({ afterSeq: 0 })) console.log(event.kind, event.fromSeq, event.toSeq);
   * ```
   *
   * The call begins with the first event that is asked for, or with `await watch.open()`: from there on nothing is missed. When
   * the connection is lost, the server drains or tells a slow reader to resume, the watch resumes by itself behind the last
   * event that it gave, after a pause with jitter of up to 5 seconds, and tells so to the logger. No timeout bounds it.
   *
   * Its reader gets SessionNotFoundError without the session and when it has expired or was erased; ResumeTokenInvalidError for
   * a token of something else; and what else is of no use to try again.
   */
  watch(options: WatchOptions = {}): Watch {
    return new Watch(this.#connection, this.#key, options);
  }

  toString(): string {
    return `Session(agent=${JSON.stringify(this.agent)}, id=${JSON.stringify(this.id)})`;
  }

  /** @internal The key of a session that a caller gives as an argument. */
  static keyOf(session: Session): SessionKey {
    if (!(session instanceof Session)) {
      throw new TypeError("session is none; give what session({ agent, id }) of this client makes");
    }
    return session.#key;
  }

  #operation(options: CallOptions): Operation {
    return this.#connection.operation(callOptions(options));
  }
}

/** The paths of an update mask: those whose value is given. TypeError when none is. */
export function paths(given: Readonly<Record<string, unknown>>): string[] {
  const found = Object.entries(given).filter(([, value]) => value !== undefined);
  if (found.length === 0) throw new TypeError(`nothing to update: give ${Object.keys(given).join(" or ")}`);
  return found.map(([path]) => path);
}

/** The request id of a request, made before its first try where the caller gives none. */
export function marked(given: string | undefined): string {
  return given === undefined ? newId() : string(given, "requestId", "import-7");
}

function expected(lastSeq: Integer | undefined): { expectedLastSeq?: bigint } {
  return lastSeq === undefined ? {} : { expectedLastSeq: int64(lastSeq, "expectedLastSeq", SEQS) };
}

function by({ seq, id }: MessageName): { case: "seq"; value: bigint } | { case: "id"; value: string } {
  if ((seq === undefined) === (id === undefined)) throw new TypeError("give either seq or id, to say which message");
  return id === undefined
    ? { case: "seq", value: int64(seq as Integer, "seq", SEQS) }
    : { case: "id", value: string(id, "id", "0199d1c3") };
}

function windowOptions(options: LoadWindowOptions): WindowOptions {
  const { messages, tokens, pinSystem, startWithUser, openCalls, oversize } = options;
  if (messages !== undefined && tokens !== undefined) {
    throw new TypeError("a window has one limit: give either messages or tokens");
  }
  if (messages !== undefined) int64(messages, "messages", "1 to 100,000");
  if (tokens !== undefined) int64(tokens, "tokens", "1 to 100,000,000");
  return {
    mode: messages !== undefined ? "messages" : tokens !== undefined ? "tokens" : undefined,
    limit: messages ?? tokens,
    pinSystem,
    startWithUser,
    openCalls,
    oversize,
  };
}

async function streamedWindow(operation: Operation, request: StreamWindowRequest): Promise<Window> {
  for (let attemptsLeft = STREAM_ATTEMPTS - 1; ; attemptsLeft -= 1) {
    try {
      const pieces = await operation.collect(WindowService.method.streamWindow, request);
      const stats = pieces.at(-1)?.stats;
      if (stats === undefined) {
        throw new AnswerUnreadableError(
          "the stream of the window ended without its stats, so the window is not whole; load it again",
          { code: "DATA_LOSS" },
        );
      }
      return new Window(pieces.flatMap((piece) => piece.messages.map(messageFromProto)), windowStatsFromProto(stats));
    } catch (error) {
      if (!(error instanceof WindowChangedError) || attemptsLeft === 0) throw error;
    }
  }
}

// The errors that calls reject with: one class a reason, decoded from the `google.rpc.ErrorInfo` that every error of memoryd
// carries.

import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";

import { type ErrorInfo, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";

/** The name of a gRPC status, for example `NOT_FOUND`. */
export type StatusCode = keyof typeof status;

/** What an error holds beside its text. */
export interface ErrorFields {
  readonly code: StatusCode;
  readonly reason?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/**
 * The base of every error of a call. Its `cause` is the gRPC error, where there is one.
 *
 * ```ts
 * try {
 *   return await session.window();
 * } catch (error) {
 *   if (error instanceof SessionNotFoundError) return undefined; // a conversation that has not begun
 *   throw error;
 * }
 * ```
 */
export class MemorydError extends Error {
  /** What happened and what to do. `message` says that too, with the correlation id. */
  readonly text: string;
  /** The name of the gRPC status. */
  readonly code: StatusCode;
  /** The name of the ErrorReason, for example `SESSION_NOT_FOUND`; empty when no memoryd server answered. */
  readonly reason: string;
  /** What the reason tells about this case; error_reason.proto names the keys. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The milliseconds that the server asks to wait before the call is made again; undefined when it does not say. */
  readonly retryAfterMs: number | undefined;

  constructor(text: string, fields: ErrorFields) {
    const id = fields.metadata?.["correlation_id"];
    super(id ? `${text} (correlation id ${id})` : text, fields.cause === undefined ? {} : { cause: fields.cause });
    this.name = new.target.name;
    this.text = text;
    this.code = fields.code;
    this.reason = fields.reason ?? "";
    this.metadata = { ...fields.metadata };
    this.retryAfterMs = fields.retryAfterMs;
  }

  /** The id that finds the call in the server's log; empty when no server of memoryd answered. */
  get correlationId(): string {
    return this.metadata["correlation_id"] ?? "";
  }
}

type ErrorClass = new (text: string, fields: ErrorFields) => MemorydError;

/** A field of the request is missing or has a value that it cannot have. */
export class InvalidArgumentError extends MemorydError {
  /** The field's path in the request, for example `session.agent`; empty when the error names none. */
  get field(): string {
    return this.metadata["field"] ?? "";
  }
}

/** A required field is empty. */
export class FieldRequiredError extends InvalidArgumentError {}

/** A field has a value that it cannot have. */
export class FieldInvalidError extends InvalidArgumentError {}

/** A field is over its limit; metadata holds `limit` and `actual` (bytes or items). */
export class FieldTooLargeError extends InvalidArgumentError {}

/** The page token is damaged, or is of another store, tenant or query. Start again from the first page. */
export class PageTokenInvalidError extends InvalidArgumentError {}

/**
 * The resume token is damaged, or is of another store, tenant or session. Read the session, and watch without one.
 */
export class ResumeTokenInvalidError extends InvalidArgumentError {}

/** The server has no store with the name that the client asks for; metadata holds `stores`, the known names. */
export class StoreUnknownError extends InvalidArgumentError {}

/**
 * A text for a memory file holds a credential, which the error does not tell. Nothing was written: take it out, or give
 * `allowSecrets: true` if it is none.
 */
export class SecretFoundError extends InvalidArgumentError {
  /** The line of the text that holds it, from 1; `field` tells which text. */
  get line(): number {
    return Number(this.metadata["line"] ?? 0);
  }

  /** The kind of credential. */
  get kind(): string {
    return this.metadata["kind"] ?? "";
  }
}

/** The server does not know who calls. Trying again does not help. */
export class UnauthenticatedError extends MemorydError {}

/** The server serves only callers that show a token, and the client was given none. */
export class CredentialMissingError extends UnauthenticatedError {}

/** The server does not accept the client's token: it is not one of this server's, or no longer. */
export class CredentialInvalidError extends UnauthenticatedError {}

/** What the call names does not exist. */
export class NotFoundError extends MemorydError {}

/** There is no such session. The first append begins one. */
export class SessionNotFoundError extends NotFoundError {}

/** The session holds no such message. */
export class MessageNotFoundError extends NotFoundError {}

/** The session has no such summary, or none at all. */
export class SummaryNotFoundError extends NotFoundError {}

/**
 * The owner has no such memory file, or the file no such version; metadata holds `name`, and `version` where one was
 * asked for.
 */
export class MemoryFileNotFoundError extends NotFoundError {}

/** The session has no such run. It may have been deleted when its retention was over. */
export class RunNotFoundError extends NotFoundError {}

/** An id is known with other content, or a name is taken. Nothing was written. */
export class AlreadyExistsError extends MemorydError {}

/** A message id (metadata: `message_id`) is known with other content, or only some ids of the batch are known. */
export class MessageIdConflictError extends AlreadyExistsError {}

/** The request id is known with another request. */
export class RequestIdConflictError extends AlreadyExistsError {}

/** The target of a fork is the name of a session, or was until less than 24 hours ago. Fork to another name. */
export class SessionExistsError extends AlreadyExistsError {}

/** The session has another run of this id. Use a new id, or claim the run. */
export class RunExistsError extends AlreadyExistsError {}

/** The call lost against another one. Read again, then decide. */
export class AbortedError extends MemorydError {}

/** The session's last seq is not the expected one. */
export class LastSeqMismatchError extends AbortedError {
  /** The session's last seq; 0 when there is no session yet. */
  get actual(): number {
    return Number(this.metadata["actual"] ?? 0);
  }
}

/**
 * The settings, the memory file or the run changed since the etag was read, or there is a memory file that was to be
 * made, or another summary is current than the one to take back.
 */
export class EtagMismatchError extends AbortedError {
  /** The current etag, or the id of the current summary; empty when the file is gone. */
  get etag(): string {
    return this.metadata["etag"] ?? "";
  }
}

/** Other calls kept changing the session until the deadline. Nothing was written; try again. */
export class ContentionError extends AbortedError {}

/** History was taken away while a window was streamed, and again each time that the SDK started over. */
export class WindowChangedError extends AbortedError {}

/** The source of a fork lost messages while it was copied. Nothing was made; fork again. */
export class ForkInterruptedError extends AbortedError {}

/** A watcher left an answer unread for too long. `Session.watch` resumes by itself. */
export class WatchStalledError extends AbortedError {}

/**
 * The summary task is void: its lease is over, or the history changed where it lies. Nothing was changed: go on with
 * the next task.
 */
export class SummaryTaskVoidError extends AbortedError {}

/** Another server or client makes the session's summary. Try again when it is done. */
export class SummaryUnderWayError extends AbortedError {}

/**
 * The step is not the run's next one, or was committed with other content: by a try whose answer was lost, say. Nothing
 * was written. `Run.resume` reads where the run stands.
 */
export class StepMismatchError extends AbortedError {
  /** How many steps the run has. */
  get stepCount(): number {
    return Number(this.metadata["step_count"] ?? 0);
  }
}

/** The state of the session or of the run does not allow the call. */
export class FailedPreconditionError extends MemorydError {}

/** The window is over 3.5 MiB. `Session.window` then streams it. */
export class WindowTooLargeError extends FailedPreconditionError {}

/** `oversize` is `fail` and the newest group alone exceeds the limit; metadata holds `limit` and `needed`. */
export class WindowTooSmallError extends FailedPreconditionError {}

/**
 * The messages behind a summary are removed (retention `delete`), so it cannot be taken back; metadata holds `to_seq`,
 * the newest one that is gone.
 */
export class OriginalsRemovedError extends FailedPreconditionError {}

/** The stored policies of session and agent have no summaries. Store a policy with a summary first. */
export class SummariesDisabledError extends FailedPreconditionError {}

/**
 * The session's summarizer (metadata: `summarizer`) is `client`, so its summaries are made by whoever leases tasks; or
 * it is another one, so that there are no tasks to lease.
 */
export class SummarizerDiffersError extends FailedPreconditionError {}

/**
 * The caller does not hold the run any more: its lease is over, another worker claimed it, or somebody changed its
 * status. Nothing was written. Stop working at it.
 */
export class RunLeaseLostError extends FailedPreconditionError {}

/** The run has ended, and never changes again; metadata holds its `status`. */
export class RunEndedError extends FailedPreconditionError {}

/** Another worker holds the run until its lease is over. */
export class RunNotClaimableError extends FailedPreconditionError {
  /** Who says to hold it. */
  get holder(): string {
    return this.metadata["holder"] ?? "";
  }
}

/** The run (metadata: its `status`) has not ended, and cannot be deleted. Set a status that ends it first. */
export class RunUnfinishedError extends FailedPreconditionError {}

/**
 * The server, or the store behind it, did not answer, also after retries.
 *
 * An append may have been stored all the same: append the same message objects again, and they are stored once.
 */
export class UnavailableError extends MemorydError {}

/** The server's store did not answer; metadata holds `store`. */
export class StoreUnavailableError extends UnavailableError {}

/**
 * The summarizer (metadata: `summarizer`) failed, why is in metadata `failure`. Nothing was changed, and the server
 * tries again with backoff.
 */
export class SummarizerFailedError extends UnavailableError {}

/** The server is shutting down. */
export class ServerDrainingError extends UnavailableError {}

/** No server answers at the client's address. */
export class ServerUnavailableError extends UnavailableError {}

/** Client and server do not agree on TLS, or the client does not trust the server's certificate. */
export class TlsFailedError extends ServerUnavailableError {}

/** A quota is used up, or a message is larger than what gRPC lets through. */
export class ResourceExhaustedError extends MemorydError {}

/** The session's record is full. Use fewer or shorter labels. */
export class RecordTooLargeError extends ResourceExhaustedError {}

/**
 * The memory file would be over 1 MiB; metadata holds `name`, `limit` and `actual` (bytes). Nothing was written: put a
 * shorter file first.
 */
export class MemoryFileFullError extends ResourceExhaustedError {}

/** The server serves as many watchers as it may; metadata holds `limit`. `Session.watch` tries again by itself. */
export class TooManyWatchersError extends ResourceExhaustedError {}

/** The session has as many unfinished runs as it may (metadata: `limit`). End some, or use another session. */
export class TooManyRunsError extends ResourceExhaustedError {}

/**
 * The call took longer than its timeout. An append may have been stored: append the same message objects again.
 *
 * A read or an append may have been tried again until then because the server or its store was unavailable. gRPC drops
 * the errors of those tries; the server's log has them.
 */
export class DeadlineExceededError extends MemorydError {}

/** A fault of the server; its text is only in the log, under the correlation id. */
export class InternalError extends MemorydError {}

/** The server has no such method: it is older than this SDK, or the address is that of another service. */
export class MethodUnknownError extends MemorydError {}

/** The answer holds what this SDK does not know, or is not whole. A newer SDK reads what a newer server sends. */
export class AnswerUnreadableError extends MemorydError {}

const BY_REASON: Readonly<Record<string, ErrorClass>> = {
  FIELD_REQUIRED: FieldRequiredError,
  FIELD_INVALID: FieldInvalidError,
  FIELD_TOO_LARGE: FieldTooLargeError,
  PAGE_TOKEN_INVALID: PageTokenInvalidError,
  RESUME_TOKEN_INVALID: ResumeTokenInvalidError,
  STORE_UNKNOWN: StoreUnknownError,
  SECRET_FOUND: SecretFoundError,
  CREDENTIAL_MISSING: CredentialMissingError,
  CREDENTIAL_INVALID: CredentialInvalidError,
  SESSION_NOT_FOUND: SessionNotFoundError,
  MESSAGE_NOT_FOUND: MessageNotFoundError,
  SUMMARY_NOT_FOUND: SummaryNotFoundError,
  MEMORY_FILE_NOT_FOUND: MemoryFileNotFoundError,
  RUN_NOT_FOUND: RunNotFoundError,
  MESSAGE_ID_CONFLICT: MessageIdConflictError,
  REQUEST_ID_CONFLICT: RequestIdConflictError,
  SESSION_EXISTS: SessionExistsError,
  RUN_EXISTS: RunExistsError,
  LAST_SEQ_MISMATCH: LastSeqMismatchError,
  ETAG_MISMATCH: EtagMismatchError,
  CONTENTION: ContentionError,
  WINDOW_CHANGED: WindowChangedError,
  FORK_INTERRUPTED: ForkInterruptedError,
  WATCH_STALLED: WatchStalledError,
  SUMMARY_TASK_VOID: SummaryTaskVoidError,
  SUMMARY_UNDER_WAY: SummaryUnderWayError,
  STEP_MISMATCH: StepMismatchError,
  WINDOW_TOO_LARGE: WindowTooLargeError,
  WINDOW_TOO_SMALL: WindowTooSmallError,
  ORIGINALS_REMOVED: OriginalsRemovedError,
  SUMMARIES_DISABLED: SummariesDisabledError,
  SUMMARIZER_DIFFERS: SummarizerDiffersError,
  LEASE_LOST: RunLeaseLostError,
  RUN_ENDED: RunEndedError,
  RUN_NOT_CLAIMABLE: RunNotClaimableError,
  RUN_UNFINISHED: RunUnfinishedError,
  STORE_UNAVAILABLE: StoreUnavailableError,
  SUMMARIZER_FAILED: SummarizerFailedError,
  SERVER_DRAINING: ServerDrainingError,
  RECORD_TOO_LARGE: RecordTooLargeError,
  MEMORY_FILE_FULL: MemoryFileFullError,
  TOO_MANY_WATCHERS: TooManyWatchersError,
  TOO_MANY_RUNS: TooManyRunsError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
  INTERNAL: InternalError,
  METHOD_UNKNOWN: MethodUnknownError,
};

const BY_STATUS: Readonly<Partial<Record<StatusCode, ErrorClass>>> = {
  INVALID_ARGUMENT: InvalidArgumentError,
  UNAUTHENTICATED: UnauthenticatedError,
  NOT_FOUND: NotFoundError,
  ALREADY_EXISTS: AlreadyExistsError,
  ABORTED: AbortedError,
  FAILED_PRECONDITION: FailedPreconditionError,
  UNAVAILABLE: UnavailableError,
  RESOURCE_EXHAUSTED: ResourceExhaustedError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
  INTERNAL: InternalError,
  UNIMPLEMENTED: MethodUnknownError,
};

const DOMAIN = "memoryd";
const STATUS_DETAILS = "grpc-status-details-bin";

const SIGNS_OF_TLS: readonly (readonly [RegExp, string])[] = [
  [
    /certificate has expired|certificate is not yet valid/i,
    "the certificate of the server at {address} has expired (or a clock is wrong): its operator must renew it",
  ],
  [
    /altnames|ERR_TLS_CERT_ALTNAME_INVALID/i,
    "the certificate of the server at {address} is for other names: give the client an address with one of its names, or " +
      "the server a certificate for this one",
  ],
  [
    /self-signed certificate|unable to (?:get|verify)|certificate signature failure|invalid CA|unsuitable certificate/i,
    "the certificate of the server at {address} is not from a CA that the client trusts: give the right one as ca",
  ],
  [
    /wrong version number|packet length too long|record layer/i,
    "the server at {address} does not speak TLS: leave out ca and tls, or have its operator give it a certificate",
  ],
  [
    /handshake failure|SSL routines|before secure TLS connection was established/i,
    "the server at {address} broke off the TLS handshake: its certificate may be one that it cannot use",
  ],
];
/**
 * A connection that ended before the server's HTTP/2 stood, which a server that waits for TLS does not say otherwise. One that has
 * answered does not wait for it: it went away.
 */
const CLOSED_AT_ONCE: readonly [RegExp, string] = [
  /Last error: .*(?:Failed to connect|Connection closed|ECONNRESET|socket hang up)/i,
  "the server at {address} closed the connection at once: it may ask for TLS, or be shutting down; for one with TLS, give ca " +
    "(the certificate of its CA) or tls: true",
];

const SLOW = {
  retried:
    "The server is busy, or it or its store was unavailable and the call was tried again until then: see the server's log, " +
    "and stores() tells which stores answer now. Or give a longer timeout. A change may have been made all the same: an " +
    "append of the same message objects is safe to repeat, and so is what you gave a requestId",
  once:
    "See in the server's log whether it is busy, or give a longer timeout. The change may have been made all the same: read " +
    "before you repeat it",
} as const;

/** What was called, for the text of an error. */
export interface Attempt {
  readonly address: string;
  readonly method: string;
  readonly retried: boolean;
  readonly timeoutMs: number;
  /** Whether a server of memoryd has answered this client before. */
  readonly hasAnswered: boolean;
}

/**
 * The typed error of a failed call, caused by gRPC's. A reason that this SDK does not know gives the class of the status.
 * Without an ErrorInfo of memoryd the error comes from the transport, and the text says which address was tried.
 */
export function typedError(failed: ServiceError, attempt: Attempt): MemorydError {
  const code = status[failed.code] as StatusCode;
  const { info, retryAfterMs } = told(failed.metadata);
  if (info !== undefined) {
    const kind = ownEntry(BY_REASON, info.reason) ?? BY_STATUS[code] ?? MemorydError;
    return new kind(failed.details, { code, reason: info.reason, metadata: info.metadata, retryAfterMs, cause: failed });
  }
  switch (code) {
    case "UNAVAILABLE":
      return unreachable(failed, attempt);
    case "DEADLINE_EXCEEDED": {
      const why = attempt.retried ? SLOW.retried : SLOW.once;
      const text = `${attempt.method} did not end within ${attempt.timeoutMs / 1000} s at ${attempt.address}. ${why}`;
      return new DeadlineExceededError(text, { code, cause: failed });
    }
    case "UNIMPLEMENTED": {
      const text = `the server at ${attempt.address} does not know ${attempt.method}: it is older than this SDK, or not memoryd`;
      return new MethodUnknownError(`${text} (${failed.details})`, { code, cause: failed });
    }
    default: {
      const kind = BY_STATUS[code] ?? MemorydError;
      return new kind(`${attempt.method} failed at ${attempt.address} with ${code}: ${failed.details}`, { code, cause: failed });
    }
  }
}

/** What keeps a client from its server, as far as gRPC's text tells. */
function unreachable(failed: ServiceError, { address, hasAnswered }: Attempt): ServerUnavailableError {
  const fields = { code: "UNAVAILABLE", cause: failed } as const;
  for (const [sign, meaning] of hasAnswered ? SIGNS_OF_TLS : [...SIGNS_OF_TLS, CLOSED_AT_ONCE]) {
    if (sign.test(failed.details)) {
      return new TlsFailedError(`${meaning.replace("{address}", () => address)} (gRPC: ${failed.details})`, fields);
    }
  }
  return new ServerUnavailableError(
    `no memoryd server answers at ${address}: ${failed.details}. Start one with \`memoryd serve\`, or give the client the ` +
      "address of one that runs",
    fields,
  );
}

/** What memoryd told beside status and text. */
function told(trailers: Metadata | undefined): { info?: ErrorInfo; retryAfterMs?: number } {
  for (const value of trailers?.get(STATUS_DETAILS) ?? []) {
    if (typeof value === "string") continue;
    try {
      const { details } = fromBinary(StatusSchema, value);
      const info = details.map((detail) => anyUnpack(detail, ErrorInfoSchema)).find((one) => one?.domain === DOMAIN);
      if (info === undefined) continue;
      const delay = details.map((detail) => anyUnpack(detail, RetryInfoSchema)?.retryDelay).find((one) => one !== undefined);
      return { info, ...(delay === undefined ? {} : { retryAfterMs: durationMs(delay) }) };
    } catch {
      return {}; // Spoiled details do not hide the error.
    }
  }
  return {};
}

function ownEntry<Value>(of: Readonly<Record<string, Value>>, key: string): Value | undefined {
  return Object.hasOwn(of, key) ? of[key] : undefined;
}

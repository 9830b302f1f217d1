package dev.memoryd;

import io.grpc.Status;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;

/**
 * A call that failed. There is a class for each reason that the server has, decoded from the {@code google.rpc.ErrorInfo}
 * that every error of memoryd carries; its cause is gRPC's exception, where there is one.
 *
 * <pre>{@code
 * try {
 *   window = session.window();
 * } catch (MemorydException.SessionNotFound notFound) {
 *   window = null; // a conversation that has not begun
 * }
 * }</pre>
 *
 * Arguments that no server could take are IllegalArgumentExceptions, before any call.
 */
public class MemorydException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private static final Map<String, Function<Details, MemorydException>> BY_REASON =
      Map.ofEntries(
          Map.entry("FIELD_REQUIRED", FieldRequired::new),
          Map.entry("FIELD_INVALID", FieldInvalid::new),
          Map.entry("FIELD_TOO_LARGE", FieldTooLarge::new),
          Map.entry("PAGE_TOKEN_INVALID", PageTokenInvalid::new),
          Map.entry("RESUME_TOKEN_INVALID", ResumeTokenInvalid::new),
          Map.entry("STORE_UNKNOWN", StoreUnknown::new),
          Map.entry("SECRET_FOUND", SecretFound::new),
          Map.entry("CREDENTIAL_MISSING", CredentialMissing::new),
          Map.entry("CREDENTIAL_INVALID", CredentialInvalid::new),
          Map.entry("SESSION_NOT_FOUND", SessionNotFound::new),
          Map.entry("MESSAGE_NOT_FOUND", MessageNotFound::new),
          Map.entry("SUMMARY_NOT_FOUND", SummaryNotFound::new),
          Map.entry("MEMORY_FILE_NOT_FOUND", MemoryFileNotFound::new),
          Map.entry("RUN_NOT_FOUND", RunNotFound::new),
          Map.entry("MESSAGE_ID_CONFLICT", MessageIdConflict::new),
          Map.entry("REQUEST_ID_CONFLICT", RequestIdConflict::new),
          Map.entry("SESSION_EXISTS", SessionExists::new),
          Map.entry("RUN_EXISTS", RunExists::new),
          Map.entry("LAST_SEQ_MISMATCH", LastSeqMismatch::new),
          Map.entry("ETAG_MISMATCH", EtagMismatch::new),
          Map.entry("CONTENTION", Contention::new),
          Map.entry("WINDOW_CHANGED", WindowChanged::new),
          Map.entry("FORK_INTERRUPTED", ForkInterrupted::new),
          Map.entry("WATCH_STALLED", WatchStalled::new),
          Map.entry("SUMMARY_TASK_VOID", SummaryTaskVoid::new),
          Map.entry("SUMMARY_UNDER_WAY", SummaryUnderWay::new),
          Map.entry("STEP_MISMATCH", StepMismatch::new),
          Map.entry("WINDOW_TOO_LARGE", WindowTooLarge::new),
          Map.entry("WINDOW_TOO_SMALL", WindowTooSmall::new),
          Map.entry("ORIGINALS_REMOVED", OriginalsRemoved::new),
          Map.entry("SUMMARIES_DISABLED", SummariesDisabled::new),
          Map.entry("SUMMARIZER_DIFFERS", SummarizerDiffers::new),
          Map.entry("LEASE_LOST", RunLeaseLost::new),
          Map.entry("RUN_ENDED", RunEnded::new),
          Map.entry("RUN_NOT_CLAIMABLE", RunNotClaimable::new),
          Map.entry("RUN_UNFINISHED", RunUnfinished::new),
          Map.entry("STORE_UNAVAILABLE", StoreUnavailable::new),
          Map.entry("SUMMARIZER_FAILED", SummarizerFailed::new),
          Map.entry("SERVER_DRAINING", ServerDraining::new),
          Map.entry("DEADLINE_EXCEEDED", DeadlineExceeded::new),
          Map.entry("RECORD_TOO_LARGE", RecordTooLarge::new),
          Map.entry("MEMORY_FILE_FULL", MemoryFileFull::new),
          Map.entry("TOO_MANY_WATCHERS", TooManyWatchers::new),
          Map.entry("TOO_MANY_RUNS", TooManyRuns::new),
          Map.entry("INTERNAL", InternalError::new),
          Map.entry("METHOD_UNKNOWN", MethodUnknown::new));

  /** What there is to tell of a failed call. */
  record Details(
      String message, Status.Code code, String reason, Map<String, String> metadata, Throwable cause)
      implements java.io.Serializable {}

  private final Details details;

  MemorydException(Details details) {
    super(details.message(), details.cause());
    this.details = details;
  }

  /** The exception of a reason; of a status, for a reason that this client does not know, or none. */
  static MemorydException of(Details details) {
    Function<Details, MemorydException> known = BY_REASON.get(details.reason());
    if (known != null) {
      return known.apply(details);
    }
    return switch (details.code()) {
      case INVALID_ARGUMENT -> new InvalidArgument(details);
      case UNAUTHENTICATED -> new Unauthenticated(details);
      case NOT_FOUND -> new NotFound(details);
      case ALREADY_EXISTS -> new AlreadyExists(details);
      case ABORTED -> new Aborted(details);
      case FAILED_PRECONDITION -> new FailedPrecondition(details);
      case UNAVAILABLE -> new Unavailable(details);
      case DEADLINE_EXCEEDED -> new DeadlineExceeded(details);
      case RESOURCE_EXHAUSTED -> new ResourceExhausted(details);
      case INTERNAL -> new InternalError(details);
      case UNIMPLEMENTED -> new MethodUnknown(details);
      case CANCELLED -> new Cancelled(details);
      default -> new MemorydException(details);
    };
  }

  static Details details(String message, Status.Code code) {
    return new Details(message, code, "", Map.of(), null);
  }

  /** The gRPC status. */
  public Status.Code code() {
    return details.code();
  }

  /**
   * The name of the ErrorReason, for example {@code SESSION_NOT_FOUND}; empty when no server of memoryd answered. One that
   * this client does not know is told, too.
   */
  public String reason() {
    return details.reason();
  }

  /** What the reason tells about this case; error_reason.proto names the keys. */
  public Map<String, String> metadata() {
    return details.metadata();
  }

  /** The id that finds the call in the server's log; empty when no server of memoryd answered. */
  public String correlationId() {
    return metadata().getOrDefault("correlation_id", "");
  }

  /** The pause that the server asks for before a further try; empty where it does not say. */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(Errors.retryAfter(getCause()));
  }

  /** What happened and what to do, with the correlation id where there is one. */
  @Override
  public String getMessage() {
    String id = details == null ? "" : correlationId();
    return id.isEmpty() ? super.getMessage() : super.getMessage() + " (correlation id " + id + ")";
  }

  /** What happened and what to do. */
  public String text() {
    return super.getMessage();
  }

  long number(String key) {
    String value = metadata().getOrDefault(key, "");
    return value.isEmpty() ? 0 : Long.parseLong(value);
  }

  /** A field of the request is missing or has a value that it cannot have. */
  public static class InvalidArgument extends MemorydException {
    InvalidArgument(Details details) {
      super(details);
    }

    /** The field's path in the request, for example {@code session.agent}; empty when the error names none. */
    public String field() {
      return metadata().getOrDefault("field", "");
    }
  }

  /** A required field is empty. */
  public static final class FieldRequired extends InvalidArgument {
    FieldRequired(Details details) {
      super(details);
    }
  }

  /** A field has a value that it cannot have. */
  public static final class FieldInvalid extends InvalidArgument {
    FieldInvalid(Details details) {
      super(details);
    }
  }

  /** A field is over its limit; metadata holds {@code limit} and {@code actual} (bytes or items). */
  public static final class FieldTooLarge extends InvalidArgument {
    FieldTooLarge(Details details) {
      super(details);
    }
  }

  /** The page token is damaged, or is of another store, tenant or query. Start again from the first page. */
  public static final class PageTokenInvalid extends InvalidArgument {
    PageTokenInvalid(Details details) {
      super(details);
    }
  }

  /**
   * The resume token is damaged, or is of another store, tenant or session. Read the session, and watch without
   * one.
   */
  public static final class ResumeTokenInvalid extends InvalidArgument {
    ResumeTokenInvalid(Details details) {
      super(details);
    }
  }

  /** The server has no store with the name that the client asks for; metadata holds {@code stores}, the known names. */
  public static final class StoreUnknown extends InvalidArgument {
    StoreUnknown(Details details) {
      super(details);
    }
  }

  /**
   * A text for a memory file holds a credential, which the error does not tell. Nothing was written: take it out,
   * or give {@code allowSecrets} if it is none.
   */
  public static final class SecretFound extends InvalidArgument {
    SecretFound(Details details) {
      super(details);
    }

    /** The line of the text that holds it, from 1; {@link #field} tells which text. */
    public int line() {
      return (int) number("line");
    }

    /** The kind of credential. */
    public String kind() {
      return metadata().getOrDefault("kind", "");
    }
  }

  /** The server does not know who calls. Trying again does not help. */
  public static class Unauthenticated extends MemorydException {
    Unauthenticated(Details details) {
      super(details);
    }
  }

  /** The server serves only callers that show a token, and the client was given none. */
  public static final class CredentialMissing extends Unauthenticated {
    CredentialMissing(Details details) {
      super(details);
    }
  }

  /** The server does not accept the client's token: it is not one of this server's, or no longer. */
  public static final class CredentialInvalid extends Unauthenticated {
    CredentialInvalid(Details details) {
      super(details);
    }
  }

  /** What the call names does not exist. */
  public static class NotFound extends MemorydException {
    NotFound(Details details) {
      super(details);
    }
  }

  /** There is no such session. The first append begins one. */
  public static final class SessionNotFound extends NotFound {
    SessionNotFound(Details details) {
      super(details);
    }
  }

  /** The session holds no such message. */
  public static final class MessageNotFound extends NotFound {
    MessageNotFound(Details details) {
      super(details);
    }
  }

  /** The session has no such summary, or none at all. */
  public static final class SummaryNotFound extends NotFound {
    SummaryNotFound(Details details) {
      super(details);
    }
  }

  /**
   * The owner has no such memory file, or the file no such version; metadata holds {@code name}, and {@code
   * version} where one was asked for.
   */
  public static final class MemoryFileNotFound extends NotFound {
    MemoryFileNotFound(Details details) {
      super(details);
    }
  }

  /** The session has no such run. It may have been deleted when its retention was over. */
  public static final class RunNotFound extends NotFound {
    RunNotFound(Details details) {
      super(details);
    }
  }

  /** An id is known with other content, or a name is taken. Nothing was written. */
  public static class AlreadyExists extends MemorydException {
    AlreadyExists(Details details) {
      super(details);
    }
  }

  /**
   * A message id (metadata: {@code message_id}) is known with other content, or only some ids of the batch are
   * known.
   */
  public static final class MessageIdConflict extends AlreadyExists {
    MessageIdConflict(Details details) {
      super(details);
    }
  }

  /** The request id is known with another request. */
  public static final class RequestIdConflict extends AlreadyExists {
    RequestIdConflict(Details details) {
      super(details);
    }
  }

  /** The target of a fork is the name of a session, or was until less than 24 hours ago. Fork to another name. */
  public static final class SessionExists extends AlreadyExists {
    SessionExists(Details details) {
      super(details);
    }
  }

  /** The session has another run of this id. Use a new id, or claim the run. */
  public static final class RunExists extends AlreadyExists {
    RunExists(Details details) {
      super(details);
    }
  }

  /** The call lost against another one. Read again, then decide. */
  public static class Aborted extends MemorydException {
    Aborted(Details details) {
      super(details);
    }
  }

  /** The session's last seq is not the expected one. */
  public static final class LastSeqMismatch extends Aborted {
    LastSeqMismatch(Details details) {
      super(details);
    }

    /** The session's last seq; 0 when there is no session yet. */
    public long actual() {
      return number("actual");
    }
  }

  /**
   * The settings, the memory file or the run changed since the etag was read, or there is a memory file that was
   * to be made, or another summary is current than the one to take back.
   */
  public static final class EtagMismatch extends Aborted {
    EtagMismatch(Details details) {
      super(details);
    }

    /** The current etag, or the id of the current summary; empty when the file is gone. */
    public String etag() {
      return metadata().getOrDefault("etag", "");
    }
  }

  /** Other calls kept changing the session until the deadline. Nothing was written; try again. */
  public static final class Contention extends Aborted {
    Contention(Details details) {
      super(details);
    }
  }

  /** History was taken away while a window was streamed, and again each time that the client started over. */
  public static final class WindowChanged extends Aborted {
    WindowChanged(Details details) {
      super(details);
    }
  }

  /** The source of a fork lost messages while it was copied. Nothing was made; fork again. */
  public static final class ForkInterrupted extends Aborted {
    ForkInterrupted(Details details) {
      super(details);
    }
  }

  /**
   * A watcher left an answer unread for too long. {@link Session#watch()} resumes by itself, so that only users of
   * the bare stubs see this.
   */
  public static final class WatchStalled extends Aborted {
    WatchStalled(Details details) {
      super(details);
    }
  }

  /**
   * The summary task is void: its lease is over, or the history changed where it lies. Nothing was changed: go on
   * with the next task.
   */
  public static final class SummaryTaskVoid extends Aborted {
    SummaryTaskVoid(Details details) {
      super(details);
    }
  }

  /** Another server or client makes the session's summary. Try again when it is done. */
  public static final class SummaryUnderWay extends Aborted {
    SummaryUnderWay(Details details) {
      super(details);
    }
  }

  /**
   * The step is not the run's next one, or was committed with other content: by a try whose answer was lost, say.
   * Nothing was written. {@link Run#resume} reads where the run stands.
   */
  public static final class StepMismatch extends Aborted {
    StepMismatch(Details details) {
      super(details);
    }

    /** How many steps the run has. */
    public long stepCount() {
      return number("step_count");
    }
  }

  /** The state of the session or of the run does not allow the call. */
  public static class FailedPrecondition extends MemorydException {
    FailedPrecondition(Details details) {
      super(details);
    }
  }

  /**
   * The window is over 3.5 MiB. {@link Session#window()} then streams it, so that only users of the bare stubs see
   * this.
   */
  public static final class WindowTooLarge extends FailedPrecondition {
    WindowTooLarge(Details details) {
      super(details);
    }
  }

  /** oversize is FAIL and the newest group alone exceeds the limit; metadata holds {@code limit} and {@code needed}. */
  public static final class WindowTooSmall extends FailedPrecondition {
    WindowTooSmall(Details details) {
      super(details);
    }
  }

  /**
   * The messages behind a summary are removed (retention DELETE), so it cannot be taken back; metadata holds
   * {@code to_seq}, the newest one that is gone.
   */
  public static final class OriginalsRemoved extends FailedPrecondition {
    OriginalsRemoved(Details details) {
      super(details);
    }
  }

  /** The stored policies of session and agent have no summaries. Store a policy with a {@link SummaryPolicy} first. */
  public static final class SummariesDisabled extends FailedPrecondition {
    SummariesDisabled(Details details) {
      super(details);
    }
  }

  /**
   * The session's summarizer (metadata: {@code summarizer}) is {@code client}, so its summaries are made by
   * whoever leases tasks; or it is another one, so that there are no tasks to lease.
   */
  public static final class SummarizerDiffers extends FailedPrecondition {
    SummarizerDiffers(Details details) {
      super(details);
    }
  }

  /**
   * The caller does not hold the run any more: its lease is over, another worker claimed it, or somebody changed
   * its status. Nothing was written. Stop working at it.
   */
  public static final class RunLeaseLost extends FailedPrecondition {
    RunLeaseLost(Details details) {
      super(details);
    }
  }

  /** The run has ended, and never changes again; metadata holds its {@code status}. */
  public static final class RunEnded extends FailedPrecondition {
    RunEnded(Details details) {
      super(details);
    }
  }

  /** Another worker (metadata: {@code holder}) holds the run until its lease is over. */
  public static final class RunNotClaimable extends FailedPrecondition {
    RunNotClaimable(Details details) {
      super(details);
    }

    /** Who says to hold it. */
    public String holder() {
      return metadata().getOrDefault("holder", "");
    }
  }

  /** The run (metadata: its {@code status}) has not ended, and cannot be deleted. Set a status that ends it first. */
  public static final class RunUnfinished extends FailedPrecondition {
    RunUnfinished(Details details) {
      super(details);
    }
  }

  /**
   * The server, or the store behind it, did not answer, also after retries. An append may have been stored all the
   * same: append the same messages again, and they are stored once.
   */
  public static class Unavailable extends MemorydException {
    Unavailable(Details details) {
      super(details);
    }
  }

  /** The server's store did not answer; metadata holds {@code store}. */
  public static final class StoreUnavailable extends Unavailable {
    StoreUnavailable(Details details) {
      super(details);
    }
  }

  /**
   * The summarizer (metadata: {@code summarizer}) failed, why is in metadata {@code failure}. Nothing was changed,
   * and the server tries again with backoff.
   */
  public static final class SummarizerFailed extends Unavailable {
    SummarizerFailed(Details details) {
      super(details);
    }
  }

  /** The server is shutting down. */
  public static final class ServerDraining extends Unavailable {
    ServerDraining(Details details) {
      super(details);
    }
  }

  /** No server answers at the client's address. */
  public static class ServerUnavailable extends Unavailable {
    ServerUnavailable(Details details) {
      super(details);
    }
  }

  /** Client and server do not agree on TLS, or the client does not trust the server's certificate. */
  public static final class TlsFailed extends ServerUnavailable {
    TlsFailed(Details details) {
      super(details);
    }
  }

  /**
   * The call took longer than its timeout. An append may have been stored: append the same messages again. A read
   * or an append may have been tried again until then because the server or its store was unavailable. gRPC drops
   * the errors of those tries; the server's log has them.
   */
  public static final class DeadlineExceeded extends MemorydException {
    DeadlineExceeded(Details details) {
      super(details);
    }
  }

  /** A quota is used up, or a message is larger than what gRPC lets through. */
  public static class ResourceExhausted extends MemorydException {
    ResourceExhausted(Details details) {
      super(details);
    }
  }

  /** The session's record is full. Use fewer or shorter labels. */
  public static final class RecordTooLarge extends ResourceExhausted {
    RecordTooLarge(Details details) {
      super(details);
    }
  }

  /**
   * The memory file would be over 1 MiB; metadata holds {@code name}, {@code limit} and {@code actual} (bytes).
   * Nothing was written: put a shorter file first.
   */
  public static final class MemoryFileFull extends ResourceExhausted {
    MemoryFileFull(Details details) {
      super(details);
    }
  }

  /**
   * The server serves as many watchers as it may; metadata holds {@code limit}. {@link Session#watch()} tries
   * again by itself.
   */
  public static final class TooManyWatchers extends ResourceExhausted {
    TooManyWatchers(Details details) {
      super(details);
    }
  }

  /** The session has as many unfinished runs as it may (metadata: {@code limit}). End some, or use another session. */
  public static final class TooManyRuns extends ResourceExhausted {
    TooManyRuns(Details details) {
      super(details);
    }
  }

  /** A fault of the server; its text is only in the log, under the correlation id. */
  public static final class InternalError extends MemorydException {
    InternalError(Details details) {
      super(details);
    }
  }

  /** The server has no such method: it is older than this client, or the address is that of another service. */
  public static final class MethodUnknown extends MemorydException {
    MethodUnknown(Details details) {
      super(details);
    }
  }

  /**
   * The answer holds what this client does not know, or is not whole. A newer client reads what a newer server
   * sends.
   */
  public static final class AnswerUnreadable extends MemorydException {
    AnswerUnreadable(Details details) {
      super(details);
    }
  }

  /**
   * The call was cancelled: the calling thread was interrupted while it waited for the answer, and its interrupt status is set;
   * or something between client and server cancelled it.
   */
  public static final class Cancelled extends MemorydException {
    Cancelled(Details details) {
      super(details);
    }
  }
}

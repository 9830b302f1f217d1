package dev.memoryd;

/**
 * What window to load.
 *
 * <pre>{@code
 * session.window(WindowRequest.tokens(4_000).withStartWithUser(true));
 * }</pre>
 *
 * @param options how to cut it
 * @param summary whether to show the session's summary in the place of what it covers; null: if the stored policies have
 *     summaries
 * @param waitForSummary whether to wait when the stored policies ask for a fold, at most 10 seconds; null: as they say
 * @param explained whether the stats list messages that were left out
 */
public record WindowRequest(WindowOptions options, Boolean summary, Boolean waitForSummary, boolean explained) {

  /** As the stored policies say. */
  public static final WindowRequest DEFAULT = of(WindowOptions.DEFAULT);

  /** Cut by these options. */
  public static WindowRequest of(WindowOptions options) {
    return new WindowRequest(options, null, null, false);
  }

  /** A limit in messages, 1 to 100,000. */
  public static WindowRequest messages(long limit) {
    return of(WindowOptions.messages(limit));
  }

  /** A limit in tokens of the session's tokenizer, 1 to 100,000,000. */
  public static WindowRequest tokens(long limit) {
    return of(WindowOptions.tokens(limit));
  }

  /** Whether the SYSTEM and DEVELOPER messages that open the history stay in the window. */
  public WindowRequest withPinSystem(boolean pinSystem) {
    return new WindowRequest(options.withPinSystem(pinSystem), summary, waitForSummary, explained);
  }

  /** Whether a window that would begin with another role gets the newest USER message before it in front. */
  public WindowRequest withStartWithUser(boolean startWithUser) {
    return new WindowRequest(options.withStartWithUser(startWithUser), summary, waitForSummary, explained);
  }

  /** What to do with groups that have an unanswered call. */
  public WindowRequest withOpenCalls(OpenCalls openCalls) {
    return new WindowRequest(options.withOpenCalls(openCalls), summary, waitForSummary, explained);
  }

  /** What to do when the newest group alone exceeds a token limit. */
  public WindowRequest withOversize(Oversize oversize) {
    return new WindowRequest(options.withOversize(oversize), summary, waitForSummary, explained);
  }

  /** Whether to show the session's summary in the place of what it covers. */
  public WindowRequest withSummary(boolean summary) {
    return new WindowRequest(options, summary, waitForSummary, explained);
  }

  /** Whether to wait when the stored policies ask for a fold. */
  public WindowRequest withWaitForSummary(boolean waitForSummary) {
    return new WindowRequest(options, summary, waitForSummary, explained);
  }

  /** Lets the stats list messages that were left out. */
  public WindowRequest withExplanation() {
    return new WindowRequest(options, summary, waitForSummary, true);
  }
}

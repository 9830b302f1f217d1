package dev.memoryd;

/**
 * How a window is cut. What is null comes from the session's stored policy, then the agent's, then the server's.
 *
 * @param mode the unit of the limit; the server's default is MESSAGES
 * @param limit the most that a window may hold: 1 to 100,000 messages or 1 to 100,000,000 tokens; the server's default is
 *     10,000
 * @param pinSystem whether the SYSTEM and DEVELOPER messages that open the history stay in every window; the server's default
 *     is true
 * @param startWithUser whether a window that would begin with another role gets the newest USER message before it in front;
 *     the server's default is false
 * @param openCalls what to do with groups that have an unanswered call; the server's default is OMIT
 * @param oversize what to do when the newest group alone exceeds a token limit; the server's default is SHORTEN
 */
public record WindowOptions(
    WindowMode mode, Long limit, Boolean pinSystem, Boolean startWithUser, OpenCalls openCalls, Oversize oversize) {

  /** All as the more general policy says. */
  public static final WindowOptions DEFAULT = new WindowOptions(null, null, null, null, null, null);

  /** A limit in messages, 1 to 100,000. */
  public static WindowOptions messages(long limit) {
    return new WindowOptions(WindowMode.MESSAGES, limit, null, null, null, null);
  }

  /** A limit in tokens of the session's tokenizer, 1 to 100,000,000. */
  public static WindowOptions tokens(long limit) {
    return new WindowOptions(WindowMode.TOKENS, limit, null, null, null, null);
  }

  /** Whether the SYSTEM and DEVELOPER messages that open the history stay in every window. */
  public WindowOptions withPinSystem(boolean pinSystem) {
    return new WindowOptions(mode, limit, pinSystem, startWithUser, openCalls, oversize);
  }

  /** Whether a window that would begin with another role gets the newest USER message before it in front. */
  public WindowOptions withStartWithUser(boolean startWithUser) {
    return new WindowOptions(mode, limit, pinSystem, startWithUser, openCalls, oversize);
  }

  /** What to do with groups that have an unanswered call. */
  public WindowOptions withOpenCalls(OpenCalls openCalls) {
    return new WindowOptions(mode, limit, pinSystem, startWithUser, openCalls, oversize);
  }

  /** What to do when the newest group alone exceeds a token limit. */
  public WindowOptions withOversize(Oversize oversize) {
    return new WindowOptions(mode, limit, pinSystem, startWithUser, openCalls, oversize);
  }
}

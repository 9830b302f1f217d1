package dev.memoryd.converters;

import dev.memoryd.Json;
import dev.memoryd.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * OpenAI's chat-completions messages, as plain JSON values: a message is a {@code Map<String, Object>}, as {@link Json} reads it
 * or another library makes it.
 */
public final class OpenAi {
  private OpenAi() {}

  /**
   * Makes one message of each chat-completions message. Each gets a new id; {@link Message#withId} gives it another.
   *
   * @throws IllegalArgumentException for what is not a chat-completions message; it names the message
   */
  public static List<Message> fromOpenAi(Iterable<?> messages) {
    Objects.requireNonNull(messages, "messages");
    List<Message> result = new ArrayList<>();
    for (Object source : messages) {
      result.add(OpenAiReading.message(source, "messages[" + result.size() + "]"));
    }
    return result;
  }

  /**
   * Makes chat-completions messages of a window, or of a list of messages.
   *
   * <p>{@code toOpenAi(fromOpenAi(x))} equals x for every chat-completions message, also after it was stored. What comes from
   * elsewhere is said as well as chat completions can:
   *
   * <ul>
   *   <li>A message that answers several calls becomes several tool messages. What else it says becomes a user message behind
   *       them and behind the results that follow, since nothing may stand between a call and its results.
   *   <li>Reasoning is left out (with the message, when that is all of it), and so is whether a result is an error.
   *   <li>Data becomes text; media become text such as {@code [image/png, 2048 bytes]} outside of user messages.
   * </ul>
   */
  public static List<Map<String, Object>> toOpenAi(Iterable<Message> messages) {
    Objects.requireNonNull(messages, "messages");
    return OpenAiWriting.messages(messages);
  }
}

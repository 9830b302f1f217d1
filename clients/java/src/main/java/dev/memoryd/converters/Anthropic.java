package dev.memoryd.converters;

import dev.memoryd.Message;
import dev.memoryd.Window;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Messages of Anthropic's API, as plain JSON values: a message is a {@code Map<String, Object>}, as {@link dev.memoryd.Json}
 * reads it or another library makes it.
 */
public final class Anthropic {
  private Anthropic() {}

  /**
   * A conversation as Anthropic's API takes it.
   *
   * @param system the system prompt: a String, or a list of blocks; null when there is none
   * @param messages the messages
   */
  public record Prompt(Object system, List<Map<String, Object>> messages) {}

  /** Makes one message of each Anthropic message. Like {@link #fromAnthropic(Iterable, Object)}, without a system prompt. */
  public static List<Message> fromAnthropic(Iterable<?> messages) {
    return fromAnthropic(messages, null);
  }

  /**
   * Makes one message of each Anthropic message, and a SYSTEM one of the system prompt. Each gets a new id; {@link
   * Message#withId} gives it another.
   *
   * @param messages the messages
   * @param system the system prompt: a String, or a list of blocks; null for none
   * @throws IllegalArgumentException for what is not a message of Anthropic's; it names the message
   */
  public static List<Message> fromAnthropic(Iterable<?> messages, Object system) {
    Objects.requireNonNull(messages, "messages");
    List<Message> result = new ArrayList<>();
    if (system != null) {
      result.add(AnthropicReading.system(system));
    }
    result.addAll(AnthropicReading.messages(messages));
    return result;
  }

  /**
   * Makes a conversation for Anthropic of a window, or of a list of messages.
   *
   * <p>Give a model the {@link Window} itself, not a list of its messages: only a Window is always made what Anthropic accepts.
   * {@code toAnthropic(fromAnthropic(x))} equals x for every Anthropic conversation, also after it was stored. What comes from
   * elsewhere is said as well as Anthropic can:
   *
   * <ul>
   *   <li>SYSTEM and DEVELOPER messages that open the conversation are the system prompt; later ones speak as the user.
   *   <li>The results of the calls of one turn are joined in one user message, results first, then what else was said beside
   *       them. In a list, what {@code fromAnthropic} read otherwise stays as it was; in a Window it does not, since Anthropic
   *       refuses it.
   *   <li>Arguments that are not a JSON object become {@code {"arguments": "…"}}.
   *   <li>Names, thinking without a signature and empty texts are left out, and so is a message that says nothing else.
   *   <li>Data becomes text, and so do media that Anthropic has no block for, as {@code [audio/wav, 2048 bytes]}.
   * </ul>
   */
  public static Prompt toAnthropic(Iterable<Message> messages) {
    Objects.requireNonNull(messages, "messages");
    return AnthropicWriting.prompt(messages, !(messages instanceof Window));
  }
}

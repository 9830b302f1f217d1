package dev.memoryd.converters;

import static dev.memoryd.converters.SourceForm.NATIVE;
import static dev.memoryd.converters.SourceForm.UNREADABLE;
import static dev.memoryd.converters.SourceForm.jsonValue;
import static dev.memoryd.converters.SourceForm.noted;
import static dev.memoryd.converters.SourceForm.object;

import dev.memoryd.Message;
import dev.memoryd.Part;
import dev.memoryd.Part.Data;
import dev.memoryd.Part.Media;
import dev.memoryd.Part.Reasoning;
import dev.memoryd.Part.Refusal;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.Role;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** From our messages to Anthropic's. */
final class AnthropicWriting {
  static final String FORMAT = "anthropic";

  /** Marks reasoning that Anthropic gave in encrypted form only. */
  static final String REDACTED = "redacted";

  /** Marks a call whose input is not an object. */
  static final String AS_IS = "as_is";

  /** Marks a message with results right behind another one, which Anthropic would want as one message. */
  static final String APART = "apart";

  /** Marks a message with results behind something else, which Anthropic would want first. */
  static final String MIXED = "mixed";

  private AnthropicWriting() {}

  /**
   * The system prompt and the messages. Anthropic wants the results of a turn's calls in one message, before anything else that
   * it says. With {@code asBorn}, a conversation that came from Anthropic otherwise stays as it came.
   */
  static Anthropic.Prompt prompt(Iterable<Message> messages, boolean asBorn) {
    List<Map<String, Object>> opening = new ArrayList<>();
    List<Map<String, Object>> turns = new ArrayList<>();
    for (Message message : messages) {
      Objects.requireNonNull(message, "message");
      Map<String, Object> form =
          SourceForm.aligned(SourceForm.read(message.extra(), FORMAT), message.parts());
      Map<String, Object> before = written(message, form);
      if (before == null) {
        continue;
      }
      Map<String, Object> source =
          SourceForm.asObject(SourceForm.patched(before, noted(form, "patch")), before);
      boolean isInstruction = message.role() == Role.SYSTEM || message.role() == Role.DEVELOPER;
      if (!isInstruction || isSet(form, "inline")) {
        if (!(asBorn && isSet(form, MIXED))) {
          source = resultsFirst(source);
        }
        int last = turns.size() - 1;
        if (last >= 0 && answers(turns.get(last)) && answers(source) && !(asBorn && isSet(form, APART))) {
          turns.set(last, joined(turns.get(last), source));
        } else {
          turns.add(source);
        }
      } else if (turns.isEmpty()) {
        opening.add(source);
      } else {
        turns.add(SourceForm.with(source, "role", "user"));
      }
    }
    return new Anthropic.Prompt(system(opening), turns);
  }

  private static boolean isSet(Map<String, Object> form, String key) {
    return Boolean.TRUE.equals(form.get(key));
  }

  /** Whether a message of Anthropic's holds results of calls. */
  static boolean answers(Map<?, ?> source) {
    return "user".equals(source.get("role"))
        && source.get("content") instanceof List<?> blocks
        && blocks.stream().anyMatch(AnthropicWriting::isResult);
  }

  /** Whether a message of Anthropic's holds results behind something else. */
  static boolean isMixed(Map<String, Object> source) {
    return answers(source) && !resultsFirst(source).get("content").equals(source.get("content"));
  }

  private static Object system(List<Map<String, Object>> opening) {
    if (opening.size() < 2) {
      return opening.isEmpty() ? null : opening.get(0).get("content");
    }
    List<Object> blocks = new ArrayList<>();
    for (Map<String, Object> source : opening) {
      if (source.get("content") instanceof List<?> list) {
        blocks.addAll(list);
      } else {
        blocks.add(textBlock(String.valueOf(source.get("content"))));
      }
    }
    return blocks;
  }

  private static Map<String, Object> joined(Map<String, Object> first, Map<String, Object> second) {
    Map<String, Object> both = new LinkedHashMap<>(first);
    both.putAll(second);
    List<Object> content = new ArrayList<>((List<?>) first.get("content"));
    content.addAll((List<?>) second.get("content"));
    both.put("content", content);
    return resultsFirst(both);
  }

  private static Map<String, Object> resultsFirst(Map<String, Object> source) {
    if (!answers(source)) {
      return source;
    }
    List<?> blocks = (List<?>) source.get("content");
    List<Object> sorted = new ArrayList<>(blocks.stream().filter(AnthropicWriting::isResult).toList());
    for (Object block : blocks) {
      if (!isResult(block)) {
        sorted.add(block);
      }
    }
    return SourceForm.with(source, "content", sorted);
  }

  private static boolean isResult(Object block) {
    return block instanceof Map<?, ?> map && "tool_result".equals(map.get("type"));
  }

  /** How a message's content is written by itself. */
  static String contentForm(List<? extends Part> parts) {
    return parts.size() == 1 && parts.get(0) instanceof Text ? "text" : "list";
  }

  /** How a result's content is written by itself. */
  static String resultContentForm(List<? extends Part> parts) {
    return parts.isEmpty() ? "missing" : contentForm(parts);
  }

  /** What is written before the form's patch; null for a message that says nothing that Anthropic takes. */
  static Map<String, Object> written(Message message, Map<String, Object> form) {
    List<Object> blocks = blocks(message.parts(), noted(form, "parts"));
    if (blocks.isEmpty() && !form.containsKey("content")) {
      return null;
    }
    String role =
        switch (message.role()) {
          case SYSTEM, DEVELOPER -> "system";
          case USER, TOOL -> "user";
          case ASSISTANT -> "assistant";
        };
    Map<String, Object> source = object("role", role);
    setContent(source, blocks, form.get("content"), contentForm(message.parts()));
    return source;
  }

  private static List<Object> blocks(List<? extends Part> parts, Map<String, Object> tags) {
    List<Object> blocks = new ArrayList<>();
    for (int index = 0; index < parts.size(); index++) {
      Object tag = tags.get(Integer.toString(index));
      if (isNote(tag) || !isRefused(parts.get(index))) {
        blocks.add(block(parts.get(index), tag));
      }
    }
    return blocks;
  }

  private static boolean isNote(Object tag) {
    return tag instanceof String text ? !text.isEmpty() : tag instanceof Map<?, ?> map && !map.isEmpty();
  }

  /** Whether Anthropic refuses the block of a part: empty text, and thinking without its signature. */
  private static boolean isRefused(Part part) {
    return (part instanceof Text text && text.text().isEmpty())
        || (part instanceof Refusal refusal && refusal.text().isEmpty())
        || (part instanceof Reasoning reasoning && reasoning.signature().isEmpty());
  }

  private static void setContent(
      Map<String, Object> source, List<Object> blocks, Object noted, String byItself) {
    Object actual = noted;
    if (actual == null || (!blocks.isEmpty() && ("missing".equals(actual) || "null".equals(actual)))) {
      actual = byItself;
    }
    if ("null".equals(actual)) {
      source.put("content", null);
    } else if ("text".equals(actual)) {
      source.put("content", OpenAiWriting.texts(blocks));
    } else if (!"missing".equals(actual)) {
      source.put("content", blocks);
    }
  }

  private static Object block(Part part, Object tag) {
    if (part instanceof Text text) {
      return textBlock(text.text());
    }
    if (part instanceof Refusal refusal) {
      return textBlock(refusal.text());
    }
    if (part instanceof Reasoning reasoning) {
      return REDACTED.equals(tag)
          ? object("type", "redacted_thinking", "data", reasoning.signature())
          : object("type", "thinking", "thinking", reasoning.text(), "signature", reasoning.signature());
    }
    if (part instanceof Media media) {
      Map<String, Object> block = mediaBlock(media);
      return block == null ? textBlock(MediaForms.mention(media)) : block;
    }
    if (part instanceof Data data) {
      Object value = NATIVE.equals(tag) ? jsonValue(data.json()) : UNREADABLE;
      return value == UNREADABLE ? textBlock(data.json()) : value;
    }
    if (part instanceof ToolCall call) {
      return object(
          "type", "tool_use", "id", call.id(), "name", call.name(), "input", input(call.arguments(), tag));
    }
    return result((ToolResult) part, SourceForm.asObject(tag, Map.of()));
  }

  private static Map<String, Object> textBlock(String text) {
    return object("type", "text", "text", text);
  }

  private static Object input(String arguments, Object tag) {
    Object value = arguments.isEmpty() ? Map.of() : jsonValue(arguments);
    if (value instanceof Map<?, ?> || (AS_IS.equals(tag) && value != UNREADABLE)) {
      return value;
    }
    return object("arguments", arguments);
  }

  private static Map<String, Object> result(ToolResult result, Map<String, Object> form) {
    Map<String, Object> source = object("type", "tool_result", "tool_use_id", result.callId());
    String byItself = resultContentForm(result.parts());
    if (byItself.equals("text") && !form.containsKey("content")) {
      source.put("content", result.text());
    } else {
      setContent(source, blocks(result.parts(), noted(form, "parts")), form.get("content"), byItself);
    }
    if (result.isError()) {
      source.put("is_error", true);
    }
    return source;
  }

  /** The block of media; null where Anthropic has none, as for sound. */
  static Map<String, Object> mediaBlock(Media media) {
    boolean image = media.type().startsWith("image/");
    String kind = image ? "image" : "document";
    if (media.data() == null) {
      Map<String, Object> source =
          MediaForms.isUrl(media.uri())
              ? object("type", "url", "url", media.uri())
              : object("type", "file", "file_id", media.uri());
      return object("type", kind, "source", source);
    }
    if (image || media.type().equals("application/pdf")) {
      String data = MediaForms.base64Text(media.data());
      return object(
          "type", kind, "source", object("type", "base64", "media_type", media.type(), "data", data));
    }
    return null;
  }
}

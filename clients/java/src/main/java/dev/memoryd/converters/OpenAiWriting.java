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
import dev.memoryd.Part.ResultPart;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.Role;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;

/** From our messages to OpenAI's chat-completions ones. */
final class OpenAiWriting {
  static final String FORMAT = "openai";

  static final Map<String, String> AUDIO_TYPES = Map.of("mp3", "audio/mpeg", "wav", "audio/wav");
  private static final Map<String, String> AUDIO_FORMATS = Map.of("audio/mpeg", "mp3", "audio/wav", "wav");

  private OpenAiWriting() {}

  /**
   * The OpenAI messages of ours. What a message says beside its results waits for the results that follow: they stand directly
   * behind their calls.
   */
  static List<Map<String, Object>> messages(Iterable<Message> messages) {
    List<Map<String, Object>> sources = new ArrayList<>();
    List<Map<String, Object>> waiting = new ArrayList<>();
    for (Message message : messages) {
      Objects.requireNonNull(message, "message");
      List<Map<String, Object>> said = message(message, SourceForm.read(message.extra(), FORMAT));
      int results = message.toolResults().size();
      if (results == 0 && message.role() == Role.TOOL) {
        results = 1;
      }
      if (results > 0) {
        sources.addAll(said.subList(0, results));
        waiting.addAll(said.subList(results, said.size()));
      } else if (!said.isEmpty()) {
        sources.addAll(waiting);
        sources.addAll(said);
        waiting.clear();
      }
    }
    sources.addAll(waiting);
    return sources;
  }

  private static List<Map<String, Object>> message(Message message, Map<String, Object> form) {
    List<Map<String, Object>> sources = written(message, form);
    if (sources.size() == 1 && form.containsKey("patch")) {
      Object patched = SourceForm.patched(sources.get(0), form.get("patch"));
      return List.of(SourceForm.asObject(patched, sources.get(0)));
    }
    return sources;
  }

  /** What is written before the form's patch. */
  static List<Map<String, Object>> written(Message message, Map<String, Object> form) {
    List<ToolResult> results = message.toolResults();
    List<Part> parts = message.parts();
    if (results.isEmpty() && message.role() != Role.TOOL) {
      if (!parts.isEmpty() && !isSet(form, "reasoning") && parts.stream().allMatch(Reasoning.class::isInstance)) {
        return List.of();
      }
      return List.of(spoken(message.role(), message.name(), message.content(), form));
    }
    List<Part> rest = parts.stream().filter(part -> !(part instanceof ToolResult)).toList();
    List<Map<String, Object>> sources = new ArrayList<>();
    results.forEach(result -> sources.add(result(result, form)));
    if (results.isEmpty()) {
      // A tool's message without a result: nothing to name a call by, but what it says is kept in its place.
      List<ResultPart> said =
          rest.stream().filter(ResultPart.class::isInstance).map(ResultPart.class::cast).toList();
      sources.add(result(new ToolResult("", "", false, said), form));
    } else if (!rest.isEmpty()) {
      sources.add(spoken(Role.USER, message.name(), rest, Map.of()));
    }
    return sources;
  }

  private static boolean isSet(Map<String, Object> form, String key) {
    return Boolean.TRUE.equals(form.get(key));
  }

  /** How content is written by itself; {@code alone} tells that the message is there and has nothing else. */
  static String spokenContentForm(List<? extends Part> said, boolean alone) {
    if (said.isEmpty()) {
      return alone ? "list" : "null";
    }
    return said.size() == 1 && said.get(0) instanceof Text ? "text" : "list";
  }

  /** How a tool's content is written by itself. */
  static String resultContentForm(List<? extends Part> parts) {
    return parts.isEmpty() ? "text" : spokenContentForm(parts, true);
  }

  private static Map<String, Object> spoken(
      Role role, String name, List<Part> content, Map<String, Object> form) {
    List<Part> parts = content == null ? List.of() : content;
    Map<String, Object> source = object("role", role.name().toLowerCase(Locale.ROOT));
    List<Part> said = new ArrayList<>();
    List<Object> blocks = new ArrayList<>();
    for (int index = 0; index < parts.size(); index++) {
      Part part = parts.get(index);
      if (!(part instanceof Reasoning || part instanceof ToolCall)) {
        said.add(part);
        blocks.add(block(part, tag(form, index), role == Role.USER));
      }
    }
    Refusal refusal = null;
    if (role == Role.ASSISTANT
        && !said.isEmpty()
        && !"part".equals(form.get("refusal"))
        && said.get(said.size() - 1) instanceof Refusal last) {
      refusal = last;
      said.remove(said.size() - 1);
      blocks.remove(blocks.size() - 1);
    }
    setContent(
        source, blocks, spokenContentForm(said, content != null && said.size() == parts.size()), form);
    if (name != null) {
      source.put("name", name);
    }
    if (isSet(form, "reasoning")) {
      source.put(
          "reasoning_content",
          parts.stream()
              .filter(Reasoning.class::isInstance)
              .map(part -> ((Reasoning) part).text())
              .collect(Collectors.joining()));
    }
    if (refusal != null) {
      source.put("refusal", refusal.text());
    }
    List<ToolCall> calls =
        new ArrayList<>(parts.stream().filter(ToolCall.class::isInstance).map(ToolCall.class::cast).toList());
    if (!calls.isEmpty() && isSet(form, "function_call")) {
      ToolCall legacy = calls.remove(calls.size() - 1);
      source.put("function_call", object("name", legacy.name(), "arguments", legacy.arguments()));
    }
    if (!calls.isEmpty()) {
      Map<String, Object> forms = noted(form, "calls");
      List<Object> entries = new ArrayList<>();
      for (ToolCall call : calls) {
        entries.add(call(call, forms.get(Integer.toString(entries.size()))));
      }
      source.put("tool_calls", entries);
    }
    return source;
  }

  private static Map<String, Object> result(ToolResult result, Map<String, Object> form) {
    boolean legacy = isSet(form, "function");
    Map<String, Object> source =
        legacy ? object("role", "function") : object("role", "tool", "tool_call_id", result.callId());
    if (!result.name().isEmpty() || legacy) {
      source.put("name", result.name());
    }
    List<Object> blocks = new ArrayList<>();
    for (ResultPart part : result.parts()) {
      blocks.add(block(part, tag(form, blocks.size()), false));
    }
    setContent(source, blocks, resultContentForm(result.parts()), form);
    return source;
  }

  private static Object tag(Map<String, Object> form, int index) {
    return noted(form, "parts").get(Integer.toString(index));
  }

  private static void setContent(
      Map<String, Object> source, List<Object> blocks, String byItself, Map<String, Object> form) {
    Object actual = form.getOrDefault("content", byItself);
    if (!blocks.isEmpty() && ("missing".equals(actual) || "null".equals(actual))) {
      actual = byItself;
    }
    if ("null".equals(actual)) {
      source.put("content", null);
    } else if ("text".equals(actual)) {
      source.put("content", texts(blocks));
    } else if (!"missing".equals(actual)) {
      source.put("content", blocks);
    }
  }

  static String texts(List<Object> blocks) {
    return blocks.stream()
        .map(block -> block instanceof Map<?, ?> map ? SourceForm.text(map, "text") : null)
        .filter(text -> text != null)
        .collect(Collectors.joining());
  }

  private static Object block(Part part, Object tag, boolean byUser) {
    if (part instanceof Text text) {
      return textBlock(text.text());
    }
    if (part instanceof Refusal refusal) {
      return object("type", "refusal", "refusal", refusal.text());
    }
    if (part instanceof Media media) {
      Map<String, Object> block = byUser || NATIVE.equals(tag) ? mediaBlock(media) : null;
      return block == null ? textBlock(MediaForms.mention(media)) : block;
    }
    Data data = (Data) part;
    Object value = NATIVE.equals(tag) ? jsonValue(data.json()) : UNREADABLE;
    return value == UNREADABLE ? textBlock(data.json()) : value;
  }

  private static Map<String, Object> textBlock(String text) {
    return object("type", "text", "text", text);
  }

  /** The content part of media; null where chat completions have none, as for a document by URL. */
  static Map<String, Object> mediaBlock(Media media) {
    boolean image = media.type().startsWith("image/");
    if (media.data() == null) {
      if (!MediaForms.isUrl(media.uri())) {
        return object("type", "file", "file", object("file_id", media.uri()));
      }
      return image ? object("type", "image_url", "image_url", object("url", media.uri())) : null;
    }
    String url = MediaForms.dataUrl(media.type(), media.data());
    if (image) {
      return object("type", "image_url", "image_url", object("url", url));
    }
    if (media.type().startsWith("audio/")) {
      String format = AUDIO_FORMATS.getOrDefault(media.type(), media.type().substring("audio/".length()));
      return object(
          "type",
          "input_audio",
          "input_audio",
          object("data", MediaForms.base64Text(media.data()), "format", format));
    }
    return object("type", "file", "file", object("file_data", url));
  }

  private static Object call(ToolCall call, Object form) {
    if ("custom".equals(form)) {
      return object(
          "id", call.id(), "type", "custom", "custom", object("name", call.name(), "input", call.arguments()));
    }
    Object value =
        "object".equals(form) || "other".equals(form) ? jsonValue(call.arguments()) : UNREADABLE;
    if ("other".equals(form) && value != UNREADABLE) {
      return value;
    }
    Object arguments = value == UNREADABLE ? call.arguments() : value;
    return object(
        "id", call.id(), "type", "function", "function", object("name", call.name(), "arguments", arguments));
  }
}

package dev.memoryd.converters;

import static dev.memoryd.converters.SourceForm.NATIVE;
import static dev.memoryd.converters.SourceForm.kept;
import static dev.memoryd.converters.SourceForm.object;
import static dev.memoryd.converters.SourceForm.text;

import dev.memoryd.Json;
import dev.memoryd.Message;
import dev.memoryd.Part;
import dev.memoryd.Part.Data;
import dev.memoryd.Part.Media;
import dev.memoryd.Part.Reasoning;
import dev.memoryd.Part.ResultPart;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.Role;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** From Anthropic's messages to ours. */
final class AnthropicReading {
  private static final Map<String, Role> ROLES = new LinkedHashMap<>();

  static {
    ROLES.put("user", Role.USER);
    ROLES.put("assistant", Role.ASSISTANT);
    ROLES.put("system", Role.SYSTEM);
  }

  private AnthropicReading() {}

  /** A part, and what the source form notes about it: text, an object, or null. */
  private record Noted<P extends Part>(P part, Object note) {}

  /** The SYSTEM message of a system prompt. IllegalArgumentException for what is none. */
  static Message system(Object system) {
    return read(OpenAiReading.source(object("role", "system", "content", system), "system"), "system", new LinkedHashMap<>());
  }

  /** Our messages of Anthropic's. IllegalArgumentException, naming the message, for what is none. */
  static List<Message> messages(Iterable<?> sources) {
    List<Message> messages = new ArrayList<>();
    boolean behindResults = false;
    for (Object given : sources) {
      String where = "messages[" + messages.size() + "]";
      Map<String, Object> source = OpenAiReading.source(given, where);
      boolean withResults = AnthropicWriting.answers(source);
      Map<String, Object> form = new LinkedHashMap<>();
      if ("system".equals(source.get("role"))) {
        form.put("inline", true);
      }
      if (behindResults && withResults) {
        form.put(AnthropicWriting.APART, true);
      }
      if (AnthropicWriting.isMixed(source)) {
        form.put(AnthropicWriting.MIXED, true);
      }
      messages.add(read(source, where, form));
      behindResults = withResults;
    }
    return messages;
  }

  private static Message read(Map<String, Object> source, String where, Map<String, Object> form) {
    Role role = source.get("role") instanceof String name ? ROLES.get(name) : null;
    if (role == null) {
      throw new IllegalArgumentException(
          where
              + " has the role "
              + OpenAiReading.shown(source.get("role"))
              + "; it can be one of "
              + String.join(", ", ROLES.keySet()));
    }
    Object content = source.get("content");
    if (!(content == null || content instanceof String || content instanceof List<?>)) {
      throw new IllegalArgumentException(
          where + " has content of type " + content.getClass().getSimpleName() + "; it can be text or an array");
    }
    List<Part> parts = new ArrayList<>();
    Map<String, Object> notes = new LinkedHashMap<>();
    for (Object block : blocks(content)) {
      Noted<? extends Part> read = part(block, role);
      if (read.note() != null) {
        notes.put(Integer.toString(parts.size()), read.note());
      }
      parts.add(read.part());
    }
    if (!notes.isEmpty()) {
      form.put("parts", notes);
    }
    String actual = OpenAiReading.contentForm(source);
    if (!actual.equals(AnthropicWriting.contentForm(parts)) || parts.isEmpty()) {
      form.put("content", actual);
    }
    Message message = Message.of(role, content == null ? null : parts);
    // What the parts and the form do not say of the source is in its difference from what would be written.
    Map<String, Object> patch = SourceForm.difference(source, AnthropicWriting.written(message, form));
    if (patch != null) {
      form.put("patch", patch);
    }
    List<Object> places = new ArrayList<>();
    for (int index = 0; index < parts.size(); index++) {
      if (parts.get(index) instanceof ToolResult) {
        places.add(index);
      }
    }
    if (!places.isEmpty() && !form.isEmpty()) {
      form.put("results", places);
    }
    return message.withExtra(SourceForm.write(form, AnthropicWriting.FORMAT));
  }

  private static List<?> blocks(Object content) {
    if (content instanceof String text) {
      return List.of(object("type", "text", "text", text));
    }
    return content instanceof List<?> list ? list : List.of();
  }

  private static Noted<? extends Part> part(Object given, Role role) {
    if (given instanceof Map<?, ?> block) {
      Object type = block.get("type");
      if ("thinking".equals(type) && text(block, "thinking") != null) {
        String signature = kept(block.get("signature"));
        return new Noted<>(
            new Reasoning(kept(block.get("thinking")), signature), signature.isEmpty() ? NATIVE : null);
      }
      if ("redacted_thinking".equals(type) && text(block, "data") != null) {
        return new Noted<>(new Reasoning("", kept(block.get("data"))), AnthropicWriting.REDACTED);
      }
      if ("tool_use".equals(type) && role == Role.ASSISTANT && text(block, "name") != null) {
        boolean hasInput = block.containsKey("input");
        String arguments = hasInput ? Json.write(block.get("input")) : "";
        boolean isObject = !hasInput || block.get("input") instanceof Map<?, ?>;
        return new Noted<>(
            new ToolCall(kept(block.get("id")), kept(block.get("name")), arguments),
            isObject ? null : AnthropicWriting.AS_IS);
      }
      Object content = block.get("content");
      if ("tool_result".equals(type)
          && role == Role.USER
          && (content == null || content instanceof String || content instanceof List<?>)) {
        return result(block);
      }
    }
    return resultPart(given);
  }

  private static Noted<ToolResult> result(Map<?, ?> block) {
    List<ResultPart> parts = new ArrayList<>();
    Map<String, Object> notes = new LinkedHashMap<>();
    for (Object inner : blocks(block.get("content"))) {
      Noted<ResultPart> read = resultPart(inner);
      if (read.note() != null) {
        notes.put(Integer.toString(parts.size()), read.note());
      }
      parts.add(read.part());
    }
    Map<String, Object> form = new LinkedHashMap<>();
    String actual = OpenAiReading.contentForm(block);
    boolean asByItself = actual.equals(AnthropicWriting.resultContentForm(parts));
    // Text alone is written as it is, empty or not.
    if (!notes.isEmpty() && !(asByItself && actual.equals("text"))) {
      form.put("parts", notes);
    }
    if (!asByItself) {
      form.put("content", actual);
    }
    ToolResult result =
        new ToolResult(kept(block.get("tool_use_id")), "", Boolean.TRUE.equals(block.get("is_error")), parts);
    return new Noted<>(result, form.isEmpty() ? null : form);
  }

  private static Noted<ResultPart> resultPart(Object block) {
    if (block instanceof Map<?, ?> map) {
      if ("text".equals(map.get("type")) && text(map, "text") != null) {
        Text text = new Text(kept(map.get("text")));
        return new Noted<>(text, text.text().isEmpty() ? NATIVE : null);
      }
      Media media = media(map);
      if (media != null) {
        return new Noted<>(media, null);
      }
    }
    // JSON is kept for what our Media would not give back as it was.
    return new Noted<>(new Data(Json.write(block)), NATIVE);
  }

  private static Media media(Map<?, ?> block) {
    Object kind = block.get("type");
    if (!("image".equals(kind) || "document".equals(kind)) || !(block.get("source") instanceof Map<?, ?> given)) {
      return null;
    }
    String byReference = "image".equals(kind) ? MediaForms.ANY_IMAGE : "";
    Object form = given.get("type");
    Media media = null;
    Map<String, Object> source = null;
    if ("base64".equals(form) && text(given, "media_type") != null && text(given, "data") != null) {
      media =
          MediaForms.inPlace(kept(given.get("media_type")), MediaForms.base64Bytes(text(given, "data")));
      source = object("type", "base64", "media_type", given.get("media_type"), "data", given.get("data"));
    } else if ("url".equals(form) && text(given, "url") != null) {
      media = Media.of(byReference, kept(given.get("url")));
      source = object("type", "url", "url", given.get("url"));
    } else if ("file".equals(form) && text(given, "file_id") != null) {
      media = Media.of(byReference, kept(given.get("file_id")));
      source = object("type", "file", "file_id", given.get("file_id"));
    }
    boolean comesBack =
        media != null
            && !"".equals(media.uri())
            && object("type", kind, "source", source).equals(AnthropicWriting.mediaBlock(media));
    return comesBack ? media : null;
  }
}

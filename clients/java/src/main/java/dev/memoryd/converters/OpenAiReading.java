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
import dev.memoryd.Part.Refusal;
import dev.memoryd.Part.ResultPart;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.Role;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** From OpenAI's chat-completions messages to ours. */
final class OpenAiReading {
  private static final Map<String, Role> ROLES = new LinkedHashMap<>();

  static {
    ROLES.put("system", Role.SYSTEM);
    ROLES.put("developer", Role.DEVELOPER);
    ROLES.put("user", Role.USER);
    ROLES.put("assistant", Role.ASSISTANT);
    ROLES.put("tool", Role.TOOL);
    ROLES.put("function", Role.TOOL);
  }

  private OpenAiReading() {}

  /** Our message of an OpenAI one. IllegalArgumentException, with {@code where}, for what is none. */
  static Message message(Object given, String where) {
    Map<String, Object> source = source(given, where);
    Role role = source.get("role") instanceof String name ? ROLES.get(name) : null;
    if (role == null) {
      throw new IllegalArgumentException(
          where + " has the role " + shown(source.get("role")) + "; it can be one of " + String.join(", ", ROLES.keySet()));
    }
    Object content = source.get("content");
    if (!(content == null || content instanceof String || content instanceof List<?>)) {
      throw new IllegalArgumentException(
          where
              + " has content of type "
              + content.getClass().getSimpleName()
              + "; it can be text, an array or null");
    }
    Map<String, Object> form = new LinkedHashMap<>();
    Message message;
    if (role == Role.TOOL) {
      message = Message.of(role, List.of(result(source, form)));
    } else {
      message = Message.of(role, spoken(source, role, form));
      if (source.get("name") instanceof String name) {
        message = message.withName(kept(name));
      }
    }
    // What the parts and the form do not say of the source is in its difference from what would be written.
    Map<String, Object> patch = SourceForm.difference(source, OpenAiWriting.written(message, form).get(0));
    if (patch != null) {
      form.put("patch", patch);
    }
    return message.withExtra(SourceForm.write(form, OpenAiWriting.FORMAT));
  }

  static Map<String, Object> source(Object given, String where) {
    if (!(given instanceof Map<?, ?>)) {
      throw new IllegalArgumentException(
          where + " is not an object; a message is like {\"role\": \"user\", \"content\": \"Hello!\"}");
    }
    try {
      return SourceForm.asObject(Json.plain(given), Map.of());
    } catch (IllegalArgumentException noJson) {
      throw new IllegalArgumentException(
          where + " holds what JSON cannot (" + noJson.getMessage() + "); give plain data", noJson);
    }
  }

  static String shown(Object value) {
    return value instanceof String text ? "'" + text + "'" : String.valueOf(value);
  }

  /** The parts of a message that is not a tool's: reasoning, content, refusal, calls. */
  private static List<Part> spoken(Map<String, Object> source, Role role, Map<String, Object> form) {
    Object content = source.get("content");
    List<Part> parts = new ArrayList<>();
    String refusal = null;
    List<ToolCall> calls = List.of();
    if (role == Role.ASSISTANT) {
      String reasoning = text(source, "reasoning_content");
      if (reasoning != null) {
        form.put("reasoning", true);
        parts.add(new Reasoning(kept(reasoning)));
      }
      refusal = text(source, "refusal");
      calls = calls(source, form);
    }
    List<ResultPart> said = said(content, form, parts.size(), role == Role.USER);
    if (role == Role.ASSISTANT
        && refusal == null
        && !said.isEmpty()
        && said.get(said.size() - 1) instanceof Refusal) {
      form.put("refusal", "part");
    }
    parts.addAll(said);
    if (refusal != null) {
      parts.add(new Refusal(kept(refusal)));
    }
    parts.addAll(calls);
    boolean present = !parts.isEmpty() || content instanceof List<?>;
    boolean alone = present && parts.size() == said.size();
    noteContentForm(source, OpenAiWriting.spokenContentForm(said, alone), form);
    return present ? parts : null;
  }

  private static List<ToolCall> calls(Map<String, Object> source, Map<String, Object> form) {
    List<ToolCall> calls = new ArrayList<>();
    Map<String, Object> forms = new LinkedHashMap<>();
    if (source.get("tool_calls") instanceof List<?> entries) {
      for (Object entry : entries) {
        String callForm = call(entry, calls);
        if (callForm != null) {
          forms.put(Integer.toString(calls.size() - 1), callForm);
        }
      }
    }
    if (!forms.isEmpty()) {
      form.put("calls", forms);
    }
    if (source.get("function_call") instanceof Map<?, ?> legacy
        && text(legacy, "name") != null
        && text(legacy, "arguments") != null) {
      form.put("function_call", true);
      calls.add(new ToolCall("", kept(legacy.get("name")), kept(legacy.get("arguments"))));
    }
    return calls;
  }

  /**
   * Adds a call, and gives its form: null for a function's, {@code object} where its arguments are not text, {@code custom}, or
   * {@code other}.
   */
  private static String call(Object entry, List<ToolCall> calls) {
    Map<String, Object> call = SourceForm.asObject(entry, Map.of());
    String id = kept(call.get("id"));
    if ("custom".equals(call.get("type")) && call.get("custom") instanceof Map<?, ?> custom) {
      String name = text(custom, "name");
      String input = text(custom, "input");
      if (name != null && input != null) {
        calls.add(new ToolCall(id, kept(name), kept(input)));
        return "custom";
      }
    }
    if (call.get("function") instanceof Map<?, ?> function && text(function, "name") != null) {
      String name = kept(function.get("name"));
      if (function.get("arguments") instanceof Map<?, ?> arguments) {
        calls.add(new ToolCall(id, name, Json.write(arguments)));
        return "object";
      }
      calls.add(new ToolCall(id, name, kept(function.get("arguments"))));
      return null;
    }
    String kind = text(call, "type");
    calls.add(new ToolCall(id, kind == null ? "unknown" : kept(kind), Json.write(entry)));
    return "other";
  }

  /** The result in a message of role tool or function. */
  private static ToolResult result(Map<String, Object> source, Map<String, Object> form) {
    if ("function".equals(source.get("role"))) {
      form.put("function", true);
    }
    List<ResultPart> parts = said(source.get("content"), form, 0, false);
    noteContentForm(source, OpenAiWriting.resultContentForm(parts), form);
    return new ToolResult(kept(source.get("tool_call_id")), kept(source.get("name")), false, parts);
  }

  private static void noteContentForm(Map<String, Object> source, String byItself, Map<String, Object> form) {
    String actual = contentForm(source);
    if (!actual.equals(byItself)) {
      form.put("content", actual);
    }
  }

  static String contentForm(Map<?, ?> source) {
    Object content = source.get("content");
    if (content instanceof String) {
      return "text";
    }
    if (content instanceof List<?>) {
      return "list";
    }
    return content == null && source.containsKey("content") ? "null" : "missing";
  }

  /** The parts of a message's content. The form notes those, counted from {@code first}, that only OpenAI says so. */
  private static List<ResultPart> said(Object content, Map<String, Object> form, int first, boolean byUser) {
    List<ResultPart> parts = new ArrayList<>();
    if (content instanceof String text) {
      parts.add(new Text(kept(text)));
    }
    Map<String, Object> natives = new LinkedHashMap<>();
    if (content instanceof List<?> blocks) {
      for (Object block : blocks) {
        ResultPart part = part(block);
        if (part instanceof Data || (part instanceof Media && !byUser)) {
          natives.put(Integer.toString(first + parts.size()), NATIVE);
        }
        parts.add(part);
      }
    }
    if (!natives.isEmpty()) {
      form.put("parts", natives);
    }
    return parts;
  }

  private static ResultPart part(Object block) {
    if (block instanceof Map<?, ?> map) {
      if ("text".equals(map.get("type")) && text(map, "text") != null) {
        return new Text(kept(map.get("text")));
      }
      if ("refusal".equals(map.get("type")) && text(map, "refusal") != null) {
        return new Refusal(kept(map.get("refusal")));
      }
      Media media = media(map);
      if (media != null) {
        return media;
      }
    }
    // JSON is kept for what our Media would not give back as it was.
    return new Data(Json.write(block));
  }

  private static Media media(Map<?, ?> block) {
    Object type = block.get("type");
    Media media = null;
    Map<String, Object> core = null;
    if ("image_url".equals(type) && block.get("image_url") instanceof Map<?, ?> image && text(image, "url") != null) {
      String url = text(image, "url");
      media = MediaForms.dataUrlMedia(url);
      if (media == null) {
        media = Media.of(MediaForms.ANY_IMAGE, kept(url));
      }
      core = object("type", "image_url", "image_url", object("url", url));
    } else if ("input_audio".equals(type)
        && block.get("input_audio") instanceof Map<?, ?> audio
        && text(audio, "data") != null
        && text(audio, "format") != null) {
      String data = text(audio, "data");
      String format = text(audio, "format");
      String audioType = OpenAiWriting.AUDIO_TYPES.getOrDefault(format, "audio/" + format);
      media = MediaForms.inPlace(audioType, MediaForms.base64Bytes(data));
      core = object("type", "input_audio", "input_audio", object("data", data, "format", format));
    } else if ("file".equals(type) && block.get("file") instanceof Map<?, ?> file) {
      String data = text(file, "file_data");
      String id = text(file, "file_id");
      if (data != null) {
        media = MediaForms.dataUrlMedia(data);
        core = object("type", "file", "file", object("file_data", data));
      } else if (id != null) {
        media = Media.of("", kept(id));
        core = object("type", "file", "file", object("file_id", id));
      }
    }
    return media != null && !"".equals(media.uri()) && core.equals(OpenAiWriting.mediaBlock(media)) ? media : null;
  }
}

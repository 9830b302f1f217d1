package dev.memoryd;

import com.google.protobuf.ByteString;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;

/** What a message may hold. Calls and results are parts, so that the order of thinking, text and calls survives. */
public sealed interface Part {

  /** What a tool result may hold. */
  sealed interface ResultPart extends Part permits Text, Refusal, Media, Data {}

  /**
   * Plain text.
   *
   * @param text may hold any character, U+0000 included
   */
  record Text(String text) implements ResultPart {
    /** Makes it. */
    public Text {
      Objects.requireNonNull(text, "text");
    }
  }

  /**
   * The model's thinking.
   *
   * @param text the thinking as text; empty when the provider shows only a signature
   * @param signature the provider's opaque proof of the thinking, or its encrypted form; not counted in tokens
   */
  record Reasoning(String text, String signature) implements Part {
    /** Makes it. */
    public Reasoning {
      Objects.requireNonNull(text, "text");
      Objects.requireNonNull(signature, "signature");
    }

    /** Thinking without a signature. */
    public Reasoning(String text) {
      this(text, "");
    }
  }

  /**
   * The model's refusal to answer.
   *
   * @param text as the model said it
   */
  record Refusal(String text) implements ResultPart {
    /** Makes it. */
    public Refusal {
      Objects.requireNonNull(text, "text");
    }
  }

  /**
   * An image, a sound, a file: by reference or in place, never both.
   *
   * @param type the IANA media type, for example {@code image/png}; empty when it is not known
   * @param uri a reference that the server never follows, a URL or a provider's file id; null where there are bytes
   * @param data the bytes themselves, which count towards the message's 2 MiB; null where there is a reference
   * @param size the size in bytes as the caller knows it; 0 when unknown
   */
  record Media(String type, String uri, ByteString data, long size) implements ResultPart {
    /** Makes it. */
    public Media {
      Objects.requireNonNull(type, "type");
      if ((uri == null) == (data == null)) {
        throw new IllegalArgumentException("a Media part needs exactly one of uri and data");
      }
    }

    /** Media by reference. */
    public static Media of(String type, String uri) {
      return new Media(type, Objects.requireNonNull(uri, "uri"), null, 0);
    }

    /** Media in place. */
    public static Media of(String type, byte[] data) {
      return new Media(type, null, ByteString.copyFrom(data), 0);
    }
  }

  /**
   * Structured data.
   *
   * @param json JSON text, kept byte for byte
   */
  record Data(String json) implements ResultPart {
    /** Makes it. */
    public Data {
      Objects.requireNonNull(json, "json");
    }
  }

  /**
   * A call of a tool by the model. Only in messages of role ASSISTANT.
   *
   * @param id the id that the call's result names; may be empty, as some providers send it
   * @param name the tool's name
   * @param arguments as the model wrote them: JSON text as a rule, but invalid JSON is kept too
   */
  record ToolCall(String id, String name, String arguments) implements Part {
    /** Makes it. */
    public ToolCall {
      Objects.requireNonNull(id, "id");
      Objects.requireNonNull(name, "name");
      Objects.requireNonNull(arguments, "arguments");
    }

    /**
     * A call with an id of its own.
     *
     * @param arguments text, which stays; or a map, which becomes JSON text
     */
    public static ToolCall of(String name, Object arguments) {
      return new ToolCall("call_" + Ids.newId(), name, Json.text(arguments));
    }
  }

  /**
   * The answer to a tool call. In messages of role TOOL or USER.
   *
   * @param callId the id of the call that this answers: the newest unanswered call with this id
   * @param name the tool's name, where the provider repeats it; else empty
   * @param isError whether the tool failed
   * @param parts what the tool said
   */
  record ToolResult(String callId, String name, boolean isError, List<ResultPart> parts) implements Part {
    /** Makes it. */
    public ToolResult {
      Objects.requireNonNull(callId, "callId");
      Objects.requireNonNull(name, "name");
      parts = List.copyOf(parts);
    }

    /** A result of text. */
    public static ToolResult of(String callId, String text) {
      return new ToolResult(callId, "", false, List.of(new Text(text)));
    }

    /** The texts of the result, one after another. */
    public String text() {
      return parts.stream()
          .filter(Text.class::isInstance)
          .map(part -> ((Text) part).text())
          .collect(Collectors.joining());
    }
  }
}

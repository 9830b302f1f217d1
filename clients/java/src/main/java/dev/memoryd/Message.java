package dev.memoryd;

import dev.memoryd.Part.ResultPart;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * One immutable entry of a history.
 *
 * <p>A message gets its id when it is made, so appending the same object again, after a lost answer for instance, stores it
 * once. To say the same thing twice, make two messages. Two messages are equal when they say the same: the id and what the
 * server adds (seq, time, token count, redaction) are not compared.
 *
 * <pre>{@code
 * ToolCall weather = ToolCall.of("get_weather", Map.of("city", "Oslo"));
 * session.append(
 *     Message.system("You are a helpful assistant."),
 *     Message.user("How is the weather in Oslo?"),
 *     Message.assistant(weather),
 *     Message.tool(weather.id(), "4 degrees, light rain"));
 * }</pre>
 *
 * @param role who speaks
 * @param content the parts in order; null (a provider's null content) and empty differ, and both come back as sent
 * @param name the speaker's name; null and empty differ; at most 256 bytes
 * @param runId the run that made the message; empty outside of runs
 * @param metadata JSON text of your own data about the message, kept byte for byte and never read by the server; at most 64
 *     KiB
 * @param extra JSON text of what a provider's format holds beyond these fields; the converters write and read it
 * @param id unique in the session: 1 to 256 bytes of UTF-8 without U+0000
 * @param seq the message's place in its session, from 1; given by the server, 0 on a message that is not stored
 * @param createTime when the server stored the message; null on one that is not stored
 * @param tokenCount the message's price in tokens of the session's tokenizer, given by the server
 * @param redaction set when the message's content was taken away on request; else null
 */
public record Message(
    Role role,
    List<Part> content,
    String name,
    String runId,
    String metadata,
    String extra,
    String id,
    long seq,
    Instant createTime,
    long tokenCount,
    Redaction redaction) {

  /** Makes it. */
  public Message {
    Objects.requireNonNull(role, "role");
    content = copied(content);
    Objects.requireNonNull(runId, "runId");
    Objects.requireNonNull(metadata, "metadata");
    Objects.requireNonNull(extra, "extra");
    Objects.requireNonNull(id, "id");
  }

  /** A message that is not stored yet, with an id of its own; {@code content} may be null. */
  public static Message of(Role role, List<? extends Part> content) {
    return new Message(role, copied(content), null, "", "", "", Ids.newId(), 0, null, 0, null);
  }

  /** A message of role SYSTEM. */
  public static Message system(String text) {
    return of(Role.SYSTEM, texts(text));
  }

  /** A message of role SYSTEM, of parts. */
  public static Message system(Part... parts) {
    return of(Role.SYSTEM, list(parts));
  }

  /** A message of role DEVELOPER. */
  public static Message developer(String text) {
    return of(Role.DEVELOPER, texts(text));
  }

  /** A message of role DEVELOPER, of parts. */
  public static Message developer(Part... parts) {
    return of(Role.DEVELOPER, list(parts));
  }

  /** A message of role USER. */
  public static Message user(String text) {
    return of(Role.USER, texts(text));
  }

  /** A message of role USER, of parts: text and media, say. */
  public static Message user(Part... parts) {
    return of(Role.USER, list(parts));
  }

  /** A message of role ASSISTANT that says a text and then makes calls, if there are any. */
  public static Message assistant(String text, ToolCall... calls) {
    List<Part> parts = new ArrayList<>(texts(text));
    parts.addAll(Arrays.asList(Objects.requireNonNull(calls, "calls")));
    return of(Role.ASSISTANT, parts);
  }

  /** A message of role ASSISTANT, of parts in the order in which the model gave them: thinking, text, calls. */
  public static Message assistant(Part... parts) {
    return of(Role.ASSISTANT, list(parts));
  }

  /** A message of role TOOL that answers the call with the id {@code callId}. */
  public static Message tool(String callId, String text) {
    return of(Role.TOOL, List.of(ToolResult.of(callId, text)));
  }

  /** A message of role TOOL that answers the call with the id {@code callId}, by parts. */
  public static Message tool(String callId, ResultPart... parts) {
    return of(Role.TOOL, List.of(new ToolResult(callId, "", false, List.of(parts))));
  }

  /** A message of role TOOL that says that the tool failed. */
  public static Message toolError(String callId, String text) {
    return of(Role.TOOL, List.of(new ToolResult(callId, "", true, List.of(new Text(text)))));
  }

  private static List<Part> list(Part... parts) {
    return Arrays.asList(Objects.requireNonNull(parts, "parts"));
  }

  private static List<Part> copied(List<? extends Part> content) {
    if (content == null) {
      return null;
    }
    content.forEach(part -> Objects.requireNonNull(part, "part"));
    return List.copyOf(content);
  }

  private static List<Part> texts(String text) {
    return List.of(new Text(text));
  }

  /** The message with another id, of an import for instance: the same id is stored once. */
  public Message withId(String id) {
    return new Message(
        role, content, name, runId, metadata, extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The message with other content; null for none. */
  public Message withContent(List<? extends Part> content) {
    return new Message(
        role, copied(content), name, runId, metadata, extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The message with the speaker's name; null for none. */
  public Message withName(String name) {
    return new Message(
        role, content, name, runId, metadata, extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The message as one of a run. */
  public Message withRunId(String runId) {
    return new Message(
        role, content, name, runId, metadata, extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The message with your own data about it: text, which stays, or a map, which becomes JSON text. */
  public Message withMetadata(Object metadata) {
    return new Message(
        role, content, name, runId, Json.text(metadata), extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The message with what a provider's format holds beyond its fields, as JSON text. */
  public Message withExtra(String extra) {
    return new Message(
        role, content, name, runId, metadata, extra, id, seq, createTime, tokenCount, redaction);
  }

  /** The parts in order; none where the content is null. */
  public List<Part> parts() {
    return content == null ? List.of() : content;
  }

  /** The texts of the message, one after another; those inside of tool results are left out. */
  public String text() {
    return parts().stream()
        .filter(Text.class::isInstance)
        .map(part -> ((Text) part).text())
        .collect(Collectors.joining());
  }

  /** The calls of the message, in order. */
  public List<ToolCall> toolCalls() {
    return parts().stream().filter(ToolCall.class::isInstance).map(ToolCall.class::cast).toList();
  }

  /** The results of the message, in order. */
  public List<ToolResult> toolResults() {
    return parts().stream().filter(ToolResult.class::isInstance).map(ToolResult.class::cast).toList();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Message that
        && role == that.role
        && Objects.equals(content, that.content)
        && Objects.equals(name, that.name)
        && runId.equals(that.runId)
        && metadata.equals(that.metadata)
        && extra.equals(that.extra);
  }

  @Override
  public int hashCode() {
    return Objects.hash(role, content, name, runId, metadata, extra);
  }
}

package dev.memoryd.converters;

import static dev.memoryd.converters.SourceForm.object;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.memoryd.Json;
import dev.memoryd.Message;
import dev.memoryd.Part;
import dev.memoryd.Part.Media;
import dev.memoryd.Part.Reasoning;
import dev.memoryd.Part.Refusal;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import dev.memoryd.Protos;
import dev.memoryd.Role;
import dev.memoryd.Window;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class ConvertersTest {
  private static final Map<String, Object> SHAPES = shapes();

  private static Map<String, Object> shapes() {
    try (InputStream file = ConvertersTest.class.getResourceAsStream("/shapes.json")) {
      return SourceForm.asObject(Json.read(new String(file.readAllBytes(), StandardCharsets.UTF_8)), Map.of());
    } catch (Exception failed) {
      throw new IllegalStateException(failed);
    }
  }

  private static Map<String, Object> of(String provider, String what) {
    return SourceForm.noted(SourceForm.noted(SHAPES, provider), what);
  }

  /** The messages as they come back from a server: over the wire. */
  private static List<Message> stored(List<Message> messages) {
    return messages.stream().map(message -> Protos.fromProto(Protos.toProto(message))).toList();
  }

  private static Window window(List<Message> messages) {
    return new Window(messages, null);
  }

  @TestFactory
  Stream<DynamicTest> everyShapeOfOpenAiComesBackEqual() {
    return of("openai", "shapes").entrySet().stream()
        .map(
            shape ->
                DynamicTest.dynamicTest(
                    shape.getKey(),
                    () -> {
                      List<Object> source = List.of(shape.getValue());
                      assertEquals(source, OpenAi.toOpenAi(stored(OpenAi.fromOpenAi(source))));
                    }));
  }

  @TestFactory
  Stream<DynamicTest> everyShapeOfAnthropicComesBackEqual() {
    return of("anthropic", "shapes").entrySet().stream()
        .map(
            shape ->
                DynamicTest.dynamicTest(
                    shape.getKey(),
                    () -> {
                      List<Object> source = List.of(shape.getValue());
                      Anthropic.Prompt back = Anthropic.toAnthropic(stored(Anthropic.fromAnthropic(source)));
                      assertEquals(source, back.messages());
                      assertNull(back.system());
                    }));
  }

  @TestFactory
  Stream<DynamicTest> everySystemPromptComesBackEqual() {
    return of("anthropic", "systems").entrySet().stream()
        .map(
            prompt ->
                DynamicTest.dynamicTest(
                    prompt.getKey(),
                    () -> {
                      List<Object> hello = List.of(object("role", "user", "content", "Hello!"));
                      Anthropic.Prompt back =
                          Anthropic.toAnthropic(stored(Anthropic.fromAnthropic(hello, prompt.getValue())));
                      assertEquals(prompt.getValue(), back.system());
                      assertEquals(hello, back.messages());
                    }));
  }

  @Test
  void allShapesTogetherComeBackInOrder() {
    List<Object> openAi = new ArrayList<>(of("openai", "shapes").values());
    assertEquals(openAi, OpenAi.toOpenAi(stored(OpenAi.fromOpenAi(openAi))));
    List<Object> anthropic = new ArrayList<>(of("anthropic", "shapes").values());
    Anthropic.Prompt back = Anthropic.toAnthropic(stored(Anthropic.fromAnthropic(anthropic, "Be brief.")));
    assertEquals(anthropic, back.messages());
    assertEquals("Be brief.", back.system());
  }

  @Test
  void plainConversationsNeedHardlyAnyExtra() {
    List<?> openAi = (List<?>) SourceForm.noted(SHAPES, "openai").get("conversation");
    List<Message> messages = stored(OpenAi.fromOpenAi(openAi));
    assertEquals(openAi, OpenAi.toOpenAi(messages));
    assertTrue(messages.stream().allMatch(message -> message.extra().isEmpty()));

    Map<String, Object> anthropic = of("anthropic", "conversation");
    List<Message> read =
        stored(Anthropic.fromAnthropic((List<?>) anthropic.get("messages"), anthropic.get("system")));
    Anthropic.Prompt back = Anthropic.toAnthropic(read);
    assertEquals(anthropic.get("messages"), back.messages());
    assertEquals(
        List.of("", "", "", "{\"anthropic\":{\"parts\":{\"1\":{\"content\":\"list\"}},\"results\":[0,1]}}", ""),
        read.stream().map(Message::extra).toList());
  }

  @Test
  void smallIntegersOfAnyKindAreTheSame() {
    Map<String, Object> source = Map.of("role", "user", "content", "a", "weight", 7, "share", 0.5);
    Map<String, Object> back = OpenAi.toOpenAi(stored(OpenAi.fromOpenAi(List.of(source)))).get(0);
    assertEquals(Json.plain(source), back);
  }

  @Test
  void whatIsReadIntoWhichFields() {
    Map<String, Object> call =
        object("id", "c", "type", "function", "function", object("name", "f", "arguments", "{"));
    List<Message> read =
        OpenAi.fromOpenAi(
            List.of(
                object("role", "system", "content", "Be brief.", "name", "boss"),
                object(
                    "role", "assistant", "content", "Hm.", "refusal", "No.", "reasoning_content", "2+2",
                    "tool_calls", List.of(call)),
                object("role", "tool", "content", "12 C", "tool_call_id", "c", "name", "f")));
    assertEquals(Message.system("Be brief.").withName("boss"), read.get(0));
    assertEquals(
        Message.assistant(new Reasoning("2+2"), new Text("Hm."), new Refusal("No."), new ToolCall("c", "f", "{"))
            .withExtra("{\"openai\":{\"reasoning\":true}}"),
        read.get(1));
    assertEquals(
        Message.of(Role.TOOL, List.of(new ToolResult("c", "f", false, List.of(new Text("12 C"))))), read.get(2));
  }

  @Test
  void nothingStandsBetweenACallAndItsResults() {
    Message calls = Message.assistant(new ToolCall("a", "f", "{}"), new ToolCall("b", "f", "{}"));
    Message first = Message.user(new Text("One is done."), ToolResult.of("a", "1"));
    List<Map<String, Object>> said =
        OpenAi.toOpenAi(List.of(calls, first, Message.tool("b", "2"), Message.assistant("Done.")));
    assertEquals(
        List.of("assistant", "tool", "tool", "user", "assistant"),
        said.stream().map(source -> source.get("role")).toList());
    assertEquals("One is done.", said.get(3).get("content"));
  }

  @Test
  void aWindowHasTheResultsOfATurnInOneMessage() {
    List<Object> conversation =
        List.of(
            object("role", "assistant", "content", List.of(use("a"), use("b"))),
            object("role", "user", "content", List.of(block("One."), result("a", "1"))),
            object("role", "user", "content", List.of(result("b", "2"))));
    List<Message> messages = stored(Anthropic.fromAnthropic(conversation));
    assertEquals(conversation, Anthropic.toAnthropic(messages).messages());
    List<Object> valid =
        List.of(
            conversation.get(0),
            object("role", "user", "content", List.of(result("a", "1"), result("b", "2"), block("One."))));
    assertEquals(valid, Anthropic.toAnthropic(window(messages)).messages());
  }

  @Test
  void resultsThatAWindowLeftOutTakeTheirNotesAlong() {
    Map<String, Object> cached = object("cache_control", object("type", "ephemeral"));
    Map<String, Object> text = block("Go on.");
    text.putAll(cached);
    Map<String, Object> first = result("a", "1");
    first.putAll(cached);
    Map<String, Object> source =
        object("role", "user", "content", List.of(first, text, result("b", "2"), object("type", "hologram")));
    Message message = Anthropic.fromAnthropic(List.of(source)).get(0);
    List<Part> parts = message.parts();
    Message shown = message.withContent(List.of(parts.get(1), parts.get(2), parts.get(3)));
    assertEquals(
        List.of(object("role", "user", "content", List.of(text, result("b", "2"), object("type", "hologram")))),
        Anthropic.toAnthropic(List.of(shown)).messages().stream()
            .map(one -> object("role", "user", "content", moved((List<?>) one.get("content"))))
            .toList());
  }

  /** Results come first in what is sent; here they stand where they were read. */
  private static List<Object> moved(List<?> blocks) {
    return blocks.get(0) instanceof Map<?, ?> map && "tool_result".equals(map.get("type"))
        ? List.of(blocks.get(1), blocks.get(0), blocks.get(2))
        : new ArrayList<>(blocks);
  }

  @Test
  void aConversationGoesOnWithTheOtherProvider() {
    ToolCall call = new ToolCall("c", "weather", "{\"city\":\"Oslo\"}");
    List<Message> messages =
        List.of(
            Message.system("Be brief."),
            Message.developer("Be kind."),
            Message.user(new Text("Look."), Media.of("audio/wav", new byte[4])),
            Message.assistant(new Reasoning("unsigned"), call, new ToolCall("d", "rain", "{\"a")),
            Message.tool("c", "12 C"),
            Message.toolError("d", "no"),
            Message.system("Be brief again."));
    Anthropic.Prompt prompt = Anthropic.toAnthropic(messages);
    assertEquals(List.of(block("Be brief."), block("Be kind.")), prompt.system());
    assertEquals(
        List.of(
            object("role", "user", "content", List.of(block("Look."), block("[audio/wav, 4 bytes]"))),
            object(
                "role",
                "assistant",
                "content",
                List.of(
                    object("type", "tool_use", "id", "c", "name", "weather", "input", object("city", "Oslo")),
                    object("type", "tool_use", "id", "d", "name", "rain", "input", object("arguments", "{\"a")))),
            object(
                "role",
                "user",
                "content",
                List.of(
                    result("c", "12 C"),
                    object("type", "tool_result", "tool_use_id", "d", "content", "no", "is_error", true))),
            object("role", "user", "content", "Be brief again.")),
        prompt.messages());
  }

  @Test
  void anExtraThatSaysNothingIsPassedOver() {
    for (String extra :
        List.of(
            "{",
            "[]",
            "null",
            "{\"openai\":7,\"anthropic\":7}",
            "{\"openai\":{\"parts\":[1],\"calls\":3,\"content\":[],\"patch\":{\"in\":5,\"set\":6}}}",
            "{\"openai\":{\"patch\":{\"in\":{\"tool_calls\":8},\"del\":9}}}",
            "{\"anthropic\":{\"parts\":3,\"results\":[7],\"patch\":{\"in\":5,\"set\":6}}}")) {
      Message message = Message.assistant("Hello!", new ToolCall("a", "f", "{}")).withExtra(extra);
      assertTrue(OpenAi.toOpenAi(List.of(message)).get(0).containsKey("tool_calls"), extra);
      assertFalse(Anthropic.toAnthropic(List.of(message)).messages().isEmpty(), extra);
    }
  }

  @Test
  void whatIsNoMessageIsNamed() {
    Map<String, Object> fine = object("role", "user", "content", "a");
    for (Object source :
        new Object[] {
          "text",
          object("content", "a"),
          object("role", "critic", "content", "a"),
          object("role", "user", "content", 7),
          object("role", "user", "content", List.of(object("type", "x", "data", new byte[1])))
        }) {
      List<Object> sources = new ArrayList<>(List.of(fine, source));
      for (Runnable reading :
          List.<Runnable>of(() -> OpenAi.fromOpenAi(sources), () -> Anthropic.fromAnthropic(sources))) {
        IllegalArgumentException error = assertThrows(IllegalArgumentException.class, reading::run);
        assertTrue(error.getMessage().contains("messages[1]"), error.getMessage());
      }
    }
  }

  private static Map<String, Object> block(String text) {
    return object("type", "text", "text", text);
  }

  private static Map<String, Object> use(String id) {
    return object("type", "tool_use", "id", id, "name", "f", "input", Map.of());
  }

  private static Map<String, Object> result(String id, String content) {
    return object("type", "tool_result", "tool_use_id", id, "content", content);
  }
}

package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.memoryd.Part.Data;
import dev.memoryd.Part.Media;
import dev.memoryd.Part.Reasoning;
import dev.memoryd.Part.Refusal;
import dev.memoryd.Part.Text;
import dev.memoryd.Part.ToolCall;
import dev.memoryd.Part.ToolResult;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class SessionTest {
  private static MemoryClient memory;

  @BeforeAll
  static void connect() {
    memory = TestServer.shared().client();
  }

  @AfterAll
  static void close() {
    memory.close();
  }

  private static Session session() {
    return memory.session("java-" + Ids.newId());
  }

  @Test
  void aConversationComesBackAsAWindow() {
    Session session = session();
    ToolCall weather = ToolCall.of("get_weather", Map.of("city", "Oslo"));
    List<Message> said =
        List.of(
            Message.system("You are a travel agent."),
            Message.user("How is the weather in Oslo?"),
            Message.assistant(weather),
            Message.tool(weather.id(), "4 degrees, light rain"),
            Message.assistant("It is 4 degrees in Oslo."));
    List<AppendedMessage> appended = session.append(said, AppendOptions.DEFAULT);
    assertEquals(List.of(1L, 2L, 3L, 4L, 5L), appended.stream().map(AppendedMessage::seq).toList());
    assertEquals(said.stream().map(Message::id).toList(), appended.stream().map(AppendedMessage::id).toList());

    Window window = session.window(WindowRequest.tokens(4_000));
    assertEquals(said, window.messages());
    assertEquals(WindowMode.TOKENS, window.stats().mode());
    assertEquals(5, window.stats().windowMessageCount());
    assertEquals(1, window.stats().pinnedMessageCount());
    assertEquals(5, window.stats().lastSeq());
    assertEquals(2, session.window(WindowRequest.messages(2)).messages().size());
  }

  @Test
  void everyPartComesBackByteForByte() {
    Session session = session();
    String odd = "a\u0000b 🙂 日本語\r\n";
    ToolCall call = new ToolCall("", "f", "{\"n\": 9007199254740993, \"half\": \"\\ud83d\", broken");
    List<Message> said =
        List.of(
            Message.user(
                    new Text(odd),
                    new Media("image/png", null, com.google.protobuf.ByteString.copyFrom(new byte[] {0, -1}), 2),
                    Media.of("image/*", "https://example.com/a.png"),
                    new Data("{\"a\": 1, \"a\": 2}"))
                .withName("")
                .withMetadata(Map.of("n", 1L << 60))
                .withExtra("{\"x\":1}"),
            Message.assistant(new Reasoning("hm", "c2ln"), new Text("x".repeat(1 << 20)), call),
            Message.of(
                Role.TOOL, List.of(new ToolResult("", "f", true, List.of(new Refusal("no"), new Text(""))))),
            Message.of(Role.USER, null),
            Message.user(new Part[0]));
    session.append(said, AppendOptions.DEFAULT);
    List<Message> back = session.messages().stream().toList();
    assertEquals(said, back);
    assertNull(back.get(3).content());
    assertEquals(List.of(), back.get(4).content());
    assertEquals(said.get(0), session.message(1));
    assertEquals(said.get(1), session.message(said.get(1).id()));
  }

  @Test
  void aTextThatUtf8CannotEncodeIsRefusedBeforeAnyCall() {
    IllegalArgumentException error =
        assertThrows(IllegalArgumentException.class, () -> session().append(Message.user("a \ud83d")));
    assertTrue(error.getMessage().contains("half of a surrogate pair"), error.getMessage());
  }

  @Test
  void aRepeatedAppendIsStoredOnce() {
    Session session = session();
    Message yes = Message.user("yes");
    List<AppendedMessage> first = session.append(yes);
    assertEquals(first, session.append(yes));
    session.append(Message.user("yes"));
    assertEquals(2, session.info().messageCount());
    assertThrows(
        MemorydException.MessageIdConflict.class, () -> session.append(Message.user("no").withId(yes.id())));
  }

  @Test
  void anAppendCanExpectTheLastSeq() {
    Session session = session();
    session.append(List.of(Message.user("one")), AppendOptions.DEFAULT.withExpectedLastSeq(0));
    MemorydException.LastSeqMismatch error =
        assertThrows(
            MemorydException.LastSeqMismatch.class,
            () -> session.append(List.of(Message.user("two")), AppendOptions.DEFAULT.withExpectedLastSeq(0)));
    assertEquals(1, error.actual());
    assertEquals("LAST_SEQ_MISMATCH", error.reason());
    assertFalse(error.correlationId().isEmpty());
    assertTrue(error.getMessage().contains(error.correlationId()));
  }

  @Test
  void manyMessagesAreAppendedInBatchesAndListedInPages() {
    Session session = session();
    List<Message> many = IntStream.range(0, 600).mapToObj(number -> Message.user("number " + number)).toList();
    assertEquals(600, session.appendAll(many).size());
    List<String> texts =
        session.messages(MessageQuery.ALL).withPageSize(250).stream().map(Message::text).toList();
    assertEquals(many.stream().map(Message::text).toList(), texts);
    List<Long> newest =
        session.messages(MessageQuery.ALL.newestFirst()).withPageSize(2).stream().limit(3).map(Message::seq).toList();
    assertEquals(List.of(600L, 599L, 598L), newest);
    assertEquals(
        List.of(7L, 8L),
        session.messages(MessageQuery.ALL.withSeqs(7, 8).withRoles(Role.USER)).stream().map(Message::seq).toList());
  }

  @Test
  void aWindowOfAnySizeArrives() {
    Session session = session();
    for (int number = 0; number < 5; number++) {
      session.append(Message.user(number + "x".repeat(1 << 20)));
    }
    Window window = session.window(WindowRequest.messages(100));
    assertEquals(5, window.messages().size());
    assertEquals(5, window.stats().windowMessageCount());
  }

  @Test
  void settingsAreKeptAndChanged() {
    Session session = session();
    Policy policy =
        Policy.of(WindowOptions.messages(6).withOpenCalls(OpenCalls.SYNTHESIZE))
            .withSummary(SummaryPolicy.DEFAULT.withKeep(3));
    SessionSettings settings =
        SessionSettings.DEFAULT
            .withUserId("mia")
            .withLabels(Map.of("channel", "web"))
            .withTokenizer(Tokenizer.ESTIMATE)
            .withPolicy(policy)
            .withTtl(Duration.ofDays(1));
    session.append(List.of(Message.user("Hello!")), AppendOptions.DEFAULT.withCreate(settings));
    SessionInfo info = session.info();
    assertEquals("mia", info.userId());
    assertEquals(Map.of("channel", "web"), info.labels());
    assertEquals(Tokenizer.ESTIMATE, info.tokenizer());
    assertEquals(policy.window(), info.policy().window());
    // What has one default everywhere is stored with it.
    assertEquals(
        policy.summary().withEnabled(true).withRetention(Retention.KEEP).withWaits(true), info.policy().summary());
    assertEquals(Duration.ofDays(1), info.ttl());

    SessionInfo changed =
        session.update(
            SessionUpdate.NOTHING.withTtl(SessionUpdate.FOREVER).withUserId("").withEtag(info.etag()));
    assertNull(changed.ttl());
    assertEquals("", changed.userId());
    MemorydException.EtagMismatch stale =
        assertThrows(
            MemorydException.EtagMismatch.class,
            () -> session.update(SessionUpdate.NOTHING.withUserId("noor").withEtag(info.etag())));
    assertEquals(changed.etag(), stale.etag());
    assertThrows(IllegalArgumentException.class, () -> session.update(SessionUpdate.NOTHING));
  }

  @Test
  void sessionsAndAgentsAreListedClearedAndErased() {
    String agent = "java-" + Ids.newId();
    String user = "user-" + Ids.newId();
    AppendOptions owned = AppendOptions.DEFAULT.withCreate(SessionSettings.DEFAULT.withUserId(user));
    for (String id : List.of("a", "b")) {
      memory.session(agent, id).append(List.of(Message.user("Hello!")), owned);
    }
    assertEquals(
        2, memory.sessions(agent, user).stream().map(SessionInfo::sessionId).distinct().count());
    assertEquals(
        List.of("a", "b"),
        memory.sessions(agent, user).withPageSize(1).stream().map(SessionInfo::sessionId).sorted().toList());
    assertThrows(MemorydException.FieldInvalid.class, () -> memory.sessions().withPageSize(-1).iterator().hasNext());
    assertTrue(memory.agents().stream().anyMatch(info -> info.agent().equals(agent)));
    assertEquals(new ClearedAgent(2, 2), memory.clearAgent(agent));
    assertEquals(2, memory.eraseUser(user).sessionCount());
    assertThrows(MemorydException.SessionNotFound.class, () -> memory.session(agent, "a").info());
    MemorydException.FieldRequired empty =
        assertThrows(MemorydException.FieldRequired.class, () -> memory.eraseUser(""));
    assertEquals("user_id", empty.field());
  }

  @Test
  void anAgentHasSettings() {
    Agent agent = memory.agent("java-" + Ids.newId());
    assertNull(agent.info().updateTime());
    Policy policy = Policy.of(WindowOptions.tokens(8_000));
    AgentInfo updated =
        agent.update(
            AgentUpdate.NOTHING.withPolicy(policy).withLoadMemory(true).withRunRetention(Duration.ofDays(7)));
    assertEquals(policy, updated.policy());
    assertTrue(updated.loadMemory());
    assertEquals(Duration.ofDays(7), updated.runRetention());
    assertNull(agent.update(AgentUpdate.NOTHING.withRunRetention(AgentUpdate.SERVERS_DEFAULT)).runRetention());
  }

  @Test
  void historyIsForkedRewoundRedactedAndCleared() {
    Session session = session();
    session.append(Message.user("My card is 4012."), Message.assistant("Thank you."), Message.user("Book it."));
    Session fork = session.fork(2);
    assertNotEquals(session.id(), fork.id());
    assertEquals(2, fork.info().messageCount());
    assertEquals(new RewoundSession(1, 0), session.rewind(2));
    Message redacted = session.redact(1, "a card number");
    assertEquals("[REDACTED]", redacted.text());
    assertEquals("a card number", redacted.redaction().reason());
    assertEquals(4, session.append(Message.user("Again."))
        .get(0)
        .seq());
    assertEquals(3, session.clear());
    assertEquals(0, session.clear("again"));
    assertThrows(MemorydException.MessageNotFound.class, () -> session.message(1));
    assertThrows(
        MemorydException.SessionExists.class, () -> session.fork(fork, null, null));
  }

  @Test
  void historiesAreSummarizedByTheServer() {
    Session session = session();
    Policy six = Policy.of(WindowOptions.messages(6)).withSummary(SummaryPolicy.DEFAULT.withKeep(3));
    List<Message> said = new ArrayList<>();
    for (String stop : List.of("Oslo", "Rome", "Tokyo", "Lima")) {
      Collections.addAll(said, Message.user("And " + stop + "?"), Message.assistant(stop + " it is."));
    }
    session.append(said, AppendOptions.DEFAULT.withCreate(SessionSettings.DEFAULT.withPolicy(six)));
    Window window = session.window();
    assertTrue(window.messages().get(0).text().startsWith("[CONVERSATION SUMMARY]\n"));
    assertEquals(SummaryState.CURRENT, window.stats().summaryState());
    Summary summary = session.summary();
    assertEquals(window.stats().summaryId(), summary.id());
    assertTrue(summary.current());
    assertEquals(List.of(summary), session.summaries());
    assertNull(session.revertSummary(summary.id()));
    assertThrows(MemorydException.SummaryNotFound.class, session::summary);
    assertThrows(MemorydException.SummariesDisabled.class, () -> {
      Session plain = session();
      plain.append(Message.user("Hello!"));
      plain.summarize();
    });
  }

  @Test
  void historiesAreSummarizedByAModelOfTheAgent() {
    String agent = "java-" + Ids.newId();
    Policy mine =
        Policy.of(WindowOptions.messages(6))
            .withSummary(SummaryPolicy.DEFAULT.withKeep(3).withSummarizer("client"));
    memory.agent(agent).update(AgentUpdate.NOTHING.withPolicy(mine));
    Session session = memory.session(agent);
    session.appendAll(IntStream.range(0, 9).mapToObj(number -> Message.user("message " + number)).toList());
    assertEquals(SummaryState.PENDING, session.window().stats().summaryState());
    try (SummaryTasks tasks = memory.summaryTasks(agent, SummaryTasks.Options.WHAT_WAITS)) {
      for (SummaryTask task : tasks) {
        assertEquals(session.id(), task.sessionId());
        assertTrue(task.prompt().contains("message 0"));
        assertFalse(task.messages().isEmpty());
        task.abandon(false);
        break; // It would come again at once.
      }
    }
    int made =
        memory.summarizeWith(agent, task -> "All is well.", "a-model", SummaryTasks.Options.WHAT_WAITS);
    assertEquals(1, made);
    assertEquals("All is well.", session.summary().text());
    assertEquals("a-model", session.summary().model());
    assertEquals(0, memory.summarizeWith(agent, task -> "", "", SummaryTasks.Options.WHAT_WAITS));
  }

  @Test
  void aFailingModelLeavesTheTaskToWait() {
    Session session = session();
    Policy mine =
        Policy.of(WindowOptions.messages(6))
            .withSummary(SummaryPolicy.DEFAULT.withKeep(3).withSummarizer("client"));
    session.append(
        IntStream.range(0, 9).mapToObj(number -> Message.user("message " + number)).toList(),
        AppendOptions.DEFAULT.withCreate(SessionSettings.DEFAULT.withPolicy(mine)));
    session.window();
    int made =
        session.summarizeWith(
            task -> {
              throw new IllegalStateException("no model");
            },
            "",
            SummaryTasks.Options.WHAT_WAITS);
    assertEquals(0, made);
    assertFalse(session.summaryTasks(SummaryTasks.Options.WHAT_WAITS).hasNext());
  }

  @Test
  void aSessionThatHasNotBegunIsNotFound() {
    Session session = session();
    MemorydException.SessionNotFound error =
        assertThrows(MemorydException.SessionNotFound.class, session::window);
    assertEquals(io.grpc.Status.Code.NOT_FOUND, error.code());
    assertEquals(session.id(), error.metadata().get("session_id"));
    assertThrows(MemorydException.NotFound.class, () -> session.messages().iterator().hasNext());
  }
}

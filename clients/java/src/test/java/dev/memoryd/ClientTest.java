package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.memoryd.converters.Anthropic;
import dev.memoryd.converters.OpenAi;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

class ClientTest {
  @TempDir Path folder;

  @Test
  void storesAreToldAndSwitched() {
    try (MemoryClient memory = TestServer.shared().client()) {
      assertEquals(
          List.of("main", "other"), memory.stores().stream().map(StoreInfo::name).toList());
      assertTrue(memory.store().isDefault());
      assertEquals("in_memory", memory.storeType());
      Session session = memory.session("java-" + Ids.newId());
      session.append(Message.user("In main."));
      MemorydException.StoreUnknown error =
          assertThrows(MemorydException.StoreUnknown.class, () -> memory.switchStore("nowhere"));
      assertTrue(error.metadata().get("stores").contains("other"));
      assertEquals(1, session.info().messageCount());
      Pages<Message> before = session.messages();
      assertEquals("other", memory.switchStore("other").name());
      assertThrows(MemorydException.SessionNotFound.class, session::info);
      assertEquals(1, before.stream().count());
      assertThrows(IllegalArgumentException.class, () -> memory.switchStore("né"));
    }
    try (MemoryClient memory = MemoryClient.builder(TestServer.shared().address()).store("other").build()) {
      assertEquals("other", memory.store().name());
    }
  }

  @Test
  void idsAreOrderedByTimeAndUnique() {
    Set<String> ids = new HashSet<>();
    for (int number = 0; number < 1_000; number++) {
      ids.add(Ids.newId());
    }
    assertEquals(1_000, ids.size());
    ids.forEach(id -> assertTrue(id.matches("[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}"), id));
  }

  @Test
  void everyRetriedMethodIsOneOfTheApi() {
    long retried =
        List.of(
                dev.memoryd.v1.AgentServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.HistoryServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.MemoryContextServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.RunServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.StoreServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.SummaryServiceGrpc.getServiceDescriptor(),
                dev.memoryd.v1.WindowServiceGrpc.getServiceDescriptor())
            .stream()
            .flatMap(service -> service.getMethods().stream())
            .filter(Methods::isRetried)
            .count();
    assertEquals(34, retried);
  }

  @Test
  void everyReasonHasItsClass() {
    for (dev.memoryd.v1.ErrorReason reason : dev.memoryd.v1.ErrorReason.values()) {
      String name = reason.name().replace("ERROR_REASON_", "");
      if (reason.equals(dev.memoryd.v1.ErrorReason.UNRECOGNIZED) || name.equals("UNSPECIFIED")) {
        continue;
      }
      MemorydException error =
          MemorydException.of(
              new MemorydException.Details("no", io.grpc.Status.Code.UNKNOWN, name, java.util.Map.of(), null));
      assertFalse(error.getClass().equals(MemorydException.class), name);
    }
  }

  @Test
  void ourEnumsHaveTheNumbersOfTheApi() {
    for (RunStatus status : RunStatus.values()) {
      assertEquals("RUN_STATUS_" + status, status.toApi().name());
      assertEquals(status, RunStatus.of(status.toApi().getNumber()));
    }
    for (Role role : Role.values()) {
      assertEquals("ROLE_" + role, role.toApi().name());
      assertEquals(role, Role.of(role.toApi().getNumber()));
    }
    for (Tokenizer tokenizer : Tokenizer.values()) {
      assertEquals("TOKENIZER_" + tokenizer, tokenizer.toApi().name());
    }
    for (OpenCalls calls : OpenCalls.values()) {
      assertEquals("OPEN_CALLS_" + calls, calls.toApi().name());
    }
    for (Oversize oversize : Oversize.values()) {
      assertEquals("OVERSIZE_" + oversize, oversize.toApi().name());
    }
    for (WindowMode mode : WindowMode.values()) {
      assertEquals("WINDOW_MODE_" + mode, mode.toApi().name());
    }
    for (Retention retention : Retention.values()) {
      assertEquals("RETENTION_" + retention, retention.toApi().name());
    }
    for (ListOrder order : ListOrder.values()) {
      assertEquals("LIST_ORDER_" + order, order.toApi().name());
    }
    for (MessageView view : MessageView.values()) {
      assertEquals("MESSAGE_VIEW_" + view, view.toApi().name());
    }
    for (MemoryStyle style : MemoryStyle.values()) {
      assertEquals("MEMORY_STYLE_" + style, style.toApi().name());
    }
    for (TierState state : TierState.values()) {
      assertEquals("MEMORY_TIER_STATE_" + state, dev.memoryd.v1.MemoryTierState.forNumber(state.ordinal()).name());
    }
    for (SummaryState state : SummaryState.values()) {
      assertEquals("SUMMARY_STATE_" + state, dev.memoryd.v1.SummaryState.forNumber(state.ordinal()).name());
    }
    for (LeftOutReason reason : LeftOutReason.values()) {
      assertEquals("LEFT_OUT_REASON_" + reason, dev.memoryd.v1.LeftOutReason.forNumber(reason.ordinal()).name());
    }
    for (WatchEventKind kind : WatchEventKind.values()) {
      assertEquals("WATCH_EVENT_KIND_" + kind, dev.memoryd.v1.WatchEventKind.forNumber(kind.ordinal()).name());
    }
    assertEquals(RunStatus.UNSPECIFIED, RunStatus.of(99));
  }

  @Test
  @Timeout(20)
  void aServerThatIsSilentEndsWithTheDeadline() throws IOException {
    try (ServerSocket silent = new ServerSocket(0);
        MemoryClient memory = MemoryClient.connect("127.0.0.1:" + silent.getLocalPort())) {
      Session session = memory.session("a").withTimeout(Duration.ofMillis(500));
      long begun = System.nanoTime();
      MemorydException.DeadlineExceeded error =
          assertThrows(MemorydException.DeadlineExceeded.class, session::window);
      assertTrue(System.nanoTime() - begun < TimeUnit.SECONDS.toNanos(5));
      assertTrue(error.getMessage().contains("LoadWindow"), error.getMessage());
    }
  }

  @Test
  @Timeout(20)
  void anInterruptedThreadIsToldSo() throws Exception {
    try (ServerSocket silent = new ServerSocket(0);
        MemoryClient memory = MemoryClient.connect("127.0.0.1:" + silent.getLocalPort())) {
      Thread caller = Thread.currentThread();
      Thread other =
          new Thread(
              () -> {
                try {
                  Thread.sleep(300);
                } catch (InterruptedException ended) {
                  return;
                }
                caller.interrupt();
              });
      other.start();
      assertThrows(MemorydException.Cancelled.class, () -> memory.session("a").window());
      assertTrue(Thread.interrupted());
      other.join();
    }
  }

  @Test
  @Timeout(120)
  void tokensAndTlsAreChecked() throws Exception {
    Path tokens = folder.resolve("tokens.toml");
    Path token = folder.resolve("token");
    TestServer.run(
        "token", "create", "--file", tokens.toString(), "--tenant", "acme", "--name", "test", "--out", token.toString());
    String secret = Files.readString(token).strip();
    TestCertificates.write(folder);
    TestServer server =
        TestServer.start(
            "127.0.0.1:0",
            "--store",
            "main=memory://",
            "--tokens-file",
            tokens.toString(),
            "--tls-certificate",
            folder.resolve("server.pem").toString(),
            "--tls-key",
            folder.resolve("server.key").toString());
    try (server) {
      String address = server.address();
      try (MemoryClient memory =
          MemoryClient.builder(address).ca(folder.resolve("server.pem")).token(secret).build()) {
        assertEquals("in_memory", memory.storeType());
      }
      try (MemoryClient memory = MemoryClient.builder(address).ca(folder.resolve("server.pem")).build()) {
        assertThrows(MemorydException.CredentialMissing.class, memory::store);
      }
      try (MemoryClient memory =
          MemoryClient.builder(address).ca(folder.resolve("server.pem")).token(secret + "x").build()) {
        assertThrows(MemorydException.CredentialInvalid.class, memory::store);
      }
      try (MemoryClient memory = MemoryClient.builder(address).ca(folder.resolve("other.pem")).build()) {
        MemorydException.TlsFailed error = assertThrows(MemorydException.TlsFailed.class, memory::store);
        assertTrue(error.getMessage().contains("not from a CA that the client trusts"), error.getMessage());
      }
      try (MemoryClient memory = MemoryClient.builder(address).tls(true).build()) {
        assertThrows(MemorydException.TlsFailed.class, memory::store);
      }
      String otherName = "localhost" + address.substring(address.lastIndexOf(':'));
      try (MemoryClient memory = MemoryClient.builder(otherName).ca(folder.resolve("server.pem")).build()) {
        MemorydException.TlsFailed error = assertThrows(MemorydException.TlsFailed.class, memory::store);
        assertTrue(error.getMessage().contains("is for other names"), error.getMessage());
      }
      try (MemoryClient memory = MemoryClient.connect(address)) {
        MemorydException.TlsFailed error = assertThrows(MemorydException.TlsFailed.class, memory::store);
        assertTrue(error.getMessage().contains("it may ask for TLS"), error.getMessage());
      }
    }
    try (MemoryClient memory =
        MemoryClient.builder(TestServer.shared().address()).ca(folder.resolve("server.pem")).build()) {
      MemorydException.TlsFailed error = assertThrows(MemorydException.TlsFailed.class, memory::store);
      assertTrue(error.getMessage().contains("does not speak TLS"), error.getMessage());
    }
  }

  @Test
  void aTokenNeverGoesUnencryptedToAnotherMachine() {
    MemoryClient.Builder remote = MemoryClient.builder("memory.example.com:7600").token("memoryd_x");
    IllegalArgumentException error = assertThrows(IllegalArgumentException.class, remote::build);
    assertFalse(error.getMessage().contains("memoryd_x"));
    assertDoesNotThrow(() -> remote.allowTokenWithoutTls().build().close());
    for (String local : List.of("localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1")) {
      assertDoesNotThrow(() -> MemoryClient.builder(local).token("t").build().close(), local);
    }
    for (String far : List.of("localhost.example.com:1", "128.0.0.1:1", "[::2]:1", "10.0.0.1:1")) {
      assertThrows(
          IllegalArgumentException.class, () -> MemoryClient.builder(far).token("t").build(), far);
    }
    assertThrows(IllegalArgumentException.class, () -> MemoryClient.builder("a:1").token("a b\n"));
    assertThrows(
        IllegalArgumentException.class,
        () -> MemoryClient.builder("a:1").ca("no certificate".getBytes(StandardCharsets.UTF_8)));
  }

  /** gRPC would try to reach them until the timeout. */
  @Test
  void anAddressThatNoServerCanHaveIsRefusedAtOnce() {
    for (String address :
        List.of("", "127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1:", "127.0.0.1:x", ":7600", "::1", "::1:7600", "a b:1", "a:1/b")) {
      IllegalArgumentException error =
          assertThrows(IllegalArgumentException.class, () -> MemoryClient.connect(address), address);
      assertTrue(error.getMessage().contains("host:port, for example 127.0.0.1:7600"), error.getMessage());
    }
    for (String url : List.of("http://127.0.0.1:7600", "https://127.0.0.1:7600/", "grpc://127.0.0.1:7600")) {
      IllegalArgumentException error =
          assertThrows(IllegalArgumentException.class, () -> MemoryClient.connect(url), url);
      assertTrue(
          error.getMessage().contains("give host:port without a scheme: '127.0.0.1:7600'"), error.getMessage());
    }
    for (String possible :
        List.of("memory.example.com:65535", "memory.example.com", "[::1]:7600", "localhost:1", "dns:///localhost:7600")) {
      assertDoesNotThrow(() -> MemoryClient.connect(possible).close(), possible);
    }
  }

  @Test
  void aNullIsToldByTheNameOfItsArgument() {
    Message none = null;
    try (MemoryClient memory = TestServer.shared().client()) {
      Session session = memory.session("java-" + Ids.newId());
      assertNamed("message", () -> session.append(none));
      assertNamed("message", () -> session.append(Message.user("Hi."), none));
      assertNamed("message", () -> session.appendAll(Arrays.asList(none, none)));
      assertNamed("messages", () -> session.append((Message[]) null));
      assertNamed("messages", () -> session.append(null, AppendOptions.DEFAULT));
      assertNamed("messages", () -> session.appendAll(null));
      assertNamed("options", () -> session.append(List.of(Message.user("Hi.")), null));
      assertNamed("window", () -> session.window(null));
      assertNamed("options", () -> session.watch(null));
      assertNamed("session", () -> memory.openRun(null, RunOptions.DEFAULT));
      assertNamed("options", () -> memory.openRun(session, null));
      assertNamed("body", () -> memory.run(session, RunOptions.DEFAULT, null));
      try (Run run = memory.openRun(session, RunOptions.DEFAULT)) {
        assertNamed("payload", () -> run.step(null));
        assertNamed("message", () -> run.step(Payload.EMPTY, none));
        assertNamed("messages", () -> run.step(Payload.EMPTY, (Message[]) null));
        assertNamed("message", () -> run.finish(RunStatus.COMPLETED, "", null, none));
        assertNamed("status", () -> run.finish(null, ""));
      }
    }
    assertNamed("message", () -> Protos.toProto(null));
    assertNamed("part", () -> Message.user((Part) null));
    assertNamed("parts", () -> Message.assistant((Part[]) null));
    assertNamed("messages", () -> OpenAi.toOpenAi(null));
    assertNamed("message", () -> OpenAi.toOpenAi(Arrays.asList(none, none)));
    assertNamed("messages", () -> OpenAi.fromOpenAi(null));
    assertNamed("messages", () -> Anthropic.toAnthropic(null));
    assertNamed("message", () -> Anthropic.toAnthropic(Arrays.asList(none, none)));
    assertNamed("messages", () -> Anthropic.fromAnthropic(null));
  }

  private static void assertNamed(String argument, Executable call) {
    assertEquals(argument, assertThrows(NullPointerException.class, call).getMessage());
  }

  @Test
  void theLicenseGoesAlongWithTheClasses() throws Exception {
    Path classes = Path.of(MemoryClient.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    assertEquals(
        Files.readString(Path.of("../../LICENSE")), Files.readString(classes.resolve("META-INF/LICENSE")));
  }

  @Test
  void aClosedClientSaysSo() {
    MemoryClient memory = TestServer.shared().client();
    memory.close();
    assertThrows(IllegalStateException.class, memory::store);
  }
}

package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class WatchTest {
  @TempDir Path folder;

  @Test
  void eventsComeInOrderEachOnce() {
    try (MemoryClient memory = TestServer.shared().client()) {
      Session session = memory.session("java-" + Ids.newId());
      session.append(Message.user("one"), Message.user("two"));
      String token;
      try (Watch watch = session.watch(Watch.Options.after(0))) {
        assertEquals("one", watch.next().message().text());
        WatchEvent second = watch.next();
        assertEquals(2, second.toSeq());
        token = second.resumeToken();
        session.clear();
        assertEquals(WatchEventKind.CLEARED, watch.next().kind());
      }
      try (Watch watch = session.watch(Watch.Options.resuming(token))) {
        assertEquals(WatchEventKind.CLEARED, watch.next().kind());
      }
      try (Watch watch = session.watch()) {
        session.append(Message.user("three"));
        assertEquals("three", watch.next().message().text());
      }
      assertThrows(
          MemorydException.ResumeTokenInvalid.class, () -> session.watch(Watch.Options.resuming("nonsense")));
      assertThrows(
          MemorydException.SessionNotFound.class, () -> memory.session("java", "never").watch());
      assertThrows(IllegalArgumentException.class, () -> new Watch.Options("a", 1L, null));
    }
  }

  @Test
  void closingEndsAWatchThatWaits() throws Exception {
    try (MemoryClient memory = TestServer.shared().client()) {
      Session session = memory.session("java-" + Ids.newId());
      session.append(Message.user("one"));
      Watch watch = session.watch();
      Thread closer =
          new Thread(
              () -> {
                try {
                  Thread.sleep(200);
                } catch (InterruptedException ended) {
                  Thread.currentThread().interrupt();
                }
                watch.close();
              });
      closer.start();
      assertFalse(watch.hasNext());
      closer.join();
    }
  }

  @Test
  void aWatchOutlivesARestart() throws Exception {
    String[] store = {"--store", "main=sqlite:///" + folder.resolve("watched.db")};
    TestServer first = TestServer.start("127.0.0.1:0", store);
    String address = first.address();
    try (MemoryClient memory = MemoryClient.connect(address)) {
      Session session = memory.session("java", "watched");
      session.append(Message.user("one"));
      try (Watch watch = session.watch(Watch.Options.after(0).withRetryFor(Duration.ofSeconds(40)))) {
        assertEquals("one", watch.next().message().text());
        first.kill();
        try (TestServer second = TestServer.start(address, store);
            MemoryClient other = second.client()) {
          other.session("java", "watched").appendAll(List.of(Message.user("two"), Message.user("three")));
          assertEquals("two", watch.next().message().text());
          assertEquals("three", watch.next().message().text());
        }
      }
    } finally {
      first.close();
    }
  }
}

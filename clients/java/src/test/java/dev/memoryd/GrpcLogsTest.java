package dev.memoryd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class GrpcLogsTest {

  /** What the exception says, gRPC does not say once more for each try, with a stack trace. */
  @Test
  @Timeout(30)
  void aHostThatNobodyKnowsIsToldByTheExceptionAlone() {
    List<String> logged = new CopyOnWriteArrayList<>();
    Handler handler =
        new Handler() {
          @Override
          public void publish(LogRecord record) {
            logged.add(record.getLoggerName() + ": " + record.getMessage());
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    Logger grpc = Logger.getLogger("io.grpc");
    grpc.addHandler(handler);
    try (MemoryClient memory = MemoryClient.connect("nowhere.invalid:7600")) {
      MemorydException.ServerUnavailable error =
          assertThrows(MemorydException.ServerUnavailable.class, memory::store);
      assertTrue(error.getMessage().contains("nowhere.invalid"), error.getMessage());
    } finally {
      grpc.removeHandler(handler);
    }
    assertEquals(List.of(), logged);
  }

  @Test
  void aLevelThatTheProgramSetStays() {
    Logger parent = Logger.getLogger("memoryd-test");
    Logger set = Logger.getLogger("memoryd-test.set");
    Logger unset = Logger.getLogger("memoryd-test.unset");
    set.setLevel(Level.FINE);
    GrpcLogs.quiet(set, Level.SEVERE);
    assertEquals(Level.FINE, set.getLevel());
    parent.setLevel(Level.FINER);
    GrpcLogs.quiet(unset, Level.SEVERE);
    assertNull(unset.getLevel());
    parent.setLevel(null);
    GrpcLogs.quiet(unset, Level.SEVERE);
    assertEquals(Level.SEVERE, unset.getLevel());
  }
}

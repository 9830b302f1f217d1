package dev.memoryd.conformance;

import dev.memoryd.Ids;
import dev.memoryd.MemoryClient;
import dev.memoryd.Message;
import dev.memoryd.Session;
import dev.memoryd.WindowRequest;
import dev.memoryd.conformance.v1.Measure;
import dev.memoryd.conformance.v1.Measured;
import dev.memoryd.conformance.v1.Measurement;
import dev.memoryd.v1.AppendMessagesRequest;
import dev.memoryd.v1.Content;
import dev.memoryd.v1.HistoryServiceGrpc;
import dev.memoryd.v1.LoadWindowRequest;
import dev.memoryd.v1.Part;
import dev.memoryd.v1.Role;
import dev.memoryd.v1.SessionKey;
import dev.memoryd.v1.WindowMode;
import dev.memoryd.v1.WindowOptions;
import dev.memoryd.v1.WindowServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Measures calls of the SDK, and of the bare stubs for comparison. */
final class Measuring {
  private static final int WARM_UP_CALLS = 50;
  private static final int WINDOW_MESSAGES = 20;
  private static final String TEXT = "x".repeat(200);

  /** What one caller did. */
  private record Called(long[] nanoseconds, long begin, long end) {}

  private Measuring() {}

  static Measurement measure(Measure measure, MemoryClient memory, String address) throws Exception {
    if (!measure.getBare()) {
      return measured(
          measure, key -> call(measure.getOperation(), memory.session(key.getAgent(), key.getSessionId())));
    }
    ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    try {
      return measured(measure, key -> bareCall(measure.getOperation(), channel, key));
    } finally {
      channel.shutdownNow();
    }
  }

  private interface Calls {
    Runnable on(SessionKey session);
  }

  private static Runnable call(Measured operation, Session session) {
    return switch (operation) {
      case MEASURED_APPEND -> () -> session.append(Message.user(TEXT));
      case MEASURED_LOAD_WINDOW -> () -> session.window(WindowRequest.messages(WINDOW_MESSAGES));
      default -> throw new Fault("there is no measurement " + operation);
    };
  }

  private static Runnable bareCall(Measured operation, ManagedChannel channel, SessionKey session) {
    switch (operation) {
      case MEASURED_APPEND -> {
        HistoryServiceGrpc.HistoryServiceBlockingStub stub = HistoryServiceGrpc.newBlockingStub(channel);
        return () ->
            stub.appendMessages(
                AppendMessagesRequest.newBuilder()
                    .setSession(session)
                    .addMessages(
                        dev.memoryd.v1.Message.newBuilder()
                            .setId(Ids.newId())
                            .setRole(Role.ROLE_USER)
                            .setContent(Content.newBuilder().addParts(Part.newBuilder().setText(TEXT))))
                    .build());
      }
      case MEASURED_LOAD_WINDOW -> {
        WindowServiceGrpc.WindowServiceBlockingStub stub = WindowServiceGrpc.newBlockingStub(channel);
        return () ->
            stub.loadWindow(
                LoadWindowRequest.newBuilder()
                    .setSession(session)
                    .setOptions(
                        WindowOptions.newBuilder()
                            .setMode(WindowMode.WINDOW_MODE_MESSAGES)
                            .setLimit(WINDOW_MESSAGES))
                    .build());
      }
      default -> throw new Fault("there is no measurement " + operation);
    }
  }

  private static Measurement measured(Measure measure, Calls calls) throws Exception {
    int callers = measure.getCallers();
    long duration = Asked.duration(measure.getDuration()).toNanos();
    ExecutorService threads = Executors.newFixedThreadPool(callers);
    try {
      CyclicBarrier warm = new CyclicBarrier(callers);
      List<Future<Called>> running = new ArrayList<>();
      for (int caller = 0; caller < callers; caller++) {
        SessionKey session = measure.getSession();
        if (callers > 1 && measure.getOperation() == Measured.MEASURED_APPEND) {
          session = session.toBuilder().setSessionId(session.getSessionId() + "-" + caller).build();
        }
        Runnable call = calls.on(session);
        running.add(threads.submit(() -> called(call, warm, duration)));
      }
      Measurement.Builder result = Measurement.newBuilder();
      long begin = Long.MAX_VALUE;
      long end = Long.MIN_VALUE;
      for (Future<Called> caller : running) {
        Called called = caller.get();
        Arrays.stream(called.nanoseconds()).forEach(result::addNanoseconds);
        begin = Math.min(begin, called.begin());
        end = Math.max(end, called.end());
      }
      return result.setElapsed(Told.duration(Duration.ofNanos(end - begin))).build();
    } finally {
      threads.shutdownNow();
    }
  }

  private static Called called(Runnable call, CyclicBarrier warm, long duration) throws Exception {
    for (int number = 0; number < WARM_UP_CALLS; number++) {
      call.run();
    }
    warm.await();
    long[] taken = new long[1 << 10];
    int count = 0;
    long begin = System.nanoTime();
    long now = begin;
    while (now - begin < duration) {
      long before = now;
      call.run();
      now = System.nanoTime();
      if (count == taken.length) {
        taken = Arrays.copyOf(taken, count * 2);
      }
      taken[count++] = now - before;
    }
    return new Called(Arrays.copyOf(taken, count), begin, now);
  }
}

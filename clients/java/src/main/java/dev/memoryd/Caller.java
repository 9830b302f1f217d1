package dev.memoryd;

import io.grpc.CallOptions;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * How an object calls the server.
 *
 * @param connection its connection
 * @param timeout how long an operation may take, its retries included
 * @param pinnedStore the store that all its calls go to; null for the one that the client uses at the time
 */
record Caller(Connection connection, Duration timeout, String pinnedStore) {

  static Duration checked(Duration timeout) {
    Objects.requireNonNull(timeout, "timeout");
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is " + timeout + "; give more than none");
    }
    return timeout;
  }

  Caller within(Duration other) {
    return new Caller(connection, checked(other), pinnedStore);
  }

  /** One whose calls keep the store that the client uses now. */
  Caller pinned() {
    return pinnedStore == null ? new Caller(connection, timeout, connection.store()) : this;
  }

  /** Begins an operation of several calls, which share one deadline and one store. */
  Operation begin() {
    String store = pinnedStore == null ? connection.store() : pinnedStore;
    return new Operation(connection, store, timeout, Deadline.after(nanos(timeout), TimeUnit.NANOSECONDS));
  }

  /** Makes one call. */
  <Q, R> R call(MethodDescriptor<Q, R> method, Q request) {
    return begin().call(method, request);
  }

  /** Begins a stream that lasts as long as its context. */
  <Q, R> Iterator<R> follow(MethodDescriptor<Q, R> method, Q request, Context context) {
    String store = pinnedStore == null ? connection.store() : pinnedStore;
    Context before = context.attach();
    try {
      return ClientCalls.blockingServerStreamingCall(
          connection.channel(store), method, CallOptions.DEFAULT, request);
    } finally {
      context.detach(before);
    }
  }

  MemorydException typed(StatusRuntimeException failed, MethodDescriptor<?, ?> method) {
    return Errors.typed(failed, connection, method, timeout);
  }

  private static long nanos(Duration duration) {
    try {
      return duration.toNanos();
    } catch (ArithmeticException beyond) {
      return Long.MAX_VALUE / 2;
    }
  }

  /** One operation: its calls have one deadline, and go to one store. */
  record Operation(Connection connection, String store, Duration timeout, Deadline deadline) {

    <Q, R> R call(MethodDescriptor<Q, R> method, Q request) {
      return retried(
          method, () -> ClientCalls.blockingUnaryCall(connection.channel(store), method, options(), request));
    }

    <Q, R> List<R> stream(MethodDescriptor<Q, R> method, Q request) {
      return retried(
          method,
          () -> {
            List<R> answers = new ArrayList<>();
            ClientCalls.blockingServerStreamingCall(connection.channel(store), method, options(), request)
                .forEachRemaining(answers::add);
            return answers;
          });
    }

    /** Makes a call, again where that is of use. */
    private <R> R retried(MethodDescriptor<?, ?> method, Supplier<R> call) {
      Tries tries = new Tries(Methods.isRetried(method), deadline);
      while (true) {
        MemorydException error;
        try {
          R answer = call.get();
          connection.answered();
          return answer;
        } catch (StatusRuntimeException failed) {
          error = typed(failed, method);
        }
        connection.pause(tries.failed(error, connection.hasAnswered()));
      }
    }

    private CallOptions options() {
      return CallOptions.DEFAULT.withDeadline(deadline);
    }

    private MemorydException typed(StatusRuntimeException failed, MethodDescriptor<?, ?> method) {
      MemorydException error = Errors.typed(failed, connection, method, timeout);
      if (!error.reason().isEmpty()) {
        connection.answered();
      }
      return error;
    }
  }
}

package dev.memoryd;

import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.ConnectivityState;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** The channel of a client, what goes along with its calls, and what it has leased. */
final class Connection {
  /** What giving back what is leased may take when a client is closed; otherwise the leases end by themselves. */
  static final Duration RELEASE = Duration.ofSeconds(2);

  static final String DEFAULT_STORE = "";

  private static final Metadata.Key<String> STORE =
      Metadata.Key.of("memoryd-store", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  final String address;
  private final String token;
  private final ManagedChannel channel;
  private final Map<String, Channel> channels = new ConcurrentHashMap<>();
  private final ScheduledExecutorService timer;
  private final Map<Object, Runnable> leases = new ConcurrentHashMap<>();
  private volatile String store;
  private final CountDownLatch closed = new CountDownLatch(1);
  private volatile boolean wasEverReady;
  private volatile boolean hasAnswered;

  Connection(String address, boolean loopback, ChannelCredentials credentials, String token, String store) {
    this.address = address;
    this.token = token;
    this.store = store;
    GrpcLogs.quiet();
    ManagedChannelBuilder<?> builder =
        Grpc.newChannelBuilder(address, credentials)
            .userAgent("memoryd-java")
            // The server allows pings every 10 s. A watch sends nothing after its request: without pings it would not
            // notice that its connection is gone.
            .keepAliveTime(30, TimeUnit.SECONDS)
            .keepAliveTimeout(10, TimeUnit.SECONDS);
    if (loopback) {
      // A proxy does not reach this machine's loopback.
      builder.proxyDetector(server -> null);
    }
    channel = builder.build();
    timer =
        Executors.newSingleThreadScheduledExecutor(
            work -> {
              Thread thread = new Thread(work, "memoryd-client");
              thread.setDaemon(true);
              return thread;
            });
    watchState(ConnectivityState.IDLE);
  }

  String store() {
    return store;
  }

  void use(String store) {
    this.store = store;
  }

  boolean isClosed() {
    return closed.getCount() == 0;
  }

  /** Whether a connection stood at any time. */
  boolean wasEverReady() {
    return wasEverReady;
  }

  /** Whether a server of memoryd has answered a call, be it with a refusal. */
  boolean hasAnswered() {
    return hasAnswered;
  }

  void answered() {
    hasAnswered = true;
  }

  /** Pauses before the next try of a call, until the client is closed at most. */
  void pause(Duration pause) {
    try {
      closed.await(pause.toNanos(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new MemorydException.Cancelled(
          MemorydException.details("interrupted between two tries of a call", Status.Code.CANCELLED));
    }
  }

  /** The channel on which calls go to a store. */
  Channel channel(String store) {
    if (isClosed()) {
      throw new IllegalStateException("this client is closed; make a new MemoryClient");
    }
    return channels.computeIfAbsent(store, this::addressed);
  }

  private Channel addressed(String store) {
    Metadata headers = new Metadata();
    if (!store.equals(DEFAULT_STORE)) {
      headers.put(STORE, store);
    }
    if (token != null) {
      headers.put(AUTHORIZATION, "Bearer " + token);
    }
    if (headers.keys().isEmpty()) {
      return channel;
    }
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Has what is leased given back when the client is closed. */
  void lease(Object leased, Runnable giveBack) {
    leases.put(leased, giveBack);
  }

  void settled(Object leased) {
    leases.remove(leased);
  }

  void close() {
    for (Runnable giveBack : new ArrayList<>(leases.values())) {
      try {
        giveBack.run();
      } catch (MemorydException endsByItself) {
        Outage.LOG.log(System.Logger.Level.DEBUG, "a lease was not given back", endsByItself);
      }
    }
    leases.clear();
    closed.countDown();
    timer.shutdownNow();
    channel.shutdownNow();
  }

  /**
   * Has a server that restarts found again as soon as a call is tried again: gRPC's own pauses, which cannot be set, begin with a
   * second and grow to minutes.
   */
  private void watchState(ConnectivityState last) {
    channel.notifyWhenStateChanged(
        last,
        () -> {
          ConnectivityState state = channel.getState(false);
          if (state == ConnectivityState.READY) {
            wasEverReady = true;
          } else if (state == ConnectivityState.TRANSIENT_FAILURE) {
            reconnect(Tries.FIRST_PAUSE.toMillis());
          }
          if (state != ConnectivityState.SHUTDOWN) {
            watchState(state);
          }
        });
  }

  private void reconnect(long pause) {
    try {
      timer.schedule(
          () -> {
            if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
              channel.resetConnectBackoff();
              reconnect(Math.min(Tries.LONGEST_PAUSE.toMillis(), pause * 2));
            }
          },
          pause,
          TimeUnit.MILLISECONDS);
    } catch (RejectedExecutionException isClosed) {
      // Nothing is to be reached any more.
      assert timer.isShutdown();
    }
  }
}

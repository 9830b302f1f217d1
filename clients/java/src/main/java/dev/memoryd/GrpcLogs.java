package dev.memoryd;

import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * What gRPC logs and an exception of this client tells better, or nobody needs: each try to resolve a name that nobody knows, with
 * a stack trace, and that epoll is available. Quiet, unless who runs the program set a level.
 */
final class GrpcLogs {
  /** From which level each logger says something. Loggers are collected with their levels unless somebody keeps them. */
  private static final Map<Logger, Level> FROM =
      Map.of(
          Logger.getLogger("io.grpc.internal.ManagedChannelImpl"), Level.SEVERE,
          Logger.getLogger("io.grpc.netty.shaded.io.grpc.netty.TcpMetrics"), Level.WARNING);

  static {
    FROM.forEach(GrpcLogs::quiet);
  }

  private GrpcLogs() {}

  /** Quiets the loggers, once: a level that is set later stays. */
  static void quiet() {
    // Done when the class is loaded.
  }

  static void quiet(Logger logger, Level from) {
    if (!isSet(logger)) {
      logger.setLevel(from);
    }
  }

  /** Whether the program asks for a level: of the logger, of a part of its name, or for more than usual of all. */
  private static boolean isSet(Logger logger) {
    for (Logger of = logger; of != null; of = of.getParent()) {
      if (of.getLevel() != null) {
        return of.getParent() != null || of.getLevel().intValue() < Level.INFO.intValue();
      }
    }
    return false;
  }
}

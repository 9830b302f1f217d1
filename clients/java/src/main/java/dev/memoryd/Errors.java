package dev.memoryd;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import dev.memoryd.MemorydException.Details;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.nio.channels.ClosedChannelException;
import java.security.cert.CertificateException;
import java.time.Duration;
import java.util.Map;
import javax.net.ssl.SSLException;

/** From gRPC's errors to typed ones. */
final class Errors {
  private static final String DOMAIN = "memoryd";

  /** gRPC's text for a connection that the other side closed without a word. */
  private static final String CLOSED = "Network closed for unknown reason";

  private Errors() {}

  /** The typed error of a failed call. Without an ErrorInfo of memoryd it comes from the transport, and says which address. */
  static MemorydException typed(
      StatusRuntimeException told, Connection connection, MethodDescriptor<?, ?> method, Duration timeout) {
    StatusRuntimeException failed = unavailableWhereClosed(told);
    String address = connection.address;
    String text = failed.getStatus().getDescription() == null ? "" : failed.getStatus().getDescription();
    io.grpc.Status.Code code = failed.getStatus().getCode();
    ErrorInfo info = errorInfo(failed);
    if (info != null) {
      return MemorydException.of(
          new Details(text, code, info.getReason(), Map.copyOf(info.getMetadataMap()), failed));
    }
    String name = method.getBareMethodName();
    return switch (code) {
      case UNAVAILABLE -> unreachable(connection, text, failed);
      case DEADLINE_EXCEEDED ->
          MemorydException.of(
              transport(
                  name
                      + " did not end within "
                      + timeout.toMillis() / 1000.0
                      + " s at "
                      + address
                      + ". "
                      + (Methods.isRetried(method)
                          ? "The server is busy, or it or its store was unavailable and the call was tried again until "
                              + "then: see the server's log, and stores() tells which stores answer now. Or give a "
                              + "longer timeout. A change may have been made all the same: an append of the same "
                              + "messages is safe to repeat, and so is what you gave a request id"
                          : "See in the server's log whether it is busy, or give a longer timeout. The change may have "
                              + "been made all the same: read before you repeat it"),
                  failed));
      case UNIMPLEMENTED ->
          MemorydException.of(
              transport(
                  "the server at "
                      + address
                      + " does not know "
                      + name
                      + ": it is older than this client, or not memoryd ("
                      + text
                      + ")",
                  failed));
      default -> MemorydException.of(transport(name + " failed at " + address + " with " + code + ": " + text, failed));
    };
  }

  /**
   * The failure, as UNAVAILABLE where the connection ended under the call. gRPC tells that so in all cases but one: where it
   * does not know any more why its channel was closed, it is UNKNOWN there.
   */
  private static StatusRuntimeException unavailableWhereClosed(StatusRuntimeException failed) {
    io.grpc.Status status = failed.getStatus();
    if (status.getCode() == io.grpc.Status.Code.UNKNOWN && status.getCause() instanceof ClosedChannelException) {
      return io.grpc.Status.UNAVAILABLE
          .withDescription(status.getDescription())
          .withCause(status.getCause())
          .asRuntimeException(failed.getTrailers());
    }
    return failed;
  }

  private static Details transport(String message, StatusRuntimeException failed) {
    return new Details(message, failed.getStatus().getCode(), "", Map.of(), failed);
  }

  /** What keeps a client from its server, as far as causes and texts tell. */
  private static MemorydException unreachable(Connection connection, String text, StatusRuntimeException failed) {
    String address = connection.address;
    String tls = null;
    String told = text;
    for (Throwable cause = failed.getStatus().getCause(); cause != null; cause = cause.getCause()) {
      String message = String.valueOf(cause.getMessage());
      if (!told.contains(message)) {
        told += ": " + message;
      }
      if (cause instanceof CertificateException || cause instanceof SSLException) {
        // The innermost one tells most.
        tls = tlsFailure(address, cause, message);
      }
    }
    if (tls == null && !connection.wasEverReady() && told.contains(CLOSED)) {
      tls =
          "the server at "
              + address
              + " closed the connection at once: it may ask for TLS, or be shutting down; for one with TLS, give ca (the "
              + "certificate of its CA) or tls(true)";
    }
    if (tls != null) {
      return new MemorydException.TlsFailed(transport(tls + " (gRPC: " + told + ")", failed));
    }
    return new MemorydException.ServerUnavailable(
        transport(
            "no memoryd server answers at "
                + address
                + ": "
                + told
                + ". Start one with `memoryd serve`, or give the client the address of one that runs",
            failed));
  }

  private static String tlsFailure(String address, Throwable cause, String message) {
    String server = "the server at " + address;
    if (message.contains("not an SSL/TLS record") || message.contains("WRONG_VERSION_NUMBER")) {
      return server + " does not speak TLS: leave out ca and tls, or have its operator give it a certificate";
    }
    String certificate = "the certificate of " + server;
    if (message.contains("NotAfter") || message.contains("expired")) {
      return certificate + " has expired (or a clock is wrong): its operator must renew it";
    }
    if (message.contains("No subject alternative") || message.contains("No name matching")) {
      return certificate
          + " is for other names: give the client an address with one of its names, or the server a certificate for "
          + "this one";
    }
    if (message.contains("PKIX") || message.contains("certification path") || cause instanceof CertificateException) {
      return certificate + " is not from a CA that the client trusts: give the right one as ca";
    }
    return "no TLS connection to " + server + " comes about";
  }

  private static ErrorInfo errorInfo(StatusRuntimeException failed) {
    ErrorInfo info = detail(failed, ErrorInfo.class);
    return info != null && info.getDomain().equals(DOMAIN) ? info : null;
  }

  /** The pause that the server asks for before a further try; null where it does not say. */
  static Duration retryAfter(Throwable failed) {
    RetryInfo info = failed instanceof StatusRuntimeException ? detail(failed, RetryInfo.class) : null;
    return info == null ? null : Protos.duration(info.getRetryDelay());
  }

  /** What an error tells beside its status; null for what it does not tell, or damaged. */
  private static <T extends Message> T detail(Throwable failed, Class<T> type) {
    Status status = StatusProto.fromThrowable(failed);
    if (status == null) {
      return null;
    }
    for (Any detail : status.getDetailsList()) {
      if (detail.is(type)) {
        try {
          return detail.unpack(type);
        } catch (InvalidProtocolBufferException damaged) {
          return null;
        }
      }
    }
    return null;
  }
}

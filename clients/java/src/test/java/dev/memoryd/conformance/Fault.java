package dev.memoryd.conformance;

/** What the driver cannot do, or a user of the SDK cannot say. */
final class Fault extends RuntimeException {
  private static final long serialVersionUID = 1L;

  Fault(String message) {
    super(message);
  }

  Fault(String message, Throwable cause) {
    super(message, cause);
  }
}

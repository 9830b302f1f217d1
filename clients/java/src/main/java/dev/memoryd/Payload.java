package dev.memoryd;

import com.google.protobuf.ByteString;
import java.util.Objects;

/**
 * What a step of a run holds: what a worker needs to go on behind it.
 *
 * @param bytes at most 2 MiB
 * @param contentType what they are, such as {@code application/json}; at most 256 bytes, may be empty
 */
public record Payload(ByteString bytes, String contentType) {
  /** Nothing. */
  public static final Payload EMPTY = new Payload(ByteString.EMPTY, "");

  /** Makes it. */
  public Payload {
    Objects.requireNonNull(bytes, "bytes");
    Protos.text(contentType, "contentType");
  }

  /** Bytes as they are. */
  public static Payload of(byte[] bytes) {
    return new Payload(ByteString.copyFrom(bytes), "");
  }

  /** Text. */
  public static Payload text(String text) {
    return new Payload(ByteString.copyFromUtf8(Protos.text(text, "text")), "text/plain; charset=utf-8");
  }

  /** A value as JSON: a map, a list, and so on. */
  public static Payload json(Object value) {
    return new Payload(ByteString.copyFromUtf8(Json.write(value)), "application/json");
  }
}

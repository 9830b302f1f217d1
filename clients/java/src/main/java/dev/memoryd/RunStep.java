package dev.memoryd;

import com.google.protobuf.ByteString;
import java.time.Instant;

/**
 * A step of a run: what a worker needs to go on behind it.
 *
 * @param number from 1, without gaps
 * @param payload the bytes, as they were committed
 * @param contentType what the payload is, such as {@code application/json}; empty when nobody said
 * @param firstSeq the seq of the first of the messages that it produced, which have consecutive ones; 0 when it
 *     produced none
 * @param messageCount how many messages it produced
 * @param createTime when it was committed
 * @param status what the run's status became with it; RUNNING when it went on
 */
public record RunStep(
    long number,
    ByteString payload,
    String contentType,
    long firstSeq,
    int messageCount,
    Instant createTime,
    RunStatus status) {
  /** The payload as text: U+FFFD stands for bytes that are not UTF-8. */
  public String text() {
    return payload.toStringUtf8();
  }

  /** The value of the payload as JSON, in the types of {@link Json}. */
  public Object json() throws Json.Unreadable {
    return Json.read(text());
  }
}

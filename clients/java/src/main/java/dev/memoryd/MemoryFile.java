package dev.memoryd;

import com.google.protobuf.ByteString;

/**
 * A memory file with its content.
 *
 * @param info what is told of it
 * @param content the bytes, as they were put
 */
public record MemoryFile(MemoryFileInfo info, ByteString content) {
  /** The content as text: U+FFFD stands for bytes that are not UTF-8. */
  public String text() {
    return content.toStringUtf8();
  }

  /** Without the content: what is logged of a file holds none. */
  @Override
  public String toString() {
    return "MemoryFile[" + info + "]";
  }
}

// The runtime of the generated code decodes text with a TextDecoder that takes a byte order mark off its beginning. What
// was stored has to come back byte for byte, so it is told not to. The setting is one for the process, and takes nothing
// from other generated code but the same loss.

import { configureTextEncoding, getTextEncoding } from "@bufbuild/protobuf/wire";

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const strict = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

configureTextEncoding({
  ...getTextEncoding(),
  decodeUtf8: (bytes, fatal) => (fatal === true ? strict : decoder).decode(bytes),
});

/** The text of bytes; U+FFFD stands for what is not UTF-8. */
export function utf8Text(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** The UTF-8 of a text. */
export function utf8Bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** A text cut to so many bytes of UTF-8, between two characters. */
export function cutToBytes(text: string, mostBytes: number): string {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= mostBytes) return text.toWellFormed();
  let end = mostBytes;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end);
}

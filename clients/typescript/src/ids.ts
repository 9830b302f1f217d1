import { randomUUID } from "node:crypto";

/** Makes a UUID of version 7 (RFC 9562), ordered by time to a millisecond, as 32 lowercase hex digits. */
export function newId(): string {
  // A UUID of version 4 is made of a pool of random bytes, and costs little; its variant stands where that of version 7 does.
  const random = randomUUID().replaceAll("-", "");
  return `${Date.now().toString(16).padStart(12, "0")}7${random.slice(13)}`;
}

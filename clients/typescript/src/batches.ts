// Cutting many messages into appends that the server takes.

import { toBinary } from "@bufbuild/protobuf";

import { messageToProto } from "./encoding.js";
import { MessageSchema } from "./gen/memoryd/v1/message_pb.js";
import type { Message } from "./messages.js";

/** The most messages of one append (a limit of the server). */
const BATCH_MESSAGES = 256;
/** 3.25 MiB: the server's limit of 3.5 MiB for one append, less room for the rest of the request. */
const BATCH_BYTES = 3_407_872;
/** More than what a message takes in a request beside its own bytes. */
const OVERHEAD = 8;

/**
 * Cuts messages, in their order, into lists that fit into one append each: at most 256 messages and 3.25 MiB. A message that
 * alone is larger comes alone, for the server to say what is wrong with it. The input is read lazily.
 */
export async function* batches(
  messages: Iterable<Message> | AsyncIterable<Message>,
): AsyncGenerator<Message[], void, undefined> {
  let batch: Message[] = [];
  let size = 0;
  for await (const message of messages) {
    const added = toBinary(MessageSchema, messageToProto(message)).byteLength + OVERHEAD;
    if (batch.length > 0 && (batch.length === BATCH_MESSAGES || size + added > BATCH_BYTES)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(message);
    size += added;
  }
  if (batch.length > 0) yield batch;
}

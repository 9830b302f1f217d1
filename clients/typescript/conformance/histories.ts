// Commands on sessions and their messages.

import { policyFromProto } from "../src/decoding.js";
import { LIST_ORDER, MESSAGE_VIEW, ROLE } from "../src/enums.js";
import { FOREVER, type Role } from "../src/index.js";
import * as answers from "./answers.js";
import { date, messageName, messages, milliseconds, read, settings } from "./givens.js";
import type { Operations } from "./operations.js";

export const HISTORIES: Operations<
  | "append"
  | "appendAll"
  | "listMessages"
  | "getMessage"
  | "getSession"
  | "listSessions"
  | "updateSession"
  | "clearHistory"
  | "clearAgent"
  | "redactMessage"
  | "rewind"
  | "fork"
  | "eraseUser"
  | "openWatch"
  | "nextEvents"
  | "closeWatch"
> = {
  async append(client, given, call) {
    const { session, expectedLastSeq } = given;
    const options = { ...call, requestId: given.requestId || undefined, expectedLastSeq, create: settings(given.create) };
    const done = await client.session(session).append(messages(given.messages), options);
    return { appended: { messages: done.map(answers.appended) } };
  },

  async appendAll(client, given, call) {
    const options = { ...call, create: settings(given.create) };
    const done = await client.session(given.session).appendAll(messages(given.messages), options);
    return { appended: { messages: done.map(answers.appended) } };
  },

  async listMessages(client, { request, take }, call) {
    const { roles, runId, fromSeq, toSeq, fromTime, toTime } = request?.filter ?? {};
    const found = client.session(request?.session).messages({
      ...call,
      pageSize: request?.pageSize,
      order: LIST_ORDER.known(request?.order ?? 0),
      view: MESSAGE_VIEW.known(request?.view ?? 0),
      roles: roles?.map((role) => ROLE.known(role) as Role),
      runId,
      fromSeq,
      toSeq,
      fromTime: date(fromTime),
      toTime: date(toTime),
    });
    return { messages: answers.messages(await read(found, take)) };
  },

  async getMessage(client, { session, by }, call) {
    return { messages: answers.messages([await client.session(session).message(messageName(by), call)]) };
  },

  async getSession(client, { session }, call) {
    return { session: answers.session(await client.session(session).info(call)) };
  },

  async listSessions(client, { agent, userId, pageSize }, call) {
    const found = await read(client.memory.sessions({ ...call, agent, userId, pageSize }));
    return { sessions: { sessions: found.map(answers.session) } };
  },

  async updateSession(client, { session, updateMask }, call) {
    const changes = new Set(updateMask?.paths);
    const info = await client.session(session?.key).update({
      ...call,
      userId: changes.has("user_id") ? session?.userId : undefined,
      labels: changes.has("labels") ? session?.labels : undefined,
      ttlMs: changes.has("ttl") ? (milliseconds(session?.ttl) ?? FOREVER) : undefined,
      policy: changes.has("policy") ? policyFromProto(session?.policy) : undefined,
      etag: session?.etag || undefined,
    });
    return { session: answers.session(info) };
  },

  async clearHistory(client, { session, requestId }, call) {
    return { count: BigInt(await client.session(session).clear({ ...call, requestId: requestId || undefined })) };
  },

  async clearAgent(client, { agent }, call) {
    const { sessionCount, messageCount } = await client.memory.clearAgent(agent, call);
    return { clearedAgent: { clearedSessionCount: BigInt(sessionCount), clearedMessageCount: BigInt(messageCount) } };
  },

  async redactMessage(client, { session, by, reason }, call) {
    return { messages: answers.messages([await client.session(session).redact(messageName(by), { ...call, reason })]) };
  },

  async rewind(client, { session, toSeq, expectedLastSeq, requestId }, call) {
    const options = { ...call, expectedLastSeq, requestId: requestId || undefined };
    const { messageCount, openCallCount } = await client.session(session).rewind(toSeq ?? 0n, options);
    return { rewound: { removedMessageCount: BigInt(messageCount), openCallCount } };
  },

  async fork(client, { source, target, throughSeq, requestId }, call) {
    const options = { ...call, target: client.session(target), throughSeq, requestId: requestId || undefined };
    await client.session(source).fork(options);
    return { forked: {} };
  },

  async eraseUser(client, { userId }, call) {
    const erased = await client.memory.eraseUser(userId, call);
    return {
      erased: {
        erasedSessionCount: BigInt(erased.sessionCount),
        erasedMessageCount: BigInt(erased.messageCount),
        erasedLookupCount: BigInt(erased.lookupCount),
        erasedMemoryFileCount: BigInt(erased.memoryFileCount),
        erasedRunCount: BigInt(erased.runCount),
        erasedRunStepCount: BigInt(erased.runStepCount),
      },
    };
  },

  async openWatch(client, { name, request }) {
    const { resumeToken, afterSeq } = request ?? {};
    const watch = client.session(request?.session).watch({ resumeToken: resumeToken || undefined, afterSeq });
    client.watches.set(name, await watch.open());
    return { done: {} };
  },

  async nextEvents(client, { name, count }) {
    const watch = client.watches.get(name);
    const events = [];
    while (events.length < count) {
      const { value, done } = await watch.next();
      if (done === true) break;
      events.push(answers.watchEvent(value));
    }
    return { events: { events, resumeToken: watch.resumeToken } };
  },

  closeWatch(client, { name }) {
    client.watches.take(name).close();
    return Promise.resolve({ done: {} });
  },
};

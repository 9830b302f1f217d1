// Commands on windows and summaries.

import { OPEN_CALLS, OVERSIZE, WINDOW_MODE } from "../src/enums.js";
import * as answers from "./answers.js";
import { milliseconds } from "./givens.js";
import type { Operations } from "./operations.js";

export const WINDOWS: Operations<
  | "loadWindow"
  | "summarize"
  | "getSummary"
  | "listSummaries"
  | "revertSummary"
  | "leaseSummaryTask"
  | "commitSummary"
  | "abandonSummaryTask"
  | "summarizeWith"
> = {
  async loadWindow(client, { session, options, explain, summary, waitForSummary }, call) {
    const { mode, limit, pinSystem, startWithUser, openCalls, oversize } = options ?? {};
    const isTokens = WINDOW_MODE.known(mode ?? 0) === "tokens";
    const window = await client.session(session).window({
      ...call,
      ...(limit === undefined ? {} : { [isTokens ? "tokens" : "messages"]: limit }),
      pinSystem,
      startWithUser,
      openCalls: openCalls === undefined ? undefined : OPEN_CALLS.word(openCalls),
      oversize: oversize === undefined ? undefined : OVERSIZE.word(oversize),
      summary,
      waitForSummary,
      explain,
    });
    return { window: answers.window(window) };
  },

  async summarize(client, { session }, call) {
    const { summary, messageCount } = await client.session(session).summarize(call);
    const foldedMessageCount = BigInt(messageCount);
    return { summarized: { foldedMessageCount, ...(summary === undefined ? {} : { summary: answers.summary(summary) }) } };
  },

  async getSummary(client, { session, summaryId }, call) {
    const summary = await client.session(session).summary({ ...call, id: summaryId || undefined });
    return { summaries: { summaries: [answers.summary(summary)] } };
  },

  async listSummaries(client, { session }, call) {
    return { summaries: { summaries: (await client.session(session).summaries(call)).map(answers.summary) } };
  },

  async revertSummary(client, { session, summaryId }, call) {
    const summary = await client.session(session).revertSummary(summaryId, call);
    return { summaries: { summaries: summary === undefined ? [] : [answers.summary(summary)] } };
  },

  async leaseSummaryTask(client, { name, request }) {
    const options = { leaseMs: milliseconds(request?.leaseDuration), wait: false };
    const of = request?.of;
    const tasks =
      of?.case === "session"
        ? client.session(of.value).summaryTasks(options)
        : client.memory.summaryTasks(of?.value ?? "", options);
    // The loop gives up what its body has left: it stays in the body.
    const { value: task, done } = await tasks[Symbol.asyncIterator]().next();
    if (done === true) return {};
    client.tasks.set(name, task);
    return { summaryTask: answers.summaryTask(task) };
  },

  async commitSummary(client, { name, text, model }, call) {
    const summary = await client.tasks.get(name).commit(text, { ...call, model });
    return { summaries: { summaries: [answers.summary(summary)] } };
  },

  async abandonSummaryTask(client, { name, failed }, call) {
    await client.tasks.get(name).abandon({ ...call, failed });
    return { done: {} };
  },

  async summarizeWith(client, { of, answer, model }) {
    const options = { model, wait: false };
    const count =
      of.case === "session"
        ? await client.session(of.value).summarizeWith(() => answer, options)
        : await client.memory.summarizeWith(of.value ?? "", () => answer, options);
    return { count: BigInt(count) };
  },
};

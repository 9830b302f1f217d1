// The SDK's words and the numbers that the API has for them: `ROLE_USER` there is `"user"` here.

import { oneOf } from "./arguments.js";
import { ListOrder as ApiListOrder, MessageView as ApiMessageView, WatchEventKind as ApiWatchEventKind } from "./gen/memoryd/v1/history_service_pb.js";
import { MemoryStyle as ApiMemoryStyle, MemoryTierState } from "./gen/memoryd/v1/memory_context_service_pb.js";
import { Role as ApiRole } from "./gen/memoryd/v1/message_pb.js";
import { OpenCalls as ApiOpenCalls, Oversize as ApiOversize, Retention as ApiRetention, WindowMode as ApiWindowMode } from "./gen/memoryd/v1/policy_pb.js";
import { RunStatus as ApiRunStatus } from "./gen/memoryd/v1/run_service_pb.js";
import { Tokenizer as ApiTokenizer } from "./gen/memoryd/v1/session_pb.js";
import { LeftOutReason as ApiLeftOutReason, SummaryState as ApiSummaryState } from "./gen/memoryd/v1/window_service_pb.js";
import type { ListOrder, MessageView, WatchEventKind } from "./histories.js";
import type { MemoryStyle, TierState } from "./memories.js";
import type { Role } from "./messages.js";
import type { OpenCalls, Oversize, Retention, Tokenizer, WindowMode } from "./policies.js";
import type { RunStatus } from "./runs.js";
import type { LeftOutReason, SummaryState } from "./windows.js";

/** An enum of the API beside the words of the SDK. */
class Words<Word extends string, Numbers extends number> {
  private readonly numbers: ReadonlyMap<Word, Numbers>;
  private readonly words: ReadonlyMap<number, Word>;
  private readonly allowed: readonly Word[];

  constructor(api: Readonly<Record<string, string | number>>, words: Readonly<Record<Word, Numbers>>) {
    const entries = Object.entries(words) as [Word, Numbers][];
    this.numbers = new Map(entries);
    this.words = new Map(entries.map(([word, number]) => [number, word]));
    this.allowed = entries.map(([word]) => word).filter((word) => word !== "unspecified");
    for (const [word, number] of entries) {
      if (api[number] !== word.toUpperCase()) throw new Error(`${word} is not ${String(api[number])}`);
    }
  }

  /** The number of a word that a caller gave. RangeError says which there are. */
  number(word: Word, argument: string): Numbers {
    oneOf(word, argument, word === ("unspecified" as Word) ? [...this.numbers.keys()] : this.allowed);
    return this.numbers.get(word) as Numbers;
  }

  /** The word of a number; undefined for one that this SDK does not know. */
  known(number: number): Word | undefined {
    return this.words.get(number);
  }
}

class OpenWords<Word extends string, Numbers extends number> extends Words<Word | "unspecified", Numbers> {
  /** The word of a number; `unspecified` for one that this SDK does not know. */
  word(number: number): Word | "unspecified" {
    return this.known(number) ?? "unspecified";
  }
}

export const ROLE = new Words<Role, ApiRole>(ApiRole, {
  system: ApiRole.SYSTEM,
  developer: ApiRole.DEVELOPER,
  user: ApiRole.USER,
  assistant: ApiRole.ASSISTANT,
  tool: ApiRole.TOOL,
});
export const LIST_ORDER = new Words<ListOrder, ApiListOrder>(ApiListOrder, {
  ascending: ApiListOrder.ASCENDING,
  descending: ApiListOrder.DESCENDING,
});
export const MESSAGE_VIEW = new Words<MessageView, ApiMessageView>(ApiMessageView, {
  active: ApiMessageView.ACTIVE,
  all: ApiMessageView.ALL,
});
export const WATCH_EVENT_KIND = new OpenWords<WatchEventKind, ApiWatchEventKind>(ApiWatchEventKind, {
  unspecified: ApiWatchEventKind.UNSPECIFIED,
  appended: ApiWatchEventKind.APPENDED,
  summarized: ApiWatchEventKind.SUMMARIZED,
  redacted: ApiWatchEventKind.REDACTED,
  cleared: ApiWatchEventKind.CLEARED,
  rewound: ApiWatchEventKind.REWOUND,
  resync: ApiWatchEventKind.RESYNC,
});
export const TOKENIZER = new OpenWords<Tokenizer, ApiTokenizer>(ApiTokenizer, {
  unspecified: ApiTokenizer.UNSPECIFIED,
  o200k_base: ApiTokenizer.O200K_BASE,
  cl100k_base: ApiTokenizer.CL100K_BASE,
  estimate: ApiTokenizer.ESTIMATE,
});
export const WINDOW_MODE = new OpenWords<WindowMode, ApiWindowMode>(ApiWindowMode, {
  unspecified: ApiWindowMode.UNSPECIFIED,
  messages: ApiWindowMode.MESSAGES,
  tokens: ApiWindowMode.TOKENS,
});
export const OPEN_CALLS = new OpenWords<OpenCalls, ApiOpenCalls>(ApiOpenCalls, {
  unspecified: ApiOpenCalls.UNSPECIFIED,
  omit: ApiOpenCalls.OMIT,
  synthesize: ApiOpenCalls.SYNTHESIZE,
  keep: ApiOpenCalls.KEEP,
});
export const OVERSIZE = new OpenWords<Oversize, ApiOversize>(ApiOversize, {
  unspecified: ApiOversize.UNSPECIFIED,
  shorten: ApiOversize.SHORTEN,
  return: ApiOversize.RETURN,
  fail: ApiOversize.FAIL,
});
export const RETENTION = new OpenWords<Retention, ApiRetention>(ApiRetention, {
  unspecified: ApiRetention.UNSPECIFIED,
  keep: ApiRetention.KEEP,
  delete: ApiRetention.DELETE,
});
export const SUMMARY_STATE = new OpenWords<SummaryState, ApiSummaryState>(ApiSummaryState, {
  unspecified: ApiSummaryState.UNSPECIFIED,
  none: ApiSummaryState.NONE,
  current: ApiSummaryState.CURRENT,
  pending: ApiSummaryState.PENDING,
  failed: ApiSummaryState.FAILED,
});
export const LEFT_OUT_REASON = new OpenWords<LeftOutReason, ApiLeftOutReason>(ApiLeftOutReason, {
  unspecified: ApiLeftOutReason.UNSPECIFIED,
  limit: ApiLeftOutReason.LIMIT,
  orphan_result: ApiLeftOutReason.ORPHAN_RESULT,
  open_tool_call: ApiLeftOutReason.OPEN_TOOL_CALL,
});
export const MEMORY_STYLE = new Words<MemoryStyle, ApiMemoryStyle>(ApiMemoryStyle, {
  enclosed: ApiMemoryStyle.ENCLOSED,
  openhands: ApiMemoryStyle.OPENHANDS,
});
export const TIER_STATE = new OpenWords<TierState, MemoryTierState>(MemoryTierState, {
  unspecified: MemoryTierState.UNSPECIFIED,
  absent: MemoryTierState.ABSENT,
  empty: MemoryTierState.EMPTY,
  loaded: MemoryTierState.LOADED,
  truncated: MemoryTierState.TRUNCATED,
  unreadable: MemoryTierState.UNREADABLE,
});
export const RUN_STATUS = new OpenWords<RunStatus, ApiRunStatus>(ApiRunStatus, {
  unspecified: ApiRunStatus.UNSPECIFIED,
  running: ApiRunStatus.RUNNING,
  interrupted: ApiRunStatus.INTERRUPTED,
  awaiting_approval: ApiRunStatus.AWAITING_APPROVAL,
  awaiting_budget: ApiRunStatus.AWAITING_BUDGET,
  completed: ApiRunStatus.COMPLETED,
  blocked: ApiRunStatus.BLOCKED,
  failed: ApiRunStatus.FAILED,
  cancelled: ApiRunStatus.CANCELLED,
  timeout: ApiRunStatus.TIMEOUT,
  abandoned: ApiRunStatus.ABANDONED,
});

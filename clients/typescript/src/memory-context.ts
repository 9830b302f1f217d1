// The rendering of memory for a prompt.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { int32, type Integer, string } from "./arguments.js";
import { type CallOptions, callOptions, type Connection } from "./connection.js";
import { tierStatusFromProto } from "./decoding.js";
import { MEMORY_STYLE } from "./enums.js";
import { DeadlineExceededError, UnavailableError } from "./errors.js";
import {
  MemoryContextService,
  MemoryContextState,
  type MemorySourceSchema,
  MemoryTierState,
  RenderMemoryContextRequestSchema,
  type RenderMemoryContextResponse,
  RenderMemoryContextResponseSchema,
} from "./gen/memoryd/v1/memory_context_service_pb.js";
import type { MemoryStyle, TierStatus } from "./memories.js";
import {
  chosenTiers,
  type ProjectFiles,
  readFiles,
  type SourceReading,
  type StoredMemory,
  type TierName,
  type UserFiles,
} from "./memory-sources.js";
import { MemoryTools } from "./memory-tools.js";

/** Where memory is, and how it is rendered. */
export interface RenderContextOptions extends CallOptions {
  /** Both tiers from the store; or, tier by tier, */
  readonly stored?: StoredMemory | undefined;
  /** where the user tier is: `new UserFiles()` or `new StoredMemory({ user })`; without it nowhere, */
  readonly user?: UserFiles | StoredMemory | undefined;
  /** and the project tier: `new ProjectFiles(workspace)` or `new StoredMemory({ project })`. */
  readonly project?: ProjectFiles | StoredMemory | undefined;
  /**
   * The agent whose prompt it is for: without `loadMemory` in its settings, nothing is rendered. Without it, no agent is asked,
   * and the call itself is the opt-in.
   */
  readonly agent?: string | undefined;
  /** The most characters of headers, notices and memory together, 256 to 100,000; 6,000 by default. */
  readonly budget?: Integer | undefined;
  /** The form of the block: `enclosed` (the default) or `openhands`. */
  readonly style?: MemoryStyle | undefined;
}

/** Memory for a prompt. Made by `MemoryClient.renderContext`. */
export class MemoryContext {
  /** Whether memory was rendered: the agent uses it, and a server answered. There may be none yet. */
  readonly enabled: boolean;
  /** The block for the prompt; empty when no tier holds text. It is for a prompt alone: keep it out of logs. */
  readonly block: string;
  /** How to keep the memory, for the prompt; there even when no file exists yet. */
  readonly instructions: string;
  /** What became of the user tier. */
  readonly user: TierStatus;
  /** What became of the project tier. */
  readonly project: TierStatus;
  /** What went wrong on the way, a sentence each. The logger has them, too. */
  readonly warnings: readonly string[];
  /** The tools that the instructions name, where the store holds a tier; none where files are. */
  readonly tools: MemoryTools;

  /** @internal */
  constructor(response: RenderMemoryContextResponse, tools: MemoryTools) {
    this.enabled = response.state === MemoryContextState.ENABLED;
    this.block = response.block;
    this.instructions = response.instructions;
    this.user = tierStatusFromProto(response.user);
    this.project = tierStatusFromProto(response.project);
    this.warnings = [...response.warnings];
    this.tools = tools;
  }

  /** Block and instructions in one text, an empty line between them; empty when both are. */
  get prompt(): string {
    return [this.block, this.instructions].filter((text) => text !== "").join("\n\n");
  }
}

/** Renders memory, and logs what went wrong on the way. Without a server there is no memory, but no error either. */
export async function renderContext(connection: Connection, options: RenderContextOptions): Promise<MemoryContext> {
  const { metadata } = connection;
  const tiers = chosenTiers(options.stored, options.user, options.project);
  const agent = string(options.agent ?? "", "agent", "assistant");
  const style = MEMORY_STYLE.number(options.style ?? "enclosed", "style");
  const budget = int32(options.budget ?? 0, "budget", "256 to 100,000 characters");
  const call = callOptions(options);
  const sources: Partial<Record<TierName, MessageInitShape<typeof MemorySourceSchema>>> = {};
  const owners = new Map<TierName, string>();
  for (const [name, tier] of tiers) {
    if (typeof tier === "string") {
      owners.set(name, tier);
      sources[name] = { source: { case: "stored", value: tier } };
    }
  }
  const { readings, warnings } = await readFiles(tiers);
  for (const [name, reading] of readings) sources[name] = sourceToProto(reading);
  const request = create(RenderMemoryContextRequestSchema, { agent, budget, style, ...sources });
  let response: RenderMemoryContextResponse;
  try {
    const operation = connection.operation(call, metadata);
    response = await operation.call(MemoryContextService.method.renderMemoryContext, request);
    if (response.state === MemoryContextState.ENABLED) response.warnings.push(...warnings);
  } catch (error) {
    if (!(error instanceof UnavailableError || error instanceof DeadlineExceededError)) throw error;
    const unread = { state: MemoryTierState.UNREADABLE };
    response = create(RenderMemoryContextResponseSchema, {
      state: MemoryContextState.DISABLED,
      warnings: [`Memory could not be rendered, and the agent does without: ${error.message}`],
      ...(tiers.has("user") ? { user: unread } : {}),
      ...(tiers.has("project") ? { project: unread } : {}),
    });
  }
  if (response.warnings.length > 0) connection.target.logger.warn(response.warnings.join("; "));
  return new MemoryContext(response, new MemoryTools(connection, metadata, response.tools, owners, agent));
}

function sourceToProto({ label, content, unreadable }: SourceReading): MessageInitShape<typeof MemorySourceSchema> {
  if (unreadable) return { label, source: { case: "unreadable", value: unreadable } };
  if (content === undefined) return { label };
  return { label, source: { case: "data", value: content as Uint8Array<ArrayBuffer> } };
}

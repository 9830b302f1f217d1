// Commands on agents and stores.

import { policyFromProto } from "../src/decoding.js";
import { FOREVER } from "../src/index.js";
import type { Agent } from "../src/gen/memoryd/v1/agent_service_pb.js";
import * as answers from "./answers.js";
import { milliseconds, read } from "./givens.js";
import type { Operations } from "./operations.js";

export const AGENTS_AND_STORES: Operations<
  "getAgent" | "updateAgent" | "listAgents" | "getStore" | "listStores" | "switchStore" | "storeType"
> = {
  async getAgent(client, { agent }, call) {
    return { agent: answers.agent(await client.memory.agent(agent).info(call)) };
  },

  async updateAgent(client, { agent, updateMask }, call) {
    const changes = new Set(updateMask?.paths);
    const info = await client.memory.agent(agent?.agent ?? "").update({
      ...call,
      policy: changes.has("policy") ? policyFromProto(agent?.policy) : undefined,
      loadMemory: changes.has("load_memory") ? (agent?.loadMemory ?? false) : undefined,
      runRetentionMs: changes.has("run_retention") ? retention(agent) : undefined,
      etag: agent?.etag || undefined,
    });
    return { agent: answers.agent(info) };
  },

  async listAgents(client, { pageSize }, call) {
    return { agents: { agents: (await read(client.memory.agents({ ...call, pageSize }))).map(answers.agent) } };
  },

  async getStore(client, { name }, call) {
    return { stores: answers.stores(await client.memory.store({ ...call, name: name || undefined })) };
  },

  async listStores(client, _given, call) {
    return { stores: answers.stores(...(await client.memory.stores(call))) };
  },

  async switchStore(client, { name }, call) {
    return { stores: answers.stores(await client.memory.switchStore(name, call)) };
  },

  async storeType(client, _given, call) {
    return { text: await client.memory.storeType(call) };
  },
};

/** The API has no retention for the server's own, and 0 for one without end. */
function retention(agent: Agent | undefined): number | null {
  const given = milliseconds(agent?.runRetention);
  return given === undefined ? null : given === 0 ? FOREVER : given;
}

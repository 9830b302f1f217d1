// Commands on memory: rendered for a prompt, and the files that a store keeps.

import { MEMORY_STYLE } from "../src/enums.js";
import { ProjectFiles, StoredMemory, UserFiles } from "../src/index.js";
import * as answers from "./answers.js";
import { Format } from "./gen/tests/conformance/conformance_pb.js";
import { read } from "./givens.js";
import type { Operations } from "./operations.js";

export const MEMORY: Operations<
  | "renderMemory"
  | "toolDefinitions"
  | "callTool"
  | "getMemoryFile"
  | "putMemoryFile"
  | "listMemoryFiles"
  | "deleteMemoryFile"
  | "listMemoryFileVersions"
  | "addMemoryEntries"
  | "appendDailyLog"
> = {
  async renderMemory(client, { name, agent, user, project, budget, style }, call) {
    const [ofUser, ofProject] = [user?.source, project?.source];
    const context = await client.memory.renderContext({
      ...call,
      user:
        ofUser && (ofUser.case === "files" ? new UserFiles(ofUser.value) : new StoredMemory({ user: ofUser.value ?? "" })),
      project:
        ofProject &&
        (ofProject.case === "files"
          ? new ProjectFiles(ofProject.value)
          : new StoredMemory({ project: ofProject.value ?? "" })),
      agent,
      budget,
      style: MEMORY_STYLE.known(style),
    });
    client.contexts.set(name, context);
    return { rendered: answers.rendered(context) };
  },

  toolDefinitions(client, { name, format }) {
    const { tools } = client.contexts.get(name);
    return Promise.resolve({ json: JSON.stringify(format === Format.ANTHROPIC ? tools.anthropic() : tools.openai()) });
  },

  async callTool(client, { name, tool, arguments: args }, call) {
    return { text: await client.contexts.get(name).tools.call(tool, args, call) };
  },

  async getMemoryFile(client, { owner, name, version }, call) {
    const file = await client.files(owner).get(name, { ...call, version });
    return { memoryFile: { file: answers.memoryFile(file), content: new Uint8Array(file.content) } };
  },

  async putMemoryFile(client, { owner, name, content, author, etag, createOnly, allowSecrets, requestId }, call) {
    const info = await client.files(owner).put(content, {
      ...call,
      name,
      author,
      etag: etag || undefined,
      createOnly,
      allowSecrets,
      requestId: requestId || undefined,
    });
    return { memoryFiles: { files: [answers.memoryFile(info)] } };
  },

  async listMemoryFiles(client, { owner, pageSize }, call) {
    const found = await read(client.files(owner).list({ ...call, pageSize }));
    return { memoryFiles: { files: found.map(answers.memoryFile) } };
  },

  async deleteMemoryFile(client, { owner, name, etag }, call) {
    return { flag: await client.files(owner).delete(name, { ...call, etag: etag || undefined }) };
  },

  async listMemoryFileVersions(client, { owner, name }, call) {
    return { memoryFiles: { files: (await client.files(owner).versions(name, call)).map(answers.memoryFile) } };
  },

  async addMemoryEntries(client, { owner, entries, author, allowSecrets, requestId }, call) {
    const options = { ...call, author, allowSecrets, requestId: requestId || undefined };
    const { file, added, skipped } = await client.files(owner).add(entries, options);
    return { added: { file: answers.memoryFile(file), addedCount: added, skippedCount: skipped } };
  },

  async appendDailyLog(client, { owner, text, date, timeZone, author, allowSecrets, requestId }, call) {
    const info = await client.files(owner).log(text, {
      ...call,
      date: date || undefined,
      timeZone: timeZone || undefined,
      author,
      allowSecrets,
      requestId: requestId || undefined,
    });
    return { memoryFiles: { files: [answers.memoryFile(info)] } };
  },
};

// The memory files that a store keeps.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { int64, type Integer, kindOf, options as checked, string } from "./arguments.js";
import { type CallOptions, callOptions, type Connection, type Operation } from "./connection.js";
import { memoryFileInfoFromProto } from "./decoding.js";
import {
  AddMemoryEntriesRequestSchema,
  AppendDailyLogRequestSchema,
  DeleteMemoryFileRequestSchema,
  GetMemoryFileRequestSchema,
  ListMemoryFilesRequestSchema,
  ListMemoryFileVersionsRequestSchema,
  MemoryContextService,
  type MemoryOwnerSchema,
  PutMemoryFileRequestSchema,
} from "./gen/memoryd/v1/memory_context_service_pb.js";
import { type AddedEntries, MemoryFile, type MemoryFileInfo } from "./memories.js";
import { INDEX } from "./memory-sources.js";
import { items, type ListOptions } from "./paging.js";
import { marked } from "./session.js";
import { utf8Bytes } from "./utf8.js";

/** Who owns memory files: a user or a project. */
export type MemoryFilesOwner =
  | { readonly user: string; readonly project?: undefined }
  | { readonly project: string; readonly user?: undefined };

/** What every write of a memory file takes. */
export interface WriteMemoryOptions extends CallOptions {
  /** Who writes it, at most 256 bytes; told in the versions. */
  readonly author?: string | undefined;
  /** Store text in which credentials were found. */
  readonly allowSecrets?: boolean | undefined;
  /**
   * A mark of this request, at most 256 bytes: a repeat with it writes nothing, and the first answer comes again. Without one,
   * the SDK makes one for each call.
   */
  readonly requestId?: string | undefined;
}

/** What a put takes. */
export interface PutMemoryFileOptions extends WriteMemoryOptions {
  /** Which file; MEMORY.md by default. */
  readonly name?: string | undefined;
  /** Replace it only if it is still the one with this etag (from `get`, say), else EtagMismatchError. */
  readonly etag?: string | undefined;
  /** Make it only if there is none, else EtagMismatchError. Not together with an etag. */
  readonly createOnly?: boolean | undefined;
}

/** What an entry in a daily log takes. */
export interface LogMemoryOptions extends WriteMemoryOptions {
  /** The day, as `YYYY-MM-DD`; without it today in the time zone. */
  readonly date?: string | undefined;
  /** Which day is today, by the name of a zone such as `Europe/Berlin`; UTC by default. Not together with a date. */
  readonly timeZone?: string | undefined;
}

type Owner = MessageInitShape<typeof MemoryOwnerSchema>;

/** The owner of memory files, as the API has it. */
export function ownerToProto(owner: MemoryFilesOwner): Owner {
  const { user, project } = owner;
  if ((user === undefined) === (project === undefined)) {
    throw new TypeError("memory files have one owner: give either user or project");
  }
  return user === undefined
    ? { owner: { case: "projectId", value: string(project as string, "project", "atlas") } }
    : { owner: { case: "userId", value: string(user, "user", "ana") } };
}

/** What can be done to an owner's memory files, by an operation that is given. */
export const memoryFileCalls = {
  async get(operation: Operation, owner: Owner, name: string, version?: Integer): Promise<MemoryFile> {
    const request = create(GetMemoryFileRequestSchema, {
      owner,
      name: string(name, "name", INDEX),
      version: int64(version ?? 0, "version", "1 or more"),
    });
    const response = await operation.call(MemoryContextService.method.getMemoryFile, request);
    return new MemoryFile(memoryFileInfoFromProto(response.file), response.content);
  },

  async put(
    operation: Operation,
    owner: Owner,
    content: string | Uint8Array,
    options: PutMemoryFileOptions,
  ): Promise<MemoryFileInfo> {
    const bytes = content instanceof Uint8Array ? content : utf8Bytes(string(content, "content", "- prefers uv over pip"));
    const request = create(PutMemoryFileRequestSchema, {
      owner,
      name: string(options.name ?? INDEX, "name", INDEX),
      content: bytes as Uint8Array<ArrayBuffer>,
      etag: string(options.etag ?? "", "etag", "what a file's etag holds"),
      createOnly: options.createOnly ?? false,
      ...written(options),
    });
    const response = await operation.call(MemoryContextService.method.putMemoryFile, request);
    return memoryFileInfoFromProto(response.file);
  },

  async add(
    operation: Operation,
    owner: Owner,
    entries: string | readonly string[],
    options: WriteMemoryOptions,
  ): Promise<AddedEntries> {
    if (typeof entries !== "string" && !Array.isArray(entries)) {
      throw new TypeError(`entries is ${kindOf(entries)}; give one line, or an array of them`);
    }
    const lines = typeof entries === "string" ? [entries] : entries;
    const request = create(AddMemoryEntriesRequestSchema, {
      owner,
      entries: lines.map((line: string) => string(line, "an entry", "- prefers uv over pip")),
      ...written(options),
    });
    const response = await operation.call(MemoryContextService.method.addMemoryEntries, request);
    return {
      file: memoryFileInfoFromProto(response.file),
      added: response.addedCount,
      skipped: response.skippedCount,
    };
  },

  async log(operation: Operation, owner: Owner, text: string, options: LogMemoryOptions): Promise<MemoryFileInfo> {
    const request = create(AppendDailyLogRequestSchema, {
      owner,
      text: string(text, "text", "The API moved to cursor-based pagination."),
      date: string(options.date ?? "", "date", "2026-07-25"),
      timeZone: string(options.timeZone ?? "", "timeZone", "Europe/Berlin"),
      ...written(options),
    });
    const response = await operation.call(MemoryContextService.method.appendDailyLog, request);
    return memoryFileInfoFromProto(response.file);
  },

  async list(operation: Operation, owner: Owner, pageSize: number, pageToken: string): Promise<[MemoryFileInfo[], string]> {
    const request = create(ListMemoryFilesRequestSchema, { owner, pageSize, pageToken });
    const response = await operation.call(MemoryContextService.method.listMemoryFiles, request);
    return [response.files.map(memoryFileInfoFromProto), response.nextPageToken];
  },
};

function written(options: WriteMemoryOptions): { author: string; allowSecrets: boolean; requestId: string } {
  return {
    author: string(options.author ?? "", "author", "ana"),
    allowSecrets: options.allowSecrets ?? false,
    requestId: marked(options.requestId),
  };
}

/**
 * The memory files of one owner in the store. Made by `MemoryClient.files`; nothing of it needs to exist.
 *
 * A file is `MEMORY.md` (the index, which is rendered) or the log of a day, `YYYY-MM-DD.md`. Each write makes a new version, of
 * which the last 50 are kept.
 *
 * ```ts
 * const files = memory.files({ user: "ana" });
 * await files.add(["- prefers uv over pip", "- lives in Oslo"]);
 * await files.log("Moved the API to cursor-based pagination.", { timeZone: "Europe/Oslo" });
 * ```
 *
 * A text that holds a credential is SecretFoundError, with its line and kind, and not written; `allowSecrets` overrides that
 * where it is none. All writes but `delete` are tried again by themselves, and made once.
 */
export class MemoryFiles {
  /** The user whose files they are; undefined for those of a project. */
  readonly user: string | undefined;
  /** The project whose files they are; undefined for those of a user. */
  readonly project: string | undefined;
  readonly #connection: Connection;
  readonly #owner: Owner;

  /** @internal */
  constructor(connection: Connection, owner: MemoryFilesOwner) {
    this.#connection = connection;
    this.#owner = ownerToProto(owner);
    this.user = owner.user;
    this.project = owner.project;
  }

  /** Reads a file, as it is now or as it was at a version. MemoryFileNotFoundError without it. */
  async get(
    name: string = INDEX,
    options: CallOptions & { readonly version?: Integer | undefined } = {},
  ): Promise<MemoryFile> {
    return memoryFileCalls.get(this.#operation(options), this.#owner, name, checked(options).version);
  }

  /**
   * Replaces a file, or makes it. Nothing is written when it has this content already.
   *
   * @param content The whole file, at most 1 MiB. Bytes are kept as they are.
   */
  async put(content: string | Uint8Array, options: PutMemoryFileOptions = {}): Promise<MemoryFileInfo> {
    return memoryFileCalls.put(this.#operation(options), this.#owner, content, checked(options));
  }

  /** Lists the files: the index, then the newest logs. Reads page after page. */
  list(options: ListOptions = {}): AsyncGenerator<MemoryFileInfo, void, undefined> {
    return items(this.#connection, options, (operation, pageSize, pageToken) =>
      memoryFileCalls.list(operation, this.#owner, pageSize, pageToken),
    );
  }

  /** Lists the versions of a file that are kept, at most 50, newest first. MemoryFileNotFoundError without the file. */
  async versions(name: string = INDEX, options: CallOptions = {}): Promise<MemoryFileInfo[]> {
    const request = create(ListMemoryFileVersionsRequestSchema, {
      owner: this.#owner,
      name: string(name, "name", INDEX),
    });
    const response = await this.#operation(options).call(MemoryContextService.method.listMemoryFileVersions, request);
    return response.versions.map(memoryFileInfoFromProto);
  }

  /**
   * Deletes a file with all its versions, for good, and tells whether there was one. Not tried again by itself. With an etag
   * only if it is still the one that has it, else EtagMismatchError.
   */
  async delete(name: string, options: CallOptions & { readonly etag?: string | undefined } = {}): Promise<boolean> {
    const request = create(DeleteMemoryFileRequestSchema, {
      owner: this.#owner,
      name: string(name, "name", INDEX),
      etag: string(options.etag ?? "", "etag", "what a file's etag holds"),
    });
    const response = await this.#operation(options).call(MemoryContextService.method.deleteMemoryFile, request);
    return response.deleted;
  }

  /**
   * Adds lines at the end of the index, all or none, and makes it if there is none. Lines that it holds already are skipped.
   * Calls at once do not overwrite each other. MemoryFileFullError when it would be over 1 MiB.
   *
   * @param entries One line, or 1 to 256, as they shall stand in the file, each at most 4 KiB.
   */
  async add(entries: string | readonly string[], options: WriteMemoryOptions = {}): Promise<AddedEntries> {
    return memoryFileCalls.add(this.#operation(options), this.#owner, entries, checked(options));
  }

  /**
   * Adds text of any number of lines at the end of a daily log, and makes it if there is none; gives that file. Calls at once do
   * not overwrite each other. MemoryFileFullError when it would be over 1 MiB.
   */
  async log(text: string, options: LogMemoryOptions = {}): Promise<MemoryFileInfo> {
    return memoryFileCalls.log(this.#operation(options), this.#owner, text, checked(options));
  }

  toString(): string {
    return `MemoryFiles(${JSON.stringify(this.user === undefined ? { project: this.project } : { user: this.user })})`;
  }

  #operation(options: CallOptions): Operation {
    return this.#connection.operation(callOptions(options));
  }
}

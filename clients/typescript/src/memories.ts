// Memory: rendered for a prompt, and the files that a store keeps.

import { utf8Text } from "./utf8.js";

/**
 * The form of a rendered block.
 *
 * - `enclosed`: all memory stands inside UNTRUSTED_CONTENT, and a notice counts the lines that were left out.
 * - `openhands`: UNTRUSTED_CONTENT holds the warning alone, and memory follows it, as in OpenHands.
 */
export type MemoryStyle = "enclosed" | "openhands";

/**
 * What became of a tier.
 *
 * - `absent`: there is no file, or the tier is not used.
 * - `empty`: the file holds white space at most.
 * - `loaded`: all of it is in the block.
 * - `truncated`: a part of its lines is in the block.
 * - `unreadable`: it could not be read; a warning tells why.
 */
export type TierState = "unspecified" | "absent" | "empty" | "loaded" | "truncated" | "unreadable";

/** A tier in a rendered block. */
export interface TierStatus {
  readonly state: TierState;
  /** How many lines of it are in the block. */
  readonly keptLines: number;
  /** How many lines were left out: the oldest (top) ones, and those that no budget holds. */
  readonly droppedLines: number;
}

/** What is told of a memory file at one of its versions. */
export interface MemoryFileInfo {
  /** `MEMORY.md`, or `YYYY-MM-DD.md`. */
  readonly name: string;
  /** The number of the version, from 1. */
  readonly version: number;
  /** The mark of the content, for a conditional put or delete: equal contents have equal marks. */
  readonly etag: string;
  /** Bytes of the content. */
  readonly size: number;
  /** Who says to have written this version; empty when nobody said. */
  readonly author: string;
  /** When this version was written. */
  readonly createTime: Date;
}

/** A memory file with its content. */
export class MemoryFile implements MemoryFileInfo {
  readonly name: string;
  readonly version: number;
  readonly etag: string;
  readonly size: number;
  readonly author: string;
  readonly createTime: Date;
  /** The bytes, as they were put. */
  readonly content: Uint8Array;

  constructor(info: MemoryFileInfo, content: Uint8Array) {
    this.name = info.name;
    this.version = info.version;
    this.etag = info.etag;
    this.size = info.size;
    this.author = info.author;
    this.createTime = info.createTime;
    this.content = content;
  }

  /** The content as text: U+FFFD stands for bytes that are not UTF-8. */
  get text(): string {
    return utf8Text(this.content);
  }
}

/** What became of entries for an index. */
export interface AddedEntries {
  /** The index as it is now. */
  readonly file: MemoryFileInfo;
  /** How many were added. */
  readonly added: number;
  /** How many were in the index already, or came twice. */
  readonly skipped: number;
}

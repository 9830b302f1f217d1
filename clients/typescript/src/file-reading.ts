// Reading one file of a folder beneath a root: best effort, bounded, and never out of the folder.
//
// Whoever can write to a root (that of a cloned project, say) must not make the SDK read something else, wait, or run out of
// memory. So each part of the path is looked at before it is opened, from the folder that it is in, and no link is followed
// but by the SDK itself: that of a folder within the root, and that of the file within its folder, since not all that is in a
// project is for the model's eyes. Nor is one that appears in between: the file is unreadable then.

import { constants, existsSync, type Stats } from "node:fs";
import { type FileHandle, lstat, open, readlink, realpath, stat } from "node:fs/promises";
import { join, resolve, sep } from "node:path";

/** The most bytes of a memory file (a limit of the server). */
export const MAX_BYTES = 1_048_576;
/** Symbolic links that one path may lead over, as on Linux: more are a circle. */
const MOST_LINKS = 40;

const OUTSIDE = "a symbolic link leads out of its folder";
const LINKED_TWICE = "it is a symbolic link in a folder that is reached over one";
const CHANGED = "its symbolic links go in a circle, or change";

/** Where Linux shows the open files of a process: what is beneath an open folder is reached over it, wherever it is moved. */
const OPEN_FILES = "/proc/self/fd";
/** Linux's flag for a folder that is only walked through, and need not be readable. Node.js has no name for it. */
const O_PATH = 0o10000000;
const FOLDER = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0) | (constants.O_NONBLOCK ?? 0);
// O_NONBLOCK: a pipe that stands there all of a sudden has nobody wait for its writer.
const FILE = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0);

/** Why a file cannot be read, in a few words. */
class Unreadable extends Error {}

/** What became of a file. */
export interface FileReading {
  /** Its bytes; undefined when there is no such file, or `unreadable` says why it could not be read. */
  readonly content?: Uint8Array;
  readonly unreadable?: string;
  /** Which file it is, when it was read. */
  readonly status?: Stats;
}

/** Opens the file that the names lead to from a root. */
export type Opens = (root: string, names: readonly string[]) => Promise<FileHandle>;

/** Opens the file, folder by folder. */
export async function walked(root: string, names: readonly string[]): Promise<FileHandle> {
  const inner = names.slice(0, -1);
  const name = names.at(-1) as string;
  const top = await open(root, FOLDER | O_PATH);
  try {
    const [folder, isLinked] = await walk(top, root, inner, true, false);
    try {
      // Two links together would lead to any file: that of the folder makes any folder the file's own.
      const [file] = await walk(folder, join(root, ...inner), [name], !isLinked, true);
      return file;
    } finally {
      await folder.close();
    }
  } finally {
    await top.close();
  }
}

/**
 * Opens what the names lead to from an open folder, a folder or the file, and says whether links led there. No link is
 * followed out of that folder, whose path is only to know where in it an absolute link leads.
 */
async function walk(
  top: FileHandle,
  path: string,
  names: readonly string[],
  follows: boolean,
  isFile: boolean,
): Promise<[FileHandle, boolean]> {
  const left = [...names].reverse();
  const opened = [await openAt(top, ".", FOLDER | O_PATH)];
  let links = 0;
  try {
    for (let name = left.pop(); name !== undefined; name = left.pop()) {
      if (name === "..") {
        if (opened.length === 1) throw new Unreadable(OUTSIDE);
        await opened.pop()!.close();
        continue;
      }
      const folder = opened.at(-1)!;
      const status = await lstat(at(folder, name));
      if (status.isSymbolicLink()) {
        links += 1;
        if (!follows) throw new Unreadable(LINKED_TWICE);
        if (links > MOST_LINKS) throw new Unreadable(CHANGED);
        let target = await readlink(at(folder, name));
        if (target.startsWith("/")) {
          target = await inside(path, target);
          while (opened.length > 1) await opened.pop()!.close();
        }
        left.push(...target.split("/").filter((part) => part !== "" && part !== ".").reverse());
      } else if (left.length > 0 || !isFile) {
        opened.push(await openAt(folder, name, FOLDER | O_PATH | constants.O_NOFOLLOW));
      } else {
        checkKind(status);
        opened.push(await openAt(folder, name, FILE));
      }
    }
    return [opened.pop()!, links > 0];
  } finally {
    for (const handle of opened) await handle.close();
  }
}

function at(folder: FileHandle, name: string): string {
  return `${OPEN_FILES}/${folder.fd}/${name}`;
}

function openAt(folder: FileHandle, name: string, flags: number): Promise<FileHandle> {
  return open(at(folder, name), flags);
}

/** An absolute path, as it is to be walked from the folder. */
async function inside(folder: string, target: string): Promise<string> {
  for (const base of [resolve(folder), await realpath(folder)]) {
    const beginning = `${base.replace(/\/+$/, "")}/`;
    if (`${target}/`.startsWith(beginning)) return target.slice(beginning.length);
  }
  throw new Unreadable(OUTSIDE);
}

/** Opens the file where a platform cannot walk: what changes between look and opening is not noticed. */
export async function resolved(root: string, names: readonly string[]): Promise<FileHandle> {
  const inner = names.slice(0, -1);
  const name = names.at(-1) as string;
  const base = await realpath(root);
  const folder = await realpath(join(base, ...inner));
  const path = await realpath(join(folder, name));
  if (!isWithin(folder, base)) throw new Unreadable(OUTSIDE);
  if (folder !== join(base, ...inner) && path !== join(folder, name)) throw new Unreadable(LINKED_TWICE);
  if (!isWithin(path, folder)) throw new Unreadable(OUTSIDE);
  checkKind(await stat(path));
  return open(path, FILE);
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

const OPENS: Opens = process.platform === "linux" && existsSync(OPEN_FILES) ? walked : resolved;

/**
 * Reads a file of at most 1 MiB. The names lead to it from the root, and all but the last to its folder: over links that stay
 * in the root, which may be one itself. The file may be a link that stays in the folder, where no link led there.
 */
export async function readBeneath(root: string, names: readonly string[], opens: Opens = OPENS): Promise<FileReading> {
  try {
    const file = await opens(root, names);
    try {
      return await read(file);
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof Unreadable) return { unreadable: error.message };
    if (codeOf(error) === "ENOENT") return {};
    return { unreadable: reason(error) };
  }
}

async function read(file: FileHandle): Promise<FileReading> {
  const status = await file.stat();
  checkKind(status);
  checkSize(status.size);
  const buffer = new Uint8Array(MAX_BYTES + 1);
  let size = 0;
  while (size < buffer.length) {
    const { bytesRead } = await file.read(buffer, size, buffer.length - size, size);
    if (bytesRead === 0) break;
    size += bytesRead;
  }
  checkSize(size);
  return { content: buffer.slice(0, size), status };
}

function checkKind(status: Stats): void {
  if (!status.isFile()) throw new Unreadable(`it is ${kindOf(status)}, not a file`);
}

function kindOf(status: Stats): string {
  if (status.isDirectory()) return "a folder";
  if (status.isFIFO()) return "a pipe";
  if (status.isSocket()) return "a socket";
  return status.isCharacterDevice() || status.isBlockDevice() ? "a device" : "something else";
}

function checkSize(size: number): void {
  if (size > MAX_BYTES) throw new Unreadable(`it is larger than ${MAX_BYTES.toLocaleString("en-US")} bytes`);
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException | undefined)?.code ?? "";
}

function reason(error: unknown): string {
  switch (codeOf(error)) {
    case "ELOOP":
    case "EINVAL": // What was a link when it was looked at is none any more.
      return CHANGED;
    case "ENOTDIR":
      return "a part of its path is not a folder";
    case "EACCES":
    case "EPERM":
      return "it may not be read by this user";
    default:
      return codeOf(error) || (error as Error).message;
  }
}

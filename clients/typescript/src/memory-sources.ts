// Where memory is: in files of this machine, which the SDK reads itself, or in the store.

import type { Stats } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join, normalize, resolve, sep } from "node:path";

import { kindOf, string } from "./arguments.js";
import { readBeneath } from "./file-reading.js";
import { encodable } from "./json-text.js";
import { cutToBytes } from "./utf8.js";

/** The file of a tier that is rendered. */
export const INDEX = "MEMORY.md";
const HOME = ".openhands";
const MEMORY = "memory";
/** The longest path that a request carries (a limit of the server). */
const MOST_LABEL_BYTES = 4_096;
/** The longest reason that a request carries for what is unreadable (a limit of the server). */
const MOST_REASON_BYTES = 256;

/** The names of the tiers. */
export type TierName = "user" | "project";

/** An index as it was read from the disk. */
export interface SourceReading {
  /** Its path, as the model is to see it. */
  readonly label: string;
  /** undefined when there is no such file, or `unreadable` says why it could not be read. */
  readonly content?: Uint8Array | undefined;
  readonly unreadable?: string | undefined;
  /** Which file it is, when it was read. */
  readonly status?: Stats | undefined;
  /** Where it is, or would be, links resolved; undefined when that is not known. */
  readonly place?: string | undefined;
}

/**
 * The user tier in a folder of this machine, which holds MEMORY.md and daily logs.
 *
 * MEMORY.md is read each time that memory is rendered, and never written. The folder may be a symbolic link; one in it is
 * followed as long as it stays in it.
 */
export class UserFiles {
  /**
   * @param path The folder; `~` stands for the home folder. Without it: $OH_PERSISTENCE_DIR/memory where that is set, else
   * ~/.openhands/memory.
   */
  constructor(readonly path?: string | undefined) {
    if (path !== undefined) checkPath(path, "path", "~/.openhands/memory");
  }

  /** @internal Reads the index as it is now. */
  async read(): Promise<SourceReading> {
    const folder = withoutTilde(this.path ?? join(process.env["OH_PERSISTENCE_DIR"] || join("~", HOME), MEMORY));
    if (folder === undefined) {
      return { label: join("~", HOME, MEMORY, INDEX), unreadable: "the home folder is not known" };
    }
    return readSource(folder, [INDEX], withTilde(join(folder, INDEX)));
  }
}

/**
 * The project tier in a workspace of this machine: the folder `.openhands/memory` in it, which a team can commit.
 *
 * MEMORY.md is read each time that memory is rendered, and never written. The folder may be reached over symbolic links that
 * stay in the workspace, which may be one itself. MEMORY.md may be one that stays in the folder, where the folder is none:
 * whoever writes the repository must not choose which other file of the workspace the model is shown. A workspace that does not
 * exist is unreadable, and one without the folder has no memory yet.
 */
export class ProjectFiles {
  /** @param workspace The workspace's folder; `~` stands for the home folder. */
  constructor(readonly workspace: string) {
    checkPath(workspace, "workspace", ".");
  }

  /** @internal Reads the index as it is now. */
  async read(): Promise<SourceReading> {
    const names = [HOME, MEMORY, INDEX];
    const label = names.join("/");
    const workspace = withoutTilde(this.workspace);
    if (workspace === undefined) return { label, unreadable: "the home folder is not known" };
    const reading = await readSource(workspace, names, label);
    if (reading.content === undefined && reading.unreadable === undefined && !(await isFolder(workspace))) {
      return { label, unreadable: cutToBytes(`there is no folder ${withTilde(workspace)}`, MOST_REASON_BYTES) };
    }
    return reading;
  }
}

/** Memory that the client's store keeps: a user's, a project's, or both. */
export class StoredMemory {
  /** The user who owns the user tier. */
  readonly user: string | undefined;
  /** The project that owns the project tier. */
  readonly project: string | undefined;

  constructor(owners: { readonly user?: string | undefined; readonly project?: string | undefined }) {
    this.user = owners.user;
    this.project = owners.project;
    if (this.user === undefined && this.project === undefined) {
      throw new TypeError("whose memory? Give user or project, or both");
    }
    for (const [argument, owner, example] of [["user", this.user, "ana"], ["project", this.project, "atlas"]] as const) {
      if (owner !== undefined && !string(owner, argument, example)) {
        throw new RangeError(`${argument} is empty; give the id of a ${argument}, for example "${example}"`);
      }
    }
  }
}

/** Where a tier is: in files, or in the store, by its owner's id. */
export type Tier = UserFiles | ProjectFiles | string;

/** Where the tiers of a rendering are, as its arguments say; user first. */
export function chosenTiers(
  stored: StoredMemory | undefined,
  user: UserFiles | StoredMemory | undefined,
  project: ProjectFiles | StoredMemory | undefined,
): Map<TierName, Tier> {
  if (stored !== undefined && !(stored instanceof StoredMemory)) {
    throw new TypeError(`stored is ${kindOf(stored)}; give new StoredMemory(…), or user and project`);
  }
  const tiers = new Map<TierName, Tier>();
  for (const [name, given, files] of [["user", user, UserFiles], ["project", project, ProjectFiles]] as const) {
    const ofBoth = stored?.[name];
    if (given === undefined) {
      if (ofBoth !== undefined) tiers.set(name, ofBoth);
      continue;
    }
    if (ofBoth !== undefined) {
      throw new TypeError(`${name} memory has one place: give either stored with a ${name}, or ${name}`);
    }
    if (given instanceof StoredMemory) {
      const owner = given[name];
      if (owner === undefined) {
        throw new TypeError(`${name} is a StoredMemory without a ${name}; give new StoredMemory({ ${name}: … })`);
      }
      tiers.set(name, owner);
    } else if (given instanceof files) {
      tiers.set(name, given);
    } else {
      throw new TypeError(
        `${name} is ${kindOf(given)}; give new ${files.name}(…), new StoredMemory({ ${name}: … }) or nothing`,
      );
    }
  }
  return tiers;
}

/**
 * Reads the tiers that are files, and gives warnings. A file that is both tiers is the user tier alone: there is no reading of
 * the project tier then, for the agent is not to keep two memories in it.
 */
export async function readFiles(
  tiers: ReadonlyMap<TierName, Tier>,
): Promise<{ readings: Map<TierName, SourceReading>; warnings: string[] }> {
  const readings = new Map<TierName, SourceReading>();
  for (const [name, tier] of tiers) if (typeof tier !== "string") readings.set(name, await tier.read());
  const user = readings.get("user");
  const project = readings.get("project");
  if (user !== undefined && project !== undefined && isSameFile(user, project)) {
    readings.delete("project");
    return { readings, warnings: ["Project memory and user memory are one file: it is shown once, as user memory"] };
  }
  return { readings, warnings: [] };
}

/** Whether both are one file, by whatever way, or would be once it is made. */
function isSameFile(one: SourceReading, other: SourceReading): boolean {
  if (one.status !== undefined && other.status !== undefined) {
    return one.status.dev === other.status.dev && one.status.ino === other.status.ino;
  }
  return one.place !== undefined && one.place === other.place;
}

async function readSource(root: string, names: readonly string[], label: string): Promise<SourceReading> {
  const { content, unreadable, status } = await readBeneath(root, names);
  const place = await resolvedPlace(join(root, ...names));
  return { label, content, unreadable: unreadable && cutToBytes(unreadable, MOST_REASON_BYTES), status, place };
}

/** A path with its links resolved, as far as it exists. */
async function resolvedPlace(path: string): Promise<string | undefined> {
  try {
    const absolute = resolve(path);
    let folder = absolute;
    let rest = "";
    for (;;) {
      try {
        return join(await realpath(folder), rest);
      } catch (error) {
        const parent = resolve(folder, "..");
        if ((error as NodeJS.ErrnoException).code !== "ENOENT" || parent === folder) return undefined;
        rest = join(folder.slice(parent.length), rest);
        folder = parent;
      }
    }
  } catch {
    return undefined; // The working folder is gone.
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

function home(): string | undefined {
  try {
    return homedir() || undefined;
  } catch {
    return undefined;
  }
}

/** A path whose `~` is replaced by the home folder; undefined when that is not known. */
function withoutTilde(path: string): string | undefined {
  if (path !== "~" && !path.startsWith(`~${sep}`) && !path.startsWith("~/")) return path;
  const folder = home();
  return folder === undefined ? undefined : join(folder, path.slice(1));
}

/** A path from the root on, or from the home folder where it is in there, as text that a request can carry. */
function withTilde(path: string): string {
  let label: string;
  try {
    label = resolve(path);
  } catch {
    label = path; // The working folder is gone.
  }
  const folder = home();
  const beginning = folder === undefined ? undefined : normalize(`${folder}${sep}`);
  if (beginning !== undefined && label.startsWith(beginning)) label = `~${sep}${label.slice(beginning.length)}`;
  return cutToBytes(label.split(sep).join("/"), MOST_LABEL_BYTES);
}

function checkPath(path: string, argument: string, example: string): void {
  if (typeof path !== "string") {
    throw new TypeError(`${argument} is ${kindOf(path)}; give the path of a folder, such as "${example}"`);
  }
  if (path === "" || path.includes("\0") || !encodable(path)) {
    throw new RangeError(`${argument} is no path; give that of a folder, for example "${example}"`);
  }
}

// A client of the driver, and what commands gave a name.

import { durationMs } from "@bufbuild/protobuf/wkt";

import { MemoryClient, type MemoryContext, type MemoryFiles, type Session, type SummaryTask, type Watch } from "../src/index.js";
import type { MemoryOwner } from "../src/gen/memoryd/v1/memory_context_service_pb.js";
import type { SessionKey } from "../src/gen/memoryd/v1/session_pb.js";
import type { Connect } from "./gen/tests/conformance/conformance_pb.js";
import type { HeldRun } from "./held-run.js";
import { Fault } from "./operations.js";

/** Things of one kind that commands gave a name. */
class Named<Thing> {
  readonly #things = new Map<string, Thing>();

  constructor(private readonly kind: string) {}

  set(name: string, thing: Thing): void {
    this.#things.set(name, thing);
  }

  get(name: string): Thing {
    const thing = this.#things.get(name);
    if (thing === undefined) throw new Fault(`there is no ${this.kind} ${JSON.stringify(name)}`);
    return thing;
  }

  /** Gives a thing, whose name is free from then on. */
  take(name: string): Thing {
    const thing = this.get(name);
    this.#things.delete(name);
    return thing;
  }
}

export class DriverClient {
  readonly memory: MemoryClient;
  readonly address: string;
  readonly watches = new Named<Watch>("watch");
  readonly tasks = new Named<SummaryTask>("summary task");
  readonly contexts = new Named<MemoryContext>("rendered memory");
  readonly runs = new Named<HeldRun>("run");

  constructor(connect: Connect) {
    this.address = connect.address;
    this.memory = new MemoryClient(connect.address, {
      timeoutMs: connect.timeout && durationMs(connect.timeout),
      store: connect.store || undefined,
      token: connect.token || undefined,
      ca: connect.ca || undefined,
      allowTokenWithoutTls: connect.allowTokenWithoutTls,
    });
  }

  session(key: SessionKey | undefined): Session {
    return this.memory.session({ agent: key?.agent ?? "", id: key?.sessionId ?? "" });
  }

  files(of: MemoryOwner | undefined): MemoryFiles {
    const owner = of?.owner;
    return this.memory.files(owner?.case === "userId" ? { user: owner.value } : { project: owner?.value ?? "" });
  }
}

// A run whose work goes on until a command ends it.

import type { Run } from "../src/index.js";
import type { LeaveRun } from "./gen/tests/conformance/conformance_pb.js";

export class HeldRun {
  #work: Promise<void> = Promise.resolve();
  #end: () => void = () => {};
  #fail: (error: Error) => void = () => {};

  private constructor(
    readonly run: Run,
    private readonly stopping: AbortController,
  ) {}

  /**
   * Begins the work at a run, and waits until it has begun. Rejects with what keeps it from that.
   *
   * @param stopping Whose signal the run was made with.
   */
  static begin(run: Run, stopping: AbortController): Promise<HeldRun> {
    return new Promise((resolve, reject) => {
      const held = new HeldRun(run, stopping);
      held.#work = run.work(() => {
        resolve(held);
        return held.#body();
      });
      held.#work.catch(reject); // Once it has begun, whoever ends it is told.
    });
  }

  /** Ends the work. Rejects with what it rejects with, unless that is what the work itself ended with. */
  async leave(how: LeaveRun["how"]): Promise<void> {
    const error = new Error(how.case === "error" ? how.value : "");
    if (how.case === "cancelled") this.stopping.abort();
    else if (how.case === "error") this.#fail(error);
    else this.#end();
    try {
      await this.#work;
    } catch (failure) {
      if (failure !== error && failure !== this.stopping.signal.reason) throw failure;
    }
  }

  /** What a user would do: wait for something, as long as the run's signal lets it. */
  #body(): Promise<void> {
    const { signal } = this.run;
    return new Promise((resolve, reject) => {
      [this.#end, this.#fail] = [resolve, reject];
      const stop = (): void => reject(signal.reason as Error);
      if (signal.aborted) stop();
      else signal.addEventListener("abort", stop, { once: true });
    });
  }
}

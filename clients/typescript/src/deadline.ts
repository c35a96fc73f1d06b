/** The time that one operation has, with all its requests and transfers. */

import { setTimeout as delay } from "node:timers/promises";

import { deadlineError } from "./faults.js";

/** A deadline that aborts `signal` when it passes, or earlier when the caller's own signal does. `end` frees its timer. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #endsAt: number;
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | undefined;
  readonly #forward = () => this.#controller.abort(this.#caller?.reason);

  constructor(timeoutMs: number, caller?: AbortSignal) {
    this.#endsAt = performance.now() + timeoutMs;
    this.#timer = setTimeout(() => this.#controller.abort(deadlineError()), timeoutMs);
    this.#caller = caller;
    // Not `AbortSignal.any`: Node.js 20.0 lacks it, and it holds on to signals that live long.
    if (caller?.aborted) this.#forward();
    else caller?.addEventListener("abort", this.#forward, { once: true });
  }

  /** Aborted with the error that the operation ends with. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Milliseconds left; throws when there are none, or when the caller gave up. */
  remainingMs(): number {
    this.signal.throwIfAborted();
    const left = this.#endsAt - performance.now();
    if (left <= 0) throw deadlineError();
    return left;
  }

  /** Whether this many milliseconds are left. */
  allows(milliseconds: number): boolean {
    return performance.now() + milliseconds < this.#endsAt;
  }

  /** Waits; throws immediately when the deadline comes first. */
  async wait(milliseconds: number): Promise<void> {
    if (!this.allows(milliseconds)) throw deadlineError();
    try {
      await delay(milliseconds, undefined, { signal: this.signal });
    } catch (error) {
      // The timer reports an error of its own instead of the reason.
      this.signal.throwIfAborted();
      throw error;
    }
  }

  /** Frees the timer, and aborts what still runs. */
  cancel(): void {
    this.end();
    this.#controller.abort();
  }

  /** Frees the timer and the caller's signal. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#forward);
  }
}

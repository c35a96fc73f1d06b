/** The deadline of one operation, for all its requests and transfers. */

import { setTimeout as delay } from "node:timers/promises";

import { deadlineError } from "./faults.js";

/** Longest time of a timer of Node.js, about 24 days; a longer one would fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A deadline that aborts `signal` when it passes, or earlier when the caller's own signal does. `end` frees its timer.
 * */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #endsAt: number;
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | undefined;
  readonly #forward = () => this.#controller.abort(this.#caller?.reason);

  constructor(timeoutMs: number, caller?: AbortSignal) {
    this.#endsAt = performance.now() + timeoutMs;
    const timerMs = Math.min(timeoutMs, MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.#controller.abort(deadlineError()), timerMs);
    this.#caller = caller;
    // `AbortSignal.any` is not used: Node.js 20.0 lacks it, and it keeps references in signals with a long lifetime.
    if (caller?.aborted) this.#forward();
    else if (caller !== undefined) follow(caller, this.#forward);
  }

  /** Aborted with the error that the operation ends with. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Milliseconds until the deadline. Throws after it, or when the caller's signal was aborted. */
  remainingMs(): number {
    this.signal.throwIfAborted();
    const remaining = this.#endsAt - performance.now();
    if (remaining <= 0) throw deadlineError();
    return remaining;
  }

  /** Whether this number of milliseconds remains. */
  allows(milliseconds: number): boolean {
    return performance.now() + milliseconds < this.#endsAt;
  }

  /** Waits. Throws immediately if the deadline is earlier. */
  async wait(milliseconds: number): Promise<void> {
    if (!this.allows(milliseconds)) throw deadlineError();
    try {
      await delay(milliseconds, undefined, { signal: this.signal });
    } catch (error) {
      // The timer reports a separate error instead of the reason.
      this.signal.throwIfAborted();
      throw error;
    }
  }

  /** The result of a promise. Rejects earlier if the deadline passes or the caller's signal is aborted. */
  async race<Result>(promise: Promise<Result>): Promise<Result> {
    const { signal } = this;
    let abort = (): void => undefined;
    const aborted = new Promise<never>((_resolve, reject) => (abort = () => reject(signal.reason)));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    try {
      return await Promise.race([promise, aborted]);
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  /** Frees the timer, and aborts requests that still run. */
  cancel(): void {
    this.end();
    this.#controller.abort();
  }

  /** Frees the timer and the caller's signal. */
  end(): void {
    clearTimeout(this.#timer);
    if (this.#caller !== undefined) unfollow(this.#caller, this.#forward);
  }
}

/** What follows a signal, with the only listener of all of it. */
interface Followers {
  readonly forwards: Set<() => void>;
  readonly listener: () => void;
}

const FOLLOWERS = new WeakMap<AbortSignal, Followers>();

/** Calls `forward` when the signal is aborted. */
function follow(signal: AbortSignal, forward: () => void): void {
  let followers = FOLLOWERS.get(signal);
  if (followers === undefined) {
    const forwards = new Set<() => void>();
    followers = { forwards, listener: () => [...forwards].forEach((notify) => notify()) };
    FOLLOWERS.set(signal, followers);
    // With a listener for each operation, Node.js would warn of a leak at the eleventh.
    signal.addEventListener("abort", followers.listener, { once: true });
  }
  followers.forwards.add(forward);
}

function unfollow(signal: AbortSignal, forward: () => void): void {
  const followers = FOLLOWERS.get(signal);
  followers?.forwards.delete(forward);
  if (followers?.forwards.size !== 0) return;
  signal.removeEventListener("abort", followers.listener);
  FOLLOWERS.delete(signal);
}

/** The tool that sends files: what it remembers so that no file reaches a person twice, and no new version is held back. */

import { createHash, randomUUID } from "node:crypto";

import type { Dray } from "./client.js";
import { DeadlineError, DrayageError } from "./faults.js";
import type { DeliveredFile } from "./models.js";
import { TOOL_DEFINITIONS } from "./tool_definitions.js";
import { format, printable } from "./tool_texts.js";

const { texts: TEXTS } = TOOL_DEFINITIONS;
/** Most deliveries with an unknown outcome that are remembered. */
const MAX_UNCONFIRMED = 1_000;

/** A delivery that has ended, with its lines for the model. */
interface SentFiles {
  readonly duplicate: boolean;
  readonly files: readonly DeliveredFile[];
  readonly lines: readonly string[];
}

/** Sends files of a session's sandbox to its chat, and continues deliveries whose outcome is not known. */
export class FileSender {
  readonly #session: string;
  readonly #unconfirmed = new Map<string, string>();

  constructor(session: string) {
    this.#session = session;
  }

  /** Sends the files and returns the text for the model. After a call that ended without an outcome, the next call for the
   * same paths and message continues its delivery, and sends the files once more only if they have changed since. */
  async send(
    dray: Dray,
    { paths = [], message = "" }: { readonly paths?: string[]; readonly message?: string },
    callId = "",
  ): Promise<string> {
    const content = JSON.stringify([...paths, message]);
    const ownId = operationOf(this.#session, callId, content);
    // A delivery with an unknown outcome may have been accepted: the next call for the same files continues it.
    const operationId = this.#unconfirmed.get(content) ?? ownId;
    this.#unconfirmed.delete(content);
    const sent = await this.#deliver(dray, operationId, { paths, message });
    if (typeof sent === "string") return sent;
    if (!sent.duplicate) return sent.lines.join("\n");
    if (operationId === ownId) return [TEXTS.sent_before, ...sent.lines].join("\n");
    if (!(await this.#haveChanged(dray, operationId, content, sent.files))) return [TEXTS.sent_earlier, ...sent.lines].join("\n");
    const sentNow = await this.#deliver(dray, ownId, { paths, message });
    const lines = typeof sentNow === "string" ? [sentNow] : [TEXTS.sent_now, ...sentNow.lines];
    return [TEXTS.earlier_outcome, ...sent.lines, ...lines].join("\n");
  }

  /** Sends files and waits for the outcome; a text for the model if it is not known in time. Until it is known, the next call
   * for the same files continues the delivery. */
  async #deliver(
    dray: Dray,
    operationId: string,
    { paths, message }: { paths: string[]; message: string },
  ): Promise<string | SentFiles> {
    let isFinal = false;
    try {
      const delivery = await dray.withOptions({ operationId }).send(this.#session, { paths, message });
      const { files } = await delivery.outcome();
      isFinal = true;
      const lines = files.map((file) => `${printable(file.name)}: ${[file.state, file.error].join(" ").trim()}`);
      return { duplicate: delivery.duplicate, files, lines };
    } catch (error) {
      isFinal = error instanceof DrayageError && !error.fault.retryable;
      if (error instanceof DeadlineError) return format(TEXTS.in_progress, { delivery: operationId });
      throw error;
    } finally {
      // Also after a cancellation, which is not a fault.
      if (!isFinal) this.#remember(JSON.stringify([...paths, message]), operationId);
    }
  }

  /** Whether files of the sandbox differ from those that were delivered. */
  async #haveChanged(
    dray: Dray,
    operationId: string,
    content: string,
    files: readonly DeliveredFile[],
  ): Promise<boolean> {
    try {
      for (const file of files) if (await this.#hasChanged(dray, file)) return true;
      return files.length === 0;
    } catch (error) {
      // A cancelled call did not return the result of the delivery.
      this.#remember(content, operationId);
      throw error;
    }
  }

  /** Whether a file differs from the delivered one. False if a fault prevents the comparison, as for a directory or a file that
   * is gone: to send it then could repeat the delivery. */
  async #hasChanged(dray: Dray, { message }: DeliveredFile): Promise<boolean> {
    try {
      const { sha256 } = await dray.sessionSandbox(this.#session).get(message.path);
      return sha256 !== Buffer.from(message.sha256).toString("hex");
    } catch (error) {
      if (error instanceof DrayageError) return false;
      throw error;
    }
  }

  #remember(content: string, operationId: string): void {
    this.#unconfirmed.set(content, operationId);
    const [oldest] = this.#unconfirmed.keys();
    if (this.#unconfirmed.size > MAX_UNCONFIRMED && oldest !== undefined) this.#unconfirmed.delete(oldest);
  }
}

function operationOf(session: string, callId: string, content: string): string {
  if (callId === "") return randomUUID();
  const call = createHash("sha256").update(JSON.stringify([session, callId, content])).digest("hex");
  return `call-${call.slice(0, 48)}`;
}

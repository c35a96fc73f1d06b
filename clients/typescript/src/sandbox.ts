/** Files of one sandbox. */

import type { MessageInitShape } from "@bufbuild/protobuf";

import { cancellable } from "./cancellable.js";
import type { Deadline } from "./deadline.js";
import { CommandChunk, CommandEnd, CommandResult, Document, PlacedFile, SandboxEntry, SandboxFile, type SandboxListing } from "./models.js";
import { wrongType } from "./fields.js";
import { bytesOrClaimOf, type Operation, type Stored } from "./operation.js";
import { checkOptionNames, type OptionNames } from "./option_names.js";
import { byteCount, messageTime } from "./options.js";
import { READ_SETTINGS, type ReadSettings } from "./settings.js";
import { isLocalSource, type LocalSource } from "./sources.js";
import {
  type ExecSandboxRequestSchema,
  Reading,
  type ReadAttachmentRequestSchema,
  Sandboxes,
  type SandboxRef,
} from "./v1/index.js";
import { MAX_INLINE_BYTES } from "./v1/limits.js";

/** A path in a sandbox: text, or its bytes where they are not UTF-8. */
export type SandboxPath = string | Uint8Array;

/** Runs an operation of the client that the sandbox belongs to. */
export type OperationRunner = <Result>(body: (operation: Operation) => Promise<Result>) => Promise<Result>;

/** Directory, name and mode of a file in a sandbox. */
export interface PlaceSettings {
  /** Directory; `uploads` when unset. */
  readonly directory?: SandboxPath;
  /** File name; that of a local file or of a `File` when unset. Bytes, other blobs and streams need one. */
  readonly name?: string;
  /** What happens when the name is taken; `rename` when unset. */
  readonly collision?: "rename" | "fail" | "overwrite";
  /** Permission bits, such as `0o600`; the service's default when unset. */
  readonly mode?: number;
}

/** How a file is copied out of a sandbox. */
export interface GetSettings {
  /** Local path to which the file is written as well. */
  readonly to?: string;
  /** Most bytes; the operator's limit when unset. */
  readonly maxBytes?: number;
}

/** Standard input of a program: bytes, a stream, a file by its `file:` URL, or a stored file. A string is refused: it could
 * be the input itself or the path of a file. */
export type CommandInput = Exclude<LocalSource, string> | Stored;

/** How a program is run. */
export interface ExecSettings {
  /** Directory in the sandbox; its working directory when unset. */
  readonly directory?: SandboxPath;
  /** Variables in addition to those of the sandbox. */
  readonly environment?: Readonly<Record<string, string | Uint8Array>>;
  /** Standard input; empty when unset. */
  readonly stdin?: CommandInput;
  /** Most milliseconds that the program may run; the operator's limit when unset. */
  readonly timeoutMs?: number;
  /** Most bytes of standard output that are kept; the operator's limit when unset. */
  readonly maxOutputBytes?: number;
}

/** How a directory is listed. */
export interface ListSettings {
  /** Levels of directories; 1, the directory's own entries, when unset. */
  readonly depth?: number;
  /** Most entries; the service's limit when unset. */
  readonly limit?: number;
}

/** How a path is examined. */
export interface StatSettings {
  /** Whether a symbolic link is followed, which is the default. */
  readonly follow?: boolean;
}

/** How a path is removed. */
export interface RemoveSettings {
  /** Whether a directory is removed with its content. */
  readonly recursive?: boolean;
}

const GET_SETTINGS: OptionNames<GetSettings> = { to: true, maxBytes: true };
const PLACE_SETTINGS: OptionNames<PlaceSettings> = { directory: true, name: true, collision: true, mode: true };
const LIST_SETTINGS: OptionNames<ListSettings> = { depth: true, limit: true };
const STAT_SETTINGS: OptionNames<StatSettings> = { follow: true };
const REMOVE_SETTINGS: OptionNames<RemoveSettings> = { recursive: true };
const EXEC_SETTINGS: OptionNames<ExecSettings> = {
  directory: true,
  environment: true,
  stdin: true,
  timeoutMs: true,
  maxOutputBytes: true,
};

/** A sandbox by its address, or that of a session. */
export class Sandbox {
  readonly #run: OperationRunner;
  readonly #target: SandboxRef["sandbox"];

  /** Made by `Dray.sandbox` and `Dray.sessionSandbox`. */
  constructor(run: OperationRunner, target: SandboxRef["sandbox"]) {
    this.#run = run;
    this.#target = target;
  }

  /** Reads a document of the sandbox as Markdown. */
  read(path: SandboxPath, settings: ReadSettings = {}): Promise<Document> {
    const value = this.#pathFields(path);
    return this.#run((operation) => readDocument(operation, { source: { case: "sandbox", value } }, settings));
  }

  /** Copies a file into the store with proof, and with `to` also to a local path. */
  get(path: SandboxPath, settings: GetSettings = {}): Promise<SandboxFile> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, GET_SETTINGS);
      const maxBytes = byteCount("maxBytes", settings.maxBytes ?? 0);
      const reply = await operation.call(Sandboxes.method.get, { ...this.#pathFields(path), maxBytes });
      const file = new SandboxFile(reply);
      if (settings.to !== undefined && file.claim !== undefined) await operation.downloadFile(file.claim, settings.to);
      return file;
    });
  }

  /** Copies a local or a stored file into a directory, with proof. */
  put(source: LocalSource | Stored, settings: PlaceSettings = {}): Promise<PlacedFile> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, PLACE_SETTINGS);
      const hasName = typeof source === "string" || source instanceof URL || source instanceof File || !isLocalSource(source);
      if (!hasName && !settings.name) throw new TypeError("`name` must be given with bytes");
      const claim = await operation.claimFor(source, settings.name);
      const reply = await operation.call(Sandboxes.method.put, {
        sandbox: { sandbox: this.#target },
        claim,
        directory: pathBytes(settings.directory ?? ""),
        name: pathBytes(settings.name ?? ""),
        collision: settings.collision ?? "rename",
        mode: settings.mode ?? 0,
      });
      return new PlacedFile(reply);
    });
  }

  /** Lists a directory. */
  ls(path: SandboxPath = ".", settings: ListSettings = {}): Promise<SandboxListing> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, LIST_SETTINGS);
      const { depth = 1, limit = 0 } = settings;
      const reply = await operation.call(Sandboxes.method.list, { ...this.#pathFields(path), depth, limit });
      return { entries: reply.entries.map((entry) => new SandboxEntry(entry)), truncated: reply.truncated };
    });
  }

  /** The kind and the size of a path. */
  stat(path: SandboxPath, settings: StatSettings = {}): Promise<SandboxEntry> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, STAT_SETTINGS);
      const { follow = true } = settings;
      return new SandboxEntry(await operation.call(Sandboxes.method.stat, { ...this.#pathFields(path), follow }));
    });
  }

  /**
   * Runs a program without a shell, and waits for its end. The limits can only lower those of the operator; the
   * deadline of the request ends the program too. A program that fails is a result, not an error.
   */
  exec(argv: readonly SandboxPath[], settings: ExecSettings = {}): Promise<CommandResult> {
    return this.#run(async (operation) => {
      const reply = await operation.call(Sandboxes.method.exec, await this.#command(operation, argv, settings));
      return new CommandResult(reply, await operation.readOutput(reply.stdout), await operation.readOutput(reply.stderr));
    });
  }

  /**
   * Runs a program as `exec` does, and returns its outputs while it writes them: chunks, then one `CommandEnd`. A
   * program waits for a slow reader, and ends when its reader leaves the loop, or calls `return` while it is silent.
   */
  execStream(
    argv: readonly SandboxPath[],
    settings: ExecSettings = {},
  ): AsyncGenerator<CommandChunk | CommandEnd, void, undefined> {
    let deadline: Deadline | undefined;
    const events = this.#events(argv, settings, (started) => (deadline = started));
    return cancellable(events, () => deadline?.cancel());
  }

  async *#events(
    argv: readonly SandboxPath[],
    settings: ExecSettings,
    onStart: (deadline: Deadline) => void,
  ): AsyncGenerator<CommandChunk | CommandEnd, void, undefined> {
    const events = await this.#run(async (operation) => {
      onStart(operation.deadline);
      const command = await this.#command(operation, argv, settings);
      return operation.stream(Sandboxes.method.execStream, { command }, ({ event }) => event.case === "end");
    });
    for await (const { event } of events) {
      if (event.case === "end") yield new CommandEnd(event.value);
      else if (event.case !== undefined) yield new CommandChunk(event.case, event.value);
    }
  }

  /** Removes a file, or with `recursive` a directory with its content. */
  remove(path: SandboxPath, settings: RemoveSettings = {}): Promise<void> {
    return this.#run(async (operation) => {
      checkOptionNames("settings", settings, REMOVE_SETTINGS);
      const { recursive = false } = settings;
      await operation.callRemoving(Sandboxes.method.remove, { ...this.#pathFields(path), recursive });
    });
  }

  async #command(
    operation: Operation,
    argv: readonly SandboxPath[],
    settings: ExecSettings,
  ): Promise<MessageInitShape<typeof ExecSandboxRequestSchema>> {
    checkOptionNames("settings", settings, EXEC_SETTINGS);
    const { stdin = new Uint8Array(), environment = {} } = settings;
    if (typeof stdin === "string") {
      throw new TypeError("`stdin` is text: give its bytes (`Buffer.from(text)`), or the `file:` URL of a file");
    }
    const value = isLocalSource(stdin) ? stdin : bytesOrClaimOf(stdin);
    const isInline = value instanceof Uint8Array && value.byteLength <= MAX_INLINE_BYTES;
    const input = isInline
      ? { input: value }
      : { inputClaim: await operation.claimFor(stdin, isLocalSource(stdin) ? "stdin" : undefined) };
    return {
      sandbox: { sandbox: this.#target },
      argv: argumentList(argv).map(pathBytes),
      workingDirectory: pathBytes(settings.directory ?? ""),
      environment: Object.entries(environment).map(([name, value]) => ({ name, value: pathBytes(value) })),
      timeoutMs: BigInt(messageTime("timeoutMs", settings.timeoutMs ?? 0)),
      maxOutputBytes: byteCount("maxOutputBytes", settings.maxOutputBytes ?? 0),
      ...input,
    };
  }

  #pathFields(path: SandboxPath): { sandbox: { sandbox: SandboxRef["sandbox"] }; path: Uint8Array } {
    return { sandbox: { sandbox: this.#target }, path: pathBytes(path) };
  }
}

/** Reads a document as Markdown. */
export async function readDocument(
  operation: Operation,
  source: NonNullable<MessageInitShape<typeof ReadAttachmentRequestSchema>["source"]>,
  settings: ReadSettings,
): Promise<Document> {
  checkOptionNames("settings", settings, READ_SETTINGS);
  const reply = await operation.call(Reading.method.readAttachment, { ...settings, source });
  if (reply.output === undefined) throw new TypeError("the reply has no output");
  const bytes = await operation.readBytes(reply.output);
  return new Document(reply, Buffer.from(bytes).toString("utf8"));
}

function argumentList(argv: readonly SandboxPath[]): readonly SandboxPath[] {
  // A text has a length and indices too, and would be a program for each of its letters.
  if (!Array.isArray(argv)) throw new TypeError('`argv` is a list of words; for a line of a shell write ["sh", "-c", line]');
  return argv;
}

/** A path as bytes for a request. */
export function pathBytes(path: SandboxPath): Uint8Array {
  if (typeof path === "string") return Buffer.from(path, "utf8");
  if (!(path instanceof Uint8Array)) throw wrongType("path", "text or bytes", path);
  return path;
}

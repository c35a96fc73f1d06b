/** The tools that adapters offer: their names, their arguments, and the results that a model gets. They are those of
 * the Python client: names, schemas and texts are the same. */

import type { Dray } from "./client.js";
import { DrayageError } from "./faults.js";
import { FileSender } from "./file_sender.js";
import type { CommandResult, FetchedFile, PlacedFile } from "./models.js";
import type { Sandbox } from "./sandbox.js";
import { TOOL_DEFINITIONS } from "./tool_definitions.js";
import { format, printable } from "./tool_texts.js";

const { limits: LIMITS, texts: TEXTS } = TOOL_DEFINITIONS;
/** Time of a request in addition to the time of its program. */
const TRANSFER_MS = 30_000;
const HTTP_URL = /^https?:\/\//i;

/** The default tools of an adapter: all but `exec`, which the operator has to allow for the sandbox. */
export const DEFAULT_TOOLS: readonly ToolName[] = ["read", "list", "get", "put", "fetch", "send_file"];

/** The name of a tool. */
export type ToolName = "read" | "list" | "get" | "put" | "fetch" | "send_file" | "exec";

/** The selected tools, and their subject: a sandbox by its address (`docker:web`), or a session with its sandbox and
 * its chat. */
export interface ToolkitSettings {
  readonly sandbox?: string;
  readonly session?: string;
  /** `DEFAULT_TOOLS` when unset; `exec` has to be named. */
  readonly tools?: readonly ToolName[];
}

/** The description of a tool for a model. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: ParametersSchema;
}

interface ParametersSchema {
  readonly type: string;
  readonly properties: Readonly<Record<string, ValueSchema | undefined>>;
  readonly required?: readonly string[];
}

interface ValueSchema {
  readonly type: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
}

/** The id of the model's call, and a signal that ends it early. */
export interface ToolCallContext {
  readonly callId?: string;
  readonly signal?: AbortSignal | undefined;
}

// Arguments are checked against the schema before a tool gets them.
type Arguments = { [name: string]: string } & { paths?: string[]; argv?: string[]; timeout_seconds?: number };

/** A tool grants no rights: the credentials of the client and the policies of the operator decide. Failures are texts
 * for the model that name a remedy. */
export class Toolkit {
  readonly definitions: readonly ToolDefinition[];
  readonly #dray: Dray;
  readonly #settings: ToolkitSettings;
  readonly #sender: FileSender;

  constructor(dray: Dray, settings: ToolkitSettings) {
    const { sandbox, session, tools } = settings;
    if (!sandbox && !session) throw new TypeError("name a sandbox, such as `docker:web`, or a session");
    const known: readonly ToolDefinition[] = TOOL_DEFINITIONS.tools;
    const unknown = tools?.filter((name) => !known.some((tool) => tool.name === name)) ?? [];
    if (unknown.length > 0) throw new TypeError(`there are no tools ${unknown.join(", ")}`);
    if (tools?.includes("send_file") && !session) throw new TypeError("`send_file` needs a session, whose chat gets the files");
    const selected: readonly string[] = tools ?? DEFAULT_TOOLS;
    this.#dray = dray;
    this.#settings = settings;
    this.#sender = new FileSender(session ?? "");
    this.definitions = known.filter(({ name }) => selected.includes(name) && (session || name !== "send_file"));
  }

  /** Runs a tool and returns the text for the model. Files of a call that is repeated with the same id, after a crash
   * of the caller, are not sent again. */
  async call(name: string, input: unknown, context: ToolCallContext = {}): Promise<string> {
    const definition = this.definitions.find((tool) => tool.name === name);
    if (definition === undefined) throw new TypeError(`there is no tool ${name}`);
    if (typeof input !== "object" || input === null || Array.isArray(input)) return TEXTS.invalid_json;
    const problem = argumentProblem(definition.parameters, input);
    if (problem !== "") return problem;
    try {
      return await this.#run(name, input as Arguments, context);
    } catch (error) {
      if (!(error instanceof DrayageError) || context.signal?.aborted) throw error;
      return format(TEXTS.failed, { message: error.fault.message, advice: error.fault.advice }).trim();
    }
  }

  #run(name: string, values: Arguments, context: ToolCallContext): Promise<string> {
    const dray = context.signal === undefined ? this.#dray : this.#dray.withOptions({ signal: context.signal });
    switch (name) {
      case "read":
        return this.#read(dray, values);
      case "list":
        return this.#list(dray, values["path"] ?? ".");
      case "get":
        return this.#get(dray, values["path"] ?? "");
      case "put":
        return this.#put(dray, Buffer.from(values["content"] ?? "", "utf8"), values["name"] ?? "", values["directory"]);
      case "fetch":
        return this.#fetch(dray, values);
      case "exec":
        return this.#exec(dray, values);
      default:
        return this.#sender.send(dray, values, context.callId);
    }
  }

  #sandbox(dray: Dray): Sandbox {
    const { sandbox, session = "" } = this.#settings;
    return sandbox ? dray.sandbox(sandbox) : dray.sessionSandbox(session);
  }

  async #read(dray: Dray, { source = "", range = "", find = "" }: Arguments): Promise<string> {
    const reader = HTTP_URL.test(source) ? dray : this.#sandbox(dray);
    return (await reader.read(source, { range, find })).text;
  }

  async #list(dray: Dray, path: string): Promise<string> {
    const { entries, truncated } = await this.#sandbox(dray).ls(path, { limit: LIMITS.list_entries });
    const lines = entries.map((entry) => `${entry.kind} ${entry.size} ${printable(entry.path)}`);
    if (truncated) lines.push(TEXTS.more_entries);
    return lines.join("\n") || TEXTS.empty_directory;
  }

  async #get(dray: Dray, path: string): Promise<string> {
    const file = await this.#sandbox(dray).get(path, { maxBytes: LIMITS.get_bytes });
    const content = await dray.readBytes(file);
    try {
      return shortened(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content));
    } catch {
      return format(TEXTS.not_text, { size: file.size, sha256: file.sha256 });
    }
  }

  async #put(dray: Dray, content: Uint8Array | FetchedFile, name: string, directory = ""): Promise<string> {
    return placedText(await this.#sandbox(dray).put(content, { name, directory }));
  }

  async #fetch(dray: Dray, { url = "", directory = "" }: Arguments): Promise<string> {
    const fetched = await dray.fetch(url);
    return this.#put(dray, fetched, fetched.name || "download", directory);
  }

  async #exec(dray: Dray, { argv = [], directory = "", stdin = "", timeout_seconds }: Arguments): Promise<string> {
    const timeoutMs = (timeout_seconds ?? LIMITS.exec_seconds) * 1000;
    // The deadline of the request would end the program before its time.
    const sandbox = this.#sandbox(dray.withOptions({ timeoutMs: timeoutMs + TRANSFER_MS }));
    return commandText(await sandbox.exec(argv, { directory, stdin: Buffer.from(stdin, "utf8"), timeoutMs }));
  }
}

/** The problems of arguments, as a text for the model; empty without any. */
function argumentProblem(schema: ParametersSchema, values: object): string {
  const missing = (schema.required ?? []).filter((name) => !Object.hasOwn(values, name));
  const problems = missing.map((name) => [name, TEXTS.missing]);
  for (const [name, value] of Object.entries(values)) {
    const valueSchema = Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    const problem = valueSchema === undefined ? TEXTS.unknown : valueProblem(valueSchema, value);
    if (problem !== "") problems.push([name, problem]);
  }
  return problems.map(([parameter = "", problem = ""]) => format(TEXTS.invalid, { parameter, problem })).join("\n");
}

function valueProblem(schema: ValueSchema, value: unknown): string {
  const isWithin = (size: number, least = size, most = size) => (least <= size && size <= most ? "" : TEXTS.out_of_range);
  switch (schema.type) {
    case "integer":
      if (!Number.isSafeInteger(value)) return format(TEXTS.wrong_type, { type: "an integer" });
      return isWithin(value as number, schema.minimum, schema.maximum);
    case "string":
      if (!isText(value)) return format(TEXTS.wrong_type, { type: "a string" });
      return isWithin(value.length, schema.minLength);
    default:
      if (!Array.isArray(value) || !value.every(isText)) return format(TEXTS.wrong_type, { type: "a list of strings" });
      return isWithin(value.length, schema.minItems, schema.maxItems);
  }
}

/** Whether a value is a string of whole characters: JSON can hold halves of a surrogate pair. */
function isText(value: unknown): value is string {
  return typeof value === "string" && !/\p{Cs}/u.test(value);
}

function placedText(file: PlacedFile): string {
  return format(TEXTS.placed, { path: printable(file.path), size: file.size, sha256: file.sha256 });
}

function commandText(result: CommandResult): string {
  const seconds = Math.round(result.milliseconds / 1000);
  const parts = [format(TEXTS[result.state], { code: result.exitCode, signal: result.signal, seconds })];
  for (const [title, output] of [[TEXTS.stdout, result.stdout] as const, [TEXTS.stderr, result.stderr] as const]) {
    if (output.byteLength > 0) parts.push(title, shortened(Buffer.from(output).toString("utf8")));
  }
  if (result.truncated) parts.push(TEXTS.output_dropped);
  return parts.join("\n");
}

/** A text within the limit: its beginning and its end. */
function shortened(text: string): string {
  const half = LIMITS.text_characters / 2;
  const count = text.length - 2 * half;
  if (count <= 0) return text;
  // Half of a surrogate pair is not a character.
  const beginning = text.slice(0, half).replace(/[\ud800-\udbff]$/, "");
  return beginning + format(TEXTS.cut, { count }) + text.slice(-half).replace(/^[\udc00-\udfff]/, "");
}

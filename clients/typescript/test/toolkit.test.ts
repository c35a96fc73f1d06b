/** The tool `send_file` with deliveries whose outcome is not known in time. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";

import { Code } from "@connectrpc/connect";

import { Dray } from "../src/index.js";
import { Toolkit } from "../src/toolkit.js";
import { Deliveries, FaultCode, FileState, Sandboxes } from "../src/v1/index.js";
import { FakeEndpoint, refusal } from "./fakes.js";

const FILES = { paths: ["report.txt"] };
const SENT_EARLIER =
  "An earlier call, whose outcome was not known, sent these files; nothing was sent again. To send them once more, call the tool again.";

/** The sandbox of a session with its files, and a chat to which they are sent. */
class FakeChat {
  content = "version 1";
  /** Names of the files of each delivery. All have the same content. */
  names = ["report.txt"];
  /** Content of the file in each delivery, by the id of the operation. */
  readonly delivered = new Map<string, string>();
  /** Called before the reply to each request for an outcome, or for the file. */
  beforeOutcome: (signal: AbortSignal) => Promise<void> | void = () => undefined;
  beforeGet: (name: string) => void = () => undefined;

  async toolkit(t: TestContext, sandbox = ""): Promise<Toolkit> {
    const endpoint = await FakeEndpoint.serve((router) => {
      router.service(Deliveries, {
        sendFile: (_request, { requestHeader }) => {
          const deliveryId = requestHeader.get("dray-operation") ?? "";
          const duplicate = this.delivered.has(deliveryId);
          if (!duplicate) this.delivered.set(deliveryId, this.content);
          return { deliveryId, duplicate };
        },
        outcome: async ({ deliveryId }, { signal }) => {
          await this.beforeOutcome(signal);
          const sha256 = digestOf(this.delivered.get(deliveryId) ?? "");
          const files = this.names.map((name) => ({ path: Buffer.from(name), name, sha256, stateCode: FileState.COPIED }));
          return { deliveryId, finished: true, files };
        },
      });
      router.service(Sandboxes, {
        get: ({ path, sandbox: target }) => {
          assert.equal(target?.sandbox.case, "session");
          this.beforeGet(Buffer.from(path).toString());
          return { claim: { artifact: { sha256: digestOf(this.content) } } };
        },
      });
    });
    const dray = new Dray(endpoint.target, { tenant: "acme", plaintext: true, retry: { maxAttempts: 1 } });
    t.after(() => {
      dray.close();
      endpoint.stop();
    });
    return new Toolkit(dray, { session: "s", sandbox });
  }

  /** Sends the file with a call that is cancelled while its outcome is awaited. */
  async cancelledCall(toolkit: Toolkit, callId: string): Promise<void> {
    const controller = new AbortController();
    this.beforeOutcome = (signal) => {
      controller.abort(new Error("the user left"));
      return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    await assert.rejects(toolkit.call("send_file", FILES, { callId, signal: controller.signal }), /the user left/);
    this.beforeOutcome = () => undefined;
  }
}

function digestOf(content: string): Uint8Array {
  return createHash("sha256").update(content).digest();
}

test("a cancelled send is continued by the next call", async (t) => {
  const chat = new FakeChat();
  const toolkit = await chat.toolkit(t);
  await chat.cancelledCall(toolkit, "1");
  assert.equal(await toolkit.call("send_file", FILES, { callId: "2" }), `${SENT_EARLIER}\nreport.txt: copied`);
  assert.equal(chat.delivered.size, 1);
  // Its outcome was reported, so a further call is a delivery of its own.
  assert.equal(await toolkit.call("send_file", FILES, { callId: "3" }), "report.txt: copied");
  assert.equal(chat.delivered.size, 2);
});

test("a call that is made again with its id sends nothing again", async (t) => {
  const chat = new FakeChat();
  const toolkit = await chat.toolkit(t);
  await chat.cancelledCall(toolkit, "1");
  chat.content = "version 2";
  const text = await toolkit.call("send_file", FILES, { callId: "1" });
  assert.equal(text, "The same call sent these files before; nothing was sent again.\nreport.txt: copied");
  assert.deepEqual([...chat.delivered.values()], ["version 1"]);
});

test("a file that changed after an unknown outcome is sent", async (t) => {
  const chat = new FakeChat();
  const toolkit = await chat.toolkit(t);
  await chat.cancelledCall(toolkit, "1");
  chat.content = "version 2";
  assert.deepEqual((await toolkit.call("send_file", FILES, { callId: "2" })).split("\n"), [
    "An earlier call, whose outcome was not known, ended as follows:",
    "report.txt: copied",
    "The files have changed since then and were sent now:",
    "report.txt: copied",
  ]);
  assert.deepEqual([...chat.delivered.values()], ["version 1", "version 2"]);
});

test("a changed file of the session is sent although another one is gone", async (t) => {
  const chat = new FakeChat();
  chat.names = ["gone.txt", "report.txt"];
  // The tools for other files are for another sandbox.
  const toolkit = await chat.toolkit(t, "docker:other");
  await chat.cancelledCall(toolkit, "1");
  chat.content = "version 2";
  chat.beforeGet = (name) => {
    if (name === "gone.txt") throw refusal(Code.NotFound, { code: FaultCode.NOT_FOUND, message: "Missing." });
  };
  await toolkit.call("send_file", FILES, { callId: "2" });
  assert.deepEqual([...chat.delivered.values()], ["version 1", "version 2"]);
});

test("an earlier delivery is continued until its result was returned", async (t) => {
  const chat = new FakeChat();
  const toolkit = await chat.toolkit(t);
  await chat.cancelledCall(toolkit, "1");
  const controller = new AbortController();
  chat.beforeGet = () => {
    controller.abort(new Error("the user left"));
    throw refusal(Code.Unavailable, { code: FaultCode.UNAVAILABLE, message: "No engine.", retryable: true });
  };
  const cancelled = toolkit.call("send_file", FILES, { callId: "2", signal: controller.signal });
  await assert.rejects(cancelled, /the user left/);
  // Nothing is sent again if the present content is not known.
  chat.beforeGet = () => {
    throw refusal(Code.NotFound, { code: FaultCode.NOT_FOUND, message: "Missing." });
  };
  assert.equal(await toolkit.call("send_file", FILES, { callId: "3" }), `${SENT_EARLIER}\nreport.txt: copied`);
  assert.equal(chat.delivered.size, 1);
});

/** The installed client against the real services, over TLS with a token.
 *
 * The variable DRAYAGE_SCENARIO is JSON: target, ca (PEM file), token and other_token of another tenant, narrow_token with
 * the scope `dray.v1.Files`, box (a directory that is a local sandbox) and inbox (a directory for deliveries).
 */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";

import { clone } from "@bufbuild/protobuf";
import {
  CommandChunk,
  CommandEnd,
  DeadlineError,
  DeniedError,
  Dray,
  DrayageError,
  InvalidParameterError,
  NotFoundError,
  UnauthenticatedError,
  UnavailableError,
} from "@drayage/client";
import * as v1 from "@drayage/client/v1";

const SCENARIO = JSON.parse(process.env.DRAYAGE_SCENARIO ?? "{}") as Record<string, string>;
const { target = "", ca = "", token = "", other_token = "", narrow_token = "", box = "", inbox = "" } = SCENARIO;
const ADDRESS = `local:${box}`;
// The size is above that of a message and not a multiple of any chunk.
const LARGE = randomBytes(5 * 1024 * 1024 + 17);

function connect(t: TestContext, secret: string | undefined): Dray {
  const tls = { caCertificate: ca, serverName: "localhost" };
  const dray = new Dray(target, { ...(secret === undefined ? {} : { token: secret }), tls, timeoutMs: 120_000 });
  t.after(() => dray.close());
  return dray;
}

test("a large file is put into a sandbox and read back unchanged", async (t) => {
  const dray = connect(t, token);
  const [source, copy] = [join(dirname(box), "large-ts.bin"), join(dirname(box), "copy-ts.bin")];
  await writeFile(source, LARGE);
  const sandbox = dray.sandbox(ADDRESS);
  const placed = await sandbox.put(source, { directory: box });
  assert.ok((await readFile(join(box, "large-ts.bin"))).equals(LARGE));
  assert.deepEqual([placed.path, placed.size], [join(box, "large-ts.bin"), LARGE.byteLength]);
  assert.equal(Buffer.from(placed.receipt?.sha256 ?? []).toString("hex"), placed.sha256);
  const found = await sandbox.get("large-ts.bin", { to: copy });
  assert.ok((await readFile(copy)).equals(LARGE));
  assert.equal(found.sha256, placed.sha256);
  assert.ok(LARGE.equals(await dray.readBytes(found)));
  const entry = await sandbox.stat("large-ts.bin");
  assert.deepEqual([entry.kind, entry.size], ["file", LARGE.byteLength]);
  const { entries } = await sandbox.ls();
  assert.ok(entries.some(({ path }) => basename(path) === "large-ts.bin"));
  await sandbox.remove("large-ts.bin");
  await assert.rejects(sandbox.stat("large-ts.bin"), NotFoundError);
});

test("a program runs with its input and environment, and its failure is a result", async (t) => {
  const sandbox = connect(t, token).sandbox(ADDRESS);
  const script = 'cat | wc -c; printf %s "$NAME" >&2; exit 3';
  const stdin = new Uint8Array(100_000);
  const ran = await sandbox.exec(["sh", "-c", script], { stdin, environment: { NAME: "two words" } });
  assert.deepEqual([ran.state, ran.exitCode, ran.signal, ran.truncated], ["exited", 3, 0, false]);
  assert.equal(Buffer.from(ran.stdout).toString().trim(), "100000");
  assert.equal(Buffer.from(ran.stderr).toString(), "two words");
  const long = await sandbox.exec(["head", "-c", "200000", "/dev/zero"]);
  assert.equal(long.stdout.byteLength, 200_000);
  const slow = await sandbox.exec(["sh", "-c", "echo begun; sleep 60"], { timeoutMs: 1000 });
  assert.deepEqual([slow.state, slow.exitCode], ["timed_out", 137]);
  await assert.rejects(sandbox.exec(["no-such-program"]), NotFoundError);
});

test("outputs of a program are received while it runs", async (t) => {
  const sandbox = connect(t, token).sandbox(ADDRESS);
  // Each round waits for a file, which this test creates when it has the output of the round before.
  const script = `printf '\\377'; printf '\\376' >&2; for name in one two; do
    printf $name; printf $name >&2; until [ -e ts-$name ]; do sleep 0.02; done
  done; printf end; exit 3`;
  const found = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  const ends: CommandEnd[] = [];
  for await (const event of sandbox.execStream(["sh", "-c", script])) {
    assert.equal(ends.length, 0);
    if (event instanceof CommandEnd) {
      ends.push(event);
      continue;
    }
    found[event.output] = Buffer.concat([found[event.output], event.data]);
    for (const name of ["one", "two"]) {
      const isSeen = [found.stdout, found.stderr].every((output) => output.toString("latin1").endsWith(name));
      if (isSeen) await writeFile(join(box, `ts-${name}`), "");
    }
  }
  assert.deepEqual(found, { stdout: Buffer.from("\xffonetwoend", "latin1"), stderr: Buffer.from("\xfeonetwo", "latin1") });
  assert.deepEqual(ends.map(({ state, exitCode }) => [state, exitCode]), [["exited", 3]]);
  const missing = sandbox.execStream(["no-such-program"]);
  await assert.rejects(missing.next(), NotFoundError);
});

test("a program ends when its reader leaves the loop", async (t) => {
  const sandbox = connect(t, token).sandbox(ADDRESS);
  // Opens the connection, which has its own timers.
  await sandbox.exec(["true"]);
  const countTimers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const timersBefore = countTimers();
  let pid = "";
  for await (const event of sandbox.execStream(["sh", "-c", "echo $$; exec sleep 600"])) {
    assert.ok(event instanceof CommandChunk);
    pid = Buffer.from(event.data).toString().trim();
    break;
  }
  assert.ok(countTimers() <= timersBefore, "the timer of the deadline keeps the process running");
  const isRunning = async () => {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
    return stat !== "" && !stat.includes(") Z ");
  };
  const limitMs = Date.now() + 60_000;
  while (await isRunning()) {
    assert.ok(Date.now() < limitMs, "the program still runs");
    await new Promise(setImmediate);
  }
});

test("web streams are stored and read back", async (t) => {
  const dray = connect(t, token);
  const sandbox = dray.sandbox(ADDRESS);
  await assert.rejects(sandbox.put(new Blob([LARGE]).stream()), TypeError);
  const placed = await sandbox.put(new Blob([LARGE]).stream(), { name: "stream.bin" });
  const stream = await dray.open(await sandbox.get(placed.path));
  assert.ok(LARGE.equals(Buffer.from(await new Response(stream).arrayBuffer())));
});

test("arguments of every size are resolved", async (t) => {
  const dray = connect(t, token);
  const small = await dray.resolve({ text: "Grüße", number: 1 });
  assert.deepEqual(small.arguments, { text: "Grüße", number: 1 });
  assert.equal((await dray.resolve('{"n": 1e400}')).json, '{"n": 1e400}');
  const large = { text: "x".repeat(300_000) };
  assert.deepEqual((await dray.resolve(large)).arguments, large);
  await assert.rejects(dray.resolve({ note: "file:text::http://127.0.0.1/" }), (error) => {
    assert.ok(error instanceof InvalidParameterError);
    assert.equal(error.parameter, "note");
    assert.match(error.toolMessage, /Parameter note is invalid/);
    return true;
  });
});

test("a published tool call has one outcome", async (t) => {
  const dray = connect(t, token);
  const named = dray.withOptions({ operationId: "typescript-call-1" });
  const first = await named.publishToolCall("t", { text: "plain" }, { toolCallId: "c1" });
  const again = await named.publishToolCall("t", { text: "plain" }, { toolCallId: "c1" });
  assert.deepEqual([first.operationId, again.operationId], ["typescript-call-1", "typescript-call-1"]);
  assert.deepEqual([first.duplicate, again.duplicate], [false, true]);
  const outcome = await first.outcome({ timeoutMs: 60_000 });
  assert.deepEqual([outcome.toolCallId, outcome.arguments()], ["c1", { text: "plain" }]);
  assert.deepEqual((await named.toolCall("typescript-call-1").outcome()).arguments(), { text: "plain" });
  const work = await dray.publishToolCall("t", { note: "file:text::http://127.0.0.1/" });
  const rejected = await work.outcome({ timeoutMs: 60_000 });
  assert.equal(rejected.resolved, undefined);
  assert.match(rejected.toolMessage, /Parameter note is invalid/);
  assert.throws(() => rejected.arguments(), InvalidParameterError);
});

test("documents are read from the store", async (t) => {
  const dray = connect(t, token);
  const rows = Buffer.from("fruit,price\napple,3\n");
  const stored = await dray.store(rows, { name: "prices.csv", mediaType: "text/csv" });
  const document = await dray.read(stored, { name: "prices.csv" });
  assert.equal(document.errorCode, "");
  assert.match(document.text, /apple/);
});

test("internal addresses are refused with advice for the caller", async (t) => {
  await assert.rejects(connect(t, token).fetch("http://169.254.169.254/"), (error) => {
    assert.ok(error instanceof DeniedError);
    assert.deepEqual([error.fault.detail, error.fault.retryable], ["ssrf_blocked", false]);
    return true;
  });
});

test("files are sent to a chat and have receipts", async (t) => {
  const dray = connect(t, token);
  await writeFile(join(box, "report-ts.txt"), "done");
  await dray.bindSession("s-ts", { sandbox: ADDRESS, chat: `cli:${inbox}` });
  const stored = await dray.store(Buffer.from("stored"), { name: "stored-ts.txt" });
  const named = dray.withOptions({ operationId: "typescript-send-1" });
  const request = { paths: ["report-ts.txt"], files: [stored], message: "Here." };
  const delivery = await named.send("s-ts", request);
  assert.ok((await named.send("s-ts", request)).duplicate);
  const report = await delivery.outcome({ timeoutMs: 60_000 });
  assert.ok(report.success);
  assert.deepEqual(report.files.map(({ state }) => state), ["copied", "copied"]);
  assert.equal(await readFile(join(inbox, "stored-ts.txt"), "utf8"), "stored");
  const receipts = await dray.receipts({ session: "s-ts" });
  assert.ok(receipts.some(({ deliveryId }) => deliveryId === "typescript-send-1"));
});

test("files are uploaded and downloaded through tickets that can be listed and revoked", async (t) => {
  const dray = connect(t, token);
  await dray.bindSession("s-ts-tickets", { sandbox: ADDRESS });
  const issued = await dray.uploadTicket("s-ts-tickets", { maxBytes: 100, name: "in-ts.txt", to: { sandboxDirectory: "" } });
  const put = await fetch(issued.url, { method: "PUT", body: "through a ticket" });
  const { receipt } = (await put.json()) as { receipt: { path: string } };
  assert.equal(await readFile(receipt.path.replace("sandbox:", ""), "utf8"), "through a ticket");
  const used = await dray.ticket(issued.ticket.ticketId);
  assert.deepEqual([used.direction, used.state, used.maxBytes], ["upload", "complete", 100]);
  const out = await dray.downloadTicket("s-ts-tickets", await dray.store(Buffer.from("stored"), { name: "out-ts.txt" }));
  assert.equal(await (await fetch(out.url)).text(), "stored");
  const { ticket } = await dray.uploadTicket("s-ts-tickets");
  const listed = await dray.tickets("s-ts-tickets");
  assert.equal(listed.find(({ ticketId }) => ticketId === ticket.ticketId)?.state, "open");
  assert.equal((await dray.revokeTicket(ticket.ticketId)).state, "revoked");
  await assert.rejects(dray.revokeTicket(ticket.ticketId), NotFoundError);
  await assert.rejects(connect(t, other_token).ticket(used.ticketId), NotFoundError);
});

test("every method can be called with types", async (t) => {
  const probe = { sandbox: { sandbox: { case: "address", value: ADDRESS } } } as const;
  const reply = await connect(t, token).call(v1.Sandboxes.method.probe, probe);
  assert.equal(reply.handle?.backend, "local");
});

test("an unknown caller and a missing scope are refused", async (t) => {
  for (const secret of [undefined, "another-token"]) {
    await assert.rejects(connect(t, secret).resolve({}), (error) => {
      assert.ok(error instanceof UnauthenticatedError && error.fault.advice !== "");
      return true;
    });
  }
  const narrow = connect(t, narrow_token);
  assert.deepEqual((await narrow.resolve({ a: 1 })).arguments, { a: 1 });
  await assert.rejects(narrow.sandbox(ADDRESS).ls(), (error) => {
    assert.equal(error instanceof DeniedError && error.fault.detail, "missing_scope");
    return true;
  });
});

test("an endpoint with another certificate is not trusted", async (t) => {
  const dray = new Dray(target, { token, tls: { serverName: "localhost" } });
  t.after(() => dray.close());
  await assert.rejects(dray.resolve({}), (error) => {
    assert.equal(error instanceof UnavailableError && error.fault.detail, "untrusted_certificate");
    return true;
  });
});

test("another tenant reaches nothing of the first", async (t) => {
  const [dray, other] = [connect(t, token), connect(t, other_token)];
  const stored = await dray.store(Buffer.from("private"), { name: "private.txt" });
  const published = await dray.publishToolCall("t", { text: "private" });
  await published.outcome({ timeoutMs: 60_000 });
  await assert.rejects(other.readBytes(stored), DeniedError);
  await assert.rejects(other.sandbox(ADDRESS).ls(), DeniedError);
  // An operation of another tenant looks like one that has not ended.
  await assert.rejects(other.toolCall(published.operationId).outcome({ timeoutMs: 1_000 }), DeadlineError);
  const renamed = clone(v1.ClaimSchema, stored);
  if (renamed.artifact !== undefined) renamed.artifact.tenant = "other";
  await assert.rejects(dray.readBytes(renamed), DrayageError);
});

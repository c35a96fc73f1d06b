// Walks through the console in Chromium as a person does, and prints a report as JSON.
//
//     node walk.cjs SETTINGS.json
//
// The settings name the login URL, the session, the delivery and the dead letter to look for, and the directory for
// screenshots, if any. The walk requests actions of the test on standard error (`stop-bus`, `start-bus`, `stop-store`,
// `start-store`, `publish`, `flood`); the test writes a line to standard input when an action is done.
"use strict";
const crypto = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const { createRequire } = require("node:module");
// The packages are in the directory where this is started.
const load = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = load("playwright-core");
const { HtmlValidate } = load("html-validate");
const { surviveRestart, surviveStoreOutage } = require("./outages.cjs");
const axeSource = fs.readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");

const settings = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const WAIT_MS = 60_000;
const report = { findings: [], violations: [], failures: [], invalid: [], widths: {} };

/// Asks the test to do something, and waits until it is done.
async function ask(what) {
  process.stderr.write(`${what}\n`);
  await lines.next();
}

function check(condition, what) {
  if (!condition) report.failures.push(what);
}

/// Checks accessibility with axe.
async function checkAccessibility(page, name) {
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const finding of result.violations) {
    if (["serious", "critical"].includes(finding.impact)) {
      report.findings.push(`${name}: ${finding.id}: ${finding.nodes[0].html}`);
    }
  }
}

const validator = new HtmlValidate({ extends: ["html-validate:standard"] });

/// Checks the source of a page, as the console sends it, against the HTML standard.
async function validate(page, name, address) {
  const response = await page.request.get(address);
  const validation = await validator.validateString(await response.text());
  for (const result of validation.results) {
    for (const message of result.messages) {
      if (message.severity === 2) report.invalid.push(`${name}: ${message.ruleId}: ${message.message} (${message.selector})`);
    }
  }
}

async function screenshot(page, name, place = "h1") {
  if (settings.screenshots) {
    const size = page.viewportSize();
    // Small enough for the pages of the documentation.
    await page.setViewportSize({ width: 840, height: 400 });
    await page.locator(place).first().evaluate((element) => element.scrollIntoView());
    await page.screenshot({ path: path.join(settings.screenshots, `console-${name}.png`) });
    await page.setViewportSize(size);
  }
}

/// Opens every page at the width of a phone and of a screen, and in dark colours as at 400 % zoom of 1280 px (WCAG 2.2, 1.4.10):
/// no sideways scrolling, no serious finding of axe.
async function walkPages(page, base) {
  const pages = {
    live: "/live",
    deliveries: "/deliveries",
    operation: `/operations/${settings.delivery}`,
    letters: "/letters",
    letter: `/letters/${settings.letter}`,
    policy: "/policy",
    questions: "/questions",
    sandbox: `/sandboxes?session=${settings.session}`,
    files: "/files",
    playground: "/playground",
    replay: "/policy/replay",
    setup: "/setup",
  };
  for (const [name, place] of Object.entries(pages)) {
    await page.setViewportSize({ width: 400, height: 800 });
    await page.goto(base + place);
    report.widths[name] = await page.evaluate(() => document.documentElement.scrollWidth);
    await checkAccessibility(page, `${name} at 400 px`);
    await page.setViewportSize({ width: 320, height: 256 });
    await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    check(width <= 320, `${name} is ${width} wide on a screen of 320`);
    await checkAccessibility(page, `${name} in dark colours`);
    await page.emulateMedia({ colorScheme: null, reducedMotion: null });
    await page.setViewportSize({ width: 1200, height: 800 });
    await checkAccessibility(page, name);
    await validate(page, name, base + place);
    if (["operation", "live"].includes(name)) await screenshot(page, name);
  }
}

async function explainUrl(page, base) {
  await page.goto(`${base}/policy`);
  await page.getByLabel("URL, as an agent writes it").fill("http://127.0.0.1/private?key=5ec2e7");
  // With the keyboard alone: Enter sends the form.
  await page.keyboard.press("Enter");
  await page.waitForSelector("#verdict");
  report.verdict = await page.getAttribute("#verdict", "data-verdict");
  report.steps = await page.locator("#judgement tbody tr").count();
  check(!page.url().includes("5ec2e7"), "the judged URL is in the address of the page");
  await checkAccessibility(page, "judgement");
  await screenshot(page, "policy", "#verdict");
}

/// A question about a host, answered with the keyboard alone.
async function answerQuestion(page, base) {
  await page.goto(`${base}/questions`);
  await page.getByRole("button", { name: `Allow ${settings.asked}` }).press("Enter");
  await page.waitForSelector("#answered");
  report.answered = await page.textContent("#answered");
  await checkAccessibility(page, "answer");
}

/// The next page of a long list, with the keyboard alone. The links are those that work without the script.
async function turnPages(page, base) {
  await page.goto(`${base}/sandboxes?session=${settings.session}&path=many`);
  await page.getByRole("link", { name: "Next page" }).press("Enter");
  await page.waitForSelector("caption:has-text('501 to 600')");
  report.lastEntry = await page.locator("tbody tr").last().textContent();
  await checkAccessibility(page, "second page of a directory");
  await validate(page, "second page of a directory", page.url());
  check(await page.getByRole("link", { name: "Next page" }).count() === 0, "a directory has a page after its last one");
  await page.getByRole("link", { name: "First page" }).press("Enter");
  await page.waitForSelector("caption:has-text('1 to 500')");
  await page.goto(`${base}/deliveries`);
  const listed = [];
  const ids = () => page.locator("td[data-label=Delivery] > a").allTextContents();
  listed.push(...await ids());
  await page.getByRole("link", { name: "Next page" }).press("Enter");
  await page.waitForURL(/after=/);
  listed.push(...await ids());
  await checkAccessibility(page, "second page of deliveries");
  await validate(page, "second page of deliveries", page.url());
  report.listedDeliveries = new Set(listed).size;
}

/// A page on paper is dark on white, also for a person who prefers dark colours, and has no buttons.
async function printPage(page, base) {
  await page.goto(`${base}/deliveries`);
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  report.paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  check(!(await page.locator("nav").first().isVisible()), "the navigation is printed");
  await page.emulateMedia({ media: null, colorScheme: null });
}

async function dropFile(page, base) {
  await page.goto(`${base}/sandboxes?session=${settings.session}`);
  const transfer = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["dropped"], "dropped.txt", { type: "text/plain" }));
    return transfer;
  });
  await page.dispatchEvent("[data-drop]", "dragover", { dataTransfer: transfer });
  check(await page.locator("[data-drop][data-over]").count() === 1, "a file over the form is not shown");
  await page.dispatchEvent("[data-drop]", "drop", { dataTransfer: transfer });
  await page.waitForSelector("#placed", { timeout: WAIT_MS });
  report.placed = await page.textContent("#placed");
  await page.goto(`${base}/sandboxes?session=${settings.session}`);
  const download = page.waitForEvent("download", { timeout: WAIT_MS });
  await page.getByRole("button", { name: "dropped.txt", exact: true }).click();
  report.downloaded = fs.readFileSync(await (await download).path(), "utf8");
}

/// Sends a file of the sandbox to the session's chat, with the keyboard alone.
async function sendFile(page, base) {
  await page.goto(`${base}/sandboxes?session=${settings.session}`);
  await page.getByRole("link", { name: "Send report.txt" }).press("Enter");
  await page.getByLabel("Message beside the file").fill("From the console");
  await checkAccessibility(page, "send");
  await validate(page, "send", page.url());
  await page.getByRole("button", { name: /^Send to cli:/ }).press("Enter");
  await page.waitForURL(/\/operations\//);
  // The delivery continues on its own, and each service reports its part in an event of its own; a reload shows both.
  const isComplete = (text) => text.includes("copied") && text.includes("sandbox_send");
  while (!isComplete(report.sent = await page.textContent("main"))) await page.reload();
}

async function planRedrive(page, base) {
  await page.goto(`${base}/letters`);
  const letter = page.getByLabel(`Choose letter ${settings.letter}`);
  await page.getByLabel("Choose all letters of this page").press("Space");
  check(await letter.isChecked(), "a letter is not among all letters");
  await page.getByLabel("Choose all letters of this page").press("Space");
  check(!(await letter.isChecked()), "a letter stays chosen");
  await letter.check();
  await page.getByRole("button", { name: "Show what a restart would do" }).click();
  await page.waitForSelector("h1:has-text('What a restart would do')");
  report.plan = await page.textContent("main");
}

/// Checks accounts and backends of the running system, with the keyboard alone.
async function checkSetUp(page, base) {
  await page.goto(`${base}/setup`);
  await page.getByRole("button", { name: "Check accounts and backends" }).press("Enter");
  await page.waitForSelector("h1:has-text('Accounts and backends')");
  report.account = await page.textContent("[data-account^='cli/']");
  report.backend = await page.textContent("[data-backend=local]");
  await checkAccessibility(page, "checks");
  await page.setViewportSize({ width: 400, height: 800 });
  report.widths.checks = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.setViewportSize({ width: 1200, height: 800 });
  await screenshot(page, "checks");
}

/// From the list to a file, its holders, and its content.
async function openFile(page, base) {
  await page.goto(`${base}/files`);
  await page.getByLabel("SHA-256").fill(settings.digest);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#stored");
  report.holders = await page.textContent("main");
  await checkAccessibility(page, "file");
  await page.setViewportSize({ width: 400, height: 800 });
  report.widths.file = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.setViewportSize({ width: 1200, height: 800 });
  await screenshot(page, "file");
  const download = page.waitForEvent("download", { timeout: WAIT_MS });
  await page.getByRole("button", { name: "Download" }).click();
  report.content = fs.readFileSync(await (await download).path(), "utf8");
}

/// From the address bar to a page, with Tab and Enter alone.
async function useKeyboard(page, base) {
  await page.goto(`${base}/deliveries`);
  await page.keyboard.press("Tab");
  report.firstFocus = await page.evaluate(() => document.activeElement.textContent);
  for (let presses = 0; presses < 20; presses += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement.textContent) === "Set-up") break;
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector("h1:has-text('Set-up')");
}

const rowCount = (page) => page.locator("#live tbody tr").count();

async function watchLive(page, base) {
  await page.goto(`${base}/live?service=file-resolver`);
  await page.waitForSelector("#live-status:has-text('Live.')");
  const before = await rowCount(page);
  await ask("publish");
  await page.waitForFunction((count) => document.querySelectorAll("#live tbody tr").length > count, before, { timeout: WAIT_MS });
  await page.getByRole("button", { name: "Pause" }).press("Enter");
  await page.waitForSelector("#live-status:has-text('Paused')");
  const paused = await rowCount(page);
  await ask("publish");
  check(await rowCount(page) === paused, "a paused page grows");
  await page.getByRole("button", { name: "Pause" }).press("Enter");
  // Events of the pause arrive after it.
  await page.waitForFunction((count) => document.querySelectorAll("#live tbody tr").length > count, paused, { timeout: WAIT_MS });
  const ids = await page.locator("#live tbody tr").evaluateAll((rows) => rows.map((row) => Number(row.dataset.id)));
  check(new Set(ids).size === ids.length, "a row came twice");
  check(ids.every((id, index) => index === 0 || id < ids[index - 1]), "rows are out of order");
}

/// Many live pages in one browser: hidden ones keep no connection, of which a browser has six, and continue when they are shown.
async function openManyTabs(page, base) {
  const showAs = (tab, state) => tab.evaluate((value) => {
    Object.defineProperty(document, "visibilityState", { value, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
  const tabs = [];
  for (let count = 0; count < 8; count += 1) {
    const tab = await page.context().newPage();
    tab.setDefaultTimeout(WAIT_MS);
    tabs.push(tab);
    await tab.goto(`${base}/live?service=file-resolver`);
    await tab.waitForSelector("#live-status:has-text('Live.')");
    await showAs(tab, "hidden");
  }
  const [first] = tabs;
  const before = await rowCount(first);
  await ask("publish");
  await showAs(first, "visible");
  await first.waitForFunction((count) => document.querySelectorAll("#live tbody tr").length > count, before, { timeout: WAIT_MS });
  for (const tab of tabs) await tab.close();
}

/// A chat with the keyboard alone: an agent lists the sandbox and sends a file, and a second answer is cancelled.
async function chat(page, base) {
  const chatReport = {};
  await page.goto(`${base}/playground`);
  await page.locator("input[name=file]").setInputFiles({ name: "note.txt", mimeType: "text/plain", buffer: Buffer.from("a note") });
  await page.locator("textarea[name=message]").fill("Is the report ready?");
  await page.getByRole("button", { name: "Send" }).press("Enter");
  await page.waitForURL(/playground\/[0-9a-f]{32}$/);
  await page.waitForSelector("[data-ending]", { timeout: WAIT_MS });
  chatReport.ending = await page.getAttribute("[data-ending]", "data-ending");
  chatReport.stages = await page.locator("[data-stages] summary").allTextContents();
  chatReport.answer = await page.textContent("[data-text]");
  chatReport.files = await page.locator("[data-files] a").count();
  await page.locator("summary:has-text('The request as curl')").press("Enter");
  await page.waitForSelector("[data-copy]");
  chatReport.curl = await page.textContent("[data-copy]");
  await page.locator("[data-stages] summary").first().press("Enter");
  await checkAccessibility(page, "chat");
  await page.setViewportSize({ width: 400, height: 800 });
  report.widths.chat = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.setViewportSize({ width: 1200, height: 800 });
  await validate(page, "chat", page.url());
  await screenshot(page, "playground", ".turn");
  // A page that selects begins alone, to which the row of an end does not come.
  const begins = await page.context().newPage();
  begins.setDefaultTimeout(WAIT_MS);
  await begins.goto(`${base}/live?service=orchestrator&outcome=working`);
  await begins.waitForSelector("#live-status:has-text('Live.')");
  await page.locator("textarea[name=message]").fill("Go on for ever");
  await page.getByRole("button", { name: "Send" }).press("Enter");
  // Words are visible while the answer is not complete.
  await page.waitForFunction(() => document.querySelector("[data-answer] [data-text]")?.textContent.includes("word"), null, { timeout: WAIT_MS });
  await begins.waitForSelector("#live [data-no-end]");
  await page.getByRole("button", { name: "Cancel the answer" }).press("Enter");
  await begins.waitForFunction(() => !document.querySelector("#live [data-no-end]"), null, { timeout: WAIT_MS });
  chatReport.begins = await begins.locator("#live tbody tr").allTextContents();
  await begins.close();
  await page.waitForSelector("[data-ending=cancelled]", { timeout: WAIT_MS });
  chatReport.cancelled = await page.getAttribute("[data-ending]", "data-ending");
  await page.getByRole("button", { name: "End the conversation" }).press("Enter");
  await page.waitForURL(`${base}/playground`);
  // The file that was sent is one of `/v1/files`: its page says who keeps it.
  await page.goto(`${base}/files/${crypto.createHash("sha256").update("a note").digest("hex")}`);
  chatReport.holder = await page.textContent("#holders");
  await checkAccessibility(page, "file of a client");
  await validate(page, "file of a client", page.url());
  report.chat = chatReport;
}

/// The turns of the chat as rows, and the page of one with its timeline. The cancelled one is neither finished nor failed.
async function followTurn(page, base) {
  const turns = {};
  await page.goto(`${base}/live?service=orchestrator`);
  await page.waitForSelector("#live-status:has-text('Live.')");
  await page.waitForSelector("#live tbody tr:has-text('Turn of clerk was cancelled')");
  turns.marks = await page.locator("#live [data-no-end]").count();
  await checkAccessibility(page, "turns");
  const row = page.locator("#live tbody tr:has-text('Turn of clerk finished')").first();
  await row.getByRole("link").press("Enter");
  await page.waitForURL(/operations/);
  turns.record = await page.textContent("ol.steps");
  turns.timeline = await page.locator("table.events tbody tr").allTextContents();
  await checkAccessibility(page, "page of a turn");
  await page.setViewportSize({ width: 400, height: 800 });
  report.widths.turn = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.setViewportSize({ width: 1200, height: 800 });
  await validate(page, "page of a turn", page.url());
  report.turns = turns;
}

/// A policy that the browser sends, over the events that there are.
async function replayPolicy(page, base) {
  await page.goto(`${base}/policy/replay`);
  const policy = '[[role]]\nname = "all"\ntenants = ["*"]\n[[role.rule]]\nname = "files"\noutcome = "allow"\nhosts = ["files.example.org"]\n';
  await page.getByLabel("The second policy").fill(policy);
  await page.getByRole("button", { name: "Replay" }).press("Enter");
  await page.waitForSelector("#replay-result", { timeout: WAIT_MS });
  report.replay = await page.textContent("#replay");
  await checkAccessibility(page, "replay result");
  await screenshot(page, "replay", "#replay");
}

/// Memory of the page after a collection.
async function pageMemory(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.send("Performance.enable");
  const { metrics } = await session.send("Performance.getMetrics");
  await session.detach();
  return { heap: usedSize, nodes: metrics.find((metric) => metric.name === "Nodes").value };
}

/// Sends more events than the page shows, with a pause in between: each row must arrive once.
async function flood(page, base) {
  await page.goto(`${base}/live?service=file-resolver`);
  await page.waitForSelector("#live-status:has-text('Live.')");
  await page.evaluate(() => {
    window.rowIds = [];
    window.largestBatch = 0;
    const note = (node) => { if (node.dataset?.id && node.textContent.includes("flood")) window.rowIds.push(Number(node.dataset.id)); };
    // Observers run after each message, so the nodes of one run are those of one message.
    new MutationObserver((changes) => {
      const added = changes.reduce((count, change) => count + change.addedNodes.length, 0);
      window.largestBatch = Math.max(window.largestBatch, added);
      changes.forEach((change) => change.addedNodes.forEach(note));
    })
      .observe(document.querySelector("#live tbody"), { childList: true });
  });
  const rowsArrive = (count) =>
    page.waitForFunction((expected) => window.rowIds.length >= expected, count, { timeout: WAIT_MS });
  await ask("flood");
  await rowsArrive(settings.flood);
  const between = await pageMemory(page);
  await page.getByRole("button", { name: "Pause" }).press("Enter");
  await ask("flood");
  await page.getByRole("button", { name: "Pause" }).press("Enter");
  await rowsArrive(2 * settings.flood);
  const after = await pageMemory(page);
  const ids = await page.evaluate(() => window.rowIds);
  report.flood = {
    lost: 2 * settings.flood - new Set(ids).size + (ids.length - new Set(ids).size),
    rows: await rowCount(page),
    largestBatch: await page.evaluate(() => window.largestBatch),
    heapBetween: between.heap,
    heapAfter: after.heap,
    nodesBetween: between.nodes,
    nodesAfter: after.nodes,
  };
}

async function main() {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ],
  });
  try {
    const context = await browser.newContext({ acceptDownloads: true });
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    // The page's Content Security Policy does not apply to an init script, so the policy stays in force for the test.
    await page.addInitScript(axeSource);
    page.on("console", (message) => {
      if (message.text().includes("Content Security Policy")) report.violations.push(message.text());
    });
    page.on("pageerror", (error) => report.failures.push(`script: ${error}`));
    const base = new URL(settings.login).origin;
    await page.goto(settings.login);
    await page.waitForURL(`${base}/deliveries`);
    report.title = await page.title();
    report.delivery = await page.textContent("tbody");
    const cookies = await page.context().cookies();
    check(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"), "the cookie is open to scripts");
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    report.paintMs = paint ?? null;
    await walkPages(page, base);
    await explainUrl(page, base);
    await answerQuestion(page, base);
    await turnPages(page, base);
    await printPage(page, base);
    await dropFile(page, base);
    await sendFile(page, base);
    await checkSetUp(page, base);
    await openFile(page, base);
    await planRedrive(page, base);
    await useKeyboard(page, base);
    await chat(page, base);
    await followTurn(page, base);
    await replayPolicy(page, base);
    await watchLive(page, base);
    await openManyTabs(page, base);
    await flood(page, base);
    const walk = { page, base, ask, check, report, settings, rowCount, WAIT_MS };
    await surviveStoreOutage(walk);
    await surviveRestart(walk);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.waitForSelector("h1:has-text('Log in')");
    await page.goto(`${base}/deliveries`);
    check(await page.locator("h1:has-text('Log in')").count() === 1, "a logout leaves the session open");
  } finally {
    await browser.close();
  }
  console.log(JSON.stringify(report));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

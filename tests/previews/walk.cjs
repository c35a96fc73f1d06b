// Creates a preview in the console, opens it in Chromium, and prints a report as JSON.
//
//     node walk.cjs SETTINGS.json
//
// The settings name the login URL and the sandbox. The walk requests an action of the test on standard error
// (`change`); the test writes a line to standard input when the action is done.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const { createRequire } = require("node:module");
// The packages are in the directory where this is started.
const load = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = load("playwright-core");
const axeSource = fs.readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");

const settings = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const WAIT_MS = 30_000;
const report = { findings: [], failures: [], problems: [], referrers: [] };

async function ask(what) {
  process.stderr.write(`${what}\n`);
  await lines.next();
}

/// Whether the browser only says that it kept a page of the test from what it may not do.
function isExpected(text) {
  return /Content Security Policy|sandboxed|Blocked/.test(text);
}

function check(condition, what) {
  if (!condition) report.failures.push(what);
}

/// Checks accessibility with axe.
async function checkAccessibility(page, name) {
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], iframes: false }));
  for (const finding of result.violations) {
    if (["serious", "critical"].includes(finding.impact)) {
      report.findings.push(`${name}: ${finding.id}: ${finding.nodes[0].html}`);
    }
  }
}

/// Presses the button of the directory and returns the link that the console shows.
async function createPreview(page, base) {
  const directory = settings.path ? `&path=${encodeURIComponent(settings.path)}` : "";
  const place = `${base}/sandboxes?sandbox=${encodeURIComponent(settings.sandbox)}${directory}`;
  await page.goto(place);
  await checkAccessibility(page, "directory in the console");
  await page.getByRole("button", { name: "Preview this directory" }).click();
  await page.waitForSelector("#preview [data-preview]");
  await checkAccessibility(page, "new preview");
  const link = await page.getAttribute("#preview [data-preview]", "href");
  check(new URL(link).origin !== base, "the preview has the origin of the console");
  return { link, place };
}

async function watchPage(context, link, page) {
  await page.goto(link);
  await checkAccessibility(page, "listing");
  await page.getByRole("link", { name: "index.html" }).click();
  await page.waitForSelector("iframe#content");
  await checkAccessibility(page, "page in a frame");
  const frame = await (await page.waitForSelector("iframe#content")).contentFrame();
  await frame.waitForSelector("body[data-done]");
  report.tried = await frame.evaluate(() => window.tried);
  report.origin = await frame.evaluate(() => self.origin);
  report.color = await frame.evaluate(() => getComputedStyle(document.querySelector("h1")).color);
  check(await frame.evaluate(() => window.inline && window.plain), "a script of the page did not run");
  check(await frame.evaluate(() => document.querySelector("#pic").naturalWidth === 7), "the picture did not load");
  report.framed = page.frames().some((child) => child.url().includes("/deliveries"));
  await ask("change");
  const reloaded = await page.waitForSelector("iframe#content");
  const changed = await reloaded.contentFrame();
  await changed.waitForSelector("#version:has-text('second')", { timeout: WAIT_MS });
  report.version = await changed.textContent("#version");
}

/// A document is shown in a frame that runs no script, and its links open in the page around the frame. Scripts of this
/// program do not run in such a frame either, so requests, keys and addresses show what happens in it.
async function readDocument(page, link) {
  const picture = page.waitForResponse((response) => response.url().endsWith("/pic.svg"));
  await page.goto(`${link}report.md`);
  check((await picture).status() === 200, "the picture of the document did not load");
  check(await page.evaluate(() => window.ran === undefined), "the document ran something");
  await checkAccessibility(page, "document around");
  await page.focus("iframe#content");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${link}table.csv`);
  const table = await page.request.get(`${link}table.csv`.replace("/v/", "/d/"));
  report.table = await table.text();
  // The same page without its Content Security Policy, so that axe can run in it.
  await page.route("**/d/**", async (route) => {
    const response = await route.fetch();
    const headers = response.headers();
    delete headers["content-security-policy"];
    await route.fulfill({ response, headers });
  });
  await page.goto(`${link}report.md`.replace("/v/", "/d/"));
  check((await page.textContent("article")).includes("<script>top.ran = 1</script>"), "HTML is not shown as text");
  const hasNoScript = () => window.ran === undefined && !document.querySelector("article script");
  check(await page.evaluate(hasNoScript), "the page has a script");
  await checkAccessibility(page, "document");
  await page.unroute("**/d/**");
}

/// Seeks in a sound: the browser requests the end without the middle.
async function seekSound(page, link) {
  let start = 0;
  page.on("request", (request) => {
    const range = /bytes=(\d+)-/.exec(request.headers().range ?? "");
    if (range) start = Math.max(start, Number(range[1]));
  });
  await page.goto(`${link}sound.wav`);
  await page.waitForFunction(() => document.querySelector("audio").readyState > 0);
  report.position = await page.evaluate(() => new Promise((done) => {
    const sound = document.querySelector("audio");
    sound.addEventListener("seeked", () => done(sound.currentTime));
    sound.currentTime = 550;
  }));
  report.rangeStart = start;
  check(report.position > 500, `the position of the sound is ${report.position}`);
  await checkAccessibility(page, "sound");
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
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.addInitScript(axeSource);
    const base = new URL(settings.login).origin;
    await page.goto(settings.login);
    await page.waitForURL(`${base}/deliveries`);
    const { link, place } = await createPreview(page, base);
    report.token = new URL(link).pathname.split("/")[2];
    context.on("request", (request) => {
      const referrer = request.headers().referer ?? "";
      if (referrer.includes(report.token)) report.referrers.push(request.url());
    });
    const viewer = await context.newPage();
    viewer.setDefaultTimeout(WAIT_MS);
    await viewer.addInitScript(axeSource);
    // Errors of our pages themselves, such as a header that browsers do not know, or a file that is missing.
    viewer.on("console", (message) => {
      const isOfPage = message.location().url.includes("/p/");
      // The end of the walk opens a link that has ended.
      const isEnded = message.text().includes("404") && message.location().url.includes(report.token);
      if (["error", "warning"].includes(message.type()) && !isOfPage && !isEnded && !isExpected(message.text())) {
        report.problems.push(`${message.location().url.replace(report.token, "LINK")}: ${message.text()}`);
      }
    });
    await watchPage(context, link, viewer);
    await seekSound(viewer, link);
    await readDocument(viewer, link);
    await viewer.goto(`${link}notes.txt`);
    check((await viewer.textContent("pre")).includes("plain words"), "the text is not shown");
    await checkAccessibility(viewer, "text");
    // The console lists the preview as opened, and revokes it.
    await page.goto(place);
    check((await page.textContent("#previews")).includes("first opened"), "the preview is not listed as opened");
    await page.getByRole("button", { name: "End" }).click();
    await page.waitForSelector("#revoked");
    report.ended = (await viewer.goto(link)).status();
    await checkAccessibility(viewer, "ended");
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

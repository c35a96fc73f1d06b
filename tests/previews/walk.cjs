// Makes a preview in the console, looks at it in Chromium, and prints what it saw as JSON.
//
//     node walk.cjs SETTINGS.json
//
// The settings name the login URL and the sandbox. A line on standard input says that the test did what was asked on
// standard error (`change`).
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
const seen = { findings: [], failures: [], referrers: [] };

async function ask(what) {
  process.stderr.write(`${what}\n`);
  await lines.next();
}

function check(condition, what) {
  if (!condition) seen.failures.push(what);
}

async function judge(page, name) {
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], iframes: false }));
  for (const finding of result.violations) {
    if (["serious", "critical"].includes(finding.impact)) {
      seen.findings.push(`${name}: ${finding.id}: ${finding.nodes[0].html}`);
    }
  }
}

/// Presses the button of the directory and returns the link that the console shows.
async function makePreview(page, base) {
  const place = `${base}/sandboxes?sandbox=${encodeURIComponent(settings.sandbox)}`;
  await page.goto(place);
  await judge(page, "directory in the console");
  await page.getByRole("button", { name: "Preview this directory" }).click();
  await page.waitForSelector("#preview [data-preview]");
  await judge(page, "new preview");
  const link = await page.getAttribute("#preview [data-preview]", "href");
  check(new URL(link).origin !== base, "the preview has the origin of the console");
  return { link, place };
}

async function watchPage(context, link, page) {
  await page.goto(link);
  await judge(page, "listing");
  await page.getByRole("link", { name: "index.html" }).click();
  await page.waitForSelector("iframe#content");
  await judge(page, "page in a frame");
  const frame = await (await page.waitForSelector("iframe#content")).contentFrame();
  await frame.waitForSelector("body[data-done]");
  seen.tried = await frame.evaluate(() => window.tried);
  seen.origin = await frame.evaluate(() => self.origin);
  seen.color = await frame.evaluate(() => getComputedStyle(document.querySelector("h1")).color);
  check(await frame.evaluate(() => window.inline && window.plain), "a script of the page did not run");
  check(await frame.evaluate(() => document.querySelector("#pic").naturalWidth === 7), "the picture did not load");
  seen.framed = page.frames().some((child) => child.url().includes("/deliveries"));
  await ask("change");
  const reloaded = await page.waitForSelector("iframe#content");
  const changed = await reloaded.contentFrame();
  await changed.waitForSelector("#version:has-text('second')", { timeout: WAIT_MS });
  seen.version = await changed.textContent("#version");
}

/// A document is a page in a frame that runs nothing, and its links lead through the page around it. Scripts of this
/// program do not run in such a frame either, so it is watched from outside: by requests, keys and addresses.
async function readDocument(page, link) {
  const picture = page.waitForResponse((response) => response.url().endsWith("/pic.svg"));
  await page.goto(`${link}report.md`);
  check((await picture).status() === 200, "the picture of the document did not load");
  check(await page.evaluate(() => window.ran === undefined), "the document ran something");
  await judge(page, "document around");
  await page.focus("iframe#content");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${link}table.csv`);
  const table = await page.request.get(`${link}table.csv`.replace("/v/", "/d/"));
  seen.table = await table.text();
  // The same page with scripts allowed, for the rules of axe.
  await page.route("**/d/**", async (route) => {
    const response = await route.fetch();
    const headers = response.headers();
    delete headers["content-security-policy"];
    await route.fulfill({ response, headers });
  });
  await page.goto(`${link}report.md`.replace("/v/", "/d/"));
  check((await page.textContent("article")).includes("<script>top.ran = 1</script>"), "HTML is not shown as text");
  check(await page.evaluate(() => window.ran === undefined && !document.querySelector("article script")), "code is left");
  await judge(page, "document");
  await page.unroute("**/d/**");
}

/// Winds a sound: the browser asks for the end without the middle.
async function windSound(page, link) {
  let start = 0;
  page.on("request", (request) => {
    const range = /bytes=(\d+)-/.exec(request.headers().range ?? "");
    if (range) start = Math.max(start, Number(range[1]));
  });
  await page.goto(`${link}sound.wav`);
  await page.waitForFunction(() => document.querySelector("audio").readyState > 0);
  seen.position = await page.evaluate(() => new Promise((done) => {
    const sound = document.querySelector("audio");
    sound.addEventListener("seeked", () => done(sound.currentTime));
    sound.currentTime = 550;
  }));
  seen.rangeStart = start;
  check(seen.position > 500, `the sound stands at ${seen.position}`);
  await judge(page, "sound");
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
    const { link, place } = await makePreview(page, base);
    seen.token = new URL(link).pathname.split("/")[2];
    context.on("request", (request) => {
      const referrer = request.headers().referer ?? "";
      if (referrer.includes(seen.token)) seen.referrers.push(request.url());
    });
    const viewer = await context.newPage();
    viewer.setDefaultTimeout(WAIT_MS);
    await viewer.addInitScript(axeSource);
    await watchPage(context, link, viewer);
    await windSound(viewer, link);
    await readDocument(viewer, link);
    await viewer.goto(`${link}notes.txt`);
    check((await viewer.textContent("pre")).includes("plain words"), "the text is not shown");
    await judge(viewer, "text");
    // The console lists it as opened, and ends it.
    await page.goto(place);
    check((await page.textContent("#previews")).includes("first opened"), "the look is not recorded");
    await page.getByRole("button", { name: "End" }).click();
    await page.waitForSelector("#revoked");
    seen.ended = (await viewer.goto(link)).status();
    await judge(viewer, "ended");
  } finally {
    await browser.close();
  }
  console.log(JSON.stringify(seen));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

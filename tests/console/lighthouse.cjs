// Runs Lighthouse on pages of the console, and prints the scores of each page as JSON; findings go to standard error.
//
//     node lighthouse.cjs SETTINGS.json
//
// The settings name the login URL, the paths of the pages, the categories, and a directory for the profile of the browser.
"use strict";
const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");
const { createRequire } = require("node:module");
// The packages are in the directory where this is started.
const load = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = load("playwright-core");

const settings = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const WAIT_MS = 60_000;
/// The pages keep a stream of events open, so the network is never silent for long.
const QUIET_MS = 200;

/// A free port, on which the browser will accept the commands of Lighthouse.
function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/// The scores of a page by category, from 0 to 1.
async function judge(lighthouse, address, port) {
  const { lhr } = await lighthouse(address, {
    port,
    output: "json",
    logLevel: "error",
    onlyCategories: settings.categories,
    // The cookie of the login is in the storage.
    disableStorageReset: true,
    pauseAfterFcpMs: QUIET_MS,
    pauseAfterLoadMs: QUIET_MS,
    networkQuietThresholdMs: QUIET_MS,
    cpuQuietThresholdMs: QUIET_MS,
  });
  if (lhr.runtimeError) throw new Error(`${address}: ${lhr.runtimeError.message}`);
  const scores = {};
  for (const [name, category] of Object.entries(lhr.categories)) {
    scores[name] = category.score;
    for (const { id, weight } of category.auditRefs) {
      const audit = lhr.audits[id];
      if (weight > 0 && audit.score !== null && audit.score < 0.95) {
        console.error(address, name, id, audit.score, JSON.stringify(audit.details?.items ?? []).slice(0, 500));
      }
    }
  }
  return scores;
}

async function main() {
  const { default: lighthouse } = await import(load.resolve("lighthouse"));
  const port = await freePort();
  // A persistent context, because Lighthouse opens its page in the one that every browser has.
  const context = await chromium.launchPersistentContext(settings.profile, {
    executablePath: "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", `--remote-debugging-port=${port}`,
    ],
  });
  const scores = {};
  try {
    const page = context.pages()[0] ?? await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    const base = new URL(settings.login).origin;
    await page.goto(settings.login);
    await page.waitForURL(`${base}/deliveries`);
    for (const place of settings.pages) scores[place] = await judge(lighthouse, base + place, port);
  } finally {
    await context.close();
  }
  console.log(JSON.stringify(scores));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

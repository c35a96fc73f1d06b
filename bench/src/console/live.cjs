// Measures the console's live page in Chromium for `cargo xtask bench console`, and prints the report as JSON.
//
//     node live.cjs SETTINGS
//
// The settings are JSON: the login URL, and how many events the bench publishes after the lines `warmup` and `events`
// on standard error. The tool of each event is `at-` and the time of its publication in milliseconds.
"use strict";
const path = require("node:path");
const { createRequire } = require("node:module");
// The package is in the working directory.
const { chromium } = createRequire(path.join(process.cwd(), "package.json"))("playwright-core");

const settings = JSON.parse(process.argv[2]);
const PAINT_LOADS = 11;
const WAIT_MS = 180_000;

/// Bytes of the script heap and nodes of the document after a collection.
async function pageMemory(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.send("Performance.enable");
  const { metrics } = await session.send("Performance.getMetrics");
  await session.detach();
  return { heap: usedSize, nodes: metrics.find((metric) => metric.name === "Nodes").value };
}

async function measurePaint(page, base) {
  const paints = [];
  for (let load = 0; load < PAINT_LOADS; load += 1) {
    await page.goto(`${base}/live`);
    await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  }
  return paints.sort((one, other) => one - other);
}

/// Bytes of the scripts, styles and pictures of a page before compression.
async function assetBytes(page) {
  return page.evaluate(() => {
    const assets = performance.getEntriesByType("resource").filter((entry) => new URL(entry.name).pathname.startsWith("/assets/"));
    return assets.reduce((sum, entry) => sum + entry.decodedBodySize, 0);
  });
}

/// Records when the row of each event is added. Typed arrays hold the records, so that they hardly add to the heap.
function watchRows(count) {
  window.latencies = new Float64Array(count);
  window.ids = new Float64Array(count);
  window.rowCount = 0;
  const record = (node) => {
    const published = /at-(\d{13})/.exec(node.textContent ?? "");
    if (!node.dataset?.id || published === null || window.rowCount >= count) return;
    window.latencies[window.rowCount] = Date.now() - Number(published[1]);
    window.ids[window.rowCount] = Number(node.dataset.id);
    window.rowCount += 1;
  };
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(record)))
    .observe(document.querySelector("#live tbody"), { childList: true });
}

async function main() {
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ],
  });
  const page = await browser.newPage();
  page.setDefaultTimeout(WAIT_MS);
  const base = new URL(settings.login).origin;
  await page.goto(settings.login);
  await page.waitForURL(`${base}/deliveries`);
  const paintMs = await measurePaint(page, base);
  const bytes = await assetBytes(page);
  await page.goto(`${base}/live`);
  await page.waitForSelector("#live-status:has-text('Live.')");
  await page.evaluate(watchRows, settings.warmup + settings.events);
  // A missing row is no error here: the report counts it.
  const waitForRows = (count) =>
    page.waitForFunction((expected) => window.rowCount >= expected, count).catch(() => undefined);
  process.stderr.write("warmup\n");
  await waitForRows(settings.warmup);
  const before = await pageMemory(page);
  process.stderr.write("events\n");
  await waitForRows(settings.warmup + settings.events);
  const after = await pageMemory(page);
  const rows = await page.evaluate(() => ({
    latencies: Array.from(window.latencies.subarray(0, window.rowCount)),
    ids: Array.from(window.ids.subarray(0, window.rowCount)),
  }));
  await browser.close();
  console.log(JSON.stringify({
    paintMs,
    assetBytes: bytes,
    latencyMs: rows.latencies.sort((one, other) => one - other),
    repeated: rows.ids.length - new Set(rows.ids).size,
    heapBefore: before.heap,
    heapAfter: after.heap,
    nodesBefore: before.nodes,
    nodesAfter: after.nodes,
  }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

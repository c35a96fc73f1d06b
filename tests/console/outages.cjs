// The part of the walk through the console during outages: each page says what it does not know, shows nothing in its place,
// and works again afterwards. `walk.cjs` runs it.
"use strict";

/// Waits until the line at the top of the page says that a part does not work, and returns it.
async function waitForFailure({ page, WAIT_MS }, part) {
  await page.waitForSelector(`#health:not([data-working]):has-text("The ${part} does not work")`, { timeout: WAIT_MS });
  return page.textContent("#health");
}

/// Drops a file on the form of the page, and waits for the response of the console.
async function dropFile(page, name, text) {
  const transfer = await page.evaluateHandle(([name, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name, { type: "text/plain" }));
    return transfer;
  }, [name, text]);
  const response = page.waitForNavigation();
  await page.dispatchEvent("[data-drop]", "drop", { dataTransfer: transfer });
  return (await response).status();
}

async function surviveRestart(walk) {
  const { page, base, ask, report, rowCount, WAIT_MS } = walk;
  await page.goto(`${base}/live`);
  await ask("stop-bus");
  report.outage = await waitForFailure(walk, "bus");
  await ask("start-bus");
  await page.waitForSelector("#health[data-working]", { timeout: WAIT_MS });
  const before = await rowCount(page);
  await ask("publish");
  await page.waitForFunction((count) => document.querySelectorAll("#live tbody tr").length > count, before, { timeout: WAIT_MS });
}

/// The store breaks off every connection: pages that need it say so, and a file neither leaves nor arrives.
async function surviveStoreOutage(walk) {
  const { page, base, ask, check, report, settings, WAIT_MS } = walk;
  const file = `${base}/files/${settings.digest}`;
  const sandbox = `${base}/sandboxes?session=${settings.session}`;
  await page.goto(file);
  await ask("stop-store");
  report.storeOutage = { health: await waitForFailure(walk, "store"), statuses: {} };
  // The page is from before the outage, so its button is still there.
  const unsaved = page.waitForNavigation();
  await page.getByRole("button", { name: "Download" }).click();
  report.storeOutage.statuses.download = (await unsaved).status();
  report.storeOutage.download = await page.textContent("main");
  for (const [name, address] of Object.entries({ file, files: `${base}/files`, setup: `${base}/setup` })) {
    report.storeOutage.statuses[name] = (await page.goto(address)).status();
    report.storeOutage[name] = await page.textContent("main");
    await waitForFailure(walk, "store");
  }
  await page.goto(sandbox);
  report.storeOutage.statuses.drop = await dropFile(page, "late.txt", "during the outage");
  report.storeOutage.drop = await page.textContent("main");
  check(await page.locator("#placed").count() === 0, "a file is shown as placed while the store is down");
  // A page of the bus alone works meanwhile.
  await page.goto(`${base}/operations/${settings.delivery}`);
  check((await page.textContent("main")).includes("report.txt"), "an outage of the store hides records of the bus");
  await ask("start-store");
  await page.waitForSelector("#health[data-working]", { timeout: WAIT_MS });
  await page.goto(`${base}/files`);
  check((await page.textContent("main")).includes(settings.digest), "the files are not listed after the outage");
  await page.goto(sandbox);
  await dropFile(page, "later.txt", "after the outage");
  await page.waitForSelector("#placed", { timeout: WAIT_MS });
}

module.exports = { surviveRestart, surviveStoreOutage };

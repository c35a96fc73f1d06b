// Logs in to the console through an identity provider in Chromium, and prints a report as JSON.
//
//     node login.cjs CONSOLE_URL
"use strict";
const path = require("node:path");
const { createRequire } = require("node:module");
// The packages are in the directory where this is started.
const load = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = load("playwright-core");

const base = process.argv[2];
const WAIT_MS = 60_000;

/// Logs this account in on the pages of the provider, which show a form and ask for consent.
async function logInAt(page, account) {
  await page.locator("input[name=login]").fill(account);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}

/// A login of a new browser, from a page of the console to the page that it ends on.
async function logIn(browser, account) {
  const context = await browser.newContext();
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  await page.goto(`${base}/policy?from=link`);
  await page.getByRole("link", { name: /^Log in with/ }).click();
  await logInAt(page, account);
  return { context, page };
}

async function main() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  const report = {};
  const { context, page } = await logIn(browser, "ada");
  await page.waitForURL(`${base}/policy?from=link`);
  report.header = await page.locator("header").innerText();
  const cookies = (await context.cookies()).filter(({ name }) => name.startsWith("dray-console"));
  report.cookies = cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }));
  await page.getByRole("button", { name: "Log out" }).click();
  await page.waitForURL(`${base}/logout`);
  report.logout = await page.locator("main").innerText();
  // The provider asks before it ends its own session.
  await page.getByRole("link", { name: /^Log out at/ }).click();
  await page.getByRole("button", { name: "Yes, sign me out" }).click();
  // It knows this address as one of the console.
  await page.waitForURL(`${base}/login/ended`);
  report.back = await page.locator("main").innerText();
  await page.goto(`${base}/live`);
  report.afterLogout = await page.locator("h1").innerText();
  await page.getByRole("link", { name: /^Log in with/ }).click();
  await page.locator("input[name=login]").waitFor();
  report.asksAgain = true;
  const stranger = await logIn(browser, "eve");
  await stranger.page.waitForURL(/\/login\/return/);
  report.stranger = await stranger.page.locator("main").innerText();
  await browser.close();
  process.stdout.write(JSON.stringify(report));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});

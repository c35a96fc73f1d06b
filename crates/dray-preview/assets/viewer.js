// Follows changes of the shown file: a look every two seconds while the page is visible, no connection in between.
"use strict";
const LOOK_INTERVAL_MS = 2000;
const watched = document.getElementById("watched");
const status = document.getElementById("status");

function say(text) {
  if (status.textContent !== text) {
    status.textContent = text;
    status.hidden = text === "";
  }
}

function reload(etag) {
  const content = document.getElementById("content");
  if (content && content.tagName === "IFRAME") {
    // Keeps this page, and with it the place in it.
    watched.dataset.etag = etag;
    content.src = content.getAttribute("src");
  } else {
    location.reload();
  }
}

async function look() {
  let response;
  try {
    response = await fetch(watched.dataset.url, { method: "HEAD", cache: "no-store" });
  } catch {
    say("The preview cannot be reached right now.");
    return;
  }
  if (response.status === 404 || response.status === 410) {
    say("The file is gone, or the preview has ended.");
    return;
  }
  if (!response.ok) {
    say("The file cannot be read right now.");
    return;
  }
  say("");
  const etag = response.headers.get("etag");
  if (etag && etag !== watched.dataset.etag) {
    reload(etag);
  }
}

if (watched) {
  setInterval(() => {
    if (document.visibilityState === "visible") {
      look();
    }
  }, LOOK_INTERVAL_MS);
}

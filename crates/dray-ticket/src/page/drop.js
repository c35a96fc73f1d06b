"use strict";
// Sends the file in parts as tus 1.0 has them, so that a broken connection loses one part at most. Without this script
// the form sends the file as a whole.
(() => {
  const PART_BYTES = 8 * 1024 * 1024;
  // With the delays below, longer than the lease of a request whose process ended.
  const MAX_ATTEMPTS = 12;
  const RETRY_DELAY_MS = 1000;
  const MAX_RETRY_DELAY_MS = 8000;
  const form = document.querySelector("form");
  const input = document.getElementById("file");
  const button = form.querySelector("button");
  const progress = document.getElementById("progress");
  const status = document.getElementById("status");

  const request = (method, fields, body, onprogress) =>
    new Promise((resolve) => {
      const call = new XMLHttpRequest();
      call.open(method, location.href);
      for (const [name, value] of Object.entries(fields)) call.setRequestHeader(name, value);
      if (onprogress) call.upload.onprogress = (event) => onprogress(event.loaded);
      // A broken connection has status 0.
      call.onloadend = () => resolve(call);
      call.send(body);
    });

  const tus = (fields) => ({ "Tus-Resumable": "1.0.0", ...fields });

  const offsetOf = (call) => Number(call.getResponseHeader("Upload-Offset") ?? NaN);

  const problemText = (call) => {
    try {
      const problem = JSON.parse(call.responseText);
      return `${problem.detail ?? "the upload failed"}. ${problem.advice ?? ""}`;
    } catch {
      return "The connection broke. Send the file again.";
    }
  };

  const isTemporary = (call) => [0, 409, 503].includes(call.status);

  const problemName = (call) => {
    try {
      return JSON.parse(call.responseText).type.split(":").pop();
    } catch {
      return "";
    }
  };

  const waitForRetry = (attempts) =>
    new Promise((resolve) => setTimeout(resolve, Math.min(attempts * RETRY_DELAY_MS, MAX_RETRY_DELAY_MS)));

  // The response to a page whose upload another sender has replaced.
  const REPLACED = {
    status: 409,
    responseText: JSON.stringify({ detail: "Another sender replaced this upload", advice: "Ask for a new ticket." }),
  };

  // The file that is stored although its destination did not take it yet.
  let storedFile = null;
  const noteStored = (call, file) => {
    if (problemName(call) === "destination-failed") storedFile = file;
  };

  const encoded = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

  const show = (sent, size) => {
    progress.hidden = false;
    progress.max = size || 1;
    progress.value = size ? sent : 1;
    status.textContent = `${sent} of ${size} bytes`;
  };

  const finish = (state, text) => {
    status.dataset.state = state;
    status.textContent = text;
  };

  // Creates the upload. A lost or refused creation is repeated: until one succeeds, the stored bytes and their offset
  // belong to another sender. A creation drops those bytes, and announces name and length of this file.
  const createUpload = async (file) => {
    for (let attempts = 1; ; attempts += 1) {
      const call = await request("POST", tus({
        "Upload-Length": String(file.size),
        "Upload-Metadata": `filename ${encoded(file.name)}`,
      }));
      noteStored(call, file);
      const isStored = problemName(call) === "content-stored";
      if (!isTemporary(call) || isStored || attempts > MAX_ATTEMPTS) return call;
      await waitForRetry(attempts);
      // A request for the offset ends an earlier request that hangs.
      if (call.status === 409) await request("HEAD", tus({}));
    }
  };

  // The response to a request for the offset after a part that failed, or the part when no such request succeeds.
  const fetchOffset = async (failed, attempts) => {
    for (let attempt = attempts; attempt <= MAX_ATTEMPTS; attempt += 1) {
      await waitForRetry(attempt);
      const state = await request("HEAD", tus({}));
      if (state.status === 200) return state;
      // A response to `HEAD` has no text, so the part that failed says why.
      if (!isTemporary(state)) return failed;
    }
    return failed;
  };

  // The last response: of the part that completed the upload, or the one that ended it.
  const sendFile = async (file) => {
    const created = await createUpload(file);
    let offset = 0;
    if (problemName(created) === "content-stored" && storedFile === file) {
      // A part without bytes at the end tries the destination again.
      offset = file.size;
    } else if (created.status !== 201 || file.size === 0) {
      return created;
    }
    let attempts = 0;
    for (;;) {
      const start = offset;
      const part = file.slice(start, start + PART_BYTES);
      const call = await request("PATCH", tus({
        "Upload-Offset": String(start),
        "Upload-Length": String(file.size),
        "Content-Type": "application/offset+octet-stream",
      }), part, (loaded) => show(start + loaded, file.size));
      noteStored(call, file);
      if (call.status === 204) {
        attempts = 0;
        offset = offsetOf(call);
        show(offset, file.size);
        if (offset >= file.size) return call;
        continue;
      }
      attempts += 1;
      if (!isTemporary(call) || attempts > MAX_ATTEMPTS) return call;
      const state = await fetchOffset(call, attempts);
      if (state === call) return call;
      offset = offsetOf(state);
      // Only this part was sent since, so any other offset is that of another sender.
      if (!(offset >= start && offset <= start + part.size)) return REPLACED;
      if (offset >= file.size) return state;
    }
  };

  // The document with the state of the upload; empty when it is not available.
  const fetchState = async () => {
    for (let attempts = 1; ; attempts += 1) {
      const call = await request("GET", { Accept: "application/json" });
      if (call.status === 200) return JSON.parse(call.responseText);
      if (!isTemporary(call) || attempts > MAX_ATTEMPTS) return {};
      await waitForRetry(attempts);
    }
  };

  const send = async (file) => {
    if (file.size > Number(form.dataset.maxBytes)) {
      finish("refused", `The file has ${file.size} bytes, and the limit is ${form.dataset.maxBytes}.`);
      return;
    }
    button.disabled = true;
    delete status.dataset.state;
    show(0, file.size);
    const last = await sendFile(file);
    // The response to the creation of an empty file may have been lost, and the ticket is used then.
    const isUsedByEmpty = file.size === 0 && last.status === 410;
    if (!isUsedByEmpty && (last.status < 200 || last.status >= 300)) {
      finish("refused", problemText(last));
      button.disabled = false;
      return;
    }
    const state = await fetchState();
    if (state.state !== "complete" || state.content?.size !== file.size) {
      const reason = isUsedByEmpty ? problemText(last) : `The upload is ${state.state ?? "in an unknown state"}.`;
      finish("refused", `The file was not received. ${reason}`);
      button.disabled = false;
      return;
    }
    form.hidden = true;
    const place = state.receipt?.path ? ` It is at ${state.receipt.path}.` : "";
    finish("received", `The file was received: ${file.size} bytes, SHA-256 ${state.content.sha256}.${place}`);
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.files.length === 1) send(input.files[0]);
  });
})();

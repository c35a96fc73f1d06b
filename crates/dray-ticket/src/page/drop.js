"use strict";
// Sends the file in parts as tus 1.0 has them, so that a broken connection loses one part at most. Without this script
// the form sends the file as a whole.
(() => {
  const PART_BYTES = 8 * 1024 * 1024;
  const MAX_ATTEMPTS = 8;
  const RETRY_DELAY_MS = 1000;
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

  // The last response: of the part that completed the upload, or the one that ended it.
  const sendParts = async (file) => {
    let call = await request("POST", tus({
      "Upload-Length": String(file.size),
      "Upload-Metadata": `filename ${encoded(file.name)}`,
    }));
    let offset = 0;
    let attempts = 0;
    while (call.status < 300 && call.status !== 0 ? offset < file.size : isTemporary(call)) {
      if (call.status >= 300 || call.status === 0) {
        attempts += 1;
        if (attempts > MAX_ATTEMPTS) return call;
        await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
        const state = await request("HEAD", tus({}));
        if (state.status !== 200) {
          // A response to `HEAD` has no text, so the part that failed says why.
          if (!isTemporary(state)) return call;
          continue;
        }
        offset = offsetOf(state);
        call = state;
        continue;
      }
      const start = offset;
      const part = file.slice(start, start + PART_BYTES);
      const fields = { "Upload-Offset": String(start), "Content-Type": "application/offset+octet-stream" };
      call = await request("PATCH", tus(fields), part, (loaded) => show(start + loaded, file.size));
      if (call.status === 204) {
        offset = offsetOf(call);
        attempts = 0;
        show(offset, file.size);
      }
    }
    return call;
  };

  const send = async (file) => {
    if (file.size > Number(form.dataset.maxBytes)) {
      finish("refused", `The file has ${file.size} bytes, and the limit is ${form.dataset.maxBytes}.`);
      return;
    }
    button.disabled = true;
    delete status.dataset.state;
    show(0, file.size);
    const last = await sendParts(file);
    if (last.status < 200 || last.status >= 300) {
      finish("refused", problemText(last));
      button.disabled = false;
      return;
    }
    const result = await request("GET", { Accept: "application/json" });
    const state = result.status === 200 ? JSON.parse(result.responseText) : {};
    form.hidden = true;
    const place = state.receipt?.path ? ` It is at ${state.receipt.path}.` : "";
    const digest = state.content?.sha256 ?? "unknown";
    finish("received", `The file was received: ${file.size} bytes, SHA-256 ${digest}.${place}`);
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.files.length === 1) send(input.files[0]);
  });
})();

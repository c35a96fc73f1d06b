// The script of every page: the line about the system's health, live rows, charts, files by drag and drop, and answers of
// agents as they come in. Every page works without it; a reload then shows what is new.
"use strict";
(() => {
  const STATUS_INTERVAL_MS = 3000;
  const CHART_INTERVAL_MS = 10000;
  const REPLAY_INTERVAL_MS = 500;
  // The one place where text of the console becomes elements; the console has escaped everything in it.
  const fragments = window.trustedTypes
    ? window.trustedTypes.createPolicy("console-fragment", { createHTML: (text) => text })
    : { createHTML: (text) => text };

  function elementsOf(html) {
    const template = document.createElement("template");
    template.innerHTML = fragments.createHTML(html);
    return template.content;
  }

  function watchHealth(line) {
    const show = (working, sentence) => {
      // Written only when it changes, or a screen reader would repeat it.
      if (line.textContent !== sentence) line.textContent = sentence;
      line.toggleAttribute("data-working", working);
    };
    const look = async () => {
      try {
        const response = await fetch("/status", { cache: "no-store" });
        if (response.status === 401) {
          show(false, "You are no longer logged in. Open a new login link.");
          return;
        }
        const status = await response.json();
        show(status.working, status.sentence);
      } catch {
        show(false, "The console does not respond; trying again.");
      }
      setTimeout(look, STATUS_INTERVAL_MS);
    };
    setTimeout(look, STATUS_INTERVAL_MS);
  }

  function watchRows(place) {
    const body = place.querySelector("tbody");
    const status = document.getElementById("live-status");
    const pause = document.getElementById("pause");
    const leftOut = document.getElementById("left-out");
    const older = document.getElementById("older");
    const maxRows = Number(place.dataset.maxRows);
    let last = place.dataset.last;
    let source = null;

    const countLeftOut = (count) => {
      if (count === 0) return;
      const total = Number(leftOut.dataset.count) + count;
      leftOut.dataset.count = String(total);
      leftOut.textContent = `${total} older rows left out.`;
      leftOut.hidden = false;
    };
    // The link to older events begins behind the last row of the page.
    const moveOlder = () => {
      const link = older.querySelector("a");
      const url = new URL(link.href);
      url.searchParams.set("before", body.lastElementChild.dataset.id);
      link.href = url.href;
      older.hidden = false;
    };
    // Takes the mark of a begin away whose end came.
    const closeBegin = (key) => {
      const begun = body.querySelector(`[data-begun="${CSS.escape(key)}"]`);
      begun?.querySelector("[data-no-end]")?.remove();
    };
    const isPaused = () => pause.getAttribute("aria-pressed") === "true";
    const connect = () => {
      source?.close();
      source = new EventSource(`${place.dataset.source}&after=${last}`);
      source.addEventListener("open", () => { status.textContent = "Live."; });
      source.addEventListener("rows", (event) => {
        last = event.lastEventId;
        const rows = elementsOf(event.data);
        const ended = [...rows.querySelectorAll("[data-ended]")].map((row) => row.dataset.ended);
        body.prepend(rows);
        // A begin may be in the same message as its end, or on the page already.
        ended.forEach(closeBegin);
        let removed = 0;
        while (body.rows.length > maxRows) {
          body.lastElementChild.remove();
          removed += 1;
        }
        countLeftOut(removed);
        if (removed > 0) moveOlder();
      });
      // Ends whose rows the filter leaves out. A message without an id is followed by one with it.
      source.addEventListener("ended", (event) => {
        last = event.lastEventId || last;
        JSON.parse(event.data).forEach(closeBegin);
      });
      source.addEventListener("gap", (event) => {
        last = event.lastEventId;
        countLeftOut(Number(event.data));
      });
      source.addEventListener("error", () => {
        const isOver = source.readyState === EventSource.CLOSED;
        status.textContent = isOver
          ? "The stream ended. Reload the page to log in again or to go on."
          : "The connection is lost; trying again.";
      });
    };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const pauses = !isPaused();
      pause.setAttribute("aria-pressed", String(pauses));
      if (pauses) {
        source?.close();
        status.textContent = "Paused. The console keeps what happens meanwhile.";
      } else {
        connect();
      }
    });
    // A browser has six connections to a server of HTTP/1.1, so the streams of hidden pages would leave none for another page.
    document.addEventListener("visibilitychange", () => {
      if (isPaused()) return;
      if (document.visibilityState === "hidden") source?.close();
      else connect();
    });
    if (document.visibilityState !== "hidden") connect();
  }

  function watchCharts(place) {
    const look = async () => {
      try {
        const response = await fetch(place.dataset.source, { cache: "no-store" });
        if (response.ok) place.replaceChildren(elementsOf(await response.text()));
      } catch {
        // The line about the health says that the console does not respond; old charts stay until it does.
      }
      setTimeout(look, CHART_INTERVAL_MS);
    };
    setTimeout(look, CHART_INTERVAL_MS);
  }

  function takeDrops(form) {
    const input = form.querySelector("input[type=file]");
    const status = form.querySelector("[data-drop-status]");
    form.addEventListener("dragover", (event) => {
      event.preventDefault();
      form.toggleAttribute("data-over", true);
    });
    form.addEventListener("dragleave", () => form.toggleAttribute("data-over", false));
    form.addEventListener("drop", (event) => {
      event.preventDefault();
      form.toggleAttribute("data-over", false);
      if (event.dataTransfer.files.length !== 1) {
        status.textContent = "Drop one file at a time.";
        return;
      }
      input.files = event.dataTransfer.files;
      form.requestSubmit();
    });
    form.addEventListener("submit", () => { status.textContent = "The file is on its way."; });
  }

  // A stage that changed takes the place of its older self; whether it is open stays as the person left it.
  function placeStage(list, html) {
    const item = elementsOf(html).firstElementChild;
    const old = document.getElementById(item.id);
    if (!old) {
      list.append(item);
      return;
    }
    const [before, after] = [old, item].map((element) => element.querySelector("details"));
    const hasFocus = old.contains(document.activeElement);
    if (before.dataset.chosen) {
      after.open = before.open;
      after.dataset.chosen = "yes";
    }
    old.replaceWith(item);
    if (hasFocus) item.querySelector("summary").focus();
  }

  function watchAnswer(place) {
    const stages = place.querySelector("[data-stages]");
    const text = place.querySelector("[data-text]");
    const files = place.querySelector("[data-files]");
    const progress = place.querySelector("[data-progress]");
    const source = new EventSource(place.dataset.source);
    stages.addEventListener("click", (event) => {
      const details = event.target.closest("summary")?.parentElement;
      if (details) details.dataset.chosen = "yes";
    });
    source.addEventListener("open", () => { progress.textContent = "The answer comes in."; });
    source.addEventListener("stage", (event) => placeStage(stages, event.data));
    source.addEventListener("text", (event) => text.append(JSON.parse(event.data)));
    source.addEventListener("files", (event) => files.replaceChildren(elementsOf(event.data)));
    source.addEventListener("end", (event) => {
      source.close();
      const end = document.getElementById("turn-end");
      const hadFocus = end.contains(document.activeElement);
      end.replaceWith(elementsOf(event.data));
      progress.textContent = "The answer has ended.";
      if (hadFocus) document.querySelector("#turn-end textarea")?.focus();
    });
    source.addEventListener("error", () => {
      progress.textContent = source.readyState === EventSource.CLOSED
        ? "The stream ended. Reload the page."
        : "The connection is lost; trying again. The answer comes in meanwhile.";
    });
  }

  // Parts that are loaded when they are opened, and text that is copied by a button.
  function fillFragment(details) {
    details.addEventListener("toggle", async () => {
      const place = details.querySelector("[data-fragment-place]");
      if (!details.open || place.dataset.filled) return;
      try {
        const response = await fetch(`${details.dataset.fragment}?fragment=1`, { cache: "no-store" });
        if (!response.ok) return;
        place.replaceChildren(elementsOf(await response.text()));
        place.dataset.filled = "yes";
        for (const button of place.querySelectorAll("[data-copy-button]")) offerCopy(button, place);
      } catch {
        // The link in its place leads to the same page.
      }
    });
  }

  function offerCopy(button, place) {
    // Browsers offer the clipboard to pages over TLS and to those of this machine alone.
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(place.querySelector("[data-copy]").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select the text and copy it";
      }
    });
  }

  function watchReplay(place) {
    const look = async () => {
      try {
        const response = await fetch(place.dataset.source, { cache: "no-store" });
        if (response.ok) {
          const next = elementsOf(await response.text()).firstElementChild;
          if (!next) return;
          if (!next.hasAttribute("data-running")) {
            const hadFocus = place.contains(document.activeElement);
            place.replaceWith(next);
            next.tabIndex = -1;
            if (hadFocus) next.focus();
            return;
          }
          // The button that cancels stays, with the focus of a person who is about to press it.
          place.querySelector("[data-progress]").replaceChildren(...next.querySelector("[data-progress]").childNodes);
        }
      } catch {
        // The line about the health says that the console does not respond.
      }
      setTimeout(look, REPLAY_INTERVAL_MS);
    };
    setTimeout(look, REPLAY_INTERVAL_MS);
  }

  function chooseAll(box) {
    box.hidden = false;
    // A browser keeps boxes over a reload, but not that this one belongs to them.
    box.checked = false;
    box.addEventListener("change", () => {
      for (const one of box.form.querySelectorAll("tbody input[type=checkbox]")) one.checked = box.checked;
    });
  }

  const start = (selector, run) => {
    for (const place of document.querySelectorAll(selector)) run(place);
  };
  start("#health", watchHealth);
  start("#live", watchRows);
  start("#charts", watchCharts);
  start("[data-drop]", takeDrops);
  start("[data-choose-all]", chooseAll);
  start("[data-answer]", watchAnswer);
  start("[data-fragment]", fillFragment);
  start("#replay[data-running]", watchReplay);
})();

// The script of every page: the line about the system's health, live rows, charts, and files by drag and drop. Every page
// works without it; a reload then shows what is new.
"use strict";
(() => {
  const STATUS_INTERVAL_MS = 3000;
  const CHART_INTERVAL_MS = 10000;
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
    const connect = () => {
      source = new EventSource(`${place.dataset.source}&after=${last}`);
      source.addEventListener("open", () => { status.textContent = "Live."; });
      source.addEventListener("rows", (event) => {
        last = event.lastEventId;
        body.prepend(elementsOf(event.data));
        let removed = 0;
        while (body.rows.length > maxRows) {
          body.lastElementChild.remove();
          removed += 1;
        }
        countLeftOut(removed);
      });
      source.addEventListener("gap", (event) => {
        last = event.lastEventId;
        countLeftOut(Number(event.data));
      });
      source.addEventListener("error", () => {
        const isOver = source.readyState === EventSource.CLOSED;
        status.textContent = isOver
          ? "The stream ended. Reload the page to log in again or to go on."
          : "The connection is lost; trying again. Events are kept meanwhile.";
      });
    };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const pauses = pause.getAttribute("aria-pressed") === "false";
      pause.setAttribute("aria-pressed", String(pauses));
      if (pauses) {
        source.close();
        status.textContent = "Paused. The console keeps what happens meanwhile.";
      } else {
        connect();
      }
    });
    connect();
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

  const start = (selector, run) => {
    for (const place of document.querySelectorAll(selector)) run(place);
  };
  start("#health", watchHealth);
  start("#live", watchRows);
  start("#charts", watchCharts);
  start("[data-drop]", takeDrops);
})();

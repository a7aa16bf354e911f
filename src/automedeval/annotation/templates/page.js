// What the page does beyond its forms: keys, drafts that are kept while one works, and the time that a task was in view.
// Nothing here is needed: without it every button posts its form. No text is kept in the browser, which may be a shared one.
"use strict";

const form = document.getElementById("task");
if (form) {
  const told = document.getElementById("told");
  const store = document.getElementById("store");
  const place = `seconds ${form.action}`;
  const DELAY = 600; // milliseconds of rest before a draft is sent
  const RETRY = 5000;
  const LARGEST = 60000; // bytes that a browser still sends after the page is left: it has 64 KiB for all of them
  let kept = ""; // the fields as they were last kept
  let timer = 0;
  let leaving = false;
  let sending = Promise.resolve();

  const fields = () => {
    const body = new URLSearchParams(new FormData(form));
    for (const name of ["seconds", "reason", "then"]) body.delete(name);
    return body;
  };
  const say = (text) => {
    told.textContent = text;
  };
  // A connection that failed has the status 0. A proxy answers by 502 or 503 while the page is started again.
  const post = (address, body, options) =>
    fetch(address, { method: "POST", body, ...options }).catch(() => ({ ok: false, status: 0 }));
  const unanswered = (status) => status === 0 || status >= 500;
  // What stands in the way on this page; no other page would show what was entered.
  const trouble = (status) => {
    if (unanswered(status)) {
      const what = status ? "the page failed" : "no connection";
      return `${what}. What you entered is still here, and the page tries again to keep it.`;
    }
    if (status === 401 || status === 403) {
      return "you are signed out. Open your invitation link in another tab, then go on here.";
    }
    return status === 413 ? "it is too much text. Please shorten it." : "";
  };
  const make = (name) => document.createElement(name);
  const clock = () => new Date().toTimeString().slice(0, 5);

  // --- time in view ---------------------------------------------------------------------------------------------------

  let seconds = Number(sessionStorage.getItem(place)) || 0;
  let since = document.hidden ? 0 : performance.now();
  const measure = () => {
    if (since) seconds += (performance.now() - since) / 1000;
    since = document.hidden ? 0 : performance.now();
    sessionStorage.setItem(place, String(seconds)); // a reload goes on counting
    form.elements.seconds.value = seconds.toFixed(1);
  };

  // --- drafts ---------------------------------------------------------------------------------------------------------

  const keep = async () => {
    clearTimeout(timer);
    const body = fields();
    if (leaving || body.toString() === kept) return;
    const answer = await post(form.dataset.draft, body, { keepalive: body.toString().length < LARGEST });
    if (leaving) return;
    if (answer.ok) {
      kept = body.toString();
      say(`Kept ${clock()}`);
    } else if (answer.status === 409) {
      say("This task went on in another tab. Reload this page to see it as it stands.");
    } else {
      say(`Not kept: ${trouble(answer.status) || "store it, and the page says what is wrong."}`);
      if (unanswered(answer.status)) timer = setTimeout(queue, RETRY);
    }
  };
  // One after the other, so that an older draft never overtakes a newer one.
  const queue = () => {
    sending = sending.then(keep);
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(queue, DELAY);
  };
  form.addEventListener("input", later);
  form.addEventListener("change", later);

  const beacon = () => {
    measure();
    const body = fields();
    if (!leaving && body.toString() !== kept) navigator.sendBeacon(form.dataset.draft, body); // nobody sees whether it came
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? beacon() : measure()));
  window.addEventListener("pagehide", beacon);

  // --- storing --------------------------------------------------------------------------------------------------------

  form.addEventListener("submit", async (event) => {
    measure();
    const button = event.submitter;
    event.preventDefault();
    if (leaving) return; // pressed twice
    leaving = true;
    clearTimeout(timer);
    store.disabled = true;
    await sending; // a draft on its way must not arrive after what is stored
    const address = button?.getAttribute("formaction") || form.getAttribute("action");
    const body = new URLSearchParams(new FormData(form));
    if (button?.name) body.set(button.name, button.value);
    const answer = await post(address, body, { headers: { Accept: "application/json" } });
    if (answer.ok) {
      sessionStorage.removeItem(place);
      location.assign((await answer.json()).next);
      return;
    }
    store.disabled = false;
    const why = trouble(answer.status);
    if (why) {
      leaving = false;
      say(`Not stored: ${why}`);
      if (unanswered(answer.status)) timer = setTimeout(queue, RETRY);
      return;
    }
    // The page says what is wrong, and shows what was entered: sent once more as a form, it changes nothing either.
    if (button?.name) {
      const then = document.createElement("input");
      Object.assign(then, { type: "hidden", name: button.name, value: button.value });
      form.append(then);
    }
    form.setAttribute("action", address);
    form.submit();
  });

  // --- marks ----------------------------------------------------------------------------------------------------------

  // Each row of marks belongs to the answer above it: words that are selected there are stored by their place, counted in
  // characters as Python counts them. The answer takes a caret, so that a keyboard selects in it; nothing can be typed.
  const marked = [...form.querySelectorAll(".row.marks")].flatMap((row) => {
    const prose = row.closest(".answer").querySelector(".prose");
    if (prose.querySelector("em")) return []; // an empty response has no words
    const [field, rule, list, button] = [row.querySelector("textarea"), row.querySelector(".rule"), make("ul"), make("button")];
    const text = [...prose.textContent];
    const marks = () => field.value.split("\n").filter(Boolean).map((line) => JSON.parse(line));
    try {
      marks();
    } catch {
      return []; // words that were copied without the script, and refused
    }
    const keepMarks = (places) => {
      field.value = places.map((each) => JSON.stringify(each)).join("\n");
      draw();
      field.dispatchEvent(new Event("change", { bubbles: true }));
    };
    const draw = () => {
      let at = 0;
      const pieces = [];
      for (const [start, end] of marks()) {
        const mark = make("mark");
        mark.textContent = text.slice(start, end).join("");
        pieces.push(text.slice(at, start).join(""), mark);
        at = end;
      }
      prose.replaceChildren(...pieces, text.slice(at).join(""));
      list.replaceChildren(
        ...marks().map(([start, , words]) => {
          const [item, quote, remove] = [make("li"), make("q"), make("button")];
          quote.textContent = words;
          Object.assign(remove, { type: "button", className: "button plain", textContent: "Remove" });
          remove.setAttribute("aria-label", `Remove the mark: ${words}`);
          remove.addEventListener("click", () => {
            keepMarks(marks().filter(([other]) => other !== start));
            button.focus();
          });
          item.append(quote, " ", remove);
          return item;
        }),
      );
    };
    const before = (node, offset) => {
      const range = document.createRange();
      range.setStart(prose, 0);
      range.setEnd(node, offset);
      return [...range.toString()].length;
    };
    // Mark what is selected in this answer; marks that it touches become one with it.
    const markSelected = () => {
      const chosen = getSelection();
      const range = chosen.rangeCount ? chosen.getRangeAt(0) : null;
      if (!range || range.collapsed || !prose.contains(range.startContainer) || !prose.contains(range.endContainer)) return false;
      let [start, end] = [before(range.startContainer, range.startOffset), before(range.endContainer, range.endOffset)];
      const apart = marks().filter(([from, to]) => to < start || from > end || ((start = Math.min(start, from)), (end = Math.max(end, to)), false));
      const words = text.slice(start, end).join("");
      chosen.removeAllRanges();
      keepMarks([...apart, [start, end, words]].sort((one, other) => one[0] - other[0]));
      say(`Marked: ${words}`);
      return true;
    };
    const doctor = row.querySelector(".unseen").textContent;
    Object.assign(button, { type: "button", className: "button plain", textContent: "Mark the selected words" });
    button.setAttribute("aria-label", `${doctor}mark the selected words`);
    button.addEventListener("mousedown", (event) => event.preventDefault()); // the selection stays
    button.addEventListener("click", () => markSelected() || say("Select words in this answer first."));
    rule.textContent = "Select them in the answer above, then press M or the button.";
    Object.assign(prose, { contentEditable: "true", role: "textbox", inputMode: "none", spellcheck: false });
    const labels = { "aria-label": `${doctor}the answer, in which words can be selected`, "aria-readonly": "true", "aria-multiline": "true" };
    for (const [name, value] of Object.entries(labels)) prose.setAttribute(name, value);
    prose.addEventListener("beforeinput", (event) => event.preventDefault());
    prose.addEventListener("input", draw);
    field.hidden = true;
    row.append(list, button);
    draw();
    return [markSelected];
  });

  // --- keys -----------------------------------------------------------------------------------------------------------

  const keys = document.getElementById("keys");
  document.querySelector(".keys").hidden = false;
  keys.checked = localStorage.getItem("keys") !== "off";
  keys.addEventListener("change", () => localStorage.setItem("keys", keys.checked ? "on" : "off"));

  const rows = () => [...form.querySelectorAll("fieldset.points, fieldset.choices")].filter((row) => row.offsetParent);
  const filled = (row) => row.querySelector("input:checked");
  const isOpen = (row) => "required" in row.dataset && !filled(row);
  const go = (row) => {
    (filled(row) || row.querySelector("input")).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (!keys.checked || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target.matches("textarea, input[type=number], input[type=checkbox], button, summary, a")) return;
    const all = rows();
    const here = all.findIndex((row) => row.contains(target));
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (here < 0) return; // the page scrolls, as everywhere
      event.preventDefault();
      const next = all[here + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) go(next);
    } else if (event.key.toLowerCase() === "m" && marked.some((markSelected) => markSelected())) {
      event.preventDefault();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const open = all.filter(isOpen);
      if (open.length) {
        say(open.length === 1 ? "One row is still open." : `${open.length} rows are still open.`);
        go(open[0]);
      } else {
        form.requestSubmit(store);
      }
    } else if (event.key.length === 1) {
      const key = event.key.toLowerCase();
      const fits = (row) => [...row.querySelectorAll("input")].find((input) => input.dataset.key === key);
      const row =
        (here >= 0 && fits(all[here]) && all[here]) ||
        all.find((each) => isOpen(each) && fits(each)) ||
        all.find((each) => each.classList.contains("choices") && here >= 0 && fits(each));
      const input = row && fits(row);
      if (!input) return;
      event.preventDefault();
      input.checked = true;
      input.dispatchEvent(new Event("change", { bubbles: true }));
      go(rows()[all.indexOf(row) + 1] || row);
    }
  });

  // Going back can show the form as it was left, with its button pressed: ask for the task as it stands now.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  measure();
  kept = fields().toString();
}

// What the page does beyond its forms: keys, and drafts that are kept while one works.
// Nothing here is needed: without it every button posts its form. No text is kept in the browser, which may be a shared one.
"use strict";

const form = document.getElementById("task");
if (form) {
  const told = document.getElementById("told");
  const store = document.getElementById("store");
  const DELAY = 600; // milliseconds of rest before a draft is sent
  const RETRY = 5000;
  const LARGEST = 60000; // bytes that a browser still sends after the page is left: it has 64 KiB for all of them
  let kept = ""; // the fields as they were last kept
  let timer = 0;
  let leaving = false;
  let sending = Promise.resolve();

  const fields = () => {
    const body = new URLSearchParams(new FormData(form));
    for (const name of ["reason", "then"]) body.delete(name);
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
  const clock = () => new Date().toTimeString().slice(0, 5);

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
    const body = fields();
    if (!leaving && body.toString() !== kept) navigator.sendBeacon(form.dataset.draft, body); // nobody sees whether it came
  };
  document.addEventListener("visibilitychange", () => document.hidden && beacon());
  window.addEventListener("pagehide", beacon);

  // --- storing --------------------------------------------------------------------------------------------------------

  form.addEventListener("submit", async (event) => {
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
    if (target.matches("textarea, input[type=checkbox], button, summary, a")) return;
    const all = rows();
    const here = all.findIndex((row) => row.contains(target));
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (here < 0) return; // the page scrolls, as everywhere
      event.preventDefault();
      const next = all[here + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) go(next);
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

  kept = fields().toString();
}

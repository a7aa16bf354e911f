// The grid of cases and models. Only the rows in sight are drawn; the texts are unpacked when a case is opened or searched.
// Every text is data: it becomes text of an element, never HTML.
(async () => {
  const at = (id) => document.getElementById(id);
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const said = at("said");
  if (!("DecompressionStream" in window && "Segmenter" in Intl)) {
    said.textContent = "This browser is too old to show the cases: use a newer one, or switch JavaScript off.";
    return;
  }
  const unpack = async (id) => {
    const packed = atob(at(id).content.textContent);
    const bytes = new Uint8Array(packed.length);
    for (let place = 0; place < packed.length; place++) bytes[place] = packed.charCodeAt(place);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const { report, models, scale: known, base: first, sort, blind, rows: packed } = JSON.parse(await unpack("packed-rows"));
  const scores = packed.flatMap(([, , , cells]) => cells.map((cell) => cell?.[0] ?? null)).filter((score) => score !== null);
  const scale = known ?? (scores.length ? [scores.reduce((one, two) => Math.min(one, two)), scores.reduce((one, two) => Math.max(one, two))] : [0, 1]);
  const short = (text) => (text.length > 200 ? `${text.slice(0, 200)}…` : text).replace(/\s+/g, " ").trim();
  const order = sort ? "first" : (models.length > 1 ? "models_differ" : `-score:${models[0]}`);
  const rows = packed.map(([id, topic, question, cells, measures], number) => ({
    id, topic, question: short(question), cells, measures, number,
    marks: new Set(cells.flatMap((cell) => cell?.[2] ?? [])),
  }));
  const key = `automedeval-flags-${report}`;
  const stored = () => {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  };
  const flags = Object.assign(Object.create(null), stored());
  let unpacked = null;
  const texts = () => (unpacked ??= unpack("packed-texts").then((text) => text.split("\n").map((line) => ({ line }))));
  const textOf = async (row) => JSON.parse((await texts())[row.number].line);
  const strings = (value) => (typeof value === "string" ? value : Object.values(value ?? []).map(strings).join("\n"));

  // What is shown stands in the address: #case=…&show=…&sort=…&search=…&topic=…
  const KEYS = ["case", "show", "sort", "search", "topic"];
  const state = Object.fromEntries(KEYS.map((key) => [key, ""]));
  const address = (changes) => {
    const entries = Object.entries({ ...state, ...changes }).filter(([, value]) => value);
    return `#${new URLSearchParams(entries)}`;
  };
  const put = (changes) => {
    // Opening a case is a step that the browser's Back undoes.
    const step = changes.case && !state.case ? "pushState" : "replaceState";
    history[step](null, "", address(changes));
    return read();
  };
  const read = async () => {
    if (location.hash.length > 1 && !location.hash.includes("=")) return; // a place on the page
    const words = new URLSearchParams(location.hash.slice(1));
    const before = address({ case: "" });
    for (const key of KEYS) state[key] = words.get(key) ?? "";
    for (const key of KEYS.slice(1)) at(key).value = state[key].replace(key === "sort" ? /^-/ : "", "") || (key === "sort" && order.replace(/^-/, "")) || at(key).options?.[0].value || "";
    said.textContent = "";
    if (before !== address({ case: "" }) || !shown) await select();
    await open();
  };

  // Rows: filter, sort, draw.
  const frame = at("frame"), canvas = at("canvas"), table = at("rows");
  const signs = { differs: "≠", worst: "⤓", invalid: "!", unread: "?", empty: "∅", flagged: "⚑",
    won: "▲", lost: "▼", newly_differs: "≠⁺", newly_empty: "∅⁺", newly_failing: "!⁺" };
  const sizes = { differs: "a number differs", models_differ: "models differ", people_disagree: "people disagree", least_sure: "judge unsure first" };
  const names = { won: "better", lost: "worse", newly_differs: "newly differs", newly_empty: "newly empty", newly_failing: "newly without a score", ...sizes, worst: "worst rating by a person", invalid: "invalid verdict", unread: "not read", empty: "empty", flagged: "flagged by you" };
  const sign = (name) => {
    const element = make("span", { className: "sign", textContent: signs[name], title: names[name] ?? name });
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", names[name] ?? name);
    return element;
  };
  // A mark that is new stands in the place of the mark itself.
  const kinds = { invalid: "failing", unread: "failing" };
  const drawnMarks = (all) => all.filter((name) => !all.includes(`newly_${kinds[name] ?? name}`));
  const points = (score) => (score === null ? "–" : score.toFixed(2));
  const sorts = { models_differ: sort ? "size of the change" : "gap between models", file: "place in the file" };
  if (sort === "lost") Object.assign(sorts, { first: "what to read first", lost: "largest drop first", won: "largest rise first" });
  for (const name of Object.keys(sizes)) if (rows.some((row) => (row.measures[name] ?? null) !== null)) sorts[name] ??= names[name];
  for (const model of models) sorts[`score:${model}`] = `score of ${model}`;
  // A number that newly differs stands before every drop.
  const urgency = (row) => (row.measures.lost ?? -1e6) + (row.marks.has("newly_differs") ? 1e9 : 0);
  const value = (row, key) => key === "first" ? urgency(row) : (key.startsWith("score:") ? row.cells[models.indexOf(key.slice(6))]?.[0] : row.measures[key]) ?? -Infinity;
  let shown = null, current = 0, drawn = "";
  const select = async () => {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const all = words.length ? await texts() : [];
    const holds = (row) => {
      const each = all[row.number];
      each.words ??= `${row.id}\n${row.topic}\n${strings(JSON.parse(each.line))}`.toLowerCase();
      return words.every((word) => each.words.includes(word));
    };
    shown = rows.filter((row) => (!state.topic || row.topic === state.topic)
      && (!state.show || (state.show === "flagged" ? flags[row.id]?.flagged : row.marks.has(state.show)))
      && (!words.length || holds(row)));
    const key = (state.sort || order).replace(/^-/, "");
    const way = (state.sort || order).startsWith("-") ? -1 : 1;
    if (key !== "file") shown.sort((a, b) => (value(a, key) === value(b, key) ? 0 : way * (value(b, key) - value(a, key))));
    else if (way < 0) shown.reverse();
    for (const head of table.tHead.rows[0].cells) {
      head.removeAttribute("aria-sort");
      if (head.dataset.key === key) head.setAttribute("aria-sort", (key === "file") === (way > 0) ? "ascending" : "descending");
    }
    at("count").textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} cases`;
    table.setAttribute("aria-rowcount", shown.length + 1);
    frame.scrollTop = current = 0;
    redraw();
  };
  // An answer with one of these marks never has the colour of a good one.
  const faults = new Set(["differs", "invalid", "unread", "empty"]);
  const step = (score) => Math.max(0, Math.min(4, Math.floor((5 * (score - scale[0])) / (scale[1] - scale[0] || 1))));
  const rowOf = (row, place) => {
    const line = make("tr", { id: `row-${place}` });
    line.setAttribute("aria-rowindex", place + 2);
    line.setAttribute("aria-selected", place === current);
    const link = make("a", { href: address({ case: row.id }), tabIndex: -1, dir: "auto", textContent: row.question || row.id });
    const head = make("th", { scope: "row" }, link);
    if (flags[row.id]?.flagged) link.prepend(sign("flagged"), " ");
    line.append(head, ...row.cells.map((cell) => {
      if (!cell) return make("td", { textContent: "–" });
      const [score, length, itsMarks, rated] = cell;
      const text = make("b", { textContent: points(score) });
      const box = make("td", { className: score === null ? "" : `s${Math.min(step(score), itsMarks.some((name) => faults.has(name)) ? 1 : 4)}` }, text, ...drawnMarks(itsMarks).map(sign));
      if (rated !== null) box.append(make("small", { textContent: `people ${points(rated)}` }));
      box.append(make("small", { textContent: length.toLocaleString("en") }));
      return box;
    }));
    return line;
  };
  // In rem, as in grid.css; a cell with people's mean has a line more.
  const lines = rows.some((row) => row.cells.some((cell) => (cell?.[3] ?? null) !== null)) ? 4 : 3.25;
  table.style.setProperty("--row", `${lines}rem`);
  const height = () => lines * parseFloat(getComputedStyle(document.documentElement).fontSize);
  const redraw = () => {
    drawn = "";
    draw();
    if (innerWidth > 640) at("filters").open = true; // folded on a telephone
    at("wide").hidden = frame.scrollWidth <= frame.clientWidth;
  };
  const PRINTED = 1000; // more rows than these take a browser minutes to print
  let printing = false;
  const draw = () => {
    const first = printing ? 0 : Math.max(0, Math.floor(frame.scrollTop / height()) - 10);
    const last = printing ? Math.min(shown.length, PRINTED) : Math.min(shown.length, first + Math.ceil(innerHeight / height()) + 20);
    if (drawn === `${first} ${last}`) return;
    drawn = `${first} ${last}`;
    canvas.style.height = `${(shown.length + 1) * height()}px`;
    canvas.style.paddingTop = `${first * height()}px`;
    table.tBodies[0].replaceChildren(...shown.slice(first, last).map((row, place) => rowOf(row, first + place)));
    if (current >= first && current < last) table.setAttribute("aria-activedescendant", `row-${current}`);
    else table.removeAttribute("aria-activedescendant");
  };
  const go = (place) => {
    current = Math.max(0, Math.min(shown.length - 1, place));
    const top = current * height(), room = frame.clientHeight - 2 * height();
    if (frame.scrollTop > top) frame.scrollTop = top;
    if (frame.scrollTop < top - room) frame.scrollTop = top - room;
    redraw();
  };
  frame.addEventListener("scroll", draw);
  addEventListener("resize", redraw);
  const print = (now) => {
    if (!shown || printing === now) return;
    printing = now;
    if (shown.length > PRINTED) said.textContent = now ? `Printed are the first ${PRINTED} of these ${shown.length} cases; the CSV has all.` : "";
    redraw();
  };
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  table.addEventListener("keydown", (event) => {
    if (event.target !== table || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(frame.clientHeight / height()) - 2);
    const moves = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: shown.length - 1 };
    if (event.key in moves) go(moves[event.key]);
    else if (event.key === "Enter" && shown.length) put({ case: shown[current].id });
    else return;
    event.preventDefault();
  });
  table.tBodies[0].addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    const line = event.target.closest("tr");
    event.preventDefault();
    go(Number(line.id.slice(4)));
    put({ case: shown[current].id });
  });

  // An opened case: the answers side by side, what differs, the verdict's words, the flag.
  const dialog = at("case");
  const block = (name, text) => {
    const box = make("div", { className: "text", dir: "auto", tabIndex: 0 });
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", name);
    box.append(...[text].flat());
    return box;
  };
  const tokens = (text) => [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)];
  // The stretches of a text whose words are not in the longest common sequence of words with another text.
  const differing = (text, other) => {
    const [one, two] = [text, other].map((each) => tokens(each).filter((token) => token.isWordLike));
    const [a, b] = [one, two].map((each) => each.map((token) => token.segment.toLowerCase()));
    if (a.length * b.length > 2e7) return null;
    const width = b.length + 1, best = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      }
    }
    const stretches = [];
    for (let i = 0, j = 0, same = true; i < a.length;) {
      if (j < b.length && a[i] === b[j]) { i++; j++; same = true; }
      else if (j < b.length && best[i * width + j + 1] >= best[(i + 1) * width + j]) j++;
      else {
        const { index, segment } = one[i++];
        if (same) stretches.push({ start: index });
        stretches.at(-1).end = index + segment.length;
        same = false;
      }
    }
    return stretches;
  };
  // A text as nodes: numbers that differ from the reference are marked, words that differ are underlined.
  const nodes = (text, wrong, different) => {
    const kinds = new Uint8Array(text.length);
    for (const each of different) kinds.fill(1, each.start, each.end);
    for (const each of wrong) for (let place = each.start; place < each.end; place++) kinds[place] |= 2;
    const runs = (from, to, bit) => {
      const pieces = [];
      for (let start = from, end = from; start < to; start = end) {
        while (end < to && (kinds[end] & bit) === (kinds[start] & bit)) end++;
        pieces.push([start, end]);
      }
      return pieces;
    };
    return runs(0, text.length, 2).flatMap(([from, to]) => {
      const inner = runs(from, to, 1).map(([start, end]) => {
        const part = text.slice(start, end);
        return kinds[start] & 1 ? make("span", { className: "differs", textContent: part }) : part;
      });
      return kinds[from] & 2 ? [make("mark", {}, ...inner)] : inner;
    });
  };
  const list = (pairs) => make("dl", {}, ...pairs.flatMap(([name, text]) => [
    make("dt", { dir: "auto", textContent: name }), make("dd", { dir: "auto", textContent: text })]));
  // A number that differs, in its sentence, beside that of the reference.
  const sentence = ([before, number, behind]) => make("q", { dir: "auto" }, before, make("mark", { textContent: number }), behind);
  const passage = (each) => make("li", {}, make("b", { textContent: `${each.sentence[1]} instead of ${each.passage[1]}` }),
    ` (${each.kind}, ${each.factor} times): `, sentence(each.sentence), ` – ${each.source}: `, sentence(each.passage));
  // Places in a text count code points, and JavaScript counts two for a letter outside the first plane.
  const inText = (text, mark) => {
    const [start, end] = [mark.start, mark.end].map((place) => [...text].slice(0, place).join("").length);
    return { ...mark, start, end };
  };
  const MET = new Map([[null, "unread"], [0, "not met"], [1, "met"]]);
  const met = (share) => MET.get(share) ?? `met in ${share.toFixed(2)} of the runs`;
  const criterion = ([worth, text, shares]) => [`${worth < 0 ? "" : "+"}${worth} ${text}`,
    shares.map(([judge, share]) => (shares.length > 1 ? `${judge}: ${met(share)}` : met(share))).join("; ")];
  const ratings = (given, mean) => {
    const each = given.slice(0, 8).map(([name, score]) => `${name} ${Number(score.toFixed(2))}`);
    return `${points(mean)} (${[...each, ...(given.length > 8 ? ["…"] : [])].join(", ")})`;
  };
  const answer = (response, base) => {
    const scores = response.scores.map(([name, score]) => [name, score.toFixed(2)]);
    const different = base && base !== response ? differing(response.text, base.text) : [];
    const box = make("div", { className: "response" },
      make("h3", { dir: "auto", textContent: response.model }),
      list([...(response.people?.length ? [["people", ratings(response.people, response.rated)]] : []), ...scores, ["characters", [...response.text].length.toLocaleString("en")]]),
      ...(response.criteria?.length ? [make("h4", { textContent: "Criteria" }), list(response.criteria.map(criterion))] : []),
      block(`Text of ${response.model}`, nodes(response.text, response.wrong.map((mark) => inText(response.text, mark)), different ?? [])),
      ...(different ? [] : [make("p", { className: "soft", textContent: "Too long to compare." })]),
      ...(response.wrong.length ? [make("ul", { className: "wrong" }, ...response.wrong.map(passage))] : []),
      ...response.comments.map(([who, comment]) => make("p", { className: "soft", dir: "auto", textContent: `${who}: ${comment}` })));
    box.classList.toggle("reference", response.model === "Reference");
    return box;
  };
  let base = first; // the model whose answer the others are compared with; "" for none
  const open = async () => {
    if (!state.case) { if (dialog.open) dialog.close(); return; }
    const row = rows.find((each) => each.id === state.case);
    if (!row) {
      if (dialog.open) dialog.close();
      said.textContent = `There is no case ${state.case} in this report.`;
      return;
    }
    const text = await textOf(row);
    const place = shown.indexOf(row);
    if (place >= 0) go(place);
    const button = (words, action, disabled = false) => {
      const element = make("button", { type: "button", textContent: words, disabled });
      element.addEventListener("click", action);
      return element;
    };
    const title = make("h2", { id: "case-title", dir: "auto", tabIndex: -1, textContent: row.question || row.id });
    title.append(make("span", { className: "soft", textContent: ` · ${[row.topic, row.id].filter(Boolean).join(" · ")}` }));
    const where = make("span", { className: "soft", textContent: place < 0 ? "not in this view" : `${(place + 1).toLocaleString("en")} of ${shown.length.toLocaleString("en")}` });
    if (place >= 0 && shown.length < rows.length) where.append(` shown, ${rows.length.toLocaleString("en")} in all`);
    // The answers stand in the order of the columns, the reference before them.
    text.order ??= text.responses.map(({ model }) => model);
    for (const response of text.responses) response.rated = row.cells[models.indexOf(response.model)][3];
    const columns = text.responses.sort((a, b) => models.indexOf(a.model) - models.indexOf(b.model));
    if (text.reference) columns.unshift({ model: "Reference", text: text.reference, scores: [], wrong: [], comments: [] });
    const options = columns.map(({ model }, number) => make("option", { value: number, textContent: model }));
    const others = make("select", {}, make("option", { value: "", textContent: "nothing" }), ...options);
    const answers = make("div", { className: "responses" });
    const fill = () => answers.replaceChildren(...columns.map((each) => answer(each, columns[others.value || -1])));
    others.value = base === "" ? "" : Math.max(0, columns.findIndex(({ model }) => model === base));
    others.addEventListener("input", () => { base = columns[others.value || -1]?.model ?? ""; fill(); });
    fill();
    const mine = flags[row.id] ?? { flagged: false, comment: "" };
    const flagged = make("input", { type: "checkbox", checked: mine.flagged });
    const comment = make("input", { type: "text", maxLength: 500, value: mine.comment, dir: "auto" });
    for (const each of [flagged, comment]) each.addEventListener("input", () => keep({ [row.id]: { flagged: flagged.checked, comment: comment.value } }));
    const rest = [];
    const choices = text.choices.flatMap(([judge, one, two, codes]) => {
      const names = [text.order[one], text.order[two], "tie", "neither"];
      const chosen = Object.entries(codes).filter(([, code]) => code >= 0).map(([name, code]) => `${name}: ${names[code]}`);
      return chosen.length ? [[`${judge}, ${names[0]} : ${names[1]}`, chosen.join(", ")]] : [];
    });
    if (choices.length) rest.push(make("h3", { textContent: "Choices" }), list(choices));
    const rationales = text.rationales.map(([name, words]) => ({ model: name, text: words, scores: [], wrong: [], comments: [] }));
    rest.push(make("div", { className: "responses" }, ...rationales.map((each) => answer(each, rationales[0]))));
    dialog.replaceChildren(
      make("header", {}, title, where,
        button("Previous", () => put({ case: shown[place - 1].id }), place <= 0),
        button("Next", () => put({ case: shown[place + 1].id }), place < 0 || place + 1 >= shown.length),
        button("Close", () => dialog.close())),
      make("h3", { textContent: "Question" }), block("Question", text.question),
      make("h3", { textContent: "Answers" }),
      ...(columns.length > 1 ? [make("label", { className: "soft" }, "Underline the words that differ from ", others)] : []),
      answers, make("div", { className: "flag" }, make("label", {}, flagged, " ⚑ Flag"), make("label", {}, "Comment", comment)), ...rest);
    if (!dialog.open) dialog.showModal();
    title.focus();
    dialog.scrollTop = 0;
  };
  dialog.addEventListener("close", () => {
    if (state.case) put({ case: "" });
    table.focus({ preventScroll: true });
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select")) return;
    const place = current + { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (shown[place]) put({ case: shown[place].id });
  });

  // Flags: kept in this browser under the report's fingerprint; the page can read a file of them.
  const keep = (changes) => {
    Object.assign(flags, stored(), changes); // another tab may have kept some
    try {
      localStorage.setItem(key, JSON.stringify(flags));
    } catch {
      said.textContent = "This browser keeps nothing: download the flags before you leave the page.";
    }
    redraw();
  };
  const save = (name, kind, text) => {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: kind })) });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  at("save-flags").addEventListener("click", () => {
    const lines = Object.entries(flags).filter(([, each]) => each.flagged || each.comment);
    save("flags.jsonl", "application/jsonl", lines.map(([id, each]) => `${JSON.stringify({ report, case_id: id, ...each })}\n`).join(""));
  });
  at("read-flags").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    try {
      const lines = (await file.text()).split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
      if (lines.some((each) => each?.report !== report)) throw new Error("the flags are of another report");
      keep(Object.fromEntries(lines.map((each) => [String(each.case_id), { flagged: Boolean(each.flagged), comment: String(each.comment ?? "") }])));
      said.textContent = `${file.name}: ${lines.length} flags were read.`;
      await select();
    } catch (error) {
      said.textContent = `${file.name} is not read: ${error instanceof SyntaxError ? "it is no file of flags" : error.message}.`;
    }
  });
  at("save-table").addEventListener("click", () => {
    // No table program may take a text for a formula.
    const cell = (each) => `"${String(each).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
    const head = ["case_id", "topic", "question", ...models.flatMap((name) => ["score", "characters", "marks", "people"].map((what) => `${name} ${what}`)), "flagged", "comment"];
    const lines = shown.map((row) => [row.id, row.topic, row.question,
      ...row.cells.flatMap((each) => (each ?? ["", "", [], ""]).map((part) => part?.join?.(" ") ?? part ?? "")),
      flags[row.id]?.flagged ? "yes" : "", flags[row.id]?.comment ?? ""]);
    const number = (each) => (typeof each === "number" ? each : cell(each));
    save("cases.csv", "text/csv", `\ufeff${[head, ...lines].map((line) => line.map(number).join(",")).join("\r\n")}\r\n`);
  });

  // Begin.
  const option = (select, name, words) => at(select).append(make("option", { value: name, textContent: words }));
  at("topic").parentElement.hidden = !rows.some((row) => row.topic);
  for (const topic of [...new Set(rows.map((row) => row.topic))].filter(Boolean).sort()) option("topic", topic, topic);
  for (const [name, words] of Object.entries(names)) {
    const count = rows.filter((row) => row.marks.has(name)).length;
    if (count || name === "flagged") option("show", name, count ? `${words} (${count.toLocaleString("en")})` : words);
  }
  for (const [name, words] of Object.entries(sorts)) option("sort", name, words);
  const heads = make("tr");
  heads.setAttribute("aria-rowindex", 1);
  for (const [name, words] of [["file", "question"], ...models.map((model) => [`score:${model}`, model])]) {
    const button = make("button", { type: "button", dir: "auto", title: words, textContent: words });
    button.addEventListener("click", () => put({ sort: state.sort === name ? `-${name}` : name }));
    const head = make("th", { scope: "col" }, button);
    head.dataset.key = name;
    heads.append(head);
  }
  table.tHead.append(heads);
  table.style.setProperty("--models", models.length);
  const used = Object.keys(signs).filter((name) => name === "flagged" || rows.some((row) => row.marks.has(name)));
  const shades = [0, 1, 2, 3, 4].map((shade) => make("span", { className: `s${shade} shade` }));
  const high = blind ? "high: the answer is on the question, not that it is right" : "high";
  at("legend").append("· score: low, or marked ", ...shades, ` ${high}  `, ...used.flatMap((name) => [sign(name), ` ${names[name]}  `]));
  for (const name of KEYS.slice(1)) at(name).addEventListener("input", () => put({ [name]: at(name).value }));
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
  at("grid").hidden = false;
  await read();
})();

"use strict";
(() => {
  // Cases: search, filter and sort.
  const list = document.getElementById("list");
  const rest = document.getElementById("rest");
  const cases = [...list.querySelectorAll("details.case")];
  const listed = [...list.children];
  const unlisted = rest ? [...rest.querySelectorAll("details.case")] : [];
  const [search, topic, reason, sort] = ["search", "topic", "reason", "sort"].map((id) => document.getElementById(id));
  const count = document.getElementById("count");
  const measure = (each) => Number(each.getAttribute(`data-${sort.value.replaceAll("_", "-")}`) ?? -Infinity);
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const each of cases) {
      const text = words.length ? each.textContent.toLowerCase() : "";
      const fits = words.every((word) => text.includes(word))
        && (!topic.value || each.dataset.topic === topic.value)
        && (!reason.value || each.dataset.reasons.split(" ").includes(reason.value));
      each.hidden = !fits;
      shown += fits;
    }
    // A search, a filter or an order makes one list of all cases.
    const one = words.length || topic.value || reason.value || sort.value;
    for (const each of listed) if (!cases.includes(each)) each.hidden = one;
    if (one) {
      list.append(...(sort.value ? [...cases].sort((a, b) => measure(b) - measure(a)) : cases));
    } else {
      list.append(...listed);
      if (rest) rest.append(...unlisted);
    }
    count.textContent = `${shown} of ${cases.length} cases`;
  };
  document.getElementById("filters").hidden = false;
  for (const control of [search, topic, reason, sort]) control.addEventListener("input", apply);
  apply();

  // Tables: a press on a heading sorts by its column, a second press turns the order round.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const compare = (a, b) => {
          const [one, two] = [value(a), value(b)];
          if (one === "" || two === "") return (one === "") - (two === "");
          const way = Number.isNaN(Number(one) + Number(two)) ? one.localeCompare(two) : one - two;
          return down ? -way : way;
        };
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      });
    });
  }
})();

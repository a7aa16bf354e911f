"use strict";
(() => {
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
        const value = (row) => row.cells[column].textContent;
        const compare = (a, b) => {
          const [one, two] = [value(a), value(b)];
          const numbers = [one, two].map((text) => Number.parseFloat(text.replace(/^(under|over) /, "")));
          if (one === "–" || two === "–") return (one === "–") - (two === "–");
          const way = column === 0 || numbers.some(Number.isNaN) ? one.localeCompare(two) : numbers[0] - numbers[1];
          return down ? -way : way;
        };
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      });
    });
  }
})();

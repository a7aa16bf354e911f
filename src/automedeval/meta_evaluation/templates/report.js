"use strict";
(() => {
  const cases = [...document.querySelectorAll("details.case")];
  const search = document.getElementById("search");
  const topic = document.getElementById("topic");
  const worst = document.getElementById("only-worst");
  const count = document.getElementById("count");
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const each of cases) {
      const text = words.length ? each.textContent.toLowerCase() : "";
      const fits = words.every((word) => text.includes(word))
        && (!topic.value || each.dataset.topic === topic.value)
        && (!worst.checked || each.dataset.worst === "1");
      each.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${cases.length} cases`;
  };
  document.getElementById("filters").hidden = false;
  for (const control of [search, topic, worst]) control.addEventListener("input", apply);
  apply();
})();

"use strict";
// Search and filters of the index.
(() => {
  const form = document.getElementById("filters");
  const said = document.getElementById("said");
  const entries = [...document.getElementById("entries").children];
  const texts = entries.map((entry) => entry.textContent.toLowerCase());
  const selects = [...form.querySelectorAll("select")];

  function filter() {
    const words = form.elements.words.value.toLowerCase().split(/\s+/);
    const chosen = selects.filter((select) => select.value !== "");
    entries.forEach((entry, index) => {
      const has = ({name, value}) => entry.dataset[name].split(" ").includes(value);
      entry.hidden = !(chosen.every(has) && words.every((word) => texts[index].includes(word)));
    });
    const shown = entries.filter((entry) => !entry.hidden).length;
    said.textContent = `${shown} of ${entries.length} results`;
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.reset();
  form.hidden = false;
})();

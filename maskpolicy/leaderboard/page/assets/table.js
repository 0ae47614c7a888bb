"use strict";
// Sorting, filtering and the switch between score and difference.
(() => {
  const table = document.getElementById("board");
  const ranked = document.getElementById("ranked");
  const reported = document.getElementById("reported");
  const controls = document.getElementById("controls");
  const said = document.getElementById("said");
  const given = [...ranked.rows];
  const heads = [...table.querySelectorAll(".sort")];
  const sorted = {column: null, down: true};

  function value(row, column) {
    const {score, delta} = row.cells[column + 1].dataset;
    const differs = table.dataset.show === "difference" && delta !== undefined;
    const text = differs ? delta : score;
    if (text !== "") return Number(text);
    // the baseline differs from itself by nothing; what is missing comes last either way
    return differs && score !== "" && row.classList.contains("baseline") ? 0 : null;
  }

  function compare(one, other) {
    const {column, down} = sorted;
    if (column === -1) {
      const names = [one, other].map((row) => row.cells[0].textContent.trim());
      return names[0].localeCompare(names[1]) * (down ? -1 : 1);
    }
    const [a, b] = [value(one, column), value(other, column)];
    if (a === null || b === null) return (a === null) - (b === null);
    return (a - b) * (down ? -1 : 1);
  }

  function sort() {
    const rows = sorted.column === null ? given : [...given].sort(compare);
    ranked.append(...rows);
    for (const head of heads) {
      const mine = Number(head.dataset.column) === sorted.column;
      const state = mine ? (sorted.down ? "descending" : "ascending") : "none";
      head.closest("th").setAttribute("aria-sort", state);
    }
  }

  // numbers: highest first, lowest first, as it was; names: A to Z, Z to A, as it was
  function press(column) {
    const first = column !== -1;
    if (sorted.column !== column) Object.assign(sorted, {column, down: first});
    else if (sorted.down === first) sorted.down = !first;
    else sorted.column = null;
    sort();
    const name = heads.find((head) => Number(head.dataset.column) === column);
    const order = sorted.column === null ? "in the experiment's order"
      : `sorted by ${name.textContent.trim()}, ${sorted.down ? "descending" : "ascending"}`;
    said.textContent = `Rows are ${order}`;
  }

  function filter() {
    const checked = (name) => new Set(
      [...controls.querySelectorAll(`input[name="${name}"]:checked`)].map((input) => input.value));
    if (controls.querySelector('input[name="group"]')) {
      const groups = checked("group");
      for (const cell of table.querySelectorAll("[data-group]")) {
        cell.hidden = !groups.has(cell.dataset.group);
      }
    }
    const policies = checked("policy");
    for (const row of given) row.hidden = !policies.has(row.dataset.row);
    if (reported) reported.hidden = !controls.elements.reported.checked;
    const count = policies.size === given.length ? "all" : `${policies.size} of`;
    const chosen = document.getElementById("chosen");
    said.textContent = `${count} ${given.length} ${chosen.dataset.nouns} are shown`;
    chosen.textContent = said.textContent;
  }

  function change(event) {
    if (event.target.name === "show") {
      table.dataset.show = event.target.value;
      sort();
    } else {
      filter();
    }
  }

  function choose(event) {
    const {all} = event.target.dataset;
    if (all === undefined) return;
    for (const input of controls.querySelectorAll('input[name="policy"]')) {
      input.checked = all || "baseline" in input.dataset;
    }
    filter();
  }

  const steps = {
    ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};

  // arrow keys go from cell to cell, as in a spreadsheet
  function move(event) {
    const step = steps[event.key];
    const cell = event.target.closest("td");
    if (!step || !cell) return;
    const rows = [...ranked.rows].filter((row) => !row.hidden);
    let [y, x] = [rows.indexOf(cell.parentElement), cell.cellIndex];
    let target = null;
    do {
      [y, x] = [y + step[0], x + step[1]];
      target = rows[y]?.cells[x];
    } while (target && (target.hidden || !target.querySelector("button.cell")));
    if (target) {
      event.preventDefault();
      target.querySelector("button.cell").focus();
    }
  }

  for (const head of heads) {
    head.addEventListener("click", () => press(Number(head.dataset.column)));
  }
  controls.addEventListener("change", change);
  controls.addEventListener("click", choose);
  controls.addEventListener("submit", (event) => event.preventDefault());
  ranked.addEventListener("keydown", move);
  controls.reset();
  controls.hidden = false;
})();

"use strict";
// The seeds behind a cell, and its interval, beside it.
const Seeds = (() => {
  const {board, number, signed, difference} = Page;

  function cell(name) {
    const [row, task] = name.split("/").map(Number);
    const it = board.rows[row].cells[task];
    return {row: board.rows[row], task: board.tasks[task], it, row_index: row, task_index: task};
  }

  function other(found, seed) {
    if (!board.paired || found.row.against === found.row_index) return null;
    const base = board.rows[found.row.against].cells[found.task_index].seeds[seed];
    return base ? base.score : null;
  }

  function lines(found) {
    const made = Object.entries(found.it.seeds).map(([seed, one]) => {
      if (one.score === null) return `${board.unit} ${seed}: ${one.error || "no score"}`;
      const base = other(found, seed);
      const more = base === null ? "" : ` (${difference(one.score - base)})`;
      return `${board.unit} ${seed}: ${number(one.score)}${more}`;
    });
    const {test} = found.it;
    if (test && !test.reason) {
      made.push(`95% interval of the difference: ${signed(test.low)} to ${signed(test.high)}`);
    }
    return made.length ? made : ["not in these results"];
  }

  Tip.on(document.querySelectorAll("button.cell"),
    (button) => [lines(cell(button.dataset.cell)).join("\n")]);
  return {cell, other};
})();

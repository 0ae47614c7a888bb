"use strict";
// Minutes of each row's intermediate stage; they stand in the record, because they are not the
// same when a command is repeated.
(() => {
  const {board, record, number} = Page;
  const counted = /^(count|condense|contexts|fit|annotate|intermediate)/;
  const general = /^(count|condense|annotate) general stage/; // before the general stage

  function minutes(row) {
    const stages = new Map(); // seconds by the key of a stage
    const runs = new Set();
    for (const one of row.cells.flatMap((cell) => Object.values(cell.seeds))) {
      for (const [name, key] of one.stages.map((index) => board.stages[index])) {
        if (counted.test(name) && !general.test(name)) stages.set(key, record[one.from].stages[key]?.[0]);
      }
      if (one.run !== null) runs.add(one.run);
    }
    const seconds = [...stages.values()];
    if (!seconds.length || seconds.includes(undefined)) return null;
    return seconds.reduce((a, b) => a + b, 0) / 60 / Math.max(1, runs.size);
  }

  board.rows.forEach((row, index) => {
    const cell = document.querySelector(`[data-row="${index}"] .minutes`);
    const value = cell && minutes(row);
    if (value === null) return;
    cell.textContent = value < 0.1 ? "< 0.1" : number(value, value < 100 ? 1 : 0);
    cell.dataset.score = value;
  });
})();

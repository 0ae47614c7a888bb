"use strict";
// The details of a cell, in a dialog.
(() => {
  const {board, record, make, table, number, signed, difference, seconds} = Page;
  const dialog = document.getElementById("details");
  const body = document.getElementById("details-body");

  // {a: {b: 1}} as rows ["a.b", "1"]
  function flat(value, path = "") {
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return [[path, typeof value === "string" ? value : JSON.stringify(value)]];
    }
    const below = (key) => (path ? `${path}.${key}` : key);
    return Object.entries(value).flatMap(([key, inner]) => flat(inner, below(key)));
  }

  const folded = (title, ...children) =>
    make("details", {}, make("summary", {}, title), ...children);

  function took(one, index) {
    const entry = record[one.from].stages[board.stages[index][1]];
    return entry ? entry[0] : null;
  }

  // scores that another program computed have no stages
  const isGiven = !board.stages.length;

  function own(one) {
    const mine = one.stages.filter((index) => /^(finetune|evaluate) /.test(board.stages[index][0]));
    const known = mine.map((index) => took(one, index)).filter((value) => value !== null);
    return known.length ? seconds(known.reduce((a, b) => a + b, 0)) : "–";
  }

  function seeds(found) {
    const rows = Object.entries(found.it.seeds).map(([seed, one]) => {
      const base = Seeds.other(found, seed);
      const gap = one.score === null || base === null ? "–" : difference(one.score - base);
      const score = one.score === null ? one.error || "no score" : number(one.score, 2);
      return [seed, score, gap, one.run === null ? "–" : String(one.run), own(one)];
    });
    if (!rows.length) return make("p", {}, "This cell is not in these results.");
    const against = board.rows[found.row.against].label;
    const head = [board.unit, "score", `to ${against}`, "intermediate run", "fine-tuning, evaluation"];
    const some = isGiven ? 3 : head.length;
    return table(head.slice(0, some), rows.map((row) => row.slice(0, some)), [0, 1, 2, 3, 4]);
  }

  function verdict(found) {
    const {test} = found.it;
    if (!test) return null;
    const against = board.rows[found.row.against].label;
    if (test.reason) {
      return make("p", {}, `No test against ${against}: ${test.reason}.`);
    }
    const p = (value) => (value < 0.001 ? "< 0.001" : `= ${value.toFixed(3)}`);
    const finds = test.detectable > 100 ? "is too small to mark any difference"
      : `marks a difference of ${number(test.detectable, 1)} points`;
    const mark = test.significant ? "It is significant."
      : `It is not significant: this leaderboard ${finds} with a probability of 80%.`;
    return make("p", {},
      `Against ${against}, paired over ${test.seeds} ${board.unit}${test.seeds === 1 ? "" : "s"} and ${test.groups} groups of examples: `
      + `${difference(test.difference)} points, `
      + `95% interval ${signed(test.low)} to ${signed(test.high)}, p ${p(test.p)}; `
      + `after Holm p ${p(test.p_holm)}. ${mark}`);
  }

  function beside(found) {
    const shown = Object.entries(found.it.parts).map(([name, value]) => `${name} ${number(value, 1)}`);
    return shown.length ? make("p", {}, `Beside the score, mean over seeds: ${shown.join(", ")}.`) : null;
  }

  function work(row) {
    if (!row.work) return null;
    const rows = Object.entries(row.work).map(([key, value]) => [
      key.replaceAll("_", " "),
      typeof value === "number" ? value.toLocaleString("en") : JSON.stringify(value)]);
    return folded("Work of the intermediate stage", table([], rows, [1]));
  }

  function stages(found) {
    const made = Object.entries(found.it.seeds).flatMap(([seed, one]) => one.stages.map((index) => {
      const spent = took(one, index);
      const [name, key] = board.stages[index];
      const made = record[one.from].stages[key]?.[1];
      const other = made ? `torch ${made.versions.torch}, ${made.commit || ""}` : "";
      return [name, spent === null ? "–" : seconds(spent), key, other, spent];
    }));
    const once = [...new Map(made.map((row) => [row[2], row])).values()];
    const known = once.map((row) => row[4]).filter((value) => value !== null);
    const least = known.length < once.length ? "at least " : "";
    const spent = known.length ? `${least}${seconds(known.reduce((a, b) => a + b, 0))}` : "–";
    return folded(`Stages: ${spent} in all, those shared with other cells included`,
      table(["stage", "took", "key in the store", "versions, if others"],
        once.map((row) => row.slice(0, 4)), [1]));
  }

  function versions(found) {
    const sources = new Set(Object.values(found.it.seeds).map((one) => one.from));
    const shown = [...sources].filter((index) => record[index].versions).map((index) => {
      const {name, hardware, commit, versions: known} = record[index];
      const rows = [["hardware", hardware], ["commit", commit || "–"], ...Object.entries(known)];
      return make("div", {}, sources.size > 1 ? make("h3", {}, name) : null, table([], rows));
    });
    return shown.length ? folded("Versions", ...shown) : null;
  }

  function open(name) {
    const found = Seeds.cell(name);
    const title = `${found.row.label} · ${found.task.title}`;
    document.getElementById("details-title").textContent = title;
    const settings = {...found.row.config, ...found.it.own, task: found.task.config};
    const kids = [
      seeds(found), beside(found), verdict(found), Examples.section(found), work(found.row),
      ...(isGiven ? []
        : [folded("Settings", table([], flat(settings))), stages(found), versions(found)])];
    body.replaceChildren(...kids.filter((kid) => kid !== null));
    Tip.hide();
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  const place = (name) => `#cell=${name}`;
  for (const button of document.querySelectorAll("button.cell")) {
    button.addEventListener("click", () => {
      history.replaceState(null, "", place(button.dataset.cell));
      open(button.dataset.cell);
    });
  }
  document.getElementById("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
  });

  const linked = [...document.querySelectorAll("button.cell")]
    .find((button) => place(button.dataset.cell) === location.hash);
  if (linked) open(linked.dataset.cell);
})();

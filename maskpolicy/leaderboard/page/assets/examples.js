"use strict";
// Examples of one task that two policies answer differently.
const Examples = (() => {
  const {board, examples, make, number} = Page;

  // [examples on which i scores higher, on which j does], however the pair is stored
  function counts(task, i, j) {
    const pair = task.pairs[`${Math.min(i, j)}-${Math.max(i, j)}`];
    return pair && (i < j ? pair : [...pair].reverse());
  }

  // the scores of two rows, averaged over the seeds that both have
  function means(example, i, j) {
    const both = [example.answers[i][3], example.answers[j][3]];
    const seeds = Object.keys(both[0]).filter((seed) => seed in both[1]);
    return both.map((scores) => seeds.reduce((sum, seed) => sum + scores[seed], 0) / seeds.length);
  }

  function answer(example, row, score, won) {
    const [text, times, seeds] = example.answers[row];
    const often = seeds > 1 ? ` (${times} of ${seeds} seeds)` : "";
    return [
      make("span", {class: "who"}, board.rows[row].label),
      make("span", won ? {class: "won"} : {}, text || "(nothing)", make("small", {}, often)),
      make("span", {class: "value"}, number(score))];
  }

  function article(example, i, j) {
    const [one, other] = means(example, i, j);
    const ahead = one > other;
    const more = example.more ? `, and ${example.more} more` : "";
    return make("li", {class: "example"},
      make("p", {class: "question"}, example.source === null ? example.id : example.source),
      make("p", {}, make("small", {}, `accepted: ${example.targets.join(" | ")}${more}`)),
      make("div", {class: "answers"}, ...answer(example, i, one, ahead), ...answer(example, j, other, !ahead)));
  }

  function list(task, i, j, which) {
    const gap = (example) => {
      const [one, other] = means(example, i, j);
      return one - other;
    };
    const differ = task.shown.filter((one) => one.answers[i] && one.answers[j]
      && Math.abs(gap(one)) > 1e-3 && (which === "both" || (gap(one) > 0) === (which === "first")));
    differ.sort((one, other) => (gap(other) > 0) - (gap(one) > 0));
    return differ.map((one) => article(one, i, j));
  }

  function picker(label, options, value) {
    const choices = options.map(([key, text]) =>
      make("option", {value: key, selected: key === value}, text));
    const select = make("select", {}, ...choices);
    return [make("label", {}, label, select), select];
  }

  function section(found) {
    const task = examples[found.task_index];
    const asked = board.rows.map((_, row) => row)
      .filter((row) => task && board.rows.some((_, other) => counts(task, row, other)));
    const others = asked.filter((row) => row !== found.row_index);
    if (!asked.includes(found.row_index) || !others.length) return null;
    const start = others.includes(found.row.against) ? found.row.against : others[0];
    const names = (rows) => rows.map((row) => [row, board.rows[row].label]);
    const [left, first] = picker("Compare", names(asked), found.row_index);
    const [right, second] = picker("with", names(asked), start);
    const sides = [["both", "all that differ"], ["first", "first scores higher"],
      ["second", "second scores higher"]];
    const [shown, which] = picker("show", sides, "both");
    const said = make("p", {role: "status"});
    const items = make("ul", {class: "examples"});
    const update = () => {
      const [i, j] = [Number(first.value), Number(second.value)];
      const pair = counts(task, i, j);
      if (i === j || !pair) {
        said.textContent = i === j ? "Choose two different policies." : "These two share no seed.";
        items.replaceChildren();
        return;
      }
      const kids = list(task, i, j, which.value);
      items.replaceChildren(...kids);
      const rest = task.n - pair[0] - pair[1];
      const [one, other] = [board.rows[i].label, board.rows[j].label];
      const wanted = {both: pair[0] + pair[1], first: pair[0], second: pair[1]}[which.value];
      said.textContent = `${one} scores higher on ${pair[0]} of ${task.n} examples, `
        + `${other} on ${pair[1]}, both the same on ${rest} (averages over seeds); `
        + (kids.length || !wanted ? `${kids.length} shown.`
          : "There was no room for these on this page.");
    };
    for (const select of [first, second, which]) select.addEventListener("change", update);
    update();
    return make("section", {}, make("h3", {}, "Examples that are answered differently"),
      make("div", {class: "pickers"}, left, right, shown), said, items);
  }

  return {section};
})();

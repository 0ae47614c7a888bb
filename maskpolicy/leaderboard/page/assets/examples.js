"use strict";
// Examples of one task that two policies answer differently.
const Examples = (() => {
  const {board, examples, make, number} = Page;

  // [examples on which i scores higher, on which j does], however the pair is stored
  function counts(task, i, j) {
    const pair = task.pairs[`${Math.min(i, j)}-${Math.max(i, j)}`];
    return pair && (i < j ? pair : [...pair].reverse());
  }

  function answer(example, row, won) {
    const [text, times, seeds, score] = example.answers[row];
    const often = seeds > 1 ? ` (${times} of ${seeds} seeds)` : "";
    return [
      make("span", {class: "who"}, board.rows[row].label),
      make("span", won ? {class: "won"} : {}, text || "(nothing)", make("small", {}, often)),
      make("span", {class: "value"}, number(score))];
  }

  function article(example, i, j) {
    const ahead = example.answers[i][3] > example.answers[j][3];
    const more = example.more ? `, and ${example.more} more` : "";
    return make("li", {class: "example"},
      make("p", {class: "question"}, example.source === null ? example.id : example.source),
      make("p", {}, make("small", {}, `accepted: ${example.targets.join(" | ")}${more}`)),
      make("div", {class: "answers"}, ...answer(example, i, ahead), ...answer(example, j, !ahead)));
  }

  function list(task, i, j, which) {
    const differ = task.shown.filter((one) => {
      const [a, b] = [one.answers[i], one.answers[j]];
      return a && b && a[3] !== b[3] && (which === "both" || (a[3] > b[3]) === (which === "first"));
    });
    const ahead = (one) => one.answers[i][3] > one.answers[j][3];
    differ.sort((one, other) => ahead(other) - ahead(one));
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
        said.textContent = "Choose two different policies.";
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

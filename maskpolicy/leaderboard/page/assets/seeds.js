"use strict";
// The seeds behind a cell, while the pointer or the focus is on it.
const Seeds = (() => {
  const {board, number, signed} = Page;
  const tip = document.getElementById("tip");

  function cell(name) {
    const [row, task] = name.split("/").map(Number);
    const it = board.rows[row].cells[task];
    return {row: board.rows[row], task: board.tasks[task], it, row_index: row, task_index: task};
  }

  function other(found, seed) {
    if (found.row.against === found.row_index) return null;
    const base = board.rows[found.row.against].cells[found.task_index].seeds[seed];
    return base ? base.score : null;
  }

  function lines(found) {
    const made = Object.entries(found.it.seeds).map(([seed, one]) => {
      if (one.score === null) return `seed ${seed}: ${one.error || "no score"}`;
      const base = other(found, seed);
      const more = base === null ? "" : ` (${signed(one.score - base)})`;
      return `seed ${seed}: ${number(one.score)}${more}`;
    });
    return made.length ? made : ["not in these results"];
  }

  let current = null;

  function show(button) {
    hide();
    current = button;
    tip.textContent = lines(cell(button.dataset.cell)).join("\n");
    tip.hidden = false;
    button.setAttribute("aria-describedby", "tip");
    place();
  }

  function place() {
    if (!current) return;
    const box = current.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const below = box.bottom + 6;
    const top = below + size.height > innerHeight ? box.top - size.height - 6 : below;
    const left = Math.min(Math.max(8, box.right - size.width), innerWidth - size.width - 8);
    tip.style.top = `${Math.max(4, top)}px`;
    tip.style.left = `${left}px`;
  }

  function hide() {
    tip.hidden = true;
    current?.removeAttribute("aria-describedby");
    current = null;
  }

  for (const button of document.querySelectorAll("button.cell")) {
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") show(button);
    });
    button.addEventListener("pointerleave", hide);
    button.addEventListener("focus", () => button.matches(":focus-visible") && show(button));
    button.addEventListener("blur", hide);
  }
  addEventListener("scroll", place, {capture: true, passive: true});
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  return {cell, other, lines, hide};
})();

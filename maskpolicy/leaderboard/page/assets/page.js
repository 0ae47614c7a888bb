"use strict";
// What the other scripts share: data, elements made without HTML text.
const Page = (() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const board = read("data-board");
  const examples = read("data-examples");
  const record = read("data-record");

  // make("p", {class: "a"}, "text", child): texts are never parsed as HTML
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === true) element.setAttribute(key, "");
      else if (value !== false && value != null) element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child != null));
    return element;
  }

  function table(head, rows, numbers = []) {
    const kind = (index) => (numbers.includes(index) ? {class: "number"} : {class: "text"});
    const cells = (row) => row.map((cell, index) => make("td", kind(index), cell));
    const titles = head.map((title, index) => make("th", {scope: "col", ...kind(index)}, title));
    const made = make("table", {class: "plain"});
    if (head.length) made.append(make("thead", {}, make("tr", {}, ...titles)));
    made.append(make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row)))));
    const label = head.join(", ") || "Table";
    const scroll = {class: "scroll", tabindex: 0, role: "region", "aria-label": label};
    return make("div", {class: "frame"}, make("div", scroll, made));
  }

  // a tie goes to the even digit, as in the table, which Python wrote
  const number = (exact, digits = 1) => {
    const value = Number(exact.toFixed(4)); // as `points` in Python
    const isTie = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
    const text = value.toFixed(digits);
    const even = isTie && text.at(-1) % 2 ? (value * (1 - 1e-9)).toFixed(digits) : text;
    return even.replace("-", "−");
  };
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const difference = (value) => (/[1-9]/.test(number(value)) ? signed(value) : "0.0");
  const seconds = (value) => {
    if (value >= 5400) return `${number(value / 3600)} h`;
    return value >= 90 ? `${number(value / 60)} min` : `${number(value)} s`;
  };

  return {board, examples, record, make, table, number, signed, difference, seconds};
})();

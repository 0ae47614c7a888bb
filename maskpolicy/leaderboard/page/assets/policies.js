"use strict";
// What a row's policy does, and a passage that it masked, beside the row's name.
Tip.on(document.querySelectorAll("a.row"), (link) => {
  const entry = document.querySelector(`${link.getAttribute("href")} dd`);
  return [...entry.cloneNode(true).children];
});

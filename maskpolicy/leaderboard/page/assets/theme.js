"use strict";
// The button that chooses light or dark.
(() => {
  const themes = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  function dress(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(button.dataset.theme) + 1) % themes.length];
    dress(next);
    // a page may have no storage
    try { localStorage.setItem("maskpolicy-theme", next); } catch { /* then it is not kept */ }
  });
  let kept = null;
  try { kept = localStorage.getItem("maskpolicy-theme"); } catch { /* then the system decides */ }
  dress(themes.includes(kept) ? kept : "system");
})();

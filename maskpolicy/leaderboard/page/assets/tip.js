"use strict";
// A box beside an element, while the pointer or the focus is on it.
const Tip = (() => {
  const tip = document.getElementById("tip");
  let current = null;

  function show(element, kids) {
    hide();
    current = element;
    tip.replaceChildren(...kids);
    tip.hidden = false;
    element.setAttribute("aria-describedby", "tip");
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

  // kids(element) returns what the box holds
  function on(elements, kids) {
    for (const element of elements) {
      element.addEventListener("pointerenter", (event) => {
        if (event.pointerType === "mouse") show(element, kids(element));
      });
      element.addEventListener("pointerleave", hide);
      element.addEventListener("focus", () => {
        if (element.matches(":focus-visible")) show(element, kids(element));
      });
      element.addEventListener("blur", hide);
    }
  }

  addEventListener("scroll", place, {capture: true, passive: true});
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  return {on, hide};
})();

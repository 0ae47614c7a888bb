"use strict";
// A shadow at each side to which a large table goes on.
(() => {
  function mark(scroll) {
    const rest = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
    const below = scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop;
    const {classList} = scroll.parentElement;
    classList.toggle("more-left", scroll.scrollLeft > 1);
    classList.toggle("more-right", rest > 1);
    classList.toggle("more-below", below > 1);
  }

  const sizes = new ResizeObserver((entries) => entries.forEach(({target}) => mark(
    target.closest(".scroll"))));
  function watch(scroll) {
    sizes.observe(scroll);
    sizes.observe(scroll.firstElementChild);
    scroll.addEventListener("scroll", () => mark(scroll), {passive: true});
  }

  const all = (element) => element.querySelectorAll(".frame > .scroll");
  all(document).forEach(watch);
  new MutationObserver((changes) => changes.flatMap((change) => [...change.addedNodes])
    .filter((node) => node.nodeType === 1)
    .forEach((node) => [...all(node)].concat(node.matches(".frame") ? [node.firstChild] : [])
      .forEach(watch)))
    .observe(document.getElementById("details-body"), {childList: true, subtree: true});
})();

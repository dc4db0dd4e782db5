// What the theme makes when a page is shown lacks names, and places that scroll cannot be reached by the keyboard.
addEventListener("load", () => {
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Code ${i + 1}`));
  for (const place of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p"))
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
});

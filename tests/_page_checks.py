"""What tests of pages run in the browser."""

from __future__ import annotations

CUT = """() => {
  const cut = [];
  const title = (one) => one.closest("section, header")?.querySelector("h1, h2")?.textContent;
  const add = (one) => cut.push(`${one.tagName} in ${title(one)}: ${one.textContent.trim().slice(0, 60)}`);
  for (const one of document.querySelectorAll("td, th, td *, th *, caption, p, pre, dt, dd, h1, h2, h3, li, .badge"))
    if (one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1) add(one);
  for (const table of document.querySelectorAll("table:not(#trials)"))
    if (table.scrollWidth > table.parentElement.clientWidth + 1) add(table);
  for (const text of document.querySelectorAll("svg text")) {
    const [inner, outer] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    const across = inner.left < outer.left - 1 || inner.right > outer.right + 1;
    if (inner.width && (across || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1)) add(text);
  }
  if (document.documentElement.scrollWidth > innerWidth) add(document.querySelector("h1"));
  return cut;
}"""
"""Names every cell, heading and label that is wider than its place."""

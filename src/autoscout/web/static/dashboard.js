"use strict";
(() => {
  const status = document.getElementById("live");
  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };
  const changed = () => document.dispatchEvent(new Event("autoscout:changed"));
  const seen = new Map(); // part -> the HTML that it was last filled with

  // A part in which somebody types, ticks or selects stays as it is until they are done.
  const inUse = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button")
    || part.querySelector("input:checked") !== null;

  const fill = (part, html, nodes) => {
    if (seen.get(part.id) === html) return false;
    if (inUse(part)) return false;
    seen.set(part.id, html);
    const open = [...part.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceChildren(...nodes);
    for (const summary of part.querySelectorAll("details > summary")) if (open.includes(summary.textContent)) summary.parentElement.open = true;
    part.querySelectorAll(".scroll").forEach((box, place) => { if (scrolled[place]) [box.scrollLeft, box.scrollTop] = scrolled[place]; });
    if (focused) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    return true;
  };

  const parse = (html) => new DOMParser().parseFromString(html, "text/html");
  const fetchText = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin", redirect: "manual" });
    if (answer.type === "opaqueredirect") throw new Error("signed out; load the page to sign in again");
    if (!answer.ok) throw new Error("the dashboard does not answer");
    return answer.text();
  };

  // What takes long to work out is fetched after the first paint, one after another, and again when the study has changed.
  const fetchLater = async () => {
    for (const part of document.querySelectorAll(".part[data-src]")) {
      try {
        const html = await fetchText(part.dataset.src);
        if (fill(part, html, [...parse(html).body.childNodes])) changed();
      } catch { /* the next change tries again */ }
    }
  };

  let busy = false;
  let again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const html = await fetchText(location.href);
      const fresh = parse(html);
      let any = false;
      for (const part of document.querySelectorAll(".part[data-live]:not([data-src])")) {
        const next = fresh.getElementById(part.id);
        if (next) any = fill(part, next.innerHTML, [...next.childNodes]) || any;
      }
      if (any) changed();
      await fetchLater();
      say(`live, updated ${new Date().toLocaleTimeString()}`);
    } catch (error) {
      say(error instanceof TypeError ? "the dashboard does not answer" : error.message);
    }
    busy = false;
    if (again) { again = false; setTimeout(refresh, 300); }
  };

  // A click on a mark of a plot leads to its trial; the list of trials is the same way for a keyboard.
  document.addEventListener("click", (event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-i].dot, [data-i].line, svg [data-n]") : null;
    const source = document.getElementById("data");
    if (!mark || !source) return;
    const data = JSON.parse(source.textContent);
    if (!data.links) return;
    let number = mark.dataset.n;
    if (number === undefined) number = data.trials[mark.dataset.i]?.number;
    for (const more of number === undefined ? document.querySelectorAll("script.more-trials") : []) number = JSON.parse(more.textContent)[mark.dataset.i]?.number;
    if (number !== undefined) location.href = data.links + number;
  });

  for (const part of document.querySelectorAll(".part[data-live]:not([data-src])")) seen.set(part.id, part.innerHTML);
  fetchLater();

  const live = document.body.dataset.live;
  if (live) {
    let first = true;
    const events = new EventSource(`/api/events?study=${encodeURIComponent(live)}`);
    events.addEventListener("change", () => {
      if (first) { first = false; say("live"); return; }
      refresh();
    });
    events.addEventListener("error", () => { say("not connected; trying again"); first = false; });
    addEventListener("pagehide", () => events.close());
  }
})();

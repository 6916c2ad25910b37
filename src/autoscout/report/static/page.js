"use strict";
(() => {
  const tip = document.getElementById("tip");
  document.documentElement.classList.add("scripted");

  // Read again after a part of the page was replaced: a dashboard does that while a study runs.
  let data = { metric: "", trials: {} };
  const read = () => {
    const source = document.getElementById("data");
    if (source) data = JSON.parse(source.textContent);
    for (const more of document.querySelectorAll("script.more-trials")) Object.assign(data.trials, JSON.parse(more.textContent));
  };

  const element = (name, text) => {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  };

  // Tooltips: text only, never markup, because names and reasons come from engines and logs.
  const showTip = (event, index) => {
    const trial = data.trials[index];
    if (!trial) return;
    tip.replaceChildren(element("b", trial.title), element("div", `${data.metric}: ${trial.text}`));
    for (const [knob, value] of trial.knobs) tip.append(element("span", `${knob} = ${value}`));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 12, innerHeight - box.height - 8);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  let lit = null;
  const light = (index) => {
    if (index === lit) return;
    for (const mark of document.querySelectorAll(".lit")) mark.classList.remove("lit");
    if (index !== null) for (const mark of document.querySelectorAll(`[data-i="${index}"].dot, [data-i="${index}"].line`)) mark.classList.add("lit");
    lit = index;
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target instanceof Element ? event.target.closest(".dot[data-i], .line[data-i]") : null;
    light(mark ? mark.dataset.i : null);
    if (mark) showTip(event, mark.dataset.i);
    else if (tip) tip.hidden = true;
  });

  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
    if (!button) return;
    const text = button.closest(".command").querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.closest(".command").querySelector("pre"));
      button.textContent = "press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });

  // The table: sort by a column, filter by text and by the brushes of the plot above it.
  const brushes = new Map();
  const inside = (index) => {
    const trial = data.trials[index];
    if (!brushes.size) return true;
    return Boolean(trial && trial.places) && [...brushes].every(([axis, [low, high]]) => trial.places[axis] >= low && trial.places[axis] <= high);
  };
  const update = () => {
    const table = document.querySelector("table#trials:not(.paged)");
    const input = document.getElementById("filter");
    const words = input ? input.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const rows = table ? [...table.tBodies[0].rows] : [];
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const keep = inside(Number(row.dataset.i)) && words.every((word) => text.includes(word));
      row.hidden = !keep;
      count += keep;
    }
    for (const line of document.querySelectorAll(".line")) line.classList.toggle("out", !inside(Number(line.dataset.i)));
    const shown = document.getElementById("shown");
    if (shown && table) shown.textContent = `${count} of ${rows.length} trials`;
  };
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const raw = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(raw);
    return raw === "" || raw === "-" ? null : Number.isNaN(number) ? raw : number;
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other));
  };
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = [...table.tBodies[0].rows].map((row) => [keyOf(row, column), row]);
      keyed.sort((one, other) => {
        if (one[0] === null || other[0] === null) return compare(one[0], other[0]);
        return up ? compare(one[0], other[0]) : compare(other[0], one[0]);
      });
      table.tBodies[0].append(...keyed.map((pair) => pair[1]));
    }));
    document.getElementById("filter")?.addEventListener("input", update);
  };

  // Brushes: drag along an axis; a click without a drag takes that axis's brush away.
  const brushable = (plot) => {
    brushes.clear();
    const placeOf = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
      return Math.min(336, Math.max(38, point.y));
    };
    for (const area of plot.querySelectorAll(".brush-area")) {
      const axis = Number(area.dataset.axis);
      let start = null;
      let mark = null;
      area.addEventListener("pointerdown", (event) => {
        start = placeOf(event);
        area.setPointerCapture(event.pointerId);
        event.preventDefault();
      });
      area.addEventListener("pointermove", (event) => {
        if (start === null) return;
        const end = placeOf(event);
        if (Math.abs(end - start) < 3) return;
        if (!mark) {
          mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
          mark.setAttribute("class", "brush");
          area.after(mark);
        }
        const [low, high] = [Math.min(start, end), Math.max(start, end)];
        mark.setAttribute("x", area.getAttribute("x"));
        mark.setAttribute("width", area.getAttribute("width"));
        mark.setAttribute("y", low);
        mark.setAttribute("height", high - low);
        brushes.set(axis, [low, high]);
        update();
      });
      const drop = () => { if (mark) mark.remove(); mark = null; brushes.delete(axis); update(); };
      area.addEventListener("pointerup", (event) => {
        if (start !== null && Math.abs(placeOf(event) - start) < 3) drop();
        start = null;
      });
      area.addEventListener("pointercancel", () => { start = null; });
      document.getElementById("clear").addEventListener("click", drop);
    }
  };

  // What is new in the page learns to react; what is already there keeps what it learnt.
  const attach = () => {
    read();
    for (const table of document.querySelectorAll("table#trials:not(.paged):not([data-ready])")) { table.dataset.ready = ""; sortable(table); }
    for (const plot of document.querySelectorAll("svg.parallel:not([data-ready])")) { plot.dataset.ready = ""; brushable(plot); }
    update();
  };
  document.addEventListener("autoscout:changed", attach);
  attach();
})();

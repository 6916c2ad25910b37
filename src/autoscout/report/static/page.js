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

  // Any two metrics against each other. Without a script the picture shows the two that matter most.
  const pair = {};  // what the reader chose; it outlives a dashboard's redrawing of the part
  const scaleOf = (values, start, end) => {
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const log = low > 0 && high / low > 20;
    const air = log ? (high / low) ** 0.06 : high > low ? (high - low) * 0.06 : Math.abs(high) * 0.05 || 1;
    [low, high] = log ? [low / air, high * air] : [low - air, high + air];
    const share = (value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
    let marks = [];
    if (log) {
      const steps = high / low < 500 ? [1, 2, 5] : [1];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) for (const step of steps) marks.push(step * 10 ** power);
    } else {
      const raw = (high - low) / 5;
      const size = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 2.5, 5, 10].map((factor) => size * factor).find((one) => one >= raw) ?? size * 10;
      for (let index = Math.floor(low / step); index <= Math.ceil(high / step); index += 1) marks.push(step * index);
    }
    marks = marks.filter((mark) => low <= mark && mark <= high);
    return { low, high, log, marks, place: (value) => start + share(value) * (end - start) };
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const median = (values) => {
    const sorted = [...values].sort((one, other) => one - other);
    return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  };
  const drawPair = (plot, source, across, up) => {
    const [left, right, top, bottom] = [80, 860, 26, 340];
    const rows = source.rows.filter((row) => row[3 + across] !== null && row[3 + up] !== null)
      .map((row) => ({ number: row[0], kind: row[1], role: row[2], x: row[3 + across], y: row[3 + up] }));
    if (rows.length < 2) {
      plot.replaceChildren(drawn("text", { x: 80, y: 40 }, "fewer than two trials report both"));
      return;
    }
    const x = scaleOf(rows.map((row) => row.x), left, right);
    const y = scaleOf(rows.map((row) => row.y), bottom, top);
    const short = (value) => `${Number(value.toPrecision(6))}`;
    const parts = [];
    for (const mark of y.marks) {
      parts.push(drawn("line", { x1: left, x2: right, y1: y.place(mark), y2: y.place(mark), class: "grid" }));
      parts.push(drawn("text", { x: left - 8, y: y.place(mark) + 4, class: "tick", "text-anchor": "end" }, short(mark)));
    }
    for (const mark of x.marks) {
      parts.push(drawn("line", { x1: x.place(mark), x2: x.place(mark), y1: top, y2: bottom, class: "grid" }));
      parts.push(drawn("text", { x: x.place(mark), y: bottom + 18, class: "tick", "text-anchor": "middle" }, short(mark)));
    }
    const [one, other] = [source.metrics[across], source.metrics[up]];
    for (const limit of one.limits) if (x.low <= limit && limit <= x.high) parts.push(drawn("line", { x1: x.place(limit), x2: x.place(limit), y1: top, y2: bottom, class: "limit" }));
    for (const limit of other.limits) if (y.low <= limit && limit <= y.high) parts.push(drawn("line", { x1: left, x2: right, y1: y.place(limit), y2: y.place(limit), class: "limit" }));
    const name = (metric, scale) => (scale.log ? `${metric.label} (log)` : metric.label);
    parts.push(drawn("text", { x: (left + right) / 2, y: bottom + 40, class: "axis-name", "text-anchor": "middle" }, name(one, x)));
    parts.push(drawn("text", { x: left, y: top - 10, class: "axis-name" }, name(other, y)));
    if (one.sign && other.sign && across !== up) {
      const order = rows.filter((row) => !row.kind.includes("broken")).sort((a, b) => one.sign * (a.x - b.x) || other.sign * (a.y - b.y));
      const front = [];
      for (const row of order) if (!front.length || other.sign * row.y < other.sign * front[front.length - 1].y) front.push(row);
      parts.push(drawn("path", { d: front.map((row, index) => `${index ? "L" : "M"}${x.place(row.x)} ${y.place(row.y)}`).join("") || "M0 0", class: "best" }));
    }
    for (const row of rows) {
      const dot = drawn("circle", { cx: x.place(row.x), cy: y.place(row.y), r: 3.2, class: row.kind });
      dot.append(drawn("title", {}, `#${row.number}: ${row.y}, ${row.x}`));
      parts.push(dot);
    }
    for (const role of ["default", "best"]) {
      const mine = rows.filter((row) => row.role === role);
      if (!mine.length) continue;
      const [cx, cy] = [x.place(median(mine.map((row) => row.x))), y.place(median(mine.map((row) => row.y)))];
      parts.push(drawn("circle", { cx, cy, r: 8, class: `ring ${role}` }), drawn("text", { x: cx + 11, y: cy + 16, class: "default-label on-lines" }, role));
    }
    plot.replaceChildren(drawn("title", {}, `${other.name} against ${one.name} of every trial`), ...parts);
  };
  const choosable = (script) => {
    const source = JSON.parse(script.textContent);
    const part = script.parentElement;
    const plot = part.querySelector("svg.tradeoff");
    const [up, across] = ["up", "across"].map((axis) => part.querySelector(`select[data-axis="${axis}"]`));
    const [first, second, before] = [up.value, across.value, [...plot.childNodes]];
    const show = () => {
      if (up.value === first && across.value === second) plot.replaceChildren(...before);
      else drawPair(plot, source, Number(across.value), Number(up.value));
    };
    for (const list of [up, across]) {
      const index = source.metrics.findIndex((metric) => metric.name === pair[list.dataset.axis]);
      if (index >= 0) list.value = String(index);
      list.addEventListener("change", () => { pair[list.dataset.axis] = source.metrics[Number(list.value)].name; show(); });
    }
    show();
  };

  // What is new in the page learns to react; what is already there keeps what it learnt.
  const attach = () => {
    read();
    for (const table of document.querySelectorAll("table#trials:not(.paged):not([data-ready])")) { table.dataset.ready = ""; sortable(table); }
    for (const script of document.querySelectorAll("script.pairs:not([data-ready])")) { script.dataset.ready = ""; choosable(script); }
    for (const plot of document.querySelectorAll("svg.parallel:not([data-ready])")) { plot.dataset.ready = ""; brushable(plot); }
    update();
  };
  document.addEventListener("autoscout:changed", attach);
  attach();
})();

"use strict";
// What a picture's page does: move, zoom, search, collapse, light up. It asks nobody for anything.
const data = JSON.parse(document.getElementById("data").textContent);
const panes = [...document.querySelectorAll(".pane")].map((element, index) => ({
  element, boxes: data.panes[index].boxes, edges: data.panes[index].edges, matches: data.panes[index].matches, depth: 0, view: null,
}));
const panel = document.getElementById("story"), search = document.getElementById("search"), live = document.getElementById("live");
let selected = null, hits = [], hit = -1;

const drawn = pane => [...pane.element.querySelectorAll("svg")].find(svg => Number(svg.dataset.depth) === pane.depth);
const boxesOf = pane => [...drawn(pane).querySelectorAll(".box")];
const boxOf = (pane, name) => boxesOf(pane).find(box => box.dataset.name === name);
const edgesOf = pane => data.panes[panes.indexOf(pane)].edges[pane.depth];

// The view ---------------------------------------------------------------------------------------------------------
function setView(pane, view) {
  pane.view = view;
  drawn(pane).setAttribute("viewBox", [view.x, view.y, view.w, view.h].map(v => v.toFixed(2)).join(" "));
}
function fit(pane) {
  const svg = drawn(pane), w = Number(svg.dataset.width), h = Number(svg.dataset.height);
  setView(pane, {x: 0, y: 0, w, h});
}
function start(pane) { // at 100 %, from the top, unless all of it fits
  const area = pane.element.getBoundingClientRect(), svg = drawn(pane);
  const w = Number(svg.dataset.width), h = Number(svg.dataset.height);
  if (!area.width || h <= area.height && w <= area.width) return setView(pane, {x: (w - (area.width || w)) / 2, y: 0, w: area.width || w, h: area.height || h});
  setView(pane, {x: w <= area.width ? (w - area.width) / 2 : beginning(pane, w, area.width), y: 0, w: area.width, h: area.height});
}
function beginning(pane, w, width) { // of a sheet wider than its pane: all inputs in the middle, or the first on the left
  const areas = boxesOf(pane).filter(box => box.matches(".input")).map(areaOf);
  if (!areas.length) return (w - width) / 2;
  const left = Math.min(...areas.map(area => area.x)), right = Math.max(...areas.map(area => area.x + area.width));
  return right - left <= width ? (left + right - width) / 2 : left < width / 2 ? 0 : left - 20;
}
function areaOf(box) {
  const shape = box.querySelector(".shape, rect");
  return shape.getBBox ? shape.getBBox() : {x: 0, y: 0, width: 0, height: 0};
}
function zoom(pane, factor, x, y) {
  const v = pane.view, w = Math.min(Math.max(v.w * factor, 20), 4e5), f = w / v.w;
  setView(pane, {x: x - (x - v.x) * f, y: y - (y - v.y) * f, w, h: v.h * f});
}
function at(pane, event) {
  const area = pane.element.getBoundingClientRect(), v = pane.view, scale = Math.max(v.w / (area.width || v.w), v.h / (area.height || v.h));
  return {x: v.x + v.w / 2 + (event.clientX - area.left - area.width / 2) * scale,
          y: v.y + v.h / 2 + (event.clientY - area.top - area.height / 2) * scale, scale};
}
function center(pane, box) {
  const area = areaOf(box), v = pane.view;
  setView(pane, {...v, x: area.x + area.width / 2 - v.w / 2, y: area.y + area.height / 2 - v.h / 2});
}
function setDepth(depth, name) {
  for (const pane of panes) {
    const depths = [...pane.element.querySelectorAll("svg")].map(svg => Number(svg.dataset.depth));
    pane.depth = Math.min(Math.max(depth, Math.min(...depths)), Math.max(...depths));
    pane.element.querySelectorAll("svg").forEach(svg => { svg.toggleAttribute("hidden", Number(svg.dataset.depth) !== pane.depth); });
    start(pane);
  }
  document.getElementById("depth").value = String(panes[0].depth);
  if (search.value) find();
  const inside = name && boxesOf(panes[0]).find(box => box.dataset.name.startsWith(name + "."));
  if (inside) { center(panes[0], inside); select(panes[0], inside.dataset.name); }
}

// Selecting --------------------------------------------------------------------------------------------------------
function clear() {
  document.querySelectorAll(".lit, .faint").forEach(each => each.classList.remove("lit", "faint"));
}
function light(pane, name) {
  boxOf(pane, name)?.classList.add("lit");
  for (const other of panes) {
    const names = other === pane ? [] : boxesOf(other).filter(box =>
      (other.matches[box.dataset.name] || box.dataset.name) === (pane.matches[name] || name));
    names.forEach(box => box.classList.add("lit"));
  }
}
function select(pane, name) {
  clear();
  selected = {pane, name};
  light(pane, name);
  lightEdges(pane, edge => edge[0] === name || edge[1] === name);
  panel.replaceChildren(...story(pane, name));
  live.textContent = name;
}
function lightEdges(pane, wanted) {
  drawn(pane).querySelectorAll(".edge").forEach(edge => {
    edge.classList.toggle("lit", wanted([edge.dataset.source, edge.dataset.target]));
  });
}
function story(pane, name) {
  const head = document.createElement("h2"), list = document.createElement("dl");
  head.textContent = name;
  const rows = [...(pane.boxes[name] || [])];
  const ends = (of, at, word) => {
    const found = edgesOf(pane).filter(edge => edge[of] === name);
    if (found.length) rows.push([word, found.map(edge => `${edge[at]} ${edge[2]}`.trim()).join("\n")]);
  };
  ends(1, 0, "reads");
  ends(0, 1, "is read by");
  for (const [what, text] of rows) {
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = what;
    value.textContent = text;
    list.append(term, value);
  }
  return [head, list];
}
function route(pane, from, to) { // the boxes and edges on any way from one box to another, in either direction
  const reach = (start, near, far) => {
    const seen = new Set([start]), waiting = [start];
    while (waiting.length) {
      const name = waiting.pop();
      for (const edge of edgesOf(pane)) if (edge[near] === name && !seen.has(edge[far])) { seen.add(edge[far]); waiting.push(edge[far]); }
    }
    return seen;
  };
  for (const [a, b] of [[from, to], [to, from]]) {
    const down = reach(a, 0, 1), up = reach(b, 1, 0), on = new Set([...down].filter(name => up.has(name)));
    if (on.has(b)) return on;
  }
  return new Set();
}
function showRoute(pane, from, to) {
  clear();
  const on = route(pane, from, to);
  boxesOf(pane).forEach(box => box.classList.add(on.has(box.dataset.name) ? "lit" : "faint"));
  lightEdges(pane, edge => on.has(edge[0]) && on.has(edge[1]));
  live.textContent = on.size ? `${on.size} boxes between ${from} and ${to}` : `no path between ${from} and ${to}`;
}

// Searching --------------------------------------------------------------------------------------------------------
function find() {
  const words = search.value.trim().toLowerCase();
  clear();
  hits = [];
  hit = -1;
  if (!words) { live.textContent = ""; return; }
  for (const pane of panes) {
    const carried = new Map();
    for (const edge of edgesOf(pane)) carried.set(edge[0], `${carried.get(edge[0]) || ""} ${edge[2]}`);
    for (const box of boxesOf(pane)) {
      const text = `${box.textContent} ${carried.get(box.dataset.name) || ""}`.toLowerCase();
      box.classList.add(text.includes(words) ? "lit" : "faint");
      if (text.includes(words)) hits.push({pane, name: box.dataset.name});
    }
  }
  live.textContent = `${hits.length} found`;
}
function next() {
  if (!hits.length) return;
  hit = (hit + 1) % hits.length;
  const {pane, name} = hits[hit];
  center(pane, boxOf(pane, name));
  panel.replaceChildren(...story(pane, name));
  live.textContent = `${hit + 1} of ${hits.length}: ${name}`;
}

// Printing ---------------------------------------------------------------------------------------------------------
const PAPER = {width: 690, height: 940}; // what A4 and letter have inside of their margins, in CSS pixels
function sheets(pane) { // the picture in its own size, or as wide as the paper, cut where no box and no text is
  const svg = drawn(pane), w = Number(svg.dataset.width), h = Number(svg.dataset.height), width = Math.min(w, PAPER.width);
  const parts = [...svg.children].map(part => ({part, area: part.getBBox()}));
  const ends = cuts(parts.filter(each => !each.part.matches(".edge, .sheet")).map(heldOf), h, PAPER.height * w / width);
  return ends.map((bottom, i) => {
    const top = i ? ends[i - 1] : 0, sheet = svg.cloneNode(false);
    sheet.setAttribute("class", "printed");
    sheet.setAttribute("viewBox", [0, top, w, bottom - top].join(" "));
    sheet.setAttribute("width", width);
    sheet.setAttribute("height", (bottom - top) * width / w);
    const shown = parts.filter(({area}) => area.y <= bottom && area.y + area.height >= top);
    sheet.append(...shown.map(({part}) => part.cloneNode(true)));
    return sheet;
  });
}
function heldOf({part, area}) { // what stays on one sheet: of a frame its name, of a box the heads of the lines into it too
  const own = part.matches(".frame") ? part.querySelector("text").getBBox() : area;
  return [own.y - (part.matches(".box") ? 9 : 1), own.y + own.height + 2];
}
function cuts(held, height, most) { // the ends of sheets of at most that height, between what stays together
  const ends = [], spans = held.sort((a, b) => a[0] - b[0]), free = [0];
  let reach = 0;
  for (const [top, bottom] of spans) {
    if (top > reach) free.push(top);
    reach = Math.max(reach, bottom);
  }
  for (let last = 0; height - last > most; last = ends.at(-1)) {
    ends.push(free.filter(y => y > last && y <= last + most).at(-1) ?? last + most); // or through one that is higher
  }
  return [...ends, height];
}

// Hands ------------------------------------------------------------------------------------------------------------
for (const pane of panes) {
  let from = null, moved = false;
  pane.element.addEventListener("pointerdown", event => { from = {x: event.clientX, y: event.clientY, view: pane.view}; moved = false; });
  pane.element.addEventListener("pointermove", event => {
    if (!from) return;
    const dx = event.clientX - from.x, dy = event.clientY - from.y;
    if (!moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    if (!moved) pane.element.setPointerCapture?.(event.pointerId);
    moved = true;
    const scale = at(pane, event).scale;
    setView(pane, {...from.view, x: from.view.x - dx * scale, y: from.view.y - dy * scale});
  });
  for (const end of ["pointerup", "pointercancel"]) pane.element.addEventListener(end, () => { from = null; });
  pane.element.addEventListener("wheel", event => {
    event.preventDefault();
    const {x, y} = at(pane, event);
    zoom(pane, Math.exp(event.deltaY * (event.deltaMode ? 0.03 : 0.0015)), x, y);
  }, {passive: false});
  pane.element.addEventListener("click", event => {
    const box = event.target.closest?.(".box");
    if (moved || !box) return;
    if (event.shiftKey && selected?.pane === pane) showRoute(pane, selected.name, box.dataset.name);
    else select(pane, box.dataset.name);
  });
  pane.element.addEventListener("dblclick", event => {
    const box = event.target.closest?.(".box"), name = box?.dataset.name;
    if (name?.startsWith("group ")) setDepth(pane.depth + 1, name.slice(6));
  });
  pane.element.addEventListener("focusin", event => {
    const box = event.target.closest?.(".box");
    if (box?.matches(":focus-visible")) { select(pane, box.dataset.name); center(pane, box); }
  });
}
function step(way) { // to a box that the selected one reads, or that reads it
  if (!selected) return;
  const {pane, name} = selected;
  const edge = edgesOf(pane).find(each => each[way < 0 ? 1 : 0] === name);
  if (!edge) return;
  select(pane, edge[way < 0 ? 0 : 1]);
  center(pane, boxOf(pane, selected.name));
}
const keys = {
  "+": () => panes.forEach(p => zoom(p, 0.8, p.view.x + p.view.w / 2, p.view.y + p.view.h / 2)),
  "-": () => panes.forEach(p => zoom(p, 1.25, p.view.x + p.view.w / 2, p.view.y + p.view.h / 2)),
  "0": () => panes.forEach(fit), "1": () => panes.forEach(start),
  "]": () => setDepth(panes[0].depth + 1), "[": () => setDepth(panes[0].depth - 1),
  "/": () => search.focus(), "n": next, "d": theme,
  "ArrowUp": () => step(-1), "ArrowDown": () => step(1),
  "ArrowLeft": () => panes.forEach(p => setView(p, {...p.view, x: p.view.x - p.view.w / 10})),
  "ArrowRight": () => panes.forEach(p => setView(p, {...p.view, x: p.view.x + p.view.w / 10})),
  "PageDown": () => panes.forEach(p => setView(p, {...p.view, y: p.view.y + p.view.h * 0.8})),
  "PageUp": () => panes.forEach(p => setView(p, {...p.view, y: p.view.y - p.view.h * 0.8})),
  "Escape": () => { search.value = ""; selected = null; clear(); panel.replaceChildren(); },
  "Enter": () => { if (selected?.name.startsWith("group ")) setDepth(selected.pane.depth + 1, selected.name.slice(6)); },
};
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Enter") next();
    if (event.key === "Escape") { keys.Escape(); search.blur(); }
    return;
  }
  if (/^(SELECT|BUTTON|SUMMARY)$/.test(event.target.tagName) || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}
search.addEventListener("input", find);
document.getElementById("depth").addEventListener("change", event => setDepth(Number(event.target.value)));
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("fit").addEventListener("click", () => panes.forEach(fit));
window.addEventListener("resize", () => panes.forEach(start));
window.addEventListener("beforeprint", () => panes.forEach(pane => pane.element.append(...sheets(pane))));
window.addEventListener("afterprint", () => document.querySelectorAll(".printed").forEach(sheet => sheet.remove()));
document.documentElement.dataset.theme = window.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
setDepth(data.depth);

/* Elements from values. Every name and sentence becomes a text node, so markup in a name stays text. */
import {keepInSight} from "./columns.js";

/** Make an element: attributes by name, listeners as `onclick: function`, children as nodes or text. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element in the same way. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** What marks a tone besides its colour. */
export const SIGNS = {good: "✓", warning: "!", bad: "✕"};

/** A sentence; how it is meant is marked by a sign, not by colour alone. */
export function drawLine(line, tag = "p", kind = "sentence") {
  const sign = SIGNS[line.tone] ?? "";
  return make(tag, {class: `${kind} tone-${line.tone}`}, sign ? make("span", {class: "sign", "aria-hidden": "true"}, sign) : null, line.words);
}

/** A list of labels and sentences. */
export function drawFacts(facts) {
  return make("dl", {class: "facts"}, ...facts.flatMap((fact) => [make("dt", {}, fact.label), drawLine(fact, "dd", "")]));
}

const FIRST_ROWS = 8;

/** A table; long ones begin with their first rows. `onRow` gets the key of a clicked row. */
export function drawTable(table, {onRow = null, chosen = null, isShort = false} = {}) {
  const body = make("tbody");
  const addRows = (from, to) => {
    for (let place = from; place < to; place++) {
      const key = table.row_keys[place];
      const cells = table.rows[place].map((cell, at) => drawCell(cell, table.columns[at]));
      const row = make("tr", {class: key !== undefined && key === chosen ? "chosen" : null}, ...cells);
      if (onRow && key !== undefined) makeClickable(row, () => onRow(key));
      body.append(row);
    }
  };
  const shown = isShort ? Math.min(FIRST_ROWS, table.rows.length) : table.rows.length;
  addRows(0, shown);
  const head = table.columns.map((column) => make("th", {scope: "col", class: column.is_number ? "number" : "text"}, column.title.replaceAll("-\n", "").replaceAll("\n", " ")));
  const scroller = make("div", {class: "scroller"}, make("table", {}, make("thead", {}, make("tr", {}, ...head)), body));
  const arrange = keepInSight(scroller);
  const figure = make("section", {class: "table"}, table.title ? make("h4", {}, table.title) : null, scroller);
  if (shown < table.rows.length) {
    const more = make("button", {type: "button", class: "link", onclick: () => {
      addRows(shown, table.rows.length);
      arrange();
      more.remove();
    }}, `show all ${table.rows.length} rows`);
    figure.append(more);
  }
  figure.append(...table.notes.map((note) => drawLine(typeof note === "string" ? {words: note, tone: "quiet"} : note, "p", "note")));
  return figure;
}

/** A cell is words, or words that are meant somehow. */
function drawCell(cell, column) {
  const kind = column.is_number ? "number" : "text";
  return typeof cell === "string" ? make("td", {class: kind}, cell) : make("td", {class: `${kind} tone-${cell.tone}`}, cell.words);
}

/** Let a row be chosen by mouse and keyboard. */
export function makeClickable(row, act) {
  row.tabIndex = 0;
  row.classList.add("clickable");
  row.addEventListener("click", act);
  row.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
}

/** A labelled choice; `options` are [value, words]. */
export function makeSelect(label, options, value, onchange) {
  const select = make("select", {onchange: () => onchange(select.value)});
  setOptions(select, options, value);
  return make("label", {class: "field"}, make("span", {}, label), select);
}

/** Give a choice new options, unless they are the ones that it has: an open list must not close under the mouse. */
export function setOptions(select, options, value) {
  const now = JSON.stringify(options);
  if (select.dataset.options !== now) {
    select.replaceChildren(...options.map(([one, words]) => make("option", {value: one}, words)));
    select.dataset.options = now;
  }
  select.value = value;
}

/** A picture that the server drew: `<svg>`, or `<img>` of pixels. It has no script and no listener, and none is kept. */
export function parse(picture) {
  const drawn = new DOMParser().parseFromString(picture, "text/html").body.firstElementChild;
  for (const one of [drawn, ...drawn.querySelectorAll("*")]) {
    for (const name of one.getAttributeNames()) if (name.startsWith("on")) one.removeAttribute(name);
  }
  return drawn;
}

/** A sentence about what went wrong. */
export function drawError(sentence) {
  return make("p", {class: "error", role: "alert"}, sentence);
}

/** A sentence in place of what is not there. */
export function drawEmpty(sentence) {
  return make("p", {class: "empty"}, sentence);
}

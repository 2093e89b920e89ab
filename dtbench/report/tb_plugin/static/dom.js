/* Elements from values. Every name and sentence becomes a text node, so markup in a name stays text. */

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
export const SIGNS = {good: "✓", warning: "!", bad: "✕", plain: ""};

/** A list of labels and sentences; what is wrong is marked by a sign, not by colour alone. */
export function drawFacts(facts) {
  const list = make("dl", {class: "facts"});
  for (const fact of facts) {
    const sign = SIGNS[fact.tone] ?? "";
    list.append(
      make("dt", {}, fact.label),
      make("dd", {class: `tone-${fact.tone}`}, sign ? make("span", {class: "sign", "aria-hidden": "true"}, sign) : null, fact.words),
    );
  }
  return list;
}

const FIRST_ROWS = 8;

/** A table of words; long ones begin with their first rows. `onRow` gets the key of a clicked row. */
export function drawTable(table, {onRow = null, chosen = null, isShort = false} = {}) {
  const body = make("tbody");
  const addRows = (from, to) => {
    for (let place = from; place < to; place++) {
      const key = table.keys?.[place];
      const cells = table.rows[place].map((words, at) => make("td", {class: table.columns[at].is_number ? "number" : "text"}, words));
      const row = make("tr", {class: key !== undefined && key === chosen ? "chosen" : null}, ...cells);
      if (onRow && key !== undefined) makeClickable(row, () => onRow(key));
      body.append(row);
    }
  };
  const shown = isShort ? Math.min(FIRST_ROWS, table.rows.length) : table.rows.length;
  addRows(0, shown);
  const head = table.columns.map((column) => make("th", {scope: "col", class: column.is_number ? "number" : "text"}, column.header));
  const scroller = make("div", {class: "scroller"}, make("table", {}, make("thead", {}, make("tr", {}, ...head)), body));
  const figure = make("section", {class: "table"}, table.title ? make("h4", {}, table.title) : null, scroller);
  if (shown < table.rows.length) {
    const more = make("button", {type: "button", class: "link", onclick: () => {
      addRows(shown, table.rows.length);
      more.remove();
    }}, `show all ${table.rows.length} rows`);
    figure.append(more);
  }
  if (table.note) figure.append(make("p", {class: "note"}, table.note));
  return figure;
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

/** A sentence about what went wrong. */
export function drawError(sentence) {
  return make("p", {class: "error", role: "alert"}, sentence);
}

/** A sentence in place of what is not there. */
export function drawEmpty(sentence) {
  return make("p", {class: "empty"}, sentence);
}

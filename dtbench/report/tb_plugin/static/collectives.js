/* Collectives: the table, filtered, sorted and paged by the server; a click shows one. */
import {drawChart} from "./chart.js";
import {makeResizable} from "./columns.js";
import {drawEmpty, drawError, drawFacts, drawTable, make, makeClickable, makeSelect} from "./dom.js";

const FILTERS = ["purpose", "operation", "region", "cause", "rank", "step"];
/** What the table is asked, and `row`, the collective that is opened; `owner` is null where any is wanted. */
const wanted = {grouped: "", text: "", owner: null, sort: "exposed_ns", order: "descending", offset: "0", row: null};
for (const name of FILTERS) wanted[name] = "";

export const collectives = {
  id: "collectives",
  title: "Collectives",
  needsLaunch: "one",
  wanted,
  request: (choice) => ["collectives", {...choice, ...wanted, row: null}],
  /** Another launch has other collectives. */
  chooseOther() {
    Object.assign(wanted, {offset: "0", row: null});
  },
  draw(panel, answer, choice, page) {
    const change = (changes) => {
      Object.assign(wanted, {offset: "0"}, changes);
      page.refresh();
    };
    const details = make("aside", {class: "details", "aria-live": "polite", "aria-label": "The chosen collective"});
    const open = async (row) => {
      wanted.row = String(row);
      page.keep();
      for (const one of panel.querySelectorAll("tr.chosen")) one.classList.remove("chosen");
      panel.querySelector(`tr[data-row="${row}"]`)?.classList.add("chosen");
      const said = await page.ask("collective", {...choice, row}).catch((error) => ({error: error.message}));
      details.replaceChildren(...(said.error ? [drawError(said.error)] : drawDetails(said.document, page)));
    };
    const openInSight = (row) => open(row).then(() => details.scrollIntoView({block: "nearest"}));
    const table = drawRows(answer, {change, open: openInSight});
    const hadFocus = document.activeElement?.dataset?.keep;
    panel.replaceChildren(drawControls(answer, change), make("div", {class: "with-details"}, table, details));
    if (hadFocus) focusAgain(panel, hadFocus);
    if (wanted.row !== null) open(wanted.row);
    else details.append(drawEmpty(wanted.grouped ? "Choose an owner to see its collectives." : "Choose a collective to see every rank's times and why it is exposed."));
  },
};

/** Typing goes on where it was when the table below is drawn anew. */
function focusAgain(panel, name) {
  const field = panel.querySelector(`[data-keep="${name}"]`);
  field?.focus();
  field?.setSelectionRange?.(field.value.length, field.value.length);
}

function drawControls(answer, change) {
  let timer = null;
  const text = make("input", {type: "search", value: wanted.text, "data-keep": "text", placeholder: "owner or parameter", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({text: text.value}), 250);
  }});
  const filters = FILTERS.map((name) => {
    const values = answer.choices[name].map((value) => [value, value]);
    return makeSelect(name === "operation" ? "collective" : name, [["", "any"], ...values], wanted[name], (value) => change({[name]: value}));
  });
  const owner = wanted.owner === null ? null : make("button", {type: "button", class: "chip", onclick: () => change({owner: null})},
    `owner: ${wanted.owner || "unattributed"} ✕`);
  return make("div", {class: "controls"},
    makeSelect("Show", [["", "single collectives"], ["owner", "together by owner"]], wanted.grouped,
      (value) => change({grouped: value, owner: null, sort: "exposed_ns", order: "descending"})),
    make("label", {class: "field"}, make("span", {}, "Find"), text), ...filters, owner,
    make("p", {class: "sentence"}, answer.sentence));
}

function drawRows(answer, {change, open}) {
  const heads = answer.columns.map((column) => {
    const isSorted = column.key === answer.sort;
    const order = isSorted && answer.descending ? "ascending" : "descending";
    const arrow = isSorted ? (answer.descending ? " ▾" : " ▴") : "";
    return make("th", {scope: "col", class: column.is_number ? "number" : "text", "aria-sort": isSorted ? (answer.descending ? "descending" : "ascending") : "none"},
      make("button", {type: "button", class: "sort", "data-keep": `sort-${column.key}`, onclick: () => change({sort: column.key, order})}, column.header + arrow), drawGrip(column));
  });
  const rows = answer.rows.map((one) => {
    const cells = one.words.map((words, place) => drawCell(answer.columns[place], words));
    const row = make("tr", {"data-row": one.row}, ...cells);
    makeClickable(row, () => (one.row === null ? change({grouped: "", owner: one.owner}) : open(one.row)));
    return row;
  });
  const table = make("table", {class: "rows"}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  makeResizable(table, wanted.grouped);
  return make("div", {class: "card"}, make("div", {class: "scroller tall"}, table), drawPager(answer, change));
}

/** What changes the width of a column. */
function drawGrip(column) {
  const title = "drag, or ← and →: its width; double click: as wide as its words";
  return make("span", {class: "grip", role: "separator", "aria-orientation": "vertical", "aria-label": `width of ${column.header}`, tabindex: 0, title});
}

/** A cell; of a long owner the end is shown, which tells it from others. */
function drawCell(column, words) {
  if (column.key !== "owner") return make("td", {class: column.is_number ? "number" : "text"}, words);
  return make("td", {class: "text", title: words}, make("div", {class: "clipped"}, make("bdi", {}, words)));
}

function drawPager(answer, change) {
  const last = Math.min(answer.offset + answer.page, answer.total);
  const go = (words, offset, isOff) => make("button", {type: "button", disabled: isOff, onclick: () => change({offset: String(offset)})}, words);
  return make("div", {class: "pager"},
    go("Previous", Math.max(0, answer.offset - answer.page), answer.offset === 0),
    make("span", {}, answer.total ? `${answer.offset + 1} to ${last} of ${answer.total}` : "nothing matches"),
    go("Next", answer.offset + answer.page, last >= answer.total));
}

function drawDetails(one, page) {
  const parameters = one.parameters.length
    ? make("details", {open: one.parameters.length <= 12}, make("summary", {}, `${one.parameters.length} parameters`), make("ul", {}, ...one.parameters.map((name) => make("li", {}, name))))
    : make("p", {class: "note"}, "Which parameters it carries is not known.");
  return [
    make("h3", {}, one.title),
    one.advice ? make("p", {class: "advice"}, one.advice) : null,
    drawFacts(one.facts),
    drawTable(one.ranks),
    one.chart ? drawChart(one.chart) : null,
    make("h4", {}, "What it carries"),
    parameters,
    make("button", {type: "button", onclick: () => page.openTimeline(one)}, "Show in the timeline"),
  ].filter((part) => part !== null);
}

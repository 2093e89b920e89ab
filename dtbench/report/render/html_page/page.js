// What a person does with the page: sort and filter tables, see all rows, fold all. Without it, all words are there.

const FILTERED_FROM = 9; // rows: fewer are seen at a glance
const MOST_SPARED = 4; // rows too few to be folded away

function make(tag, attributes = {}, words = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = words;
  return element;
}

// The number behind a cell, as `--json` spells it; null: it has none. What is not known is NaN.
function valueOf(cell) {
  const { value } = cell.dataset;
  return value === undefined ? null : Number(value);
}

// What is not known comes last, whichever way; words are ordered as a person counts: layer 2 before layer 10.
function compareCells(one, other, sign) {
  const [a, b] = [valueOf(one), valueOf(other)];
  if (a === null || b === null) return sign * one.textContent.localeCompare(other.textContent, "en", { numeric: true });
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  return sign * (a - b);
}

class Sheet {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows];
    this.heads = [...table.tHead.rows[0].cells];
    const first = Number(table.dataset.first ?? this.rows.length);
    this.few = first + MOST_SPARED < this.rows.length ? first : this.rows.length;
    this.first = this.few;
    this.words = "";
    if (this.rows.length > 1) this.heads.forEach((head, place) => this.letSort(head, place));
    if (this.rows.length >= FILTERED_FROM) this.letFilter();
    if (this.first < this.rows.length) this.letGrow();
    this.show();
  }

  letSort(head, place) {
    const title = head.firstElementChild;
    const button = make("button", { type: "button", class: "sort", title: "sort" });
    button.append(...title.childNodes);
    title.replaceWith(button);
    button.addEventListener("click", () => this.sort(head, place));
  }

  // Numbers begin with the largest, words with the first; a third time gives the page's own order again.
  sort(head, place) {
    const isNumber = head.classList.contains("number");
    const turns = isNumber ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    const turn = turns[(turns.indexOf(head.getAttribute("aria-sort") ?? "none") + 1) % 3];
    this.heads.forEach((one) => one.removeAttribute("aria-sort"));
    const ordered = [...this.rows];
    if (turn !== "none") {
      head.setAttribute("aria-sort", turn);
      const sign = turn === "ascending" ? 1 : -1;
      ordered.sort((one, other) => compareCells(one.cells[place], other.cells[place], sign));
    }
    this.body.append(...ordered);
    this.show();
  }

  letFilter() {
    const box = make("div", { class: "finding" });
    const input = make("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
    this.count = make("span", { "aria-live": "polite" });
    input.addEventListener("input", () => {
      this.words = input.value.trim().toLowerCase();
      this.show();
    });
    box.append(input, this.count);
    this.table.parentElement.before(box);
  }

  letGrow() {
    this.more = make("button", { type: "button", class: "link more" });
    this.more.addEventListener("click", () => {
      this.first = this.first === this.rows.length ? this.few : this.rows.length;
      this.show();
    });
    this.table.parentElement.after(this.more);
  }

  // On paper nobody can ask for the rest.
  showAll() {
    for (const row of this.rows) row.hidden = false;
  }

  show() {
    let found = 0;
    const wanted = this.words.split(/\s+/);
    for (const row of this.body.rows) {
      const text = row.textContent.toLowerCase();
      const fits = wanted.every((word) => text.includes(word));
      if (fits) found += 1;
      row.hidden = !fits || (!this.words && found > this.first);
    }
    if (this.count) this.count.textContent = this.words ? `${found} of ${this.rows.length} rows` : "";
    if (!this.more) return;
    this.more.hidden = Boolean(this.words);
    const isAll = this.first === this.rows.length;
    this.more.textContent = isAll ? `show the first ${this.few} rows` : `show all ${this.rows.length} rows`;
  }
}

const cards = () => [...document.querySelectorAll("details.card")];

function letFoldAll() {
  const tools = document.querySelector(".tools");
  const button = make("button", { type: "button", class: "link" });
  const name = () => {
    button.textContent = cards().every((card) => card.open) ? "fold all" : "unfold all";
  };
  button.addEventListener("click", () => {
    const isOpen = cards().every((card) => card.open);
    for (const card of cards()) card.open = !isOpen;
  });
  for (const card of cards()) card.addEventListener("toggle", name);
  name();
  tools.append(button);
}

// A link to what is folded unfolds it, in every browser.
function unfoldTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  target?.scrollIntoView();
}

const sheets = [...document.querySelectorAll("main table")].map((table) => new Sheet(table));
addEventListener("beforeprint", () => sheets.forEach((sheet) => sheet.showAll()));
addEventListener("afterprint", () => sheets.forEach((sheet) => sheet.show()));
letFoldAll();
addEventListener("hashchange", unfoldTarget);
if (location.hash) unfoldTarget();

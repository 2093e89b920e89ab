// One canvas timeline: ranks below each other, streams or threads as lanes, exposed communication hatched.
//
//   createTimeline(container, {document | load, onSelect, height, theme, embedded, state, onState})
//     -> object with destroy(), select(), zoomTo(), setState(), ...
//
// The document is written by document.py. It is drawn by coverage: the colour of a pixel is the difference of two sums
// of time (see `cover`), so that a frame costs as much as it has pixels, whatever the number of spans, and nothing is
// lost at any zoom. Only spans wider than a few pixels are visited one by one, for their borders and names.
//
//   times: ns from the document's origin     x, y, width: CSS pixels     place: index into a rank's columns
//
// Every name comes to the screen through `textContent` or `fillText`: markup in it is text. Modules beside this one are
// imported by name; page.py writes all of them into a page, without the imports.

import { readAddress, writeAddress } from "./timeline_address.js";
import { findSpans, foundOn, readWanted } from "./timeline_find.js";
import { HOST, heightOfHost, labelHost, launchedBy } from "./timeline_host.js";
import { COMM, COMPUTE, COPY, foldRank, prepare, startOf } from "./timeline_model.js";
import { NOTHING, countBelow, cover, coveredBetween, findSpan, visitLong } from "./timeline_times.js";
import { describe, findDifferences, formatNs, formatTick, nameCollective, nameRanks, parseRanks, shorten, shortenTo, spellKeys } from "./timeline_words.js";

const GUTTER_PART = 0.19; // of the width, for names of lanes
const GUTTER_LIMITS = [132, 264];
const RULER_HEIGHT = 24;
const RANK_HEIGHT = 24;
const STRIP_HEIGHT = 6;
const REGION_HEIGHT = 13;
const STAGE_HEIGHT = 17;
const LANE_HEIGHT = 24;
const HIGHEST_LANE = 56; // where there is room
const FOLDED_HEIGHT = 30;
const LANE_PAD = 3;
const RANK_GAP = 8;
const THREAD_GAP = 4;
const COPY_PART = 0.55; // of a lane's height: copies are told apart by their shape, too
const BORDER_FROM = 5; // px from which a span has borders of its own
const HATCH_FROM = 3;
const NAME_FROM = 30;
const NEAR = 3; // px beside a span that still hit it
const FAINTEST = 0.3; // coverage as which less than that is drawn, so that a single short kernel is seen
const FAINTEST_EXPOSED = 0.75;
const MOST_LEADS = 20; // buttons to what a call launched
const MOST_RANKS_WITH_HOST = 2; // with more, rows of the host come when asked for
const MOST_OPEN_RANKS = 8; // with more, ranks are folded at first
const SHORTEST_VIEW = 20; // ns
const PAGE_PART = 0.5; // of the window: with less of anything else, the page is the timeline's
const EMBEDDED_PART = 0.85; // of the window, where it is one part of a page
const LEAST_HEIGHT = { wide: 420, narrow: 560 }; // beside the canvas, or below it, what is selected is described
const NARROW = "(max-width:720px)"; // as in STYLE, whose text a page names in its policy
const BODY_MARGIN = 12; // what a page may have below its body
const QUICK_MS = 40; // as long as that nobody notices
const TELL_MS = 250; // after the last change the address says what is shown
const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
const BOLD = "600 11px system-ui, -apple-system, 'Segoe UI', sans-serif";

// PALETTE, what the colours of kinds, purposes and a pipeline's actions are, is written before this module: see page.py.
const THEMES = {
  light: {
    background: "#ffffff", text: "#1f2328", muted: "#59636e", grid: "#e3e6ea", band: "#f6f8fa", accent: "#000000",
    ...PALETTE.light, hatch: "rgba(0,0,0,0.62)",
    onCompute: "#ffffff", onComm: "#000000", border: "rgba(255,255,255,0.75)", commBorder: "rgba(94,62,0,0.75)",
  },
  dark: {
    background: "#1b1f24", text: "#e6e8ea", muted: "#9aa4ae", grid: "#333a42", band: "#22272d", accent: "#ffffff",
    ...PALETTE.dark, hatch: "rgba(0,0,0,0.7)",
    onCompute: "#ffffff", onComm: "#000000", border: "rgba(27,31,36,0.75)", commBorder: "rgba(255,228,170,0.7)",
  },
};
const PURPOSE_COLOURS = PALETTE.purposes;
// The letters that torch's schedules have for what a pipeline's stage does.
const STAGE_LETTERS = { forward: "F", backward: "B", "input gradients": "I", "weight gradients": "W" };
const STAGE_WORK = Object.fromEntries(Object.entries(STAGE_LETTERS).map(([action, letter]) => [action, [letter, PALETTE.actions[action]]]));
const SCROLLING_KEYS = new Set(["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"]);
const REGION_SHADES = { forward: 0.1, backward: 0.24, optimizer: 0.16, state_dict: 0.06 };

const STYLE = `
.dtb-timeline{position:relative;display:flex;flex-direction:column;box-sizing:border-box;width:100%;overflow:hidden;
  font:12px/1.4 system-ui,-apple-system,'Segoe UI',sans-serif;color:var(--dtb-text);background:var(--dtb-background);
  border:1px solid var(--dtb-grid);border-radius:6px;text-align:left}
.dtb-timeline *{box-sizing:border-box}
.dtb-timeline .dtb-bar{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px;padding:6px 10px;
  border-bottom:1px solid var(--dtb-grid)}
.dtb-timeline .dtb-title{font-weight:600;margin-right:auto;overflow-wrap:anywhere}
.dtb-timeline .dtb-key{display:inline-flex;align-items:center;gap:5px;white-space:nowrap}
.dtb-timeline .dtb-swatch{display:inline-block;width:18px;height:11px;border:1px solid var(--dtb-muted)}
.dtb-timeline button{font:inherit;color:var(--dtb-text);background:transparent;border:1px solid var(--dtb-grid);
  border-radius:4px;padding:1px 8px;cursor:pointer}
.dtb-timeline button[aria-pressed=true]{background:var(--dtb-band);border-color:var(--dtb-muted)}
.dtb-timeline button:hover{background:var(--dtb-band)}
.dtb-timeline input{font:inherit;color:var(--dtb-text);background:var(--dtb-background);border:1px solid var(--dtb-grid);
  border-radius:4px;padding:1px 6px;width:8em}
.dtb-timeline .dtb-group{display:inline-flex;flex-wrap:wrap;align-items:center;gap:4px}
.dtb-timeline .dtb-search{width:17em}
.dtb-timeline .dtb-count{min-width:4em;color:var(--dtb-muted);font-variant-numeric:tabular-nums}
.dtb-timeline .dtb-count:empty{display:none}
.dtb-timeline .dtb-legend{display:flex;flex-wrap:wrap;gap:2px 14px;flex:1 0 100%}
.dtb-timeline .dtb-body{display:flex;flex:1 1 auto;min-height:0}
.dtb-timeline .dtb-canvas{position:relative;flex:1 1 auto;min-width:0;min-height:0}
.dtb-timeline canvas{position:absolute;inset:0;width:100%;height:100%;display:block;touch-action:none;outline:none}
.dtb-timeline canvas:focus-visible{box-shadow:inset 0 0 0 2px var(--dtb-focus)}
.dtb-timeline .dtb-details{flex:0 0 272px;overflow:auto;padding:8px 12px;border-left:1px solid var(--dtb-grid)}
.dtb-timeline .dtb-details h3{margin:0 0 6px;font-size:12px;overflow-wrap:anywhere}
.dtb-timeline .dtb-details dl,.dtb-timeline .dtb-tip dl{display:grid;grid-template-columns:fit-content(9.5em) minmax(0,1fr);gap:1px 10px;margin:0}
.dtb-timeline dt{color:var(--dtb-muted);margin:0}
.dtb-timeline dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.dtb-timeline .dtb-others{margin-top:10px}
.dtb-timeline .dtb-others button{display:block;width:100%;text-align:left;margin-top:3px;
  font-variant-numeric:tabular-nums}
.dtb-timeline .dtb-tip{position:absolute;z-index:2;max-width:430px;pointer-events:none;padding:6px 9px;border-radius:5px;
  border:1px solid var(--dtb-muted);background:var(--dtb-background);box-shadow:0 2px 8px rgba(0,0,0,.25)}
.dtb-timeline .dtb-tip b{display:block;overflow-wrap:anywhere;margin-bottom:3px}
.dtb-timeline .dtb-foot{padding:4px 10px;border-top:1px solid var(--dtb-grid);color:var(--dtb-muted);font-size:11px}
.dtb-timeline .dtb-notes{color:var(--dtb-text)}
.dtb-timeline .dtb-says{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.dtb-timeline .dtb-refusal{padding:14px}
.dtb-timeline [hidden]{display:none}
@media (max-width:720px){.dtb-timeline .dtb-body{flex-direction:column}
  .dtb-timeline .dtb-canvas{min-height:220px}
  .dtb-timeline .dtb-details{flex:0 1 auto;max-height:40%;border-left:0;border-top:1px solid var(--dtb-grid)}}
`;

const HELP =
  "wheel or w s: zoom · drag or a d, ← →: move · ↑ ↓: scroll ranks · shift-drag: zoom to a range · f or double-click: fit · " +
  "n p: next, previous exposed collective · l: the largest · h: host · /: find · click: details · Esc: nothing selected";

// ---------------------------------------------------------------------------------------------- colours

function readColour(text) {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function isDark(container) {
  for (let element = container; element; element = element.parentElement) {
    const found = getComputedStyle(element).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (found && (found.length < 4 || found[3] > 0.5)) return 0.3 * found[0] + 0.59 * found[1] + 0.11 * found[2] < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function chooseTheme(container, wanted) {
  const name = wanted === "auto" ? (isDark(container) ? "dark" : "light") : wanted;
  const theme = { ...THEMES[name], name };
  const said = getComputedStyle(container);
  for (const key of ["background", "text", "muted", "grid", "accent"]) {
    theme[key] = said.getPropertyValue(`--dtb-${key}`).trim() || theme[key];
  }
  return theme;
}

// ---------------------------------------------------------------------------------------------- HTML around the canvas

function make(tag, className, text) {
  const element = window.document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function isTyped(element) {
  return element instanceof Element && element.matches("input, textarea, select, [contenteditable]:not([contenteditable=false]), [contenteditable] *");
}

function fillList(list, rows) {
  list.replaceChildren(...rows.flatMap(([term, words]) => [make("dt", "", term), make("dd", "", words)]));
}

// ---------------------------------------------------------------------------------------------- the timeline

class Timeline {
  constructor(container, options) {
    this.container = container;
    this.options = options;
    this.themeWanted = options.theme ?? "auto";
    this.listeners = new AbortController();
    this.folded = new Set();
    this.hidden = new Set();
    this.showsHost = true;
    this.selected = null;
    this.hovered = null;
    this.scroll = 0;
    this.width = 0;
    this.height = 0;
    this.frame = 0;
    this.frameMs = 0;
    this.drawn = {};
    this.found = []; // spans that have what is looked for
    this.largestAt = NOTHING; // how many larger ones are exposed, while a person goes through them
    this.told = "{}"; // the state that onState was told last
    this.lastPageScroll = -Infinity;
    this.build();
    this.ready = this.open();
    this.ready.catch(() => {}); // who awaits it sees the failure; the page shows it anyway
  }

  async open() {
    try {
      const document = this.options.document ?? (await this.options.load());
      if (this.listeners.signal.aborted) return;
      this.model = prepare(document);
    } catch (error) {
      this.root.replaceChildren(this.style, make("div", "dtb-refusal", `The timeline cannot be drawn: ${error.message ?? error}`));
      throw error;
    }
    const { ranks } = this.model;
    this.nameDifferences();
    this.applyTheme(); // whose legend names what is drawn
    this.title.textContent = this.model.document.title;
    this.filter.hidden = ranks.length <= MOST_OPEN_RANKS;
    this.restore(this.options.state ?? {});
    this.listen();
    this.resize();
    if (this.selected) this.reveal(this.selected, { zoom: !this.options.state?.from });
  }

  // Names that begin alike are shortened so that what tells them apart stays.
  nameDifferences() {
    const { ranks, document } = this.model;
    const owners = new Set(ranks.flatMap((rank) => rank.columns.collectives.owner));
    const lanes = ranks.flatMap((rank) => [...rank.lanes, ...rank.stages].map((lane) => spellKeys(lane.name, document.words)));
    const spans = new Set(ranks.flatMap((rank) => rank.lanes).flatMap((lane) => [...new Set(lane.text)]));
    this.differences = new Map([
      ...findDifferences(lanes),
      ...findDifferences([...spans].flatMap((code) => [this.shortName(code), document.strings[code]])),
      ...findDifferences([...owners].map((code) => document.strings[code])),
    ]);
  }

  // ------------------------------------------------------------------------------------------ what is shown, as text

  get hostAtFirst() {
    return this.model.ranks.length <= MOST_RANKS_WITH_HOST;
  }

  get foldedAtFirst() {
    const { ranks } = this.model;
    return ranks.length > MOST_OPEN_RANKS ? ranks.map((rank) => rank.rank) : [];
  }

  // What a link or a page's address holds: only what differs from how the timeline opens.
  viewState() {
    const { start, end } = this.view;
    const folded = nameRanks(this.folded);
    const state = {};
    if (start !== this.model.start || end !== this.model.end) Object.assign(state, { from: String(Math.round(start)), to: String(Math.round(end)) });
    if (this.selected) state.selected = this.selected.id;
    if (folded !== nameRanks(this.foldedAtFirst)) state.folded = folded || "none";
    if (this.showsHost !== this.hostAtFirst) state.host = this.showsHost ? "on" : "off";
    if (this.filter.value) state.ranks = this.filter.value;
    if (this.search.value) state.find = this.search.value;
    if (this.scroll) state.scroll = String(Math.round(this.scroll));
    return state;
  }

  restore(state) {
    const every = this.model.ranks.map((rank) => rank.rank);
    const [from, to] = [Number(state.from), Number(state.to)];
    const isWindow = Boolean(state.from && state.to) && from < to; // a number that is none is in no order
    this.view = { start: this.model.start, end: this.model.end };
    this.setHost(state.host === undefined ? this.hostAtFirst : state.host === "on");
    this.filter.value = state.ranks ?? "";
    this.search.value = state.find ?? "";
    this.chooseRanks();
    this.folded = state.folded === undefined ? this.folded : parseRanks(state.folded, every);
    this.lookFor();
    this.choose(state.selected ? this.find(state.selected) : null);
    const lost = state.selected && !this.selected ? ["what this address selects is not drawn here"] : [];
    this.notes.textContent = [...this.model.document.notes, ...lost].join(" · ");
    this.notes.hidden = !this.notes.textContent;
    this.chooseHeight();
    this.height = this.stage.clientHeight;
    this.layOut();
    this.scroll = Number(state.scroll) || 0;
    this.clampScroll();
    if (isWindow) this.setView(from, to);
    this.told = JSON.stringify(this.viewState());
  }

  setState(state) {
    this.restore(state);
    if (this.selected) this.reveal(this.selected, { zoom: !state.from });
    this.resize();
  }

  // Soon after the last change, not at each: browsers count how often a page changes its address.
  tellSoon() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.tell(), TELL_MS);
  }

  tell() {
    clearTimeout(this.telling);
    const state = this.viewState();
    const said = JSON.stringify(state);
    if (said === this.told) return;
    this.told = said;
    this.options.onState?.(state);
  }

  build() {
    this.root = make("div", "dtb-timeline");
    this.style = make("style", "", STYLE);
    const bar = make("div", "dtb-bar");
    this.title = make("span", "dtb-title");
    this.legend = make("span", "dtb-legend");
    this.filter = make("input");
    this.filter.placeholder = "ranks: 0-7, 12";
    this.filter.setAttribute("aria-label", "Ranks to show, such as 0-7, 12; empty for all");
    const exposed = make("span", "dtb-group");
    exposed.append(
      this.makeButton("◀", () => this.stepExposed(-1), "previous exposed collective (p)"),
      make("span", "", "exposed"),
      this.makeButton("▶", () => this.stepExposed(1), "next exposed collective (n)"),
      this.makeButton("largest", () => this.goLargest(), "largest exposed collective; again: the next largest (l)"),
    );
    this.hostButton = this.makeButton("host", () => this.toggleHost(), "rows of the host: ranges, operators, calls (h)");
    bar.append(this.title, this.buildSearch(), this.filter, exposed, this.hostButton, this.makeButton("fit", () => this.fit(), "show everything (f)"), this.legend);
    this.body = make("div", "dtb-body");
    this.stage = make("div", "dtb-canvas");
    this.canvas = make("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `Timeline of ranks. ${HELP}`);
    this.tip = make("div", "dtb-tip");
    this.tip.hidden = true;
    this.stage.append(this.canvas, this.tip);
    this.details = make("div", "dtb-details");
    this.details.hidden = true;
    this.body.append(this.stage, this.details);
    this.bar = bar;
    const foot = make("div", "dtb-foot");
    this.foot = foot;
    this.notes = make("div", "dtb-notes");
    foot.append(this.notes, make("div", "", HELP));
    this.says = make("div", "dtb-says");
    this.says.setAttribute("aria-live", "polite");
    this.root.append(this.style, bar, this.body, foot, this.says);
    this.container.replaceChildren(this.root);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.rows = [];
    this.buffer = make("canvas");
    this.applyTheme();
  }

  makeButton(words, act, title) {
    const button = make("button", "", words);
    button.type = "button";
    button.title = title;
    button.setAttribute("aria-label", title);
    button.addEventListener("click", act, { signal: this.listeners.signal });
    return button;
  }

  buildSearch() {
    const group = make("span", "dtb-group");
    this.search = make("input", "dtb-search");
    this.search.type = "search";
    this.search.placeholder = "find a name, owner, cause (/)";
    this.search.setAttribute("aria-label", "Find spans by name, owner, purpose, operation or cause");
    this.count = make("span", "dtb-count");
    this.count.setAttribute("aria-live", "polite");
    this.steps = [
      this.makeButton("◀", () => this.stepFound(-1), "previous span found (shift-Enter)"),
      this.makeButton("▶", () => this.stepFound(1), "next span found (Enter)"),
    ];
    group.append(this.search, this.count, ...this.steps);
    return group;
  }

  applyTheme() {
    this.theme = chooseTheme(this.container, this.themeWanted);
    const { theme } = this;
    for (const key of ["background", "text", "muted", "grid", "band", "accent"]) {
      this.root.style.setProperty(`--dtb-${key}`, theme[key]);
    }
    this.root.style.setProperty("--dtb-focus", theme.compute);
    this.colours = {};
    for (const key of ["compute", "hidden", "exposed", "copy"]) this.colours[key] = readColour(theme[key]);
    const own = THEMES[theme.name]; // as numbers, which a page's own colours may not be
    Object.assign(this.colours, { found: readColour(own.text), operators: readColour(own.muted), calls: readColour(own.muted), ranges: readColour(own.grid) });
    this.hatch = null;
    const stripes = `repeating-linear-gradient(135deg, ${theme.hatch} 0 1px, transparent 1px 4px)`;
    this.legend.replaceChildren(
      ...[
        ["compute", theme.compute, "none", 11],
        ["communication, hidden", theme.hidden, "none", 11],
        ["exposed", theme.exposed, stripes, 11],
        ["copy", theme.copy, "none", 7],
        ...this.stageActions().map((action) => [`${STAGE_WORK[action][0]} ${action} of a micro-batch`, STAGE_WORK[action][1], "none", 11]),
        ...this.purposes().map((purpose) => [this.model.say("purpose", purpose), PURPOSE_COLOURS[purpose] ?? PURPOSE_COLOURS.other, "none", 4]),
      ].map(([words, colour, image, height]) => {
        const key = make("span", "dtb-key");
        const swatch = make("span", "dtb-swatch");
        swatch.style.backgroundColor = colour;
        swatch.style.backgroundImage = image;
        swatch.style.height = `${height}px`;
        if (height < 5) swatch.style.borderWidth = "0";
        key.append(swatch, make("span", "", words));
        return key;
      }),
    );
  }

  // Those of the stages that are drawn, in the order of their colours.
  stageActions() {
    const codes = new Set((this.model?.ranks ?? []).flatMap((rank) => rank.columns.stage_work?.action ?? []));
    const words = new Set([...codes].map((code) => this.model.document.strings[code]));
    return Object.keys(STAGE_WORK).filter((action) => words.has(action));
  }

  // Those of the collectives that are drawn, in the order of their colours.
  purposes() {
    const codes = new Set((this.model?.ranks ?? []).flatMap((rank) => rank.columns.collectives.purpose));
    const words = new Set([...codes].map((code) => this.model.document.strings[code]));
    return Object.keys(PURPOSE_COLOURS).filter((purpose) => words.has(purpose));
  }

  // As high as what is drawn, as far as there is room; of a page that is the timeline's, all that is left of the window.
  chooseHeight() {
    const { height, embedded } = this.options;
    const given = height ?? (this.container.clientHeight >= 200 && this.container.style.height ? this.container.clientHeight : null);
    const around = this.bar.offsetHeight + this.foot.offsetHeight + 2;
    const box = this.container.getBoundingClientRect();
    const above = box.top + window.scrollY;
    const below = Math.max(12, window.document.body.getBoundingClientRect().bottom - box.bottom + BODY_MARGIN);
    const seen = window.innerHeight;
    const isPages = !embedded && above + below < PAGE_PART * seen;
    this.stack(LANE_HEIGHT);
    const part = Math.min(this.contentHeight + RULER_HEIGHT + around, EMBEDDED_PART * seen);
    const least = LEAST_HEIGHT[matchMedia(NARROW).matches ? "narrow" : "wide"];
    this.root.style.height = `${given ?? Math.round(Math.max(least, isPages ? seen - above - below : part))}px`;
  }

  // Rows of the picture from top to bottom, in content coordinates (0 is below the ruler, before scrolling).
  layOut() {
    this.stack(LANE_HEIGHT);
    const lanes = this.rows.filter((row) => row.type === "lane" && !row.lane.role).length;
    const spare = this.height ? this.height - RULER_HEIGHT - this.contentHeight : 0;
    if (lanes && spare > lanes) this.stack(Math.min(HIGHEST_LANE, LANE_HEIGHT + Math.floor(spare / lanes)));
    this.clampScroll();
  }

  stack(laneHeight) {
    this.rows = [];
    let y = 4;
    const put = (type, height, more) => {
      this.rows.push({ type, y, height, ...more });
      y += height;
    };
    for (const rank of this.model.ranks) {
      if (this.hidden.has(rank.rank)) continue;
      if (this.folded.has(rank.rank)) put("folded", FOLDED_HEIGHT, { rank });
      else {
        put("rank", RANK_HEIGHT, { rank });
        if (rank.columns.regions.start.length) put("regions", REGION_HEIGHT, { rank });
        for (const stage of rank.stages) put("stage", STAGE_HEIGHT, { rank, stage });
        rank.lanes.forEach((lane, at) => {
          if (lane.isFirst && this.showsHost) y += THREAD_GAP;
          if (!lane.role || this.showsHost) put("lane", lane.role ? heightOfHost(lane) : laneHeight, { rank, lane, at });
        });
        if (this.showsHost && rank.columns.host_lacks?.length) put("lacking", REGION_HEIGHT, { rank });
        y += RANK_GAP;
      }
    }
    this.contentHeight = y;
  }

  listen() {
    const { signal } = this.listeners;
    const on = (target, type, act, options) => target.addEventListener(type, act, { signal, ...options });
    on(this.canvas, "wheel", (event) => this.onWheel(event), { passive: false });
    on(this.canvas, "pointerdown", (event) => this.onDown(event));
    on(this.canvas, "pointermove", (event) => this.onMove(event));
    on(this.canvas, "pointerup", (event) => this.onUp(event));
    on(this.canvas, "pointercancel", () => (this.drag = null));
    on(this.canvas, "pointerleave", () => this.hover(null));
    on(this.canvas, "dblclick", (event) => this.onDouble(event));
    on(window, "keydown", (event) => this.onKey(event));
    if (this.options.embedded) {
      this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's keys are not meant here
      on(this.root, "pointerenter", () => this.lendFocus());
      on(this.root, "pointerleave", () => this.returnFocus());
      on(this.root, "pointerdown", () => (this.lender = null));
    }
    on(this.filter, "input", () => this.chooseRanks());
    on(this.search, "input", () => this.lookSoon());
    on(this.search, "keydown", (event) => this.onSearchKey(event));
    on(window, "resize", () => this.chooseHeight());
    on(window, "scroll", () => (this.lastPageScroll = performance.now()), { capture: true, passive: true });
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.refreshTheme());
    this.observers = [new ResizeObserver(() => this.resize())];
    this.observers[0].observe(this.stage);
    const watch = new MutationObserver(() => this.refreshTheme());
    for (const element of [window.document.documentElement, window.document.body]) {
      watch.observe(element, { attributes: true, attributeFilter: ["class", "style", "data-jp-theme-light", "data-theme"] });
    }
    this.observers.push(watch);
  }

  refreshTheme() {
    const before = JSON.stringify(this.theme);
    this.applyTheme();
    if (JSON.stringify(this.theme) !== before) this.schedule();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.stage.clientWidth;
    this.height = this.stage.clientHeight;
    this.ratio = ratio;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    if (this.model) this.layOut();
    this.draw();
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  // ------------------------------------------------------------------------------------------ where things are

  get gutter() {
    return Math.round(Math.min(GUTTER_LIMITS[1], Math.max(GUTTER_LIMITS[0], GUTTER_PART * this.width)));
  }

  get plotWidth() {
    return Math.max(1, this.width - this.gutter);
  }

  get nsPerPx() {
    return (this.view.end - this.view.start) / this.plotWidth;
  }

  xOf(moment) {
    return this.gutter + (moment - this.view.start) / this.nsPerPx;
  }

  timeAt(x) {
    return this.view.start + (x - this.gutter) * this.nsPerPx;
  }

  yOf(row) {
    return RULER_HEIGHT + row.y - this.scroll;
  }

  isVisible(row) {
    const y = this.yOf(row);
    return y + row.height > RULER_HEIGHT && y < this.height;
  }

  rowAt(y) {
    if (y < RULER_HEIGHT) return null;
    return this.rows.find((row) => y >= this.yOf(row) && y < this.yOf(row) + row.height) ?? null;
  }

  clampScroll() {
    const most = Math.max(0, this.contentHeight - (this.height - RULER_HEIGHT));
    this.scroll = Math.min(most, Math.max(0, this.scroll));
  }

  setView(start, end) {
    const whole = this.model.end - this.model.first;
    const length = Math.min(Math.max(end - start, SHORTEST_VIEW), whole * 1.04);
    const middle = (start + end) / 2;
    const margin = whole * 0.02;
    const least = this.model.first - margin;
    const first = Math.min(Math.max(middle - length / 2, least), Math.max(least, this.model.end + margin - length));
    this.view = { start: first, end: first + length };
    this.schedule();
  }

  zoomAt(x, factor) {
    const at = this.timeAt(Math.max(x, this.gutter));
    this.setView(at - (at - this.view.start) * factor, at + (this.view.end - at) * factor);
  }

  move(part) {
    const by = (this.view.end - this.view.start) * part;
    this.setView(this.view.start + by, this.view.end + by);
  }

  scrollBy(pixels) {
    this.scroll += pixels;
    this.clampScroll();
    this.schedule();
  }

  fit() {
    this.setView(this.model.start, this.model.end);
  }

  setHost(isShown) {
    this.showsHost = isShown;
    this.hostButton.setAttribute("aria-pressed", String(isShown));
    this.hostButton.hidden = !this.model.ranks.some((rank) => rank.hasHost);
  }

  toggleHost() {
    this.setHost(!this.showsHost);
    this.chooseHeight();
    this.layOut();
    this.schedule();
  }

  chooseRanks() {
    const every = this.model.ranks.map((rank) => rank.rank);
    const wanted = parseRanks(this.filter.value, every);
    this.hidden = new Set(wanted.size ? every.filter((rank) => !wanted.has(rank)) : []);
    this.folded = new Set(this.foldedAtFirst);
    for (const rank of wanted.size && wanted.size <= MOST_OPEN_RANKS ? wanted : []) this.folded.delete(rank);
    this.showCount();
    this.layOut();
    this.schedule();
  }

  // ------------------------------------------------------------------------------------------ mouse and keys

  pointOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  onWheel(event) {
    if (performance.now() - this.lastPageScroll < 200) return; // the page is being scrolled past it
    const { x } = this.pointOf(event);
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (x < this.gutter) this.scrollBy(event.deltaY * unit);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move((sideways * unit) / this.plotWidth);
    else {
      const isAll = this.view.end - this.view.start >= (this.model.end - this.model.first) * 1.039;
      if (event.deltaY > 0 && isAll) return; // nothing to zoom out of: the page may scroll on
      this.zoomAt(x, 1.0018 ** (Math.max(-300, Math.min(300, event.deltaY * unit))));
    }
    event.preventDefault();
  }

  onDown(event) {
    if (event.button !== 0) return;
    const point = this.pointOf(event);
    this.drag = { ...point, view: { ...this.view }, scroll: this.scroll, moved: false, picks: event.shiftKey && point.x >= this.gutter };
    this.canvas.setPointerCapture(event.pointerId);
    this.hover(null);
  }

  onMove(event) {
    const point = this.pointOf(event);
    if (!this.drag) {
      this.hover(this.hit(point.x, point.y), point);
      return;
    }
    const { drag } = this;
    drag.moved ||= Math.hypot(point.x - drag.x, point.y - drag.y) > 4;
    if (!drag.moved) return;
    if (drag.picks) {
      drag.to = point.x;
      this.schedule();
      return;
    }
    this.scroll = drag.scroll - (point.y - drag.y);
    this.clampScroll();
    const by = drag.x < this.gutter ? 0 : (drag.x - point.x) * ((drag.view.end - drag.view.start) / this.plotWidth);
    this.setView(drag.view.start + by, drag.view.end + by);
  }

  onUp(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (drag.moved && drag.picks) this.zoomTo(...[this.timeAt(drag.x), this.timeAt(drag.to)].sort((a, b) => a - b));
    else if (!drag.moved) this.click(this.pointOf(event));
  }

  click({ x, y }) {
    const row = this.rowAt(y);
    if ((row?.type === "rank" || row?.type === "folded") && x < this.gutter) {
      if (!this.folded.delete(row.rank.rank)) this.folded.add(row.rank.rank);
      this.chooseHeight();
      this.layOut();
      this.schedule();
    } else this.choose(this.hit(x, y));
  }

  onDouble(event) {
    const { x, y } = this.pointOf(event);
    const found = this.hit(x, y);
    if (x < this.gutter) return;
    if (found) this.zoomTo(found.start_ns - 0.3 * found.duration_ns, found.start_ns + 1.3 * found.duration_ns);
    else this.fit();
  }

  // Keys mean the timeline wherever in the page they are pressed, but where a person types, and but for those that
  // scroll a page; in a notebook, whose cells have keys of their own, only where the pointer or the focus is.
  takesKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyped(event.composedPath()[0])) return false;
    const holder = window.document.querySelector(".dtb-timeline:focus-within") ?? window.document.querySelector(".dtb-timeline:hover");
    if (holder) return holder === this.root && (!this.options.embedded || this.root.contains(window.document.activeElement));
    const page = window.document.documentElement;
    const scrolls = page.scrollHeight > page.clientHeight && SCROLLING_KEYS.has(event.key);
    return !this.options.embedded && !scrolls && this.isInView();
  }

  // In a notebook the pointer lends the focus, so that no key means a cell as well; it goes back with the pointer.
  lendFocus() {
    const { activeElement } = window.document;
    if (isTyped(activeElement) || this.root.contains(activeElement)) return;
    this.lender = activeElement;
    this.canvas.focus({ preventScroll: true });
  }

  returnFocus() {
    if (this.lender && window.document.activeElement === this.canvas) {
      this.canvas.blur();
      this.lender.focus({ preventScroll: true });
    }
    this.lender = null;
  }

  isInView() {
    const { top, bottom, height } = this.root.getBoundingClientRect();
    return Math.min(bottom, window.innerHeight) - Math.max(top, 0) >= Math.min(height, window.innerHeight) / 2 && height > 0;
  }

  // At once where that is quick, else when the person stops typing.
  lookSoon() {
    clearTimeout(this.looking);
    if (this.lookMs < QUICK_MS) this.lookFor();
    else this.looking = setTimeout(() => this.lookFor(), TELL_MS);
  }

  onSearchKey(event) {
    if (this.looking) this.lookFor();
    if (event.key === "Enter") this.stepFound(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      this.search.value = "";
      this.lookFor();
      this.canvas.focus({ preventScroll: true });
    } else return;
    event.preventDefault();
  }

  onKey(event) {
    if (!this.takesKey(event)) return;
    const middle = this.gutter + this.plotWidth / 2;
    const acts = {
      w: () => this.zoomAt(middle, 0.7), "+": () => this.zoomAt(middle, 0.7), "=": () => this.zoomAt(middle, 0.7),
      s: () => this.zoomAt(middle, 1 / 0.7), "-": () => this.zoomAt(middle, 1 / 0.7),
      a: () => this.move(-0.15), ArrowLeft: () => this.move(-0.15),
      d: () => this.move(0.15), ArrowRight: () => this.move(0.15),
      ArrowUp: () => this.scrollBy(-48), ArrowDown: () => this.scrollBy(48),
      PageUp: () => this.scrollBy(-0.8 * this.height), PageDown: () => this.scrollBy(0.8 * this.height),
      Home: () => this.setView(this.model.start, this.model.start + this.view.end - this.view.start),
      End: () => this.setView(this.model.end - (this.view.end - this.view.start), this.model.end),
      f: () => this.fit(), 0: () => this.fit(),
      n: () => this.stepExposed(1), p: () => this.stepExposed(-1), l: () => this.goLargest(), h: () => this.toggleHost(),
      "/": () => this.search.focus({ preventScroll: true }), Escape: () => this.choose(null),
    };
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // ------------------------------------------------------------------------------------------ what is under a point

  hit(x, y) {
    const row = this.rowAt(y);
    if (!row || x < this.gutter || !(row.type === "lane" || row.type === "folded" || row.type === "rank")) return null;
    const moment = this.timeAt(x);
    const near = NEAR * this.nsPerPx;
    if (row.type === "lane") {
      const span = findSpan(row.lane, moment, near);
      return span === NOTHING ? null : this.itemOf(row.rank, row.at, span);
    }
    return this.hitComm(row.rank, moment, near);
  }

  // In a folded rank and in the strip of its head, collectives can be hit.
  hitComm(rank, moment, near) {
    for (let at = 0; at < rank.lanes.length; at++) {
      const lane = rank.lanes[at];
      if (!lane.channels[COMM].count) continue;
      const span = findSpan(lane, moment, near, COMM);
      if (span !== NOTHING) return this.itemOf(rank, at, span);
    }
    return null;
  }

  itemOf(rank, at, span) {
    const lane = rank.lanes[at];
    const place = lane.collective[span];
    const kind = lane.kind[span];
    const collective = place === NOTHING ? null : this.collectiveOf(rank, place);
    return {
      id: place === NOTHING ? `span:${rank.rank}:${at}:${span}` : `collective:${rank.rank}:${collective.index}`,
      rank: rank.rank, kind: ["compute", "comm", "copy", "host"][kind], kindCode: kind, lane: spellKeys(lane.name, this.model.document.words),
      name: collective ? nameCollective(collective) : this.model.document.strings[lane.text[span]],
      start_ns: lane.start[span], duration_ns: lane.duration[span], collective,
      at, span, place, rankPart: rank, call: this.callOf(rank, lane, span),
    };
  }

  // The call that launched a span: {at, span, start_ns, name}; null: not known, or not drawn.
  callOf(rank, lane, span) {
    const call = rank.calls[lane.call[span] ?? NOTHING];
    if (!call) return null;
    const { start, text } = rank.lanes[call.at];
    return { ...call, start_ns: start[call.span], name: this.model.document.strings[text[call.span]] };
  }

  collectiveOf(rank, place) {
    const columns = rank.columns.collectives;
    const { strings } = this.model.document;
    const { say } = this.model;
    const one = { causes: columns.causes[place], said: {} };
    for (const key of ["operation", "purpose", "owner", "group", "axis", "region", "dtype", "cause"]) {
      one[key] = strings[columns[key][place]];
      one.said[key] = say(key, one[key]);
    }
    one.said.causes = Object.fromEntries(Object.entries(one.causes).map(([cause, ns]) => [say("cause", cause), ns]));
    for (const key of ["index", "match", "seq", "size_bytes", "group_size", "issue_ns", "skew_wait_ns", "last_rank", "busbw", "is_async", "exposed_ns", "hidden_ns"]) {
      one[key] = columns[key][place];
    }
    return one;
  }

  find(id) {
    const [type, rank, ...rest] = String(id).split(":");
    const part = this.model.ranks.find((one) => one.rank === Number(rank));
    if (!part) return null;
    if (type === "collective") {
      const place = part.columns.collectives.index.indexOf(Number(rest[0]));
      return place === NOTHING || part.laneOf[place] === NOTHING ? null : this.itemOf(part, part.laneOf[place], part.spanOf[place]);
    }
    const [at, span] = rest.map(Number);
    return part.lanes[at]?.start[span] === undefined ? null : this.itemOf(part, at, span);
  }

  // ------------------------------------------------------------------------------------------ selection and hover

  select(wanted, { zoom = true } = {}) {
    if (wanted === null) {
      this.choose(null);
      return true;
    }
    const item = this.find(typeof wanted === "object" ? `collective:${wanted.rank}:${wanted.index}` : wanted);
    if (!item) return false;
    this.choose(item);
    if (zoom) this.reveal(item);
    return true;
  }

  choose(item) {
    if ((item?.id ?? null) === (this.selected?.id ?? null)) return;
    this.selected = item;
    this.largestAt = NOTHING;
    this.showDetails();
    this.showCount();
    this.says.textContent = item ? `${item.name}: ${describe(item).map((row) => row.join(" ")).join(", ")}` : "nothing selected";
    this.options.onSelect?.(item && publish(item));
    this.schedule();
  }

  // Bring a span into view, large enough to see.
  reveal(item, { zoom = true } = {}) {
    if (this.stage.clientWidth !== this.width || this.stage.clientHeight !== this.height) this.resize(); // its description took room
    if (zoom) this.zoomToSee(item);
    const isHosts = Boolean(item.rankPart.lanes[item.at].role);
    if (isHosts && !this.showsHost) this.setHost(true);
    if (isHosts) this.folded.delete(item.rank);
    this.hidden.delete(item.rank);
    this.layOut();
    const row = this.rows.find((one) => one.rank === item.rankPart && (one.type === "folded" || one.at === item.at));
    if (!row) return;
    const y = this.yOf(row);
    if (y < RULER_HEIGHT + RANK_HEIGHT) this.scrollBy(y - RULER_HEIGHT - RANK_HEIGHT);
    else if (y + row.height > this.height) this.scrollBy(y + row.height - this.height + 8);
  }

  zoomToSee(item) {
    const { start, end } = this.view;
    const width = item.duration_ns / this.nsPerPx;
    const isInside = item.start_ns >= start && item.start_ns + item.duration_ns <= end;
    if (width < 8 || width > this.plotWidth) {
      const length = Math.max(12 * item.duration_ns, SHORTEST_VIEW);
      this.setView(item.start_ns + item.duration_ns / 2 - length / 2, item.start_ns + item.duration_ns / 2 + length / 2);
    } else if (!isInside) this.setView(item.start_ns - (end - start) / 3, item.start_ns + (2 * (end - start)) / 3);
  }

  shownOf(spans) {
    return spans.filter((one) => !this.hidden.has(one.rank.rank));
  }

  placeIn(spans) {
    return this.selected ? spans.findIndex((one) => one.rank === this.selected.rankPart && one.at === this.selected.at && one.span === this.selected.span) : NOTHING;
  }

  go({ rank, at, span }) {
    const item = this.itemOf(rank, at, span);
    this.choose(item);
    this.reveal(item);
  }

  // Go to the one after, or before, what is selected; where that is none of them, after what the window begins with.
  stepThrough(spans, direction) {
    const current = this.placeIn(spans);
    const after = spans.findIndex((one) => startOf(one) >= this.view.start);
    const first = direction > 0 ? (after === NOTHING ? 0 : after) : (after === NOTHING ? spans.length : after) - 1;
    const next = current === NOTHING ? first : current + direction;
    this.go(spans[(next + spans.length) % spans.length]);
  }

  stepExposed(direction) {
    const shown = this.shownOf(this.model.exposed);
    if (shown.length) this.stepThrough(shown, direction);
    else this.says.textContent = "no collective is known to be exposed here";
  }

  // The one that is longest exposed; asked again while it is selected, the next in that order.
  goLargest() {
    const shown = this.shownOf(this.model.largest);
    if (!shown.length) {
      this.says.textContent = "no collective is known to be exposed here";
      return;
    }
    const goesOn = this.largestAt !== NOTHING && this.placeIn(shown) === this.largestAt;
    const next = goesOn ? (this.largestAt + 1) % shown.length : 0;
    this.go(shown[next]);
    this.largestAt = next;
  }

  // ------------------------------------------------------------------------------------------ what is looked for

  lookFor() {
    clearTimeout(this.looking);
    this.looking = 0;
    const began = performance.now();
    this.found = findSpans(this.model, readWanted(this.search.value));
    this.lookMs = performance.now() - began;
    this.showCount();
    this.schedule();
  }

  showCount() {
    const shown = this.shownOf(this.found);
    const place = this.placeIn(shown);
    const isAsked = readWanted(this.search.value).length > 0;
    const counted = place === NOTHING ? `${shown.length} found` : `${place + 1} of ${shown.length}`;
    this.count.textContent = isAsked ? (shown.length ? counted : "none") : "";
    for (const button of this.steps) button.hidden = !shown.length;
  }

  stepFound(direction) {
    const shown = this.shownOf(this.found);
    if (shown.length) this.stepThrough(shown, direction);
  }

  showDetails() {
    const item = this.selected;
    this.details.hidden = !item;
    if (!item) return;
    const list = make("dl");
    fillList(list, describe(item));
    this.details.replaceChildren(make("h3", "", item.name), list);
    const others = this.membersOf(item);
    if (others.length > 1) {
      const box = make("div", "dtb-others");
      box.append(make("b", "", `The same on ${others.length} ranks`));
      for (const one of others) {
        const columns = one.rank.columns.collectives;
        const begins = columns.start[one.place] - item.start_ns;
        const words = `rank ${one.rank.rank}: ${formatNs(columns.duration[one.place])}, exposed ${formatNs(columns.exposed_ns[one.place])}` +
          (one.rank === item.rankPart ? " (this)" : `, starts ${begins < 0 ? "-" : "+"}${formatNs(Math.abs(begins))}`);
        const button = make("button", "", words);
        button.type = "button";
        button.addEventListener("click", () => this.select(`collective:${one.rank.rank}:${columns.index[one.place]}`), { signal: this.listeners.signal });
        box.append(button);
      }
      this.details.append(box);
    }
    this.showLaunches(item);
    this.details.scrollTop = 0;
  }

  // Buttons that lead from a span to the call that launched it, and from a call to what it launched.
  showLaunches({ rankPart: rank, at, span, call }) {
    const launched = launchedBy(rank, at, span);
    const leads = call ? [["Show its launch", call]] : launched.slice(0, MOST_LEADS).map((one) => [this.itemOf(rank, one.at, one.span).name, one]);
    if (!leads.length) return;
    const box = make("div", "dtb-others");
    if (!call) box.append(make("b", "", launched.length > leads.length ? `It launched ${launched.length}; the first:` : "It launched"));
    for (const [words, one] of leads) box.append(this.makeButton(words, () => this.go({ rank, ...one }), words));
    this.details.append(box);
  }

  membersOf(item) {
    return (item?.collective && this.model.matches.get(item.collective.match)) || [];
  }

  hover(item, point) {
    this.canvas.style.cursor = item ? "pointer" : "default";
    const isNew = (item?.id ?? null) !== (this.hovered?.id ?? null);
    this.hovered = item;
    this.tip.hidden = !item;
    if (item && isNew) {
      const list = make("dl");
      fillList(list, describe(item));
      this.tip.replaceChildren(make("b", "", item.name.length > 300 ? `${item.name.slice(0, 300)}…` : item.name), list);
    }
    if (item) {
      const left = point.x + 16 + this.tip.offsetWidth > this.width ? point.x - this.tip.offsetWidth - 12 : point.x + 16;
      const top = Math.min(point.y + 14, this.height - this.tip.offsetHeight - 4);
      this.tip.style.left = `${Math.max(2, left)}px`;
      this.tip.style.top = `${Math.max(2, top)}px`;
    }
    if (isNew) this.schedule();
  }

  // ------------------------------------------------------------------------------------------ drawing

  draw() {
    if (!this.model || this.listeners.signal.aborted || this.width <= this.gutter) return;
    const began = performance.now();
    const { context, theme } = this;
    this.drawn = { rows: 0, rects: 0, names: 0, pixels: 0 };
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = theme.background;
    context.fillRect(0, 0, this.width, this.height);
    context.textBaseline = "middle";
    context.font = FONT;
    const visible = this.rows.filter((row) => this.isVisible(row));
    context.save();
    context.beginPath();
    context.rect(0, RULER_HEIGHT, this.width, this.height - RULER_HEIGHT);
    context.clip();
    this.drawBands(visible);
    this.drawCoverage(visible);
    context.save();
    context.beginPath();
    context.rect(this.gutter, RULER_HEIGHT, this.plotWidth, this.height - RULER_HEIGHT);
    context.clip();
    for (const row of visible) this.drawRow(row);
    this.drawSelection(visible);
    context.restore();
    this.drawLabels(visible);
    this.drawScrollBar();
    context.restore();
    this.drawRuler();
    this.drawPick();
    this.frameMs = performance.now() - began;
    this.tellSoon();
  }

  rect(x, y, width, height) {
    this.context.fillRect(x, y, width, height);
    this.drawn.rects++;
  }

  drawBands(visible) {
    const { context, theme } = this;
    for (const row of visible) {
      if (row.type !== "rank") continue;
      context.fillStyle = theme.band;
      this.rect(0, this.yOf(row), this.width, row.height);
    }
    context.fillStyle = theme.grid;
    for (const tick of this.ticks()) this.rect(Math.round(this.xOf(tick)), RULER_HEIGHT, 1, this.height);
    context.fillStyle = theme.muted;
    context.globalAlpha = 0.55;
    for (const row of visible) {
      for (const start of this.shownSteps(row.rank).map((i) => row.rank.columns.steps.start[i])) {
        const x = Math.round(this.xOf(start));
        if (x >= this.gutter) this.rect(x, this.yOf(row), 1, row.height);
      }
    }
    context.globalAlpha = 1;
  }

  // Places of the steps that are in view and wide enough to see.
  shownSteps(rank) {
    const { start, duration } = rank.columns.steps;
    const places = [];
    const last = countBelow(start, this.view.end);
    for (let i = Math.max(0, countBelow(start, this.view.start) - 1); i < last; i++) {
      if (duration[i] / this.nsPerPx >= 3) places.push(i);
    }
    return places;
  }

  // Fill lanes pixel by pixel: one line of pixels for each, stretched to its height.
  drawCoverage(visible) {
    const width = Math.max(1, Math.round(this.plotWidth * this.ratio));
    const lines = [];
    for (const row of visible) lines.push(...this.linesOf(row));
    if (!lines.length) return;
    if (this.buffer.width !== width || this.buffer.height < lines.length) {
      this.buffer.width = width;
      this.buffer.height = Math.max(lines.length, this.buffer.height, 32);
      this.image = new ImageData(width, this.buffer.height);
      this.parts = [0, 1, 2].map(() => new Float32Array(width));
    }
    const nsPerPixel = (this.view.end - this.view.start) / width;
    lines.forEach((line, at) => {
      line.layers.forEach(([channel], layer) => {
        if (channel.count) cover(channel, this.view.start, nsPerPixel, this.parts[layer]);
        else this.parts[layer].fill(0);
      });
      mix(this.image.data, at * width, this.parts, line.layers);
    });
    const brush = this.buffer.getContext("2d");
    brush.putImageData(this.image, 0, 0, 0, 0, width, lines.length);
    const { context } = this;
    context.imageSmoothingEnabled = false;
    lines.forEach((line, at) => context.drawImage(this.buffer, 0, at, width, 1, this.gutter, line.y, this.plotWidth, line.height));
    this.drawn.rows += lines.length;
    this.drawn.pixels += lines.length * width;
  }

  linesOf(row) {
    const { compute, hidden, exposed, copy } = this.colours;
    const y = this.yOf(row);
    if (row.type === "rank") {
      return [{ y: y + row.height - STRIP_HEIGHT, height: STRIP_HEIGHT, layers: [[row.rank.exposed, exposed]] }];
    }
    if (row.type === "folded") {
      const folded = foldRank(row.rank);
      const half = this.halfOf(row);
      return [
        { y, height: half, layers: [[folded.compute, compute]] },
        { y: y + half + 1, height: half, layers: [[folded.comm, hidden], [row.rank.exposed, exposed]] },
        ...this.foundLine(foundOn(row.rank), y + row.height),
      ];
    }
    if (row.type !== "lane") return [];
    const { channels, role } = row.lane;
    const height = row.height - LANE_PAD;
    const lines = role ? [{ y, height, layers: [[row.lane.busy, this.colours[role]]] }] : [];
    if (channels[COPY].count) {
      const less = Math.round(height * COPY_PART);
      lines.push({ y: y + height - less, height: less, layers: [[channels[COPY], copy]] });
    }
    lines.push(...this.foundLine(row.lane.found, y + row.height));
    if (channels[COMPUTE].count || channels[COMM].count) {
      lines.push({ y, height, layers: [[channels[COMM], hidden], [row.lane.exposed, exposed], [channels[COMPUTE], compute]] });
    }
    return lines;
  }

  // Below what has what is looked for.
  foundLine(found, bottom) {
    return found?.count ? [{ y: bottom - LANE_PAD, height: LANE_PAD, layers: [[found, this.colours.found]] }] : [];
  }

  halfOf(row) {
    return Math.floor((row.height - LANE_PAD - 3) / 2);
  }

  drawRow(row) {
    if (row.type === "lane") this.drawLane(row);
    else if (row.type === "rank") this.drawHead(row);
    else if (row.type === "regions") this.drawRegions(row);
    else if (row.type === "stage") this.drawStage(row);
    else if (row.type === "lacking") this.drawLacking(row);
    else this.drawHatch(row.rank.exposed, this.yOf(row) + this.halfOf(row) + 1, this.halfOf(row));
  }

  drawHead(row) {
    const { theme } = this;
    const y = this.yOf(row);
    this.drawHatch(row.rank.exposed, y + row.height - STRIP_HEIGHT, STRIP_HEIGHT);
    const { steps } = row.rank.columns;
    for (const i of this.shownSteps(row.rank)) {
      const x = this.xOf(steps.start[i]);
      const end = this.xOf(steps.start[i] + steps.duration[i]);
      const exposed = steps.exposed_comm_ns[i];
      const share = exposed === null || !steps.duration[i] ? "" : ` (${((100 * exposed) / steps.duration[i]).toFixed(1)} %)`;
      const named = `step ${steps.number[i]}`;
      const timed = `${named} · ${formatNs(steps.duration[i])}`;
      const whole = `${timed} · exposed ${formatNs(exposed)}`;
      const from = Math.max(x, this.gutter) + 5;
      const room = Math.min(end, this.width) - from;
      this.writeFitting([whole + share, whole, timed, named], from, y + (row.height - STRIP_HEIGHT) / 2, room, theme.muted);
    }
  }

  drawRegions(row) {
    const { context, theme } = this;
    const { regions } = row.rank.columns;
    const y = this.yOf(row);
    const last = countBelow(regions.start, this.view.end);
    for (let i = 0; i < last; i++) {
      const x = Math.max(this.xOf(regions.start[i]), this.gutter);
      const end = Math.min(this.xOf(regions.start[i] + regions.duration[i]), this.width);
      if (end - x < 1) continue;
      const word = this.model.document.strings[regions.name[i]];
      context.globalAlpha = REGION_SHADES[word] ?? 0.12;
      context.fillStyle = theme.text;
      this.rect(x, y, Math.max(1, end - x - 1), row.height - 2);
      context.globalAlpha = 1;
      if (end - x > NAME_FROM) this.writeInside(this.model.say("region", word), x + 4, y + row.height / 2 - 0.5, end - x - 6, theme.muted);
    }
  }

  // What was not recorded is said: an empty row would say that nothing ran.
  drawLacking(row) {
    const words = `${row.rank.columns.host_lacks.join(", ")}: not recorded`;
    this.writeInside(words, this.gutter + 4, this.yOf(row) + row.height / 2, this.plotWidth - 8, this.theme.muted);
  }

  drawStage(row) {
    const { context } = this;
    const { stage_work: work } = row.rank.columns;
    const y = this.yOf(row);
    for (const i of row.stage.places) {
      const x = Math.max(this.xOf(work.start[i]), this.gutter);
      const end = Math.min(this.xOf(work.start[i] + work.duration[i]), this.width);
      if (end <= x) continue;
      const [letter, colour] = STAGE_WORK[this.model.document.strings[work.action[i]]];
      context.fillStyle = colour;
      this.rect(x, y, Math.max(1, end - x - 1), row.height - 2);
      this.writeInside(`${letter}${work.batch[i] ?? ""}`, x + 2, y + row.height / 2 - 0.5, end - x - 4, "#000000");
    }
  }

  drawLane(row) {
    const { context, theme, nsPerPx } = this;
    const { lane } = row;
    const y = this.yOf(row);
    const height = row.height - LANE_PAD;
    const from = countBelow(lane.reach, this.view.start);
    const beyond = countBelow(lane.start, this.view.end);
    const named = [];
    this.drawHatch(lane.exposed, y, height);
    visitLong(lane.levels, from, beyond, BORDER_FROM * nsPerPx, (span) => {
      const x = this.xOf(lane.start[span]);
      const end = Math.min(this.width + 2, x + lane.duration[span] / nsPerPx);
      if (end < this.gutter) return;
      const kind = lane.kind[span];
      if (kind === COMM) this.frameCollective(row, span, Math.max(x, this.gutter - 2), end, y, height);
      else {
        context.fillStyle = theme.border;
        const less = kind === COPY ? Math.round(height * COPY_PART) : height;
        this.rect(end - 1, y + height - less, 1, less);
      }
      if (end - Math.max(x, this.gutter) > NAME_FROM) named.push(span);
    });
    for (const span of named) this.nameSpan(row, span, y, height);
  }

  frameCollective(row, span, x, end, y, height) {
    const { context, theme } = this;
    const { columns } = row.rank;
    const purpose = this.model.document.strings[columns.collectives.purpose[row.lane.collective[span]]];
    context.fillStyle = PURPOSE_COLOURS[purpose] ?? PURPOSE_COLOURS.other;
    this.rect(x, y + height - 3, end - x - 0.5, 3);
    context.strokeStyle = theme.commBorder;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, Math.max(1, end - x - 1.5), height - 1);
    this.drawn.rects++;
  }

  nameSpan(row, span, y, height) {
    const { theme } = this;
    const { lane, rank } = row;
    const x = Math.max(this.xOf(lane.start[span]), this.gutter) + 4;
    const room = Math.min(this.xOf(lane.start[span] + lane.duration[span]), this.width) - x - 3;
    const kind = lane.kind[span];
    if (kind === COMM) {
      const one = this.collectiveOf(rank, lane.collective[span]);
      const words = nameCollective(one);
      const isTight = one.owner && this.widthOf(words) > room - 2; // its stripe says the purpose, too
      this.writeInside(isTight ? one.owner : words, x + 1, y + (height - 3) / 2 + 0.5, room - 2, theme.onComm, theme.hidden);
    } else if (kind === HOST) {
      const colour = lane.role === "ranges" ? theme.text : theme.background;
      if (lane.role !== "calls") this.writeInside(this.nameOnHost(lane, span), x - 1, y + height / 2 + 0.5, room + 2, colour);
    } else if (kind === COPY) this.writeInside(this.shortName(lane.text[span]), x, y + height * (1 - COPY_PART / 2), room, "#000000");
    else this.writeInside(this.shortName(lane.text[span]), x, y + height / 2 + 0.5, room, theme.onCompute);
  }

  // A range says what it is about in full: `FSDP::all_gather (layers.0)`.
  nameOnHost(lane, span) {
    return lane.role === "ranges" ? this.model.document.strings[lane.text[span]] : this.shortName(lane.text[span]);
  }

  shortName(code) {
    this.shortNames ??= new Map();
    let name = this.shortNames.get(code);
    if (name === undefined) {
      name = shorten(this.model.document.strings[code]);
      this.shortNames.set(code, name);
    }
    return name;
  }

  // Write as much as fits; with a ground, on a patch of that colour, so that no hatch runs through the letters.
  writeInside(words, x, y, room, colour, ground) {
    const shown = this.fitWords(words, room);
    if (!shown) return x;
    const { context } = this;
    const width = Math.min(room, this.widthOf(shown));
    if (ground) {
      context.fillStyle = ground;
      this.rect(x - 1, y - 6.5, width + 2, 12);
    }
    context.fillStyle = colour;
    context.fillText(shown, x, y, room);
    this.drawn.names++;
    return x + width + 8;
  }

  // Write the first that fits as a whole: part of a number is another number.
  writeFitting(variants, x, y, room, colour) {
    const fitting = variants.find((words) => this.widthOf(words) <= room);
    if (fitting) this.writeInside(fitting, x, y, room, colour);
  }

  fitWords(words, room) {
    const width = this.widthOf(words);
    if (width <= room) return words;
    return shortenTo(words, Math.floor((words.length * room) / width), this.differences?.get(words));
  }

  // Measuring is slow, and the same names come in every frame.
  widthOf(words) {
    this.widths ??= new Map();
    const key = this.context.font + words;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      width = this.context.measureText(words).width;
      this.widths.set(key, width);
    }
    return width;
  }

  drawHatch(channel, y, height) {
    const { context } = this;
    const from = countBelow(channel.end, this.view.start);
    const beyond = countBelow(channel.start, this.view.end);
    context.fillStyle = this.hatchPattern();
    visitLong(channel.levels, from, beyond, HATCH_FROM * this.nsPerPx, (at) => {
      const x = Math.max(this.xOf(channel.start[at]), this.gutter);
      const end = Math.min(this.xOf(channel.end[at]), this.width);
      if (end > x) this.rect(x, y, end - x, height);
    });
  }

  hatchPattern() {
    if (this.hatch && this.hatchRatio === this.ratio) return this.hatch;
    const size = 6;
    const tile = make("canvas");
    tile.width = tile.height = Math.round(size * this.ratio);
    const brush = tile.getContext("2d");
    brush.scale(tile.width / size, tile.width / size);
    brush.strokeStyle = this.theme.hatch;
    brush.lineWidth = 1.1;
    brush.beginPath();
    for (const shift of [-size, 0, size]) {
      brush.moveTo(shift, size);
      brush.lineTo(shift + size, 0);
    }
    brush.stroke();
    this.hatch = this.context.createPattern(tile, "repeat");
    this.hatch.setTransform(new DOMMatrix().scale(size / tile.width));
    this.hatchRatio = this.ratio;
    return this.hatch;
  }

  drawSelection(visible) {
    const { context, theme } = this;
    if (this.hovered) this.outline(visible, this.hovered.rankPart, this.hovered.at, this.hovered.span, 1);
    if (!this.selected) return;
    const members = this.membersOf(this.selected);
    const corners = [];
    for (const { rank, place } of members.length ? members : [{ rank: this.selected.rankPart, place: NOTHING }]) {
      const isOwn = rank === this.selected.rankPart;
      const at = isOwn ? this.selected.at : rank.laneOf[place];
      const box = this.outline(visible, rank, at, isOwn ? this.selected.span : rank.spanOf[place], isOwn ? 3 : 2);
      if (box) corners.push(box);
    }
    context.strokeStyle = theme.accent;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    for (let i = 1; i < corners.length; i++) {
      for (const side of ["x", "end"]) {
        context.beginPath();
        context.moveTo(corners[i - 1][side], corners[i - 1].bottom);
        context.lineTo(corners[i][side], corners[i].y);
        context.stroke();
      }
    }
    context.setLineDash([]);
    this.drawLaunches(visible);
  }

  // A line from a call to what it launched, whichever of the two is selected.
  drawLaunches(visible) {
    const { rankPart: rank, at, span, call } = this.selected;
    const pairs = call ? [[call, { at, span }]] : launchedBy(rank, at, span).map((one) => [{ at, span }, one]);
    const { context, theme } = this;
    for (const [from, to] of pairs) {
      const [start, end] = [from, to].map((one) => this.pointAt(rank, one));
      if (!start || !end) continue;
      this.outline(visible, rank, from.at, from.span, 2);
      this.outline(visible, rank, to.at, to.span, 2);
      context.strokeStyle = theme.accent;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(start.x, start.top);
      context.bezierCurveTo(start.x, start.top - 18, end.x, end.bottom + 18, end.x, end.bottom);
      context.stroke();
    }
  }

  // Where a span begins, wherever that is; null: its row is not shown.
  pointAt(rank, { at, span }) {
    const row = this.rows.find((one) => one.rank === rank && one.at === at);
    if (!row) return null;
    const top = this.yOf(row);
    return { x: this.xOf(rank.lanes[at].start[span]), top, bottom: top + row.height - LANE_PAD };
  }

  outline(visible, rank, at, span, width) {
    const row = visible.find((one) => one.rank === rank && (one.type === "folded" || one.at === at));
    if (!row || at < 0) return null;
    const lane = rank.lanes[at];
    const x = Math.max(this.xOf(lane.start[span]), this.gutter - 4);
    const end = Math.min(Math.max(x + 2, this.xOf(lane.start[span] + lane.duration[span])), this.width + 4);
    if (end < this.gutter || x > this.width) return null;
    const { context, theme } = this;
    const y = this.yOf(row);
    const height = row.height - LANE_PAD;
    context.strokeStyle = theme.accent;
    context.lineWidth = width;
    context.strokeRect(x, y, end - x, height);
    return { x, end, y, bottom: y + height };
  }

  drawLabels(visible) {
    const { context, theme } = this;
    context.fillStyle = theme.grid;
    this.rect(this.gutter - 1, RULER_HEIGHT, 1, this.height);
    for (const row of visible) {
      const y = this.yOf(row) + (row.height - (row.type === "rank" ? 0 : LANE_PAD)) / 2 + 0.5;
      if (row.type === "rank" || row.type === "folded") this.labelRank(row, y);
      else if (row.type === "lane") this.writeInside(spellKeys(labelHost(row.lane), this.model.document.words), 22, y, this.gutter - 26, row.lane.isFirst === false ? theme.muted : theme.text);
      else if (row.type === "stage") this.writeInside(row.stage.name, 22, y, this.gutter - 26, theme.text);
      else this.writeInside(row.type === "lacking" ? "host" : "regions", 22, y, this.gutter - 26, theme.muted);
    }
  }

  labelRank(row, y) {
    const { context, theme } = this;
    context.font = BOLD;
    const sign = row.type === "folded" ? "▸" : "▾";
    const apart = row.rank.columns.is_aligned ? "" : " (own clock)";
    const left = Math.max(Math.min(104, this.gutter - 60), this.writeInside(`${sign} rank ${row.rank.rank}${apart}`, 8, y, 120, theme.text));
    context.font = FONT;
    const exposed = formatNs(this.exposedIn(row.rank));
    this.writeFitting([`${exposed} exposed`, exposed], left, y, this.gutter - left - 4, theme.muted);
  }

  exposedIn(rank) {
    return coveredBetween(rank.exposed, this.view.start, this.view.end);
  }

  drawScrollBar() {
    const room = this.height - RULER_HEIGHT;
    if (this.contentHeight <= room) return;
    const { context, theme } = this;
    context.globalAlpha = 0.45;
    context.fillStyle = theme.muted;
    this.rect(this.width - 7, RULER_HEIGHT + (this.scroll / this.contentHeight) * room, 5, (room * room) / this.contentHeight);
    context.globalAlpha = 1;
  }

  ticks() {
    const wanted = Math.max(2, this.plotWidth / 110);
    const rough = (this.view.end - this.view.start) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    this.tickStep = Math.max(1, step);
    const ticks = [];
    for (let tick = Math.ceil(this.view.start / this.tickStep) * this.tickStep; tick <= this.view.end; tick += this.tickStep) ticks.push(tick);
    return ticks;
  }

  drawRuler() {
    const { context, theme } = this;
    context.fillStyle = theme.background;
    this.rect(0, 0, this.width, RULER_HEIGHT);
    context.fillStyle = theme.grid;
    this.rect(0, RULER_HEIGHT - 1, this.width, 1);
    this.writeInside(`${formatNs(this.view.end - this.view.start)} shown`, 8, RULER_HEIGHT / 2, this.gutter - 10, theme.muted);
    for (const tick of this.ticks()) {
      const x = this.xOf(tick);
      context.fillStyle = theme.muted;
      this.rect(Math.round(x), RULER_HEIGHT - 6, 1, 5);
      if (x < this.width - 50) context.fillText(formatTick(tick, this.tickStep), x + 3, RULER_HEIGHT / 2);
    }
  }

  drawPick() {
    if (!this.drag?.picks || this.drag.to === undefined) return;
    const { context, theme } = this;
    const [x, end] = [this.drag.x, this.drag.to].sort((a, b) => a - b);
    context.globalAlpha = 0.2;
    context.fillStyle = theme.compute;
    this.rect(x, 0, end - x, this.height);
    context.globalAlpha = 1;
    context.fillStyle = theme.text;
    context.fillText(formatNs((end - x) * this.nsPerPx), x + 4, RULER_HEIGHT + 8);
  }

  // ------------------------------------------------------------------------------------------ for the page around it

  zoomTo(start, end) {
    this.setView(start, end);
  }

  state() {
    return {
      start_ns: this.view?.start, end_ns: this.view?.end, selected: this.selected?.id ?? null, scroll: this.scroll,
      ranks: this.model?.ranks.filter((rank) => !this.hidden.has(rank.rank)).map((rank) => rank.rank) ?? [],
      rows: this.rows.map((row) => ({ type: row.type, rank: row.rank.rank, lane: row.lane?.name ?? row.stage?.name, y: RULER_HEIGHT + row.y - this.scroll, height: row.height })),
      exposed_ns: Object.fromEntries((this.model?.ranks ?? []).map((rank) => [rank.rank, this.exposedIn(rank)])),
      found: this.found.length, isLooking: this.looking > 0, gutter: this.gutter, drawn: this.drawn, frame_ms: this.frameMs, theme: this.theme.name,
    };
  }

  destroy() {
    this.listeners.abort();
    for (const observer of this.observers ?? []) observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.looking);
    clearTimeout(this.telling);
    this.root.remove();
  }
}

// Mix layers of coverage into one line of pixels. A layer that lies inside the one before it (exposed time inside
// communication) takes its place.
function mix(data, offset, parts, layers) {
  const isInside = layers.length > 1;
  for (let pixel = 0; pixel < parts[0].length; pixel++) {
    const inner = isInside ? parts[1][pixel] : 0;
    const outer = Math.max(0, parts[0][pixel] - inner);
    const third = layers.length > 2 ? parts[2][pixel] : 0;
    const sum = outer + inner + third;
    const at = (offset + pixel) * 4;
    if (sum <= 0) {
      data[at + 3] = 0;
      continue;
    }
    for (let part = 0; part < 3; part++) {
      let value = outer * layers[0][1][part];
      if (inner) value += inner * layers[1][1][part];
      if (third) value += third * layers[2][1][part];
      data[at + part] = value / sum;
    }
    data[at + 3] = 255 * Math.min(1, Math.max(inner ? FAINTEST_EXPOSED : FAINTEST, sum));
  }
}

function publish(item) {
  const { id, rank, kind, name, start_ns, duration_ns, lane, collective } = item;
  return { id, rank, kind, name, start_ns, duration_ns, lane, collective };
}

/**
 * Draw a timeline inside an empty block element.
 *
 * options: document, or load (called once, gives a promise of it); onSelect(item or null); height in CSS pixels;
 * theme "auto", "light" or "dark"; embedded: it is one of many things in a notebook, and leaves keys and height to it;
 * state: what is shown at first, as onState(state) told it: an object of texts, for a link or an address to hold.
 */
export function createTimeline(container, options) {
  const timeline = new Timeline(container, options);
  return {
    ready: timeline.ready,
    destroy: () => timeline.destroy(),
    select: (wanted, how) => timeline.select(wanted, how),
    zoomTo: (start, end) => timeline.zoomTo(start, end),
    fit: () => timeline.fit(),
    state: () => timeline.state(),
    setState: (state) => timeline.model && timeline.setState(state),
    redraw: () => timeline.draw(),
    setTheme: (theme) => {
      timeline.themeWanted = theme;
      timeline.applyTheme();
      timeline.draw();
    },
  };
}

/** Draw a timeline, and keep what it shows in the page's address. */
export function openInPage(container, options) {
  const state = readAddress();
  const timeline = createTimeline(container, { ...options, state, onState: writeAddress });
  addEventListener("hashchange", () => {
    const told = readAddress();
    if (Object.keys(told).length) timeline.setState(told); // a link to another part of the page says nothing of it
  });
  if (Object.keys(state).length) {
    for (let one = container; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    timeline.ready.then(() => container.scrollIntoView({ block: "nearest" }), () => {});
  }
  return timeline;
}

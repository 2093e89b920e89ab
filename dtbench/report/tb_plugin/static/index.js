/* The page: which run is chosen, which tab is open, and looking again while a run goes on. */
import {followAddress, isWritten, readAddress, writeAddress} from "./address.js";
import {drawPatterns} from "./chart.js";
import {collectives} from "./collectives.js";
import {compare} from "./compare.js";
import {drawEmpty, drawError, make, setOptions} from "./dom.js";
import {overlap} from "./overlap.js";
import {overview} from "./overview.js";
import {timeline} from "./timeline_tab.js";

const TABS = [overview, overlap, timeline, collectives, compare];
const BUSY_MS = 4000;
const QUIET_MS = 15000;
const TYPING_MS = 300;
const MANY_RUNS = 20;
const CHOICE = {run: null, cell: null, launch: "all"};
const FIRST = new Map(TABS.map((tab) => [tab, {...tab.wanted}]));

/** TensorBoard calls this when it opens the page. */
export async function render() {
  for (const sheet of ["./look.css", "./board.css"]) {
    document.head.append(make("link", {rel: "stylesheet", href: new URL(sheet, import.meta.url).href}));
  }
  document.documentElement.lang = "en";
  document.title = "dtbench";
  await new Page().start();
}

/** Ask the server; a refusal is an `Error` with its sentence. */
async function ask(route, words = {}) {
  const address = new URL(`../${route}`, import.meta.url);
  for (const [name, value] of Object.entries(words)) {
    if (value !== undefined && value !== null && value !== "") address.searchParams.set(name, value);
    else if (value === "" && name === "owner") address.searchParams.set(name, "");
  }
  const response = await fetch(address).catch(() => {
    throw new Error("The server does not answer; does TensorBoard still run?");
  });
  const said = await response.json().catch(() => ({error: `The server answered ${response.status} without a sentence.`}));
  if (!response.ok || said.error) throw Object.assign(new Error(said.error), {status: said.status ?? response.status});
  return said;
}

class Page {
  #runs = [];
  #latest = null;
  #choice = {...CHOICE};
  #tab = overview;
  #turn = 0;
  #drawn = {key: null, state: null};
  #find = "";
  /** The server lists the newest runs only, and finds among all. */
  #isCut = false;
  #listError = null;
  #lost = "";

  ask = ask;
  refresh = () => this.#show();
  /** Put what tabs want into the address, where nothing has to be asked anew. */
  keep = () => this.#writeAddress();
  runs = () => this.#runs;
  isDark = () => document.documentElement.classList.contains("dark");

  /** Choose another run, cell or launch; what is left out stays. */
  choose = (changes) => {
    Object.assign(this.#choice, changes);
    for (const tab of TABS) tab.chooseOther?.(changes);
    this.#lost = "";
    this.#settle();
    this.#show();
  };

  /** Show one collective in the timeline. */
  openTimeline = (one) => {
    timeline.seek(one.rank, one.index, one.step);
    this.#open(timeline);
  };

  async start() {
    this.#build();
    this.#followTheme();
    this.#readAddress();
    await this.#look();
    followAddress(() => this.#follow());
    document.addEventListener("visibilitychange", () => document.hidden || this.#look());
  }

  #build() {
    this.find = make("input", {type: "search", placeholder: "find a run", "aria-label": "find a run", hidden: true, oninput: () => {
      this.#find = this.find.value.toLowerCase();
      this.#drawChoices();
      if (!this.#isCut) return;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#look(), TYPING_MS);
    }});
    const select = (label, name) => {
      this[name] = make("select", {onchange: () => this.choose(name === "run" ? {run: this.run.value, cell: null} : {[name]: this[name].value})});
      return make("label", {class: "field", "data-field": name}, make("span", {}, label), this[name]);
    };
    this.tabs = TABS.map((tab) => make("button", {type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": "panel", onclick: () => this.#open(tab)}, tab.title));
    this.panel = make("main", {id: "panel", role: "tabpanel", tabindex: 0});
    this.message = make("div", {class: "message", "aria-live": "polite"});
    const strip = make("div", {class: "tabs", role: "tablist", "aria-label": "What to see", onkeydown: (event) => this.#stepTab(event)}, ...this.tabs);
    document.body.replaceChildren(drawPatterns(),
      make("header", {class: "top"}, strip, make("div", {class: "choices"}, this.find, select("Run", "run"), select("Cell", "cell"), select("Launch", "launch"))),
      this.message, this.panel);
  }

  /** TensorBoard tells its pages nothing of its dark mode, but its body carries the class. */
  #followTheme() {
    const body = window.parent.document.body;
    const apply = () => {
      const isDark = body.classList.contains("dark-mode");
      if (isDark === this.isDark()) return;
      document.documentElement.classList.toggle("dark", isDark);
      timeline.setTheme(isDark);
    };
    apply();
    new MutationObserver(apply).observe(body, {attributes: true, attributeFilter: ["class"]});
  }

  #stepTab(event) {
    const last = TABS.length - 1;
    const now = TABS.indexOf(this.#tab);
    const next = {ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now === 0 ? last : now - 1, Home: 0, End: last}[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#open(TABS[next]);
    this.tabs[next].focus();
  }

  #open(tab) {
    if (tab !== this.#tab) {
      this.#tab.leave?.();
      this.#drawn = {key: null, state: null};
      this.panel.replaceChildren();
    }
    this.#tab = tab;
    this.#show();
  }

  /** Take up what the address says; what it does not say is as it was at first. */
  #readAddress() {
    const words = readAddress();
    this.#tab = TABS.find((tab) => tab.id === words.tab) ?? overview;
    const take = (prefix, now, first) => Object.keys(first).forEach((name) => (now[name] = words[prefix + name] ?? first[name]));
    take("", this.#choice, CHOICE);
    for (const [tab, first] of FIRST) take(`${tab.id}.`, tab.wanted ?? {}, first);
    this.#lost = "";
  }

  /** Put what is shown into the address; what is as at first is left out. */
  #writeAddress() {
    const words = {tab: this.#tab.id};
    const add = (prefix, now, first) => Object.keys(first).forEach((name) => now[name] === first[name] || (words[prefix + name] = now[name]));
    add("", this.#choice, CHOICE);
    for (const [tab, first] of FIRST) add(`${tab.id}.`, tab.wanted ?? {}, first);
    writeAddress(words);
  }

  /** Show what a link says that was pasted over the address; TensorBoard's own changes are none. */
  async #follow() {
    if (isWritten()) return;
    this.#drawn = {key: null, state: null};
    const before = this.#tab;
    this.#readAddress();
    const next = this.#tab;
    this.#tab = before;
    if (this.#isCut && this.#choice.run !== null && !this.#chosenRun()) await this.#look();
    this.#settle();
    this.#open(next);
  }

  /** Look what has changed, and again in a while: soon while a run goes on. */
  async #look() {
    clearTimeout(this.timer);
    if (!document.hidden) {
      try {
        const said = await ask("runs", {find: this.#isCut ? this.#find : "", run: this.#choice.run});
        this.#runs = said.runs;
        this.#isCut ||= said.count > said.runs.length;
        this.#latest = said.latest;
        this.hint = said.hint;
        this.#listError = null;
      } catch (error) {
        this.#listError = error.message;
      }
      this.#settle();
      await this.#show();
    }
    const isBusy = this.#runs.some((run) => run.status === "running");
    this.timer = setTimeout(() => this.#look(), isBusy ? BUSY_MS : QUIET_MS);
  }

  /** Keep the choice among what there is: the latest run, its first cell. */
  #settle() {
    if (!this.#runs.length) return;
    const {run: asked, cell: askedCell} = this.#choice;
    const run = this.#runs.find((one) => one.run === asked) ?? this.#runs.find((one) => one.run === this.#latest);
    const cell = run?.cells.find((one) => one.name === askedCell) ?? run?.cells[0];
    if (asked !== null && run?.run !== asked) this.#lost = `The run ${asked} is not here (any more); this is the latest that is.`;
    else if (askedCell !== null && cell?.name !== askedCell) this.#lost = `The run has no cell ${askedCell}; this is its first.`;
    const launches = (cell?.launches ?? []).map(String);
    const launch = launches.includes(String(this.#choice.launch)) ? String(this.#choice.launch) : "all";
    this.#choice = {run: run?.run ?? null, cell: cell?.name ?? null, launch};
  }

  #chosenRun() {
    return this.#runs.find((run) => run.run === this.#choice.run);
  }

  /** What the open tab is asked for: one launch where it shows one. */
  #asked() {
    const launches = this.#chosenRun()?.cells.find((cell) => cell.name === this.#choice.cell)?.launches ?? [];
    const isAll = this.#choice.launch === "all" && this.#tab.needsLaunch === "one";
    return {...this.#choice, launch: isAll ? String(launches[0] ?? 0) : this.#choice.launch};
  }

  #drawChoices() {
    const run = this.#chosenRun();
    const found = this.#runs.filter((one) => one === run || `${one.scenario} ${one.run_id} ${one.question} ${one.status}`.toLowerCase().includes(this.#find));
    this.find.hidden = !this.#isCut && this.#runs.length <= MANY_RUNS;
    this.find.placeholder = this.#isCut ? "find an older run" : "find a run";
    setOptions(this.run, found.map((one) => [one.run, runWords(one)]), this.#choice.run);
    setOptions(this.cell, (run?.cells ?? []).map((cell) => [cell.name, cell.name]), this.#choice.cell);
    const launches = run?.cells.find((cell) => cell.name === this.#choice.cell)?.launches ?? [];
    const every = this.#tab.needsLaunch === "all" ? [["all", `all ${launches.length}`]] : [];
    setOptions(this.launch, [...every, ...launches.map((one) => [String(one), String(one)])], this.#asked().launch);
    const field = (name) => this[name].closest(".field");
    const isOfTwo = Boolean(this.#tab.isOfTwo);
    field("run").hidden = isOfTwo;
    field("cell").hidden = isOfTwo || (run?.cells.length ?? 0) < (this.#tab.fewestCells ?? 2);
    field("launch").hidden = this.#tab.needsLaunch === "none" || launches.length < 2;
    TABS.forEach((tab, place) => {
      this.tabs[place].setAttribute("aria-selected", String(tab === this.#tab));
      this.tabs[place].tabIndex = tab === this.#tab ? 0 : -1;
    });
    this.panel.setAttribute("aria-labelledby", `tab-${this.#tab.id}`);
  }

  /** Ask for what the open tab shows, and draw it if it is new; an answer that was overtaken is dropped. */
  async #show() {
    const turn = ++this.#turn;
    this.#drawChoices();
    this.message.replaceChildren(...[this.#listError, this.#lost].filter(Boolean).map(drawError));
    const run = this.#chosenRun();
    if (!run) return this.#say(drawEmpty(this.hint ?? "Looking for runs…"));
    if (run.error && !this.#tab.isOfTwo) return this.#say(drawError(run.error));
    const choice = this.#asked();
    this.#tab.begin?.(choice, this.#runs);
    this.#writeAddress();
    const request = this.#tab.request(choice, this.#runs);
    if (request === null) {
      this.#drawn = {key: null, state: null};
      return this.#tab.draw(this.panel, null, choice, this);
    }
    const key = JSON.stringify([this.#tab.id, request]);
    const known = key === this.#drawn.key ? this.#drawn.state : null;
    const waiting = setTimeout(() => turn === this.#turn && !known && this.#wait(), 300);
    try {
      const said = await ask(request[0], {...request[1], known});
      if (turn !== this.#turn) return undefined;
      if (said.document !== null) {
        this.#tab.draw(this.panel, said.document, choice, this);
        this.#drawn = {key, state: said.state};
      }
    } catch (error) {
      if (turn === this.#turn) this.#fail(error, choice, key);
    } finally {
      clearTimeout(waiting);
      if (turn === this.#turn) this.panel.classList.remove("waiting");
    }
    return undefined;
  }

  /** Show why there is nothing new; what is on the page for the same question stays. */
  #fail(error, choice, key) {
    if (error.status === 503 || (error.status === undefined && key === this.#drawn.key)) {
      this.message.replaceChildren(drawError(error.message));
      return;
    }
    if (this.#tab.fail) {
      this.#drawn = {key: null, state: null};
      this.#tab.fail(this.panel, error, choice, this);
    } else this.#say(drawError(error.message));
  }

  /** Say that an answer takes its time: the first reading of a run may read its traces. */
  #wait() {
    this.panel.classList.add("waiting");
    if (!this.panel.hasChildNodes()) this.panel.append(drawEmpty("Reading the run…"));
  }

  #say(node) {
    this.#drawn = {key: null, state: null};
    this.panel.replaceChildren(node);
  }
}

function runWords(run) {
  const state = run.error ? "cannot be read" : run.status;
  return `${run.scenario} · ${run.run_id}${state === "complete" ? "" : ` · ${state}`}`;
}

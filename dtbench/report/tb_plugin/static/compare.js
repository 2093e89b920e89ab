/* Compare: two runs or cells against each other, as `dtbench compare` says it. */
import {drawAnswer, drawBlock} from "./blocks.js";
import {drawEmpty, drawError, drawLine, make, makeSelect, parse} from "./dom.js";

const wanted = {baseline: "", candidate: "", force: ""};

export const compare = {
  id: "compare",
  title: "Compare",
  needsLaunch: "none",
  isOfTwo: true,
  wanted,
  begin,
  request: () => (wanted.baseline !== wanted.candidate ? ["compare", wanted] : null),
  /** The comparison follows the chosen run and cell. */
  chooseOther(changes) {
    if (!("launch" in changes)) Object.assign(wanted, {baseline: "", candidate: "", force: ""});
  },
  draw(panel, answer, choice, page) {
    const change = (name) => (value) => {
      Object.assign(wanted, {force: ""}, {[name]: value});
      page.refresh();
    };
    const options = sides(page.runs());
    const swap = () => {
      [wanted.baseline, wanted.candidate] = [wanted.candidate, wanted.baseline];
      page.refresh();
    };
    panel.replaceChildren(make("div", {class: "controls"},
      makeSelect("Baseline", options, wanted.baseline, change("baseline")),
      makeSelect("Candidate", options, wanted.candidate, change("candidate")),
      make("button", {type: "button", onclick: swap}, "Swap")));
    if (!answer) return panel.append(drawEmpty(options.length < 2 ? "Two sides are needed, and there is one here: `dtbench compare` takes any two runs, cells or folders of traces." : "Two sides are needed: choose two different cells or runs."));
    return panel.append(...drawCompared(answer));
  },
  /** Unlike environments are refused, unless a person insists. */
  fail(panel, error, choice, page) {
    this.draw(panel, null, choice, page);
    panel.lastElementChild.replaceWith(drawError(error.message));
    if (error.status !== 409 || wanted.force || !error.message.includes("--force")) return;
    const insist = () => {
      wanted.force = "yes";
      page.refresh();
    };
    panel.append(make("button", {type: "button", onclick: insist}, "Compare all the same"));
  },
};

/** A side is a run and a cell, as JSON, since either may hold any character. */
function sides(runs) {
  return runs.filter((run) => !run.error).flatMap((run) =>
    run.cells.map((cell) => [JSON.stringify([run.run, cell.name]), `${run.scenario} ${run.run_id} · ${cell.name}`]));
}

/** Begin where nothing is chosen that is there: the run's cell after the scenario's run before, else after its first. */
function begin(choice, runs) {
  const known = new Set(sides(runs).map(([value]) => value));
  if (known.has(wanted.baseline) && known.has(wanted.candidate)) return;
  const mine = runs.find((run) => run.run === choice.run);
  if (!mine || mine.error || !choice.cell) return;
  const before = runs.slice(runs.indexOf(mine) + 1).find((run) => run.scenario === mine.scenario && run.cells.some((cell) => cell.name === choice.cell));
  const [first, second] = mine.cells.map((cell) => cell.name);
  const cell = before || choice.cell !== first ? choice.cell : second ?? first;
  Object.assign(wanted, {
    baseline: JSON.stringify(before ? [before.run, choice.cell] : [mine.run, first]),
    candidate: JSON.stringify([mine.run, cell]),
    force: "",
  });
}

function drawCompared({page, picture, picture_words: words}) {
  const parts = page.parts.map((part) => {
    const blocks = part.blocks.map((block) => drawBlock(block));
    const drawn = part.key === "metrics" ? [make("figure", {role: "img", "aria-label": words}, parse(picture))] : [];
    return make("section", {class: "card", "data-part-of-page": part.key}, ...drawn, ...blocks);
  });
  const notes = page.notes.length ? [make("section", {class: "card notes"}, make("h3", {}, "What must be doubted"), ...page.notes.map((note) => drawLine(note)))] : [];
  return [drawAnswer(page, make("h2", {}, page.title)), ...parts, ...notes];
}

/* Overview: a run's cells, of each the answer first. */
import {drawChart} from "./chart.js";
import {SIGNS, drawFacts, drawTable, make} from "./dom.js";

export const overview = {
  id: "overview",
  title: "Overview",
  needsLaunch: "none",
  fewestCells: 5, // fewer are all told in full
  request: (choice) => ["overview", {run: choice.run, cell: choice.cell}],
  draw(panel, answer, choice, page) {
    panel.replaceChildren(drawHead(answer), drawProgress(panel, answer, choice, page), ...drawCells(answer, choice, page));
  },
};

function drawHead(answer) {
  return make("header", {class: "run-head"},
    make("h2", {}, answer.title, make("span", {class: "run-id"}, answer.run_id), drawStatus(answer.status)),
    answer.question ? make("p", {class: "question"}, answer.question) : null,
    make("p", {class: "place"}, answer.place),
    answer.problem ? make("p", {class: problemClass(answer.status)}, answer.problem) : null,
    answer.facts.length ? drawFacts(answer.facts) : null);
}

/** What has not ended yet is no failure. */
function problemClass(status) {
  return status === "running" ? "problem unfinished" : "problem";
}

/** A status in a word with its sign. */
function drawStatus(status) {
  const signs = {complete: "✓", failed: "✕", running: "…"};
  return make("span", {class: `status status-${status}`}, make("span", {class: "sign", "aria-hidden": "true"}, signs[status] ?? "?"), status);
}

/** Where a run in progress is; asked for again and again, as long as it is shown. */
function drawProgress(panel, answer, choice, page) {
  const box = make("section", {class: "progress", "aria-live": "polite"});
  if (answer.status !== "running") return box;
  const look = async () => {
    const said = await page.ask("progress", {run: choice.run}).catch(() => null);
    if (!box.isConnected) return;
    if (said) fillProgress(box, said);
    if (!said?.is_over) setTimeout(look, document.hidden ? 10000 : 2000);
  };
  setTimeout(look, 0);
  return box;
}

function fillProgress(box, said) {
  if (said.is_over) return box.replaceChildren();
  const share = said.launches ? (100 * said.launches_ended) / said.launches : 0;
  const ranks = said.ranks.map((rank) => ({label: `rank ${rank.rank}`, words: rank.words, tone: "plain"}));
  return box.replaceChildren(make("p", {}, said.sentence),
    make("progress", {max: 100, value: share.toFixed(0), "aria-label": "launches ended"}), drawFacts(ranks));
}

function drawCells(answer, choice, page) {
  const parts = [];
  if (answer.sweep) {
    const onRow = answer.cells_left ? (cell) => page.choose({cell}) : null;
    parts.push(make("section", {class: "card"}, make("p", {class: "answer"}, answer.finding),
      drawTable(answer.sweep, {onRow, chosen: answer.cells_left ? answer.cells[0]?.name : null})));
  }
  return [...parts, ...answer.cells.map(drawCell)];
}

function drawCell(cell) {
  const check = make("span", {class: `check tone-${cell.check.tone}`},
    make("span", {class: "sign", "aria-hidden": "true"}, SIGNS[cell.check.tone]), `check: ${cell.check.words}`);
  const tiles = cell.tiles.map((tile) => make("div", {class: "tile"},
    make("div", {class: "tile-label"}, tile.label), make("div", {class: "tile-words"}, tile.words), make("div", {class: "tile-detail"}, tile.detail)));
  return make("article", {class: "card cell", "data-cell": cell.name},
    make("h3", {}, cell.name, make("span", {class: "subtitle"}, cell.title), check),
    cell.problem ? make("p", {class: problemClass(cell.status)}, cell.problem) : null,
    make("p", {class: "answer"}, cell.answer),
    ...cell.advice.map((sentence) => make("p", {class: "advice"}, sentence)),
    cell.estimates ? make("section", {class: "estimates"}, drawFacts(cell.estimates.lead)) : null,
    make("div", {class: "tiles"}, ...tiles),
    cell.chart ? drawChart(cell.chart) : null,
    make("div", {class: "columns"}, cell.owners ? drawTable(cell.owners, {isShort: true}) : null, cell.purposes ? drawTable(cell.purposes) : null),
    cell.estimates ? make("section", {}, drawTable(cell.estimates.table), drawFacts(cell.estimates.disputes)) : null,
    cell.stages ? make("section", {class: "stages"}, drawTable(cell.stages), drawFacts(cell.stage_facts)) : null,
    cell.overlap_facts.length ? make("section", {}, make("h4", {}, "Overlap possible here?"), drawFacts(cell.overlap_facts)) : null,
    make("div", {class: "columns"},
      make("section", {}, make("h4", {}, "The step"), drawFacts(cell.step_facts)),
      make("section", {}, make("h4", {}, "Checks and notes"), drawFacts(cell.checks))));
}

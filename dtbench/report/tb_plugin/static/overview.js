/* Overview: a run's cells, of each the answer first. */
import {drawAnswer, drawBlock} from "./blocks.js";
import {drawFacts, drawLine, make} from "./dom.js";

export const overview = {
  id: "overview",
  title: "Overview",
  needsLaunch: "none",
  fewestCells: 5, // fewer are all told in full
  request: (choice) => ["overview", {run: choice.run, cell: choice.cell}],
  draw(panel, answer, choice, page) {
    panel.replaceChildren(drawHead(answer), drawProgress(panel, answer, choice, page), drawAnswer(answer.page), ...answer.page.parts.map((part) => drawPart(part, answer, page)));
  },
};

function drawHead({page, status}) {
  return make("header", {class: "run-head"},
    make("h2", {}, page.title, page.aside ? make("span", {class: "run-id"}, page.aside) : null, status ? drawStatus(status) : null),
    page.question ? make("p", {class: "question"}, page.question) : null,
    page.place ? make("p", {class: "place"}, page.place) : null,
    page.problem ? make("p", {class: problemClass(status)}, page.problem.words) : null,
    page.facts.length ? drawFacts(page.facts) : null);
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

/** A part is a card; a click on the row of a cell chooses it, where not all are told in full. */
function drawPart(part, answer, page) {
  const options = answer.chosen ? {onRow: (cell) => page.choose({cell}), chosen: answer.chosen} : {};
  const blocks = part.blocks.map((block) => drawBlock(block, part.key === "cells" ? options : {}));
  if (!part.key.startsWith("cell:")) {
    return make("section", {class: "card", "data-part-of-page": part.key}, part.title ? make("h3", {}, part.title) : null, ...blocks);
  }
  const check = part.check ? drawLine({tone: part.check.tone, words: `${part.check.label}: ${part.check.words}`}, "span", "check") : null;
  return make("article", {class: "card cell", "data-cell": part.title},
    make("h3", {}, part.title, make("span", {class: "subtitle"}, part.aside), check), ...blocks);
}

/* A page's blocks, one drawing for each kind. */
import {drawChart} from "./chart.js";
import {drawFacts, drawLine, drawTable, make} from "./dom.js";

const DRAWN = {
  prose: (block) => make("div", {}, ...block.lines.map((line) => drawLine(line, "p", line.tone === "strong" ? "answer" : "sentence"))),
  facts: (block) => make("section", {}, block.title ? make("h4", {}, block.title) : null, drawFacts(block.facts)),
  table: (block, options) => drawTable(block, {isShort: block.first !== null, ...options}),
  tiles: (block) => make("div", {class: "tiles"}, ...block.tiles.map(drawTile)),
  chart: (block) => drawChart(block),
};

function drawTile(tile) {
  return make("div", {class: "tile"}, make("div", {class: "tile-label"}, tile.label),
    make("div", {class: "tile-words"}, tile.words), make("div", {class: "tile-detail"}, tile.detail));
}

/** Draw what a person reads first, in a card: the answer, a line for each of its sentences. */
export function drawAnswer(page, head = null) {
  const lines = page.answer.map((line) => drawLine(line, "p", line.tone === "strong" || line.tone === "bad" ? "answer" : "sentence"));
  return make("section", {class: "card head", "data-part-of-page": "answer"}, head, ...lines);
}

/** Draw a block; `data-block` is its name. */
export function drawBlock(block, options = {}) {
  const drawn = DRAWN[block.kind](block, options);
  if (block.key) drawn.dataset.block = block.key;
  return drawn;
}

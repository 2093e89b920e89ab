/* Stacked bars: SVG in percent of their column, so that they follow the width of the page by themselves. */
import {draw, make} from "./dom.js";

const BAR_HEIGHT = 22;
const THIN_HEIGHT = 6;
const LETTER_WIDTH = 6.6;
const MS = 1e6;

/** The patterns that hatched parts lie under; once per page. */
export function drawPatterns() {
  const pattern = (id, ...shapes) =>
    draw("pattern", {id: `hatch-${id}`, width: 7, height: 7, patternUnits: "userSpaceOnUse"}, ...shapes);
  const line = (d, kind) => draw("path", {d, class: `hatch-${kind}`});
  const slash = "M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2";
  const back = "M-1,6 l2,2 M0,0 l7,7 M6,-1 l2,2";
  const defs = draw("defs", {},
    pattern("slash", line(slash, "dark")),
    pattern("back", line(back, "dark")),
    pattern("cross", line(slash, "light"), line(back, "light")),
    pattern("rows", line("M0,3.5 h7", "dark")),
    pattern("columns", line("M3.5,0 v7", "dark")),
    pattern("dots", draw("circle", {cx: 3, cy: 3, r: 1, class: "hatch-dot"})));
  return draw("svg", {width: 0, height: 0, "aria-hidden": "true", class: "patterns"}, defs);
}

/** Draw a chart: its legend, a row for each bar, and a scale. */
export function drawChart(chart) {
  const longest = Math.max(1, ...chart.bars.map((bar) => bar.lengths_ns.reduce((sum, one) => sum + one, 0)), ...chart.bars.map((bar) => bar.below_ns ?? 0));
  const used = chart.parts.filter((_, place) => chart.bars.some((bar) => bar.lengths_ns[place] > 0));
  const legend = make("div", {class: "legend"}, ...[...used, ...(chart.below ? [chart.below] : [])].map(drawKey));
  const rows = make("div", {class: "bars"});
  const labels = [];
  for (const bar of chart.bars) {
    rows.append(make("div", {class: "bar-label"}, bar.label), drawBar(chart, bar, longest, labels), make("div", {class: "bar-end"}, bar.end));
  }
  rows.append(make("div"), drawScale(longest), make("div"));
  if (labels.length) hideWhatDoesNotFit(rows.querySelector(".bar"), labels);
  return make("section", {class: "chart"}, make("h4", {}, chart.title), legend, make("div", {class: "scroller"}, rows),
    chart.note ? make("p", {class: "note"}, chart.note) : null);
}

/** Show the words of a part where it is wide enough for them; all bars have the width of the first. */
function hideWhatDoesNotFit(bar, labels) {
  new ResizeObserver(() => {
    for (const {share, letters, drawn} of labels) {
      for (const one of drawn) one.toggleAttribute("hidden", share * bar.clientWidth < letters * LETTER_WIDTH);
    }
  }).observe(bar);
}

function drawKey(part) {
  const swatch = draw("svg", {width: 16, height: 12, "aria-hidden": "true"}, ...drawPart(part, {x: 0, y: 0, width: 16, height: 12}));
  return make("span", {class: "key"}, swatch, part.name);
}

function drawPart(part, box) {
  const shapes = [draw("rect", {...box, ...(part.colour ? {fill: part.colour} : {}), class: `part part-${part.key}`})];
  if (part.pattern) shapes.push(draw("rect", {...box, fill: `url(#hatch-${part.pattern})`, class: "hatch"}));
  return shapes;
}

function drawBar(chart, bar, longest, labels) {
  const said = chart.parts.map((part, place) => `${part.name} ${bar.words[place]}`).filter((_, place) => bar.lengths_ns[place] !== 0);
  if (bar.below_ns) said.push(`${chart.below.name} ${bar.below_words}`);
  const height = BAR_HEIGHT + (chart.below ? THIN_HEIGHT + 1 : 0);
  const svg = draw("svg", {class: "bar", height, role: "img", "aria-label": `${bar.label}: ${said.join(", ")}`});
  let left = 0;
  chart.parts.forEach((part, place) => {
    const length = bar.lengths_ns[place];
    if (!length) return;
    const share = length / longest;
    const box = {x: percent(left), y: 0, width: percent(share), height: BAR_HEIGHT};
    const group = draw("g", {"data-part": part.key}, ...drawPart(part, box), draw("title", {}, `${part.name} ${bar.words[place]}`));
    const drawn = drawWords(part, left + share / 2, bar.words[place]);
    labels.push({share, letters: bar.words[place].length, drawn});
    group.append(...drawn);
    svg.append(group);
    left += share;
  });
  if (bar.below_ns) {
    const box = {x: 0, y: BAR_HEIGHT + 1, width: percent(bar.below_ns / longest), height: THIN_HEIGHT};
    svg.append(draw("g", {"data-part": chart.below.key}, ...drawPart(chart.below, box), draw("title", {}, `${chart.below.name} ${bar.below_words}`)));
  }
  return svg;
}

/** Words in a part, on a plain patch so that a hatch does not run through the digits. */
function drawWords(part, middle, words) {
  const text = {x: percent(middle), y: BAR_HEIGHT / 2 + 4, "text-anchor": "middle"};
  const patch = part.colour ? {fill: part.colour, stroke: part.colour} : {};
  const behind = part.pattern ? [draw("text", {...text, ...patch, class: `words-behind behind-${part.key}`, "aria-hidden": "true"}, words)] : [];
  return [...behind, draw("text", {...text, class: part.is_dark ? "words words-light" : "words"}, words)];
}

function drawScale(longest_ns) {
  const svg = draw("svg", {class: "scale", height: 18, "aria-hidden": "true"});
  const step_ms = niceStep(longest_ns / MS / 5);
  for (let at = 0; at * step_ms * MS <= longest_ns * 0.97; at++) {
    const x = percent((at * step_ms * MS) / longest_ns);
    svg.append(draw("line", {x1: x, x2: x, y1: 0, y2: 4}),
      draw("text", {x, y: 15, "text-anchor": at ? "middle" : "start"}, `${Number((at * step_ms).toPrecision(3))}${at ? "" : " ms"}`));
  }
  return svg;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least * 0.999);
}

function percent(share) {
  return `${(100 * share).toFixed(3)}%`;
}

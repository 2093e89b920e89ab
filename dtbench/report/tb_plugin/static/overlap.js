/* Overlap: where profiled steps went, by what a person chooses. */
import {drawChart} from "./chart.js";
import {drawEmpty, drawTable, make, makeSelect} from "./dom.js";

/** What a bar stands for, and of which rank and step; empty: all. */
const wanted = {by: "rank", rank: "", step: ""};

export const overlap = {
  id: "overlap",
  title: "Overlap",
  needsLaunch: "all",
  wanted,
  request: (choice) => ["overlap", {...choice, ...wanted}],
  draw(panel, answer, choice, page) {
    const change = (name) => (value) => {
      wanted[name] = value;
      page.refresh();
    };
    const numbers = (word, values) => [["", `all ${word}s`], ...values.map((value) => [String(value), `${word} ${value}`])];
    for (const [name, values] of [["rank", answer.ranks], ["step", answer.steps]]) {
      if (wanted[name] && !values.map(String).includes(wanted[name])) change(name)("");
    }
    panel.replaceChildren(
      make("div", {class: "controls"},
        makeSelect("A bar per", [["rank", "rank"], ["step", "step"], ["purpose", "purpose"], ["owner", "owner"]], wanted.by, change("by")),
        makeSelect("Of", numbers("rank", answer.ranks), wanted.rank, change("rank")),
        makeSelect("In", numbers("step", answer.steps), wanted.step, change("step")),
        make("p", {class: "sentence"}, answer.sentence)),
      answer.chart
        ? make("div", {class: "card"}, drawChart(answer.chart), drawTable(answer.chart.table))
        : drawEmpty(answer.sentence));
  },
};

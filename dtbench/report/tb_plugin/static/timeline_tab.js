/* Timeline: the canvas of dtbench's timeline, with the choice of a step. */
import {drawEmpty, drawError, make, makeSelect} from "./dom.js";

/** The step, and what is selected in the drawing; null: nothing. */
const wanted = {step: "", selected: null};
let shown = null;

export const timeline = {
  id: "timeline",
  title: "Timeline",
  needsLaunch: "one",
  wanted,
  request: (choice) => ["timeline", {...choice, step: wanted.step}],
  /** Another launch has other spans. */
  chooseOther() {
    wanted.selected = null;
  },
  /** Show one collective as soon as the launch is drawn. */
  seek(rank, index, step) {
    wanted.selected = `collective:${rank}:${index}`;
    wanted.step = step === null ? "" : String(step);
  },
  async draw(panel, answer, choice, page) {
    const {createTimeline} = await import("./timeline.js");
    shown?.destroy();
    const steps = [["", "as many as fit"], ...answer.steps.map((step) => [String(step), `step ${step}`])];
    const chosen = make("p", {class: "sentence", "aria-live": "polite"});
    const box = make("div", {class: "timeline-box"});
    panel.replaceChildren(
      make("div", {class: "controls"}, makeSelect("Show", steps, wanted.step, (value) => {
        wanted.step = value;
        page.refresh();
      }), chosen),
      box);
    if (!answer.ranks.length) return box.replaceWith(drawEmpty("There is nothing to draw here: no rank left a trace that can be read."));
    shown = createTimeline(box, {document: answer, theme: page.isDark() ? "dark" : "light", onSelect: (item) => {
      chosen.textContent = item ? describe(item) : "";
      wanted.selected = item ? item.id : null;
      page.keep();
    }});
    return shown.ready.then(() => {
      if (wanted.selected !== null) shown.select(wanted.selected, {zoom: true});
    }, (error) => panel.append(drawError(String(error.message ?? error))));
  },
  setTheme(isDark) {
    shown?.setTheme(isDark ? "dark" : "light");
  },
  leave() {
    shown?.destroy();
    shown = null;
  },
};

function describe(item) {
  const owner = item.collective ? `${item.collective.owner || "unattributed"}: ` : "";
  return `rank ${item.rank}, ${owner}${item.name}`;
}

/* Timeline: the canvas of dtbench's timeline, with the choice of a step. */
import {drawEmpty, drawError, make, makeSelect} from "./dom.js";

/** What the drawing shows, as its `state` has it: window, selected span, folded ranks, what is looked for; null: as it opens. */
const VIEW = {selected: null, from: null, to: null, folded: null, host: null, ranks: null, find: null, scroll: null};
const wanted = {step: "", ...VIEW};
let shown = null;

export const timeline = {
  id: "timeline",
  title: "Timeline",
  needsLaunch: "one",
  wanted,
  request: (choice) => ["timeline", {...choice, step: wanted.step}],
  /** Another launch has other spans. */
  chooseOther() {
    Object.assign(wanted, VIEW);
  },
  /** Show one collective as soon as the launch is drawn. */
  seek(rank, index, step) {
    Object.assign(wanted, VIEW, {selected: `collective:${rank}:${index}`, step: step === null ? "" : String(step)});
  },
  async draw(panel, answer, choice, page) {
    const {createTimeline} = await import("./timeline.js");
    shown?.destroy();
    const steps = [["", "as many as fit"], ...answer.steps.map((step) => [String(step), `step ${step}`])];
    const chosen = make("p", {class: "sentence", "aria-live": "polite"});
    const box = make("div", {class: "timeline-box"});
    panel.replaceChildren(
      make("div", {class: "controls"}, makeSelect("Show", steps, wanted.step, (value) => {
        Object.assign(wanted, VIEW, {step: value});
        page.refresh();
      }), chosen),
      box);
    if (!answer.ranks.length) return box.replaceWith(drawEmpty("There is nothing to draw here: no rank left a trace that can be read."));
    shown = createTimeline(box, {
      document: answer,
      theme: page.isDark() ? "dark" : "light",
      state: Object.fromEntries(Object.keys(VIEW).filter((name) => wanted[name] !== null).map((name) => [name, wanted[name]])),
      onSelect: (item) => {
        chosen.textContent = item ? describe(item) : "";
      },
      onState: (state) => {
        Object.assign(wanted, VIEW, state);
        page.keep();
      },
    });
    return shown.ready.catch((error) => panel.append(drawError(String(error.message ?? error))));
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

/* Columns of tables: those that a person looks for first are not cut, and a person may give each its width. */

const FINDINGS = /^(exposed|.*cause|mostly)/;
const NARROWEST = 40;
const STEP = 16;
const given = new Map();

/**
 * Let what was exposed, and why, come right after the first column where it would be cut.
 * Gives a function that puts rows in order which were added since.
 */
export function keepInSight(scroller) {
  const table = scroller.querySelector("table");
  const natural = [...table.tHead.rows[0].cells].map((_, place) => place);
  const first = table.tHead.rows[0].cells;
  const wanted = natural.filter((place) => place > 0 && FINDINGS.test(first[place].textContent));
  const moved = [0, ...wanted, ...natural.filter((place) => place > 0 && !wanted.includes(place))];
  let order = natural;
  const arrange = () => {
    for (const row of table.rows) row.append(...order.map((place) => (row.natural ??= [...row.cells])[place]));
  };
  if (!wanted.length) return arrange;
  let width = 0;
  new ResizeObserver(() => {
    if (scroller.clientWidth === width) return;
    width = scroller.clientWidth;
    order = natural;
    arrange();
    const edge = scroller.getBoundingClientRect().right + 1;
    const heads = table.tHead.rows[0].natural;
    if (wanted.some((place) => heads[place].getBoundingClientRect().right > edge)) order = moved;
    arrange();
  }).observe(scroller);
  return arrange;
}

/** Let a person drag the grip of each column's head, or move it by keys; a double click gives all their own widths back. */
export function makeResizable(table, name) {
  const heads = [...table.tHead.rows[0].cells];
  const apply = (widths) => {
    table.classList.toggle("fixed", widths !== undefined);
    table.style.width = widths ? `${widths.reduce((sum, one) => sum + one, 0)}px` : "";
    heads.forEach((head, place) => (head.style.width = widths ? `${widths[place]}px` : ""));
    if (widths) given.set(name, widths);
    else given.delete(name);
  };
  const change = (place, width) => {
    const widths = given.get(name) ?? heads.map((head) => head.getBoundingClientRect().width);
    apply(widths.map((one, at) => (at === place ? Math.max(NARROWEST, width) : one)));
  };
  const width = (place) => heads[place].getBoundingClientRect().width;
  heads.forEach((head, place) => {
    const grip = head.querySelector(".grip");
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      grip.setPointerCapture(event.pointerId);
      const from = event.clientX - width(place);
      const move = (moved) => change(place, moved.clientX - from);
      grip.addEventListener("pointermove", move);
      grip.addEventListener("lostpointercapture", () => grip.removeEventListener("pointermove", move), {once: true});
    });
    grip.addEventListener("dblclick", () => apply());
    grip.addEventListener("keydown", (event) => {
      const by = {ArrowLeft: -STEP, ArrowRight: STEP}[event.key];
      if (!by) return;
      event.preventDefault();
      change(place, width(place) + by);
    });
  });
  if (given.get(name)?.length === heads.length) apply(given.get(name));
}

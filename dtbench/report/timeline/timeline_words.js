// Words of the timeline: times, sizes and names as a person reads them. Numbers as in dtbench/base/units.py, to the letter.

const KIND_WORDS = ["compute", "communication", "copy", "host"];

function threeDigits(value) {
  if (value === 0) return "0";
  const rounded = roundToThree(value);
  const digits = Math.floor(Math.log10(Math.abs(rounded))) + 1;
  return rounded.toFixed(Math.max(0, Math.min(9, 3 - digits)));
}

// Python rounds what lies exactly between two to the even one, JavaScript up.
function roundToThree(value) {
  const [digits, exponent] = Math.abs(value).toExponential(60).split("e");
  const isTie = /^50*$/.test(digits.slice(4));
  if (!isTie || Number(digits[3]) % 2) return Number(value.toPrecision(3));
  return Math.sign(value) * Number(`${digits.slice(0, 4)}e${exponent}`);
}

export function formatNs(ns) {
  if (ns === null || ns === undefined) return "n/a";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(ns) >= size * 0.9995) return `${threeDigits(ns / size)} ${unit}`;
  }
  return `${threeDigits(ns)} ns`;
}

export function formatBytes(bytes) {
  let size = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < 1023.5) return unit === "B" ? `${Math.round(size)} B` : `${threeDigits(size)} ${unit}`;
    size /= 1024;
  }
  return `${threeDigits(size)} TiB`;
}

function formatBandwidth(bytesPerSecond) {
  return `${threeDigits(bytesPerSecond / 1e9)} GB/s`;
}

// "void at::native::(anonymous namespace)::foo<4, bar>(int)" -> "foo"; "aten::mm" stays.
export function shorten(name) {
  const plain = name.replaceAll("(anonymous namespace)::", "");
  const cut = plain.search(/[<(]/);
  if (cut <= 0) return plain;
  const head = plain.slice(0, cut).trimEnd();
  return head.split(/::| /).at(-1) || plain;
}

// Of each of some names the place of the first letter that tells it from all others.
export function findDifferences(names) {
  const order = [...new Set(names)].sort();
  const shared = order.map((name, i) => (i ? countShared(order[i - 1], name) : 0));
  return new Map(order.map((name, i) => [name, Math.max(shared[i], shared[i + 1] ?? 0)]));
}

function countShared(one, other) {
  let count = 0;
  while (count < one.length && one[count] === other[count]) count++;
  return count;
}

// At most so many letters of a name, with the one that tells it from others, and with its end where that fits.
export function shortenTo(name, most, difference = 0) {
  if (name.length <= most) return name;
  if (most < 3) return "";
  if (difference < most - 1) return `${name.slice(0, most - 1)}…`;
  const head = most < 6 ? 0 : Math.ceil(most / 4);
  const room = most - head - 1;
  if (name.length - difference <= room) return `${name.slice(0, head)}…${name.slice(name.length - room)}`;
  const from = Math.max(head, difference - Math.floor((room - 1) / 3));
  return `${name.slice(0, head)}…${name.slice(from, from + room - 1)}…`;
}

// A lane's name, with words for the keys of operations and purposes in it.
export function spellKeys(name, words = {}) {
  const known = { ...words.operation, ...words.purpose };
  return name.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (key) => known[key] ?? key);
}

export function nameCollective({ owner, said, purpose }) {
  const verb = purpose && purpose !== "other" ? said.purpose : said.operation || "communication";
  return owner ? `${verb} · ${owner}` : verb === said.operation || !said.operation ? verb : `${verb} · ${said.operation}`;
}

export function formatTick(tick, step) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]) {
    if (step >= size || (Math.abs(tick) >= size && step >= size / 1e3)) {
      return `${(tick / size).toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9))))} ${unit}`;
    }
  }
  return `${tick.toFixed(0)} ns`;
}

// What is known about a span, for people: [[term, words], ...]; what is not known has no row.
export function describe(item) {
  const rows = [["rank", String(item.rank)], ["kind", KIND_WORDS[item.kindCode]], ["lane", item.lane]];
  rows.push(["duration", formatNs(item.duration_ns)], ["start", formatNs(item.start_ns)]);
  const { is_aligned, clock_offset_ns } = item.rankPart.columns;
  if (!is_aligned) rows.push(["clock", "its own: the others' cannot be compared with it"]);
  else if (clock_offset_ns) {
    rows.push(["clock", `${formatNs(Math.abs(clock_offset_ns))} ${clock_offset_ns > 0 ? "ahead" : "behind"}, corrected`]);
  }
  if (item.call) {
    const ahead = item.start_ns - item.call.start_ns; // negative where host and device do not agree to the microsecond
    rows.push(["launched", `${formatNs(Math.abs(ahead))} ${ahead < 0 ? "after" : "before"} its start, by ${item.call.name}`]);
  }
  const one = item.collective;
  if (!one) return rows;
  const known = (term, value, words) => {
    if (value !== null && value !== "" && value !== undefined) rows.push([term, words ?? String(value)]);
  };
  rows.push(["owner", one.owner || "unattributed"], ["purpose", one.said.purpose]);
  known("operation", one.said.operation);
  known("region", one.said.region);
  known("size", one.size_bytes, one.size_bytes === null ? "" : formatBytes(one.size_bytes) + (one.dtype && ` ${one.dtype}`));
  known("bus bandwidth", one.busbw, one.busbw === null ? "" : formatBandwidth(one.busbw));
  const isShared = one.exposed_ns !== null && one.exposed_ns + one.hidden_ns < item.duration_ns; // with collectives that ran at the same time
  rows.push(["exposed", formatNs(one.exposed_ns) + (isShared ? " (its share)" : "")]);
  rows.push(["hidden", formatNs(one.hidden_ns) + (isShared ? " (its share)" : "")]);
  known("cause", one.said.cause);
  const causes = Object.entries(one.said.causes);
  if (causes.length > 1) for (const [cause, ns] of causes) rows.push([`  ${cause}`, formatNs(ns)]);
  known("group", [one.axis, one.group && `group ${one.group}`, one.group_size && `${one.group_size} ranks`].filter(Boolean).join(", "));
  known("number in its group", one.seq);
  known("issued", one.issue_ns, one.issue_ns === null ? "" : `${formatNs(item.start_ns - one.issue_ns)} before its start`);
  const waited = one.last_rank === null ? "other ranks" : `rank ${one.last_rank}`; // which one is not always told
  known("waited for", one.skew_wait_ns || one.last_rank, `${waited}, ${formatNs(one.skew_wait_ns ?? 0)}`);
  known("async", one.is_async, one.is_async ? "yes" : "no, issued blocking");
  return rows;
}

// As in "0-7, 12".
export function parseRanks(text, known) {
  const wanted = new Set();
  for (const part of text.split(",")) {
    const [, first, last] = part.trim().match(/^(\d+)(?:\s*-\s*(\d+))?$/) ?? [];
    if (first === undefined) continue;
    for (const rank of known) if (rank >= Number(first) && rank <= Number(last ?? first)) wanted.add(rank);
  }
  return wanted;
}

// The other way: [0, 1, 2, 12] -> "0-2,12".
export function nameRanks(ranks) {
  const runs = [];
  for (const rank of [...ranks].sort((one, other) => one - other)) {
    const last = runs.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

// Rows of a rank's host: its threads' ranges by level, their innermost operators, their calls, and what these launched.

import { NOTHING, makeChannel, makeLevels, unite } from "./timeline_times.js";

export const HOST = 3; // the kind of all these spans
const MOST_LEVELS = 4; // of ranges; what lies deeper lies over the last
const HEIGHTS = { ranges: 16, operators: 19, calls: 12 };

// Lanes of all threads, and of the calls, by number, where each lies: {at, span}. `at` counts on from the device's lanes.
export function prepareThreads(threads, before) {
  const lanes = threads.flatMap(prepareThread);
  const calls = [];
  lanes.forEach((lane, at) => {
    if (lane.role === "calls") for (let span = 0; span < lane.start.length; span++) calls.push({ at: before + at, span });
  });
  const firstCall = lanes.reduce((least, lane) => (lane.role === "calls" && lane.start.length ? Math.min(least, lane.start[0]) : least), Infinity);
  return { lanes, calls, firstCall };
}

// One lane for each level of ranges, one for operators, one for calls; those of which nothing is drawn are left out.
function prepareThread(thread) {
  const { ranges, operators, calls, name } = thread;
  const deepest = Math.min(MOST_LEVELS - 1, ranges.level.reduce((most, level) => Math.max(most, level), NOTHING));
  const lanes = [];
  for (let level = 0; level <= deepest; level++) {
    const places = ranges.level.flatMap((one, place) => (Math.min(one, MOST_LEVELS - 1) === level ? [place] : []));
    const pick = (column) => places.map((place) => column[place]);
    lanes.push(prepareHostLane("ranges", { text: pick(ranges.text), start: pick(ranges.start), duration: pick(ranges.duration) }));
  }
  if (operators.start.length) lanes.push(prepareHostLane("operators", operators));
  if (calls.start.length) lanes.push(prepareHostLane("calls", calls));
  lanes.forEach((lane, place) => Object.assign(lane, { isFirst: place === 0, thread: name, name: `${name} · ${lane.role}` }));
  return lanes;
}

function prepareHostLane(role, columns) {
  const start = Float64Array.from(columns.start);
  const duration = Float64Array.from(columns.duration);
  const ends = start.map((one, i) => one + duration[i]);
  const reach = ends.slice();
  for (let i = 1; i < reach.length; i++) reach[i] = Math.max(reach[i - 1], reach[i]);
  const none = makeChannel([], []);
  return {
    role, start, duration, reach, channels: [none, none, none], exposed: none, busy: unite(start, ends), levels: makeLevels(duration),
    kind: new Uint8Array(start.length).fill(HOST), text: Int32Array.from(columns.text),
    collective: new Int32Array(start.length).fill(NOTHING), call: [], found: null,
  };
}

export function heightOfHost(lane) {
  return HEIGHTS[lane.role];
}

// The thread once, then what its other rows hold.
export function labelHost({ role, isFirst, thread, name }) {
  if (!role) return name;
  return isFirst ? thread : role === "ranges" ? "" : role;
}

// What a call launched: [{at, span}, ...]; of any other span nothing.
export function launchedBy(rank, at, span) {
  if (rank.lanes[at].role !== "calls") return [];
  rank.launched ??= findLaunched(rank);
  return rank.launched.get(`${at}:${span}`) ?? [];
}

function findLaunched(rank) {
  const launched = new Map();
  rank.lanes.forEach((lane, at) => {
    for (let span = 0; span < lane.call.length; span++) {
      const call = rank.calls[lane.call[span]];
      if (!call) continue;
      const key = `${call.at}:${call.span}`;
      if (!launched.has(key)) launched.set(key, []);
      launched.get(key).push({ at, span });
    }
  });
  return launched;
}

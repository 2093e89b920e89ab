// The document, made ready to be drawn and asked: lanes as typed columns with their unions, collectives with their lanes.

import { prepareThreads } from "./timeline_host.js";
import { NOTHING, intersect, makeLevels, unite, uniteAll } from "./timeline_times.js";

export const COMPUTE = 0;
export const COMM = 1;
export const COPY = 2;

export function prepare(document) {
  if (document.format_version !== 1) {
    throw new Error(`this timeline is of format ${document.format_version}; format 1 can be drawn`);
  }
  const ranks = document.ranks.map((columns) => prepareRank(columns));
  const matches = new Map();
  const exposed = [];
  for (const rank of ranks) {
    rank.columns.collectives.match.forEach((match, place) => {
      if (match !== NOTHING && !matches.has(match)) matches.set(match, []);
      if (match !== NOTHING) matches.get(match).push({ rank, place });
      const at = rank.laneOf[place];
      if (at !== NOTHING && rank.columns.collectives.exposed_ns[place] > 0) exposed.push({ rank, at, span: rank.spanOf[place] });
    });
  }
  exposed.sort((one, other) => startOf(one) - startOf(other));
  const largest = [...exposed].sort((one, other) => exposedOf(other) - exposedOf(one));
  const [start, end] = document.extent_ns;
  const say = (column, key) => document.words?.[column]?.[key] ?? key;
  const first = ranks.reduce((least, rank) => Math.min(least, rank.firstCall), start); // of what is drawn, its host was earlier
  return { document, ranks, matches, exposed, largest, say, first, start, end: Math.max(end, start + 1) };
}

export function startOf({ rank, at, span }) {
  return rank.lanes[at].start[span];
}

function exposedOf({ rank, at, span }) {
  return rank.columns.collectives.exposed_ns[rank.lanes[at].collective[span]];
}

function prepareRank(columns) {
  const exposed = unite(columns.exposed.start, add(columns.exposed.start, columns.exposed.duration));
  const lanes = columns.lanes.map((lane) => prepareLane(lane, exposed));
  const laneOf = new Int32Array(columns.collectives.index.length).fill(NOTHING);
  const spanOf = new Int32Array(columns.collectives.index.length).fill(NOTHING);
  lanes.forEach((lane, at) => {
    lane.collective.forEach((place, span) => {
      if (place !== NOTHING && laneOf[place] === NOTHING) {
        laneOf[place] = at;
        spanOf[place] = span;
      }
    });
  });
  const host = prepareThreads(columns.host ?? [], lanes.length);
  return {
    columns, rank: columns.rank, exposed, lanes: [...lanes, ...host.lanes], stages: prepareStages(columns.stage_work), laneOf, spanOf,
    calls: host.calls, firstCall: host.firstCall, hasHost: host.lanes.length > 0 || columns.host_lacks?.length > 0, folded: null, found: null,
  };
}

// Of each stage of a pipeline the places of what it computed; null: nobody names the stage.
function prepareStages(work) {
  const places = new Map();
  work?.stage.forEach((stage, place) => {
    if (!places.has(stage)) places.set(stage, []);
    places.get(stage).push(place);
  });
  const named = (stage) => (stage === null ? "micro-batches" : `stage ${stage}`);
  return [...places].sort(([one], [other]) => (one ?? Infinity) - (other ?? Infinity)).map(([stage, mine]) => ({ name: named(stage), places: mine }));
}

function add(starts, durations) {
  return starts.map((start, i) => start + durations[i]);
}

function prepareLane(columns, rankExposed) {
  const start = Float64Array.from(columns.start);
  const duration = Float64Array.from(columns.duration);
  const reach = new Float64Array(start.length); // latest end so far: rising, though spans may overlap
  for (let i = 0; i < start.length; i++) reach[i] = Math.max(i ? reach[i - 1] : -Infinity, start[i] + duration[i]);
  const channels = [COMPUTE, COMM, COPY].map((kind) => {
    const starts = [];
    const ends = [];
    for (let i = 0; i < start.length; i++) {
      if (columns.kind[i] === kind) {
        starts.push(start[i]);
        ends.push(start[i] + duration[i]);
      }
    }
    return unite(starts, ends);
  });
  return {
    name: columns.name, start, duration, reach, channels, levels: makeLevels(duration),
    kind: Uint8Array.from(columns.kind), text: Int32Array.from(columns.text),
    collective: Int32Array.from(columns.collective), call: Int32Array.from(columns.call ?? []), exposed: intersect(channels[COMM], rankExposed), found: null,
  };
}

function devicesOf(rank) {
  return rank.lanes.filter((lane) => !lane.role);
}

// All lanes of a rank's device as one, for when it is folded.
export function foldRank(rank) {
  rank.folded ??= {
    compute: uniteAll(devicesOf(rank).map((lane) => lane.channels[COMPUTE])),
    comm: uniteAll(devicesOf(rank).map((lane) => lane.channels[COMM])),
  };
  return rank.folded;
}

// What a person looks for: which spans have all the words in name, owner, purpose, operation, cause or region.

import { NOTHING, unite, uniteAll } from "./timeline_times.js";

const LOOKED_AT = ["operation", "purpose", "owner", "cause", "region", "axis", "group"];

// As typed: words that all must be there, in any order.
export function readWanted(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

// Spans with all the words, by start: [{rank, at, span, start}, ...]; a collective of several copies is found once. Each
// lane keeps as `found` when they ran; null: nobody looks for anything.
export function findSpans(model, wanted) {
  const found = [];
  const hasAll = (hay) => wanted.every((word) => hay.includes(word));
  model.lowered ??= model.document.strings.map((text) => text.toLowerCase());
  const fits = wanted.length ? model.lowered.map(hasAll) : [];
  for (const rank of model.ranks) {
    const isOne = wanted.length ? hayOf(model, rank).map(hasAll) : [];
    rank.lanes.forEach((lane, at) => {
      lane.found = wanted.length ? findInLane({ rank, lane, at }, fits, isOne, found) : null;
    });
    rank.found = null;
  }
  return found.sort((one, other) => one.start - other.start);
}

// When those of all lanes of a rank ran; null: nobody looks for anything.
export function foundOn(rank) {
  if (rank.lanes[0]?.found) rank.found ??= uniteAll(rank.lanes.map((lane) => lane.found));
  return rank.found;
}

function findInLane({ rank, lane, at }, fits, isOne, found) {
  const starts = [];
  const ends = [];
  for (let span = 0; span < lane.start.length; span++) {
    const place = lane.collective[span];
    if (place === NOTHING ? !fits[lane.text[span]] : !isOne[place]) continue;
    starts.push(lane.start[span]);
    ends.push(lane.start[span] + lane.duration[span]);
    if (place === NOTHING || (rank.laneOf[place] === at && rank.spanOf[place] === span)) found.push({ rank, at, span, start: lane.start[span] });
  }
  return unite(starts, ends);
}

// Of each collective of a rank all that can be looked for, keys and their words, in small letters.
function hayOf(model, rank) {
  const { strings } = model.document;
  const { collectives } = rank.columns;
  rank.hay ??= collectives.index.map((_, place) =>
    LOOKED_AT.flatMap((column) => {
      const key = strings[collectives[column][place]];
      return key ? [key, model.say(column, key)] : [];
    }).concat(Object.keys(collectives.causes[place]).flatMap((key) => [key, model.say("cause", key)]), collectives.owner[place] ? [] : ["unattributed"]).join("\n").toLowerCase(),
  );
  return rank.hay;
}

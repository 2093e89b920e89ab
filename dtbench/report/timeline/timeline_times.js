// Sets of time, and spans in order of start: how much of a pixel is covered, and which spans are long enough to see.

const FANOUT = 32; // of the tree that finds long spans
export const NOTHING = -1; // in place of a span, of a collective

// Disjoint intervals in rising order, with the time covered before each, and for each power of FANOUT the longest.
export function makeChannel(starts, ends) {
  const count = starts.length;
  const start = Float64Array.from(starts);
  const end = Float64Array.from(ends);
  const before = new Float64Array(count + 1);
  const length = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    length[i] = end[i] - start[i];
    before[i + 1] = before[i] + length[i];
  }
  return { count, start, end, before, levels: makeLevels(length) };
}

export function makeLevels(length) {
  const levels = [length];
  while (levels[levels.length - 1].length > 1) {
    const below = levels[levels.length - 1];
    const above = new Float64Array(Math.ceil(below.length / FANOUT));
    for (let i = 0; i < below.length; i++) {
      const at = Math.floor(i / FANOUT);
      if (below[i] > above[at]) above[at] = below[i];
    }
    levels.push(above);
  }
  return levels;
}

// Spans in order of start, perhaps overlapping or touching, to their union.
export function unite(starts, ends) {
  const unitedStarts = [];
  const unitedEnds = [];
  for (let i = 0; i < starts.length; i++) {
    const last = unitedEnds.length - 1;
    if (last >= 0 && starts[i] <= unitedEnds[last]) unitedEnds[last] = Math.max(unitedEnds[last], ends[i]);
    else if (ends[i] > starts[i]) {
      unitedStarts.push(starts[i]);
      unitedEnds.push(ends[i]);
    }
  }
  return makeChannel(unitedStarts, unitedEnds);
}

export function uniteAll(channels) {
  const spans = [];
  for (const one of channels) for (let i = 0; i < one.count; i++) spans.push([one.start[i], one.end[i]]);
  spans.sort((a, b) => a[0] - b[0]);
  return unite(spans.map((one) => one[0]), spans.map((one) => one[1]));
}

export function intersect(first, second) {
  const starts = [];
  const ends = [];
  for (let i = 0, k = 0; i < first.count && k < second.count; ) {
    const start = Math.max(first.start[i], second.start[k]);
    const end = Math.min(first.end[i], second.end[k]);
    if (start < end) {
      starts.push(start);
      ends.push(end);
    }
    if (first.end[i] < second.end[k]) i++;
    else k++;
  }
  return makeChannel(starts, ends);
}

// How many values of a rising array are below a bound, looked for from a place on: near places are found at once.
export function countBelow(values, bound, from = 0, beyond = values.length) {
  let low = from;
  let hop = 1;
  while (low + hop <= beyond && values[low + hop - 1] < bound) {
    low += hop;
    hop *= 2;
  }
  let high = Math.min(low + hop - 1, beyond);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Which part of each pixel a channel covers: the time covered before its right border less that before its left one.
export function cover(channel, startNs, nsPerPixel, parts) {
  let place = countBelow(channel.start, startNs);
  let covered = coveredBefore(channel, place, startNs);
  for (let pixel = 0; pixel < parts.length; pixel++) {
    const moment = startNs + (pixel + 1) * nsPerPixel;
    if (place < channel.count && channel.start[place] < moment) place = countBelow(channel.start, moment, place);
    const next = coveredBefore(channel, place, moment);
    parts[pixel] = Math.min(1, (next - covered) / nsPerPixel);
    covered = next;
  }
}

function coveredBefore(channel, place, moment) {
  return place ? channel.before[place] - Math.max(0, channel.end[place - 1] - moment) : 0;
}

// Call `see` with every place in [from, beyond) whose length is at least so long; asks no more than it must.
export function visitLong(levels, from, beyond, least, see) {
  const descend = (level, index) => {
    if (levels[level][index] < least) return;
    if (level === 0) {
      see(index);
      return;
    }
    const size = FANOUT ** (level - 1);
    const first = Math.max(index * FANOUT, Math.floor(from / size));
    const last = Math.min((index + 1) * FANOUT, levels[level - 1].length, Math.ceil(beyond / size));
    for (let child = first; child < last; child++) descend(level - 1, child);
  };
  if (from < beyond && levels[0].length) descend(levels.length - 1, 0);
}

// The span of a lane at a moment, else the nearest within reach; of one kind only where that is said.
export function findSpan(lane, moment, near, kind) {
  let best = NOTHING;
  let distance = near;
  const beyond = countBelow(lane.start, moment + near);
  for (let i = beyond - 1; i >= 0 && lane.reach[i] >= moment - near; i--) {
    if (kind !== undefined && lane.kind[i] !== kind) continue;
    const away = Math.max(0, lane.start[i] - moment, moment - lane.start[i] - lane.duration[i]);
    if (away < distance || (away === distance && best === NOTHING)) {
      best = i;
      distance = away;
    }
    if (distance === 0) break;
  }
  return best;
}

export function coveredBetween(channel, start, end) {
  const before = (moment) => coveredBefore(channel, countBelow(channel.start, moment), moment);
  return Math.max(0, before(end) - before(start));
}


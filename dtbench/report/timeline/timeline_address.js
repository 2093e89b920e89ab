// What is shown, in the page's address: a reload keeps it, and a link opened elsewhere shows the same.

const PREFIX = "timeline.";

function readParts() {
  return [...new URLSearchParams(window.location.hash.slice(1))];
}

// As `state` of a timeline: {from, to, selected, ...}, all text; what stands there for others is not in it.
export function readAddress() {
  return Object.fromEntries(readParts().filter(([key]) => key.startsWith(PREFIX)).map(([key, value]) => [key.slice(PREFIX.length), value]));
}

// Others' parts stay; a bare anchor gives way to what is shown now.
export function writeAddress(state) {
  const others = readParts().filter(([key, value]) => value && !key.startsWith(PREFIX));
  const own = Object.entries(state).map(([key, value]) => [PREFIX + key, value]);
  const written = new URLSearchParams([...others, ...own]).toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  window.history.replaceState(null, "", written ? `#${written}` : window.location.pathname + window.location.search);
}

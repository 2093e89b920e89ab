/* What the page shows, in the address of TensorBoard's window: a reload and a link show the same.

   TensorBoard has `#<tab>&<name>=<value>&...` there, keeps what it does not know, and leaves to each plugin the names that
   begin with `p.<plugin>.` (it reads them out by `experimental.GetURLPluginData`, but writes none); so they are written here. */

const OURS = "p.dtbench.";
let written = null;

/** Return the words of ours that stand in the address, by name. */
export function readAddress() {
  return Object.fromEntries(split().filter(([name]) => name.startsWith(OURS)).map(([name, value]) => [name.slice(OURS.length), value]));
}

/** Put words into the address in the place of ours. */
export function writeAddress(words) {
  const ours = Object.entries(words).map(([name, value]) => [OURS + name, value]);
  const hash = [tab(), ...[...split().filter(([name]) => !name.startsWith(OURS)), ...ours].map((pair) => pair.map(encodeURIComponent).join("="))].join("&");
  const {history, location} = window.parent;
  if (`#${hash}` !== location.hash) history.replaceState(history.state, "", `#${hash}`);
  written = JSON.stringify(readAddress());
}

/** Tell whether our words are those that were written last. */
export function isWritten() {
  return JSON.stringify(readAddress()) === written;
}

/** Be told when somebody else changed the address: a link was pasted over it. */
export function followAddress(act) {
  window.parent.addEventListener("hashchange", act);
}

function parts() {
  return window.parent.location.hash.slice(1).split("&");
}

/** Which of TensorBoard's tabs is open: the only part without a name. */
function tab() {
  return parts().find((part) => !part.includes("=")) ?? "";
}

function split() {
  return parts().map((part) => part.split("=").map(decode)).filter((pair) => pair.length === 2 && !pair.includes(null));
}

/** What was cut inside a letter is left out. */
function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return null;
  }
}

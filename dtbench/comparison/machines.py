"""What traces of a job tell of the machines and software of its ranks, and in what two sets of traces differ in it.

Of runs, see ``runs/environments.py``, which has the reasons, too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from dtbench.runs.environments import EnvironmentChange, find_why
from dtbench.traces.job.trace_set import TraceSet


def read_machines(traces: TraceSet) -> dict[str, tuple[str, ...]]:
    """Return what traces of one job tell of how they were recorded, by name: each rank's word, empty for none."""
    told = [{"host": one.timeline.host or "", **one.machine} for one in traces.analyses]
    names = dict.fromkeys(name for one in told for name, word in one.items() if word)
    return {name: tuple(one.get(name, "") for one in told) for name in names}


def find_machine_changes(
    baseline: Mapping[str, Sequence[str]], candidate: Mapping[str, Sequence[str]]
) -> tuple[EnvironmentChange, ...]:
    """Return in what the machines of two sets of traces differ, as far as both tell.

    Ranks are alike in a name where they can be paired so that both of each pair tell the same word: which rank ran on
    which device does not matter, and a rank that tells no word may be like any, as long as some word is told on both
    sides. Where one side has more ranks than the other, each word counts once.
    """
    pairs = {name: (words, candidate[name]) for name, words in baseline.items() if name in candidate}
    changes = []
    for name, (before, after) in pairs.items():
        if _must_differ(before, after):
            old, new = _spell_words(before, after), _spell_words(after, before)
            changes.append(
                EnvironmentChange(
                    what=name, baseline=old, candidate=new, is_declared=False, why=find_why(name, old, new)
                )
            )
    return tuple(changes)


def _must_differ(before: Sequence[str], after: Sequence[str]) -> bool:
    """Tell whether words that ranks of one side tell are more than all ranks of the other may have."""
    one, other = ([word for word in words if word] for words in (before, after))
    silent = len(before) - len(one), len(after) - len(other)
    counts = (Counter(one), Counter(other)) if len(before) == len(after) else (Counter({*one}), Counter({*other}))
    is_told_more = (counts[0] - counts[1]).total() > silent[1] or (counts[1] - counts[0]).total() > silent[0]
    return is_told_more or {*one}.isdisjoint(other)


def _spell_words(words: Sequence[str], others: Sequence[str]) -> str:
    """Spell what ranks tell, each word once; how many tell each where that is all in which sides differ."""
    counts = sorted(Counter(filter(None, words)).items())
    is_by_count = {*filter(None, words)} == {*filter(None, others)}
    return ", ".join(f"{count} x {word}" if is_by_count else word for word, count in counts)

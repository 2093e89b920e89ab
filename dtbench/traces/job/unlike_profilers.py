"""Ranks of one job that were profiled unlike: what a profiler records takes time of the host, and makes ranks late."""

from collections.abc import Collection, Mapping, Sequence

from dtbench.base.units import name_ranks
from dtbench.scenario.mistakes import join_words
from dtbench.traces.notes.job import UnlikeProfilers
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.late import LateRank
from dtbench.traces.ranks.stragglers import Waiting
from dtbench.traces.reader.header import PROFILERS


def find_unlike_profilers(analyses: Sequence[TraceAnalysis]) -> list[UnlikeProfilers]:
    """Return which options of the profiler some ranks had on and others off, as far as their traces tell."""
    by_ranks: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for option, ranks in _find_unlike(analyses).items():
        by_ranks.setdefault(ranks, []).append(option)
    return [UnlikeProfilers(on, off, tuple(options)) for (on, off), options in by_ranks.items()]


def describe_late_profilers(
    analyses: Sequence[TraceAnalysis], waiting: Waiting, late_ranks: Sequence[LateRank]
) -> list[str]:
    """Say of ranks that are waited for, and whose hosts may be why, where the profiler recorded more of them.

    Args:
        analyses: of all ranks.
        waiting: who waits for whom.
        late_ranks: what is known of those that are waited for longest.
    """
    waited_for = {one.rank for one in waiting.stragglers}
    waited_for |= {rank for one in waiting.together[:1] for rank in one.ranks} | {one.rank for one in late_ranks}
    waited_for -= {one.rank for one in late_ranks} - {one.rank for one in late_ranks if one.may_be_hosts}
    unlike = _find_unlike(analyses)
    return [
        f"the profiler recorded more of rank {rank} than of {name_ranks(others)} ({join_words(options, 'and')}): how"
        " late it is without that is not known"
        for rank in sorted(waited_for)
        for options, others in [_find_more(rank, unlike)]
        if options
    ]


def _find_more(
    rank: int, unlike: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
) -> tuple[list[str], Collection[int]]:
    """Return what was recorded of a rank and not of others, and which these are."""
    options = [option for option, (on, _) in unlike.items() if rank in on]
    return options, sorted({other for option in options for other in unlike[option][1]})


def _find_unlike(analyses: Sequence[TraceAnalysis]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return for each option that some ranks had on and others off which these are."""
    options = dict.fromkeys(name for one in analyses for name in one.machine if name.startswith(PROFILERS))
    found = {}
    for option in options:
        on, off = (tuple(one.rank for one in analyses if one.machine.get(option) == word) for word in ("on", "off"))
        if on and off:
            found[option.removeprefix(PROFILERS)] = (on, off)
    return found

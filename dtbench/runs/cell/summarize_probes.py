"""Functions under study as the probes of a cell's ranks saw them: one row per function."""

import math
from collections import defaultdict
from collections.abc import Sequence

from dtbench.runs.summary import BranchSummary, ProbeSummary
from dtbench.seeds.functions import stem_of
from dtbench.store.records.probes import ProbedBranch, ProbedFunction, Probes


def summarize_probes(ranks: Sequence[Probes]) -> tuple[ProbeSummary, ...]:
    """Return one row per function that was probed.

    Args:
        ranks: of every rank of every launch that had probes.
    """
    seen: dict[str, list[ProbedFunction]] = defaultdict(list)
    for probes in ranks:
        for function in probes.functions:
            seen[f"{stem_of(function.file)}.{function.name}"].append(function)
    return tuple(_summarize(label, functions) for label, functions in seen.items())


def _summarize(label: str, functions: Sequence[ProbedFunction]) -> ProbeSummary:
    names = dict.fromkeys(branch.name for function in functions for branch in function.branches)
    return ProbeSummary(
        label=label,
        calls=min(function.calls for function in functions),
        most_calls=max(function.calls for function in functions),
        raised=max(function.raised for function in functions),
        total_ns=sum(function.total_ns for function in functions) // len(functions),
        per_call_ns=_mean_per_call(functions),
        branches=tuple(_summarize_branch(name, functions) for name in names),
    )


def _summarize_branch(name: str, functions: Sequence[ProbedFunction]) -> BranchSummary:
    none = ProbedBranch(name=name, calls=0, total_ns=0)
    found = [next((one for one in function.branches if one.name == name), none) for function in functions]
    return BranchSummary(
        name=name,
        calls=min(one.calls for one in found),
        most_calls=max(one.calls for one in found),
        total_ns=sum(one.total_ns for one in found) // len(found),
        per_call_ns=_mean_per_call(found),
    )


def _mean_per_call(counted: Sequence[ProbedFunction] | Sequence[ProbedBranch]) -> float:
    calls = sum(one.calls for one in counted)
    return sum(one.total_ns for one in counted) / calls if calls else math.nan

"""A function under study over ranks: its fewest and most calls, times as means, a branch that a rank never took."""

import math
from typing import Any

from dtbench.runs.cell.summarize_extras import find_absent_functions, summarize_probes
from dtbench.seeds.functions import stem_of
from dtbench.store.records.probes import ProbedBranch, ProbedFunction, Probes, Unprobed

FILE = "fsdp/_fully_shard/_fsdp_param.py"


def probes_of(calls: int, total_ns: int, raised: int, *branches: ProbedBranch) -> Probes:
    told: dict[str, Any] = {
        "file": FILE,
        "name": "init",
        "branches": branches,
        "calls": calls,
        "total_ns": total_ns,
        "raised": raised,
    }
    every: dict[str, Any] = {"functions": (ProbedFunction.model_construct(**told),), "unprobed": ()}
    return Probes.model_construct(**every)


def test_of_ranks_that_differ_the_fewest_and_the_most_calls_are_told_and_the_mean_time() -> None:
    ranks = [probes_of(6, 90, 0), probes_of(4, 30, 2), probes_of(5, 30, 1)]
    (found,) = summarize_probes(ranks)
    assert (found.calls, found.most_calls, found.raised) == (4, 6, 2)
    assert (found.total_ns, found.per_call_ns) == (50, 10.0)


def test_a_branch_that_a_rank_never_took_counts_there_as_none() -> None:
    plain, mixed = (ProbedBranch(name=name, calls=3, total_ns=12) for name in ("plain", "mixed"))
    (found,) = summarize_probes([probes_of(6, 90, 0, plain, mixed), probes_of(3, 30, 0, plain)])
    branch = next(one for one in found.branches if one.name == "mixed")
    assert (branch.calls, branch.most_calls) == (0, 3)
    assert (branch.total_ns, branch.per_call_ns) == (6, 4.0)


def test_branches_of_which_a_rank_tells_less_than_its_calls_are_not_known() -> None:
    plain, mixed = (ProbedBranch(name=name, calls=3, total_ns=12) for name in ("plain", "mixed"))
    for lost in ((), (plain,)):
        (found,) = summarize_probes([probes_of(6, 90, 0, plain, mixed), probes_of(6, 90, 0, *lost)])
        assert (found.calls, found.branches) == (6, ())


def test_what_was_never_called_has_no_time_per_call() -> None:
    (found,) = summarize_probes([probes_of(0, 0, 0)])
    assert (found.calls, found.most_calls, found.total_ns) == (0, 0, 0)
    assert math.isnan(found.per_call_ns)
    assert summarize_probes([]) == ()


def test_what_torch_does_not_have_is_only_what_a_rank_says_so_of() -> None:
    gone = Unprobed(file=FILE, name="gone", reason="why", is_absent=True)
    unnamed = gone.model_copy(update={"name": "unnamed", "is_absent": False})
    seen = probes_of(1, 2, 0).model_copy(update={"unprobed": (gone, unnamed)})
    assert find_absent_functions([seen]) == (f"{stem_of(FILE)}.gone",)
    has_it = seen.functions[0].model_copy(update={"name": "gone"})
    assert find_absent_functions([seen, seen.model_copy(update={"functions": (has_it,), "unprobed": ()})]) == ()
    assert find_absent_functions([seen.model_copy(update={"unprobed": ()})]) == ()

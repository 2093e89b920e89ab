"""The list of functions under study: nobody chooses it, the installed torch does."""

from collections import Counter
from pathlib import Path

import pytest

from dtbench.base.torch_versions import TESTED_TORCH, is_tested_torch, spell_tested_torch
from dtbench.seeds.functions import (
    DDP,
    FILES,
    FUNCTIONS,
    Reach,
    StudiedFunction,
    choose,
    is_choice,
    stem_of,
)

SEEDS_UNCALLED = {
    "_rewrite_spec_if_needed",
    "_check_state_dict_similarity",
    "_check_state_dict_similarity.tensor_func",
    "DistributedDataParallel._get_parameters",
    "DistributedDataParallel._get_parameters.model_parameters",
    "DistributedDataParallel.scatter",
    "DistributedDataParallel.gather",
    "DistributedDataParallel.to_kwargs",
}


def installed(file: str) -> tuple[Path, str]:
    """Return a file under study as it is installed, and the version of torch."""
    torch = pytest.importorskip("torch", reason="its files are what is listed; install the extra `run`")
    if not is_tested_torch(torch.__version__):
        pytest.skip(f"the list is of torch {spell_tested_torch()}, installed is {torch.__version__}")
    return Path(torch.__file__).parents[1] / file, torch.__version__


@pytest.mark.parametrize("file", FILES)
def test_every_function_that_ast_finds_is_listed_exactly_once_and_no_other(file: str) -> None:
    from dtbench.worker.probes.sources import read_functions

    path, torch = installed(file)
    found = Counter(one.name for one in read_functions(path))
    assert found == Counter(one.name for one in FUNCTIONS if one.file == file and one.is_in(torch))


@pytest.mark.parametrize("file", FILES)
def test_every_function_has_lines_of_its_own_that_no_other_has(file: str) -> None:
    from dtbench.worker.probes.sources import read_functions

    functions = read_functions(installed(file)[0])
    counts = Counter(line for one in functions for line in one.lines)
    assert [one.name for one in functions if not one.lines] == []
    assert [line for line, count in counts.items() if count > 1] == []


def test_no_two_functions_have_one_label_and_each_says_why() -> None:
    assert len({function.label for function in FUNCTIONS}) == len(FUNCTIONS)
    assert len({stem_of(file) for file in FILES}) == len(FILES)
    assert [function.label for function in FUNCTIONS if not function.reason] == []


def test_a_function_that_a_torch_lacks_is_too_new_for_it_or_gone() -> None:
    finalize = next(one for one in FUNCTIONS if one.name.endswith(".finalize_backward"))
    assert [finalize.is_in(torch) for torch in ("2.14.1+cu130", "2.15.0", "2.16.0a0")] == [False, True, True]
    assert finalize.tell_absence("2.13.0+cpu") == "torch has it since 2.15, and this is 2.13.0+cpu"
    assert finalize.tell_absence("2.16.0") == "torch 2.16.0 does not have it: renamed or removed"
    old = StudiedFunction(DDP, "gone", Reach.DRIVEN, "training")
    assert old.tell_absence("2.11.0") == "torch 2.11.0 does not have it: renamed or removed"


def test_what_is_said_to_be_new_came_after_the_first_tested_torch() -> None:
    assert all(TESTED_TORCH[0] < one.since < TESTED_TORCH[1] for one in FUNCTIONS if one.since is not None)


def test_what_nothing_in_torch_calls_is_listed_so() -> None:
    assert {function.name for function in FUNCTIONS if function.reach is Reach.UNCALLED} == SEEDS_UNCALLED


def test_functions_are_chosen_by_file_by_label_or_all() -> None:
    assert choose(["all"]) == FUNCTIONS
    assert [one.name for one in choose(["_data_parallel_utils"])] == [
        "sync_grad_hook",
        "_flatten_tensor",
        "_unflatten_tensor",
    ]
    chosen = choose(["distributed.DistributedDataParallel.forward", "_data_parallel_utils.sync_grad_hook"])
    assert [one.name for one in chosen] == ["sync_grad_hook", "DistributedDataParallel.forward"]
    assert not is_choice("distributed.forward")
    assert choose([]) == ()

"""The list of functions under study: nobody chooses it, the installed torch does."""

from collections import Counter
from pathlib import Path

import pytest

from dtbench.probe_catalogue.functions import FILES, FUNCTIONS, Reach, choose, is_choice, stem_of

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


def installed(file: str) -> Path:
    torch = pytest.importorskip("torch", reason="its files are what is listed; install the extra `run`")
    if not torch.__version__.startswith("2.13."):
        pytest.skip(f"the list is of torch 2.13, installed is {torch.__version__}")
    return Path(torch.__file__).parents[1] / file


@pytest.mark.parametrize("file", FILES)
def test_every_function_that_ast_finds_is_listed_exactly_once_and_no_other(file: str) -> None:
    from dtbench.worker.probes.sources import read_functions

    found = Counter(one.name for one in read_functions(installed(file)))
    assert found == Counter(function.name for function in FUNCTIONS if function.file == file)


@pytest.mark.parametrize("file", FILES)
def test_every_function_has_lines_of_its_own_that_no_other_has(file: str) -> None:
    from dtbench.worker.probes.sources import read_functions

    functions = read_functions(installed(file))
    counts = Counter(line for one in functions for line in one.lines)
    assert [one.name for one in functions if not one.lines] == []
    assert [line for line, count in counts.items() if count > 1] == []


def test_no_two_functions_have_one_label_and_each_says_why() -> None:
    assert len({function.label for function in FUNCTIONS}) == len(FUNCTIONS)
    assert len({stem_of(file) for file in FILES}) == len(FILES)
    assert [function.label for function in FUNCTIONS if not function.reason] == []


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

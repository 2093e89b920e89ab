"""What makes environments unlike is a short list with reasons; what is not in it is told and no more."""

from typing import Any

import pytest

from dtbench.runs.environments import WHY_UNLIKE, find_environment_changes, find_unlike
from dtbench.scenario.flat_fields import flatten_fields
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.run import Commit, Device, Environment
from tests.comparison.conftest import ENVIRONMENT, FakeCell, make_scenario

PLAIN = {"model.kind": "transformer"}
OWN = {"model.kind": "custom", "model.factory": "my_model:build"}
LOOP = {"script": "train.py"}
COMPILED = {**PLAIN, "model.compile.backend": "inductor"}
A100 = Device(name="A100", memory_bytes=1, capability="8.0")


def unlike(update: dict[str, Any], settings: dict[str, str] | None = None) -> list[str]:
    other: Environment = ENVIRONMENT.model_copy(update=update)
    both = (settings or PLAIN, settings or PLAIN)
    return [change.what for change in find_unlike(find_environment_changes(ENVIRONMENT, other, settings=both))]


@pytest.mark.parametrize(
    ("update", "settings"),
    [
        ({"host": "cluster"}, PLAIN),
        ({"python": "3.12.9"}, PLAIN),
        ({"packages": {**ENVIRONMENT.packages, "numpy": "2.2.0"}}, PLAIN),
        ({"packages": {**ENVIRONMENT.packages, "transformers": "5.1.0"}}, PLAIN),
        ({"packages": {**ENVIRONMENT.packages, "transformers": "5.1.0"}}, COMPILED),
        ({"memory_bytes": 1}, PLAIN),
        ({"host": "x", "python": "3.12.0", "notes": ("other",)}, OWN),
    ],
)
def test_what_changes_nothing_that_is_measured_makes_nothing_unlike(
    update: dict[str, Any], settings: dict[str, str]
) -> None:
    assert unlike(update, settings) == []


@pytest.mark.parametrize(
    ("update", "settings", "named"),
    [
        ({"processor": "Xeon"}, PLAIN, "processor"),
        ({"cores": 64}, PLAIN, "cores"),
        ({"devices": (A100,)}, PLAIN, "devices"),
        ({"system": "Linux-6.6"}, PLAIN, "system"),
        ({"python": "3.13.1"}, PLAIN, "python"),
        ({"torch": "2.12.0+cpu"}, PLAIN, "torch"),
        ({"cuda": "12.8"}, PLAIN, "cuda"),
        ({"nccl": "2.27.3"}, PLAIN, "nccl"),
        ({"packages": {**ENVIRONMENT.packages, "dtbench": "0.2.0"}}, PLAIN, "package dtbench"),
        ({"packages": {**ENVIRONMENT.packages, "transformers": "5.1.0"}}, OWN, "package transformers"),
        ({"packages": {**ENVIRONMENT.packages, "numpy": "2.2.0"}}, LOOP, "package numpy"),
        ({"packages": {**ENVIRONMENT.packages, "triton": "3.4"}}, COMPILED, "package triton"),
        ({"variables": {"OMP_NUM_THREADS": "1", "NCCL_ALGO": "Ring"}}, PLAIN, "variable NCCL_ALGO"),
        ({"variables": {}}, PLAIN, "variable OMP_NUM_THREADS"),
    ],
)
def test_what_changes_what_is_measured_is_named_with_its_reason(
    update: dict[str, Any], settings: dict[str, str], named: str
) -> None:
    assert unlike(update, settings) == [named]
    other = ENVIRONMENT.model_copy(update=update)
    (change,) = find_environment_changes(ENVIRONMENT, other, settings=(settings, settings))
    assert change.why in WHY_UNLIKE.values()


@pytest.mark.parametrize(
    ("model", "packages"),
    [
        ({}, []),
        ({"compile": {}}, ["package triton"]),
        ({"kind": "custom", "factory": "my_model:build"}, ["package numpy", "package triton"]),
    ],
)
def test_a_scenarios_fields_say_what_it_imports(model: dict[str, Any], packages: list[str]) -> None:
    scenario = make_scenario(FakeCell((1.0,)))
    document = scenario.model_dump(mode="json", exclude={"model"} if "kind" in model else None)
    document["model"] = {**document.get("model", {}), **model}
    settings = dict(flatten_fields(Scenario.model_validate(document, strict=False).model_dump(mode="json")))
    newer = {**ENVIRONMENT.packages, "numpy": "2.2.0", "triton": "3.4"}
    assert unlike({"packages": newer}, settings) == packages


@pytest.mark.parametrize(
    ("threads", "expected"), [("2", []), ("4", ["variable OMP_NUM_THREADS"]), ("1", ["variable OMP_NUM_THREADS"])]
)
def test_threads_that_follow_from_cores_and_ranks_make_nothing_unlike(threads: str, expected: list[str]) -> None:
    """dtbench gives each rank its share of the cores: what a person set, or no share explains, is another."""
    four = ENVIRONMENT.model_copy(update={"cores": 8, "variables": {"OMP_NUM_THREADS": threads}})
    two = ENVIRONMENT.model_copy(update={"cores": 8, "variables": {"OMP_NUM_THREADS": "4" if threads != "4" else "2"}})
    sides = ({"parallel.shards": "2", "parallel.tensor": "2"}, {"parallel.replicas": "2", "parallel.tensor": "1"})
    found = find_unlike(find_environment_changes(four, two, {"parallel.shards"}, sides))
    assert [change.what for change in found] == expected


OLD, NEW = (Commit(revision=letter * 40, is_dirty=False) for letter in "ab")


def find_both(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    one, other = (ENVIRONMENT.model_copy(update=update) for update in (before, after))
    found = find_environment_changes(one, other, settings=(PLAIN, PLAIN))
    return [(one.what, one.baseline, one.candidate, bool(one.why)) for one in found]


def test_another_commit_of_the_users_code_is_told_and_is_what_is_compared() -> None:
    changed = Commit(revision="b" * 40, is_dirty=True)
    assert find_both({"commit": OLD}, {"commit": NEW}) == [("commit of the code", "a" * 12, "b" * 12, False)]
    assert find_both({"commit": NEW}, {"commit": changed}) == [
        ("commit of the code", "b" * 12, f"{'b' * 12} with changes", False)
    ]
    assert find_both({"commit": None}, {"commit": NEW}) == [], "no repository, or of a version that did not look"


def test_another_commit_of_torch_is_unlike_where_its_version_does_not_tell() -> None:
    before, after = {"torch_git": "a" * 40}, {"torch_git": "b" * 40}
    assert find_both(before, after) == [("torch's commit", "a" * 12, "b" * 12, True)]
    assert [what for what, *_ in find_both(before, {**after, "torch": "2.12.0+cpu"})] == ["torch"]
    assert find_both({}, after) == [], "versions that did not look tell none"


AZURE = "Linux-6.8.0-1021-azure-x86_64-with-glibc2.39"


@pytest.mark.parametrize(
    ("other", "is_alike"),
    [
        ("Linux-6.8.0-1027-azure-x86_64-with-glibc2.39", True),
        ("Linux-6.8.12-azure-x86_64-with-glibc2.39", True),
        ("Linux-6.11.0-1021-azure-x86_64-with-glibc2.39", False),
        ("Linux-6.8.0-1021-realtime-x86_64-with-glibc2.39", False),
        ("Linux-6.8.0-1021-azure-x86_64-with-glibc2.35", False),
        ("Linux-6.8.0-1021-azure-aarch64-with-glibc2.39", False),
        ("macOS-14.5-arm64-arm-64bit", False),
    ],
)
def test_another_build_of_a_kernel_is_told_and_another_version_flavour_or_library_is_unlike(
    other: str, *, is_alike: bool
) -> None:
    assert find_both({"system": AZURE}, {"system": other}) == [("system", AZURE, other, not is_alike)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Linux-5.14.0-427.13.el9_4.x86_64-x86_64-with-glibc2.34", "Linux-5.14.0-503.el9.x86_64-x86_64-with-glibc2.34"),
        ("Linux-6.1.0-18-cloud-amd64-x86_64-with-glibc2.36", "Linux-6.1.0-25-cloud-amd64-x86_64-with-glibc2.36"),
        ("Linux-6.1.75+-x86_64-with-glibc2.36", "Linux-6.1.85+-x86_64-with-glibc2.36"),
    ],
    ids=["red hat", "debian", "gke"],
)
def test_builds_of_a_kernel_are_told_apart_as_distributions_name_them(before: str, after: str) -> None:
    assert find_both({"system": before}, {"system": after}) == [("system", before, after, False)]


def test_memory_is_told_where_it_is_another_size_and_not_where_a_hypervisor_keeps_some() -> None:
    size = ENVIRONMENT.memory_bytes
    assert find_both({}, {"memory_bytes": size - size // 16}) == []
    assert find_both({}, {"memory_bytes": 4 * size}) == [("memory", "16.0 GiB", "64.0 GiB", False)]


MACHINE = {"host": "node2", "processor": "Xeon", "cores": 4, "system": "Linux-6.6", "devices": (A100,)}
CLASS = {"runner_class": "perf-small"}


def find_unlike_of(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    one, other = (ENVIRONMENT.model_copy(update=update) for update in (before, after))
    return [change.what for change in find_unlike(find_environment_changes(one, other, settings=(PLAIN, PLAIN)))]


def test_a_runner_class_stands_for_the_machine_and_for_no_software() -> None:
    assert find_unlike_of({}, MACHINE) == ["processor", "cores", "devices", "system"]
    assert find_unlike_of(CLASS, {**CLASS, **MACHINE}) == []
    assert find_unlike_of(CLASS, {**CLASS, **MACHINE, "torch": "2.12.0", "python": "3.13.0"}) == ["python", "torch"]


def test_two_runner_classes_are_unlike_and_one_that_a_side_alone_tells_decides_nothing() -> None:
    assert find_unlike_of(CLASS, {"runner_class": "perf-large"}) == ["runner class"]
    assert find_unlike_of(CLASS, {}) == []
    assert find_unlike_of(CLASS, {"processor": "Xeon"}) == ["processor"]

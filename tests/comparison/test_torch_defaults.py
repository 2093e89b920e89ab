"""What torch does otherwise by itself between two versions is said where it concerns a side, and is what torch has."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dtbench.base.torch_versions import read_torch_release
from dtbench.comparison.run import compare_sides
from dtbench.comparison.torch_defaults import NEW_DEFAULTS, say_new_defaults
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.records.run import Device, Environment
from dtbench.worker.torch_facts.facts import TESTED, Kind, read_facts

SCENARIO = {"model.kind": "transformer", "device": "cpu", "parallel.kind": "ddp"}
COMPILED = {**SCENARIO, "model.compile.what": "blocks"}
POLICY = "parallel.mixed_precision"
LOW = {
    **SCENARIO,
    "parallel.kind": "fsdp2",
    "precision.dtype": "float32",
    f"{POLICY}.param_dtype": "bfloat16",
    f"{POLICY}.reduce_dtype": "-",
}
ON_GPUS = {**SCENARIO, "device": "auto"}
LOOP = {"script": "train.py"}
INDUCTOR, REDUCE, NCCL = (default.name for default in NEW_DEFAULTS)
FACTS = {
    INDUCTOR: (Kind.CONFIG, f"torch._inductor.config.{INDUCTOR}", None, "True"),
    REDUCE: (
        Kind.WIRE,
        "FSDP2, param_dtype=bfloat16: c10d::_reduce_scatter_base_",
        "2 x BFloat16 [136], BFloat16 [272]",
        "2 x float [136], float [272]",
    ),
    NCCL: (
        Kind.VARIABLE,
        NCCL,
        "os.environ.get('TORCH_DIST_USE_NCCL2') == '1'",
        "os.environ.get('TORCH_DIST_USE_NCCL2') == '0'",
    ),
}
"""Where the facts of tested torches show each, and what they say before and since; None: there is no such thing."""


def sides(
    environment: Environment, older: str, newer: str, settings: Mapping[str, str], *, gpus: int = 0
) -> tuple[MeasuredSide, MeasuredSide]:
    devices = (Device(name="A100", memory_bytes=1, capability="8.0"),) * gpus
    first, second = (
        MeasuredSide(
            labels=(torch,),
            paths=(torch,),
            settings=dict(settings),
            environment=environment.model_copy(update={"torch": torch, "devices": devices}),
            launches=(),
            notes=(),
        )
        for torch in (older, newer)
    )
    return first, second


@pytest.mark.parametrize(
    ("older", "newer", "settings", "gpus", "named"),
    [
        ("2.13.0+cpu", "2.14.1", COMPILED, 0, [INDUCTOR]),
        ("2.14.1", "2.13.0+cpu", COMPILED, 0, [INDUCTOR]),
        ("2.13.0", "2.13.1", COMPILED, 0, []),
        ("2.14.0", "2.15.0", COMPILED, 0, []),
        ("2.13.0", "2.15.0", SCENARIO, 8, []),
        ("2.14.1", "2.15.0", LOW, 0, [REDUCE]),
        ("2.14.1", "2.15.0", {**LOW, f"{POLICY}.reduce_dtype": "float32"}, 0, []),
        ("2.14.1", "2.15.0", {**LOW, "precision.dtype": "bfloat16"}, 0, []),
        ("2.14.1", "2.15.0", ON_GPUS, 8, [NCCL]),
        ("2.14.1", "2.15.0", ON_GPUS, 0, []),
        ("2.11.0", "2.15.0", LOOP, 8, [INDUCTOR, REDUCE, NCCL]),
        ("2.11.0", "2.15.0", LOOP, 0, [INDUCTOR, REDUCE]),
    ],
)
def test_a_new_default_is_said_between_the_versions_that_differ_where_it_may_concern_a_side(
    environment: Environment, older: str, newer: str, settings: dict[str, str], gpus: int, named: list[str]
) -> None:
    told = list(say_new_defaults(sides(environment, older, newer, settings, gpus=gpus)))
    assert [next(name for name in FACTS if name in words) for words in told] == named


def test_where_a_side_does_not_say_on_which_torch_it_ran_nothing_is_said(environment: Environment) -> None:
    known, _ = sides(environment, "2.13.0", "2.13.0", LOOP)
    traces = known.model_copy(update={"environment": None, "settings": None})
    assert list(say_new_defaults((known, traces))) == []


def test_a_comparison_over_versions_says_what_is_otherwise_by_default(
    side_of: Callable[..., Any], launch_of: Callable[..., Any], environment: Environment
) -> None:
    newer = environment.model_copy(update={"torch": "2.14.1"})
    baseline, candidate = (
        side_of(label, [launch_of(index, 10.0 + index + place) for index in range(3)], where).model_copy(
            update={"settings": COMPILED}
        )
        for place, (label, where) in enumerate((("a", environment), ("b", newer)))
    )
    (note,) = [note for note in compare_sides(baseline, candidate, force=True).notes if INDUCTOR in note]
    assert note == (
        "from torch 2.14 on Inductor moves collectives of compiled code earlier, and waits for them later, where no "
        "peak of memory grows (aten_distributed_optimizations.enable_simple_overlap, torch/_inductor/config.py)"
    )


@pytest.mark.parametrize("default", NEW_DEFAULTS, ids=lambda default: default.name)
def test_the_facts_of_tested_torches_differ_exactly_where_a_default_is_said_to_be_new(default: Any) -> None:
    kind, name, before, since = FACTS[default.name]
    documents = [read_facts(path) for path in TESTED.glob("*.json")]
    said = {read_torch_release(one.torch): one.facts[kind].get(name) for one in documents}
    assert {words for release, words in said.items() if release >= default.first} == {since}
    assert {words for release, words in said.items() if release < default.first} <= {before, None}

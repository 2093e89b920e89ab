"""Files that would take minutes to read: each has few lines, and says with them that one thing is done very often."""

from typing import NoReturn

import pytest

from dtbench.base.errors import PlanError, ScenarioError
from dtbench.plan.cells import MOST_BLOCKS, plan_each
from dtbench.plan.plan import Plan, plan_for_check
from dtbench.scenario import explain
from dtbench.scenario.load import ScenarioFile, load_scenario
from dtbench.scenario.mistakes import MOST_MISTAKES
from dtbench.seeds import functions
from tests.scenario.conftest import SMALL

CAPS = ", ".join(str(number) for number in range(1, 1001))
MATRIX = f"matrix:\n  parallel.bucket_cap_mb: [{CAPS}]\n"
"""A thousand cells, the most that a file may have."""


def _refuse(text: str) -> str:
    with pytest.raises(ScenarioError) as refused:
        load_scenario(text, "large.yaml")
    return str(refused.value)


def _plan(text: str) -> dict[str, Plan]:
    return plan_each(load_scenario(text, "large.yaml"), plan_for_check)


def test_a_thousand_cells_are_a_scenario() -> None:
    assert len(load_scenario(SMALL + MATRIX, "large.yaml").cells) == 1000


@pytest.mark.parametrize(
    "more",
    [
        "matrix:\n  parallel.bucket_cap_mb: [1001]\n  include:\n"
        + "".join(f"    - {{parallel.bucket_cap_mb: {number}}}\n" for number in range(1, 1001)),
        "cells:\n" + "".join(f"  c{number}: {{}}\n" for number in range(1001)),
    ],
    ids=["included", "named"],
)
def test_more_cells_are_refused_however_they_are_written(more: str) -> None:
    said = _refuse(SMALL + more)
    assert "large.yaml:" in said
    assert "1000" in said


def test_what_all_cells_share_is_counted_for_each() -> None:
    variables = ", ".join(f'NCCL_V{number}: "1"' for number in range(200))
    said = _refuse(SMALL + MATRIX + f"env: {{{variables}}}\n")
    assert "1000 cells hold 22" in said
    assert "at most 150,000" in said


def test_what_a_named_variation_holds_is_counted_for_each_point() -> None:
    variables = ", ".join(f'NCCL_V{number}: "1"' for number in range(400))
    axes = f"matrix:\n  kind: {{a: {{env: {{{variables}}}}}, b: {{}}}}\n  parallel.bucket_cap_mb: [{CAPS[:1900]}]\n"
    assert "values together" in _refuse(SMALL + axes)


def test_a_mistake_that_all_cells_share_is_explained_until_it_is_clear() -> None:
    unknown = "".join(f"  unknown_{number}: 1\n" for number in range(100))
    said = _refuse(SMALL + unknown + MATRIX)
    assert "`unknown_0` is not a field of `parallel`" in said
    assert "of 1000 cells the first 21 are looked at" in said
    assert "... and 81 more mistakes." in said


def test_only_so_many_mistakes_are_explained_and_the_rest_is_not_denied() -> None:
    said = _refuse(SMALL + "".join(f"  unknown_{number}: 1\n" for number in range(4000)))
    assert "... and at least 180 more mistakes." in said


def test_where_a_mistake_is_is_looked_up_for_those_that_are_explained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of 3,500 wrong fields were found in each of eleven cells, to explain 200."""
    found: list[object] = []
    find = explain._find_spot
    monkeypatch.setattr(explain, "_find_spot", lambda loc, root, record: found.append(loc) or find(loc, root, record))  # type: ignore[func-returns-value]
    _refuse(SMALL.replace("layers: 2", "layer: 2") + "".join(f"  unknown_{number}: 1\n" for number in range(1000)))
    assert len(found) == MOST_MISTAKES + 1  # and the field that is missing


def test_mistakes_of_some_cells_say_among_how_many_they_were_seen() -> None:
    """Cells that nobody looked at any more are said to be neither right nor wrong."""
    unknown = ", ".join(f"unknown_{number}: 1" for number in range(100))
    cells = "".join(f"  c{number}: {{{'' if number % 2 else 'model: {' + unknown + '}'}}}\n" for number in range(60))
    said = _refuse(SMALL + "cells:\n" + cells)
    assert "of 60 cells the first 41 are looked at, as they have so many mistakes" in said


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "checks:\n" + "  - {kind: losses, tolerance: 1.0e-6}\n" * 201,
            "`checks` is a list of 201, and has at most 200",
        ),
        (
            "functions:\n" + "  - distributed.DistributedDataParallel.__init__\n" * 1000,
            "`functions` is a list of 1000, and has at most 140",
        ),
        (
            "checks: [{kind: losses, tolerance: 1.0e-6}]\nanswer: '" + "{highest step_time.median}" * 200 + "'\n",
            "at most 4000",
        ),
    ],
    ids=["checks", "functions", "answer"],
)
def test_claims_of_a_file_have_an_end(more: str, sentence: str) -> None:
    assert sentence in _refuse(SMALL + MATRIX + more)


def _name_many(knob: str) -> str:
    names = ", ".join(f"layers.{number}.ffn.w1" for number in range(1, 2000))
    return f"{SMALL.replace('layers: 2', 'layers: 2000')}  {knob}: [{names}]\n"


@pytest.mark.parametrize(("knob", "calls"), [("ignore", 2009), ("delay_all_reduce", 11)])
def test_thousands_of_names_among_thousands_of_layers(knob: str, calls: int) -> None:
    """Each name was looked for in each parameter: 36 million times. Ignored ones are reduced one by one."""
    plan = _plan(_name_many(knob))["ddp"]
    assert plan.traffic is not None
    whole = _plan(SMALL.replace("layers: 2", "layers: 2000"))["ddp"]
    assert whole.traffic is not None
    assert sum(part.size_bytes for part in plan.traffic) == sum(part.size_bytes for part in whole.traffic)
    assert sum(part.count for part in plan.traffic) == calls


def test_cells_with_very_many_blocks_together_are_not_planned() -> None:
    text = SMALL.replace("layers: 2", "layers: 1000") + f"matrix:\n  parallel.bucket_cap_mb: [{CAPS[:400]}]\n"
    file = load_scenario(text, "large.yaml")
    blocks = 1000 * len(file.cells)
    assert blocks > MOST_BLOCKS
    with pytest.raises(PlanError, match=f"^large: {len(file.cells)} cells have {blocks:,} blocks together"):
        plan_each(file, _never)


def test_cells_at_the_limit_are_planned() -> None:
    file = load_scenario(SMALL.replace("layers: 2", "layers: 100") + MATRIX, "large.yaml")
    with pytest.raises(StopIteration):
        plan_each(file, _never)


def _never(scenario: object) -> Plan:
    raise StopIteration(scenario)


def test_all_reasons_of_all_cells_are_told_at_once() -> None:
    text = SMALL.partition("parallel:")[0] + (
        "cells:\n  a: {parallel: {kind: ddp, replicas: 3}}\n  b: {parallel: {kind: ddp, replicas: 3}, repeat: auto}\n"
    )
    file: ScenarioFile = load_scenario(text, "large.yaml")
    with pytest.raises(PlanError) as refused:
        plan_each(file, plan_for_check, also=lambda _: ["and that"])
    lines = str(refused.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["large, cell `a`"] * 2 + ["large, cell `b`"] * 2 + ["large"]
    assert lines[1].endswith(": and that")


def test_what_probes_are_called_is_looked_up_and_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of names was held against each function, in every cell."""
    monkeypatch.setattr(functions, "FUNCTIONS", _Unread())
    assert functions.is_choice("fsdp")
    assert functions.is_choice("fsdp.DTensorExtensions.chunk_tensor")
    assert not functions.is_choice("fsdp0")


class _Unread:
    def __iter__(self) -> NoReturn:
        raise AssertionError("all functions were gone through")

"""Recipes of ``docs/architecture.md`` are followed to the letter in a copy of the repository: what they say is enough.

Left out in turn, each step is missed by a test that the recipe names.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.followed import ROOT, Steps, call, call_tests, follow, insert, list_touched

pytest.importorskip("torch", reason="the knob is one of torch's; install the extra `run`")

KNOB: Final = "all_reduce_gradients"
"""A switch of torch that no scenario has: ``set_requires_all_reduce``."""


def _add_field(text: str) -> str:
    head, mark, tail = text.partition("class Fsdp2(TensorParallel):")
    field = (
        f'    {KNOB}: bool = True\n    """All-reduce gradients over replicas at all (``set_requires_all_reduce``)."""\n'
    )
    return head + mark + insert(tail, "    manual_backward_finalization: bool", field)


def _add_switch(text: str) -> str:
    switch = f"""    _Switch(
        "{KNOB}",
        "set_requires_all_reduce",
        lambda unit, value: unit.set_requires_all_reduce(value),
        lambda group: bool(group.all_reduce_grads),
        on_root=False,
    ),
"""
    return insert(text, '    _Switch(\n        "reduce_scatter_unused_params",', switch)


def _decide(text: str) -> str:
    return insert(text, '    | {"force_sum_reduction", "gradient', f'    | {{"{KNOB}"}}\n')


def _ask(text: str) -> str:
    row = f'    "fsdp2 parallel.{KNOB}": _set("fsdp2", {KNOB}=False),\n'
    return insert(text, '    "fsdp2 parallel.manual_backward_finalization"', row)


STEPS: Final[Steps] = {
    "dtbench/scenario/schema/scenario.py": _add_field,
    "dtbench/worker/parallelize/fsdp2_switches.py": _add_switch,
    "dtbench/prediction/obstacles.py": _decide,
    "tests/worker/test_receipts.py": _ask,
}
PAGES: Final = ("docs/reference/scenario.md", "docs/reference/rules.md")
SCHEMAS: Final = ("docs/reference/schemas/check.json", "docs/reference/schemas/report.json")
"""The last step: ``python -m tests.docs`` writes them."""
WHAT_FAILS: Final = {
    "dtbench/worker/parallelize/fsdp2_switches.py": ("tests/worker/test_receipts.py", KNOB),
    "dtbench/prediction/obstacles.py": ("tests/prediction/test_obstacles.py", "every_knob"),
    "tests/worker/test_receipts.py": ("tests/worker/test_receipts.py", "every_knob"),
    PAGES[0]: ("tests/docs/test_pages.py", "what_the_code_says"),
}
"""By the step that is left out, the test that tells, and which of its functions."""


def list_files_of_recipe() -> list[str]:
    """Return what the recipe's steps begin with."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    recipe = page.partition("### Add a knob of FSDP2\n")[2].partition("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)`", recipe, re.MULTILINE)


def follow_knob(folder: Path, *, without: str | None = None) -> None:
    """Follow the recipe in a copy, but for one step."""
    follow(folder, STEPS, without=without)
    if without not in (*PAGES, *SCHEMAS):
        call(folder, "tests.docs")


def test_a_knob_that_follows_the_recipe_passes_and_runs(tmp_path: Path) -> None:
    follow_knob(tmp_path)
    assert list_touched(tmp_path) == {*STEPS, *PAGES, *SCHEMAS}
    assert list_files_of_recipe() == [*STEPS, *PAGES, "docs/reference/schemas/"]
    done = call_tests(tmp_path, *WHAT_FAILS.values())
    assert done.returncode == 0, done.stdout
    checked = call(tmp_path, "dtbench", "check", "fsdp2", "--set", f"parallel.{KNOB}=false", "--json")
    assert checked.returncode == 0, checked.stderr
    assert f'"{KNOB}": false' in checked.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("step", WHAT_FAILS)
def test_a_step_that_is_left_out_is_told_by_a_test(tmp_path: Path, step: str) -> None:
    follow_knob(tmp_path, without=step)
    done = call_tests(tmp_path, WHAT_FAILS[step])
    assert done.returncode == 1, done.stdout
    assert KNOB in done.stdout

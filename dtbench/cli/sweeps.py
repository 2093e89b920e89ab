"""``--sweep parallel.bucket_cap_mb=1,4,16``: a cell for each value of a field, without writing a file."""

from collections.abc import Sequence
from typing import Annotated

import typer

from dtbench.cli.complete import complete_cell, complete_field, complete_scenario
from dtbench.scenario.mistakes import AXIS_PREFIX

ScenarioToRun = Annotated[
    str,
    typer.Argument(help="Name of a scenario (see `dtbench list`) or path of a file.", autocompletion=complete_scenario),
]
"""The argument of every command that runs a scenario, here or elsewhere; below, its options."""

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override one field, e.g. model.layers=2; recorded.",
        autocompletion=complete_field,
    ),
]

OnlyCells = Annotated[
    list[str] | None,
    typer.Option(
        "--cell", metavar="CELL", help="Run this cell alone; again for one more.", autocompletion=complete_cell
    ),
]

Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="PATH=V,V,...",
        help="Make a cell of each value, e.g. parallel.bucket_cap_mb=1,4,16 (null leaves it unset); repeated, of their "
        "product. As `matrix:` in a file; what the file claims of its own cells is left out.",
        autocompletion=complete_field,
    ),
]
"""The option of every command that reads a scenario to run or to plan it."""


def read_sweeps(typed: Sequence[str] | None, option: str = "--sweep") -> list[str]:
    """Return each sweep as the override of the matrix that it stands for.

    Args:
        typed: a field and its values.
        option: by which they were typed.

    Raises:
        BadParameter: it names no field or no value.
    """
    return [_read_sweep(one, option) for one in typed or ()]


def _read_sweep(typed: str, option: str) -> str:
    path, equals, values = (part.strip() for part in typed.partition("="))
    if not (path and equals and values):
        raise typer.BadParameter(
            f"`{typed}`: write a field and its values, for example `{option} parallel.bucket_cap_mb=1,4,16`"
        )
    return f"{AXIS_PREFIX}{path}={values if _is_one_list(values) else f'[{values}]'}"


def _is_one_list(values: str) -> bool:
    """Tell whether the bracket with which values begin ends with them: ``[1,4]`` does, ``[1,4],[2,8]`` does not."""
    depth = 0
    for place, letter in enumerate(values):
        depth += (letter == "[") - (letter == "]")
        if not depth:
            return place > 0 and place == len(values) - 1
    return values.startswith("[")

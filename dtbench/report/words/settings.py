"""What tells the cells of a scenario apart: their knobs, as text."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from dtbench.base.redaction import redact_field
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.axes import UNSET

NOT_ON_AXIS: Final = "-"
"""The value of a cell on an axis that it leaves out."""

Settings: TypeAlias = Mapping[str, Mapping[str, str]]
"""What tells the cells apart, by cell and by name of the setting, as text."""


class Cell(Protocol):
    """What a planned cell and a summarized one have in common."""

    @property
    def name(self) -> str:
        """Of the cell."""
        ...

    @property
    def scenario(self) -> Scenario | None:
        """None for a person's own loop."""
        ...

    @property
    def coordinates(self) -> Mapping[str, str]:
        """Its value on each axis of a matrix."""
        ...


def find_settings(cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """Return what tells the cells apart, by cell: their places on the axes, else every field that differs, as text.

    Of fields, those that some cell has otherwise than by default: the others only tell which fields a strategy has.
    """
    placed = {cell.name: dict(cell.coordinates) for cell in cells}
    if not any(placed.values()):
        chosen = {name for cell in cells for name in _dump(cell, exclude_defaults=True)}
        dumped = {cell.name: _dump(cell) for cell in cells}
        placed = {
            cell: {name: text for name, text in of_cell.items() if name in chosen} for cell, of_cell in dumped.items()
        }
    return _keep_differing(placed, are_axes=any(cell.coordinates for cell in cells))


def find_written_settings(cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """Do the same with the fields that the file writes: one that another strategy lacks is no knob of its own."""
    placed = {cell.name: dict(cell.coordinates) for cell in cells}
    if not any(placed.values()):
        placed = {cell.name: _dump(cell, exclude_unset=True) for cell in cells}
    return _keep_differing(placed, are_axes=any(cell.coordinates for cell in cells))


def _dump(cell: Cell, *, exclude_unset: bool = False, exclude_defaults: bool = False) -> dict[str, str]:
    if cell.scenario is None:
        return {}
    return _flatten(
        cell.scenario.model_dump(mode="json", exclude_unset=exclude_unset, exclude_defaults=exclude_defaults)
    )


def _keep_differing(placed: Mapping[str, Mapping[str, str]], *, are_axes: bool) -> dict[str, dict[str, str]]:
    """Return the settings that differ; what a cell lacks of an axis it is not on, of other fields it leaves unset."""
    names, lacking = (
        list(dict.fromkeys(name for one in placed.values() for name in one)),
        NOT_ON_AXIS if are_axes else UNSET,
    )
    found = {cell: {name: settings.get(name, lacking) for name in names} for cell, settings in placed.items()}
    differing = [name for name in names if len({settings[name] for settings in found.values()}) > 1]
    return {cell: {name: redact_field(name, settings[name]) for name in differing} for cell, settings in found.items()}


def _flatten(fields: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return the fields of a scenario by their dotted paths, as text; what is None is left out."""
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{name}."))
        elif value is not None:
            flat[f"{prefix}{name}"] = f"{value:g}" if isinstance(value, float) else str(value)
    return flat

"""The pictures of a run or of traces, as loaded, by their names: ``plot_owners`` is ``owners``."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtbench.report.plots.names import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWS: Final = "plot_"


def list_plots(kind: type) -> list[str]:
    """Return the names of what can be drawn of reports of a kind."""
    return sorted(name.removeprefix(_DRAWS) for name in dir(kind) if name.startswith(_DRAWS))


def save_plot(report: object, name: str, path: Path) -> None:
    """Draw one of them, and write it as PNG, SVG or PDF, as the ending of the file says."""
    draw: Callable[[], Figure] = getattr(report, f"{_DRAWS}{name}")
    save_figure(draw(), path)

"""Figures: functions from a table or a summary to a ``Figure``, by the names that people use.

Nothing is shown and there is no global state; a notebook shows the figure that a cell ends with.
"""

from dtbench.report.plots.breakdown import MOST_CELLS, plot_step_breakdown
from dtbench.report.plots.cause_map import plot_causes
from dtbench.report.plots.comparison import plot_comparison
from dtbench.report.plots.drawing import figure_png, save_figure, save_picture
from dtbench.report.plots.exposed import plot_exposed, plot_exposed_owners
from dtbench.report.plots.history import plot_history
from dtbench.report.plots.overlap import plot_overlap
from dtbench.report.plots.panels import Whole, Wholes, wholes_of
from dtbench.report.plots.predict import plot_predicted
from dtbench.report.plots.rank_map import plot_ranks
from dtbench.report.plots.stages import plot_stage_memory, plot_stages
from dtbench.report.plots.steps import plot_step_distribution, plot_step_times
from dtbench.report.plots.sweep import plot_sweep
from dtbench.report.plots.sweep_map import plot_sweep_map
from dtbench.report.plots.timeline import Limits, plot_timeline
from dtbench.report.plots.what_if import plot_what_if

__all__ = [
    "MOST_CELLS",
    "Limits",
    "Whole",
    "Wholes",
    "figure_png",
    "plot_causes",
    "plot_comparison",
    "plot_exposed",
    "plot_exposed_owners",
    "plot_history",
    "plot_overlap",
    "plot_predicted",
    "plot_ranks",
    "plot_stage_memory",
    "plot_stages",
    "plot_step_breakdown",
    "plot_step_distribution",
    "plot_step_times",
    "plot_sweep",
    "plot_sweep_map",
    "plot_timeline",
    "plot_what_if",
    "save_figure",
    "save_picture",
    "wholes_of",
]

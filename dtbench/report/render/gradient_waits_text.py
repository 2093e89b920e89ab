"""What each tensor-parallel gradient was waited for, in the terminal."""

from rich.console import Group, RenderableType

from dtbench.base.units import count_things, format_ns
from dtbench.report.render.plain_text import Plain
from dtbench.report.render.sweep_table import headed_table
from dtbench.runs.summary import CellSummary

MOST_PARAMETERS = 12
"""Rows; ``--json`` has all."""


def render_gradient_waits(cell: CellSummary) -> RenderableType:
    """Give the longest waits first, a row for each parameter."""
    table = headed_table(
        "What hooks wait for gradients of the tensor axis, medians per backward",
        ("gradient of", "its hook\nwaits", "goes on\nafter issue", "hidden", "exposed"),
    )
    rows = sorted(cell.gradient_waits, key=lambda row: -row.wait_ns)
    for row in rows[:MOST_PARAMETERS]:
        times_ns = (row.wait_ns, row.since_issue_ns, row.hidden_ns, row.exposed_ns)
        table.add_row(Plain(row.parameter), *(Plain(format_ns(time_ns)) for time_ns in times_ns))
    rest = len(rows) - MOST_PARAMETERS
    if rest <= 0:
        return table
    return Group(table, Plain(f"and {count_things(rest, 'parameter')} with shorter waits; --json has all", style="dim"))

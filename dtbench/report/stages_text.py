"""What became of the training state, in the terminal: a row for each stage of each part."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from dtbench.analyze.summary import CellSummary, StageSummary
from dtbench.report.sweep_table import headed_table
from dtbench.units import format_bytes, format_ns

_HEADERS = (
    "stage of the",
    "slowest\nrank",
    "tensors\nof a rank",
    "collec-\ntives",
    "their\nsize",
    "host\nmemory",
    "bits",
)


def render_stages(cell: CellSummary) -> RenderableType:
    """Give stages in the order in which they ran, and below them every key that came out wrong."""
    table = headed_table("What became of the training state, medians over rounds", _HEADERS)
    for row in cell.stages:
        table.add_row(Text(f"{row.part}: {row.stage}"), *_words(row))
    return Group(table, *_mismatch_lines(cell))


def _words(row: StageSummary) -> Iterator[Text]:
    yield Text(format_ns(row.duration_ns))
    yield Text(format_bytes(row.state_bytes))
    yield Text(str(row.collectives))
    yield Text(format_bytes(row.sent_bytes))
    yield Text(f"+{format_bytes(row.host_peak_bytes)}")
    yield Text("WRONG", style="bold red") if row.mismatched else Text("equal", style="green")


def _mismatch_lines(cell: CellSummary) -> Iterator[Text]:
    for row in cell.stages:
        for wrong in row.mismatches:
            words = f"{row.stage} of the {row.part}, rank {wrong.rank}: {wrong.key}: {wrong.words}"
            yield Text(words, style="bold red")
        rest = row.mismatched - len(row.mismatches)
        if rest > 0:
            yield Text(f"{row.stage} of the {row.part}: and {rest} more", style="bold red")

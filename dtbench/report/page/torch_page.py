"""The torch that is here against the one that dtbench was tested with, as a page."""

from dtbench.report.page.page import Fact, Facts, Line, Page, Part, Tone
from dtbench.worker.torch_facts.compare import TorchReport, spell_places


def torch_page(report: TorchReport) -> Page:
    """Make the page of a torch: how much was looked at, then each thing that differs: what it breaks, and where."""
    counts = ((report.other_build, "of another build"), (report.unrecorded, "used since it was written down"))
    left_out = "".join(f", {count} {why} left out" for count, why in counts if count)
    answer = (
        f"torch {report.torch} against {report.tested}, which dtbench was tested with: "
        f"{report.looked_at:,} names looked at{left_out}, {len(report.differences)} differ"
    )
    differences = tuple(
        Fact(f"{one.kind} {one.name}", f"{one.change} — {one.breaks} — {spell_places(one.places)}")
        for one in report.differences
    )
    part = Part("differences", "What differs", (Facts(differences, key="differences"),))
    return Page(
        title="dtbench doctor --torch",
        answer=(Line(answer, Tone.BAD if differences else Tone.STRONG),),
        parts=(part,) if differences else (),
    )

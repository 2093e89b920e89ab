"""One screen of a comparison: what cannot be compared is not drawn, and pointers lead to where the rest is."""

from pathlib import Path

import pytest

from dtbench.comparison.comparison import Comparison, MetricChange, Outcome
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER
from dtbench.comparison.run import compare_all
from dtbench.report.page.brief.comparison import comparison_brief
from dtbench.report.page.comparison_page import MOST_OWNERS, choose_metrics, comparison_page
from dtbench.report.page.page import Chart, Table

EXAMPLE = Path(__file__).parents[3] / "results" / "example"
NAN = float("nan")


@pytest.fixture(scope="module")
def compared() -> Comparison:
    (comparison,) = compare_all([f"{EXAMPLE}:ddp", f"{EXAMPLE}:fsdp2_tp"], results=EXAMPLE.parent)
    return comparison


def change(comparison: Comparison, metric: str, **update: object) -> Comparison:
    metrics = tuple(
        one.model_copy(update=update) if one.metric == metric and not one.subject else one for one in comparison.metrics
    )
    return comparison.model_copy(update={"metrics": metrics})


def find_chart(comparison: Comparison) -> Chart | None:
    found = comparison_brief(comparison).parts[0].find("sides")
    assert found is None or isinstance(found, Chart)
    return found


def repeat(comparison: Comparison, candidate: tuple[float, ...]) -> Comparison:
    """Give both sides of every number several launches, of which some of the candidate's may not be known."""

    def spread(one: MetricChange) -> MetricChange:
        sides = {
            "baseline": one.baseline.model_copy(update={"values": (one.baseline.median,) * len(candidate)}),
            "candidate": one.candidate.model_copy(
                update={"values": tuple(one.candidate.median * x for x in candidate)}
            ),
        }
        return one.model_copy(update=sides)

    return comparison.model_copy(update={"metrics": tuple(map(spread, comparison.metrics))})


def test_what_cannot_be_compared_is_not_drawn_on_one_scale(compared: Comparison) -> None:
    assert find_chart(compared) is not None
    assert find_chart(change(compared, EXPOSED, outcome=Outcome.UNKNOWN)) is None
    assert find_chart(change(compared, "compute", outcome=Outcome.UNKNOWN)) is None


def test_bars_say_of_how_many_launches_they_are_and_whether_they_are_a_finding(compared: Comparison) -> None:
    whole = find_chart(repeat(compared, (1.0, 1.0)))
    assert whole is not None
    assert whole.note == "without copies; the share is of what is drawn"
    some = find_chart(repeat(compared, (1.0, NAN)))
    assert some is not None
    assert some.note.endswith("; fsdp2_tp: of 1 of 2 launches")
    uneven = change(repeat(compared, (1.0, NAN)), EXPOSED, candidate=repeat(compared, (1.0, 1.0)).metrics[0].candidate)
    assert find_chart(uneven) is None
    doubted = find_chart(compared.model_copy(update={"doubts": ("fsdp2_tp: PERHAPS NOT REPRESENTATIVE",)}))
    assert doubted is not None
    assert doubted.note.endswith("; no finding, see above")


def test_metrics_that_the_whole_page_has_not_are_not_said_to_be_there(compared: Comparison) -> None:
    owner = next(one for one in compared.metrics if one.metric == EXPOSED_BY_OWNER)
    changed = [
        owner.model_copy(update={"subject": f"layers.{at}", "outcome": Outcome.HIGHER}) for at in range(MOST_OWNERS + 2)
    ]
    others = [one for one in compared.metrics if one.metric != EXPOSED_BY_OWNER]
    many = compared.model_copy(update={"metrics": (*others, *changed)})
    whole = next(block for part in comparison_page(many).parts for block in part.blocks if block.key == "metrics")
    assert isinstance(whole, Table)
    assert len(whole.first_rows) == len(choose_metrics(many)) == len(others) + MOST_OWNERS
    assert len(whole.rows) == len(many.metrics)
    brief = comparison_brief(many).parts[0].find("metrics")
    assert isinstance(brief, Table)
    in_full = len(whole.first_rows) - len(brief.rows)
    assert brief.said == (f"and {in_full} more metrics: --full; and 2 more metrics of owners: --json",)

"""JUnit XML of a comparison: what passes, fails and is skipped, whatever a label holds; how long Markdown may be."""

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest

from dtbench.base.errors import ComparisonError, StoreError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Gate, judge, read_bound
from dtbench.comparison.run import compare_sides
from dtbench.report.page.comparison_page import comparisons_page
from dtbench.report.render.junit import list_cases, list_refused, write_junit
from dtbench.report.render.markdown import MOST_CHARACTERS, answer_markdown, answer_markdown_within
from dtbench.store.records.baseline import MeasuredSide
from tests.comparison.conftest import make_launch, make_side

STEADY = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)
WILD = (60.0, 95.0, 165.0, 120.0)


def compare(label: str, times_ms: tuple[float, ...], baseline: str = "main") -> Comparison:
    return compare_sides(_make(baseline, STEADY, 1000), _make(label, times_ms, 2000))


def _make(label: str, times_ms: tuple[float, ...], started: int) -> MeasuredSide:
    launches = [make_launch(place, time_ms, started=started + place) for place, time_ms in enumerate(times_ms)]
    return make_side(label, launches)


def list_of(comparisons: list[Comparison], *typed: str, passes_unestablished: bool = False) -> Element:
    bounds = [read_bound(one) for one in typed]
    judgements = tuple(judge(bound, one) for one in comparisons for bound in bounds)
    gate = Gate(judgements, comparisons[0].left_out, passes_unestablished) if bounds else None
    return fromstring(write_junit(list_cases(comparisons, gate)))


def endings(root: Element) -> list[tuple[str, str, str]]:
    return [
        (suite.attrib["name"], case.attrib["name"], case[0].tag)
        for suite in root.iter("testsuite")
        for case in suite.iter("testcase")
    ]


def test_each_bound_on_each_comparison_is_a_case() -> None:
    root = list_of([compare("slow", SLOW), compare("wild", WILD)], "step_time > 3%", "step_time > 90%")
    assert endings(root) == [
        ("slow against main", "step_time > 3%", "failure"),
        ("slow against main", "step_time > 90%", "system-out"),
        ("wild against main", "step_time > 3%", "skipped"),
        ("wild against main", "step_time > 90%", "skipped"),
    ]
    counts = {name: root.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "0", "skipped": "2"}
    failed = next(root.iter("failure"))
    assert "`step_time > 3%`, slow against main: EXCEEDED" in failed.attrib["message"]
    assert failed.text == failed.attrib["message"]
    assert "not established" in next(root.iter("skipped")).attrib["message"]


def test_what_a_person_lets_pass_passes() -> None:
    root = list_of([compare("wild", WILD)], "step_time > 3%", passes_unestablished=True)
    assert endings(root) == [("wild against main", "step_time > 3%", "system-out")]


def test_too_few_launches_and_what_was_left_out_are_skipped_with_their_reasons() -> None:
    found = compare("few", (100.0,)).model_copy(update={"left_out": ("new has 1 cell that old has not: `d`",)})
    root = list_of([found], "step_time > 3%")
    assert endings(root) == [
        ("few against main", "step_time > 3%", "skipped"),
        ("left out", "new has 1 cell that old has not: `d`", "skipped"),
    ]
    assert "too few" in next(root.iter("skipped")).attrib["message"]


def test_without_bounds_a_comparison_is_a_case_that_passes_with_its_sentence() -> None:
    found = compare("slow", SLOW)
    root = list_of([found])
    assert endings(root) == [("slow against main", "compared", "system-out")]
    assert next(root.iter("system-out")).text == found.sentence


@pytest.mark.parametrize(
    ("error", "ending"),
    [(ComparisonError("unlike environments"), "skipped"), (StoreError("main.json: broken"), "error")],
)
def test_what_was_not_compared_is_a_case_with_the_sentence(error: ComparisonError | StoreError, ending: str) -> None:
    root = fromstring(write_junit(list_refused(["main", "new"], error)))
    assert endings(root) == [("main and new", "compared", ending)]
    assert next(root.iter(ending)).attrib["message"] == str(error)


def test_no_label_breaks_the_document() -> None:
    label = "a<b>&\"'\x1b[31m\x00\ufffe]]>\n"
    root = list_of([compare(label, STEADY)], "step_time > 90%")
    ((suite, _, ending),) = endings(root)
    assert ending == "system-out"
    assert "a<b>&\"'\\x1b[31m\\x00\ufffd]]>" in suite


def test_markdown_of_many_comparisons_fits_a_comment_and_says_what_it_left_out() -> None:
    comparisons = [compare(f"cell{place}", STEADY) for place in range(60)]
    judgements = tuple(judge(read_bound("step_time > 90%"), one) for one in comparisons)
    page = comparisons_page(comparisons, Gate(judgements))
    whole, short = answer_markdown(page), answer_markdown_within(page)
    assert len(whole) > MOST_CHARACTERS >= len(short)
    assert short.count("<details>") == short.count("</details>")
    assert "passed, exit code 0: 60 kept" in short
    assert "parts left out, as a comment takes no more" in short.splitlines()[-1]
    few = comparisons_page(comparisons[:2], Gate(judgements[:2]))
    assert answer_markdown_within(few) == answer_markdown(few)


def test_markdown_whose_answer_alone_has_no_room_is_cut_at_a_line() -> None:
    page = comparisons_page([compare("cell", STEADY)])
    long = replace(page, notes=tuple(replace(page.answer[0], words=f"note {place} {'x' * 90}") for place in range(900)))
    short = answer_markdown_within(long)
    assert MOST_CHARACTERS // 2 < len(short) <= MOST_CHARACTERS
    assert all(line.endswith("x") for line in short.splitlines()[-5:-2])

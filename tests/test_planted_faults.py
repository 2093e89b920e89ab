"""Faults as people make them, planted one at a time: each is found by the fast test that states the right value.

A wrong aggregate, the wrong rank, an inverted comparison, a share of the wrong whole, columns swapped, a note dropped,
a zero for what is not known. Who moves a line that is planted here moves its row, too.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
RUNS: Final = "tests/runs/test_"
REPORT: Final = "tests/report/test_"
OVERLAP: Final = "tests/report/tb_plugin/test_overlap.py::test_"


@dataclass(frozen=True)
class Fault:
    """What is wrong, the file below ``dtbench``, what stands there, what is planted, and the test that finds it."""

    what: str
    file: str
    right: str
    wrong: str
    test: str


FAULTS: Final = (
    Fault(
        "worst warm-up inverted",
        "runs/cell/worst_ranks.py",
        "(not end.settled, end.steps)",
        "(end.settled, end.steps)",
        f"{RUNS}worst_ranks.py::test_the_worst_is_found_wherever_it_stands",
    ),
    Fault(
        "an owner's sum doubled",
        "runs/cell/summarize_owners.py",
        "owner_exposed_ns=sum(",
        "owner_exposed_ns=2 * sum(",
        f"{RUNS}summarize_owners.py::test_owners_come_by_all_their_exposed_time_and_causes_within_an_owner",
    ),
    Fault(
        "an owner's mean over steps of which it is not known",
        "runs/cell/summarize_owners.py",
        "exposed_ns=exposed_ns // known_windows",
        "exposed_ns=exposed_ns // windows",
        f"{RUNS}summarize_owners.py::test_what_is_not_known_of_one_step_is_in_no_mean_of_that_owner_and_bounds_nothing",
    ),
    Fault(
        "the fastest rank's steps beside a save",
        "runs/cell/summarize_state_steps.py",
        "[max(one) for one in zip",
        "[min(one) for one in zip",
        f"{RUNS}summarize_state_steps.py::test_the_slowest_rank_of_each_step_counts_and_wrong_keys_of_all",
    ),
    Fault(
        "wrong keys of one rank only",
        "runs/cell/summarize_stages.py",
        "mismatched=sum(compared)",
        "mismatched=max(compared)",
        f"{RUNS}summarize_stages.py::test_wrong_keys_of_all_ranks_add_up",
    ),
    Fault(
        "the wait of a stage's fastest rank",
        "runs/cell/summarize_stages.py",
        "        max(range(len(records))",
        "        min(range(len(records))",
        f"{RUNS}summarize_stages.py::test_the_slowest_rank_of_each_round_counts",
    ),
    Fault(
        "a hook's wait ends where it begins",
        "runs/cell/summarize_waits.py",
        '(rows["first_wait_ns"] + rows["wait_ns"] - rows["issue_ns"])',
        '(rows["first_wait_ns"] - rows["issue_ns"])',
        f"{RUNS}summarize_waits.py::test_a_parameter_waits_the_median_of_its_waits",
    ),
    Fault(
        "between steps of the fastest rank",
        "runs/cell/between_steps.py",
        'keep="last")',
        'keep="first")',
        f"{RUNS}between_steps.py::test_what_lies_between_a_step_and_the_next_is_of_the_slowest_rank",
    ),
    Fault(
        "a ratio to the mean",
        "runs/cell/statistics.py",
        "/ np.median(under))",
        "/ np.mean(under))",
        f"{RUNS}statistics.py::test_one_long_step_of_the_baseline_changes_no_part_of_a_ratio",
    ),
    Fault(
        "the mean of launches for their median",
        "runs/cell/statistics.py",
        "point = float(np.median(of_launches))",
        "point = float(np.mean(of_launches))",
        f"{RUNS}statistics.py::test_the_step_time_of_launches_is_the_median_of_their_medians",
    ),
    Fault(
        "the step of the fastest rank",
        "runs/reading/undisturbed.py",
        'groupby("step")["duration_ns"].max()]',
        'groupby("step")["duration_ns"].min()]',
        f"{RUNS}run.py::test_throughput_comes_from_measured_steps_of_the_slowest_rank",
    ),
    Fault(
        "utilization of one rank's peak",
        "runs/cell/summarize_cell.py",
        "(step_ns * cell.plan.ranks * peak)",
        "(step_ns * peak)",
        f"{RUNS}run.py::test_utilization_is_of_the_peak_of_all_ranks_in_the_time_of_the_slowest",
    ),
    Fault(
        "hosts for ranks of a host",
        "runs/cell/summarize_cell.py",
        "[max(Counter(record.host for record in records).values())",
        "[len(Counter(record.host for record in records))",
        f"{RUNS}run.py::test_how_many_ranks_share_a_host_is_the_most_that_one_has",
    ),
    Fault(
        "hidden share of the step",
        "runs/cell/summarize_cell.py",
        'fraction(overlap, "hidden_comm_ns", "comm_ns")',
        'fraction(overlap, "hidden_comm_ns", "step_ns")',
        f"{RUNS}run.py::test_communication_comes_from_the_trace_and_is_held_against_the_plan",
    ),
    Fault(
        "an owner's share doubled, of a run",
        "report/page/cell_rows.py",
        "share = sentences.fraction_of(",
        "share = 2 * sentences.fraction_of(",
        f"{REPORT}shares.py::test_an_owners_share_is_its_part_of_all_that_is_exposed",
    ),
    Fault(
        "an owner's share doubled, of traces",
        "report/page/trace_page.py",
        "exposed_ns / mean.windows, exposed_ns / total_ns",
        "exposed_ns / mean.windows, 2 * exposed_ns / total_ns",
        f"{REPORT}trace_report.py::test_owners_are_shown_by_cause_with_the_largest_first",
    ),
    Fault(
        "an owner's share doubled, in TensorBoard's tab",
        "report/tb_plugin/overlap.py",
        "sentences.fraction_of(parts[0].owner_exposed_ns, total_ns)",
        "2 * sentences.fraction_of(parts[0].owner_exposed_ns, total_ns)",
        f"{OVERLAP}an_owners_share_is_its_part_of_what_all_owners_exposed",
    ),
    Fault(
        "an owner's share doubled, in the plot",
        "report/plots/exposed.py",
        "fraction_of(float(sums.max()), float(sums.sum()))",
        "2 * fraction_of(float(sums.max()), float(sums.sum()))",
        f"{REPORT}plots_exposed.py::test_the_bars_are_the_tables_numbers_longest_owner_first_and_the_title_names_it",
    ),
    Fault(
        "the largest busbw for the median",
        "report/tb_plugin/collectives.py",
        'grouped["busbw"].median()',
        'grouped["busbw"].max()',
        "tests/report/tb_plugin/test_collectives.py",
    ),
    Fault(
        "warm-up settled where it did not",
        "report/page/cell_page.py",
        'if cell.warmup.settled else Fact("warm-up"',
        'if not cell.warmup.settled else Fact("warm-up"',
        f"{REPORT}text.py::test_warm_up_that_never_settled_and_unread_events_are_said",
    ),
    Fault(
        "a share of what was not all seen is zero",
        "report/page/cell_page.py",
        "row.comm_ns) if is_known else math.nan\n\n\ndef _exposed_share",
        "row.comm_ns) if is_known else 0.0\n\n\ndef _exposed_share",
        f"{REPORT}cell_page.py::test_a_share_of_what_was_not_all_seen_is_not_known",
    ),
    Fault(
        "exposed communication and copies swapped",
        "report/page/cell_page.py",
        "row.exposed_comm_ns, row.exposed_copy_ns,",
        "row.exposed_copy_ns, row.exposed_comm_ns,",
        f"{REPORT}cell_page.py::test_parts_of_a_step_stand_under_their_headers",
    ),
    Fault(
        "the shortest waits for gradients first",
        "report/page/cell_page.py",
        "key=lambda row: -row.wait_ns)",
        "key=lambda row: row.wait_ns)",
        f"{REPORT}cell_page.py::test_the_longest_waits_for_gradients_come_first_and_the_others_are_counted",
    ),
    Fault(
        "owners cut without saying so",
        "report/page/cell_page.py",
        "        rest=rest_of_owners(cell, MOST_OWNERS),\n",
        "",
        f"{REPORT}cell_page.py::test_owners_that_are_not_shown_first_are_summed_in_a_row",
    ),
    Fault(
        "what differs from the plan without its tone",
        "report/page/cell_page.py",
        'Cell("DIFFERS", Tone.BAD)',
        'Cell("DIFFERS")',
        f"{REPORT}cell_page.py::test_what_differs_from_the_plan_is_bad_in_its_row_and_in_the_line_below",
    ),
    Fault(
        "waits of a sweep swapped",
        "report/page/sweep.py",
        'make("gradient wait", lambda cell: spell.wait(cell, Purpose.GRAD_REDUCE)',
        'make("gradient wait", lambda cell: spell.wait(cell, Purpose.UNSHARD)',
        f"{REPORT}sweep.py::test_the_axes_come_first_and_then_what_was_measured",
    ),
    Fault(
        "notes of a sweep cut without saying so",
        "report/page/sweep.py",
        '*([f"and {rest} more notes: see --json"] if rest > 0 else [])',
        "",
        f"{REPORT}sweep.py::test_notes_of_cells_that_are_not_told_in_full_are_told_once",
    ),
    Fault(
        "better and worse inverted",
        "report/page/comparison_page.py",
        "(change.outcome is Outcome.HIGHER) == (change.better",
        "(change.outcome is Outcome.LOWER) == (change.better",
        f"{REPORT}comparison_page.py::test_what_is_established_is_better_or_worse_by_the_direction_of_its_metric",
    ),
    Fault(
        "what was taken for what was exposed",
        "report/page/comparison_page.py",
        "value=time_ns) for time_ns in row.exposed_ns),",
        "value=time_ns) for time_ns in row.duration_ns),",
        f"{REPORT}comparison_page.py::test_what_was_exposed_and_what_was_taken_stand_under_their_headers",
    ),
    Fault(
        "launches far from the others not named",
        "report/page/comparison_page.py",
        "return (*comparison.notes, *outliers)",
        "return comparison.notes",
        f"{REPORT}comparison_page.py::test_launches_far_from_the_others_are_named_and_so_is_the_noise_floor",
    ),
    Fault(
        "at least and at most swapped",
        "report/page/trace_page.py",
        "(_AT_LEAST, _AT_MOST) if overlap.is_least",
        "(_AT_MOST, _AT_LEAST) if overlap.is_least",
        f"{REPORT}trace_page.py::test_communication_is_at_least_what_was_seen_and_what_may_be_communication_at_most",
    ),
    Fault(
        "JSON with zeros for what is not known",
        "base/document.py",
        'return "NaN" if _is_unknown(value) else self.known.write(value)',
        "return 0 if _is_unknown(value) else self.known.write(value)",
        f"{REPORT}trace_page.py::test_json_tells_no_hidden_share_where_not_all_was_seen",
    ),
    Fault(
        "the mean rank in a curve",
        "report/event_files/dashboards.py",
        "as_index=False)[column].median()",
        "as_index=False)[column].mean()",
        f"{REPORT}event_files.py::test_one_rank_far_from_the_others_moves_no_curve",
    ),
    Fault(
        "exposed share of communication, in TensorBoard's tab",
        "report/tb_plugin/overlap.py",
        'known["exposed_comm_ns"].sum() / known["step_ns"].sum()',
        'known["exposed_comm_ns"].sum() / known["comm_ns"].sum()',
        f"{OVERLAP}the_sentence_says_what_of_the_time_of_steps_was_exposed",
    ),
    Fault(
        "a purpose's mean over the windows that have it",
        "runs/cell/summarize_overlap.py",
        "reindex(steps, fill_value=0)",
        "reindex(steps)",
        f"{OVERLAP}a_purpose_is_the_mean_over_all_windows_also_those_in_which_it_did_not_occur",
    ),
    Fault(
        "what is not known not said in the timeline",
        "report/timeline/document.py",
        "[*say_notes(spans.notes), *_note_unknown(ranks)]",
        "[*say_notes(spans.notes)]",
        "tests/report/timeline/test_documents.py::test_what_is_not_known_of_a_collective_is_null_and_no_zero_and_counted",
    ),
    Fault(
        "an issue that is not known at zero",
        "report/timeline/document.py",
        "None if collective.issue_ns is None else moment",
        "moment",
        "tests/report/timeline/test_documents.py::test_what_is_not_known_of_a_collective_is_null_and_no_zero_and_counted",
    ),
    Fault(
        "regions that begin in the window lost",
        "report/timeline/document.py",
        "(regions.starts_ns < window.end_ns)",
        "(regions.starts_ns < window.start_ns)",
        "tests/report/timeline/test_documents.py::test_each_region_of_the_shown_steps_is_told",
    ),
    Fault(
        "launches of other steps drawn as this one's",
        "traces/spans/host.py",
        "launched = self.host, np.isin(self.host.calls.event, self.calls)",
        "launched = self.host, self.host.calls.length_ns > 0",
        "tests/traces/spans/test_host.py::test_of_a_step_are_the_calls_that_launched_it_though_they_were_earlier",
    ),
    Fault(
        "launches tied where clocks do not fit",
        "report/timeline/document.py",
        "is_tied = not self.one.analysis.clock.is_off",
        "is_tied = True",
        "tests/traces/spans/test_host.py::test_where_clocks_do_not_fit_nothing_is_tied_to_its_launch_and_that_is_said",
    ),
    Fault(
        "good and warning swapped in the terminal",
        "report/render/terminal.py",
        'Tone.GOOD: "green",\n    Tone.WARNING: "yellow",',
        'Tone.GOOD: "yellow",\n    Tone.WARNING: "green",',
        f"{REPORT}media.py::test_a_terminal_shows_a_tone_in_its_colour_in_lines_and_in_cells",
    ),
    Fault(
        "warnings dropped in Markdown",
        "report/render/markdown.py",
        '        *(f"> {escape_markdown(note.words)}" for note in warnings),\n',
        "",
        f"{REPORT}media.py::test_an_answer_in_markdown_says_warnings_above_its_tables_and_notes_below",
    ),
    Fault(
        "notes of a table dropped in Markdown",
        "report/render/markdown.py",
        "map(escape_markdown, shown.said)",
        "()",
        f"{REPORT}media.py::test_a_short_table_says_what_it_cut_and_a_long_one_has_every_row",
    ),
    Fault(
        "sides of a comparison swapped",
        "report/notebook/compared.py",
        "lambda row: row.exposed_ns[0]",
        "lambda row: row.exposed_ns[1]",
        f"{REPORT}comparison_page.py::test_each_side_of_what_moved_has_its_columns",
    ),
    Fault(
        "the interval for the middle half",
        "report/words/sentences.py",
        "IQR {range_words(interval.quartile1, interval.quartile3)}",
        "IQR {range_words(interval.low, interval.high)}",
        f"{REPORT}cell_page.py::test_a_step_time_has_its_interval_and_the_middle_half_of_its_steps",
    ),
    Fault(
        "all causes for a bubble",
        "report/words/sentences.py",
        "for row in rows if row.cause is Cause.BUBBLE)",
        "for row in rows)",
        f"{REPORT}cell_page.py::test_a_pipelines_bubble_is_what_its_stages_stood_still_for_and_nothing_else",
    ),
    Fault(
        "equal bits as a warning",
        "report/page/stages.py",
        "StageOutcome.EQUAL: Tone.GOOD",
        "StageOutcome.EQUAL: Tone.WARNING",
        f"{REPORT}stages_text.py::test_only_equal_bits_are_good_and_what_contradicts_the_scenario_is_bad",
    ),
    Fault(
        "the most calls of a rank for the fewest",
        "runs/cell/summarize_extras.py",
        "calls=min(function.calls",
        "calls=max(function.calls",
        f"{RUNS}summarize_probes.py::test_of_ranks_that_differ_the_fewest_and_the_most_calls_are_told_and_the_mean_time",
    ),
    Fault(
        "steps of all ranks behind those of some",
        "runs/cell/summarize_overlap.py",
        "of_steps=len(among)",
        "of_steps=len(every)",
        f"{RUNS}known_parts.py::test_a_part_names_ranks_and_launches_and_counts_steps_among_those_alone",
    ),
    Fault(
        "a wait that nobody saw at zero",
        "runs/cell/summarize_overlap.py",
        "waits.where(waits > 0) if is_least",
        "waits if is_least",
        f"{RUNS}known_parts.py::test_a_wait_of_which_no_consumer_was_seen_is_zero_only_beside_one_that_was",
    ),
    Fault(
        "an owner's largest cause for all of them",
        "runs/cell_numbers.py",
        "return sum(rows) if rows",
        "return max(rows) if rows",
        f"{RUNS}judge_checks.py::test_an_owners_exposed_time_is_that_of_all_its_causes",
    ),
    Fault(
        "the most launches of a cell for the fewest",
        "runs/judge_checks.py",
        "launches=min((len(cell.launches)",
        "launches=max((len(cell.launches)",
        f"{RUNS}judge_checks.py::test_checks_are_of_the_launches_that_the_cell_with_fewest_has",
    ),
    Fault(
        "the cheapest rank's cost of a probe",
        "runs/function_coverage.py",
        "max(costs, default=None)",
        "min(costs, default=None)",
        f"{RUNS}function_coverage.py::test_a_probe_costs_what_it_did_on_the_rank_where_it_cost_most",
    ),
)

PLANT: Final = """
import importlib.machinery, pathlib, sys
import pytest

path, right, wrong, test = sys.argv[1:]
source = pathlib.Path(path).read_text(encoding="utf-8").replace(right, wrong)
get_code = importlib.machinery.SourceFileLoader.get_code

def get_planted(self, name):
    return compile(source, path, "exec", dont_inherit=True) if self.path == path else get_code(self, name)

importlib.machinery.SourceFileLoader.get_code = get_planted
sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]))
"""
"""Runs a test on the package in which one text stands for another; no file is touched."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_what_a_fault_replaces_stands_there_once(fault: Fault) -> None:
    text = (ROOT / "dtbench" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, "-c", PLANT, str(ROOT / "dtbench" / fault.file), fault.right, fault.wrong, fault.test],
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout, done.stdout + done.stderr

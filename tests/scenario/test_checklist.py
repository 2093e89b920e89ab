"""What a file claims: functions, checks, an answer; each mistake is told with its line."""

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario.checks.check_words import describe_check
from dtbench.scenario.checks.checklist import Bound, Checklist, name_cells
from dtbench.scenario.checks.values import Quantity, read_value
from dtbench.scenario.load import ScenarioFile, choose_cells, load_scenario
from dtbench.seeds.functions import ALL

FORWARD = "distributed.DistributedDataParallel.forward"
HOOK = "_data_parallel_utils.sync_grad_hook"

CLAIMS = f"""\
functions: [{FORWARD}]
checks:
  - kind: bound
    value: purposes.grad_reduce.wait_ns
    cell: ddp
    over: fsdp
    at_least: 0.5
    at_most: 2
    because: both send the same
  - {{kind: bound, value: memory.rss_peak_bytes, at_most_mib: 1024}}
  - {{kind: bound, value: step_time.median, cell: ddp, minus: fsdp, at_most_ms: 10}}
  - {{kind: order, value: step_time.median, cells: [ddp, fsdp], apart: 0.02}}
  - {{kind: prediction, cell: ddp}}
  - {{kind: receipt, knob: parallel.forward_prefetch, outcome: no_effect, cell: fsdp}}
  - {{kind: cause, purpose: grad_reduce, leads: tail, cell: ddp}}
  - {{kind: losses, tolerance: 1.0e-5}}
  - {{kind: bound, value: probes.{FORWARD}.calls, at_least: 20, cell: ddp}}
answer: "DDP: {{step_time.median of ddp}}, {{step_time.median of ddp over fsdp}}; best: {{lowest step_time.median}}."
"""


def load(text: str, *overrides: str) -> ScenarioFile:
    return load_scenario(text, "my.yaml", overrides)


def told(text: str, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as refusal:
        load(text, *overrides)
    return str(refusal.value)


def test_a_file_claims_functions_checks_and_an_answer(two_cells: str) -> None:
    checklist = load(two_cells + CLAIMS).checklist
    assert checklist.functions == (FORWARD,)
    assert [check.kind for check in checklist.checks] == [
        *("bound", "bound", "bound", "order", "prediction", "receipt", "cause", "losses", "bound")
    ]
    assert checklist.answer is not None


def test_a_file_may_claim_nothing(two_cells: str) -> None:
    assert load(two_cells).checklist == Checklist()
    assert load(two_cells).checklist.is_empty


def test_checks_read_as_a_person_says_them(two_cells: str) -> None:
    words = [describe_check(check) for check in load(two_cells + CLAIMS).checklist.checks]
    assert words == [
        "purposes.grad_reduce.wait_ns of ddp over fsdp: between 0.500 x and 2.00 x",
        "memory.rss_peak_bytes of every cell: at most 1.00 GiB",
        "step_time.median of ddp minus fsdp: at most 10.0 ms",
        "step_time.median: ddp < fsdp, each by at least 2.0 %",
        "step time of ddp inside the bounds of its closed form",
        "parallel.forward_prefetch of fsdp has no effect here, says torch",
        "exposed grad_reduce of ddp: largest cause tail (nothing left to hide behind)",
        "losses of all cells equal to 1e-05",
        f"probes.{FORWARD}.calls of ddp: at least 20",
    ]


def test_functions_are_probed_in_every_cell(two_cells: str) -> None:
    cells = load(f"{two_cells}functions: [{FORWARD}]\n").cells
    assert [cell.scenario.measure.probes for cell in cells] == [(FORWARD,), (FORWARD,)]


def test_functions_that_are_probed_already_are_not_named_twice(two_cells: str) -> None:
    cells = load(f"{two_cells}functions: [{FORWARD}]\nmeasure: {{probes: true}}\n").cells
    assert cells[0].scenario.measure.probes == (ALL,)


def test_functions_are_not_probed_where_lines_are_traced(two_cells: str) -> None:
    cells = load(two_cells + CLAIMS, "measure.line_coverage=true").cells
    assert cells[0].scenario.measure.probes == ()


@pytest.mark.parametrize(
    ("claims", "line", "sentence"),
    [
        ("functions: [distributed.DistributedDataParallel.forwards]", 1, f"did you mean `{FORWARD}`?"),
        (
            "functions: [_state_dict_utils._flatten_state_dict.flat_copy]",
            1,
            "made anew at every call of `_state_dict_utils._flatten_state_dict`",
        ),
        ("functions: fsdp", 1, "`functions` must be a list, each item a text, not 'fsdp'"),
        ("checks: {kind: bound}", 1, "`checks` must be a list"),
        ("checks:\n  - kind: bond\n    value: hidden_fraction", 2, "did you mean `bound`?"),
        ("checks:\n  - value: hidden_fraction", 2, "`checks.kind` is missing"),
        ("checks:\n  - {kind: bound, at_most: 1}", 2, "`checks.value` is missing"),
        (
            "checks:\n  - kind: bound\n    value: step_time.medium\n    at_most_ms: 1",
            3,
            "did you mean `step_time.median`?",
        ),
        ("checks:\n  - {kind: bound, value: hidden_fraction}", 2, "has no bound: write `at_least` and `at_most`"),
        (
            "checks:\n  - {kind: bound, value: step_time.median, at_most: 1}",
            2,
            "`at_most` does not fit a time, write `at_",
        ),
        (
            "checks:\n  - {kind: bound, value: hidden_fraction, at_most_ms: 1}",
            2,
            "`at_most_ms` does not fit a fraction",
        ),
        (
            "checks:\n  - {kind: bound, value: step_time.median, cell: ddp, over: fsdp, at_most_ms: 1}",
            2,
            "`at_most_ms` does not fit a ratio",
        ),
        (
            "checks:\n  - {kind: bound, value: hidden_fraction, at_least: 0.5, at_most: 0.4}",
            2,
            "the lower bound is above the upper one",
        ),
        ("checks:\n  - {kind: bound, value: hidden_fraction, at_most: .nan}", 2, "must be a number"),
        (
            "checks:\n  - {kind: bound, value: hidden_fraction, over: ddp, minus: fsdp, at_most: 1}",
            2,
            "compare in three ways; write a check for each",
        ),
        (
            "checks:\n  - {kind: bound, value: step_time.median, per: cpu_ns_per_step, at_most_ms: 1}",
            2,
            "`at_most_ms` does not fit a ratio",
        ),
        (
            "checks:\n  - {kind: bound, value: step_time.median, per: exposure.wait.mean_ns, at_most: 1}",
            2,
            "add `wait` to `measure.exposure`",
        ),
        (
            "checks:\n  - {kind: bound, value: hidden_fraction, cell: ddp, over: ddp, at_most: 1}",
            2,
            "compares `ddp` with itself",
        ),
        (
            "checks:\n  - kind: bound\n    value: hidden_fraction\n    cell: dpp\n    at_most: 1",
            4,
            "no cell is called `dpp`; did you mean `ddp`?",
        ),
        ("checks:\n  - kind: order\n    value: hidden_fraction\n    cells: [ddp, hsdp]", 4, "no cell is called `hsdp`"),
        ("checks:\n  - {kind: order, value: hidden_fraction, cells: [ddp]}", 2, "`cells` must name two or more cells"),
        ("checks:\n  - {kind: losses, tolerance: 0, cells: [ddp, ddp]}", 2, "`cells` must name two or more cells"),
        ("checks:\n  - {kind: cause, leads: tails}", 2, "did you mean `tail`?"),
        ("checks:\n  - {kind: receipt, knob: seed, outcome: disagrees}", 2, "must be `agrees` or `no_effect`"),
        ("checks:\n  - {kind: estimates}", 2, "does not measure that: `measure.exposure` must name two estimates"),
        (
            "checks:\n  - {kind: bound, value: exposure.ablation.mean_ns, at_most_ms: 9}",
            2,
            "add `ablation` to `measure.exposure`",
        ),
        (f"checks:\n  - {{kind: bound, value: probes.{HOOK}.awaited.calls, at_least: 1}}", 2, f"name `{HOOK}` under"),
        (
            f"functions: [{HOOK}]\nchecks:\n  - {{kind: bound, value: probes.{HOOK}.awaitd.calls, at_most: 0}}",
            3,
            f"no branch of `{HOOK}` is called `awaitd`; did you mean `awaited`?",
        ),
        (
            f"functions: [{FORWARD}]\nchecks:\n  - {{kind: bound, value: probes.{FORWARD}.inner.calls, at_most: 0}}",
            3,
            f"no branch of `{FORWARD}` is called `inner`; they have no names",
        ),
        ("answer: Yes.", 1, "an answer needs `checks:`"),
        ("cells: {a: {checks: []}}", 1, "`cells` is written twice"),
    ],
)
def test_a_mistake_is_told_with_its_line(two_cells: str, claims: str, line: int, sentence: str) -> None:
    message = told(f"{two_cells}{claims}\n")
    assert f"my.yaml:{two_cells.count(chr(10)) + line}:" in message
    assert sentence in message


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("{step_time.medium of ddp}", "did you mean `step_time.median`?"),
        ("{step_time.median of dpp}", "no cell is called `dpp`; did you mean `ddp`?"),
        ("{step_time.median}", "does not say of which cell; the cells are `ddp` and `fsdp`"),
        ("{step_time.median of ddp over fsd}", "no cell is called `fsd`; did you mean `fsdp`?"),
        ("{step_time.median of ddp by fsdp}", "write `{value of cell}`"),
        ("{step_time.median of ddp", "a `{` without its `}`"),
        ("{exposure.wait.mean_ns of ddp}", "add `wait` to `measure.exposure`"),
    ],
)
def test_a_placeholder_that_stands_for_nothing_is_told_with_its_line(
    two_cells: str, answer: str, sentence: str
) -> None:
    claims = f'checks: [{{kind: prediction}}]\nanswer: "{answer}"\n'
    message = told(two_cells + claims)
    assert f"my.yaml:{two_cells.count(chr(10)) + 2}:" in message
    assert sentence in message


def test_mistakes_of_cells_and_of_checks_are_told_at_once(two_cells: str) -> None:
    message = told(two_cells.replace("layers: 2", "layer: 2") + "checks: [{kind: prediction, cell: dpp}]\n")
    assert "did you mean `layers`?" in message
    assert "no cell is called `dpp`" in message


@pytest.mark.parametrize("override", ["checks=[]", "functions=[]", "answer=Yes."])
def test_what_a_file_claims_cannot_be_overridden(two_cells: str, override: str) -> None:
    assert "says what the file claims; change it in the file" in told(two_cells + CLAIMS, override)


def test_an_override_may_measure_less_than_the_checks_need(two_cells: str) -> None:
    text = f"{two_cells}measure: {{exposure: [trace, ablation]}}\nchecks: [{{kind: estimates}}]\n"
    assert load(text).cells
    assert load(text, "measure.exposure=[trace]").cells


def test_cells_take_no_part_in_the_claims_of_their_file(small: str) -> None:
    assert "`checks` belongs to the file, not into a cell" in told(f"{small}cells: {{a: {{checks: []}}}}\n")


def test_bounds_are_nanoseconds_and_bytes_inside() -> None:
    time = Bound(kind="bound", value="step_time.median", at_least_ms=1.5, at_most_ms=2)
    assert (time.low, time.high) == (1_500_000, 2_000_000)
    size = Bound(kind="bound", value="purposes.unshard.size_bytes", at_most_mib=2)
    assert (size.low, size.high) == (None, 2 * 1024 * 1024)
    ratio = Bound(kind="bound", value="step_time.median", over="a", at_least=0.9)
    assert (ratio.low, ratio.high) == (0.9, None)


@pytest.mark.parametrize(
    ("name", "path", "quantity"),
    [
        ("step_time.median", ("step_time", "median"), Quantity.TIME),
        ("purposes.unshard.size_bytes", ("purposes", "unshard", "size_bytes"), Quantity.SIZE),
        ("causes.tail.exposed_ns", ("causes", "tail", "exposed_ns"), Quantity.TIME),
        (
            "purposes.tensor.causes.needed_at_once.exposed_ns",
            ("purposes", "tensor", "causes", "needed_at_once", "exposed_ns"),
            Quantity.TIME,
        ),
        ("owners.bucket 0.exposed_ns", ("owners", "bucket 0", "exposed_ns"), Quantity.TIME),
        ("owners.layers.0.exposed_ns", ("owners", "layers.0", "exposed_ns"), Quantity.TIME),
        ("ranks.mean.idle_ns", ("ranks", "mean", "idle_ns"), Quantity.TIME),
        ("ranks.1.step_ns", ("ranks", "1", "step_ns"), Quantity.TIME),
        (f"probes.{HOOK}.raised", ("probes", HOOK, "", "raised"), Quantity.COUNT),
        (
            f"probes.{HOOK}.awaited on the compute stream.per_call_ns",
            ("probes", HOOK, "awaited on the compute stream", "per_call_ns"),
            Quantity.TIME,
        ),
    ],
)
def test_a_value_is_named_as_in_json(name: str, path: tuple[str, ...], quantity: Quantity) -> None:
    value = read_value(name)
    assert (value.path, value.quantity) == (path, quantity)


@pytest.mark.parametrize(
    "name",
    ["purposes.unshards.wait_ns", "ranks.first.idle_ns", "probes.nobody.calls", "step_time", "causes.exposed_ns"],
)
def test_no_number_is_called_so(name: str) -> None:
    with pytest.raises(ValueError, match="a cell has no number called"):
        read_value(name)


def test_equal_bounds_read_as_one() -> None:
    count = Bound(kind="bound", value="purposes.grad_reduce.count", at_least=2, at_most=2)
    assert describe_check(count) == "purposes.grad_reduce.count of every cell: exactly 2"


def test_a_share_of_a_cause_reads_as_a_share() -> None:
    value, per = "purposes.tensor.causes.needed_at_once.exposed_ns", "purposes.tensor.exposed_ns"
    share = Bound(kind="bound", value=value, per=per, cell="tp", at_least=0.2)
    assert describe_check(share) == "exposed tensor of tp, share needed at once: at least 20.0 %"
    other = Bound(kind="bound", value=value, per="purposes.unshard.exposed_ns", cell="tp", at_least=0.2)
    assert describe_check(other) == f"{value} per purposes.unshard.exposed_ns of tp: at least 0.200 x"


def test_of_some_cells_only_what_is_about_these_is_claimed(two_cells: str) -> None:
    file = load(two_cells + CLAIMS)
    assert choose_cells(file, ()) is file
    chosen = choose_cells(file, ["ddp", "ddp"])
    assert ([cell.name for cell in chosen.cells], chosen.only) == (["ddp"], ("ddp",))
    checks = chosen.checklist.checks
    assert [check.kind for check in checks] == ["bound", "prediction", "cause", "bound"]  # one cell has no equal losses
    assert all(name == "ddp" for check in checks for name in name_cells(check))
    assert (chosen.checklist.answer, chosen.checklist.functions) == (None, ())
    both = choose_cells(file, ["fsdp", "ddp"])
    assert (both.only, len(both.checklist.checks)) == (("ddp", "fsdp"), len(file.checklist.checks))
    with pytest.raises(ScenarioError, match=r"`my` has no cell `dpd`; did you mean `ddp`\?"):
        choose_cells(file, ["dpd"])

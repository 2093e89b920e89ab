"""What ``--json`` prints, held against the schema of its kind: every key is declared, and says what it means."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest

from dtbench.base.columns import Unit
from dtbench.base.document import NS, TEXT, Key, Many, OrNan, OrNull, Schema, Shape, make_schema
from dtbench.cli.doctor_document import document as doctor_document
from dtbench.cli.machine_checks import Ability, Finding, LookedAt
from dtbench.cli.main import main
from dtbench.cli.schema import DOCUMENTS, find_schema
from dtbench.cli.torch_probe import CudaDevice, NoTorch, Torch
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Judgement, Kept
from dtbench.comparison.run import compare_all
from dtbench.comparison.run_list import ListedCell, RunList, Wanted
from dtbench.plan.plan import Machine, plan_for_check
from dtbench.proof.claims import Claim
from dtbench.proof.document import Proof
from dtbench.proof.document import document as prove_document
from dtbench.proof.proven import Proven
from dtbench.replay.read import read_graph
from dtbench.replay.what_if import ask
from dtbench.report.documents import (
    archive,
    catalogue,
    clean,
    comparison,
    coverage,
    history,
    listed,
    orders,
    plans,
    runs,
    tables,
    traces,
)
from dtbench.report.documents import run as run_document
from dtbench.report.documents.predict import AskedWorlds
from dtbench.report.documents.predict import document as predict_document
from dtbench.report.documents.torch_report import document as torch_document
from dtbench.report.documents.what_if import Asked
from dtbench.report.documents.what_if import document as what_if_document
from dtbench.report.export.perfetto import plan_archive
from dtbench.report.page.catalogue_page import CAN_RUN, Catalogue, CatalogueRow
from dtbench.runs.cleaning import Cleaning, Removal, Why
from dtbench.runs.function_coverage import CoveredFunction, FunctionCoverage, State
from dtbench.runs.run import summarize_run
from dtbench.runs.scaling.curve import Subject, draw_curve
from dtbench.runs.scaling.links import Cluster, read_link
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.settings.forecast import Forecast, SettingAnswer
from dtbench.runs.summary import RunSummary
from dtbench.scenario.catalog import list_scenarios, open_scenario
from dtbench.scenario.written import write_scenario
from dtbench.seeds.functions import Reach
from dtbench.selftest.document import document as selftest_document
from dtbench.selftest.records import RowOutcome, SelftestRecord
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_environment
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.run import Commit
from dtbench.traces.account.probe_times import ProbeTime
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.reader.find import find_traces
from dtbench.traces.rows.launch_tables import make_empty_tables
from dtbench.traces.rows.tables import OVERLAP, PURPOSES
from dtbench.tuning.answer import PointAnswer, Status, Tuned
from dtbench.tuning.document import document as tune_document
from dtbench.tuning.search import Stage, Told
from dtbench.worker.torch_facts.compare import Difference, TorchReport
from dtbench.worker.torch_facts.facts import Kind
from tests.docs.json_page import scenario_sections
from tests.made_history import PLANTED, draw_values
from tests.made_history import make_history as made_history
from tests.made_selftest import CELL, FAILED, record_of

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "traces" / "recorded"
NAN = float("nan")
TRACES = ("ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz")


@pytest.fixture(scope="module")
def analysed() -> TraceSet:
    return analyze_traces([RECORDED / TRACES[0]])


def asked() -> object:
    recorded = read_graph(analyze_traces([RECORDED / TRACES[0]]))
    refused, doubts = {"ddp": "no trace of it is there"}, {"": "unreliable"}
    answers = (SettingAnswer("network.latency_us=0", "", 2e6, 1e6, None, None), SAID)
    settings = {"ddp": Forecast(3e6, 4, 1, answers, (("parallel.x=1", "there is none"),))}
    return what_if_document(
        Asked("traces", {"": ask([recorded])}, refused, doubts, settings, {"fsdp2": "its costs are not known"})
    )


SAID = SettingAnswer("parallel.bucket_cap_mb=2", "memory", 2.5e6, 0.5e6, 0.2e6, 0.8e6)


def proven() -> object:
    claim = Claim("ddp", "changed_1", SAID.change, SAID)
    return prove_document(
        Proof(
            "results/made_proof/1",
            (
                Proven(claim, 3e6, 2.6e6, 0.3e6, 0.5e6, 2.5e6, ""),
                Proven(Claim("ddp", "changed_2", "a.b=1", None), NAN, NAN, NAN, NAN, None, "a rank failed"),
            ),
        )
    )


def predicted() -> object:
    """Return what is said of a cell that ran, of one that did not, and of one of which nothing is known."""
    words: dict[str, Any] = {
        "model": {"kind": "timed", "layers": 2, "forward_ms": 1.0, "backward_ms": 2.0},
        "data": {"global_batch": 8, "sequence_length": 8},
        "parallel": {"kind": "ddp", "replicas": 2, "tensor": 2},
        "network": {"kind": "emulated", "bandwidth_gb_per_s": 1.0, "algorithm": "ring"},
    }
    (cell,) = write_scenario("made", "Is it?", words).cells
    ran = Measured(4, (3e8, 3.1e8), (8e6, 9e6), 8e6, 1e6, 2)
    cluster = Cluster(read_link("nvlink4"), read_link("400G"), 8)
    curves = [
        draw_curve(Subject("ddp", cell.scenario, "2.13.0", (ran,)), (4, 64), cluster),
        draw_curve(Subject("blind", cell.scenario), (2, 3), cluster),
    ]
    refused = {"real": "network.kind=real has no known cost"}
    return predict_document(AskedWorlds(["results/made/1"], (2, 3, 4, 64), cluster, curves, refused))


def tuned() -> object:
    told = Told(2.6e6, 0.4e6, 0.2e6, None)
    points = (
        PointAnswer("point_1", SAID.change, Status.BEST, "best", "", told, 2.5e6, 7, 0.5e6, 0.4e6, 0.6e6),
        PointAnswer("point_2", "", Status.SAME, "same as", "the unchanged cell", None, NAN, 0, NAN, NAN, NAN),
    )
    rounds = (("results/made_tune/1", Stage.UNCHANGED), ("results/made_tune/2", Stage.CONFIRM))
    answer = Tuned(
        *("made", "ddp", SAID.change, 3e6, points, 0.008, NAN, 16, 50, None, 150, rounds, 4, "", ""),
        doubts={"others took the cores": 2},
        peak_bytes=(3, 4),
        is_checked=True,
    )
    return tune_document(answer)


def made_catalogue() -> Catalogue:
    rows = (
        CatalogueRow("one", "Is it?", CheckOutcome.PASSED, "Yes.", "results/one/1", 4, 12_000_000_000),
        CatalogueRow("two", "Is that?", CheckOutcome.NOT_JUDGED, "FAILED: planted"),
        CatalogueRow("three", "And that?", None, CAN_RUN),
    )
    return Catalogue(rows, "Reached: 1 of 2 functions")


def made_selftest() -> SelftestRecord:
    cell = CELL.model_copy(update={"step_ns": None, "agree": None})
    return record_of(
        RowOutcome(row="tail", claim="so", passed=False, cells=(cell,), checks=(FAILED,), disturbed={"tail": 0.5})
    )


def made_coverage() -> FunctionCoverage:
    ran = CoveredFunction(
        *("distributed.py", "forward", Reach.DRIVEN, "the public one", State.REACHED, ("ddp",), True, True, 4, 9),
        time=ProbeTime(calls=2, total_ns=5, exposed_ns=1),
        branches={"fast": 4},
        remarks=("so",),
    )
    return FunctionCoverage((ran, CoveredFunction("x.py", "f", None, "", State.NOT_WATCHED)), None, ("a note",))


def made_doctor(torch: Torch | NoTorch) -> LookedAt:
    machine = Machine(cpu_cores=2, cuda_devices=0, memory_bytes=None, torch=None)
    return LookedAt([Finding("gloo", "no", "get it"), Finding("x", "y")], [Ability("ddp", False, "no")], torch, machine)


def made_tables() -> tables.RemadeTables:
    """Return the tables of a launch in which nothing is known of a step, and in the other only lengths are."""
    known = {column.name: 7 if column.is_number else True for column in OVERLAP.columns}
    overlap = pd.DataFrame(
        [{"rank": 0, "step": 3, **known}, {"rank": 0, "step": 4}], columns=list(OVERLAP.dtypes)
    ).astype(OVERLAP.dtypes)
    row = {"rank": 0, "step": 3, "purpose": "unshard", "count": 2}
    purposes = pd.DataFrame([row], columns=list(PURPOSES.dtypes)).astype(PURPOSES.dtypes)
    empty = make_empty_tables()
    launch = replace(
        empty,
        tables={**empty.tables, "overlap": overlap, "purposes": purposes},
        unknown_names=(("nccl_x", 2),),
        notes=("a note",),
    )
    summary = summary_of("example")
    left = summary.cells[0].model_copy(update={"unreadable": {1: "it is cut"}})
    return tables.RemadeTables(Path("run"), {("ddp", 0): launch}, summary.model_copy(update={"cells": (left,)}))


def made_archive() -> archive.WrittenArchive:
    found = find_traces(RECORDED / TRACES[0])
    return archive.WrittenArchive(plan_archive(analyze_traces([RECORDED / TRACES[0]]), found.sources), Path("x.tar"), 9)


def made_runs() -> RunList:
    environment = read_environment(ROOT / "results" / "example")
    commit = Commit(revision="a" * 40, is_dirty=None)
    bare = ListedCell(Path("run"), "small", "1", against=("it is cut",))
    known = replace(bare, cell="ddp", launches=1, step_ns=1e6, exposed_fraction=0.5, environment=environment)
    with_code = replace(known, environment=environment.model_copy(update={"commit": commit}))
    return RunList(Path("results"), Wanted(), [bare, known, with_code], (Path("older"), 1), 1)


def made_cleaning() -> clean.Cleaned:
    removal = Removal(Path("run"), 1, (LaunchFolder(Path("launch0")),), 2, 3)
    return clean.Cleaned(Cleaning(Path("results"), [removal], [(Path("other"), Why.PINNED, "")]), is_done=False)


def check(name: str) -> object:
    file = open_scenario(name, [])
    return plans.document(
        plans.CheckedScenario(file, {cell.name: plan_for_check(cell.scenario) for cell in file.cells})
    )


@cache
def summary_of(example: str) -> RunSummary:
    return summarize_run(ROOT / "results" / example)


def report(example: str) -> object:
    return run_document.document(summary_of(example))


def analyze(trace: str) -> object:
    return traces.document(analyze_traces([RECORDED / trace]))


@cache
def compare_example() -> tuple[Comparison, ...]:
    named = ["results/example:ddp", "results/example:fsdp2_tp"]
    return tuple(compare_all(named, results=Path("results"), force=True, threshold=0.01, asked=frozenset(["layers.3"])))


def compared(*judgements: Judgement) -> object:
    return comparison.document(compare_example(), judgements)


def several_compared() -> object:
    return comparison.document(compare_example() * 2)


MADE: dict[str, tuple[Callable[[], object], ...]] = {
    "report": (partial(report, "example"),),
    "analyze": tuple(partial(analyze, one) for one in TRACES),
    "analyze-run": (lambda: tables.document(made_tables()),),
    "compare": (compared, lambda: compared(Judgement("step_time > 3%", Kept.EXCEEDED, "it is")), several_compared),
    "whatif": (asked,),
    "whatif-prove": (proven,),
    "predict": (predicted,),
    "tune": (tuned,),
    "check": tuple(partial(check, name) for name in ("quickstart", "one_gpu", "bucket_sweep")),
    "runs": (lambda: runs.document(made_runs()),),
    "history": (
        lambda: history.document(made_history(draw_values(0, 200, PLANTED))),
        lambda: history.document(made_history([1.0]), [Judgement("step_time > 3%", Kept.UNDECIDED, "too few")]),
    ),
    "clean": (lambda: clean.document(made_cleaning()),),
    "list": (lambda: listed.document(list_scenarios()),),
    "run-prepare": (lambda: orders.document(orders.PreparedRun(Path("run"), ("torchrun",))),),
    "catalogue": (lambda: catalogue.document(made_catalogue()),),
    "coverage": (lambda: coverage.document(made_coverage(), [Path("run")]),),
    "selftest": (lambda: selftest_document(made_selftest()),),
    "export": (lambda: archive.document(made_archive()),),
    "doctor": (
        lambda: doctor_document(made_doctor(NoTorch("not installed"))),
        lambda: doctor_document(made_doctor(Torch("2.13.0", None, None, True, (CudaDevice("H100", 80),)))),
    ),
    "doctor-torch": (
        lambda: torch_document(
            TorchReport("2.16", "2.15", (Difference(Kind.NAME, "f", None, "new", "it", ("a:1",)),), 9, 1, 1)
        ),
    ),
}
"""Of each kind of document some that are made here, of examples or by hand."""


def validator(kind: str) -> Any:
    """Return what judges documents of this version, which have no key that their schema lacks."""
    schema = close(find_schema(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def close(schema: Any) -> Any:
    """Return a schema whose objects have the keys that it names and no other."""
    if isinstance(schema, list):
        return [close(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: close(one) for name, one in schema.items()}
    is_object = schema.get("type") == "object" and "properties" in schema
    return {"additionalProperties": False, **closed} if is_object else closed


def written(make: Callable[[], object]) -> Any:
    return json.loads(json.dumps(make(), allow_nan=False))


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_is_as_its_schema_says(kind: str) -> None:
    judge = validator(kind)
    for make in MADE[kind]:
        wrong = [f"{list(one.absolute_path)}: {one.message}" for one in judge.iter_errors(written(make))]
        assert not wrong


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_later_version_may_add_keys_anywhere(kind: str) -> None:
    judge = jsonschema.Draft202012Validator(find_schema(kind))
    document = written(MADE[kind][0])
    for found in places_to_add(document).values():
        found["a_new_key"] = "new"
    assert judge.is_valid(document)


@pytest.mark.thorough
def test_a_sweep_is_as_its_schema_says() -> None:
    assert validator("report").is_valid(written(partial(report, "example_sweep")))


def closed_objects(node: Any, way: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a document with the way to it."""
    if isinstance(node, dict):
        yield way, node
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in pairs:
        yield from closed_objects(value, f"{way}/{key}")


def places_to_add(document: Any) -> dict[str, dict[str, Any]]:
    """Return the first objects of each kind down to those in lists, and not those under which any name may stand."""
    places: dict[str, dict[str, Any]] = {}
    for way, found in closed_objects(document):
        steps = [step for step in way.split("/") if step and not step.isdigit()]
        if len(steps) <= 2 and not BY_NAME.intersection(steps):
            places.setdefault("/".join(steps), found)
    return places


BY_NAME = {"scenario", "coordinates", "needs_torch", "reasons", "branches", "disturbed", "left_out_steps", "unreadable"}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_key_that_the_schema_lacks_is_refused_wherever_it_comes(kind: str) -> None:
    judge = validator(kind)
    document = written(MADE[kind][0])
    for way, found in places_to_add(document).items():
        found["a_new_key"] = 1
        assert not judge.is_valid(document), way
        del found["a_new_key"]
    assert judge.is_valid(document)


def objects_of(kind: str) -> dict[str, Schema]:
    """Return the schemas of all objects of a document that are not sections of a scenario."""
    definitions = find_schema(kind)["$defs"]
    return {name: one for name, one in definitions.items() if "properties" in one and name not in scenario_sections()}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_key_says_what_it_means_and_in_which_unit(kind: str) -> None:
    ends = {"_ns": Unit.NS, "_bytes": Unit.BYTES, "_fraction": Unit.FRACTION}
    for name, found in objects_of(kind).items():
        assert "additionalProperties" not in found, name
        assert found["description"], name
        for key, held in found["properties"].items():
            assert held.get("description") or "const" in held, f"{name}.{key}"
            units = [unit.value for end, unit in ends.items() if key.endswith(end)]
            assert not units or held["unit"] == units[0], f"{name}.{key}"


def test_a_key_cannot_be_declared_without_its_value_and_is_in_both() -> None:
    with pytest.raises(TypeError, match="value"):
        Key("wait_ns", NS, "how long consumers waited")  # type: ignore[call-arg]
    made = Shape[int](
        "Number",
        "One number.",
        (
            Key("square_ns", OrNan(NS), "of it; None: of 1", lambda one: None if one == 1 else one**2),
            Key("name", OrNull(TEXT), "None: it has none", lambda one: "two" if one == 2 else None),
            Key("rest", Many(TEXT), "NA: never", lambda _one: None, may_be_absent=True),
        ),
    )
    assert [made.write(one) for one in (1, 2)] == [
        {"square_ns": "NaN", "name": None},
        {"square_ns": 4, "name": "two"},
    ]
    number = make_schema("numbers", Many(made))["$defs"]["Number"]
    assert number["required"] == ["square_ns", "name"]
    assert number["properties"]["square_ns"] == {
        "anyOf": [{"type": "integer"}, {"const": "NaN"}],
        "unit": "ns",
        "description": "of it; NaN: of 1",
    }
    assert number["properties"]["name"]["description"] == "null: it has none"


def test_tables_that_do_not_know_a_number_have_null() -> None:
    (launch,) = written(lambda: tables.document(made_tables()))["launches"]
    known, unknown = launch["ranks"][0]["steps"]
    assert (known["step_ns"], unknown["step_ns"], unknown["step"]) == (7, None, 4)
    assert (known["purposes"][0]["wait_ns"], known["purposes"][0]["count"]) == (None, 2)


def test_rows_written_as_they_come_make_the_same_document(analysed: TraceSet) -> None:
    whole = traces.document(analysed)
    assert list(whole) == [*traces.document_head(analysed), traces.LONG_KEY]
    assert whole == {**traces.document_head(analysed), traces.LONG_KEY: list(traces.collective_rows(analysed))}


def test_the_command_prints_the_schema_of_a_kind_and_refuses_another(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schema", "catalogue"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == find_schema("catalogue")
    with pytest.raises(SystemExit) as ended:
        main(["schema", "catalog"])
    assert ended.value.code == 2
    assert "catalogue" in capsys.readouterr().err

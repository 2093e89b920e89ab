"""Ranges of functions under study: timed, and in nobody's way."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from dtbench.base.ranges import parse_probe_range, probe_range
from dtbench.seeds.functions import FUNCTIONS
from dtbench.traces.account.probe_times import ProbeTime
from dtbench.traces.kinds.operators import Role, cpu_role
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import PROBES

HOOK = probe_range("_data_parallel_utils.sync_grad_hook", "backward")
OTHER = probe_range("_data_parallel_utils.sync_grad_hook", "layers.0")
FORWARD = probe_range("distributed.DistributedDataParallel.forward", "forward")


def measure(path: Path) -> dict[str, ProbeTime]:
    (step,) = analyze_trace(read_trace(path)).steps
    return dict(step.probes)


def test_a_probes_time_is_exposed_where_nothing_computes(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1  @1 |=====================|
        range {FORWARD}      @1 | =======             |
        op aten::mm          @1 |   ===               |
        range {HOOK}         @1 |          ===        |
        range {OTHER}        @1 |              ====   |
        op aten::add         @1 |               ==    |
        """)
    assert measure(path) == {
        "distributed.DistributedDataParallel.forward": ProbeTime(calls=1, total_ns=7000, exposed_ns=4000),
        "_data_parallel_utils.sync_grad_hook": ProbeTime(calls=2, total_ns=7000, exposed_ns=5000),
    }


def test_recursion_counts_its_calls_and_its_time_once(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1  @1 |============|
        range {HOOK}         @1 | ======     |
        range {OTHER}        @1 |   ==       |
        op aten::mm          @1 |          = |
        """)
    assert measure(path) == {"_data_parallel_utils.sync_grad_hook": ProbeTime(2, 6000, 6000)}


def test_a_call_counts_in_the_step_in_which_it_begins_and_its_time_in_both(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#4  @1 |=====     |
        step ProfilerStep#5  @1 |     =====|
        range {HOOK}         @1 | ==       |
        range {OTHER}        @1 |    ====  |
        range {FORWARD}      @1 |        = |
        op aten::mm          @1 |  =  =    |
        """)
    table = PROBES.tabulate([analyze_trace(read_trace(path), rank=3)])
    assert list(table.itertuples(index=False, name=None)) == [
        (3, 4, "_data_parallel_utils.sync_grad_hook", 2, 3000, 2000),
        (3, 5, "_data_parallel_utils.sync_grad_hook", 0, 3000, 2000),
        (3, 5, "distributed.DistributedDataParallel.forward", 1, 1000, 1000),
    ]


def test_what_runs_outside_steps_is_in_no_number(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1  @1 |     =====|
        range {HOOK}         @1 | ==       |
        range {OTHER}        @1 |      ==  |
        op aten::mm          @1 |     =    |
        """)
    assert measure(path) == {"_data_parallel_utils.sync_grad_hook": ProbeTime(1, 2000, 2000)}


def test_on_a_device_a_probe_is_timed_on_the_host_and_its_copy_over_kernels_counts_nothing(tmp_path: Path) -> None:
    def event(category: str, name: str, start: int, duration: int, thread: object, **args: object) -> dict[str, object]:
        place = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread}
        return {**place, "ts": start, "dur": duration, "args": args}

    events = [  # the device works on step 1 while the host is in step 2
        event("user_annotation", "ProfilerStep#1", 0, 10, 1),
        event("user_annotation", "ProfilerStep#2", 10, 10, 1),
        event("user_annotation", HOOK, 2, 3, 1),
        event("cuda_runtime", "cudaLaunchKernel", 3, 1, 1, correlation=5),
        event("gpu_user_annotation", "ProfilerStep#1", 12, 6, 7),
        event("gpu_user_annotation", HOOK, 12, 4, 7),
        event("kernel", "gemm", 12, 4, 7, correlation=5),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    first, second = analyze_trace(read_trace(path)).steps
    assert dict(first.probes) == {"_data_parallel_utils.sync_grad_hook": ProbeTime(1, 3000, 3000)}
    assert dict(second.probes) == {}


def test_every_probes_range_is_a_container_and_is_read_back() -> None:
    for function in FUNCTIONS:
        name = probe_range(function.label, "layers.0 (odd)")
        assert parse_probe_range(name) == (function.label, "layers.0 (odd)")
        assert cpu_role(name, "user_annotation") is Role.CONTAINER


def test_no_other_range_is_taken_for_a_probes() -> None:
    for name in (
        "dtbench::region backward",
        "dtbench::unit (layers.0)",
        "dtbench::module layers.0.attention",
        "dtbench::collective group=0 seq=1 op=all_reduce bytes=8 axis= async=1 owner=a.b (c)",
        "FSDP::all_gather (layers.0)",
    ):
        assert parse_probe_range(name) is None


def test_ranges_of_probes_change_nothing_in_the_account_of_a_recorded_trace(recorded: Path, tmp_path: Path) -> None:
    """Put a range around everything that is no operator, and compare all that the analysis says."""
    source = recorded / "fsdp2_tp_2x2_rank0.json.gz"
    document = json.loads(gzip.decompress(source.read_bytes()))
    around = [
        {**event, "name": probe_range(FUNCTIONS[place % len(FUNCTIONS)].label, "backward"), "args": {}}
        for place, event in enumerate(document["traceEvents"])
        if event.get("cat") == "user_annotation" and not event["name"].startswith(("gloo:", "ProfilerStep"))
    ]
    assert len(around) > 50
    document["traceEvents"] += around
    path = tmp_path / "probed.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    before, after = (analyze_trace(read_trace(one)) for one in (source, path))
    assert [(step.step, step.overlap, step.purposes) for step in before.steps] == [
        (step.step, step.overlap, step.purposes) for step in after.steps
    ]
    assert before.whole == after.whole
    assert [(one.owner, one.purpose, one.region, one.issue_ns, one.first_wait_ns) for one in before.collectives] == [
        (one.owner, one.purpose, one.region, one.issue_ns, one.first_wait_ns) for one in after.collectives
    ]
    assert before.exposed_ns == after.exposed_ns

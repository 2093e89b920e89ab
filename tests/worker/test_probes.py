"""Probes: what they count and time, what they leave as it was, and that nothing is touched when nobody asks."""

import _thread
import inspect
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import torch
import torch.distributed._state_dict_utils as state_dicts
import torch.distributed.checkpoint.staging
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp._optim_utils
import torch.distributed.tensor.parallel._data_parallel_utils as gradient_hooks
import torch.distributed.tensor.parallel.ddp
import torch.distributed.tensor.parallel.fsdp as extensions
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.errors import LaunchError
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import DDP, FUNCTIONS, GRADIENT_HOOKS, Reach, StudiedFunction, choose
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_line_records
from dtbench.store.records.probes import ProbedFunction, Probes
from dtbench.worker.extras.functions import watch_functions
from dtbench.worker.probes import install
from dtbench.worker.probes.counting import Probe
from dtbench.worker.probes.install import InstalledProbes
from dtbench.worker.recording.recorder import Recorder


def probe_of(function: Callable[..., Any], name: str = "some") -> tuple[Probe, Callable[..., Any]]:
    probe = Probe(StudiedFunction("some/file.py", name, Reach.CALLED, ""), Recorder())
    return probe, probe.wrap(function)


def namespaces() -> list[dict[str, object]]:
    """Copy every place in torch where a function under study can be."""
    return [
        dict(vars(home))
        for home in (
            gradient_hooks,
            extensions,
            extensions.DTensorExtensions,
            torch.distributed.tensor.parallel.ddp,
            state_dicts,
            torch.distributed.checkpoint.state_dict,
            torch.distributed.checkpoint.staging,
            torch.distributed.fsdp._optim_utils,
            torch.nn.parallel.distributed,
            getattr(torch.nn.parallel.distributed, "_BucketCapacityConfig", types.SimpleNamespace()),  # new in 2.12
            torch.nn.parallel.distributed._DDPSink,
            torch.nn.parallel.distributed._DDPJoinHook,
            DistributedDataParallel,
        )
    ]


def differing(before: list[dict[str, object]], after: list[dict[str, object]]) -> set[str]:
    return {
        name
        for one, other in zip(before, after, strict=True)
        for name in {**one, **other}
        if one.get(name) is not other.get(name)
    }


def test_nothing_is_patched_when_no_probe_is_asked_for(scenario: Callable[..., Scenario]) -> None:
    before = namespaces()
    with InstalledProbes((), Recorder()) as probes:
        assert differing(before, namespaces()) == set()
    assert probes.read().functions == ()
    at: Any = SimpleNamespace(scenario=scenario(), recorder=Recorder())
    assert watch_functions(at) is None


def test_probes_stand_in_for_every_function_that_has_a_name_and_are_gone_afterwards() -> None:
    before = namespaces()
    with InstalledProbes(choose(["all"]), Recorder()) as probes:
        inside = differing(before, namespaces())
    assert differing(before, namespaces()) == set()
    found = probes.read()
    assert found is not None
    names = {one.name.removesuffix(".setter").rpartition(".")[2] for one in found.functions}
    assert inside == names
    assert len(found.functions) + len(found.unprobed) == len(FUNCTIONS)
    assert 0 < found.cost_per_call_ns < 1_000_000


def test_a_nested_function_has_no_probe_and_the_reason_names_who_makes_it() -> None:
    with InstalledProbes(choose(["_state_dict_utils"]), Recorder()) as probes:
        pass
    found = probes.read()
    assert found is not None
    reasons = {one.name: one.reason for one in found.unprobed}
    assert reasons["_gather_state_dict.dtensor_func"].startswith("_gather_state_dict makes it anew at every call")
    assert all("." in name for name in reasons)


@pytest.mark.parametrize(
    ("name", "importers"),
    [
        ("_flatten_tensor", [torch.distributed.tensor.parallel.ddp, extensions]),
        ("_unflatten_tensor", [torch.distributed.tensor.parallel.ddp, extensions]),
        ("_gather_state_dict", [torch.distributed.checkpoint.state_dict, torch.distributed.fsdp._optim_utils]),
        ("_broadcast_state_dict", [torch.distributed.checkpoint.state_dict]),
        ("_distribute_state_dict", [torch.distributed.checkpoint.state_dict]),
        ("_offload_state_dict_to_cpu", [torch.distributed.checkpoint.state_dict]),
        ("_flatten_state_dict", [torch.distributed.checkpoint.state_dict]),
        ("_unflatten_state_dict", [torch.distributed.checkpoint.state_dict]),
        ("_copy_state_dict", [torch.distributed.checkpoint.staging]),
        ("_create_cpu_state_dict", [torch.distributed.checkpoint.staging]),
    ],
)
def test_modules_that_imported_a_function_by_value_have_its_probe(name: str, importers: list[types.ModuleType]) -> None:
    originals = [vars(module)[name] for module in importers]
    with InstalledProbes(choose(["all"]), Recorder()):
        home = gradient_hooks if hasattr(gradient_hooks, name) else state_dicts
        assert [vars(module)[name] for module in importers] == [vars(home)[name]] * len(importers)
        assert vars(home)[name].__wrapped__ is originals[0]
    assert [vars(module)[name] for module in importers] == originals


def test_a_renamed_function_loses_its_probe_by_name_and_the_others_keep_theirs() -> None:
    renamed = StudiedFunction(GRADIENT_HOOKS, "sync_gradient_hook", Reach.DRIVEN, "")
    gone = StudiedFunction("torch/distributed/no_such_file.py", "any", Reach.DRIVEN, "")
    with InstalledProbes((renamed, gone, *choose(["_data_parallel_utils"])), Recorder()) as probes:
        assert gradient_hooks._flatten_tensor(torch.ones(1))[1] is None
    found = probes.read()
    assert found is not None
    assert [(one.name, one.reason.split(" (")[0]) for one in found.unprobed] == [
        ("sync_gradient_hook", f"torch {torch.__version__} does not have it: renamed or removed"),
        ("any", "this torch does not have the file"),
    ]
    assert {one.name: one.calls for one in found.functions} == {
        "sync_grad_hook": 0,
        "_flatten_tensor": 1,
        "_unflatten_tensor": 0,
    }


def test_a_function_that_the_list_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = tuple(one for one in FUNCTIONS if one.name != "sync_grad_hook")
    monkeypatch.setattr(install, "FUNCTIONS", shorter)
    with InstalledProbes(choose(["_data_parallel_utils._flatten_tensor"]), Recorder()) as probes:
        pass
    found = probes.read()
    assert found is not None
    assert found.unlisted == ("_data_parallel_utils.sync_grad_hook",)


def test_a_probe_passes_arguments_results_and_signature_on() -> None:
    def add(a: int, *, b: int = 2) -> int:
        """Add."""
        return a + b

    probe, probed = probe_of(add)
    assert (probed(1), probed(1, b=5)) == (3, 6)
    assert inspect.signature(probed) == inspect.signature(add)
    assert (probed.__doc__, probed.__name__) == ("Add.", "add")
    assert probe.read().calls == 2


def test_calls_that_raise_are_counted_apart_with_the_first_message() -> None:
    def divide(a: int) -> float:
        return 1 / a

    probe, probed = probe_of(divide)
    probed(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            probed(0)
    seen = probe.read()
    assert (seen.calls, seen.raised) == (3, 2)
    assert seen.first_error == "ZeroDivisionError: division by zero"


def test_time_of_recursive_calls_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("dtbench.worker.probes.counting.time.perf_counter_ns", lambda: next(now))

    def descend(depth: int) -> None:
        if depth:
            probed(depth - 1)

    probe, probed = probe_of(descend)
    probed(2)
    assert (probe.read().calls, probe.read().total_ns) == (3, 50)


def test_of_a_context_manager_entering_and_leaving_are_timed_and_the_body_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]
    monkeypatch.setattr("dtbench.worker.probes.counting.time.perf_counter_ns", lambda: now[0])

    @contextmanager
    def hold() -> Iterator[str]:
        now[0] += 1
        try:
            yield "value"
        except KeyError:
            pass
        finally:
            now[0] += 2

    probe, probed = probe_of(hold)
    with probed() as value:
        now[0] += 100
    assert value == "value"
    with probed():
        raise KeyError  # as without a probe, it stays inside
    with pytest.raises(IndexError), probed():
        raise IndexError
    assert (probe.read().calls, probe.read().total_ns, probe.read().raised) == (3, 9, 0)


def test_a_generator_counts_once_and_its_own_time_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr("dtbench.worker.probes.counting.time.perf_counter_ns", lambda: now[0])

    def count() -> Iterator[int]:
        for number in range(3):
            now[0] += 5
            yield number

    probe, probed = probe_of(count)
    numbers = []
    for number in probed():
        now[0] += 100
        numbers.append(number)
    assert numbers == [0, 1, 2]
    assert (probe.read().calls, probe.read().total_ns) == (1, 15)


def test_getters_setters_static_and_class_methods_keep_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    with InstalledProbes(choose(["all"]), Recorder()) as probes:
        model = DistributedDataParallel.__new__(DistributedDataParallel)
        torch.nn.Module.__init__(model)
        model.broadcast_buffers = True
        assert model.broadcast_buffers is True
        assert DistributedDataParallel._get_active_ddp_module() is None
        module = torch.nn.Linear(2, 2)
        assert len(list(DistributedDataParallel._get_data_parallel_params(module))) == 2
    found = probes.read()
    assert found is not None
    calls = {one.name.removeprefix("DistributedDataParallel."): one.calls for one in found.functions if one.file == DDP}
    is_property = "DistributedDataParallel.broadcast_buffers" in {one.name for one in found.functions}
    assert {name: count for name, count in calls.items() if count} == {
        **({"broadcast_buffers": 1, "broadcast_buffers.setter": 1} if is_property else {}),
        "_get_active_ddp_module": 1,
        "_get_data_parallel_params": 1,
    }


def call_from(module: str, name: str, function: Callable[[], object]) -> None:
    """Call a function from a function of that name in a module of that name."""
    space: dict[str, Any] = {"__name__": module, "function": function}
    exec(f"def {name}():\n    function()", space)
    space[name]()


def test_callers_are_named_and_an_override_of_ours_is_passed_over() -> None:
    probe, probed = probe_of(lambda: None, name="Class.hook")
    call_from("torch.somewhere", "run", probed)
    call_from("dtbench.worker.somewhere", "run", probed)
    call_from("torch.engine", "run", lambda: call_from("dtbench.worker.somewhere", "hook", probed))
    callers = probe.read().callers
    assert callers["torch.somewhere.run"] == callers["dtbench.worker.somewhere.run"] == 1
    assert sum(callers.values()) == 3
    assert "dtbench.worker.somewhere.hook" not in callers


def test_a_thread_that_is_not_pythons_may_call_with_no_frame_below() -> None:
    """As autograd's thread of a device does with hooks."""

    def body() -> Iterator[int]:
        yield 1

    for function, begin in ((lambda: None, None), (contextmanager(body), None), (body, next)):
        probe, probed = probe_of(function)
        _thread.start_new_thread(*((probed, ()) if begin is None else (begin, (probed(),))))
        deadline = time.monotonic() + 10
        while not probe.read().calls and time.monotonic() < deadline:
            time.sleep(0.001)
        assert probe.read().callers == {"not Python": 1}


def test_code_that_is_being_compiled_calls_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    probe, probed = probe_of(lambda: 7)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert probed() == 7
    assert probe.read().calls == 0


def test_a_compiled_function_gives_the_same_graph_with_a_probe_inside() -> None:
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, _inputs: object) -> Any:
        graphs.append(graph.code)
        return graph.forward

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    _, probed = probe_of(double)
    for inner in (double, probed):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, inner=inner: inner(x) + 1, backend=keep, fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    torch._dynamo.reset()
    assert len(graphs) == 2
    assert graphs[0] == graphs[1]


WEIGHTS = {"kind": "custom", "factory": "example_model:build_gathered", "arguments": {"width": 16, "depth": 2}}
STEPS = 8 + 4 + 1 + 1
"""Warm-up, measured, the one that pays for the profiler, profiled; as ``make_scenario`` has them."""


def launch_probed(launch: Callable[..., Any], wanted: Scenario) -> tuple[Probes, dict[str, ProbedFunction], Any]:
    launched = launch(wanted)
    found = launched.rank().extras.probes
    assert found is not None
    return found, {one.name: one for one in found.functions}, launched


def counts_by_lines(launched: Any, rank: int = 0) -> dict[str, tuple[int, int]]:
    return {
        f"{one.file}:{one.name}": (one.calls, len(one.lines))
        for one in read_line_records(launched.folder)[rank].functions
    }


def assert_lines_agree(launched: Any) -> set[str]:
    """Assert that tracing counted as the probes did, on every rank; gives the names that ran."""
    ran = set()
    for rank, record in enumerate(read_line_records(launched.folder)):
        by_lines = counts_by_lines(launched, rank)
        for one in launched.rank(rank).extras.probes.functions:
            calls, lines = by_lines[f"{one.file}:{one.name}"]
            assert calls == one.calls, (rank, one.name)
            assert (lines > 0) == (one.calls > 0), (rank, one.name)
        ran |= {function.name for function in record.functions if function.lines}
    return ran


@pytest.mark.ranks
def test_probes_of_ddp_count_what_the_interpreters_tracing_counts(
    launch: Callable[..., Any], scenario: Callable[..., Scenario]
) -> None:
    wanted = scenario(
        correctness={"enabled": False},
        accumulation={"micro_batches": 2},
        parallel={"kind": "ddp", "replicas": 2, "find_unused_parameters": True},
        measure={"probes": True, "line_coverage": True},
    )
    found, functions, launched = launch_probed(launch, wanted)
    ran = assert_lines_agree(launched)
    assert functions["DistributedDataParallel.forward"].calls == 2 * STEPS
    assert functions["DistributedDataParallel.no_sync"].calls == STEPS
    assert functions["_DDPSink.backward"].calls > 0
    assert functions["DistributedDataParallel.__init__"].calls == 1
    assert all(not one.raised for one in found.functions)
    assert "DistributedDataParallel._build_params_for_reducer.produces_sparse_gradient" in ran
    assert "sync_grad_hook" not in ran
    callers = functions["DistributedDataParallel._pre_forward"].callers
    assert list(callers) == ["torch.nn.parallel.distributed.DistributedDataParallel.forward"]


@pytest.mark.quick("ddp")
@pytest.mark.ranks
@pytest.mark.parametrize(
    "parallel", [{"kind": "fsdp1", "shards": 2}, {"kind": "ddp", "replicas": 2}], ids=["fsdp1", "ddp"]
)
def test_gradients_of_an_ordinary_model_are_plain_over_a_tensor_axis(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], parallel: dict[str, Any]
) -> None:
    wanted = scenario(
        correctness={"enabled": False},
        parallel={**parallel, "tensor": 2},
        measure={"probes": True, "line_coverage": True},
    )
    _, functions, launched = launch_probed(launch, wanted)
    ran = assert_lines_agree(launched)
    hook = functions["sync_grad_hook"]
    assert [branch.name for branch in hook.branches] == ["plain"]
    assert hook.branches[0].calls == hook.calls >= STEPS
    assert {"_flatten_tensor", "_unflatten_tensor"} <= ran
    is_fsdp = parallel["kind"] == "fsdp1"
    assert ("DTensorExtensions.post_unflatten_transform" in ran) == is_fsdp
    assert functions["_unflatten_tensor"].calls >= (2 if is_fsdp else 1) * STEPS
    (trace,) = [path for rank, path in launched.folder.find_traces().items() if rank == 0]
    labels = labels_in(trace)
    assert "_data_parallel_utils.sync_grad_hook" in labels
    assert ("_data_parallel_utils._unflatten_tensor" in labels) == is_fsdp, "DDP finds no parameters after step 1"


def labels_in(trace: Any) -> set[str]:
    from dtbench.base.ranges import parse_probe_range
    from dtbench.traces.reader import read_trace

    parsed = [parse_probe_range(name) for name in read_trace(trace).names]
    assert all(found[1] for found in parsed if found is not None)
    return {found[0] for found in parsed if found is not None}


@pytest.mark.ranks
@pytest.mark.quick("ddp")
@pytest.mark.parametrize(
    ("parallel", "branch"),
    [
        ({"kind": "fsdp1", "shards": 2}, "awaited on the compute stream"),
        ({"kind": "ddp", "replicas": 2}, "awaited"),
    ],
    ids=["fsdp1", "ddp"],
)
def test_gradients_of_a_weight_that_is_gathered_asynchronously_are_awaited(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], parallel: dict[str, Any], branch: str
) -> None:
    wanted = scenario(
        model=WEIGHTS,
        correctness={"enabled": False},
        parallel={**parallel, "tensor": 2},
        measure={"probes": ["_data_parallel_utils"], "line_coverage": True},
    )
    found, functions, launched = launch_probed(launch, wanted)
    assert_lines_agree(launched)
    assert len(found.functions) == 3
    hook = functions["sync_grad_hook"]
    assert [(one.name, one.calls) for one in hook.branches] == [(branch, 2 * STEPS)]
    assert 0 < hook.branches[0].total_ns == hook.total_ns


@pytest.mark.ranks
def test_what_a_rank_ran_is_on_disk_when_it_leaves_without_a_word(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    wanted = scenario(correctness={"enabled": False}, measure={"line_coverage": True})
    with pytest.raises(LaunchError, match="left without an error"):
        launch(wanted, fault="exit")
    records = read_line_records(LaunchFolder(tmp_path / "launch0"))
    assert [record.rank for record in records] == [0, 1]
    ran = {one.name for one in records[1].functions if one.lines}
    assert {"DistributedDataParallel.__init__", "DistributedDataParallel._post_forward"} <= ran
    assert "sync_grad_hook" not in ran

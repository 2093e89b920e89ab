"""A person's own loop: the same run folder as ``dtbench run``, whatever the loop does; no hook stays behind."""

import functools
import gc
import inspect
import math
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import dtbench
from dtbench.base.errors import CaptureError, StoreError
from dtbench.base.vocabulary import Axis, DeviceKind, Operation, Phase, Purpose, Region
from dtbench.live.sinks import json_lines
from dtbench.report.event_files.publish import publish
from dtbench.report.event_files.server import has_event_files
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import analyze_run, summarize_run
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch, read_rank_records, read_run, read_steps
from dtbench.store.records.rank import Memory
from dtbench.store.records.run import OwnLoop, RunStatus
from dtbench.store.records.traffic import Traffic
from dtbench.store.use_file import read_use
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import find_regions
from dtbench.worker.machine.accelerator import find_device_problem
from dtbench.worker.machine.look import RankProcess
from dtbench.worker.parallelize.owners import name_live_owners
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.user_loop import phases as own_phases
from dtbench.worker.user_loop import run as own_run
from dtbench.worker.user_loop.axes import find_names, known_axes, name_mesh, read_overlap
from dtbench.worker.user_loop.end import join_reasons
from dtbench.worker.user_loop.peers import Peers, RankHello
from dtbench.worker.user_loop.regions import RegionMarks, watch_regions
from tests.report.shown import terminal_run

SCRIPT = Path(__file__).parent / "own_loop.py"
FEW: dict[str, Any] = {"name": "mine", "max_warmup_steps": 8, "measured_steps": 4, "profiled_steps": 2}
ALL_STEPS = 8 + 4 + 1 + 2


def do_nothing() -> None:
    """End nothing."""


def the_run(results: Path) -> Path:
    (folder,) = results.glob("*/*")
    return folder


def summarize(results: Path) -> tuple[RunSummary, CellSummary]:
    summary = summarize_run(the_run(results))
    (cell,) = summary.cells
    return summary, cell


def count_measured(results: Path) -> int:
    """Count MEASURED steps that were timed; a summary leaves out those that other guests of the machine disturbed."""
    (cell,) = the_run(results).glob("cells/*")
    steps = read_steps(RunFolder(the_run(results)).launch(cell.name, 0))
    return int(steps[steps["phase"] == "MEASURED"]["step"].nunique())


def say(summary: RunSummary) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(terminal_run(summary))
    return captured.get()


@pytest.fixture
def train() -> Callable[[], None]:
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters())

    def run() -> None:
        model(torch.ones(4, 32)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return run


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    before = torch.autograd._engine_run_backward
    yield
    assert torch.autograd._engine_run_backward is before


def test_a_single_process_gives_a_complete_run_with_a_full_report(tmp_path: Path, train: Callable[[], None]) -> None:
    seen = 0
    with dtbench.capture(tmp_path, tokens_per_step=1000, **FEW) as step:
        while not step.is_done:
            with step():
                train()
            seen += 1
        assert step.folder == the_run(tmp_path)
    assert seen == ALL_STEPS
    summary, cell = summarize(tmp_path)
    assert (summary.status, len(cell.ranks)) == (RunStatus.COMPLETE, 1)
    assert cell.tokens_per_second == pytest.approx(1000e9 / cell.step_time.median)
    assert cell.ranks[0].compute_ns > 0
    assert cell.ranks[0].steps == 2
    phases = read_steps(RunFolder(summary_path(summary)).launch("mine", 0))["phase"].tolist()
    assert phases == ["WARMUP"] * 8 + ["MEASURED"] * 4 + ["PROFILED"] * 2
    assert isinstance(cell.plan, OwnLoop)
    words = say(summary)
    assert "none: your own loop" in words
    assert "not checked: your own loop" in words
    assert "= plan" not in words
    publish(read_run_data(summary_path(summary)), summary)
    assert has_event_files(RunFolder(summary_path(summary)).tensorboard)
    assert RunSummary.model_validate_json(summary.model_dump_json()).cells[0].scenario is None


def test_peaks_of_memory_are_read_before_the_profiler_that_needs_its_own(
    tmp_path: Path, train: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    monkeypatch.setattr(
        own_phases,
        "read_memory",
        lambda _device: Memory(rss_peak_bytes=seen, allocated_peak_bytes=None, reserved_peak_bytes=None),
    )
    with dtbench.capture(tmp_path, **FEW) as step:
        while not step.is_done:
            with step():
                train()
                seen += 1
    _, cell = summarize(tmp_path)
    assert cell.memory is not None
    assert cell.memory.rss_peak_bytes == 8 + 4, "steps of warm-up and MEASURED ones"


def summary_path(summary: RunSummary) -> Path:
    return Path(summary.path)


def test_the_loop_over_batches_gives_all_of_them(tmp_path: Path, train: Callable[[], None]) -> None:
    with dtbench.capture(tmp_path, **FEW) as step:
        batches = []
        for batch in step.batches(range(ALL_STEPS + 20)):
            train()
            batches.append(batch)
            assert step.is_done == (batch > ALL_STEPS - 1)
    assert batches == list(range(ALL_STEPS + 20))
    assert summarize(tmp_path)[0].status is RunStatus.COMPLETE
    assert len(read_steps(RunFolder(the_run(tmp_path)).launch("mine", 0))) == ALL_STEPS - 1


@pytest.mark.parametrize("leaves_early", [False, True], ids=["after training", "before it"])
def test_a_break_ends_the_step_that_it_leaves_where_that_trained(
    tmp_path: Path, train: Callable[[], None], leaves_early: bool
) -> None:
    begun = 0
    with dtbench.capture(tmp_path, **FEW) as step:
        for _ in range(8):
            for batch in step.batches(range(100)):
                begun += not step.is_done
                if leaves_early and batch == 2 and not step.is_done:
                    break
                train()
                if not leaves_early and batch == 1:
                    break
    assert summarize(tmp_path)[0].status is RunStatus.COMPLETE
    phases = read_steps(RunFolder(the_run(tmp_path)).launch("mine", 0))["phase"].tolist()
    assert phases == ["WARMUP"] * 8 + ["MEASURED"] * 4 + ["PROFILED"] * 2
    assert begun == ALL_STEPS + (5 if leaves_early else 0), "what trained nothing was no step, but while PROFILED"


def test_steps_after_the_last_run_as_if_dtbench_were_not_there(tmp_path: Path, train: Callable[[], None]) -> None:
    ordinary = torch.autograd._engine_run_backward
    with dtbench.capture(tmp_path, **FEW) as step:
        for number in range(ALL_STEPS + 3):
            with step():
                train()
            if step.is_done:
                assert torch.autograd._engine_run_backward is ordinary
                assert read_run(the_run(tmp_path)).status is RunStatus.COMPLETE, f"on disk at once, step {number}"
    with step():
        train()
    assert len(read_steps(RunFolder(the_run(tmp_path)).launch("mine", 0))) == ALL_STEPS - 1


def test_an_error_after_the_last_step_leaves_the_run_complete(tmp_path: Path, train: Callable[[], None]) -> None:
    def fail_late() -> None:
        with dtbench.capture(tmp_path, **FEW) as step:
            for _ in step.batches(range(ALL_STEPS)):
                train()
            raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        fail_late()
    assert read_run(the_run(tmp_path)).status is RunStatus.COMPLETE


def test_a_loop_that_raises_is_recorded_with_step_and_reason(tmp_path: Path, train: Callable[[], None]) -> None:
    def fail_in_step_9() -> None:
        with dtbench.capture(tmp_path, **FEW) as step:
            for number in step.batches(range(1000)):
                train()
                if number == 9:
                    raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        fail_in_step_9()
    summary, cell = summarize(tmp_path)
    assert summary.status is RunStatus.FAILED
    assert summary.reason == "rank 0 raised in step 9 (MEASURED): RuntimeError: planted"
    assert cell.step_time.count == 1, "what was measured is kept"
    (failure,) = read_launch(RunFolder(the_run(tmp_path)).launch("mine", 0)).failures
    assert (failure.rank, failure.last_step, failure.last_region) == (0, 9, "forward")
    assert any("fail_in_step_9" in line for line in failure.last_lines)


@pytest.mark.parametrize(("steps", "phase"), [(0, "WARMUP"), (3, "WARMUP"), (10, "MEASURED"), (14, "PROFILED")])
def test_a_loop_that_is_too_short_warns_and_keeps_what_there_is(
    tmp_path: Path, train: Callable[[], None], steps: int, phase: str
) -> None:
    def run_short() -> None:
        with dtbench.capture(tmp_path, **FEW) as step:
            for _ in step.batches(range(steps)):
                train()

    finished = min(steps, steps - (steps > 12))  # the untimed one is no step of a phase
    with pytest.warns(UserWarning, match=rf"the loop ended after {finished} steps, in {phase}; dtbench needs 8 to 8"):
        run_short()
    summary, cell = summarize(tmp_path)
    assert summary.status is RunStatus.FAILED
    assert count_measured(tmp_path) == max(0, min(4, steps - 8))
    assert math.isnan(cell.hidden_fraction)
    assert "This run FAILED: the loop ended" in say(summary)


def test_a_step_inside_a_step_is_refused(tmp_path: Path, train: Callable[[], None]) -> None:
    with (
        pytest.raises(CaptureError, match="step 0 has not ended, and another begins"),
        dtbench.capture(tmp_path, **FEW) as step,
        step(),
        step(),
    ):
        pass
    assert read_run(the_run(tmp_path)).status is RunStatus.FAILED


def test_a_step_that_raised_and_was_caught_ends_the_measurement_and_not_training(
    tmp_path: Path, train: Callable[[], None]
) -> None:
    def swallow() -> int:
        trained = 0
        with dtbench.capture(tmp_path, **FEW) as step:
            for number in range(20):
                try:
                    with step():
                        train()
                        if number == 9:
                            list[int]().pop()
                except IndexError:
                    continue
                trained += 1
        return trained

    with pytest.warns(UserWarning, match="step 9 raised; nothing after it is measured"):
        assert swallow() == 19
    assert read_run(the_run(tmp_path)).reason == "rank 0 raised in step 9 (MEASURED): IndexError: pop from empty list"


def test_a_step_after_a_capture_that_ended_early_is_an_ordinary_one(tmp_path: Path, train: Callable[[], None]) -> None:
    with pytest.warns(UserWarning, match="the loop ended"), dtbench.capture(tmp_path, **FEW) as step:
        pass
    with step():
        train()
    for _ in step.batches(range(2)):
        train()
    assert count_measured(tmp_path) == 0


def test_a_capture_inside_a_capture_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(CaptureError, match="open already"),
        dtbench.capture(tmp_path, **FEW),
        dtbench.capture(tmp_path, **FEW),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"measured_steps": 3}, "measured_steps=3 must be a whole number of at least 4"),
        ({"profiled_steps": 0}, "profiled_steps=0"),
        ({"max_warmup_steps": 7}, "max_warmup_steps=7"),
        ({"tokens_per_step": 0.5}, "tokens_per_step=0.5"),
        ({"name": "a/b"}, "name='a/b' cannot name a folder"),
        ({"profiler": {"with_stacks": True}}, "with_stacks.*it knows record_shapes, with_stack"),
        ({"mesh": ("replicate",)}, "mesh must be a DeviceMesh or a mapping of names to process groups"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_words(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CaptureError, match=words), dtbench.capture(tmp_path, **{**FEW, **options}):
        pass
    assert not list(tmp_path.iterdir())


def test_ranks_without_a_process_group_are_told_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CaptureError, match=r"2 ranks were started.*init_process_group"), dtbench.capture(tmp_path):
        pass


def test_results_that_cannot_be_written_are_refused_before_any_step(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"), dtbench.capture(tmp_path / "results", **FEW):
        pass


def own_loop(measured_steps: int = 4) -> OwnLoop:
    return OwnLoop(
        script="train.py",
        device=DeviceKind.CPU,
        backend="gloo",
        mesh=(),
        ranks=2,
        min_warmup_steps=8,
        max_warmup_steps=8,
        measured_steps=measured_steps,
        profiled_steps=2,
        tokens_per_step=None,
        notes=(),
    )


def begin_on_two_ranks(results: Path, measured: tuple[int, int] = (4, 4)) -> list[str]:
    """Return each rank's refusal."""
    store, refusals = torch.distributed.HashStore(), ["", ""]

    def begin(rank: int) -> None:
        peers = Peers(rank=rank, size=2, store=store, device=DeviceKind.CPU, backend="gloo", recorder=None)
        try:
            own_run.begin_run(results, "mine", own_loop(measured[rank]), peers)
        except StoreError as error:
            refusals[rank] = str(error)

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return refusals


def test_a_rank_that_cannot_write_stops_all_ranks_with_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_run, "_try_to_write", lambda run: run.write(RunStatus.RUNNING, None))
    monkeypatch.setattr(own_run, "_find_problem", lambda _run: "cannot write to /results on host7")
    first, second = begin_on_two_ranks(tmp_path)
    assert first == second
    assert "rank 1: cannot write to /results on host7" in first
    assert read_run(the_run(tmp_path)).status is RunStatus.FAILED


def test_ranks_that_were_asked_for_different_numbers_of_steps_are_refused(tmp_path: Path) -> None:
    first, second = begin_on_two_ranks(tmp_path, measured=(4, 5))
    assert first == second
    assert "rank 0: (8, 4, 2); rank 1: (8, 5, 2)" in first


def test_a_rank_that_says_nothing_is_not_waited_for_for_ever() -> None:
    store = torch.distributed.HashStore()
    peers = Peers(rank=0, size=3, store=store, device=DeviceKind.CPU, backend="gloo", recorder=None)
    replace(peers, rank=1).say_left("")
    assert peers.hear_left(1, timedelta(seconds=20)) == ""
    assert peers.hear_left(2, timedelta(milliseconds=50)) is None
    assert [peers.is_first("closed"), replace(peers, rank=1).is_first("closed")] == [True, False]


def test_a_rank_that_never_enters_is_named() -> None:
    store = torch.distributed.HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    peers = Peers(rank=0, size=2, store=store, device=DeviceKind.CPU, backend="gloo", recorder=None)
    with pytest.raises(CaptureError, match=r"rank 1 did not enter dtbench\.capture"):
        peers.meet(RankHello(host="here", process=RankProcess.find(), wants=(8, 4, 2), problem=None))


class Devices:
    """Stands in for ``torch.cuda``: how many bytes each device holds, and which one is current."""

    def __init__(self, *held: int, current: int) -> None:
        self._held, self._current = held, current

    def is_available(self) -> bool:
        return bool(self._held)

    def is_initialized(self) -> bool:
        return sum(self._held) > 0

    def device_count(self) -> int:
        return len(self._held)

    def memory_allocated(self, index: int) -> int:
        return self._held[index]

    def current_device(self) -> int:
        return self._current


@pytest.mark.parametrize(
    "devices",
    [
        Devices(current=0),
        Devices(0, 0, current=0),
        Devices(5000, current=0),
        Devices(0, 5000, current=1),
        Devices(5000, 5000, current=0),
        Devices(1000, 5000, current=0),
    ],
)
def test_a_rank_that_computes_on_its_current_device_is_measured_there(devices: Devices) -> None:
    assert find_device_problem(devices) is None


@pytest.mark.parametrize("stray", [0, 64])
def test_a_rank_whose_tensors_are_on_another_device_is_told_to_set_it(stray: int) -> None:
    found = find_device_problem(Devices(stray, 5000, 0, current=0))
    assert found is not None
    assert found.startswith("its tensors are on cuda:1, but its current device is cuda:0")
    assert "torch.cuda.set_device(1)" in found


def test_a_wrong_device_is_said_before_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_run, "find_device_problem", lambda: "its tensors are elsewhere")
    with pytest.raises(StoreError, match="rank 0: its tensors are elsewhere"), dtbench.capture(tmp_path, **FEW):
        pass
    assert read_run(the_run(tmp_path)).status is RunStatus.FAILED


def test_a_model_that_was_moved_to_a_wrong_device_later_is_told_after_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Callable[[], None]
) -> None:
    monkeypatch.setattr(own_phases, "find_device_problem", lambda: "its tensors are elsewhere")
    seen = []

    def run_loop() -> None:
        with dtbench.capture(tmp_path, **FEW) as step:
            for number in range(3):
                with step():
                    train()
                seen.append(number)

    with pytest.raises(CaptureError, match="cannot measure rank 0: its tensors are elsewhere"):
        run_loop()
    assert seen == []
    assert read_run(the_run(tmp_path)).status is RunStatus.FAILED


def test_equal_reasons_are_said_once() -> None:
    assert join_reasons(["", ""]) is None
    assert join_reasons(["short", "short"]) == "short"
    assert join_reasons(["", "lost", "lost"]) == "ranks 1, 2: lost"


def test_regions_are_seen_from_outside(train: Callable[[], None]) -> None:
    seen: list[Region | None] = []
    marks = RegionMarks(Recorder(on_region=seen.append), do_nothing)
    with watch_regions(marks):
        train()
        assert seen == [], "between steps nothing is said"
        marks.begin_step()
        train()
        marks.end_step()
    forward, backward, optimizer = Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER
    clip, update = [optimizer, forward], [optimizer, forward]
    assert seen == [forward, backward, forward, *clip, *update, None]
    train()
    assert len(seen) == 8, "the hooks are gone"


def watch(run: Callable[[RegionMarks], None]) -> list[str]:
    """Return the regions of one step."""
    seen: list[Region | None] = []
    marks = RegionMarks(Recorder(on_region=seen.append), do_nothing)
    with watch_regions(marks):
        marks.begin_step()
        run(marks)
        marks.end_step()
    return [str(region) for region in seen if region is not None]


@pytest.mark.parametrize("as_keyword", [False, True])
def test_a_closure_runs_in_regions_of_its_own(as_keyword: bool) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    step = watch(lambda _: optimizer.step(closure=closure) if as_keyword else optimizer.step(closure))
    one = ["forward", "backward", "forward", "optimizer", "forward", "optimizer"]
    assert calls > 1
    assert step == ["forward", "optimizer", *one * calls, "forward"]


def test_an_optimizer_that_steps_without_closure_gets_its_arguments_as_they_are() -> None:
    class Given(torch.optim.SGD):  # type: ignore[name-defined]
        def step(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    optimizer = Given([torch.nn.Parameter(torch.ones(1))])
    with watch_regions(RegionMarks(Recorder(), do_nothing)):
        assert optimizer.step() == ((), {})
        assert optimizer.step(None, scale=2) == ((None,), {"scale": 2})
        assert optimizer.step(closure=None) == ((), {"closure": None})


def find_clipping() -> dict[str, Callable[..., Any]]:
    """Walk what torch has imported for every public name of a function or method that clips gradients by norm."""
    import torch.distributed.fsdp  # noqa: F401 - FSDP1 clips by a method of its own

    named = re.compile(r"(clip_grad\w*|get_total_norm)")
    found: dict[str, Callable[..., Any]] = {}
    for module_name, module in sorted(sys.modules.items()):
        if module_name.split(".")[0] != "torch" or any(part.startswith("_") for part in module_name.split(".")):
            continue
        homes = [(module_name, module)]
        homes += [(f"{module_name}.{name}", one) for name, one in vars(module).items() if issubclass(type(one), type)]
        for path, home in homes:
            for name, value in list(vars(home).items()):
                if named.fullmatch(name) and callable(value):
                    found[f"{path}.{name}"] = value
    return found


def test_every_public_name_of_clipping_is_the_optimizers_region() -> None:
    """The names were imported before anybody watched, as a person's script would have done."""
    names = find_clipping()
    assert {"torch.nn.utils.get_total_norm", "torch.nn.utils.clip_grads_with_norm_"} <= set(names)
    assert len(names) >= 10, sorted(names)
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    arguments: dict[str, tuple[Any, ...]] = {
        "get_total_norm": (gradients,),
        "clip_grads_with_norm_": (gradients, 1.0, torch.tensor(2.0)),
    }
    for path, function in names.items():
        if "." not in inspect.unwrap(function).__qualname__:  # not FSDP1's method: see the test of two ranks
            given = arguments.get(path.rpartition(".")[2], (model.parameters(), 1.0))
            assert watch(functools.partial(call_quietly, function, given))[:2] == ["forward", "optimizer"], path


def call_quietly(function: Callable[..., Any], arguments: tuple[Any, ...], _: RegionMarks) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # a deprecated name is one, too
        function(*arguments)


def test_what_completes_a_total_norm_is_of_clipping_up_to_what_comes_next() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    during: list[Region | None] = []

    def clip(marks: RegionMarks) -> None:
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        during.append(marks._recorder.region)  # a DTensor's norm is summed over ranks here
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
        during.append(marks._recorder.region)

    assert watch(clip) == ["forward", "optimizer", "forward"]
    assert during == [Region.OPTIMIZER, Region.FORWARD]
    alone = watch(lambda _: torch.nn.utils.get_total_norm([torch.ones(2)]))
    assert alone == ["forward", "optimizer"]
    raised = watch(lambda _: torch.nn.utils.get_total_norm([torch.ones(2)]).add(1).sum() and None)
    assert raised == ["forward", "optimizer"]


@pytest.mark.filterwarnings("ignore:`torch.jit.(script|interface)` is deprecated:DeprecationWarning")
@pytest.mark.usefixtures("lone_group")
def test_torchs_averaging_of_models_is_the_optimizers_region_whoever_calls_it() -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    parameters = [torch.nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.ones(2)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(parameters, lr=0.1), PeriodicModelAverager(2, 0))
    assert watch(lambda _: optimizer.step()) == ["forward", "optimizer", "forward", "optimizer", "forward"]
    assert watch(lambda _: PeriodicModelAverager(2, 0).average_parameters(parameters)) == [
        "forward",
        "optimizer",
        "forward",
    ]


class Losses:
    """A small training, bit by bit: each way to measure it has to leave the same losses."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        data = torch.utils.data.TensorDataset(torch.randn(40, 8))
        self.loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
        self.losses: list[float] = []

    def train(self, batch: list[Any]) -> None:
        loss = self.model(batch[0]).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())


def run_plain(training: Losses, _: Path) -> None:
    for _epoch in range(4):
        for batch in training.loader:
            training.train(batch)


def run_with_steps(training: Losses, results: Path) -> None:
    with dtbench.capture(results, **FEW) as step:
        for _ in range(4):
            for batch in training.loader:
                with step():
                    training.train(batch)


def run_over_batches(training: Losses, results: Path) -> None:
    with dtbench.capture(results, **FEW) as step:
        for _ in range(4):
            for batch in step.batches(training.loader):
                with step.region("forward"):
                    training.train(batch)


def run_between_start_and_stop(training: Losses, results: Path) -> None:
    step = dtbench.start(results, **FEW)
    for _ in range(4):
        for batch in training.loader:
            step.begin()
            training.train(batch)
            step.end()
    dtbench.stop()


def run_stopped_early(training: Losses, results: Path) -> None:
    step = dtbench.start(results, **FEW)
    for epoch in range(4):
        for batch in step.batches(training.loader):
            training.train(batch)
        if epoch == 0:
            with pytest.warns(UserWarning, match="the loop ended after 8 steps"):
                dtbench.stop()


def run_watched(training: Losses, results: Path) -> None:
    with dtbench.monitor(json_lines(results / "live.jsonl"), every=8) as monitor:
        for _ in range(4):
            for batch in training.loader:
                with monitor.step():
                    training.train(batch)


def run_with_trace_handler(training: Losses, results: Path) -> None:
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=dtbench.trace_handler(results)) as profiler:
        for _ in range(4):
            for batch in training.loader:
                training.train(batch)
                profiler.step()


@pytest.mark.parametrize(
    "run",
    [
        run_with_steps,
        run_over_batches,
        run_between_start_and_stop,
        run_stopped_early,
        run_watched,
        run_with_trace_handler,
    ],
)
def test_what_is_measured_trains_bit_by_bit_as_what_is_not(tmp_path: Path, run: Callable[[Losses, Path], None]) -> None:
    plain = Losses()
    run_plain(plain, tmp_path)
    measured = Losses()
    run(measured, tmp_path)
    assert len(measured.losses) == 4 * 8
    assert measured.losses == plain.losses
    assert list(tmp_path.iterdir())


def test_every_public_entry_point_that_runs_beside_training_is_tested_to_change_nothing() -> None:
    """A new one belongs into the test above, or here, where it trains nothing."""
    beside = {
        "capture",
        "monitor",
        "start",
        "stop",
        "trace_handler",
        "named_gloo",
    }  # the last one: the test of two ranks
    after = {
        "TrainingModel",
        "compare",
        "history",
        "load_collectives",
        "load_owners",
        "load_run",
        "load_runs",
        "read_trace",
    }
    assert set(dtbench.__all__) == beside | after


def test_a_callback_of_transformers_makes_a_step_of_each_update(tmp_path: Path, train: Callable[[], None]) -> None:
    pytest.importorskip("transformers")
    from dtbench.integrations.transformers import DtbenchCallback

    callback, events = DtbenchCallback(tmp_path, **FEW), (None, None, None)
    callback.on_train_begin(*events, model=None)
    for _ in range(ALL_STEPS + 3):
        callback.on_step_begin(*events)
        train()
        callback.on_step_end(*events)
    callback.on_train_end(*events)
    assert read_run(the_run(tmp_path)).status is RunStatus.COMPLETE


def test_a_callback_of_lightning_records_what_training_raised(tmp_path: Path, train: Callable[[], None]) -> None:
    pytest.importorskip("lightning")
    from dtbench.integrations.lightning import DtbenchCallback

    callback, events = DtbenchCallback(tmp_path, **FEW), (None, None)
    callback.on_train_start(*events)
    for index in range(10):
        callback.on_train_batch_start(*events, None, index)
        train()
        if index < 9:
            callback.on_train_batch_end(*events, None, None, index)
    callback.on_exception(*events, RuntimeError("planted"))
    callback.on_train_end(*events)
    assert read_run(the_run(tmp_path)).reason == "rank 0 raised in step 9 (MEASURED): RuntimeError: planted"


def test_a_program_that_ends_without_stop_says_so(tmp_path: Path) -> None:
    script = f"""
import dtbench
step = dtbench.start({str(tmp_path)!r}, name="mine", max_warmup_steps=8, measured_steps=4, profiled_steps=2)
for number in range(5):
    step.begin()
    step.end()
    if number == 3:
        {{}}["gone"]
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "KeyError" in finished.stderr
    assert read_run(the_run(tmp_path)).reason == "rank 0 raised in step 4 (WARMUP): KeyError: 'gone'"


def test_steps_that_take_turns_are_measured_by_whole_periods(tmp_path: Path) -> None:
    """Gradients of three batches are applied at once: no median is over steps with and without an update."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters())
    with dtbench.capture(tmp_path, **{**FEW, "max_warmup_steps": 40, "tokens_per_step": 10}) as step:
        for number in range(200):
            with step():
                model(torch.ones(4, 64)).sum().backward()
                if number % 3 == 2:
                    optimizer.step()
                    optimizer.zero_grad()
            if step.is_done:
                break
    summary, cell = summarize(tmp_path)
    assert summary.status is RunStatus.COMPLETE
    assert cell.warmup is not None
    assert cell.warmup.settled, cell.warmup.reason
    assert cell.warmup.steps % 3 == 0, "warm-up ends with an update"
    assert number == cell.warmup.steps + 3 * (4 + 1 + 1) - 1
    assert isinstance(cell.plan, OwnLoop)
    assert (cell.plan.measured_steps, cell.plan.profiled_steps, cell.plan.tokens_per_step) == (4, 1, 30)
    assert any("3 of the loop are measured as one step" in note for note in cell.plan.notes)
    (trace,) = RunFolder(the_run(tmp_path)).launch("mine", 0).find_traces().values()
    found = find_regions(read_trace(trace)).regions
    assert found.count(Region.OPTIMIZER) == 1 + 1, "of the untimed period and of the PROFILED one"
    assert found.count(Region.BACKWARD) == 3 + 3


def test_a_step_that_comes_seldom_is_met_while_measuring_and_warm_up_goes_on(tmp_path: Path) -> None:
    """Every tenth step does more: warm-up's eight were all alike."""
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters())
    with dtbench.capture(tmp_path, **{**FEW, "max_warmup_steps": 50, "measured_steps": 12}) as step:
        for number in range(400):
            with step():
                model(torch.ones(4, 16)).sum().backward()
                if number % 10 == 9:
                    optimizer.step()
                    optimizer.zero_grad()
            if step.is_done:
                break
    _, cell = summarize(tmp_path)
    assert cell.warmup is not None
    assert "period of 10" in cell.warmup.reason
    assert cell.warmup.steps % 10 == 0
    assert 20 <= cell.warmup.steps <= 50
    assert number == cell.warmup.steps + 10 * (4 + 1 + 1) - 1
    phases = read_steps(RunFolder(the_run(tmp_path)).launch("mine", 0))["phase"].tolist()
    assert phases == ["WARMUP"] * cell.warmup.steps + ["MEASURED"] * 4 + ["PROFILED"]


def test_modules_are_named_in_profiled_steps_and_in_no_others(tmp_path: Path, train: Callable[[], None]) -> None:
    call = torch.nn.Module.__call__
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4)))
    with dtbench.capture(tmp_path, **FEW) as step:
        for number in range(ALL_STEPS):
            with step():
                assert (torch.nn.Module.__call__ is call) == (number < 8 + 4)
                model(torch.ones(1, 4))
                train()
    assert torch.nn.Module.__call__ is call
    (trace,) = RunFolder(the_run(tmp_path)).launch("mine", 0).find_traces().values()
    names = set(read_trace(trace).names)
    assert {"dtbench::module 0", "dtbench::module 1", "dtbench::module 1.0", "dtbench::module root"} <= names


def test_regions_never_overlap_in_the_trace(tmp_path: Path, train: Callable[[], None]) -> None:
    with dtbench.capture(tmp_path, **FEW) as step:
        for _ in step.batches(range(ALL_STEPS)):
            with step.region("optimizer"):
                train()
    (trace,) = RunFolder(the_run(tmp_path)).launch("mine", 0).find_traces().values()
    found = find_regions(read_trace(trace))
    assert (found.ends_ns[:-1] <= found.starts_ns[1:]).all()
    assert set(found.regions) == {Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER}


def test_an_unknown_region_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(CaptureError, match=r"no region 'loss'; a step has forward, backward, optimizer"),
        dtbench.capture(tmp_path, **FEW) as step,
        step.region("loss"),
    ):
        pass


@pytest.fixture
def lone_group(tmp_path: Path) -> Iterator[None]:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_other_peoples_axes_are_known_by_name() -> None:
    names = {"1": "cp", "2": "ep", "3": "pp", "4": "dp", "5": "mine", "6": "dp_shard", "7": "loss_mesh"}
    assert known_axes(names) == {
        "1": Axis.CONTEXT,
        "2": Axis.EXPERT,
        "3": Axis.PIPELINE,
        "4": Axis.DATA,
        "6": Axis.SHARD,
        "7": Axis.DATA,
    }


@pytest.mark.usefixtures("lone_group")
def test_axes_are_found_on_live_meshes_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # else gloo's world is no mesh's own group
    world = torch.distributed.group.WORLD.group_name
    assert known_axes(find_names({})) == {}
    model = fully_shard(torch.nn.Linear(2, 2))
    assert known_axes(find_names({})) == {world: Axis.SHARD}
    assert [(one.name, one.size) for one in name_mesh(find_names({}))] == [("shard", 1)]
    assert known_axes(find_names({world: "dp_replicate"})) == {world: Axis.REPLICATE}, "the person knows best"
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    assert known_axes(find_names({})) == {world: Axis.TENSOR}, "a mesh goes before a model"
    del model, mesh
    gc.collect()
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    assert known_axes(find_names({})) == {world: Axis.REPLICATE}
    del model


@pytest.mark.usefixtures("lone_group")
def test_a_mesh_that_is_gone_has_left_its_names_to_its_groups() -> None:
    from torch.nn.parallel import DistributedDataParallel

    groups = {
        axis: torch.distributed.new_group([0], group_desc=f"mesh_{axis}") for axis in ("cp", "ep", "pp", "dp", "mine")
    }
    assert known_axes(find_names({})) == {
        groups["cp"].group_name: Axis.CONTEXT,
        groups["ep"].group_name: Axis.EXPERT,
        groups["pp"].group_name: Axis.PIPELINE,
        groups["dp"].group_name: Axis.DATA,
    }
    model = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=groups["dp"])
    assert known_axes(find_names({}))[groups["dp"].group_name] is Axis.REPLICATE, "a model says more than `dp`"
    del model


@pytest.mark.usefixtures("lone_group")
def test_what_a_communication_hook_reduces_over_is_an_axis_of_the_model() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    world = torch.distributed.group.WORLD
    of_state, itself = (torch.distributed.new_group([0]) for _ in range(2))
    models = [DistributedDataParallel(torch.nn.Linear(2, 2)) for _ in range(2)]
    models[0].register_comm_hook(PostLocalSGDState(None, of_state, 4), post_localSGD_hook)
    models[1].register_comm_hook(itself, allreduce_hook)
    assert known_axes(find_names({})) == {one.group_name: Axis.REPLICATE for one in (world, of_state, itself)}
    del models


def test_axes_are_those_of_groups_that_live(tmp_path: Path) -> None:
    """A mesh and a model outlive their groups, whose names torch gives to the next ones."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/first", rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    name = dist.group.WORLD.group_name
    assert find_names({}) == {name: "tp"}
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/second", rank=0, world_size=1)
    try:
        assert dist.group.WORLD.group_name == name
        assert find_names({}) == {}
    finally:
        dist.destroy_process_group()
    del mesh, model


@pytest.mark.filterwarnings("ignore:.*NO_SHARD")
@pytest.mark.usefixtures("lone_group")
def test_what_fsdp1_reduces_for_a_unit_is_named_in_the_trace_of_a_loop_of_ones_own() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    inner = FullyShardedDataParallel(torch.nn.Linear(2, 2), device_id=torch.device("cpu"))
    model = FullyShardedDataParallel(torch.nn.Sequential(inner, torch.nn.Linear(2, 2)), device_id=torch.device("cpu"))
    model(torch.ones(1, 2)).sum().backward()
    with torch.profiler.profile() as profiler, name_live_owners():
        model(torch.ones(1, 2)).sum().backward()
    names = {event.name for event in profiler.events() if event.name.startswith("dtbench::unit")}
    assert names == {"dtbench::unit (root)", "dtbench::unit (0)"}
    del model, inner


def test_overlap_is_only_promised_where_nobody_waits_at_once() -> None:
    def traffic(purpose: Purpose, count_async: int) -> Traffic:
        return Traffic(
            purpose=purpose, axis=None, operation=Operation.ALL_REDUCE, count=2, size_bytes=8, count_async=count_async
        )

    found = {
        one.purpose: one.possible
        for one in read_overlap(
            [traffic(Purpose.GRAD_REDUCE, 2), traffic(Purpose.UNSHARD, 0), traffic(Purpose.TENSOR, 2)]
        )
    }
    assert found == {Purpose.GRAD_REDUCE: True, Purpose.UNSHARD: False}


def torchrun(results: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    return subprocess.run(
        [*command, str(results), *arguments], capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.quick("fsdp")
@pytest.mark.ranks
@pytest.mark.parametrize(
    ("how", "purposes", "axis"),
    [
        ("named", {Purpose.GRAD_REDUCE: 2}, Axis.REPLICATE),
        ("fsdp", {Purpose.UNSHARD: 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 3}, Axis.SHARD),
        ("plain", {Purpose.GRAD_REDUCE: 2}, Axis.REPLICATE),
    ],
    ids=["named", "fsdp", "plain"],
)
def test_two_ranks_under_torchrun_give_a_full_report(
    tmp_path: Path, how: str, purposes: dict[Purpose, int], axis: Axis
) -> None:
    finished = torchrun(tmp_path, how)
    assert finished.returncode == 0, finished.stderr
    analyze_run(the_run(tmp_path))
    summary, cell = summarize(tmp_path)
    assert (summary.status, cell.plan.ranks, count_measured(tmp_path)) == (RunStatus.COMPLETE, 2, 4)
    assert {row.purpose: row.count for row in cell.purposes} == purposes
    assert all(row.planned_count is None and (row.size_bytes or 0) > 0 for row in cell.purposes)
    assert all(row.exposed_comm_ns > 0 and row.compute_ns > 0 for row in cell.ranks)
    assert isinstance(cell.plan, OwnLoop)
    assert [one.axis for one in cell.plan.mesh] == [axis]
    others = {row.owner for row in cell.owners if row.purpose is Purpose.OTHER}
    assert others == ({"clip_grad_norm_", "own_loop.sum_losses", "count rows"} if how == "fsdp" else set())
    gradients = {row.owner for row in cell.owners if row.purpose is Purpose.GRAD_REDUCE}
    assert gradients == ({"root"} if how == "fsdp" else {"bucket 0", "bucket 1"})
    assert any("named_gloo" in note for note in cell.plan.notes) == (how == "plain")
    (first, _) = read_rank_records(RunFolder(the_run(tmp_path)).launch("own_loop", 0))
    assert {row.purpose: row.count for row in first.traffic} == ({} if how == "plain" else purposes)
    assert first.traffic_is_stable


@pytest.mark.ranks
def test_ranks_that_a_program_spawns_are_no_others_of_each_other(tmp_path: Path) -> None:
    script = SCRIPT.with_name("spawned_loop.py")
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "results")]) as program:
        assert program.wait(180) == 0
    launch = RunFolder(the_run(tmp_path / "results")).launch("spawned_loop", 0)
    (use,) = read_use(launch)
    assert use.header.ranks == (0, 1), "one of them looks, for both"
    pids = {program.pid, *(record.pid for record in read_rank_records(launch))}
    assert not pids & {taker.pid for sample in use.samples for taker in sample.takers}


@pytest.mark.ranks
def test_a_rank_that_raises_is_named_and_the_run_is_kept(tmp_path: Path) -> None:
    finished = torchrun(tmp_path, "raise")
    assert finished.returncode != 0
    assert "planted: the data loader lost its file" in finished.stderr, "it is, where ten losses are those of plain DDP"
    summary, _ = summarize(tmp_path)
    assert summary.status is RunStatus.FAILED
    assert summary.reason == "rank 1 raised in step 10 (MEASURED): RuntimeError: planted: the data loader lost its file"
    steps = read_steps(RunFolder(the_run(tmp_path)).launch("own_loop", 0))
    assert steps[steps["rank"] == 1]["step"].tolist() == list(range(10))


@pytest.mark.quick("10-MEASURED")
@pytest.mark.ranks
@pytest.mark.parametrize(("steps", "phase"), [(3, Phase.WARMUP), (10, Phase.MEASURED)])
def test_ranks_that_disagree_about_the_number_of_steps_do_not_hang(tmp_path: Path, steps: int, phase: Phase) -> None:
    finished = torchrun(tmp_path, "disagree", str(steps))
    assert finished.returncode == 0, finished.stderr
    summary, cell = summarize(tmp_path)
    assert summary.status is RunStatus.FAILED
    assert (summary.reason or "").startswith(f"rank 1: the loop ended after {steps} steps, in {phase}")
    assert cell.warmup is not None
    assert cell.warmup.steps == min(steps, 8), "warm-up takes 8 steps there, whatever the noise"


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_modules_are_not_compiled_again_for_being_watched() -> None:
    """What is compiled stays as it is, so that not a bit changes: guards hold on functions that stand in for others."""
    nn = torch.nn

    class Broken(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, rows: Any) -> Any:
            rows = self.first(rows)
            torch._dynamo.graph_break()
            return self.second(rows)

    model = torch.compile(nn.Sequential(Broken(), nn.GELU()), backend="eager")
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    seen: list[Any] = []
    marks = RegionMarks(Recorder(on_region=seen.append), do_nothing)
    step()
    step()
    frames = torch._dynamo.utils.counters["frames"]["total"]
    with torch._dynamo.config.patch(error_on_recompile=True), watch_regions(marks):
        step()
        marks.begin_step()
        with name_live_owners():
            step()
        marks.end_step()
        step()
    assert torch._dynamo.utils.counters["frames"]["total"] == frames
    regions = ["forward", "backward", "forward", "optimizer", "forward", "optimizer", "forward", "None"]
    assert [str(one) for one in seen] == regions

"""Benchmark PyTorch's DTensor, FSDP and DDP: which communication is not hidden behind compute, who owns it, and why.

``dtbench.capture`` measures your own training loop (``start`` and ``stop`` one that calls back),
``dtbench.monitor`` gives numbers while it trains,
``dtbench.TrainingModel`` is your own model in a scenario; ``dtbench.read_trace`` and ``dtbench.load_run`` give a
notebook the numbers of anyone's traces and of a run, ``dtbench.load_runs``, ``load_collectives`` and ``load_owners``
every step, collective and owner of many runs, ``dtbench.compare`` what two of them do differently and what it costs,
``dtbench.history`` how a number changed over many, and ``dtbench.trace_handler`` lets your own profiler write traces
that they read. The rest is the command ``dtbench``.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any

from dtbench.training_model import TrainingModel

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

    from dtbench.live.monitor import Monitor
    from dtbench.live.sinks import Report
    from dtbench.report.notebook.compared import Compared, ComparisonReport
    from dtbench.report.notebook.history import HistoryReport
    from dtbench.report.notebook.loaded import RunReport
    from dtbench.report.notebook.trace_report import TraceReport
    from dtbench.traces.job.chosen_steps import Steps
    from dtbench.worker.user_loop.loop import StepContext

__all__ = [
    "TrainingModel",
    "capture",
    "compare",
    "history",
    "load_collectives",
    "load_owners",
    "load_run",
    "load_runs",
    "monitor",
    "named_gloo",
    "read_trace",
    "start",
    "stop",
    "trace_handler",
]
__version__ = "0.1.0"


def capture(  # noqa: PLR0913 - each is one thing that a person may want to say about a loop, and none is needed
    results: str | PathLike[str] = "results",
    *,
    name: str | None = None,
    mesh: Any = None,
    tokens_per_step: int | None = None,
    max_warmup_steps: int = 60,
    measured_steps: int = 20,
    profiled_steps: int = 5,
    profiler: Mapping[str, bool] | None = None,
) -> "AbstractContextManager[StepContext]":
    """Measure your own training loop: WARMUP, MEASURED and PROFILED steps, and a run folder for ``dtbench report``.

    Every rank enters it, after ``init_process_group``; a single process without one works too. ::

        with dtbench.capture("results") as step:
            for batch in loader:
                with step():
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                if step.is_done:
                    break

    After the last PROFILED step everything is on disk, and further steps run as if dtbench were not there: the
    ``break`` is for who wants no more than numbers. ``for batch in step.batches(loader):`` makes a step of each batch,
    and gives all of them. Where the loop raises or ends too early, the run says so and keeps what was measured.
    Fetching a batch is between steps, in no number.

    Steps that take turns (gradients of several are accumulated, parameters are averaged now and then) are measured by
    whole periods, if the period is at most 32 steps and half of ``max_warmup_steps``; the run says so.

    Args:
        results: folder of all runs, which every rank must see.
        name: of the run; left out: the script's.
        mesh: your ``DeviceMesh`` with its names, or process groups by name (``{"replicate": group}``); left out: as
            the device meshes and wrapped models of this process say.
        tokens_per_step: over all ranks, for a throughput.
        max_warmup_steps: give up waiting for a stable step time after so many; at least 8.
        measured_steps: steps without profiler; at least 4.
        profiled_steps: steps under the profiler.
        profiler: as ``measure.profiler`` of a scenario, for example ``{"with_stack": True}``.

    Raises:
        CaptureError: this program cannot be measured as it is written.
        StoreError: a rank cannot write to ``results``.
    """
    from pathlib import Path

    from dtbench.worker.user_loop.loop import capture_loop
    from dtbench.worker.user_loop.options import CaptureOptions

    return capture_loop(
        CaptureOptions(
            results=Path(results),
            name=name,
            mesh=mesh,
            tokens_per_step=tokens_per_step,
            max_warmup_steps=max_warmup_steps,
            measured_steps=measured_steps,
            profiled_steps=profiled_steps,
            profiler=profiler,
        )
    )


def start(results: str | PathLike[str] = "results", **options: Any) -> "StepContext":
    """Begin what ``capture`` does without a ``with``, where somebody else's code runs the loop and calls back. ::

        step = dtbench.start("results")  # when training begins, on every rank
        step.begin()                     # before each step
        step.end()                       # after it
        dtbench.stop()                   # when training has ended

    ``dtbench.integrations`` has such callbacks for transformers and Lightning. If the program ends without ``stop``,
    the run says so, and with which error.

    Args:
        results: folder of all runs, which every rank must see.
        options: as those of ``capture``.

    Raises:
        CaptureError: this program cannot be measured as it is written.
        StoreError: a rank cannot write to ``results``.
    """
    from dtbench.worker.user_loop.loop import start_capture

    return start_capture(capture(results, **options))


def stop() -> None:
    """End what ``start`` began, and say whether it saw all the steps that it needed; nothing where it has ended."""
    from dtbench.worker.user_loop.loop import stop_capture

    stop_capture()


def monitor(*sinks: "Callable[[Report], None]", every: int = 20) -> "AbstractContextManager[Monitor]":
    """Watch a training loop while it trains, without a profiler: exposed time, by purpose, and who is late. ::

        from dtbench.live.sinks import json_lines, print_line, tensorboard

        with dtbench.monitor(print_line(), json_lines("live.jsonl")) as monitor:
            for batch in loader:
                with monitor.step():  # or monitor.step() after each step
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()

    On CPU (gloo). Every rank enters it, after ``init_process_group``; a single process without one works too. What is
    trained is the same, bit for bit. The first step is in no number.

    Args:
        sinks: functions that rank 0 calls with each ``Report`` (``.numbers`` is a dict of floats), those of
            ``dtbench.live.sinks`` or your own; left out: a line is printed.
        every: so many steps are one report.

    Raises:
        CaptureError: this program cannot be watched as it is written.
    """
    from dtbench.live.monitor import watch_loop

    return watch_loop(sinks, every)


def named_gloo() -> str:
    """Make a gloo known that tells dtbench about every collective; gives its name for ``init_process_group``.

    ``dist.init_process_group(dtbench.named_gloo())`` in place of ``"gloo"``: it forwards every call unchanged. Without
    it a report still finds most purposes, but neither groups nor waits in Python, since gloo's traces name neither. It
    costs some microseconds of Python per collective, so leave it out of a training that nobody measures.
    """
    from dtbench.worker.user_loop.loop import name_gloo

    return name_gloo()


def read_trace(
    path: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    workers: int | None = None,
    patterns: str | PathLike[str] | None = None,
    steps: "Steps" = None,
    step_range: str = "",
) -> "TraceReport":
    """Account for anyone's Kineto traces: a file, a folder or archive of ranks, or several; ``print`` the answer. ::

        traces = dtbench.read_trace("traces/")
        print(traces)                                      # step 412 ms, 38 ms exposed (9.2 %); ...
        traces.overlap.groupby("rank")["exposed_comm_ns"].describe()

    Its tables are DataFrames: ``overlap`` (one row per rank and step), ``whole`` (per rank), ``purposes``,
    ``collectives`` (``owner``, ``cause``, ``exposed_ns`` and its parts, ``skew_wait_ns``, ``busbw`` in bytes per
    second), ``lanes``, ``groups``, ``gaps``, ``comm_waits``, ``overlap_tax``; ``docs/reference/tables.md`` says all
    columns, dtypes and units. ``notes`` says what they do not count.

    Args:
        path: traces of one job.
        workers: traces to read at once, each in a process; left out: as cores and memory allow.
        patterns: a YAML file of your own kernels, asked before dtbench's table:
            ``- {pattern: my_all_gather, kind: comm, operation: all_gather}``.
        steps: a window: one step's number, or (first, last); the others are in no number of a step, and counted.
        step_range: name of the ranges that are the steps, ``"my_step"`` of ``record_function("my_step")``; left out: as
            the profiler marks them (``ProfilerStep#12``).

    Raises:
        TraceError: there is no trace, none can be read, none has such a step or range, or ranks have unlike many.
        PatternsError: the file of patterns is wrong.
    """
    from pathlib import Path

    from dtbench.report.notebook.trace_report import TraceReport
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import analyze_traces
    from dtbench.traces.kinds.pattern_file import load_patterns

    paths = [path] if isinstance(path, str | PathLike) else path
    own = () if patterns is None else load_patterns(Path(patterns))
    traces = analyze_traces(
        [Path(one) for one in paths], workers=workers, patterns=own, steps=find_range(steps), step_range=step_range
    )
    return TraceReport(traces)


def load_run(path: str | PathLike[str]) -> "RunReport":
    """Return a run's numbers as DataFrames: ``steps``, ``overlap``, ``purposes``, ``collectives``, ``owners``. ::

        run = dtbench.load_run("results/quickstart")  # the latest of these; or one run's folder
        run  # a notebook shows the answer; print(run) says it
        run.plot_exposed()  # and plot_breakdown, plot_owners, plot_overlap, plot_step_distribution, plot_sweep
        run.collectives.query("exposed_ns > 1e6")

    ``summary`` has what ``dtbench report`` shows, ``tables`` the others of the traces by name (``lanes``, ``groups``,
    ``gaps``, ``comm_waits``, ``overlap_tax``). Every table has the columns ``run``, ``cell`` and ``launch``, then those
    that ``docs/reference/tables.md`` tells. Tables that are missing are made from the traces. Steps that others
    disturbed are in none of them, as in no number of ``summary``: ``left_out`` has their rows by the table's name.

    Args:
        path: folder of one run, or of several: the latest; a scenario's name finds those in ``results``.

    Raises:
        StoreError: there is no run, or a file of it is broken or of another version.
    """
    from pathlib import Path

    from dtbench.report.notebook.loaded import load_run as load

    return load(Path(path))


def load_runs(path: str | PathLike[str] = "results", *, all_steps: bool = False) -> "pd.DataFrame":
    """Return every step of every rank of many runs as one DataFrame, a row each. ::

        steps = dtbench.load_runs("results")
        measured = steps[steps["phase"] == "MEASURED"]
        measured.groupby(["scenario", "run", "cell", "launch"], observed=True)["duration_ns"].median()

    Columns (``run_steps`` in ``docs/reference/tables.md``): ``scenario``, ``run``, ``status``, ``cell``, ``launch``,
    one for each knob that varies (an axis of a sweep, or a field in which runs of one scenario differ in one cell, as
    ``parallel.bucket_cap_mb``: text as in the scenario, NA elsewhere), ``rank``, ``step``, ``phase``, ``start_ns``,
    ``duration_ns``, ``cpu_ns``. Words are categories: say ``observed=True`` to ``groupby``. Launches that did not end
    well, files that are broken and steps that others disturbed are left out, as in every answer: a warning says so, and
    ``steps.attrs["notes"]`` has a sentence for each.

    Args:
        path: folder of all runs, of one scenario's, or of one run.
        all_steps: give disturbed steps, too; a column more, ``is_left_out``, tells which they are.

    Raises:
        StoreError: there is no run.
    """
    from pathlib import Path

    from dtbench.report.notebook.loaded import load_runs as load

    return load(Path(path), all_steps=all_steps)


def load_collectives(path: str | PathLike[str] = "results") -> "pd.DataFrame":
    """Return every collective of many runs as one DataFrame, a row each. ::

        found = dtbench.load_collectives("results")
        found.groupby(["scenario", "run", "cell", "why"])["exposed_ns"].sum()

    Columns (``run_collectives`` in ``docs/reference/tables.md``): ``scenario``, ``run``, ``cell``, ``launch``, one for
    each knob that varies (``parallel.bucket_cap_mb``), those of ``run.collectives``, and ``why``, the cause in the
    words of reports. Left out is what ``load_runs`` leaves out, with a warning and ``.attrs["notes"]`` as there.

    Args:
        path: folder of all runs, of one scenario's, or of one run.

    Raises:
        StoreError: there is no run.
    """
    from pathlib import Path

    from dtbench.report.notebook.many import load_collectives as load

    return load(Path(path))


def load_owners(path: str | PathLike[str] = "results") -> "pd.DataFrame":
    """Return whose communication was exposed and why, of many runs, as one DataFrame. ::

        owners = dtbench.load_owners("results")
        owners[~owners["is_doubted"]].groupby(["scenario", "run", "cell", "why"])["exposed_ns"].sum()

    Columns (``run_owners`` in ``docs/reference/tables.md``): ``scenario``, ``run``, ``cell``, one for each knob that
    varies, then those of ``run.owners``. Left out is what ``load_runs`` leaves out, with a warning and
    ``.attrs["notes"]`` as there.

    Args:
        path: folder of all runs, of one scenario's, or of one run.

    Raises:
        StoreError: there is no run.
    """
    from pathlib import Path

    from dtbench.report.notebook.many import load_owners as load

    return load(Path(path))


def compare(
    baseline: "Compared",
    candidate: "Compared",
    *,
    results: str | PathLike[str] = "results",
    force: bool = False,
    threshold: float = 0.01,
) -> "ComparisonReport":
    """Say what two things did differently, then what it cost, and whether that is more than noise. ::

        found = dtbench.compare("results/bucket_sweep:small", "results/bucket_sweep:large")
        found  # a notebook shows the answer; print(found) says it
        found.metrics, found.mechanism, found.collectives  # DataFrames
        found.plot()  # each metric's change with its interval
        found.assert_no_slowdown(max_percent=5)  # in a test; and found.assert_kept("mechanism changed")

    Each is a run (its folder, a scenario's for the latest, or what ``load_run`` gave), one cell of it
    (``"<run>:<cell>"``), runs that match a pattern, a saved baseline's name or file, or anyone's traces.

    Args:
        baseline: what to compare with.
        candidate: what is compared.
        results: folder of all runs and baselines.
        force: compare although the environments are unlike; a note names in what.
        threshold: relative changes below it do not matter to you.

    Raises:
        ComparisonError: they are of several cells, of unlike environments, or of nothing that can be compared.
        StoreError: there is no such thing, or a file of it is broken or of another version.
        TraceError: they are traces, and none can be read.
    """
    from pathlib import Path

    from dtbench.report.notebook.compared import compare as compare_both

    return compare_both(baseline, candidate, results=Path(results), force=force, threshold=threshold)


def history(
    scenario: str | None = None,
    *,
    cell: str | None = None,
    metric: str = "step_time",
    by: str = "run",
    since: "datetime | None" = None,
    results: str | PathLike[str] = "results",
) -> "HistoryReport":
    """Return a number of one cell over its runs, and where its level changed. ::

        found = dtbench.history("nightly", cell="fsdp2", metric="exposed[unshard]", by="commit")
        found  # a notebook shows the answer; print(found) says it
        found.points, found.changes  # DataFrames
        found.plot()

    Args:
        scenario: whose runs; left out: of the only one that has some.
        cell: which of its cells; left out: the only one of the newest run.
        metric: of which number, as ``dtbench compare --fail-if`` names it.
        by: what a point is: ``run``, ``commit``, ``torch`` or ``date``.
        since: only runs that began then or later.
        results: folder of all runs.

    Raises:
        StoreError: there is no such run, or none can be read.
        ComparisonError: there are several scenarios or cells, and none is named.
        ValueError: no metric or point is called so.
    """
    from pathlib import Path

    from dtbench.report.notebook.history import load_history

    return load_history(Path(results), scenario, cell, metric, by, since)


def trace_handler(folder: str | PathLike[str]) -> Callable[[Any], None]:
    """Return what your own profiler needs to write traces that ``dtbench analyze`` reads, and nothing else. ::

        with torch.profiler.profile(schedule=..., on_trace_ready=dtbench.trace_handler("traces")) as profiler:
            for batch in loader:
                ...
                profiler.step()

    Every rank writes ``<folder>/rank<r>.<ns>.pt.trace.json.gz``, whole or not at all; TensorBoard reads it, too. The
    rank is torch.distributed's, else that of the launcher's ``RANK``, else 0. A trace that cannot be written is logged
    and does not end the training.

    Raises:
        StoreError: the folder cannot be made.
    """
    from pathlib import Path

    from dtbench.worker.loop.trace_handler import make_trace_handler

    return make_trace_handler(Path(folder))

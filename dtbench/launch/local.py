"""Start all ranks of a launch on this machine with torch elastic, and say how each ended.

Every launch gets fresh processes, a fresh rendezvous and a fresh process group: that is what makes launches
independent samples.
"""

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dtbench.errors import LaunchError, MissingError, StoreError
from dtbench.launch.killed import HUNG, OWN_MISTAKES, RAISED, describe_signal, keep_killed
from dtbench.launch.machine import NO_TORCH
from dtbench.launch.watch import Watch, look
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalView, RankState, name_unphased
from dtbench.store.layout import LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.records import LOG_FOLLOWS, EventLine, LaunchRecord, RankFailure, RunStatus, WorkerOrder
from dtbench.store.write import write_record
from dtbench.vocabulary import DeviceKind

WORKER = (sys.executable, "-P", "-m", "dtbench.worker")
"""``-P``: the same dtbench as here, and no module of the current folder in place of a library's."""
_LAST_LINES = 12


@dataclass(frozen=True)
class Ended:
    """How one rank's process ended, as elastic saw it: an exit code (negative: the signal that killed it)."""

    rank: int
    exit_code: int


def launch_ranks(
    order: WorkerOrder,
    folder: LaunchFolder,
    *,
    on_look: Callable[[tuple[JournalView | None, ...]], None],
    worker: Sequence[str] = WORKER,
) -> None:
    """Run one launch to its end; on failure everything measured before is gathered and a failed record is written.

    Raises:
        LaunchError: a rank raised, was killed or hung; names it, with its last step and log lines.
        KeyboardInterrupt: the user stopped it.
        MissingError: torch is not installed.
    """
    write_record(folder.order, order)
    plan = order.plan
    with Watch(
        folder, ranks=plan.ranks, device=plan.device, stall_timeout_ns=plan.stall_timeout_ns, on_look=on_look
    ) as watch:
        try:
            ended = _run_elastic(order, folder, worker)
        except KeyboardInterrupt as stop:
            _fail(order, folder, (), describe_stop(stop))
            raise
    failures = describe_failures(folder, ended, hung=watch.hung, ranks=order.plan.ranks)
    if not failures:
        return
    reason = _summarize(failures)
    if not order.is_reference and all(folder.rank_record(rank).exists() for rank in range(order.plan.ranks)):
        # every result was on disk: only leaving the process group went wrong, as gloo's sometimes does
        finish_launch(folder, _end(order, RunStatus.COMPLETE, reason, failures), ranks=order.plan.ranks)
        return
    with suppress(StoreError):  # a full disk must not hide why the rank failed
        if not order.is_reference and keep_killed(folder, failures, ranks=order.plan.ranks):
            finish_launch(folder, _end(order, RunStatus.COMPLETE, None, failures), ranks=order.plan.ranks)
            return
        _fail(order, folder, failures, reason)
    raise LaunchError(reason)


_STOPPED_BY = "stopped by {}"


def describe_stop(stop: KeyboardInterrupt) -> str:
    """Say what stopped the run: Ctrl-C, or the signal that a scheduler sent."""
    said = str(stop)
    return said if said and said != _STOPPED_BY.format("SIGINT") else "stopped by the user (Ctrl-C)"


def _run_elastic(order: WorkerOrder, folder: LaunchFolder, worker: Sequence[str]) -> tuple[Ended, ...]:
    """Run the worker once per rank; gives the processes that failed, first failure first, empty when all went well."""
    try:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    except ModuleNotFoundError as error:
        raise MissingError(NO_TORCH) from error
    with (
        _quiet_logging(),
        tempfile.TemporaryDirectory(prefix="dtbench-logs-") as logs,
        _environment(order),
        _restored_signals(),
    ):
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=order.plan.ranks,
            run_id=f"dtbench-{os.getpid()}-{time.time_ns()}",
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            max_restarts=0,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.ALL),
        )
        command, *arguments = worker
        command = order.scenario.python or command
        try:
            elastic_launch(config, command)(*arguments, "--order", str(folder.order))
        except ChildFailedError as error:
            return tuple(Ended(rank, failure.exitcode) for rank, failure in _by_time(error.failures))
        except SignalException as error:
            raise KeyboardInterrupt(_STOPPED_BY.format(error.sigval.name)) from error
        finally:
            _collect_logs(Path(logs), folder, order.plan.ranks)
    return ()


def _by_time(failures: dict[int, Any]) -> list[tuple[int, Any]]:
    return sorted(failures.items(), key=lambda item: item[1].timestamp)


@contextmanager
def _environment(order: WorkerOrder) -> Iterator[None]:
    """Set what the ranks inherit: threads per rank, and loopback for gloo, since all ranks are on this machine.

    What the user has set stays, except the BLAS limit that dtbench gives itself; the scenario's ``env`` wins over both.
    """
    threads = str(order.plan.threads_per_rank)
    added = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": threads}
    added[LAUNCHER_VARIABLE] = str(os.getpid())
    if order.plan.device is DeviceKind.CPU and sys.platform in ("linux", "darwin"):
        added["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    before = dict(os.environ)
    os.environ.update({name: before.get(name, value) for name, value in added.items()})
    os.environ["OPENBLAS_NUM_THREADS"] = threads
    os.environ.update(order.scenario.env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Keep elastic's own log lines off the screen: what they tell is told by our errors, with rank and step."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _restored_signals() -> Iterator[None]:
    """Give the signal handlers back that elastic replaces while it runs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(ValueError, TypeError):  # not in the main thread, or set from C
                signal.signal(number, handler)


def _collect_logs(logs: Path, folder: LaunchFolder, ranks: int) -> None:
    """Put each rank's output and error into one file of the run folder."""
    for rank in range(ranks):
        parts = [path for name in ("stdout.log", "stderr.log") for path in logs.glob(f"*/attempt_0/{rank}/{name}")]
        with suppress(OSError):
            folder.logs.mkdir(parents=True, exist_ok=True)
            with folder.log(rank).open("wb") as target:
                for part in parts:
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)
            if parts:
                shutil.copystat(parts[-1], folder.log(rank))  # when it last wrote says when it died of a signal


def describe_failures(
    folder: LaunchFolder, ended: tuple[Ended, ...], *, hung: tuple[int, ...], ranks: int
) -> tuple[RankFailure, ...]:
    """Say of each failed rank what happened, where it was and what it said last; empty when all went well.

    The culprit comes first: a rank that left without an error before its work was done; then those that hung, or died
    of a signal from outside; then those that raised or died of their own mistake, in order of time, since losing a peer
    raises in the others, and makes gloo crash in some; last those that the clean-up ended.
    """
    views = look(folder, ranks)
    failed = {item.rank for item in ended}
    early = [
        rank for rank, view in enumerate(views) if rank not in failed and (not view or view.state is not RankState.DONE)
    ]
    everyone = (*ended, *(Ended(rank, 0) for rank in early))
    failures = [_describe(folder, item, views[item.rank], hung=hung) for item in everyone]

    def blame(failure: RankFailure) -> tuple[bool, bool, bool, int]:
        can_follow = failure.what == RAISED or failure.what in OWN_MISTAKES
        find_time = _failed_unix_ns if failure.what == RAISED else _died_unix_ns
        time_ns = find_time(folder, failure.rank) if can_follow else 0
        return failure.what != _LEFT, failure.what == _VICTIM, can_follow, time_ns

    ordered = sorted(failures, key=blame)
    if ended and all(failure.what == _VICTIM for failure in ordered):  # elastic's first failure has no other cause
        first = next(failure for failure in ordered if failure.rank == ended[0].rank)
        outside = first.model_copy(update={"what": "ended by SIGTERM from outside"})
        ordered = [outside, *(failure for failure in ordered if failure.rank != first.rank)]
    return tuple(ordered)


def _failed_unix_ns(folder: LaunchFolder, rank: int) -> int:
    """When a rank said that it failed; far in the future if it never did."""
    with suppress(OSError, ValueError):
        lines = folder.events(rank).read_text(encoding="utf-8").splitlines()
        said = (EventLine.model_validate_json(line) for line in lines)
        return min((event.unix_ns for event in said if event.event == "failed"), default=sys.maxsize)
    return sys.maxsize


def _died_unix_ns(folder: LaunchFolder, rank: int) -> int:
    """When a rank that died of its own mistake wrote what its threads did then; 0 if it never did."""
    log = folder.log(rank)
    with suppress(OSError):
        if any(line.startswith(_FATAL) for line in log.read_text(encoding="utf-8", errors="replace").splitlines()):
            return log.stat().st_mtime_ns
    return 0


_LEFT = "left without an error before its work was done"
_VICTIM = "ended because another rank failed"


def _describe(folder: LaunchFolder, ended: Ended, view: JournalView | None, *, hung: tuple[int, ...]) -> RankFailure:
    raised = _failed_unix_ns(folder, ended.rank) < sys.maxsize
    if ended.rank in hung:
        what = HUNG
    elif ended.exit_code == -signal.SIGTERM:
        what = _VICTIM
    elif ended.exit_code < 0 and not raised:  # gloo may abort a process that leaves because of an exception
        what = describe_signal(-ended.exit_code)
    else:
        what = RAISED if ended.exit_code else _LEFT
    return RankFailure(
        rank=ended.rank,
        what=what,
        last_step=view.step if view else None,
        last_phase=str(view.phase) if view and view.phase else None,
        last_region=str(view.region) if view and view.region else None,
        last_lines=read_last_lines(folder.log(ended.rank)),
    )


def read_last_lines(path: Path) -> tuple[str, ...]:
    """Give what a log says of the end, without blank lines: the innermost frames of a stack dump, else its last lines.

    Without what extension modules report of themselves once the interpreter is at its end. Empty when there is no log.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lines = [line for line in text.splitlines() if line.strip() and not OF_EXIT.match(line)]
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)][-1:]
    dumps = [number for number, line in enumerate(lines) if line.startswith(_CURRENT_THREAD)][-1:]
    # a thread of torch's own has no Python frames, and no part of the dump: what the others did follows the first line
    starts = dumps or [number + 1 for number in fatal]
    if not starts:
        return tuple(lines[-_LAST_LINES:])
    return tuple([*(lines[number] for number in fatal), *lines[starts[0] :]][:_LAST_LINES])


OF_EXIT: Final = re.compile(
    r"nanobind: (leaked \d+ |this is likely caused by a reference counting issue)| - leaked (instance|type|function) "
    r"| - \.\.\. skipped remainder$|See https://nanobind\.\S+/refleaks\.html$"
)
"""What nanobind, in triton since the one of torch 2.15, writes at the exit of what is not freed.

A forked rank frees nothing that it has from its server, since the collector leaves that alone: it would take a second.
"""
_FATAL, _CURRENT_THREAD = "Fatal Python error", "Current thread 0x"
"""How ``faulthandler`` begins a dump, and the part of it that matters."""


def _summarize(failures: tuple[RankFailure, ...]) -> str:
    """Make the sentence of the error from the first culprit."""
    first = failures[0]
    phase = first.last_phase or name_unphased(first.last_region)
    where = "before its first step" if first.last_step is None else f"in step {first.last_step} ({phase}"
    if first.last_step is not None:
        where += f", {first.last_region})" if first.last_region else ")"
    others = f"; {len(failures) - 1} more ended with it" if len(failures) > 1 else ""
    lines = "".join(f"\n  | {line}" for line in first.last_lines)
    return f"rank {first.rank} {first.what}, last seen {where}{others}" + (
        f"{LOG_FOLLOWS}{lines}" if lines else "; its log is empty"
    )


def _fail(order: WorkerOrder, folder: LaunchFolder, failures: tuple[RankFailure, ...], reason: str) -> None:
    finish_launch(folder, _end(order, RunStatus.FAILED, reason, failures), ranks=order.plan.ranks)


def _end(order: WorkerOrder, status: RunStatus, reason: str | None, failures: tuple[RankFailure, ...]) -> LaunchRecord:
    return LaunchRecord(
        cell=order.cell,
        index=order.index,
        status=status,
        started_unix_ns=order.launched_unix_ns or 0,
        duration_ns=time.time_ns() - (order.launched_unix_ns or time.time_ns()),
        reason=reason,
        failures=failures,
    )

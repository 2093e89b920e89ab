"""Start all ranks of a launch on this machine, and say how each ended.

Every launch gets fresh processes, a fresh store and a fresh process group: that is what makes launches independent
samples.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from dtbench.base.errors import LaunchError, MissingError, StoreError
from dtbench.base.signals import describe_stop, is_urgent
from dtbench.base.vocabulary import DeviceKind
from dtbench.launch.blame import Blame, find_culprits, is_early
from dtbench.launch.killed import salvage_stage_failure
from dtbench.launch.machine import NO_TORCH
from dtbench.launch.memory import count_oom_kills, read_oom_kills
from dtbench.launch.rank_processes import Ended, RankProcess, RankProcesses
from dtbench.launch.watch import HangJudge, Watch
from dtbench.machine.processes import count_cores
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalView
from dtbench.store.layout import LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.read import read_launch
from dtbench.store.records.run import LaunchRecord, RankFailure, RunStatus, WorkerOrder
from dtbench.store.write import write_record

WORKER = (sys.executable, "-P", "-m", "dtbench.worker")
"""``-P``: the same dtbench as here, and no module of the current folder in place of a library's."""

_LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_INTERFACE: Final = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
ONE_NODE: Final = {
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_NAME": "default",
    "MASTER_ADDR": _LOOPBACK,
    "TORCHELASTIC_USE_AGENT_STORE": "True",  # no rank makes a store: the launcher has
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
"""As torchrun sets them ("Environment Variables" of its documentation)."""


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
    began_ns, oom_kills = time.monotonic_ns(), read_oom_kills()
    try:
        judge = HangJudge(plan.ranks, stall_timeout_ns=plan.stall_timeout_ns).judge
        with Watch(folder, ranks=range(plan.ranks), device=plan.device, judge=judge, on_look=on_look) as watch:
            ended = _run_ranks(order, folder, worker, on_failure=watch.note_stopped)
    except KeyboardInterrupt as stop:
        with suppress(StoreError):  # a full disk must not hide who stopped it
            close_stopped(order, folder, describe_stop(stop), began_ns)
        raise
    ran_out = count_oom_kills(oom_kills)
    blame = find_culprits(folder, ended, held_up=watch.held_up, oom_kills=ran_out)
    if blame.failures:
        close_failed(order, folder, blame, began_ns)


def _run_ranks(
    order: WorkerOrder, folder: LaunchFolder, worker: Sequence[str], *, on_failure: Callable[[], None]
) -> tuple[Ended, ...]:
    """Run the worker once per rank; gives how each process ended, in order of time."""
    python, *arguments = worker
    command = (order.scenario.python or python, *arguments, "--order", str(folder.order))
    ranks = order.plan.ranks
    with _meet(ranks) as found:
        variables = {**make_environment(order), **found}
        processes = RankProcesses(
            [
                RankProcess(command, {**variables, **variables_of(rank, ranks)}, folder.log(rank))
                for rank in range(ranks)
            ],
            is_urgent=is_urgent,
            has_failed=lambda one: one.exit_code != 0 or is_early(folder, one.rank),
            on_failure=on_failure,
        )
        with processes:
            processes.wait()
        return tuple(processes.ended)


@contextmanager
def _meet(ranks: int) -> Iterator[Mapping[str, str]]:
    """Hold the store of one launch; gives the variables by which all of its ranks find it."""
    with host_store(_LOOPBACK, ranks) as (_store, port):
        yield {**ONE_NODE, "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": f"dtbench-{port}"}


@contextmanager
def host_store(address: str, connections: int, port: int = 0) -> Iterator[tuple[Any, int]]:
    """Hold a store of torch's at an address of this machine; gives it and its port.

    It is on a socket of ours: torch's own would listen on every interface of the machine.

    Args:
        address: "" for every interface.
        connections: that may come at once.
        port: 0: any that is free.

    Raises:
        MissingError: torch is not installed.
        OSError: nothing can listen there.
    """
    try:
        from torch.distributed import TCPStore
    except ModuleNotFoundError as error:
        raise MissingError(NO_TORCH) from error
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(max(128, 2 * connections))
    except OSError:
        listener.close()
        raise
    found = listener.getsockname()[1]
    at = address or _LOOPBACK
    store = TCPStore(at, found, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    try:
        yield store, found
    finally:
        del store


def variables_of(rank: int, ranks: int, here: range | None = None) -> Mapping[str, str]:
    """Return the variables that say which rank a process is; ``here``: the ranks of its node, None: all of them."""
    here = range(ranks) if here is None else here
    numbers = {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": rank - here.start}
    sizes = {"WORLD_SIZE": ranks, "ROLE_WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": len(here)}
    return {name: str(number) for name, number in (numbers | sizes).items()}


def make_environment(order: WorkerOrder, interface: str | None = _LOOPBACK_INTERFACE) -> Mapping[str, str]:
    """Return what all ranks inherit: threads per rank, and the network interface for gloo.

    That is loopback where all ranks are on this machine; None: gloo looks for it.

    What the user has set stays, except the BLAS limit that dtbench gives itself; the scenario's ``env`` wins over both.
    """
    threads = str(order.plan.share_cores(count_cores()))
    added = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": threads}
    if order.plan.device is DeviceKind.CPU and interface is not None:
        added["GLOO_SOCKET_IFNAME"] = interface
    own = {LAUNCHER_VARIABLE: str(os.getpid()), "OPENBLAS_NUM_THREADS": threads}
    return {**added, **os.environ, **own, **order.scenario.env}


def close_stopped(order: WorkerOrder, folder: LaunchFolder, reason: str, began_ns: int) -> None:
    """Write how a launch ended that somebody stopped; one whose results are all there is complete."""
    if _is_complete(folder):
        return
    if _has_all_results(order, folder):
        write_end(order, folder, RunStatus.COMPLETE, reason, (), began_ns)
        return
    write_end(order, folder, RunStatus.FAILED, reason, (), began_ns)


def close_failed(order: WorkerOrder, folder: LaunchFolder, blame: Blame, began_ns: int) -> None:
    """Write how a launch ended of which ranks failed.

    Raises:
        LaunchError: results are missing for it.
    """
    failures, reason = blame.failures, blame.sentence
    if _has_all_results(order, folder):
        # every result was on disk: only leaving the process group went wrong, as gloo's sometimes does
        write_end(order, folder, RunStatus.COMPLETE, reason, failures, began_ns)
        return
    with suppress(StoreError):  # a full disk must not hide why the rank failed
        if not order.is_reference and salvage_stage_failure(folder, failures, ranks=order.plan.ranks):
            write_end(order, folder, RunStatus.COMPLETE, None, failures, began_ns)
            return
        write_end(order, folder, RunStatus.FAILED, reason, failures, began_ns)
    raise LaunchError(reason)


def _is_complete(folder: LaunchFolder) -> bool:
    """Tell whether rank 0 has closed the launch already."""
    with suppress(StoreError):
        return folder.launch.exists() and read_launch(folder).status is RunStatus.COMPLETE
    return False


def _has_all_results(order: WorkerOrder, folder: LaunchFolder) -> bool:
    return not order.is_reference and all(folder.rank_record(rank).exists() for rank in range(order.plan.ranks))


def write_end(
    order: WorkerOrder,
    folder: LaunchFolder,
    status: RunStatus,
    reason: str | None,
    failures: tuple[RankFailure, ...],
    began_ns: int,
) -> None:
    """Write how a launch ended that began at ``began_ns`` of the monotonic clock."""
    record = LaunchRecord(
        cell=order.cell,
        index=order.index,
        status=status,
        started_unix_ns=order.launched_unix_ns or 0,
        duration_ns=time.monotonic_ns() - began_ns,
        reason=reason,
        failures=failures,
    )
    finish_launch(folder, record, ranks=order.plan.ranks)

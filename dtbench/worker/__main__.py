"""One rank: ``python -m dtbench.worker --order FILE``, started by dtbench, by torchrun, by Slurm or by hand.

The order says everything that is measured; ``RANK``, ``WORLD_SIZE`` and the rendezvous come from the environment, as
torchrun sets them. Results go to the launch folder that the order names.
"""

import argparse
import faulthandler
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import format_exception_only
from typing import NoReturn

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from dtbench.base.errors import DtbenchError, PlanError, StoreError
from dtbench.base.vocabulary import DeviceKind, Region
from dtbench.machine.processes import count_cores
from dtbench.plan.rules.machine import NO_COMMON_CLOCK
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Fsdp2
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalWriter, RankState
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import LaunchRecord, RunStatus, WorkerOrder
from dtbench.store.write import write_record
from dtbench.worker.joining import Rank, process_group
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.correctness import write_reference
from dtbench.worker.machine.environment import die_with_launcher, read_environment
from dtbench.worker.machine.process_facts import process_start_unix_ns
from dtbench.worker.machine.spin import Spin
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.cuda_link import CudaLink, ask_for_queues
from dtbench.worker.network.link import Link
from dtbench.worker.recording.events import Events
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.reference import run_reference
from dtbench.worker.session import run_rank

_THREAD_VARIABLES = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}
"""Read by torch when it is imported; a scenario that sets one wants to see what it does."""


_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@record
def main() -> None:
    """Run one rank of a launch."""
    parser = argparse.ArgumentParser(prog="python -m dtbench.worker", description=__doc__)
    parser.add_argument("--order", type=Path, required=True, help="order.json of a launch folder")
    order = WorkerOrder.model_validate_json(parser.parse_args().order.read_bytes())
    rank = Rank.from_environment()
    prepare_process()
    capacity = order.plan.max_warmup_steps + order.plan.measured_steps + order.plan.profiled_steps + 1
    folder = LaunchFolder(Path(order.folder))
    try:
        with JournalWriter(folder.journal(rank.rank), rank=rank.rank, pid=os.getpid(), capacity=capacity) as journal:
            events = Events(folder.events(rank.rank), journal)
            with telling_failure(events), written_to_the_end(rank, journal):
                run(order, rank, journal, events)
    except DtbenchError as error:  # a sentence for the person: where it was raised says nothing more
        raise SystemExit(str(error)) from error


@contextmanager
def written_to_the_end(rank: Rank, journal: JournalWriter) -> Iterator[None]:
    """Have node 0 see what the journals of other nodes hold, once their ranks have ended."""
    try:
        yield
    finally:
        if rank.nodes > 1:
            journal.flush()


@contextmanager
def telling_failure(events: Events) -> Iterator[None]:
    """Write down what fails meanwhile; a full disk does not hide it."""
    try:
        yield
    except BaseException as error:
        is_sentence = isinstance(error, DtbenchError)
        with suppress(StoreError):
            events.say("failed", str(error) if is_sentence else "".join(format_exception_only(error)).strip())
        raise


def prepare_process() -> None:
    """Die with the launcher, print stacks on a fault or when asked (SIGUSR1), stay quiet about torch's own hints."""
    die_with_launcher()
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    warnings.filterwarnings("ignore", message=".*returned a view tensor.*")  # FSDP2 on any module that ends in a view
    warnings.filterwarnings("ignore", message=".*_get_pg_default_device.*")  # FSDP1 whenever it loads optimizer state


def hide_devices() -> None:
    """Let a rank on CPU see no device; before torch looks for one.

    torch uses what it sees: PowerSGD's hook synchronises a device where there is one, checkpoints are written through
    one, host memory is pinned for one.
    """
    os.environ.update(dict.fromkeys(_DEVICE_VARIABLES, ""))


def run(order: WorkerOrder, rank: Rank, journal: JournalWriter, events: Events) -> None:
    """Do what the order says and put the results on disk before the process group goes."""

    def beat(region: Region | None) -> None:
        journal.beat(region, time.time_ns())

    if order.plan.device is DeviceKind.CPU:
        hide_devices()
    chooses_threads = not _THREAD_VARIABLES.isdisjoint(order.scenario.env)
    if order.plan.device is DeviceKind.CPU and not chooses_threads:
        torch.set_num_threads(
            order.plan.share_cores(count_cores())
        )  # torchrun and dtbench set OMP_NUM_THREADS differently
    recorder = Recorder(on_region=beat, on_issue=journal.count_issue)
    journal.begin(time.time_ns())
    events.say("started", f"pid {os.getpid()}")
    folder = LaunchFolder(Path(order.folder))
    if order.is_reference:
        write_reference(folder.reference_data, *run_reference(order, recorder, journal))
        journal.set_state(RankState.DONE, time.time_ns())
        return
    carrier = make_carrier(order, folder)
    parallel = order.scenario.parallel
    offloads = isinstance(parallel, Fsdp2) and parallel.cpu_offload
    group = process_group(order, recorder, rank, carrier, shares_host_tensors=offloads)
    with carrier.blaming_failures(), group:
        found = run_rank(RankContext.join(order, rank, recorder, journal, events.say, carrier))
        journal.set_state(RankState.FINISHING, time.time_ns())
        write_record(folder.rank_record(rank.rank), found)
        if rank.rank == 0:
            write_record(folder.environment, read_environment(order.code_folder))
        events.say("results written")
    for used in (folder.link, folder.checkpoints):  # every rank has left the group: nobody asks for them any more
        shutil.rmtree(used, ignore_errors=True)
    journal.set_state(RankState.DONE, time.time_ns())
    if rank.rank == 0:
        finish_launch(folder, _complete(order), ranks=order.plan.ranks)


def make_carrier(order: WorkerOrder, folder: LaunchFolder) -> Carrier:
    """Return what carries this rank's collectives: a link where the scenario asks for one; before CUDA begins.

    Raises:
        PlanError: ranks are on several machines, and the link's schedule needs one clock.
    """
    network = order.scenario.network
    if not isinstance(network, EmulatedNetwork):
        return Carrier()
    if order.plan.device is DeviceKind.CPU:
        if int(os.environ.get("LOCAL_WORLD_SIZE", order.plan.ranks)) < order.plan.ranks:
            raise PlanError(f"the emulated link is not there: {NO_COMMON_CLOCK}")
        return Carrier(Link(network, folder.link))
    ask_for_queues()
    return Carrier(CudaLink(network, Spin(torch.cuda)), settle=torch.cuda.synchronize)  # spins are CUDA's


def _complete(order: WorkerOrder) -> LaunchRecord:
    return LaunchRecord(
        cell=order.cell,
        index=order.index,
        status=RunStatus.COMPLETE,
        started_unix_ns=order.launched_unix_ns or process_start_unix_ns(),
        duration_ns=time.time_ns() - (order.launched_unix_ns or process_start_unix_ns()),
        reason=None,
        failures=(),
    )


def leave() -> NoReturn:
    """End this process at once: all results are on disk and no group is left.

    Python's own end takes torch apart: 0.4 to 1 s of a launch on two cores, in which gloo's threads were seen to abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    leave()

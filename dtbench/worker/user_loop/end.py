"""What a rank of a person's own loop leaves on disk, and how the loop ended, as all ranks together say it."""

import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import torch

from dtbench.base.commands import spell_command
from dtbench.base.errors import StoreError
from dtbench.machine.stolen_time import StolenTime
from dtbench.store.journal import RankState, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.place import find_place
from dtbench.store.records.rank import RankRecord, Receipt, WarmupEnd
from dtbench.store.records.run import RankFailure
from dtbench.store.write import write_record
from dtbench.worker.machine.process_facts import read_kernel, read_memory
from dtbench.worker.recording.recorder import bucket_bytes, summarize_issues
from dtbench.worker.user_loop.axes import name_mesh, read_overlap
from dtbench.worker.user_loop.context import Found, LoopContext
from dtbench.worker.user_loop.peers import Peers, describe_groups

PATIENCE: Final = timedelta(minutes=5)
"""How long rank 0 waits, at the end, for a rank that shows nothing."""

NAME_YOUR_GLOO: Final = (
    "collectives are recognised by where they were issued: gloo tells neither their group nor what waits for them; "
    "dist.init_process_group(dtbench.named_gloo()) in your script lets dtbench name them"
)


class LoopEnd:
    """Puts on disk what was found, and how the loop ended: whole, too early, or by an error.

    Args:
        lacking: functions that tell regions and that the installed torch does not have.
    """

    def __init__(self, context: LoopContext, found: Found, lacking: Sequence[str]) -> None:
        self._context, self._found, self._lacking = context, found, lacking
        self._stolen = StolenTime()

    def conclude(self, receipts: tuple[Receipt, ...]) -> None:
        """Every step was seen: put everything on disk."""
        self._write_record(receipts)
        self._context.peers.say_left("")
        if self._context.peers.rank == 0:
            self._close("")
            path = self._context.run.folder.path
            sys.stderr.write(f"dtbench.capture: all steps are seen; {spell_command('dtbench', 'report', path)}\n")

    def end_early(self) -> None:
        """Keep what there is of a loop that ended before all its steps were seen, and say so."""
        loop, found = self._found.loop, self._found
        reason = (
            f"the loop ended after {found.step} steps, in {found.phase}; dtbench needs "
            f"{loop.min_warmup_steps} to {loop.max_warmup_steps} to warm up, {loop.measured_steps} MEASURED, "
            f"one untimed and {loop.profiled_steps} PROFILED"
        )
        self._give_up(reason)
        if self._context.peers.rank == 0:
            self._close(reason)
            kept = f"what was measured is kept in {self._context.run.folder.path}"
            warnings.warn(f"dtbench.capture: {reason}; {kept}", stacklevel=5)

    def describe(self, error: BaseException) -> RankFailure:
        """Return where and how the loop raised; before its hooks are taken out."""
        region = self._context.recorder.region
        return RankFailure(
            rank=self._context.peers.rank,
            what="raised",
            last_step=self._found.step,
            last_phase=str(self._found.phase),
            last_region=None if region is None else str(region),
            last_lines=tuple("".join(traceback.format_exception(error)).splitlines()[-20:]),
        )

    def fail(self, error: BaseException, failure: RankFailure) -> None:
        """Keep what there is of a loop that raised, and record where and what."""
        said = "".join(traceback.format_exception_only(error)).strip()
        reason = f"raised in step {failure.last_step} ({failure.last_phase}): {said}"
        self._give_up(reason)
        self._record_end(f"rank {failure.rank} {reason}", (failure,))

    def _give_up(self, reason: str) -> None:
        """Keep what was found out, tell the others."""
        self._context.events.say("failed", reason)
        if self._found.time_to_first_step_ns:
            self._write_record(())
        self._context.peers.say_left(reason)

    def _close(self, reason: str) -> None:
        """Wait for what the other ranks say, then say how the run ended; on rank 0 only."""
        heard = hear_reasons(self._context.peers, self._context.run.launch)
        self._record_end(join_reasons([reason, *heard]), ())

    def _record_end(self, reason: str | None, failures: tuple[RankFailure, ...]) -> None:
        if self._context.peers.is_first("closed"):
            mesh = name_mesh(self._found.names)
            loop = self._found.loop.model_copy(update={"mesh": mesh, "notes": self._notes()})
            self._context.run.with_loop(loop).close(reason, failures)

    def _write_record(self, receipts: tuple[Receipt, ...]) -> None:
        record = self._make_record(receipts)
        write_record(self._context.run.launch.rank_record(self._context.peers.rank), record)
        self._context.journal.set_state(RankState.DONE, time.time_ns())
        self._context.events.say("results written")

    def _make_record(self, receipts: tuple[Receipt, ...]) -> RankRecord:
        context, found = self._context, self._found
        issues = found.issues[-1] if found.issues else ()
        traffic = summarize_issues(issues)
        unsettled = WarmupEnd(steps=found.step, settled=False, reason="the loop ended before warm-up did")
        return RankRecord(
            place=find_place(context.run.launch),
            rank=context.peers.rank,
            host=socket.gethostname(),
            kernel=read_kernel(),
            pid=os.getpid(),
            time_to_first_step_ns=found.time_to_first_step_ns,
            memory=found.memory or read_memory(torch.device(found.loop.device)),
            warmup=found.warmup or unsettled,
            correctness=None,
            losses=(),
            receipts=receipts,
            traffic=traffic,
            traffic_is_stable=len(set(found.issues)) <= 1,
            overlap_possible=tuple(read_overlap(traffic)),
            process_groups=describe_groups(found.names),
            bucket_bytes_per_step=(*found.bucket_bytes, bucket_bytes(issues)),
            fsdp_units=(),
            stolen_fraction=self._stolen.read_fraction(),
        )

    def _notes(self) -> tuple[str, ...]:
        peers = self._context.peers
        lacking = (f"this torch has no {name}: the region is not known there" for name in self._lacking)
        is_mute = peers.backend == "gloo" and peers.recorder is None and peers.size > 1
        return (*self._found.loop.notes, *lacking, *([NAME_YOUR_GLOO] if is_mute else []))


def hear_reasons(peers: Peers, launch: LaunchFolder) -> Iterator[str]:
    """Yield what each rank but 0 says of its end, in their order; empty: it saw all its steps."""
    for rank in range(1, peers.size):
        said = peers.hear_left(rank, PATIENCE)
        silent = f"said nothing for {PATIENCE.seconds} s; it was last in {_find_place(launch, rank)}"
        yield silent if said is None else said


def _find_place(launch: LaunchFolder, rank: int) -> str:
    with suppress(StoreError):
        view = read_journal(launch.journal(rank))
        if view is not None and view.step is not None:
            return f"step {view.step} ({view.phase}, {view.region or 'between regions'})"
    return "no step"


def join_reasons(reasons: Sequence[str]) -> str | None:
    """Put what the ranks say into one text, equal words once; None: every rank saw all its steps.

    >>> join_reasons(["", "the loop ended"])
    'rank 1: the loop ended'
    """
    ranks: dict[str, list[int]] = {}
    for rank, reason in enumerate(reasons):
        if reason:
            ranks.setdefault(reason, []).append(rank)
    if any(len(saying) == len(reasons) for saying in ranks.values()):
        return reasons[0]
    lines = [
        f"rank{'s' if len(saying) > 1 else ''} {', '.join(map(str, saying))}: {reason}"
        for reason, saying in ranks.items()
    ]
    return "\n".join(lines) or None

"""Stages of the training state as a cell's ranks saw them: one row per part and stage."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from dtbench.base.vocabulary import FILE_STAGES, Operation, Stage, StageOutcome, StatePart
from dtbench.plan.traffic.state import StageTraffic
from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.cell.summarize_overlap import find_launches_part
from dtbench.runs.stage_summary import RaisedOnRank, StageSummary, WrongKey
from dtbench.scenario.schema.state_dict import BrokenStage
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import StageMemory, StageRecord
from dtbench.store.records.traffic import Traffic

MOST_WRONG_KEYS = 20
"""Named; all are counted."""

Ranked = tuple[int, StageRecord]
"""A rank, and what it saw."""


def summarize_stages(launches: Mapping[int, Sequence[RankRecord]], plan: StagePlan) -> tuple[StageSummary, ...]:
    """Return one row per part and stage, in the order in which they ran.

    Numbers are of the launches in which every rank tells of the stage: who does not may be the slowest.

    Args:
        launches: the records of each launch's ranks, by the number of the launch.
        plan: what is known of stages beforehand.
    """
    found: dict[tuple[StatePart, Stage], dict[int, list[Ranked]]] = defaultdict(lambda: {one: [] for one in launches})
    for launch, ranks in launches.items():
        for record in ranks:
            for stage in record.extras.stages:
                found[stage.part, stage.stage][launch].append((record.rank, stage))
    summaries = {key: _summarize(*key, rows, plan) for key, rows in found.items()}
    return tuple(_judge_save(row, summaries.get((row.part, Stage.READ)), plan) for row in summaries.values())


def _judge_save(row: StageSummary, read: StageSummary | None, plan: StagePlan) -> StageSummary:
    """Take what became of the bits that a ``save`` wrote from who read them; a ``save`` itself compares nothing."""
    if row.stage is not Stage.SAVE or row.outcome is not StageOutcome.NOT_COMPARED or read is None:
        return row
    if read.outcome not in (StageOutcome.EQUAL, StageOutcome.MENDED):
        return row.model_copy(update={"outcome": read.outcome}) if read.outcome is StageOutcome.WRONG else row
    if not plan.is_known_broken(row.part, row.stage):
        return row.model_copy(update={"outcome": StageOutcome.EQUAL, "mismatched": 0})
    is_whole = row.rounds and row.known_part is None and read.known_part is None
    return row.model_copy(update={"outcome": StageOutcome.MENDED, "mismatched": 0}) if is_whole else row


def _summarize(
    part: StatePart, stage: Stage, launches: Mapping[int, Sequence[Ranked]], plan: StagePlan
) -> StageSummary:
    ranks = [ranked for rows in launches.values() for ranked in rows]
    whole = {launch: rows for launch, rows in launches.items() if _is_whole(rows, plan.ranks)}
    ended = [rows for rows in whole.values() if rows[0][1].duration_ns]
    records = [one for rows in ended for _, one in rows]
    mismatched = [None if stage is Stage.SAVE else one.mismatched for _, one in ranks if one.duration_ns]
    compared = [count for count in mismatched if count is not None]
    needed = launches if plan.is_known_broken(part, stage) else whole  # mended only where every launch shows it
    is_compared = len(ended) == len(needed) > 0 and len(compared) == len(mismatched)
    rounds = [max(times) for rows in ended for times in zip(*(one.duration_ns for _, one in rows), strict=True)]
    wrong = [WrongKey(rank=rank, key=one.key, words=one.words) for rank, record in ranks for one in record.mismatches]
    raised = [RaisedOnRank(rank=rank, words=record.raised) for rank, record in ranks if record.raised is not None]
    times = summarize([float(duration_ns) for duration_ns in rounds])
    waits = summarize([float(wait_ns) for rows in ended for wait_ns in _waits_of_slowest([one for _, one in rows])])
    memories = [memory for rows in ended for memory in _find_memories([one for _, one in rows])]
    planned, seen = plan.find_traffic(part, stage), records if plan.sees_collectives else []
    return StageSummary(
        part=part,
        stage=stage,
        outcome=_judge(wrong, raised, plan.find_broken(part, stage), plan, is_compared=is_compared),
        duration_ns=times.median,
        quartile1_ns=times.quartile1,
        quartile3_ns=times.quartile3,
        shortest_ns=float(min(rounds, default=math.nan)),
        wait_ns=waits.median,
        rounds=len(rounds),
        state_bytes=_find_most([record.state_bytes for record in records]),
        all_ranks_bytes=_add([one.state_bytes for _, one in ended[0]]) if ended else None,
        collectives=_find_most([_add_traffic(record, lambda line: line.count) for record in seen]),
        sent_bytes=_find_most([_add_traffic(record, lambda line: line.size_bytes) for record in seen]),
        planned=planned,
        matches_plan=_matches(records, planned) if planned is not None and seen and not raised else None,
        object_collectives=_find_most([record.object_collectives for record in seen]),
        link_ns=_find_longest([plan.find_link_ns(*ranked) for rows in ended for ranked in rows]),
        file_bytes=_find_file_bytes(stage, records),
        host_peak_bytes=_find_most([one.host_growth_bytes for one in memories]),
        device_peak_bytes=_device_peak(memories),
        mismatched=sum(compared) if is_compared or any(compared) else None,
        mismatches=tuple(wrong[:MOST_WRONG_KEYS]),
        memory_curve=_find_curve(memories),
        raised=tuple(raised),
        is_steady=all(one.traffic_is_stable is not False for one in records),
        known_part=find_launches_part(list(whole), list(launches)),
    )


def _is_whole(rows: Sequence[Ranked], ranks: int) -> bool:
    """Tell whether every rank tells of a launch's stage, all of as many rounds: else none of them is of all ranks."""
    return len(rows) == ranks and len({len(one.duration_ns) for _, one in rows}) == 1


def _find_most(amounts: Sequence[int | None]) -> int | None:
    """Return the largest; None where one is not told, which may be larger, or there is none."""
    told = [amount for amount in amounts if amount is not None]
    return max(told, default=None) if len(told) == len(amounts) else None


def _find_longest(times_ns: Sequence[float]) -> float:
    """Return the longest; NaN where one is not known, which may be longer, or there is none."""
    return math.nan if any(map(math.isnan, times_ns)) else max(times_ns, default=math.nan)


def _add(amounts: Sequence[int | None]) -> int | None:
    """Return the sum; None where one is not told."""
    told = [amount for amount in amounts if amount is not None]
    return sum(told) if len(told) == len(amounts) else None


def _add_traffic(record: StageRecord, amount: Callable[[Traffic], int]) -> int | None:
    """Return a sum over a rank's collectives; None where it does not tell them."""
    return None if record.traffic is None else sum(map(amount, record.traffic))


def _find_file_bytes(stage: Stage, records: Sequence[StageRecord]) -> float | None:
    """Return how large a checkpoint is; NaN where not every rank tells; None: there are no files in this stage."""
    if stage not in FILE_STAGES:
        return None
    found = _find_most([record.file_bytes for record in records])
    return math.nan if found is None else found


def _waits_of_slowest(records: Sequence[StageRecord]) -> list[int]:
    """Return how long the slowest rank of each round stood still."""
    if not all(len(record.wait_ns) == len(record.duration_ns) for record in records):
        return []
    slowest = [
        max(range(len(records)), key=lambda place: records[place].duration_ns[number])
        for number in range(len(records[0].duration_ns))
    ]
    return [records[place].wait_ns[number] for number, place in enumerate(slowest)]


def _matches(records: Sequence[StageRecord], planned: Sequence[StageTraffic]) -> bool | None:
    """Whether every rank sent what is planned, in every round alike; None where one does not tell and none differs."""
    wanted = {line.operation: (line.count, line.size_bytes) for line in planned}
    found = [
        (record.traffic_is_stable, None if record.traffic is None else _by_operation(record.traffic) == wanted)
        for record in records
    ]
    if any(False in one for one in found):
        return False
    return None if any(None in one for one in found) else True


def _by_operation(traffic: Sequence[Traffic]) -> dict[Operation, tuple[int, int]]:
    sums: dict[Operation, tuple[int, int]] = {}
    for line in traffic:
        count, size_bytes = sums.get(line.operation, (0, 0))
        sums[line.operation] = (count + line.count, size_bytes + line.size_bytes)
    return sums


def _judge(
    wrong: Sequence[WrongKey],
    raised: Sequence[RaisedOnRank],
    known: BrokenStage | None,
    plan: StagePlan,
    *,
    is_compared: bool,
) -> StageOutcome:
    """Say what became of a stage; what is known of it holds only if torch says so in the same words."""
    said = [one.words for one in wrong] + [one.words for one in raised]
    if not said:
        if not is_compared:
            return StageOutcome.NOT_COMPARED
        return StageOutcome.MENDED if known is not None and plan.is_broken_here(known) else StageOutcome.EQUAL
    if known is not None and not plan.is_mended_here(known) and any(known.says in words for words in said):
        return StageOutcome.BROKEN
    return StageOutcome.RAISED if raised else StageOutcome.WRONG


def _find_memories(records: Sequence[StageRecord]) -> list[StageMemory]:
    """Return what each rank of a launch needed; of none where one does not tell, which may be the one with most."""
    found = [record.memory for record in records if record.memory is not None]
    return found if len(found) == len(records) else []


def _find_curve(memories: Sequence[StageMemory]) -> tuple[tuple[int, int], ...]:
    """Return the curve of the rank whose memory rose most."""
    if not memories:
        return ()
    most = max(memories, key=lambda one: one.host_peak_bytes - one.host_before_bytes)
    grown = (size_bytes - most.host_before_bytes for size_bytes in most.host_bytes)
    return tuple(zip(most.at_ns, grown, strict=True))


def _device_peak(memories: Sequence[StageMemory]) -> int | None:
    grown = [
        one.device_peak_bytes - one.device_before_bytes
        for one in memories
        if one.device_peak_bytes is not None and one.device_before_bytes is not None
    ]
    return max(grown, default=None) if len(grown) == len(memories) else None

"""Stages of the training state as a cell's ranks saw them: one row per part and stage."""

from collections import defaultdict
from collections.abc import Sequence

from dtbench.analyze.statistics import summarize
from dtbench.analyze.summary import StageSummary, WrongKey
from dtbench.store.records import RankRecord, StageRecord
from dtbench.vocabulary import Stage, StatePart

MOST_WRONG_KEYS = 20
"""Named; all are counted."""


def summarize_stages(launches: Sequence[Sequence[RankRecord]]) -> tuple[StageSummary, ...]:
    """Give one row per part and stage, in the order in which they ran.

    Args:
        launches: the records of each launch's ranks.
    """
    found: dict[tuple[StatePart, Stage], list[list[tuple[int, StageRecord]]]] = defaultdict(list)
    for ranks in launches:
        seen: dict[tuple[StatePart, Stage], list[tuple[int, StageRecord]]] = defaultdict(list)
        for record in ranks:
            for stage in record.stages:
                seen[stage.part, stage.stage].append((record.rank, stage))
        for key, rows in seen.items():
            found[key].append(rows)
    return tuple(_summarize(part, stage, rows) for (part, stage), rows in found.items())


def _summarize(part: StatePart, stage: Stage, launches: Sequence[Sequence[tuple[int, StageRecord]]]) -> StageSummary:
    ranks = [ranked for rows in launches for ranked in rows]
    first = launches[0]
    rounds = [max(times) for rows in launches for times in zip(*(one.duration_ns for _, one in rows), strict=True)]
    wrong = [WrongKey(rank=rank, key=one.key, words=one.words) for rank, record in ranks for one in record.mismatches]
    file_bytes = [record.file_bytes for _, record in ranks if record.file_bytes is not None]
    times = summarize([float(duration_ns) for duration_ns in rounds])
    return StageSummary(
        part=part,
        stage=stage,
        duration_ns=times.median,
        quartile1_ns=times.quartile1,
        quartile3_ns=times.quartile3,
        rounds=len(rounds),
        state_bytes=max(record.state_bytes for _, record in ranks),
        all_ranks_bytes=sum(record.state_bytes for _, record in first),
        collectives=max(sum(line.count for line in record.traffic) for _, record in ranks),
        sent_bytes=max(sum(line.size_bytes for line in record.traffic) for _, record in ranks),
        object_collectives=max(record.object_collectives for _, record in ranks),
        file_bytes=max(file_bytes, default=None),
        host_peak_bytes=max(record.memory.host_peak_bytes - record.memory.host_before_bytes for _, record in ranks),
        device_peak_bytes=_device_peak([record for _, record in ranks]),
        mismatched=sum(record.mismatched for _, record in ranks),
        mismatches=tuple(wrong[:MOST_WRONG_KEYS]),
    )


def _device_peak(records: Sequence[StageRecord]) -> int | None:
    grown = [
        record.memory.device_peak_bytes - record.memory.device_before_bytes
        for record in records
        if record.memory.device_peak_bytes is not None and record.memory.device_before_bytes is not None
    ]
    return max(grown, default=None)

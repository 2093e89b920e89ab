"""Where only the ranges that tell purposes are gone, a purpose that is not there is no zero; else a zero is one."""

import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.comparison.comparison import Comparison, MetricChange, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading import renamed, untold
from dtbench.comparison.reading.untold import find_untold
from dtbench.comparison.run import compare_paths, compare_sides
from dtbench.store.records.baseline import MeasuredLaunch, Measurement, OwnedTime

TRACES = Path(__file__).parents[1] / "traces" / "recorded"
TELLING = re.compile(r"FSDP::|DistributedDataParallel\.|(torch::)?autograd::|torch::distributed::reducer|## |dtbench")
MIB = float(1 << 20)


@pytest.fixture
def strip(tmp_path: Path) -> Callable[[Path], Path]:
    """Write a trace again without the ranges that tell who asked for a collective."""

    def write(trace: Path) -> Path:
        document = json.loads(gzip.decompress(trace.read_bytes()))
        kept = [event for event in document["traceEvents"] if not TELLING.match(str(event.get("name")))]
        path = tmp_path / trace.name.removesuffix(".gz")
        path.write_text(json.dumps({**document, "traceEvents": kept}), encoding="utf-8")
        return path

    return write


def find(comparison: Comparison, metric: str, subject: str) -> MetricChange:
    (change,) = [one for one in comparison.metrics if (one.metric, one.subject) == (metric, subject)]
    return change


@pytest.mark.parametrize(
    ("name", "purposes"),
    [
        ("ddp_2ranks_rank0.json.gz", ["grad_reduce"]),
        ("fsdp2_tp_2x2_rank0.json.gz", ["grad_reduce", "unshard"]),
        ("two_ranks_one_gpu/fsdp2/rank0.json.gz", ["grad_reduce", "unshard"]),
    ],
)
@pytest.mark.parametrize("is_lost_before", [False, True])
def test_purposes_whose_ranges_are_gone_are_not_known_and_nothing_was_done_differently(
    strip: Callable[[Path], Path], name: str, purposes: list[str], *, is_lost_before: bool
) -> None:
    whole, less = TRACES / name, strip(TRACES / name)
    sides = (less, whole) if is_lost_before else (whole, less)
    found = compare_paths(*map(str, sides), results=TRACES)
    for purpose in purposes:
        change = find(found, "exposed", purpose)
        known, lost = (change.candidate, change.baseline) if is_lost_before else (change.baseline, change.candidate)
        assert known.median > 0
        assert math.isnan(lost.median)
        assert change.outcome is find(found, "exposed", "other").outcome is Outcome.UNKNOWN
        assert judge(read_bound(f"exposed[{purpose}] > 1 ms"), found).kept is Kept.UNDECIDED
    for row in (row for row in found.collectives if row.purpose in purposes):
        assert math.isnan(row.exposed_ns[0 if is_lost_before else 1])
    assert "exposed" not in found.sentence
    assert found.mechanism == ()
    assert "for what each is" in found.mechanism_not_known
    said = f"{less.name}: how many collectives are {' and '.join(purposes)} is not known"
    assert any(note.startswith(said) for note in found.notes)


def own(operation: Operation | None, purpose: Purpose, count: float, mib: float = math.nan) -> OwnedTime:
    return OwnedTime(
        owner="",
        operation=operation,
        purpose=purpose,
        count=count,
        duration_ns=1e6,
        exposed_ns=1e6,
        cause=None,
        size_bytes=mib * MIB,
    )


DDP = [own(Operation.ALL_REDUCE, Purpose.GRAD_REDUCE, 3, 12)]
FSDP = [own(Operation.ALL_GATHER, Purpose.UNSHARD, 7, 24), own(Operation.REDUCE_SCATTER, Purpose.GRAD_REDUCE, 4, 12)]
NORMS = own(Operation.ALL_REDUCE, Purpose.OTHER, 2, 48 / MIB)


@pytest.mark.parametrize(
    ("launch", "other", "untold"),
    [
        ([own(Operation.ALL_REDUCE, Purpose.OTHER, 3, 12)], DDP, {"grad_reduce", "other"}),
        ([own(Operation.ALL_REDUCE, Purpose.OTHER, 1, 1)], DDP, {"grad_reduce", "other"}),
        ([own(None, Purpose.OTHER, 3)], DDP, {"grad_reduce", "other"}),
        ([own(Operation.REDUCE_SCATTER, Purpose.OTHER, 4, 12)], DDP, {"grad_reduce", "other"}),
        ([FSDP[1], own(Operation.ALL_GATHER, Purpose.OTHER, 7, 24)], FSDP, {"unshard", "other"}),
        (DDP, FSDP, set()),
        ([*FSDP, NORMS], DDP, set()),
        ([*DDP, NORMS], FSDP, set()),
        ([NORMS], DDP, set()),
        ([*DDP, own(Operation.ALL_REDUCE, Purpose.OTHER, 3, 12)], DDP, set()),
        ([own(Operation.ALL_TO_ALL, Purpose.OTHER, 3, 12)], DDP, set()),
    ],
)
def test_a_purpose_may_be_among_as_much_of_other_by_operations_that_serve_it_and_by_nothing_less(
    launch_of: Any, launch: list[OwnedTime], other: list[OwnedTime], untold: set[str]
) -> None:
    (found,) = find_untold([launch_of(0, 100.0, owned=launch)], [launch_of(1, 100.0, owned=other)])
    assert {str(purpose) for _, purpose in found} == untold


def test_gathers_that_ddp_does_not_have_take_no_time_there(launch_of: Any, side_of: Any) -> None:
    def tell(index: int, owned: list[OwnedTime]) -> MeasuredLaunch:
        rows = [
            Measurement(metric="exposed", subject=purpose, value=1e6)
            for purpose in dict.fromkeys(str(row.purpose) for row in owned)
        ]
        launch = launch_of(index, 100.0, owned=owned)
        return launch.model_copy(update={"measurements": (*launch.measurements, *rows)})  # type: ignore[no-any-return]

    found = compare_sides(side_of("ddp", [tell(0, DDP)]), side_of("fsdp", [tell(1, [*FSDP, NORMS])]))
    assert find(found, "exposed", "unshard").baseline.values == (0.0,)
    assert find(found, "exposed", "grad_reduce").candidate.values == (1e6,)
    assert not any("which may be these" in note for note in found.notes)


@pytest.mark.parametrize("module", [untold, renamed], ids=["purposes", "names"])
def test_launches_that_communicate_alike_are_compared_once_however_many_they_are(
    launch_of: Any, side_of: Any, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    compared: list[object] = []
    name = "_compare" if module is untold else "_are_other_names"
    compare = getattr(module, name)

    def count(one: Any, other: Any) -> Any:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(module, name, count)
    times: list[int] = []
    for launches in (4, 40):
        compared.clear()
        sides = (side_of(side, [launch_of(at, 100.0 + at, owned=FSDP) for at in range(launches)]) for side in "ab")
        compare_sides(*sides)
        times.append(len(compared))
    assert times[1] == times[0] > 0


def test_each_launch_is_held_against_all_that_do_otherwise(launch_of: Any) -> None:
    kinds = [DDP, FSDP, [own(Operation.ALL_REDUCE, Purpose.OTHER, 3, 12)], [NORMS], [*DDP, NORMS], []]
    launches = [launch_of(at, 100.0, owned=owned) for at, owned in enumerate([*kinds, *kinds[::-1]])]
    pairs = [[find_untold([one], [other])[0] for other in launches] for one in launches]
    assert find_untold(launches, launches) == [frozenset().union(*found) for found in pairs]
    assert any(map(any, pairs))

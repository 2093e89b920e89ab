"""What looks at a machine mean for the steps of its ranks."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.base.vocabulary import Phase
from dtbench.machine.core_use import CoreWatch, Taker, UseSample
from dtbench.machine.disturbance import DISTURBED
from dtbench.store.finish import STEPS, finish_launch, gather_steps
from dtbench.store.journal import JournalWriter, StepTiming
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_launch, read_steps
from dtbench.store.records.run import LaunchRecord, RunStatus, TookCores
from dtbench.store.use_file import MachineUse, UseHeader, UseWriter, read_use
from tests.made_proc import MadeProc

MS = 1_000_000


def see(start_ms: int, end_ms: int, *, others: int = 0, waited: int | None = 0, busy: int | None = None) -> UseSample:
    """Look from one ms to another: what a loop had, how long ranks stood ready, what all cores had, in ms."""
    return UseSample(
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        ranks_ns=0,
        own_ns=0,
        others_ns=others * MS,
        kernel_ns=0,
        waited_ns=None if waited is None else waited * MS,
        busy_ns=None if busy is None else busy * MS,
        idle_ns=None,
        pressure_ns=None,
        throttled_ns=None,
        takers=(Taker(pid=4711, name="python busy.py", cpu_ns=others * MS),) if others else (),
    )


def use(*samples: UseSample, ranks: int = 2, cores: int = 2) -> MachineUse:
    return MachineUse(UseHeader(ranks=tuple(range(ranks)), cores=cores), samples)


def taken(machine: MachineUse, *steps: tuple[float, float]) -> list[float]:
    """Return what others had in steps from one ms to another."""
    start_ns, end_ns = np.array(steps, dtype=np.float64).T * MS
    return [float(part) for part in machine.find_taken(start_ns, end_ns - start_ns)]


def test_a_step_has_its_share_of_every_look_that_it_reaches_into() -> None:
    machine = use(see(0, 100), see(100, 200, others=80, waited=60), see(200, 300))
    assert taken(machine, (0, 100), (100, 200), (150, 250), (50, 250)) == pytest.approx([0, 0.3, 0.15, 0.15])


def test_the_machine_before_the_first_look_and_after_the_last_is_as_it_was_seen_nearest_to_it() -> None:
    machine = use(see(100, 200, others=80, waited=60), see(200, 300))
    assert taken(machine, (0, 50), (290, 400)) == pytest.approx([0.3, 0.0])


@pytest.mark.parametrize(
    ("ranks", "cores", "share"), [(2, 2, 0.25), (1, 2, 0.5), (4, 2, 0.25), (2, 64, 0.25), (16, 64, 1 / 32)]
)
def test_what_is_taken_is_a_share_of_the_cores_that_ranks_can_use_at_once(ranks: int, cores: int, share: float) -> None:
    machine = use(see(0, 100, others=50, waited=50), ranks=ranks, cores=cores)
    assert taken(machine, (20, 40)) == pytest.approx([share])


def test_an_idle_machine_with_one_busy_process_is_left_alone() -> None:
    machine = use(*(see(at, at + 250, others=250, waited=1) for at in range(0, 5000, 250)), ranks=2, cores=16)
    assert max(taken(machine, *((at, at + 100) for at in range(0, 4900, 100)))) < DISTURBED


def test_processes_out_of_sight_count_where_they_had_much_for_long() -> None:
    """Inside a container ``/proc`` has the machine's times and its own processes only."""
    crowded = use(*(see(at, at + 250, waited=200, busy=400) for at in range(0, 5000, 250)))
    assert taken(crowded, (1000, 1100)) == pytest.approx([0.4]), "200 of 500 ms"
    (taker,) = crowded.name_takers(Phase.MEASURED, np.array([1000.0 * MS]), np.array([100.0 * MS]))
    assert (taker.pid, taker.name, taker.cores) == (None, "processes too brief or too hidden to be named", 1.6)
    ticks = use(*(see(at, at + 250, waited=200, busy=40 if at == 1000 else 0) for at in range(0, 5000, 250)))
    assert taken(ticks, (1000, 1250)) == [0.0], "a few ticks are no evidence"


def test_takers_are_named_by_what_they_had_in_these_steps() -> None:
    machine = use(see(0, 100, others=90, waited=90), see(100, 200, others=10, waited=0))
    (taker,) = machine.name_takers(Phase.PROFILED, np.array([50.0 * MS]), np.array([100.0 * MS]))
    assert (taker.phase, taker.pid, taker.name, taker.of_cores) == (Phase.PROFILED, 4711, "python busy.py", 2)
    assert taker.cores == pytest.approx(0.5)
    assert machine.name_takers(Phase.PROFILED, np.empty(0), np.empty(0)) == ()


def test_who_is_not_named_is_counted_with_what_they_had_together() -> None:
    takers = tuple(Taker(pid=pid, name="make", cpu_ns=(90 - pid) * MS) for pid in range(10, 17))
    machine = use(see(0, 1000, others=7 * 77, waited=2000).model_copy(update={"takers": takers}))
    found = machine.name_takers(Phase.MEASURED, np.array([0.0]), np.array([1000.0 * MS]))
    assert [(one.pid, one.name) for one in found] == [
        (10, "make"), (11, "make"), (12, "make"), (None, "4 processes with less each"),
    ]  # fmt: skip
    assert found[-1].cores == pytest.approx((77 + 76 + 75 + 74) / 1000)
    cut = use(see(0, 1000, others=900, waited=2000, busy=1600).model_copy(update={"takers": takers[:6]}))
    *_, rest, hidden = cut.name_takers(Phase.MEASURED, np.array([0.0]), np.array([1000.0 * MS]))
    assert sorted([rest.name, hidden.name]) == [
        "3 or more processes with less each",
        "processes too brief or too hidden to be named",
    ]
    assert rest.cores + hidden.cores == pytest.approx(1.6 - 0.237), "what nobody named is in the sums"


def test_takers_of_steps_that_no_look_reaches_are_those_seen_nearest_to_them() -> None:
    machine = use(see(100, 200, others=90, waited=90), see(200, 300))
    for at_ms, pids in ((0.0, [4711]), (400.0, [])):
        found = machine.name_takers(Phase.MEASURED, np.array([at_ms * MS]), np.array([10.0 * MS]))
        assert [taker.pid for taker in found] == pids


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 600), st.integers(0, 600)), min_size=1, max_size=12),
    st.integers(0, 300),
    st.integers(1, 500),
)
def test_cores_of_a_single_taker_are_what_others_had(
    spans: list[tuple[int, int, int]], start: int, length: int
) -> None:
    machine = make_use(spans)
    end_ns = machine.samples[-1].end_ns
    start_ns = min(start * MS, end_ns - 1)
    step = np.array([float(start_ns)]), np.array([float(min(length * MS, end_ns - start_ns))])
    others_ns = machine.find_others_ns(*step)[0]
    cores = sum(taker.cores for taker in machine.name_takers(Phase.MEASURED, *step))
    assert cores * step[1][0] == pytest.approx(others_ns, rel=1e-6, abs=2)


looks = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 600), st.integers(0, 600)), min_size=1, max_size=12)


def make_use(spans: list[tuple[int, int, int]]) -> MachineUse:
    ends = np.cumsum([0, *(length for length, _, _ in spans)]).tolist()
    return use(
        *(
            see(start, end, others=min(others, 2 * length), waited=waited)
            for start, end, (length, others, waited) in zip(ends, ends[1:], spans, strict=False)
        )
    )


@given(looks, st.lists(st.integers(-50, 4000), min_size=2, max_size=8, unique=True))
def test_steps_that_follow_each_other_have_together_what_one_long_step_has(
    spans: list[tuple[int, int, int]], borders: list[int]
) -> None:
    machine, ends = make_use(spans), sorted(borders)
    pairs = np.array(list(pairwise(ends)), dtype=np.float64).T * MS
    parts = machine.find_others_ns(pairs[0], pairs[1] - pairs[0])
    whole = machine.find_others_ns(pairs[0][:1], pairs[1][-1:] - pairs[0][:1])
    assert parts.sum() == pytest.approx(whole[0], abs=1)
    assert (parts >= 0).all()


@given(looks, st.integers(-50, 4000), st.integers(1, 500))
def test_no_step_has_more_than_the_worst_look_nor_less_than_the_best(
    spans: list[tuple[int, int, int]], start: int, length: int
) -> None:
    machine = make_use(spans)
    shares = [one.find_taken_ns() / (2 * (one.end_ns - one.start_ns)) for one in machine.samples]
    (share,) = taken(machine, (start, start + length))
    assert min(shares) - 1e-9 <= share <= min(1.0, max(shares)) + 1e-9


@given(looks, st.integers(0, 11), st.integers(-50, 4000), st.integers(1, 500))
def test_a_look_more_where_nothing_changes_changes_nothing(
    spans: list[tuple[int, int, int]], place: int, start: int, length: int
) -> None:
    machine = make_use(spans)
    cut = machine.samples[place % len(machine.samples)]
    middle_ns = (cut.start_ns + cut.end_ns) // 2
    halves = [
        cut.model_copy(update={"start_ns": start_ns, "end_ns": end_ns, "others_ns": half, "waited_ns": half})
        for start_ns, end_ns, half in (
            (cut.start_ns, middle_ns, round(cut.find_taken_ns()) // 2),
            (middle_ns, cut.end_ns, round(cut.find_taken_ns()) // 2),
        )
    ]
    same = cut.model_copy(update={"others_ns": 2 * halves[0].others_ns, "waited_ns": 2 * halves[0].others_ns})
    rest = [one for one in machine.samples if one is not cut]
    ordered = [sorted([*rest, *some], key=lambda one: one.start_ns) for some in ([same], halves)]
    step = (float(start), float(start + length))
    assert taken(use(*ordered[0]), step) == pytest.approx(taken(use(*ordered[1]), step), abs=1e-4)


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    """Two ranks, each with three MEASURED steps of 100 ms."""
    folder = LaunchFolder(tmp_path / "launch0")
    for rank in (0, 1):
        with JournalWriter(folder.journal(rank), rank=rank, pid=100 + rank, capacity=3) as journal:
            journal.begin(0)
            for step in range(3):
                journal.finish_step(StepTiming(step, Phase.MEASURED, step * 100 * MS, 100 * MS, 50 * MS, 0.0))
    return folder


def write_use(folder: LaunchFolder, *samples: UseSample, ranks: tuple[int, ...] = (0, 1)) -> None:
    lines = [UseHeader(ranks=ranks, cores=2), *samples]
    folder.core_use(min(ranks)).write_text("".join(f"{line.model_dump_json()}\n" for line in lines))


RECORD = LaunchRecord(
    cell="cell", index=0, status=RunStatus.COMPLETE, started_unix_ns=0, duration_ns=1, reason=None, failures=()
)


def test_a_finished_launch_tells_what_others_took_in_each_step_and_who(folder: LaunchFolder) -> None:
    write_use(folder, see(0, 100), see(100, 200, others=98, waited=99), see(200, 300, others=98, waited=1))
    finish_launch(folder, RECORD, ranks=2)
    steps = read_steps(folder)
    assert steps["taken_fraction"].tolist() == pytest.approx([0, 0.49, 0.005] * 2)
    assert steps["others_cpu_ns"].tolist() == pytest.approx([0, 98 * MS, 98 * MS] * 2)
    (taker,) = read_launch(folder).takers
    assert isinstance(taker, TookCores)
    assert (taker.phase, taker.pid) == (Phase.MEASURED, 4711)
    assert taker.cores == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("throttled_ms", "fraction"), [((None, None), None), ((0, 0), 0.0), ((30, 30), 0.1), ((None, 60), 0.3)]
)
def test_how_long_a_limit_held_the_ranks_back_is_told(
    folder: LaunchFolder, throttled_ms: tuple[int | None, ...], fraction: float | None
) -> None:
    told = [None if ms is None else ms * MS for ms in throttled_ms]
    looks = [see(0, 200), see(200, 300)]
    write_use(folder, *(one.model_copy(update={"throttled_ns": ns}) for one, ns in zip(looks, told, strict=True)))
    finish_launch(folder, RECORD, ranks=2)
    assert read_launch(folder).throttled_fraction == (None if fraction is None else pytest.approx(fraction))


def test_each_machine_speaks_for_its_own_ranks(folder: LaunchFolder) -> None:
    write_use(folder, see(0, 300, others=30, waited=30), ranks=(0,))
    assert gather_steps(folder, ranks=range(2))["taken_fraction"].isna().tolist() == [False] * 3 + [True] * 3
    write_use(folder, see(0, 300), ranks=(1,))
    assert gather_steps(folder, ranks=range(2))["taken_fraction"].tolist() == pytest.approx([0.1] * 3 + [0.0] * 3)


@pytest.mark.parametrize("text", ["", "{}\n", "half a li", "\0\0\0\0", None])
def test_where_nobody_looked_or_the_file_is_broken_nothing_is_known(folder: LaunchFolder, text: str | None) -> None:
    if text is not None:
        folder.core_use(0).write_text(text)
    finish_launch(folder, RECORD, ranks=2)
    assert list(read_steps(folder).columns) == list(STEPS.dtypes), "as in runs of older versions"
    assert read_launch(folder).takers == ()


def test_a_line_that_was_cut_ends_its_file(folder: LaunchFolder) -> None:
    write_use(folder, see(0, 100), see(100, 200, others=98, waited=99))
    path = folder.core_use(0)
    path.write_bytes(path.read_bytes()[:-40])
    (machine,) = read_use(folder)
    assert machine.samples == [see(0, 100)]


def test_a_table_written_while_nobody_looked_is_read_as_it_is(folder: LaunchFolder) -> None:
    finish_launch(folder, RECORD, ranks=2)
    write_use(folder, see(0, 100, others=98, waited=99))
    assert isinstance(read_steps(folder), pd.DataFrame)
    assert "taken_fraction" not in read_steps(folder)


def test_looks_are_kept_and_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    proc = MadeProc(tmp_path / "proc")
    proc.put(7, 1, "cc1")
    now_ns = iter(range(0, 10**12, 10**9))
    watch = CoreWatch(roots=frozenset(), processes=proc.tree, now_ns=lambda: next(now_ns), spent_ns=lambda: 0)
    folder = LaunchFolder(tmp_path / "launch0")
    writer = UseWriter(folder, (0,), watch)
    writer.look([])
    proc.spend(p7=5 * MS)
    writer.look([])
    (machine,) = read_use(folder)
    assert [(one.end_ns, one.others_ns) for one in machine.samples] == [(10**9, 5 * MS)]
    (proc.root / "8").mkdir()
    (proc.root / "8" / "stat").write_text("8 (odd) S")
    proc.cpu_ns[8] = 1
    writer.look([])
    folder.core_use(0).unlink()
    folder.core_use(0).mkdir()
    writer.look([])


def test_who_took_cores_says_of_which_machine(folder: LaunchFolder) -> None:
    sample = see(0, 300, others=290, waited=290)
    for rank, host in ((0, "node-a"), (1, "node-b")):
        lines = [UseHeader(ranks=(rank,), cores=2, host=host), sample]
        folder.core_use(rank).write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
    finish_launch(folder, RECORD, ranks=2)
    takers = read_launch(folder).takers
    assert [one.host for one in takers] == ["node-a", "node-b"]
    assert [one.words.partition(" of ")[2] for one in takers] == ["2 cores on node-a", "2 cores on node-b"]


def test_a_file_of_uses_and_a_record_that_say_no_machine_are_read(folder: LaunchFolder) -> None:
    header = UseHeader(ranks=(0, 1), cores=2).model_dump(exclude={"host"})
    sample = see(0, 300, others=290, waited=290).model_dump_json()
    folder.core_use(0).write_text(f"{json.dumps(header)}\n{sample}\n")
    finish_launch(folder, RECORD, ranks=2)
    record = json.loads(folder.launch.read_text())
    for taker in record["takers"]:
        assert taker.pop("host") is None
    folder.launch.write_text(json.dumps(record))
    (taker,) = read_launch(folder).takers
    assert taker.host is None
    assert taker.words.endswith(" of 2 cores")

"""A slice of the fuzzers, and everything that they ever found; the whole is ``python -m tests.fuzz KIND --count N``.

What was found lies in ``found``: traces as they were, scenarios likewise, of run folders the files that differ from a
shipped run's, in a folder named after the run that they lie over. A number makes another input when its fuzzer is
changed; these stay.
"""

import contextlib
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from dtbench.cli.analyze import print_traces_as_json
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.reader import read_trace
from tests.fuzz.run_folders import BASES, RunFolders, copy_base
from tests.fuzz.scenarios import Scenarios
from tests.fuzz.small_traces import make_jobs
from tests.fuzz.trace_mutations import encode
from tests.fuzz.trace_oracle import find_lost_events, find_wrong_numbers
from tests.fuzz.traces import Traces
from tests.fuzz.tries import Block, Fuzzer, Outcome, find_wrong_words, judge, meet, read_blocks, run, split, write_block

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells how large a process is")

FOUND: Final = Path(__file__).parent / "found"


def list_found() -> list[Path]:
    return sorted(path for kind in FOUND.iterdir() for path in kind.iterdir())


def check_slice(fuzzer: Fuzzer, count: int) -> None:
    tries = [meet(fuzzer, number) for number in range(count)]
    assert not [(one.number, one.outcome.wrong) for one in tries if one.outcome.wrong]
    assert len({one.outcome.answer for one in tries}) == 2  # some are answered, some refused


def test_mutated_traces_are_answered_or_refused() -> None:
    check_slice(Traces(), 100)


def test_mutated_scenarios_are_planned_or_refused() -> None:
    check_slice(Scenarios(), 40)


def test_mutated_run_folders_are_answered_or_refused() -> None:
    tries = [meet(RunFolders(), number) for number in range(2)]
    assert not [(one.number, one.outcome.wrong) for one in tries if one.outcome.wrong]


@pytest.mark.parametrize("path", list_found(), ids=lambda path: path.name)
def test_what_was_found_once_is_answered_rightly(path: Path, tmp_path: Path) -> None:
    match path.parent.name:
        case "traces":
            outcome = judge(Traces(), path)
        case "scenarios":
            outcome = judge(Scenarios(), path)
        case _:
            outcome = judge(RunFolders(), lay_over(path, tmp_path))
    assert not outcome.wrong


def lay_over(found: Path, folder: Path) -> Path:
    (over,) = found.iterdir()
    target = copy_base(BASES[over.name], folder)
    for file in (one for one in over.rglob("*") if one.is_file()):
        (target / file.relative_to(over)).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize("name", make_jobs())
def test_every_small_trace_is_answered_as_it_stands(name: str, tmp_path: Path) -> None:
    """What mutations start from reaches the deep analysis, and nothing is wrong with its answer."""
    for rank, document in enumerate(make_jobs()[name]):
        (tmp_path / f"rank{rank}.json").write_bytes(encode(document))
    assert judge(Traces(), tmp_path) == Outcome("answered")


class Broken:
    """A fuzzer whose inputs are answered in every way that is wrong."""

    block = 4

    def make(self, number: int, folder: Path) -> Path:
        return folder / str(number)

    def judge(self, target: Path) -> Outcome:
        match target.name:
            case "1":
                raise ValueError("a fault")
            case "2":
                bytearray(1 << 30)
            case "3":
                os.kill(os.getpid(), signal.SIGKILL)
        return Outcome("answered")


def test_a_try_that_raises_swells_or_dies_is_told_and_the_others_are_done(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"

    def keep(block: Block) -> None:
        write_block(rows, block)

    run(Broken(), split(range(8), [], size=4), workers=1, on_done=keep)
    blocks = read_blocks(rows)
    assert blocks[0].answers == {"answered": 1, "crashed": 1, "swelled": 1, "died": 1}
    assert blocks[1].answers == {"answered": 4}
    told = [(failure["number"], failure["wrong"][0].partition(" at ")[0]) for failure in blocks[0].failures]
    assert told == [
        (1, "ValueError: a fault"),
        (2, "took more than 500 MiB"),
        (3, f"its process ended with {-signal.SIGKILL}"),
    ]
    assert split(range(10), blocks, size=4) == [range(8, 10)]


class Endless(Broken):
    def judge(self, target: Path) -> Outcome:
        while True:
            time.process_time()


def test_a_try_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.fuzz.tries.CPU_S", 0.1)
    assert judge(Endless(), tmp_path).answer == "hung"


def answer(folder: Path) -> dict[str, Any]:
    """Return what is said of a rank of DDP on a device, with communication that is hidden, and that is not."""
    (folder / "rank0.json").write_bytes(encode(make_jobs()["ddp_alone"][0]))
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        print_traces_as_json(analyze_traces([folder / "rank0.json"], workers=1))
    document: dict[str, Any] = json.loads(written.getvalue())
    return document


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (("ranks", 0, "steps", 0, "idle_ns"), "parts do not add up to the window"),
        (("ranks", 0, "whole", "hidden_comm_ns"), "hidden 690001 and exposed 810000 do not add up"),
        (("ranks", 0, "whole", "hidden_fraction"), "hidden_fraction is"),
        (("ranks", 0, "steps", 1, "purposes", 0, "exposed_ns"), "exposed_ns of purposes"),
        (("ranks", 0, "steps", 1, "groups", 0, "hidden_ns"), "hidden_ns of groups"),
        (("ranks", 0, "steps", 1, "lanes", 0, "compute_ns"), "impossible lane"),
        (("ranks", 0, "whole", "gaps", "launch_gap_ns"), "parts of gaps do not add up"),
        (("collectives", 0, "exposed_ns"), "shares of collectives add up to 810001"),
        (("owners", 0, "exposed_ns"), "causes of owners"),
    ],
    ids=str,
)
def test_a_nanosecond_too_much_anywhere_is_wrong(place: tuple[Any, ...], told: str, tmp_path: Path) -> None:
    document = answer(tmp_path)
    assert not list(find_wrong_numbers(document))
    node: Any = document
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] += 1
    assert any(told in wrong for wrong in find_wrong_numbers(document))


def test_an_event_that_is_neither_read_nor_counted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, path = answer(tmp_path), tmp_path / "rank0.json"
    assert not list(find_lost_events(path, document))
    document["ranks"][0]["whole"]["lanes"][1]["busy_ns"] -= 1
    document["ranks"][0]["whole"]["lanes"][1]["comm_ns"] -= 1
    assert [wrong.partition(" lane ")[0] for wrong in find_lost_events(path, document)] == ["rank0.json:"] * 2
    trace = read_trace(path)
    kept = np.arange(len(trace)) > 0
    monkeypatch.setattr("tests.fuzz.trace_oracle.read_trace", lambda _: trace.select(kept))
    assert next(find_lost_events(path, document)).endswith("are read and {} counted")


@pytest.mark.parametrize(
    "said", ["a\x1b[2J", "a\u202eb", "Traceback (most recent call last)", "this is a bug in dtbench"]
)
def test_words_that_no_answer_may_have_are_wrong(said: str) -> None:
    assert find_wrong_words(said)
    assert not find_wrong_words("step 1.00 ms, a\\x1b[2J\n\tb")

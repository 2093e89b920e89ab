"""How fast traces are read and answered: CPU time and peak memory of whole processes, each figure beside its bound.

``python -m tests.benchmarks.trace_reading --source TRACE.json.gz`` (with the extra ``bench``; Linux) repeats a real GPU
trace in time to about 50, 500 and 2000 MB (10**6 bytes before compression), and prints a Markdown table. Per size, and
interleaved in each round:

* *limit*: streamed inflate and simdjson's DOM parse (``parse_reference.py``), without start-up;
* *load*: a process that reads the trace into columns and ends;
* *answer*: ``dtbench analyze TRACE --json``;
* *HTA*: load, overlap and temporal breakdown, where ``--hta-python`` names an interpreter that has it; beside it
  *overlap*, a process that answers just these questions through dtbench (``overlap_answer.py``: whole and each step).

The bound of HTA is held against *overlap*, which is like for like. How it compares with the whole answer, which says
much that HTA does not (collectives, owners, causes, gaps), is a row of its own and promises nothing.

Then eight ranks on two cores against the same on one, wall time. Every figure is a median over rounds, ratios are
ratios of medians, and start-up (the interpreter, imports) is counted against dtbench. A benchmark, not a test: it exits
with 1 where a bound does not hold.
"""

import argparse
import compileall
import importlib.util
import json
import platform
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.child_cost import ChildError, Cost, limited_cores, run_child

SHARED = Path(__file__).parents[3] / "shared" / "traces" / "a100x8_ddp_rank.json.gz"
LOAD = """
import sys
from pathlib import Path
from dtbench.traces.reader import read_trace
print(len(read_trace(Path(sys.argv[1]))))
"""
ANSWER = "import sys; from dtbench.cli.main import main; sys.argv[0] = 'dtbench'; sys.exit(main())"
MB = 1e6
RANKS, CORES = 8, 2

LOAD_AT_MOST, ANSWER_AT_MOST = 6, 8  # times the limit, from LARGE_MB on: below, start-up is what is measured
MEMORY_AT_MOST = 0.45  # of the uncompressed size, from LARGE_MB on
HTA_AT_LEAST = {500: 20, 50: 8}  # times overlap and breakdown by dtbench, by the size from which it holds
RANKS_AT_LEAST = 1.6
LINEAR_WITHIN = 1.15  # CPU per MB at the largest size against the one at LARGE_MB
LARGE_MB = 500


@dataclass(frozen=True)
class Row:
    """One line of the table; ``bound`` and ``holds`` are None where nothing is promised."""

    trace: str
    what: str
    measured: str
    bound: str | None = None
    holds: bool | None = None


@dataclass(frozen=True)
class Sample:
    """A trace made for this."""

    path: Path
    wished_mb: int
    size_mb: float
    events: int

    @property
    def title(self) -> str:
        """Size and number of events, for the table."""
        return f"{self.size_mb:.0f} MB, {self.events / 1e6:.2f} M events"


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    source: Path
    folder: Path
    sizes_mb: Sequence[int]
    rounds: int
    hta_python: str | None
    hta_rounds: int
    rank_mb: int
    ending: str
    has_simdjson: bool


def make_sample(options: Options, mb: int, rank: int | None = None) -> Sample:
    """Write a trace, in a process of its own, see [Note: peak memory of a child]."""
    name = f"repeated_{mb}mb" if rank is None else f"ranks/rank{rank}"
    path = options.folder / f"{name}{options.ending}"
    path.parent.mkdir(exist_ok=True)
    as_rank = () if rank is None else ("--rank", str(rank))
    module = "tests.benchmarks.repeat_trace"
    made = run_child([sys.executable, "-m", module, str(options.source), str(path), "--mb", str(mb), *as_rank])
    said = json.loads(made.output)
    return Sample(path, mb, said["bytes"] / MB, said["events"])


def analyze(path: Path) -> Cost:
    """Cost of the whole answer as a person asks for it."""
    return run_child([sys.executable, "-c", ANSWER, "analyze", str(path), "--json"])


def measure_size(options: Options, sample: Sample) -> Mapping[str, Sequence[Cost]]:
    """Return what each command costs on one trace, all of them in each round."""
    commands = {
        "load": [sys.executable, "-c", LOAD, str(sample.path)],
        "answer": [sys.executable, "-c", ANSWER, "analyze", str(sample.path), "--json"],
    }
    if options.has_simdjson and sample.wished_mb <= LARGE_MB:  # it wants several times the text as memory
        commands["limit"] = [sys.executable, "-m", "tests.benchmarks.parse_reference", str(sample.path)]
    has_hta = options.hta_python is not None and sample.wished_mb <= LARGE_MB
    if has_hta:
        commands["overlap"] = [sys.executable, "-m", "tests.benchmarks.overlap_answer", str(sample.path)]
    costs: dict[str, list[Cost]] = defaultdict(list)
    for place in range(options.rounds):
        for name, command in commands.items():
            costs[name].append(run_child(command))
        if options.hta_python is not None and has_hta and place < options.hta_rounds:
            script = str(Path(__file__).with_name("hta_answer.py"))
            costs["hta"].append(run_child([options.hta_python, script, str(sample.path)]))
    return costs


def size_rows(sample: Sample, costs: Mapping[str, Sequence[Cost]]) -> Iterator[Row]:
    """Turn costs into rows."""
    is_large = sample.wished_mb >= LARGE_MB
    load_s, answer_s = ([cost.cpu_s for cost in costs[name]] for name in ("load", "answer"))
    limits = [json.loads(cost.output) for cost in costs.get("limit", ())]
    if limits:
        limit_s = [one["inflate_s"] + one["parse_s"] for one in limits]
        parts = " + ".join(f"{statistics.median(one[part] for one in limits):.3f}" for part in ("inflate_s", "parse_s"))
        what = f"limit: inflate ({limits[0]['inflate']}) + simdjson DOM parse"
        yield Row(sample.title, what, f"{_spread(limit_s)} CPU = {parts}")
        for what, spent_s, at_most in (("load", load_s, LOAD_AT_MOST), ("whole answer", answer_s, ANSWER_AT_MOST)):
            ratio = statistics.median(spent_s) / statistics.median(limit_s)
            measured = f"{_spread(spent_s)} CPU = {ratio:.1f} x limit"
            yield _row(sample, what, measured, (f"<= {at_most} x", ratio <= at_most) if is_large else None)
    else:
        yield Row(sample.title, "load", f"{_spread(load_s)} CPU")
        yield Row(sample.title, "whole answer", f"{_spread(answer_s)} CPU")
    for what, name in (("load", "load"), ("whole answer", "answer")):
        peak_mb = statistics.median(cost.peak_bytes for cost in costs[name]) / MB
        share = peak_mb / sample.size_mb
        measured = f"{peak_mb:.0f} MB = {share:.2f} x size"
        bound = (f"<= {MEMORY_AT_MOST} x", share <= MEMORY_AT_MOST) if is_large and name == "answer" else None
        yield _row(sample, f"{what}, peak memory", measured, bound)
    if "hta" in costs:
        yield from hta_rows(sample, costs)


def hta_rows(sample: Sample, costs: Mapping[str, Sequence[Cost]]) -> Iterator[Row]:
    """Compare HTA with the same questions asked of dtbench, and with the whole answer."""
    hta_s, overlap_s, answer_s = ([cost.cpu_s for cost in costs[name]] for name in ("hta", "overlap", "answer"))
    peak_mb = statistics.median(cost.peak_bytes for cost in costs["hta"]) / MB
    version = costs["hta"][0].output.splitlines()[0]
    like_for_like, against_all = (statistics.median(hta_s) / statistics.median(ours) for ours in (overlap_s, answer_s))
    at_least = next((times for size_mb, times in HTA_AT_LEAST.items() if sample.wished_mb >= size_mb), None)
    bound = None if at_least is None else (f">= {at_least} x", like_for_like >= at_least)
    yield _row(sample, "load, overlap and breakdown", f"{_spread(overlap_s)} CPU", None)
    measured = f"{_spread(hta_s)} CPU, {peak_mb:.0f} MB = {like_for_like:.1f} x"
    yield _row(sample, f"the same by HTA ({version})", measured, bound)
    yield _row(sample, "HTA against the whole answer", f"{against_all:.1f} x", None)


def measure_ranks(options: Options) -> Iterator[Row]:
    """Yield the row of eight ranks: the same command on two cores and on one."""
    samples = [make_sample(options, options.rank_mb, rank) for rank in range(RANKS)]
    folder = samples[0].path.parent
    wall_s: dict[int, list[float]] = {1: [], CORES: []}
    for _ in range(options.rounds):
        for cores, spent_s in wall_s.items():
            with limited_cores(cores):
                spent_s.append(analyze(folder).wall_s)
    one_s, both_s = (statistics.median(spent_s) for spent_s in wall_s.values())
    title = f"{RANKS} x {samples[0].title}"
    yield Row(title, "whole answer of all ranks, one core", f"{_spread(wall_s[1])} wall")
    measured = f"{_spread(wall_s[CORES])} wall = {one_s / both_s:.2f} x faster"
    bound = f">= {RANKS_AT_LEAST} x"
    yield Row(title, f"the same, {CORES} cores", measured, bound, one_s / both_s >= RANKS_AT_LEAST)


def linearity_row(measured: Sequence[tuple[Sample, Mapping[str, Sequence[Cost]]]]) -> Row | None:
    """Compare CPU time per MB at the largest size with that at LARGE_MB; None where one is missing."""
    per_mb = {
        sample.wished_mb: statistics.median(cost.cpu_s for cost in costs["answer"]) / sample.size_mb
        for sample, costs in measured
    }
    largest = max(per_mb)
    if LARGE_MB not in per_mb or largest <= LARGE_MB:
        return None
    ratio = per_mb[largest] / per_mb[LARGE_MB]
    spelled = ", ".join(f"{spent_s * 1e3:.2f} at {size_mb} MB" for size_mb, spent_s in sorted(per_mb.items()))
    growth = f"{spelled}: {ratio:.2f} x from {LARGE_MB} to {largest} MB"
    return Row("all sizes", "whole answer, CPU ms per MB", growth, f"<= {LINEAR_WITHIN} x", ratio <= LINEAR_WITHIN)


def _row(sample: Sample, what: str, measured: str, bound: tuple[str, bool] | None) -> Row:
    """Return a row about one trace; ``bound`` is its text and whether it holds, None where nothing is promised."""
    return Row(sample.title, what, measured, *(bound or (None, None)))


def _spread(spent_s: Sequence[float]) -> str:
    """Median, and in brackets the smallest and largest."""
    median = f"{statistics.median(spent_s):.2f}"
    return f"{median} s" if len(spent_s) == 1 else f"{median} ({min(spent_s):.2f}-{max(spent_s):.2f}) s"


def print_table(rows: Sequence[Row]) -> None:
    """Print Markdown."""
    print("| trace | what | measured | bound | holds |\n|---|---|---|---|---|")
    for row in rows:
        holds = {None: "", True: "yes", False: "**no**"}[row.holds]
        print(f"| {row.trace} | {row.what} | {row.measured} | {row.bound or ''} | {holds} |")


def read_options(folder: Path) -> Options:
    """Read the command line; ``folder`` is where traces go if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, default=SHARED, help="a real GPU trace of one rank, at least one step")
    parser.add_argument("--folder", type=Path, default=folder, help="keep the made traces here; left out: thrown away")
    parser.add_argument("--sizes", default="50,500,2000", help="MB before compression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta-python", help="interpreter of a virtual environment that holds HTA")
    parser.add_argument("--hta-rounds", type=int, default=3)
    parser.add_argument("--rank-mb", type=int, default=200, help="size of each of eight ranks' traces; 0: leave out")
    parser.add_argument("--ending", choices=[".json.gz", ".json"], default=".json.gz")
    said = parser.parse_args()
    if not said.source.is_file():
        parser.error(f"{said.source}: no such file; give --source one rank's GPU trace, as torch.profiler writes it")
    said.folder.mkdir(parents=True, exist_ok=True)
    return Options(
        source=said.source,
        folder=said.folder,
        sizes_mb=[int(size) for size in said.sizes.split(",")],
        rounds=said.rounds,
        hta_python=said.hta_python,
        hta_rounds=said.hta_rounds,
        rank_mb=said.rank_mb,
        ending=said.ending,
        has_simdjson=importlib.util.find_spec("simdjson") is not None,
    )


def main() -> None:
    """Make traces, measure, print the table."""
    # As pip does when it installs a package; a checkout is compiled anew by each process where Python may not write.
    compileall.compile_dir(Path(__file__).parents[2] / "dtbench", quiet=1)
    with tempfile.TemporaryDirectory(prefix="dtbench-traces-") as folder:
        options = read_options(Path(folder))
        try:
            rows = measure(options)
        except ChildError as error:
            sys.exit(f"a process that is measured failed: {error}")
    machine = f"Python {platform.python_version()}, {_processor()}"
    print(f"{options.source.name} repeated; medians of {options.rounds} rounds (smallest-largest); {machine}\n")
    print_table(rows)
    if not options.has_simdjson:
        print("\nThe limit was not measured: pysimdjson is missing, install the extra `bench`")
    sys.exit(any(row.holds is False for row in rows))


def measure(options: Options) -> list[Row]:
    """Return all rows."""
    measured: list[tuple[Sample, Mapping[str, Sequence[Cost]]]] = []
    for size_mb in options.sizes_mb:
        sample = make_sample(options, size_mb)
        measured.append((sample, measure_size(options, sample)))
    rows = [row for sample, costs in measured for row in size_rows(sample, costs)]
    linearity = linearity_row(measured)
    if linearity is not None:
        rows.append(linearity)
    if options.rank_mb:
        rows.extend(measure_ranks(options))
    return rows


def _processor() -> str:
    """Name the processor, where Linux says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()

"""``dtbench analyze``: make a run's tables again, or account for anyone's traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import Column, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from dtbench.analyze.foreign import TraceSet
    from dtbench.analyze.launch_tables import LaunchTables
    from dtbench.analyze.overlap import Overlap
    from dtbench.analyze.trace_analysis import PurposeTime, TraceAnalysis

    MadeTables = Mapping[tuple[str, int], LaunchTables]

FORMAT_VERSION = 1
TRACE_ENDINGS = (".json", ".json.gz")


def analyze(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | TRACE...]",
            help="A run's folder or id, a scenario, `latest`; or traces, or folders of them. Left out: the latest run.",
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
) -> None:
    """Account for every nanosecond of profiled steps: compute, exposed communication, exposed copies, idle.

    Of a run, the tables, the plot and TensorBoard's files are made again from its traces. Any Kineto trace works
    without a run, too.
    In JSON times are nanoseconds, ratios fractions, and a number that could not be computed is "NaN".
    """
    from dtbench.analyze.foreign import analyze_traces
    from dtbench.analyze.run import analyze_run, summarize_run
    from dtbench.cli.find_run import find_run
    from dtbench.report.publish import publish

    named = targets or ["latest"]
    if all(_is_traces(Path(target)) for target in named):
        traces = analyze_traces(Path(target) for target in named)
        print_json(_traces_document(traces)) if as_json else _print_traces(traces)
        return
    if len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    run = find_run(None if named == ["latest"] else named[0], results)
    made = analyze_run(run)
    publish(summarize_run(run))
    print_json(_run_document(run, made)) if as_json else _print_run(run, made)


def _is_traces(path: Path) -> bool:
    """Tell whether a path is a trace or a folder of traces; a folder that is a run, or holds runs, is none."""
    from dtbench.cli.find_run import is_run

    if not path.is_dir():
        return path.is_file() or path.name.endswith(TRACE_ENDINGS)  # a trace that is missing is refused as a trace
    return not is_run(path) and any(file.name.endswith(TRACE_ENDINGS) for file in path.iterdir() if file.is_file())


def _traces_document(traces: "TraceSet") -> object:
    return {
        "format_version": FORMAT_VERSION,
        "ranks": [_rank_document(one) for one in traces.analyses],
        "unread": traces.unread_events,
        "unknown_names": [{"name": name, "count": count} for name, count in traces.unknown_names],
        "notes": list(traces.notes),
    }


def _rank_document(one: "TraceAnalysis") -> object:
    whole = _overlap_document(one.whole)
    return {
        "rank": one.rank,
        "path": one.path,
        "whole": {"window_ns": whole.pop("step_ns"), **whole, "purposes": _purpose_documents(one.whole_purposes)},
        "steps": [
            {"step": step.step, **_overlap_document(step.overlap), "purposes": _purpose_documents(step.purposes)}
            for step in one.steps
        ],
    }


def _overlap_document(overlap: "Overlap") -> dict[str, object]:
    from dataclasses import asdict

    fractions = {"hidden_fraction": overlap.hidden_fraction, "exposed_step_fraction": overlap.exposed_step_fraction}
    return {**asdict(overlap), **{name: _number(value) for name, value in fractions.items()}}


def _purpose_documents(purposes: "Iterable[PurposeTime]") -> list[dict[str, object]]:
    from dataclasses import asdict

    return [{**asdict(purpose), "purpose": str(purpose.purpose)} for purpose in purposes]


def _number(value: float) -> float | str:
    """Give a float as it is, and NaN as a word: JSON has none."""
    import math

    return "NaN" if math.isnan(value) else value


def _run_document(run: Path, made: "MadeTables") -> object:
    launches = [
        {
            "cell": cell,
            "launch": launch,
            "ranks": [
                {"rank": rank, "steps": [_step_document(step, tables.purposes) for step in steps.to_dict("records")]}
                for rank, steps in tables.overlap.groupby("rank")
            ],
            "unread": tables.unread_events,
            "unknown_names": [{"name": name, "count": count} for name, count in tables.unknown_names],
            "notes": list(tables.notes),
        }
        for (cell, launch), tables in made.items()
    ]
    return {"format_version": FORMAT_VERSION, "run": str(run), "launches": launches}


def _step_document(step: "Mapping[object, object]", purposes: "pd.DataFrame") -> object:
    mine = purposes[(purposes["rank"] == step["rank"]) & (purposes["step"] == step["step"])]
    rows = mine.drop(columns=["rank", "step"]).to_dict("records")
    return {**{str(name): value for name, value in step.items() if name != "rank"}, "purposes": rows}


def _print_traces(traces: "TraceSet") -> None:
    from dtbench.units import format_bytes, format_ns

    accounts = [
        (str(one.rank), name, *_spell_overlap(overlap))
        for one in traces.analyses
        for name, overlap in [*((str(step.step), step.overlap) for step in one.steps), ("whole", one.whole)]
    ]
    titles = ("time", "compute", "exposed\ncomm", "exposed\ncopies", "idle", "hidden\nshare", "exposed\nshare")
    print_table(
        [Column("rank"), Column("step"), *(Column(title, is_number=True) for title in titles)],
        accounts,
        title="Where the time went",
    )
    purposes = [
        (
            str(one.rank),
            str(purpose.purpose),
            str(purpose.count),
            format_bytes(purpose.size_bytes) if purpose.size_bytes else "n/a",
            *(
                format_ns(time_ns)
                for time_ns in (purpose.comm_ns, purpose.hidden_ns, purpose.exposed_ns, purpose.wait_ns)
            ),
        )
        for one in traces.analyses
        for purpose in one.whole_purposes
    ]
    columns = ("count", "bytes", "comm", "hidden", "exposed", "waited")
    if purposes:
        print_table(
            [Column("rank"), Column("purpose"), *(Column(title, is_number=True) for title in columns)],
            purposes,
            title="What communication was for, whole trace",
        )
    else:
        print_line("No communication")
    _print_remarks(traces.unread_events, traces.unknown_names, traces.notes)


def _spell_overlap(overlap: "Overlap") -> tuple[str, ...]:
    """Give the step and the four parts that add up to it, then the two shares."""
    from dtbench.units import format_fraction, format_ns

    parts = (overlap.compute_ns, overlap.exposed_comm_ns, overlap.exposed_copy_ns, overlap.idle_ns)
    fractions = (overlap.hidden_fraction, overlap.exposed_step_fraction)
    return (*(format_ns(one) for one in (overlap.step_ns, *parts)), *(format_fraction(one) for one in fractions))


def _print_run(run: Path, made: "MadeTables") -> None:
    from dtbench.analyze.summarize_overlap import fraction
    from dtbench.units import format_fraction

    print_table(
        [
            Column("cell"),
            Column("launch"),
            Column("ranks", is_number=True),
            Column("profiled steps", is_number=True),
            Column("hidden share", is_number=True),
            Column("exposed share", is_number=True),
        ],
        [
            (
                cell,
                str(launch),
                str(tables.overlap["rank"].nunique()),
                str(tables.overlap["step"].nunique()),
                format_fraction(fraction(tables.overlap, "hidden_comm_ns", "comm_ns")),
                format_fraction(fraction(tables.overlap, "exposed_comm_ns", "step_ns")),
            )
            for (cell, launch), tables in made.items()
        ],
    )
    for (cell, launch), tables in made.items():
        if len(tables.overlap):
            print_line(
                f"{cell}, launch {launch}: made {len(tables.overlap)} rows of overlap, {len(tables.purposes)} of "
                f"purposes, {len(tables.collectives)} of collectives"
            )
        else:
            print_line(f"{cell}, launch {launch}: no table was made, no step of a trace could be read")
        _print_remarks(tables.unread_events, tables.unknown_names, tables.notes)
    print_line(f"The tables are in {run}")


def _print_remarks(unread: int, unknown_names: "Iterable[tuple[str, int]]", notes: "Iterable[str]") -> None:
    if unread:
        print_line(f"Note: {unread} events could not be read and are in no number")
    for name, count in unknown_names:
        print_line(f"Note: counted as compute, may be communication ({count} times): {name}")
    for note in notes:
        print_line(f"Note: {note}")

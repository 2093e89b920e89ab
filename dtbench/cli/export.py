"""``dtbench export``: hand a job's traces to other viewers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.report.page.page import Column, Line, Page, Part, Table, Tone, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dtbench.report.documents.archive import WrittenArchive
    from dtbench.report.export.perfetto import ArchivedTrace
    from dtbench.store.layout import LaunchFolder
    from dtbench.traces.job.trace_set import TraceSet
    from dtbench.traces.reader.source import TraceSource


def export(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | TRACE...]",
            help="A run's folder or id, a scenario, `latest`; or traces of one job, folders or archives of them. "
            "Left out: the latest run.",
        ),
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="OUT.tar", help="Archive to write, for Perfetto version 58 or later.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the archive if there is one.")] = False,
    cell: Annotated[str | None, typer.Option(help="Of a run with several cells, the one to export.")] = None,
    launch: Annotated[
        int | None, typer.Option(min=0, help="Of a cell with several launches, the one to export.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Traces to read at once, each in a process. Left out: as cores and memory allow."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
) -> None:
    """Write one archive with all ranks' traces that Perfetto shows beside each other, their clocks lined up.

    Traces stand in it as the profiler wrote them. How far the clocks are apart comes from the ends of collectives, as
    `dtbench analyze` finds it. In JSON times are nanoseconds.
    """
    if perfetto is None:
        raise typer.BadParameter("say what to write: --perfetto OUT.tar")
    refuse_place(perfetto, force=force)
    from dtbench.store.find_run import find_run
    from dtbench.traces.job.foreign import are_traces

    named = targets or ["latest"]
    if all(are_traces(Path(target)) for target in named):
        refuse_choice(cell, launch)
        traces, sources = _read_traces([Path(target) for target in named], workers)
    elif len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    else:
        run = find_run(None if named == ["latest"] else named[0], results, print_aside)
        traces, sources = _read_launch(find_launch(run, cell=cell, launch=launch), workers)
    from dtbench.report.documents.archive import WrittenArchive, document
    from dtbench.report.export.perfetto import plan_archive, write_archive

    refuse_overwritten_source(perfetto, sources)
    plan = plan_archive(traces, sources)
    archive = WrittenArchive(plan, perfetto, write_archive(plan, perfetto))
    print_json(document(archive)) if as_json else print_answer(archive_page(archive))


def refuse_place(path: Path, *, force: bool) -> None:
    """Refuse to write where a person would not want it, before anything is read.

    Raises:
        BadParameter: another kind of file is named, or one is there already.
    """
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it, say {path / 'traces.tar'}")
    if path.suffix != ".tar":
        raise typer.BadParameter(f"the archive is a tar file without compression; call it {path.name}.tar, say")
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} is there already; name another file, or replace it with --force")


def refuse_choice(cell: str | None, launch: int | None) -> None:
    """Refuse options that only a run has.

    Raises:
        BadParameter: one is given.
    """
    if cell is not None or launch is not None:
        raise typer.BadParameter("--cell and --launch choose from a run; traces were given")


def refuse_overwritten_source(path: Path, sources: "Sequence[TraceSource]") -> None:
    """Refuse to replace the archive that is being read.

    Raises:
        BadParameter: it is one of the sources.
    """
    if path.exists() and any(path.samefile(source.path) for source in sources):
        raise typer.BadParameter(f"{path} is what is being exported; name another file")


def _read_traces(paths: list[Path], workers: int | None) -> "tuple[TraceSet, Sequence[TraceSource]]":
    from dtbench.traces.job.foreign import analyze_job
    from dtbench.traces.rank.file import TraceFile
    from dtbench.traces.reader.find import find_traces

    found = [find_traces(path) for path in paths]
    sources = tuple(dict.fromkeys(source for one in found for source in one.sources))
    notes = [note for one in found for note in one.notes]
    return analyze_job([TraceFile(source) for source in sources], workers=workers, notes=notes), sources


def _read_launch(folder: "LaunchFolder", workers: int | None) -> "tuple[TraceSet, Sequence[TraceSource]]":
    from dtbench.traces.job.foreign import analyze_job
    from dtbench.traces.rows.launch_tables import find_absent_traces, find_launch_traces

    files = find_launch_traces(folder)
    return analyze_job(files, workers=workers, notes=find_absent_traces(folder)), [file.source for file in files]


def archive_page(archive: "WrittenArchive") -> Page:
    """Make the page of an archive: where it is, how far each rank's trace was moved, and what is left out."""
    from dtbench.base.units import format_bytes

    columns = (
        Column("rank", is_number=True),
        Column("moved later by", is_number=True),
        Column("in the archive"),
        Column("trace"),
    )
    rows = [(str(trace.rank), _spell_move(trace), trace.member, trace.source.name) for trace in archive.plan.traces]
    size = format_bytes(archive.size_bytes)
    wrote = Line(f"Wrote {archive.path} ({size}); open it at https://ui.perfetto.dev.", Tone.STRONG)
    return Page(
        title=archive.path.name,
        answer=(wrote,),
        parts=(Part("traces", "", (Table("Traces", columns, rows, key="traces"),)),),
        notes=lines(archive.plan.notes),
    )


def _spell_move(trace: "ArchivedTrace") -> str:
    """Say how far a trace was moved; n/a where nothing tells how far it should be, and its own times stand."""
    from dtbench.base.units import format_ns

    if not trace.is_aligned:
        return "n/a"
    return format_ns(trace.offset_ns) if trace.offset_ns else "0"


def find_launch(run: Path, *, cell: str | None, launch: int | None) -> "LaunchFolder":
    """Return the one launch of a run that a person means and that has traces.

    Args:
        run: folder of the run.
        cell: its name; None: there is only one.
        launch: its number; None: there is only one.

    Raises:
        BadParameter: none or several fit.
        TraceError: no launch of the run has a trace.
    """
    from dtbench.base.errors import TraceError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    folders = {
        (one.name, index): RunFolder(run).launch(one.name, index)
        for one in read_run(run).cells
        for index in one.launches
    }
    traced = {key: folder for key, folder in folders.items() if folder.find_traces()}
    if not traced:
        raise TraceError(f"{run}: no launch of this run has a trace; did it run, and with profiled_steps above 0?")
    cell = _choose("cell", cell, dict.fromkeys(name for name, _ in traced))
    index = _choose("launch", None if launch is None else str(launch), [str(at) for name, at in traced if name == cell])
    return traced[cell, int(index)]


def _choose(what: str, wished: str | None, there_are: "Iterable[str]") -> str:
    """Return the wished one, or the only one."""
    from dtbench.scenario.mistakes import find_nearest
    from dtbench.scenario.sweeps.sweep import name_some

    names = list(there_are)
    if wished is None and len(names) == 1:
        return names[0]
    if wished is None:
        several = "several cells" if what == "cell" else "several launches"
        raise typer.BadParameter(f"there are {several}, {name_some(names)}; name one: --{what} {names[0]}")
    if wished in names:
        return wished
    near = find_nearest(wished, names)
    meant = f"did you mean `{near}`?" if near else f"there is {name_some(names)}"
    raise typer.BadParameter(f"no {what} `{wished}` with traces is in the run; {meant}")

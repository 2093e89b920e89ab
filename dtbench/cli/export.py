"""``dtbench export``: hand a job's traces to other viewers, and tables to other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.open_report import ChosenSteps, StepRange, are_all_traces, open_report
from dtbench.report.page.page import Column, Line, Page, Part, Table, Tone, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dtbench.report.documents.archive import WrittenArchive
    from dtbench.report.export.perfetto import ArchivedTrace
    from dtbench.report.notebook.loaded import RunReport
    from dtbench.report.notebook.table_file import NamedTable
    from dtbench.report.notebook.trace_report import TraceReport
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
    table: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Table to write, `owners` for one; a name that is none lists them all."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="CSV or Markdown, as its ending says. Left out: CSV is printed."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
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
    steps: ChosenSteps = None,
    step_range: StepRange = None,
) -> None:
    """Write all ranks' traces as one archive for Perfetto, or any table of a run or of traces as CSV or Markdown.

    The archive has the traces as the profiler wrote them, beside each other, their clocks lined up by the ends of
    collectives. A table has nanoseconds and bytes in CSV, each column with its unit in its name, and what is not known
    is empty; Markdown is as `dtbench report --full` and `dtbench analyze --full` show it.
    """
    named = targets or ["latest"]
    if table is not None and perfetto is None:
        if as_json or launch is not None:
            raise typer.BadParameter("--json and --launch are for --perfetto; a table has a column `launch`")
        refuse_table_place(output, force=force)
        if are_all_traces(named):
            refuse_choice(cell, None)
        report = open_report(named, results, workers=workers, steps=steps, step_range=step_range)
        _write_table(_choose_table(report, table, cell), output)
    elif perfetto is not None and table is None:
        for option, value in (("-o", output), ("--steps", steps), ("--range", step_range)):
            if value is not None:
                raise typer.BadParameter(f"{option} is for --table; --perfetto has the traces as they are")
        refuse_place(perfetto, force=force)
        traces, sources = _read_sources(named, results, cell=cell, launch=launch, workers=workers)
        _write_archive(traces, sources, perfetto, as_json=as_json)
    else:
        raise typer.BadParameter("say what to write: --perfetto OUT.tar, or --table owners -o owners.csv")


def _read_sources(
    named: "Sequence[str]", results: Path, *, cell: str | None, launch: int | None, workers: int | None
) -> "tuple[TraceSet, Sequence[TraceSource]]":
    """Read the traces that are given, or of the one launch of a run that is meant."""
    if are_all_traces(named):
        refuse_choice(cell, launch)
        return _read_traces([Path(one) for one in named], workers)
    if len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    from dtbench.store.find_run import find_run

    run = find_run(None if named == ["latest"] else named[0], results, print_aside)
    return _read_launch(find_launch(run, cell=cell, launch=launch), workers)


def _write_archive(traces: "TraceSet", sources: "Sequence[TraceSource]", path: Path, *, as_json: bool) -> None:
    from dtbench.report.documents.archive import WrittenArchive, document
    from dtbench.report.export.perfetto import plan_archive, write_archive

    refuse_overwritten_source(path, sources)
    plan = plan_archive(traces, sources)
    archive = WrittenArchive(plan, path, write_archive(plan, path))
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


_TABLE_ENDINGS: Final = (".csv", ".md")


def refuse_table_place(path: Path | None, *, force: bool) -> None:
    """Refuse to write where no table can lie, before anything is read.

    Raises:
        BadParameter: it is no table's name, in a folder that is not there, or a file is there already.
    """
    if path is None:
        return
    if path.suffix.lower() not in _TABLE_ENDINGS:
        raise typer.BadParameter(f"{path}: a table ends in .csv or .md", param_hint="--output")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent} to write {path.name} into; make it first")
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} is there already; name another file, or replace it with --force")


def _choose_table(report: "RunReport | TraceReport", name: str, cell: str | None) -> "NamedTable":
    """Return the table that a person means, of a cell where he names one.

    Raises:
        BadParameter: there is none of this name, or no such cell.
    """
    from dtbench.report.notebook.loaded import RunReport
    from dtbench.report.notebook.table_file import list_tables
    from dtbench.scenario.mistakes import find_nearest, join_words
    from dtbench.scenario.sweeps.sweep import point_to

    tables = list_tables(report)
    if name not in tables:
        near = find_nearest(name, tables)
        meant = f"did you mean `{near}`? " if near else ""
        every = join_words([*tables], last="and")
        raise typer.BadParameter(f"there is no table `{name}`; {meant}There are {every}", param_hint="--table")
    if cell is None:
        return tables[name]
    cells = [one.name for one in report.summary.cells] if isinstance(report, RunReport) else []
    if cell not in cells:
        raise typer.BadParameter(f"there is no cell `{cell}`; {point_to(cell, cells)}", param_hint="--cell")
    return tables[name].of_cell(cell)


def _write_table(table: "NamedTable", path: Path | None) -> None:
    """Write a table, or print it; what the report says below it goes beside."""
    from dtbench.store.write import write_text

    if path is not None and path.suffix.lower() == ".md":
        write_text(path, table.markdown())
    elif path is not None:
        write_text(path, table.csv())
    else:
        print(table.csv(), end="")
    if path is not None:
        print_aside(f"Wrote {path}")
    if path is None or path.suffix.lower() != ".md":
        for note in table.notes:
            print_aside(f"Note: {note}")


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
    from dtbench.store.cleaned import read_cleaned, say_no_trace
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    folders = {
        (one.name, index): RunFolder(run).launch(one.name, index)
        for one in read_run(run).cells
        for index in one.launches
    }
    traced = {key: folder for key, folder in folders.items() if folder.find_traces()}
    if not traced:
        cleaned = [say_no_trace(folder) for folder in folders.values() if read_cleaned(folder) is not None]
        why = f": {cleaned[0]}" if cleaned else "; did it run, and with profiled_steps above 0?"
        raise TraceError(f"{run}: no launch of this run has a trace{why}")
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

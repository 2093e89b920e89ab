"""``dtbench merge``: join what nodes without a common file system have of one run."""

from pathlib import Path
from typing import Annotated

import typer

from dtbench.cli.console import print_aside, print_line


def merge(
    folders: Annotated[
        list[str], typer.Argument(metavar="FOLDER...", help="Of one run, as each node has it; they stay as they are.")
    ],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FOLDER", help="Left out: RUN-merged in the folder of all runs."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
) -> None:
    """Join the results of one run from several nodes that share no file system, and make its tables again.

    Each node has the files of its own ranks. Merged again, or with a node that came later, only what is new is added.
    Exit code 6: the folders are of two runs, or contradict each other; nothing is written then.
    """
    from dtbench.base.commands import spell_word
    from dtbench.base.units import count_things
    from dtbench.launch.merge.merge import describe_absent, merge_runs
    from dtbench.store.find_run import find_run
    from dtbench.store.read import read_run

    paths = [find_run(folder, results, print_aside) for folder in folders]
    if into is None:
        run = read_run(paths[0])
        into = results / run.name / f"{run.run_id}-merged"
    if len({path.resolve() for path in paths}) < 2 and not into.exists():
        raise typer.BadParameter("name the folders of at least two nodes: of one alone there is nothing to join")
    merged = merge_runs(paths, into)
    for sentence in (*describe_absent(merged), *merged.notes):
        print_line(sentence)
    if merged.added:
        _make_tables(merged.path)
    what = f"{count_things(merged.added, 'file')} added" if merged.added else "nothing is new"
    begun = f"{len(merged.absent)} launch{'' if len(merged.absent) == 1 else 'es'}"
    print_line(f"{merged.path}: {begun}, {count_things(merged.ranks, 'record')} of ranks; {what}")
    print_line(f"dtbench report {spell_word(merged.path)}")


def _make_tables(run: Path) -> None:
    """Make tables, pictures and event files of a joined run, as far as it has traces."""
    from dtbench.base.errors import StoreError
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import analyze_run, summarize_data
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run

    folder = RunFolder(run)
    launches = [folder.launch(cell.name, index) for cell in read_run(run).cells for index in cell.launches]
    made = analyze_run(run) if any(launch.find_traces() for launch in launches) else None
    data = read_run_data(run, made=made)
    try:
        summary = summarize_data(data)
    except StoreError as error:  # a run of which ranks are absent yet
        print_aside(str(error))
        return
    publish(data, summary)

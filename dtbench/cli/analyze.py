"""``dtbench analyze``: make a run's tables again, or account for anyone's traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_aside, print_brief, print_json, print_line, print_long_json
from dtbench.cli.open_report import ChosenSteps, StepRange, are_all_traces, parse_steps, refuse_for_runs
from dtbench.cli.page_file import HtmlFile, InFull, refuse_page_place, write_page
from dtbench.cli.report import make_run_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dtbench.traces.job.trace_set import TraceSet
    from dtbench.traces.kinds.patterns import KernelPattern
    from dtbench.traces.reader.remote import Copied

_MOST_WORDS = 6
"""Of a command that is printed to be copied: traces, and the steps that were chosen."""


def analyze(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | TRACE...]",
            help="A run's folder or id, a scenario, `latest`; or traces of one job, folders or archives of them. "
            "Left out: the latest run. Traces may be URLs, `s3://`, `gs://`, `hf://`.",
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Traces to read at once, each in a process. Left out: as cores and memory allow."),
    ] = None,
    patterns: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own kernels: a YAML list of `{pattern: my_all_gather, kind: comm, operation: all_gather}`, "
            "asked before dtbench's table. For traces, not for runs.",
        ),
    ] = None,
    steps: ChosenSteps = None,
    step_range: StepRange = None,
    map_to: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FOLDER",
            help="Only read the traces, and leave in this folder what their job's answer needs of them: on each node "
            "where some lie, into one folder or several that are put together.",
        ),
    ] = None,
    reduce_from: Annotated[
        Path | None,
        typer.Option(
            "--reduce", metavar="FOLDER", help="Answer from what `--map` has left, in place of traces; on any machine."
        ),
    ] = None,
    full: InFull = False,
    html: HtmlFile = None,
) -> None:
    """Account for every nanosecond of profiled steps: compute, exposed communication, exposed copies, idle.

    Of a run, the tables, the plot and TensorBoard's files are made again from its traces. Any Kineto trace works
    without a run, too.
    In JSON times are nanoseconds, ratios fractions, and a number that could not be computed is "NaN".
    """
    refuse_page_place(html)
    window = parse_steps(steps)
    if map_to is not None:
        _refuse_beside("--map", "it writes what --reduce answers from", reduce=reduce_from, steps=steps, html=html)
        _refuse_beside("--map", "it prints no answer; --reduce does", json=as_json or None, full=full or None)
        _map(targets or [], map_to, workers=workers, patterns=patterns, step_range=step_range)
        return
    if reduce_from is not None:
        _refuse_beside("--reduce", "it has no traces", range=step_range, patterns=patterns, workers=workers, html=html)
        _reduce(targets or [], reduce_from, window, as_json=as_json, full=full)
        return
    from dtbench.store.find_run import find_run
    from dtbench.traces.garbage import without_collection

    named = targets or ["latest"]
    if are_all_traces(named):
        from dtbench.traces.reader.remote import copy_remote, is_remote

        with without_collection(), copy_remote(named) as copied:  # imports, too, make many objects and little garbage
            traces = _read_traces(copied, workers=workers, patterns=patterns, steps=window, step_range=step_range)
            write_page(html, lambda: _make_traces_document(traces, list(copied.paths)))
            if as_json:
                print_traces_as_json(traces)
            else:
                chosen = {"--steps": steps, "--range": step_range}
                options = [word for name, value in chosen.items() if value is not None for word in (name, value)]
                can_repeat = patterns is None and not any(map(is_remote, named))
                print_traces(traces, [*named, *options] if can_repeat else [], full=full)
        return
    if len(named) > 1:
        raise typer.BadParameter(_refuse_several(named))
    refuse_for_runs(patterns=patterns, steps=steps, range=step_range)
    run = find_run(None if named == ["latest"] else named[0], results, print_aside)
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import analyze_run, summarize_data

    made = analyze_run(run, workers=workers)
    data = read_run_data(run, made=made)
    summary = summarize_data(data)
    publish(data, summary)
    write_page(html, lambda: make_run_document(data, summary))
    if as_json:
        from dtbench.report.documents.tables import RemadeTables, document

        print_json(document(RemadeTables(run, made, summary)))
    else:
        from dtbench.report.page.remade_page import remade_page

        print_answer(remade_page(run, made, summary))


def _refuse_beside(asked: str, why: str, **options: object) -> None:
    """Refuse options that one cannot have beside it: by their names.

    Raises:
        BadParameter: one is given.
    """
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{asked} cannot be given with --{name}: {why}")


def _map(
    targets: list[str], folder: Path, *, workers: int | None, patterns: Path | None, step_range: str | None
) -> None:
    from dtbench.base.commands import spell_command
    from dtbench.base.units import count_things
    from dtbench.traces.garbage import without_collection
    from dtbench.traces.job.foreign import map_traces
    from dtbench.traces.rank.file import Unusable
    from dtbench.traces.reader.remote import copy_remote

    if not targets or not are_all_traces(targets):
        raise typer.BadParameter("--map reads traces: name files, folders or archives of them, and no run")
    with without_collection(), copy_remote(targets) as copied:
        answers = map_traces(
            folder,
            copied,
            workers=workers,
            patterns=_load_patterns(patterns),
            step_range=step_range or "",
        )
    unusable = [answer.reason for answer in answers if isinstance(answer, Unusable)]
    for reason in unusable:
        print_aside(f"cannot be used: {reason}")
    if unusable:
        print_aside(f"{count_things(len(unusable), 'trace')} of {len(answers)} cannot be used; the answer will say so")
    print_line(f"{count_things(len(answers), 'trace')} mapped to {folder}")
    print_line(f"once all nodes have: {spell_command('dtbench', 'analyze', '--reduce', str(folder))}")


def _reduce(targets: list[str], folder: Path, window: tuple[int, int] | None, *, as_json: bool, full: bool) -> None:
    from dtbench.traces.garbage import without_collection
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import reduce_traces

    if targets:
        raise typer.BadParameter(f"--reduce answers from {folder} alone; leave {', '.join(targets)} out")
    with without_collection():
        traces = reduce_traces(folder, steps=find_range(window))
        if as_json:
            print_traces_as_json(traces)
        else:
            print_traces(traces, full=full)


def _refuse_several(named: list[str]) -> str:
    """Say which of several targets are no traces, and which of those are not there at all."""
    others = [target for target in named if not are_all_traces([target])]
    absent = [target for target in others if not Path(target).exists()]
    if absent:
        return f"{', '.join(absent)}: no such file or folder; several targets are traces of one job"
    return f"give one run, or only traces: {', '.join(others)} {'is' if len(others) == 1 else 'are'} none"


def _read_traces(
    paths: "Copied",
    *,
    workers: int | None,
    patterns: Path | None,
    steps: tuple[int, int] | None,
    step_range: str | None,
) -> "TraceSet":
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import analyze_traces

    return analyze_traces(
        paths,
        workers=workers,
        patterns=_load_patterns(patterns),
        steps=find_range(steps),
        step_range=step_range or "",
    )


def _make_traces_document(traces: "TraceSet", paths: list[Path]) -> str:
    from dtbench.report.notebook.page_file import traces_document

    return traces_document(traces, paths)


def print_traces_as_json(traces: "TraceSet") -> None:
    """Print every number of anyone's traces as one JSON document."""
    from dtbench.report.documents.traces import LONG_KEY, collective_rows, document_head

    print_long_json(document_head(traces), LONG_KEY, collective_rows(traces))


def print_traces(traces: "TraceSet", asked: "Sequence[str]" = (), *, full: bool = False) -> None:
    """Print what anyone's traces say, on one screen or in full: the answer, its tables, what a reader must know.

    Args:
        traces: at least one rank.
        asked: the words of a command that are about them; empty: there is no command that asks further.
        full: everything.
    """
    from dtbench.report.page.brief.traces import traces_brief
    from dtbench.report.page.trace_page import traces_page

    further = list(_name_replays(traces, asked)) if 0 < len(asked) <= _MOST_WORDS else []
    print_answer(traces_page(traces)) if full else print_brief(traces_brief(traces), *further)


def _name_replays(traces: "TraceSet", asked: "Sequence[str]") -> "Iterator[str]":
    """Yield the commands that tell what would change it: all that may apply, then what bounds an advice closer."""
    from dtbench.base.commands import spell_command
    from dtbench.report.words.advice import spell_replay
    from dtbench.report.words.trace_words import advise_traces

    yield spell_command("dtbench", "whatif", *asked)
    if changes := [one.replay for one in advise_traces(traces) if one.replay]:
        yield spell_replay(changes[0], *asked)


def _load_patterns(path: Path | None) -> "tuple[KernelPattern, ...]":
    if path is None:
        return ()
    from dtbench.traces.kinds.pattern_file import load_patterns

    return load_patterns(path)

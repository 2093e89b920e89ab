"""``dtbench doctor``: what this machine can run, what is missing, and how to get it."""

from pathlib import Path
from typing import Annotated

import typer

from dtbench.cli.console import print_answer, print_json, print_markdown
from dtbench.cli.machine_checks import Ability, LookedAt, look_at_machine
from dtbench.cli.page_file import AsMarkdown, HtmlFile, refuse_page_place, refuse_two_forms, write_answer
from dtbench.report.page.page import Column, Fact, Facts, Line, Page, Part, Table, Tone


def doctor(
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    of_torch: Annotated[
        bool, typer.Option("--torch", help="Say what of this torch is not as dtbench was tested with it.")
    ] = False,
    record: Annotated[bool, typer.Option(help="With --torch: write this torch down as tested.")] = False,
    as_markdown: AsMarkdown = False,
    html: HtmlFile = None,
) -> None:
    """Say what this machine can run, what is missing, and how to get it."""
    refuse_page_place(html)
    refuse_two_forms(as_json=as_json, as_markdown=as_markdown)
    if record and not of_torch:
        raise typer.BadParameter("--record goes with --torch")
    if of_torch:
        from dtbench.cli.doctor_torch import judge_torch, record_torch

        return record_torch() if record else judge_torch(html, as_json=as_json, as_markdown=as_markdown)
    seen = look_at_machine(results)
    page = machine_page(seen)
    write_answer(html, page)
    if as_json:
        from dtbench.cli.doctor_document import document

        return print_json(document(seen))
    return print_markdown(page) if as_markdown else print_answer(page)


def machine_page(seen: LookedAt) -> Page:
    """Make the page of this machine: how many scenarios can run, what there is, what to do, and which can run."""
    from dtbench.base.units import count_things

    runnable = sum(ability.can_run for ability in seen.abilities)
    answer = f"{runnable} of {count_things(len(seen.abilities), 'scenario')} can run here"
    advice = tuple(Line(f"{one.what}: {one.advice}", Tone.WARNING) for one in seen.findings if one.advice is not None)
    rows = [(one.what, one.found) for one in seen.findings]
    table = Table("This machine", (Column("what"), Column("found")), rows, advice, key="machine")
    abilities = Facts(tuple(map(_say_ability, seen.abilities)), key="scenarios")
    return Page(
        title="dtbench doctor",
        answer=(Line(answer, Tone.STRONG),),
        parts=(Part("machine", "", (table,)), Part("scenarios", "Scenarios", (abilities,))),
    )


def _say_ability(ability: Ability) -> Fact:
    if ability.can_run:
        return Fact("can run", f"{ability.scenario} ({ability.words})", Tone.GOOD)
    return Fact("cannot run", f"{ability.scenario}: {ability.words}", Tone.BAD)

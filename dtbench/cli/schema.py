"""``dtbench schema``: what a scenario file may say, and what ``--json`` prints, for editors and programs."""

from typing import Annotated, Final

import typer

from dtbench.base.document import Schema
from dtbench.cli.console import print_json

DOCUMENTS: Final = {
    "report": "dtbench.report.documents.run",
    "analyze": "dtbench.report.documents.traces",
    "analyze-run": "dtbench.report.documents.tables",
    "compare": "dtbench.report.documents.comparison",
    "whatif": "dtbench.report.documents.what_if",
    "whatif-prove": "dtbench.proof.document",
    "predict": "dtbench.report.documents.predict",
    "tune": "dtbench.tuning.document",
    "check": "dtbench.report.documents.plans",
    "runs": "dtbench.report.documents.runs",
    "history": "dtbench.report.documents.history",
    "clean": "dtbench.report.documents.clean",
    "list": "dtbench.report.documents.listed",
    "run-prepare": "dtbench.report.documents.orders",
    "catalogue": "dtbench.report.documents.catalogue",
    "coverage": "dtbench.report.documents.coverage",
    "selftest": "dtbench.selftest.document",
    "export": "dtbench.report.documents.archive",
    "doctor": "dtbench.cli.doctor_document",
    "doctor-torch": "dtbench.report.documents.torch_report",
}
"""The module that writes each kind of document: its ``document`` returns one, its ``schema`` says what may be in it."""


def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help=f"Of what `--json` prints: {', '.join(DOCUMENTS)}. Left out: of a scenario file.",
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of a scenario file, for completion and explanations in an editor, or of a document.

    Save it beside your scenarios, `dtbench schema > scenarios/schema.json`, and write, on line 2 of a scenario, under
    its question: `# yaml-language-server: $schema=schema.json`.
    `dtbench run --json` prints a report; `analyze` is of traces, `analyze-run` of a run.
    """
    from dtbench.scenario.json_schema import make_file_schema

    print_json(make_file_schema() if kind is None else find_schema(kind))


def find_schema(kind: str) -> Schema:
    """Return the schema of a kind of document.

    Raises:
        BadParameter: there is no such kind.
    """
    from importlib import import_module

    if kind not in DOCUMENTS:
        raise typer.BadParameter(f"`{kind}` is no kind of document; there are {', '.join(DOCUMENTS)}")
    found: Schema = import_module(DOCUMENTS[kind]).schema()
    return found

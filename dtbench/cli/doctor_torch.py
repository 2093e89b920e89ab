"""``dtbench doctor --torch``: in what the torch that is here differs from the one that dtbench was tested with."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtbench.cli.console import print_answer, print_json, print_line, print_markdown
from dtbench.cli.page_file import write_answer

if TYPE_CHECKING:
    from dtbench.worker.torch_facts.facts import Facts

_LOOK: Final = "dtbench.worker.torch_facts.look"
_TIMEOUT_S: Final = 900.0


def record_torch() -> None:
    """Write down what this torch has, as a torch that dtbench was tested with.

    Raises:
        MissingError: there is none that can be looked at.
        StoreError: it cannot be written down.
    """
    from dtbench.base.torch_versions import read_torch_release
    from dtbench.store.write import write_text
    from dtbench.worker.torch_facts.facts import TESTED, spell_facts

    facts = look_at_torch()
    path = TESTED / f"{'.'.join(map(str, read_torch_release(facts.torch)))}.json"
    write_text(path, spell_facts(facts))
    print_line(f"torch {facts.torch}: {facts.count():,} names looked at, written to {path}")


def judge_torch(html: Path | None, *, as_json: bool, as_markdown: bool) -> None:
    """Print what of this torch differs from the nearest tested one, and write its page where one is asked for.

    Raises:
        TorchError: something does.
        MissingError: there is no torch that can be looked at, or none is written down to compare with.
    """
    from dtbench.base.errors import MissingError, TorchError
    from dtbench.report.documents.torch_report import document
    from dtbench.report.page.torch_page import torch_page
    from dtbench.worker.torch_facts import facts
    from dtbench.worker.torch_facts.compare import report_on
    from dtbench.worker.torch_facts.used import read_uses

    report = report_on(look_at_torch(), read_uses(), facts.TESTED)
    if report is None:
        raise MissingError("what a tested torch has is written down nowhere; `dtbench doctor --torch --record` does it")
    page = torch_page(report)
    write_answer(html, page)
    if as_json:
        print_json(document(report))
    else:
        print_markdown(page) if as_markdown else print_answer(page)
    if report.differences:
        raise TorchError(f"torch {report.torch} is not as {report.tested}, which dtbench was tested with")


def look_at_torch() -> "Facts":
    """Return what the torch of this interpreter has, asked of a process of its own.

    Raises:
        MissingError: there is no torch that can be looked at; with the last line that was said.
    """
    from dtbench.base.errors import MissingError
    from dtbench.worker.torch_facts.facts import read_facts

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.json"
        try:
            asked = subprocess.run(
                [sys.executable, "-m", _LOOK, str(path)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MissingError(f"torch could not be looked at within {_TIMEOUT_S:g} s") from error
        if asked.returncode:
            said = asked.stderr.strip().splitlines() or [f"it ended with {asked.returncode}"]
            raise MissingError(f"torch could not be looked at: {said[-1]}")
        return read_facts(path)

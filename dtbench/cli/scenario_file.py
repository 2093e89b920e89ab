"""A scenario that a command leaves for a person to run, or to share: without what sounds like a secret."""

from pathlib import Path
from typing import TYPE_CHECKING

from dtbench.base.commands import spell_command
from dtbench.cli.console import print_aside

if TYPE_CHECKING:
    from dtbench.scenario.schema.scenario import Scenario


def leave_scenario(path: Path, scenario: "Scenario", question: str, what: str) -> None:
    """Write a scenario, and say what it is and what is left out of it.

    Args:
        path: of the file, which is replaced where it is there.
        scenario: as it was run, or would be.
        question: its first line.
        what: it is, in words.
    """
    from dtbench.scenario.mistakes import join_words
    from dtbench.scenario.written import leave_out_secrets, sections_of, spell_scenario
    from dtbench.store.write import write_text

    shown, secrets = leave_out_secrets(scenario)
    names = join_words(secrets, last="and")
    comments = [f"left out of `env`, as secret: {names}; ranks have what is exported where this is run"] * bool(secrets)
    write_text(path, spell_scenario(question, sections_of(shown), comments=comments))
    print_aside(f"{path}: {what}; `{spell_command('dtbench', 'run', path)}`")
    for words in comments:
        print_aside(words)

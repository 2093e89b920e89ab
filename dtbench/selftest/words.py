"""A selftest as the words of a scenario file, so that its run is one like any other, and can be run by hand."""

from collections.abc import Mapping
from typing import Final

from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.written import Words
from dtbench.scenario.written import write_scenario as write_named

NAME: Final = "selftest"
"""Of the scenario: the folder of its runs."""


def write_scenario(question: str, shared: Words, cells: Mapping[str, Words]) -> ScenarioFile:
    """Return the scenario of some cells; see ``dtbench.scenario.written``.

    Raises:
        ScenarioError: the words are no scenario: a mistake in a situation.
    """
    return write_named(NAME, question, shared, cells)

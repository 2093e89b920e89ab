"""Pages that are made of the code say what the code says, today."""

import re

import pytest

from dtbench.scenario.schema.scenario import Fsdp2
from tests.docs.__main__ import FOLDER, PAGES
from tests.docs.scenario_page import make_scenario_page

SILENT = {
    *("schema_version", "name", "rank", "factor", "seed"),
    *("vocab_size", "norm_eps", "activation"),
    *("lr", "betas", "eps", "weight_decay", "momentum"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "write it anew: python -m tests.docs"


def test_every_knob_of_a_strategy_has_a_line_with_its_own_words() -> None:
    _, _, page = make_scenario_page().partition("### parallel: fsdp2\n")
    section = page.partition("\n#")[0]
    for name, field in Fsdp2.model_fields.items():
        (line,) = [line for line in section.splitlines() if line.startswith(f"| `{name}` |")] or [""]
        assert name == "kind" or " ".join((field.description or "").split()).replace("``", "`") in line


def test_no_field_is_without_words_but_what_its_name_says() -> None:
    lines = [line for line in make_scenario_page().splitlines() if line.startswith("| `")]
    silent = {line.split("`")[1] for line in lines if line.endswith("|  |")}
    assert silent == SILENT


def test_every_link_of_the_reference_leads_to_a_heading() -> None:
    page = make_scenario_page()
    headings = {re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in page.splitlines()}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= headings

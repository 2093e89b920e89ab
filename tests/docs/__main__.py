"""Write the pages of ``docs/reference`` that are made of the code: ``python -m tests.docs``.

``tests/docs/test_pages.py`` fails while one of them is not what the code says.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from dtbench.cli.schema import DOCUMENTS
from tests.docs.json_page import make_json_page, make_schema_file
from tests.docs.mapped_page import make_mapped_page
from tests.docs.rules_page import make_rules_page
from tests.docs.scenario_page import make_scenario_page
from tests.docs.tables_page import make_tables_page

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "scenario.md": make_scenario_page,
    "rules.md": make_rules_page,
    "tables.md": make_tables_page,
    "json.md": make_json_page,
    "mapped.md": make_mapped_page,
    **{f"schemas/{kind}.json": partial(make_schema_file, kind) for kind in DOCUMENTS},
}
"""Pages of the folder, each with what makes its text."""


def write_pages() -> None:
    """Write every page anew."""
    for name, make in PAGES.items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write_pages()

"""What the README shows is what is printed, and what it links is there; the pages of ``docs/`` are mkdocs' to check."""

import re
from pathlib import Path

import pytest

import dtbench
from dtbench.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def squeeze(line: str) -> str:
    return re.sub(r"[\s─]+", " ", line).strip()


@pytest.mark.parametrize("page", ["README.md", "docs/traces.md"])
def test_the_answer_that_a_page_shows_is_the_one_that_its_trace_gives(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    match = re.search(r"\(`(tests/\S+\.json\.gz)`\):\n\n```\n(.*?)```", text, re.DOTALL)
    assert match is not None
    trace, answer = match.groups()
    assert str(dtbench.read_trace(ROOT / trace)).startswith(answer)


def test_the_report_in_the_readme_is_the_examples_in_its_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    match = re.search(r"<!-- report -->\n```\n(.*?)```", README, re.DOTALL)
    assert match is not None
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match="0"):
        main(["report", "results/example"])
    printed = iter([squeeze(line) for line in capsys.readouterr().out.splitlines()])
    for line in match[1].splitlines():
        assert squeeze(line) in printed, line


def test_what_the_readme_links_is_there() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert len(links) > 10
    for link in links:
        path, _, anchor = link.partition("#")
        page = ROOT / path
        assert page.exists(), link
        assert not anchor or f'id="{anchor}"' in page.read_text(encoding="utf-8"), link

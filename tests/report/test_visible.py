"""Control characters out of files act nowhere: not on a terminal, not in Markdown, not on a page."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import dtbench
from dtbench.cli.console import print_aside, print_error, print_line, print_prose, print_table
from dtbench.cli.main import main
from dtbench.report.page.page import Column
from dtbench.report.plots.drawing import literal
from dtbench.report.render.html import escape_html
from dtbench.report.render.markdown import environment_markdown, escape_markdown
from dtbench.report.render.plain_text import Plain
from dtbench.report.words.visible import spell_controls, spell_controls_of_json
from dtbench.runs.run import summarize_run
from dtbench.store.read import read_environment
from tests.report.shown import markdown_run, terminal_run

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "tests" / "traces" / "cases" / "escapes.json"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
EVIL = "\x1b]0;PWNED\x07\x1b[2J\x9b31mx\ry\u202egnp.exe"
SPELLED = r"\x1b]0;PWNED\x07\x1b[2J\x9b31mx\x0dy\u202egnp.exe"


@given(st.text())
def test_nothing_that_acts_is_left_and_everything_else_stays(words: str) -> None:
    spelled = spell_controls(words)
    assert not ACTING.search(spelled)
    assert spell_controls(spelled) == spelled
    if not ACTING.search(words) and words.isascii():
        assert spelled == words


KEYS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.text(alphabet='ab\\"\x1b\x7f\n\t\r\b\u202e\u001f/u')


@given(st.dictionaries(KEYS, VALUES))
def test_json_for_a_page_has_texts_spelled_in_the_same_way(document: dict[str, str]) -> None:
    want = [(spell_controls(key), spell_controls(value)) for key, value in document.items()]
    assert json.loads(spell_controls_of_json(msgspec.json.encode(document)), object_pairs_hook=list) == want


def test_every_medium_spells_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert escape_markdown(EVIL) == SPELLED.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    assert escape_html(f"<{EVIL}") == f"&lt;{SPELLED}"
    assert literal(EVIL) == SPELLED
    for show in (print_line, print_prose, print_error, print_aside):
        show(EVIL)
        assert "".join(capsys.readouterr()) == f"{SPELLED}\n"
    print_table([Column("name"), Column("n", is_number=True)], [(EVIL, "1")])
    assert SPELLED in capsys.readouterr().out


def test_text_of_a_report_is_as_wide_as_it_is_shown() -> None:
    assert Plain(EVIL).cell_len == len(SPELLED)
    assert Plain.assemble("a ", (EVIL, "bold")).plain == f"a {SPELLED}"


def test_reports_and_commands_make_no_other_text() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "dtbench").rglob("*.py")
        if re.search(r"^\s*(from rich.text import|from rich import.*\btext\b)", path.read_text(), re.MULTILINE)
    }
    assert makers == {"dtbench/report/render/plain_text.py"}


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_names_in_a_trace_do_not_act_on_the_terminal(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["analyze", str(TRACE), *arguments])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert "PWNED" in printed.out
    assert not ACTING.search(printed.out + printed.err)
    if not arguments:
        assert "\\x1b]0;PWNED" in printed.out


def spoil(run: Path, file: str, change: Callable[[Any], None]) -> None:
    document = json.loads((run / file).read_text())
    change(document)
    (run / file).write_text(json.dumps(document))


def test_names_in_a_run_act_neither_on_a_terminal_nor_in_markdown(tmp_path: Path) -> None:
    run = Path(shutil.copytree(ROOT / "results" / "example", tmp_path / "run"))
    spoil(run, "env.json", lambda one: one.update(host=EVIL, notes=[EVIL], variables={"OMP_NUM_THREADS": EVIL}))
    spoil(run, "run.json", lambda one: one.update(question=f"Is it? {EVIL}", overrides=[EVIL]))
    summary = summarize_run(run)
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(terminal_run(summary))
    shown = capture.get()
    environment = read_environment(run)
    for medium in (shown, markdown_run(summary), environment_markdown(environment)):
        assert "PWNED" in medium
        assert not ACTING.search(medium)
    assert shown.count(SPELLED) == 4  # question, host, note of the machine, override


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "{evil}", str(TRACE)),
        ("--debug", "analyze", "{evil}"),
        ("export", str(TRACE), "--perfetto", "{evil}"),
    ],
)
def test_what_a_command_refuses_does_not_act_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit):
        main([one.format(evil=tmp_path / "PWNED\x1b[2J\u202e.txt") for one in arguments])
    printed = capsys.readouterr()
    assert "PWNED" in re.sub(r"[│\s]", "", printed.err), "a panel may break it"
    assert not ACTING.search(printed.out + printed.err)


def test_what_python_prints_of_traces_and_runs_does_not_act(tmp_path: Path) -> None:
    found = dtbench.read_trace(TRACE)
    assert "PWNED" in str(found)
    assert not ACTING.search(f"{found} {found!r}")
    run = Path(
        shutil.copytree(ROOT / "results" / "example", tmp_path / f"s{EVIL.replace('/', '')}" / "20260101T000000-a")
    )
    (run / "cells" / "ddp" / "launch0" / "steps.parquet").write_text("broken")
    loaded = dtbench.load_run(run)
    assert "PWNED" in str(loaded)
    assert not ACTING.search(f"{loaded} {loaded!r}")
    with pytest.warns(UserWarning, match="PWNED") as warned:
        dtbench.load_runs(run)
    assert not ACTING.search(str(warned[0].message))

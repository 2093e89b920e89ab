"""A command that is shown for pasting does what it says, whatever names hold that others chose."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtbench
from dtbench.base.commands import spell_command, spell_word
from dtbench.cli.main import main
from dtbench.plan.plan import Machine
from dtbench.report.words.visible import spell_controls

ROOT = Path(dtbench.__file__).parent
BASH = shutil.which("bash")
NASTY = [
    *("plain", "a b", "it's", 'say "x"', "$(touch made)", "`touch made`", "$HOME", "~", "a;touch made", "a&b|c>d", ""),
    *(
        "back\\slash",
        "line\nbreak",
        "tab\there",
        "bell\x07'\\x",
        "\x1b[2J",
        "turn\u202ed",
        "\udcff",
        "*",
        "{a,b}",
        "#x",
        "-n",
    ),
]
VERBS = (
    "list|check|run|report|analyze|compare|whatif|tensorboard|plot|export|catalogue|coverage|doctor|selftest|schema|"
    "baseline"
)
NOT_SHOWN = {"selftest/draw.py": "what numbers are drawn by"}


def read_words(command: str, folder: Path) -> list[bytes]:
    """Return what a shell makes of a command."""
    script = f"printf '%s\\0' {command}"
    done = subprocess.run([str(BASH), "-c", os.fsencode(script)], capture_output=True, check=True, cwd=folder)
    assert list(folder.iterdir()) == []
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(BASH is None, reason="there is no bash to paste into")
def test_a_shell_reads_the_words_that_were_spelled(tmp_path: Path) -> None:
    command = spell_command(*NASTY)
    assert spell_controls(command) == command, "a terminal shows it as it is"
    assert "\n" not in command
    assert read_words(command, tmp_path) == [os.fsencode(word) for word in NASTY]


@pytest.mark.skipif(BASH is None, reason="there is no bash to paste into")
@pytest.mark.parametrize("name", ["$(touch made) it's", "line\nbreak", "turn\u202ed"])
def test_what_prepare_prints_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr("dtbench.launch.machine.read_machine", lambda: Machine(cpu_cores=2, cuda_devices=0))
    results, empty = tmp_path / name, tmp_path / "empty"
    empty.mkdir()
    sets = ["--set", "env.NCCL_DEBUG_FILE=/tmp/$(touch made) x", "--set", "correctness.enabled=false"]
    with pytest.raises(SystemExit):
        main(["run", "quickstart", "--prepare", "--results", str(results), *sets])
    everywhere, first, *commands = capsys.readouterr().out.strip().splitlines()
    for command in commands:
        words = read_words(command, empty)
        assert b"NCCL_DEBUG_FILE=/tmp/$(touch made) x" in words
        assert Path(os.fsdecode(words[-1])).is_file()
    (run,) = results.glob("*/*")
    assert read_words(first.partition("then: ")[2], empty) == [b"dtbench", b"analyze", os.fsencode(run)]
    assert read_words(everywhere.partition("node: ")[2], empty) == [b"dtbench", b"execute", os.fsencode(run)]


def find_unquoted(path: Path) -> Iterator[int]:
    """Yield lines where a command is shown with a value that is not spelled for a shell."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        said = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                said += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if re.search(rf"dtbench ({VERBS})( [^`\n]*)?$", said) and not is_spelled(part.value):
                    yield node.lineno
                said += "x"


def is_spelled(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") in (
        spell_word.__name__,
        spell_command.__name__,
    )


def test_every_name_in_a_command_that_is_shown_is_quoted() -> None:
    found = {str(path.relative_to(ROOT)): list(find_unquoted(path)) for path in sorted(ROOT.rglob("*.py"))}
    assert {path: lines for path, lines in found.items() if lines and path not in NOT_SHOWN} == {}


def test_the_walk_sees_what_it_looks_for(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'f"`dtbench report {run}`"\nf"`dtbench report {spell_word(run)} --cell {cell}`"\nf"dtbench {version}"'
    )
    assert list(find_unquoted(path)) == [1, 2]

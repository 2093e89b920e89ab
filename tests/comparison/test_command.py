"""``dtbench compare`` and ``dtbench baseline``: what is printed, exit codes, names that look like markup."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.run import compare_paths, compare_sides
from dtbench.report.page.comparison_page import comparison_tables, comparisons_page
from dtbench.report.page.page import as_line
from dtbench.report.render.markdown import answer_markdown

Make = Callable[..., Any]
FOUR = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)
EVIL = "[bold]x[/bold]<img src=x onerror=alert(1)>|`a`*b*~~c~~&amp;"


@pytest.fixture
def command(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run a command; gives exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--results", str(results)])
        printed = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Path], cell: Any) -> Path:
    """Write one run for all tests of commands; gives the folder of all runs."""
    results = tmp_path_factory.mktemp("written") / "results"
    cells = {
        "plain": cell(FOUR),
        "ahead": cell(SLOW, gathers_ms={"layers.1": 12.0}, parallel={"forward_prefetch": 1}, asynchronous=5),
    }
    write_run(results, "small", "20260101T120000Z-aaaa", cells)
    return results


@pytest.fixture
def two_cells(written: Path, results: Path) -> Path:
    """Return a copy of the run, with nothing beside it."""
    shutil.copytree(written, results)
    return results / "small" / "20260101T120000Z-aaaa"


@pytest.mark.usefixtures("two_cells")
def test_the_answer_leads_then_what_was_done_differently_then_what_it_cost(command: Make) -> None:
    for full in ([], ["--full"]):
        code, out, _ = command("compare", "small", *full)
        lines = out.splitlines()
        assert code == 0
        assert lines[0].startswith("ahead is 20.0 % slower than plain (120 ms against 100 ms, ")
    said = "20.0 ms more exposed: unshard of layers.1 (all-gather, 4.00 ms to 24.0 ms), mostly issued blocking"
    assert lines.index(said) < 4  # a clause a line
    titles = ["What was asked for", "What was done differently, per step", "What it cost", "Whose exposed time changed"]
    places = [next(place for place, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert places == sorted(places)
    tables = [line for line in lines[1:] if "  " in line.strip()]
    assert max(len(line.rstrip()) for line in tables) <= 80
    assert re.search(r"^step time +100 ms +120 ms +\+20.0 % .*worse", out, re.M)
    assert re.search(r"^tokens per s .*worse", out, re.M)
    assert re.search(r"^host memory .*the same", out, re.M)
    assert "\x1b" not in out


@pytest.mark.usefixtures("two_cells")
def test_the_threshold_is_a_number_of_percent_with_or_without_the_sign(command: Make) -> None:
    for typed in ("25", "25%", "25 %"):
        code, out, _ = command("compare", "small", "--threshold", typed, "--json")
        assert (code, json.loads(out)["threshold"]) == (0, 0.25)
    for typed in ("-1", "nan", "much"):
        code, _, said = command("compare", "small", "--threshold", typed)
        assert code == 2
        assert f"`{typed}` is no percentage" in said


@pytest.mark.usefixtures("two_cells")
def test_json_is_the_comparison_and_a_list_of_several(command: Make, results: Path) -> None:
    code, out, _ = command("compare", "small:plain", "small:ahead", "--json")
    assert code == 0
    found = Comparison.model_validate_json(out)
    assert found.model_dump_json() == compare_paths("small:plain", "small:ahead", results=results).model_dump_json()
    assert command("baseline", "save", "main", "small", "--cell", "plain")[0] == 0
    code, out, _ = command("compare", "main", "small:ahead", "small:ahead", "--json")
    assert code == 0
    assert [one["candidate"]["label"] for one in json.loads(out)] == ["ahead", "ahead"]


@pytest.mark.usefixtures("two_cells")
def test_several_candidates_have_a_row_each_before_they_are_told(command: Make) -> None:
    assert command("baseline", "save", "main", "small:plain")[0] == 0
    _, out, _ = command("compare", "main", "small:ahead", "small:ahead", "--full")
    assert "Step times against main" in out
    assert len(re.findall(r"^ahead +120 ms +100 ms", out, re.M)) == 2
    assert out.count("What it cost") == 2


@pytest.mark.parametrize(
    ("bounds", "code", "said"),
    [
        (["step_time > 50%"], 0, ""),
        (
            ["step_time > 3%"],
            10,
            "`step_time > 3%`, ahead against plain: EXCEEDED, step time 120 ms against 100 ms (+20.0 %)",
        ),
        (["step_time > 50%", "exposed[unshard] > 5 ms"], 10, "unshard exposed"),
        (["mechanism changed"], 10, "async of unshard all-gather: 5 of 5 against 0 of 5"),
        (["allocated_memory > 1%"], 11, "undecided, neither side has this number"),
        (["allocated_memory > 1%", "step_time > 3%"], 10, "undecided"),
        (["step_tim > 3%"], 2, "did you mean `step_time`?"),
        (["exposed[nobody] > 3%"], 2, "nothing is called `nobody` here"),
    ],
)
@pytest.mark.usefixtures("two_cells")
def test_a_bound_decides_the_exit_code_after_everything_was_printed(
    command: Make, bounds: list[str], code: int, said: str
) -> None:
    options = [word for bound in bounds for word in ("--fail-if", bound)]
    found, out, err = command("compare", "small", *options)
    assert found == code
    assert said in " ".join(err.replace("│", " ").split())
    assert ("What it cost" in out) == (code != 2)


@pytest.mark.usefixtures("two_cells")
def test_what_became_of_bounds_stands_in_every_form_of_the_answer(command: Make, tmp_path: Path) -> None:
    bounds = ("--fail-if", "step_time > 50%", "--fail-if", "step_time > 3%")
    said = (
        "FAILED, exit code 10: 1 exceeded, 1 kept",
        "`step_time > 50%`, ahead against plain: kept, step time 120 ms against 100 ms",
        "`step_time > 3%`, ahead against plain: EXCEEDED, step time 120 ms against 100 ms",
    )
    file = tmp_path / "page.html"
    for form in ((), ("--full",), ("--markdown",), ("--html", str(file))):
        code, out, err = command("compare", "small", *form, *bounds)
        told = unescape(re.sub("<[^>]*>", "", file.read_text())) if "--html" in form else out
        words = " ".join(told.replace("\\", "").split())
        places = [words.index(" ".join(one.split())) for one in said]
        assert places == sorted(places)
        assert max(places) < words.index("What it cost")
        assert code == 10
        assert said[2] in err
    _, out, _ = command("compare", "small:plain", "small:ahead", "small:ahead", *bounds)
    assert "FAILED, exit code 10: 2 exceeded, 2 kept" in out
    for form in ((), ("--full",), ("--markdown",)):
        assert "--fail-if" not in command("compare", "small", *form)[1]


@pytest.mark.usefixtures("two_cells")
def test_a_page_that_is_sent_says_of_which_run_when_and_where_each_side_is(command: Make, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    for form in (("--full",), ("--markdown",), ("--html", str(file))):
        _, out, _ = command("compare", "small", *form)
        told = unescape(re.sub("<[^>]*>", " ", file.read_text())) if "--html" in form else out
        words = " ".join(told.replace("\\", "").split())
        _, title, rest = words.partition("Where the sides are from")
        assert title
        for what in ("scenario", "run", "began (UTC)", "torch", "machine"):
            assert what in rest
        for said in ("20260101T120000Z-aaaa", "2.13.0+cpu", "laptop, AMD EPYC (2 cores)", "1970-01-01 00:00"):
            assert rest.count(said) >= 2
    found = json.loads(command("compare", "small", "--json")[1])["baseline"]
    assert [(one["scenario"], one["run_id"]) for one in found["origins"]] == [("small", "20260101T120000Z-aaaa")]
    assert (found["torch"], found["machine"]) == ("2.13.0+cpu", "laptop, AMD EPYC (2 cores)")


@pytest.mark.usefixtures("two_cells")
def test_json_says_what_became_of_each_bound(command: Make) -> None:
    bounds = ("--fail-if", "step_time > 50%", "--fail-if", "step_time > 3%")
    code, out, _ = command("compare", "small:plain", "small:ahead", "small:ahead", "--json", *bounds)
    assert code == 10
    for document in json.loads(out):
        assert [(one["bound"], one["kept"]) for one in document["bounds"]] == [
            ("step_time > 50%", "kept"),
            ("step_time > 3%", "exceeded"),
        ]


def test_what_is_not_established_passes_a_gate_only_where_a_person_says_so(
    command: Make, run_of: Callable[..., Path], cell: Any
) -> None:
    run_of({"plain": cell((100.0, 160.0, 90.0, 150.0)), "wild": cell((150.0, 95.0, 165.0, 120.0))})
    asked = ("compare", "small", "--fail-if", "step_time > 3%")
    code, out, err = command(*asked)
    assert code == 11
    assert "Whether the step times differ is not established" in out
    assert "`step_time > 3%`, wild against plain: not established, step time" in err
    assert "not decided, exit code 11: 1 not established or not judged" in out
    assert "kept" not in out
    code, out, err = command(*asked, "--pass-unestablished")
    assert (code, err) == (0, "")
    assert "passed, exit code 0: 1 not established, which --pass-unestablished lets pass" in " ".join(out.split())
    assert "`step_time > 3%`, wild against plain: not established, step time" in " ".join(out.split())
    document = json.loads(command(*asked, "--pass-unestablished", "--json")[1])
    assert [one["kept"] for one in document["bounds"]] == ["not established"]
    run_of({"plain": cell(FOUR), "slow": cell(SLOW)}, run_id="20270102T120000Z-bbbb")
    assert command(*asked, "--pass-unestablished")[0] == 10, "what is exceeded fails all the same"


def test_one_launch_each_cannot_pass_a_gate(command: Make, run_of: Callable[..., Path], cell: Any) -> None:
    run_of({"plain": cell(FOUR[:1]), "slow": cell(SLOW[:1])})
    code, out, err = command("compare", "small", "--fail-if", "step_time > 50%")
    assert code == 11
    assert out.startswith("Not enough launches to tell (1 against 1; 4 each are needed): step 120 ms against 100 ms")
    assert "1 against 1 launches are too few" in err


def test_no_gate_passes_where_a_cell_was_left_out(command: Make, run_of: Callable[..., Path], cell: Any) -> None:
    run_of({"plain": cell(FOUR), "broken": cell((500.0,), failed=(0,)), "slow": cell(SLOW)})
    code, out, _ = command("compare", "small")
    assert code == 0
    assert out.startswith("WARNING: left out: broken has no launch that is complete")
    code, out, err = command("compare", "small", "--fail-if", "step_time>50%")
    assert code == 11
    assert "a bound cannot be judged: broken has no launch that is complete" in err
    assert command("compare", "small", "--markdown")[1].startswith("> WARNING: left out: broken has no launch")
    (words,) = json.loads(command("compare", "small", "--json")[1])["left_out"]
    assert words.startswith("broken has no launch")


def test_unlike_environments_exit_with_nine_and_force_warns(
    command: Make, run_of: Callable[..., Path], cell: Any, environment: Any
) -> None:
    run_of({"only": cell(FOUR)}, run_id="20260101T120000Z-aaaa")
    elsewhere = environment.model_copy(update={"processor": "[red]cluster[/red]"})
    run_of({"only": cell(FOUR, environment=elsewhere)}, run_id="20260102T120000Z-bbbb")
    named = ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb")
    code, _, err = command("compare", *named)
    assert code == 9
    assert f"processor {environment.processor} against [red]cluster[/red]" in err
    code, out, _ = command("compare", *named, "--force")
    assert code == 0
    assert "WARNING: unlike environments" in out
    code, out, _ = command("compare", *named, "--force", "--markdown")
    assert r"> WARNING: unlike environments" in out
    assert r"\[red\]cluster" in out


@pytest.mark.usefixtures("two_cells")
def test_a_baseline_is_saved_listed_kept_and_removed(command: Make) -> None:
    assert "no baselines here" in command("baseline", "list")[1]
    code, out, _ = command("baseline", "save", "main", "small:plain")
    assert code == 0
    assert "saved 4 launches of plain as " in out
    code, _, err = command("baseline", "save", "main", "small:ahead")
    assert code == 2
    assert "--replace" in err
    assert command("baseline", "save", "main", "small:ahead", "--replace")[0] == 0
    _, out, _ = command("baseline", "list")
    assert re.search(r"^main +20260101T120000Z-aaaa:ahead +4 +120 ms +2\.13\.0\+cpu +laptop", out, re.M)
    assert command("baseline", "remove", "main")[0] == 0
    assert command("baseline", "remove", "main")[0] == 6
    assert command("baseline", "save", "all", "small")[0] == 9


def test_warnings_and_what_was_left_out_are_told_of_many_comparisons_too(
    launch_of: Make, side_of: Make, capsys: pytest.CaptureFixture[str], environment: Any
) -> None:
    from dtbench.cli.compare import print_comparisons

    elsewhere = environment.model_copy(update={"processor": "Xeon"})
    old = side_of("old", [launch_of(index, time) for index, time in enumerate(FOUR)])
    sides = [
        side_of(f"new{place}", [launch_of(index, time) for index, time in enumerate(SLOW)], elsewhere).model_copy(
            update={"notes": (f"launch4 of cell {place} is left out",)}
        )
        for place in range(4)
    ]
    print_comparisons([compare_sides(old, side, force=True) for side in sides])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("WARNING: unlike environments") == 1
    assert out.index("WARNING") < out.index("new0 is 20.0 % slower")
    for place in range(4):
        assert f"Note: new{place}: launch4 of cell {place} is left out" in out


def test_owners_beyond_those_that_have_a_row_are_counted(launch_of: Make, side_of: Make, gather_of: Make) -> None:
    old, new = (
        side_of(
            label,
            [
                launch_of(index, time, owned=[gather_of(f"layers.{at}", by * (2 + index / 100)) for at in range(30)])
                for index, time in enumerate(FOUR)
            ],
        )
        for label, by in (("old", 1), ("new", 2))
    )
    found = compare_sides(old, new)
    (cost,) = (section for section in comparison_tables(found) if section.title == "What it cost")
    assert as_line(cost.first_notes[0]).words == "and 12 more owners whose change is established: see --json"
    markdown = answer_markdown(comparisons_page([found]))
    assert "and 12 more owners whose change is established: see --json" in markdown, "a pull request has little room"
    assert [markdown.count(table.title) for table in comparison_tables(found)] == [1] * len(comparison_tables(found))


class _Tags(HTMLParser):
    """Collects the tags of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


@pytest.fixture
def evil(launch_of: Make, side_of: Make, gather_of: Make) -> Comparison:
    """Compare sides whose label, owner and environment look like markup."""

    def side(label: str, factor: float, turn: int) -> Any:
        launches = [
            launch_of(index, factor * time, owned=[gather_of(EVIL, factor * 3)], started=2 * index + turn + 1)
            for index, time in enumerate(FOUR)
        ]
        made = side_of(f"{label} {EVIL}", launches)
        return made.model_copy(update={"settings": {EVIL: label}, "notes": (EVIL,)})

    return compare_sides(side("old", 1.0, 0), side("new", 1.5, 1))


def test_names_that_look_like_markup_are_text_on_a_terminal(
    evil: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    from dtbench.cli.compare import print_comparisons

    print_comparisons([evil])
    out = capsys.readouterr().out
    assert f"new {EVIL} is 50.0 % slower than old {EVIL}" in out
    assert f"unshard of {EVIL} (all-gather" in out
    assert out.count(EVIL) >= 5
    assert any(EVIL in cell for section in comparison_tables(evil) for row in section.words for cell in row)


def test_names_that_look_like_markup_are_text_in_markdown(evil: Comparison) -> None:
    markdown = answer_markdown(comparisons_page([evil]))
    tags = _Tags()
    tags.feed(markdown)
    assert tags.tags == {"details", "summary"}
    assert "[bold]" not in markdown
    assert "`a`" not in markdown
    assert not re.search(r"(?<!\\)~~", markdown)
    for line in markdown.splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert cells in (3, 6, 7), line
    assert markdown.startswith("**new \\[bold\\]x")


def test_comparing_loads_no_torch_no_plots_and_no_statistics_package(two_cells: Path) -> None:
    script = (
        "import sys\nfrom dtbench.cli.main import main\ntry:\n"
        f"    main(['compare', {str(two_cells)!r}])\nexcept SystemExit:\n    pass\nprint(' '.join(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    modules = set(run.stdout.splitlines()[-1].split())
    loaded = {name.split(".")[0] for name in modules}
    assert "pandas" in loaded
    assert not loaded & {"torch", "matplotlib", "tensorboard", "jinja2", "IPython"}
    assert "scipy.stats" not in modules


@pytest.mark.parametrize(
    ("asked", "code", "ending"),
    [
        (("small:plain", "small:ahead", "--fail-if", "step_time > 3%"), 10, "<failure "),
        (("small:plain", "small:ahead", "--fail-if", "step_time > 90%"), 0, "<system-out>"),
        (("small:plain", "small:ahead"), 0, "<system-out>"),
        (("small:plain", "small:plain", "--fail-if", "step_time > 3%"), 9, "<skipped "),
        (("small:plain", "nothing", "--fail-if", "step_time > 3%"), 6, "<error "),
    ],
)
@pytest.mark.usefixtures("two_cells")
def test_junit_is_written_however_it_ends_and_replaces_what_an_earlier_job_left(
    command: Make, tmp_path: Path, asked: tuple[str, ...], code: int, ending: str
) -> None:
    path = tmp_path / "compare.xml"
    path.write_text("old", encoding="utf-8")
    assert command("compare", *asked, "--junit", str(path))[0] == code
    assert ending in path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("two_cells")
def test_a_place_where_no_junit_can_lie_is_refused_before_anything_is_read(command: Make, tmp_path: Path) -> None:
    told = ((tmp_path, "is a folder"), (tmp_path / "x.html", "is an XML file"), (tmp_path / "no/x.xml", "no folder"))
    for place, said in told:
        code, _, err = command("compare", "nothing", "no", "--junit", str(place))
        assert code == 2
        assert said in " ".join(err.replace("│", " ").split())

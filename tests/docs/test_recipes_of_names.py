"""The recipes of ``docs/architecture.md`` for a kernel name, a cause and a command, followed in a copy.

Left out in turn, each step is missed by a test.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from dtbench.traces.job.foreign import analyze_traces
from tests.docs.followed import ROOT, Steps, call, call_tests, follow, insert, list_touched, read_recipe
from tests.report.free_colours import find_free

RECORDED: Final = ROOT / "tests" / "traces" / "recorded" / "two_ranks_one_gpu" / "fsdp2" / "rank0.json.gz"
NCCLS: Final = "ncclDevKernel_AllGather_RING_LL"
VENDORS: Final = "vcom_all_gather_ring"
"""A kernel as a vendor may call it, in whose name nothing is NCCL's."""


def _name_kernel(text: str) -> str:
    row = f'    _comm("a vendor", r"^vcom_", InName.YES, "{VENDORS}<float>(void*)"),\n'
    return insert(text, "    # Other vendors.\n", row)


# A cause before all others: none that stands in the code, of today or of tomorrow, takes from it.
def _name_cause(text: str) -> str:
    text = insert(text, '    SKEW = "skew"\n    BUBBLE', '    LATENCY = "latency"\n')
    return insert(text, "    Cause.SKEW: ", '    Cause.LATENCY: "too small to be fast",\n')


def _claim_cause(text: str) -> str:
    row = f"``{'latency``':<18}{'everything':<51}all of ``bandwidth``; a size of at most 4096 bytes\n"
    text = insert(text, "``skew``  ", row)
    claim = '''    def latency_ns(self) -> int:
        """All of it where it carries little."""
        size_bytes = self.collective.size_bytes
        return self.exposed_ns if size_bytes and size_bytes <= 4096 and not self.find_missing() else 0

'''
    text = insert(text, "    @cached_property\n    def _is_hidden_in_part", claim)
    return insert(text, "    (Cause.SKEW, _Claims.", "    (Cause.LATENCY, _Claims.latency_ns),\n")


def _draw_cause(text: str) -> str:
    colour = next(find_free("causes", step=60))
    return insert(text, "    Cause.SKEW: ", f'    Cause.LATENCY: Look("{colour}", "xx"),\n')


def _advise_cause(text: str) -> str:
    text = insert(
        text, "_ADVICE: Final[dict", 'def _after_latency(_row: Loss, _ran: Ran) -> str:\n    return "Merge."\n\n\n'
    )
    return insert(text, "    Cause.SKEW: _after", "    Cause.LATENCY: _after_latency,\n")


def _explain_cause(text: str) -> str:
    return insert(text, '| <a id="skew"></a>', '| <a id="latency"></a>· latency | it carries little |\n')


def _inject_cause(text: str) -> str:
    story = '''def small_gather_ahead(maker: "Maker") -> "Story":
    """The same, of few bytes."""
    story = gather_ahead(maker)
    for events in story.ranks:
        for event in events:
            for name in ("In msg nelems", "Out msg nelems"):
                event["args"] |= {name: 8 for one in event["args"] if one == name}
    time_ns = sum(story.expected[0].values())
    return maker.story(
        name="small_gather_ahead", ranks=story.ranks, target=story.target, injected="latency",
        expected=[{"latency": time_ns}] * len(story.ranks),
    )


'''
    text = insert(text, "def gather_without_other_ranks", story)
    return insert(text, "    gather_without_other_ranks,\n", "    small_gather_ahead,\n")


def _write_command(text: str) -> str:
    return f'''{text}"""``dtbench kernels``: which kernels are known to communicate."""

from dtbench.cli.console import print_line


def kernels() -> None:
    """Name the libraries whose kernels are known."""
    from dtbench.traces.kinds.kernels import RULES

    for family in dict.fromkeys(rule.family for rule in RULES):
        print_line(family)
'''


def _list_command(text: str) -> str:
    text = insert(text, "from dtbench.cli.list_scenarios", "from dtbench.cli.kernels import kernels\n")
    return insert(text, '    ("schema", schema),\n', '    ("kernels", kernels),\n')


def _tell_command(text: str) -> str:
    return insert(text, "| `dtbench schema` |", "| `dtbench kernels` | which kernels are known to communicate |\n")


KERNEL: Final[Steps] = {"dtbench/traces/kinds/kernels.py": _name_kernel}
CAUSE: Final[Steps] = {
    "dtbench/base/vocabulary.py": _name_cause,
    "dtbench/traces/causes/split.py": _claim_cause,
    "dtbench/report/page/looks.py": _draw_cause,
    "dtbench/report/words/advice.py": _advise_cause,
    "docs/glossary.md": _explain_cause,
    "tests/traces/causes/test_device_causes.py": _inject_cause,
}
COMMAND: Final[Steps] = {
    "dtbench/cli/kernels.py": _write_command,
    "dtbench/cli/main.py": _list_command,
    "docs/commands.md": _tell_command,
}
PAGES: Final = ("docs/reference/scenario.md", "docs/reference/tables.md", "docs/reference/json.md")
SCHEMAS: Final = tuple(
    f"docs/reference/schemas/{kind}.json" for kind in ("analyze", "check", "compare", "report", "selftest")
)
"""The last step for a cause: ``python -m tests.docs`` writes them."""
STORIES: Final = "tests/traces/causes/test_device_causes.py"
WHAT_FAILS: Final = {
    "dtbench/traces/causes/split.py": (STORIES, "small_gather_ahead and 0"),
    "dtbench/report/page/looks.py": ("tests/report/test_plots_exposed.py", "every_cause_looks"),
    "dtbench/report/words/advice.py": ("tests/report/test_advice.py", "every_knob_is_named"),
    "docs/glossary.md": ("tests/report/html_page/test_document.py", "explains_each_cause"),
    STORIES: (STORIES, "every_cause_is_injected"),
    PAGES[0]: ("tests/docs/test_pages.py", "what_the_code_says and scenario"),
    "dtbench/cli/kernels.py": ("tests/cli/test_main.py", "the_version_is"),
    "dtbench/cli/main.py": ("tests/cli/test_main.py", "has_its_row"),
    "docs/commands.md": ("tests/cli/test_main.py", "has_its_row"),
}
"""By the step that is left out, the test that tells, and which of its functions."""

LOOK: Final = """
import dtbench, json, sys
(one,) = dtbench.read_trace(sys.argv[1]).traces.analyses
gathers = [each for each in one.collectives if each.operation == "all_gather"]
print(json.dumps([one.whole.comm_ns, one.whole.exposed_comm_ns, len(gathers)]))
"""


def follow_all(folder: Path, *, without: str | None = None) -> None:
    """Follow the three recipes in one copy, but for one step."""
    follow(folder, {**KERNEL, **CAUSE, **COMMAND}, without=without)
    if without not in (*PAGES, *CAUSE):  # which no page can be made without
        call(folder, "tests.docs")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    follow_all(folder)
    return folder


def test_what_recipes_touch_is_what_they_say(followed: Path) -> None:
    assert list_touched(followed) == {*KERNEL, *CAUSE, *COMMAND, *PAGES, *SCHEMAS}
    for name, steps in (("kernel name", KERNEL), ("cause", CAUSE), ("command", COMMAND)):
        told = re.findall(r"`((?:dtbench|docs|tests)?/?[\w/.]+\.(?:py|md))`", read_recipe(name))
        for file in steps:
            where = "dtbench/cli/" if file == "dtbench/cli/kernels.py" else file
            assert any(where.endswith(one) for one in told) or f"`{where.removeprefix('dtbench/')}`" in read_recipe(
                name
            ), (name, file)


def test_a_cause_is_told_where_a_story_injects_it(followed: Path) -> None:
    done = call_tests(followed, WHAT_FAILS["dtbench/traces/causes/split.py"])
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_what_follows_the_recipes_passes(followed: Path) -> None:
    kernels = ("tests/traces/kinds/test_kernels.py", "stands_beside")
    looks = ("tests/report/test_palettes.py", "told_apart or in_grey")
    done = call_tests(followed, *WHAT_FAILS.values(), kernels, looks)
    assert done.returncode == 0, done.stdout


def test_a_command_runs_and_is_listed(followed: Path) -> None:
    assert "a vendor" in call(followed, "dtbench", "kernels").stdout
    assert "Name the libraries whose kernels are known." in call(followed, "dtbench", "--help").stdout


def test_a_kernel_of_a_new_name_is_communication_like_any_other(followed: Path, tmp_path: Path) -> None:
    text = gzip.decompress(RECORDED.read_bytes()).decode()
    assert NCCLS in text
    path = tmp_path / "rank0.json"
    path.write_text(rename_untold(text), encoding="utf-8")
    (one,) = analyze_traces([RECORDED]).analyses
    gathers = [each for each in one.collectives if each.operation == "all_gather"]
    truth = [one.whole.comm_ns, one.whole.exposed_comm_ns, len(gathers)]
    done = look(followed, path)
    assert done == truth
    assert len(gathers) == 21
    (unknown,) = analyze_traces([path]).analyses
    assert unknown.whole.comm_ns != one.whole.comm_ns, "without its row it is compute"


def rename_untold(text: str) -> str:
    """Return a trace whose gathers are a vendor's, of which nothing but their name tells what they are."""
    trace = json.loads(text)
    for event in trace["traceEvents"]:
        if NCCLS in event["name"]:
            event |= {"name": f"{VENDORS}<float>(void*)", "args": {"device": 0, "stream": event["args"]["stream"]}}
    return json.dumps(trace)


def look(folder: Path, trace: Path) -> Any:
    """Return what the copy says of a trace."""
    (folder / "look.py").write_text(LOOK, encoding="utf-8")
    done = call(folder, "look", str(trace))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
@pytest.mark.parametrize("step", WHAT_FAILS)
def test_a_step_that_is_left_out_is_told_by_a_test(tmp_path: Path, step: str) -> None:
    follow_all(tmp_path, without=step)
    done = call_tests(tmp_path, WHAT_FAILS[step])
    assert done.returncode != 0, done.stdout

"""The palettes: no colour has two meanings, all can be told apart by everybody, and words on them can be read."""

import re
from collections.abc import Iterator
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

import dtbench
from dtbench.base.vocabulary import Cause, Purpose
from dtbench.report.page import looks
from dtbench.report.page.cell_page import HIDDEN
from dtbench.report.plots.breakdown import HIDDEN_COMM, PARTS
from dtbench.report.plots.drawing import EDGE, Part, add_axes, draw_bar, legend_patch, new_figure
from dtbench.report.render.html_page import read_look
from dtbench.report.tb_plugin.overlap import cause_parts
from dtbench.report.timeline import script_text
from tests.report.colour_distance import SIGHTS, ciede2000, contrast, distance
from tests.report.free_colours import APART, OTHER_PALETTE, READABLE, find_free
from tests.report.palette_rule import PALETTES, find_breaches


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1, 2), (50, 0, 0), 2.3669),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ],
)
def test_distances_are_those_that_were_published(
    one: tuple[float, float, float], other: tuple[float, float, float], expected: float
) -> None:
    assert ciede2000(one, other) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("palette", PALETTES)
def test_colours_of_a_palette_can_be_told_apart_by_everybody(palette: str, sight: str) -> None:
    near = {
        (one, other): round(distance(one, other, sight), 1)
        for one, other in combinations(sorted(PALETTES[palette]), 2)
        if distance(one, other, sight) < APART
    }
    assert near == {}, f"`python -m tests.report.free_colours {palette}` names colours that are free"


def test_a_colour_that_is_called_free_can_be_told_from_the_others_of_its_palette_and_is_of_none() -> None:
    free = list(find_free("causes", step=60))
    assert free
    for colour in free:
        others = {*PALETTES["causes"], *free} - {colour}
        assert min(distance(colour, other, sight) for other in others for sight in SIGHTS) >= APART
        assert all(distance(colour, other) >= OTHER_PALETTE for palette in PALETTES.values() for other in palette)


def test_a_hatch_that_no_page_draws_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"`\+\+` is no hatch that pages draw; repeat one of"):
        looks.Look("#000000", "++")


def test_no_two_palettes_share_a_colour_or_have_hardly_different_ones() -> None:
    near = {
        (one, other): round(distance(one, other), 1)
        for first, second in combinations(PALETTES, 2)
        for one in PALETTES[first]
        for other in PALETTES[second]
        if distance(one, other) < OTHER_PALETTE
    }
    assert near == {}


def test_every_purpose_and_every_cause_has_a_look_of_its_own_in_grey_too() -> None:
    for found, every in ((looks.PURPOSE_LOOKS, Purpose), (looks.CAUSE_LOOKS, Cause)):
        assert set(found) == set(every)
        greys = {(look.hatch, round(12 * looks.luminance(look.colour) ** 0.45)) for look in found.values()}
        assert len(greys) == len(found)


def test_words_on_every_part_can_be_read() -> None:
    every = (
        *looks.STEP_LOOKS.values(),
        *looks.PURPOSE_LOOKS.values(),
        *looks.CAUSE_LOOKS.values(),
        *looks.ACTION_LOOKS.values(),
    )
    for look in every:
        assert contrast(look.colour, "#FFFFFF" if look.is_dark else "#000000") >= READABLE, look
    for look in (looks.HIDDEN_COMM, looks.IDLE):
        assert contrast(look.in_the_dark, "#000000") >= READABLE, look


def _properties(style: str) -> Iterator[dict[str, str]]:
    """Yield the colours of a light and of a dark page by their name in the style."""
    light = dict(re.findall(r"--([\w-]+): (#\w{6})", "".join(re.findall(r":root \{([^}]*)\}", style))))
    yield light
    yield light | dict(re.findall(r"--([\w-]+): (#\w{6})", "".join(re.findall(r":root\.dark \{([^}]*)\}", style))))


@pytest.mark.parametrize("ground", ["page", "card", "chosen"])
@pytest.mark.parametrize("words", ["text", "muted", "accent", "good", "warning", "bad"])
def test_words_of_every_tone_can_be_read_on_light_and_dark_pages(words: str, ground: str) -> None:
    for colours in _properties(read_look()):
        assert contrast(colours[words], colours[ground]) >= READABLE, colours[words]


def test_a_light_pages_tones_are_those_of_the_plots() -> None:
    light, _ = _properties(read_look())
    assert (light["good"], light["bad"]) == (looks.GOOD.lower(), looks.BAD.lower())


def test_words_on_the_timeline_can_be_read() -> None:
    themes = re.findall(r"(light|dark): \{\n(.*?)\n  \}", script_text(), re.DOTALL)
    assert [name for name, _ in themes] == ["light", "dark"]
    kinds = looks.timeline_palette()
    for name, written in themes:
        colours = dict(re.findall(r'(\w+): "(#\w{6})"', written))
        for words in ("text", "muted", "accent"):
            for ground in ("background", "band"):
                assert contrast(colours[words], colours[ground]) >= READABLE, (name, words, ground)
        assert contrast(colours["onCompute"], kinds[name]["compute"]) >= READABLE
        assert contrast(colours["onComm"], kinds[name]["hidden"]) >= READABLE


def test_pages_tensorboard_and_plots_have_the_same_colours() -> None:
    style = read_look()
    for part in (*PARTS, HIDDEN_COMM):
        assert f"--{part.field}: {part.look.colour};" in style
    assert [(part.key, part.pattern) for part in (*looks.step_parts("idle"), HIDDEN)] == [
        (part.field, part.look.pattern) for part in (*PARTS, HIDDEN_COMM)
    ]
    assert [part.colour for part in cause_parts()] == [looks.CAUSE_LOOKS[cause].colour for cause in Cause]


def test_no_module_has_a_colour_of_its_own() -> None:
    owners = {"report/page/looks.py", "report/plots/drawing.py", "report/plots/vector.py"}
    package = Path(dtbench.__file__).parent
    spelled = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"[\"']#[0-9A-Fa-f]{6}[\"']", path.read_text(encoding="utf-8"))
    }
    assert spelled == owners
    script = resources.files("dtbench.report.timeline").joinpath("timeline.js").read_text(encoding="utf-8")
    palettes = {colour.upper() for colours in PALETTES.values() for colour in colours}
    assert not palettes & {colour.upper() for colour in re.findall(r"#[0-9A-Fa-f]{6}", script)}


def test_the_rule_of_figures_finds_a_colour_of_none_one_of_another_meaning_and_a_hatch_on_what_is_hidden() -> None:
    figure = new_figure(2.0)
    axes = add_axes(figure)
    draw_bar(axes, Part("compute", "compute_ns", looks.COMPUTE), (0, 1), (0, 1))
    figure.legend(handles=[legend_patch(Part("compute", "compute_ns", looks.COMPUTE), "compute")])
    assert find_breaches(figure) == []
    draw_bar(axes, Part("compute", "compute_ns", looks.EXPOSED_COMM), (1, 1), (0, 1))
    axes.text(0, 0, "red", color="#FF0000")
    axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=looks.HIDDEN_COMM.colour, edgecolor=EDGE, hatch="//"))
    told = "\n".join(find_breaches(figure))
    assert "`compute_ns` is" in told
    assert "#FF0000 is in no palette" in told
    assert f"a hatch on ['{looks.HIDDEN_COMM.colour}']" in told
    assert len(told.splitlines()) == 3

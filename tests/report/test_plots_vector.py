"""A figure inside a page: no style that a policy refuses, letters as text, the page's ink, ids of its own."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from dtbench.report.page.looks import EXPOSED_COMM
from dtbench.report.plots import vector
from dtbench.report.plots.drawing import Part, add_axes, draw_bar, new_figure, set_finding
from dtbench.report.plots.vector import draw_svg

MARKUP = "<b onclick='x'>&amp;--></b>"


def draw() -> Figure:
    figure = new_figure(2.0)
    axes = add_axes(figure)
    draw_bar(axes, Part("exposed", "exposed_comm_ns", EXPOSED_COMM), (0, 3), (0, 0.5))
    axes.text(1, 0, "on a bar", color="black")
    axes.plot([0, 1], [0, 1], color="black", marker="o")
    axes.set_yticks([0], [MARKUP])
    set_finding(axes, "What is seen")
    return figure


def test_a_drawing_is_well_formed_and_has_no_style_and_no_size_of_its_own() -> None:
    root = ElementTree.fromstring(draw_svg(draw, "owners"))
    names = {name for element in root.iter() for name in element.attrib}
    assert "style" not in names
    assert not {"width", "height"} & set(root.attrib)
    assert not {element.tag for element in root.iter()} & {"style", "metadata", "script"}


def test_letters_are_text_and_names_stay_text() -> None:
    words = [element.text for element in ElementTree.fromstring(draw_svg(draw, "owners")).iter("text")]
    assert {"on a bar", MARKUP, "What is seen"} <= set(words)


def test_ink_follows_the_page_and_words_on_a_bar_do_not() -> None:
    root = ElementTree.fromstring(draw_svg(draw, "owners"))
    by_words = {element.text: element.attrib for element in root.iter("text")}
    assert by_words["What is seen"]["class"] == "fill-ink"
    assert by_words["on a bar"]["fill"] == "#000000"
    assert "#20212a" not in ElementTree.tostring(root, encoding="unicode")
    strokes = [element.get("class", "") for element in root.iter("path")]
    assert any("stroke-ink" in one for one in strokes)


def test_figures_of_one_page_share_no_id() -> None:
    first, second = (draw_svg(draw, name) for name in ("one", "two"))
    ids, others = (set(re.findall(r' id="([^"]+)"', text)) for text in (first, second))
    assert ids
    assert not ids & others
    used = set(re.findall(r"url\(#([^)]+)\)", first)) | set(re.findall(r'href="#([^"]+)"', first))
    assert used == ids


def test_a_drawing_of_very_many_marks_is_given_as_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "MOST_BYTES", 100)
    assert draw_svg(draw, "owners").startswith('<img class="pixels" alt="" src="data:image/png;base64,iVBORw0KGgo')


def test_drawing_leaves_matplotlibs_settings_as_they_were() -> None:
    from matplotlib import rcParams

    before = dict(rcParams)
    draw_svg(draw, "owners")
    assert dict(rcParams) == before


def test_pixels_inside_a_drawing_stay_there() -> None:
    def draw_map() -> Figure:
        figure = new_figure(2.0)
        add_axes(figure).imshow([[0, 1]])
        return figure

    root = ElementTree.fromstring(draw_svg(draw_map, "map"))
    (image,) = root.iter("image")
    assert image.attrib["href"].startswith("data:image/png;base64,")

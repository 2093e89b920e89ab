"""``measure.probes``: true for all, a list of files and functions, and what is neither."""

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import load_scenario
from dtbench.scenario.schema.scenario import Measure, Scenario


def probes(small: str, written: str) -> tuple[str, ...]:
    return load_scenario(f"{small}measure:\n  probes: {written}\n", "my.yaml").cells[0].scenario.measure.probes


def test_nothing_is_probed_or_traced_unless_asked_for(small: str) -> None:
    measure = load_scenario(small, "my.yaml").cells[0].scenario.measure
    assert (measure.probes, measure.line_coverage) == ((), False)


def test_true_stands_for_all_and_false_for_none(small: str) -> None:
    assert probes(small, "true") == ("all",)
    assert probes(small, "false") == ()


def test_a_list_names_files_and_functions(small: str) -> None:
    names = ("fsdp", "_data_parallel_utils.sync_grad_hook")
    assert probes(small, f"[{', '.join(names)}]") == names


@pytest.mark.parametrize("override", ["measure.probes=true", "measure.probes=[all]"])
def test_an_override_switches_them_on(small: str, override: str) -> None:
    assert load_scenario(small, "my.yaml", [override]).cells[0].scenario.measure.probes == ("all",)


def test_a_scenario_with_probes_survives_the_way_through_json(small: str) -> None:
    wanted = load_scenario(f"{small}measure:\n  probes: true\n", "my.yaml").cells[0].scenario
    assert Scenario.model_validate_json(wanted.model_dump_json()) == wanted
    assert Measure.model_validate_json('{"probes": ["ddp"]}').probes == ("ddp",)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "[sync_grad_hook]",
            "no function under study is called `sync_grad_hook`; it takes files (_data_parallel_utils",
        ),
        ("[3]", "`measure.probes` must be a text, not 3"),
        ("3", "`measure.probes` must be a list"),
    ],
)
def test_what_names_no_function_is_refused_at_its_line(small: str, written: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        probes(small, written)
    text = str(caught.value)
    assert text.startswith("my.yaml:21:")
    assert words in text
    assert text.count("my.yaml:") == 1

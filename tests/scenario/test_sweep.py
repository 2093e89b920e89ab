"""Cells and overrides: what is merged with what, and whose line a mistake points to."""

import pytest
import typer

from dtbench.base.errors import ScenarioError
from dtbench.cli.sweeps import read_sweeps
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.load import load_scenario
from dtbench.scenario.schema.scenario import Ddp, Fsdp2, Scenario


def cells_of(text: str, *overrides: str) -> dict[str, Scenario]:
    return {cell.name: cell.scenario for cell in load_scenario(text, "my.yaml", overrides).cells}


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(text, "my.yaml", overrides)
    return str(caught.value)


def test_cells_merge_key_by_key_over_what_they_share(small: str) -> None:
    cells = cells_of(f"{small}cells:\n  default: {{}}\n  small_bucket: {{parallel: {{bucket_cap_mb: 1}}, seed: 7}}\n")
    assert list(cells) == ["default", "small_bucket"]
    assert cells["default"].parallel == Ddp(kind="ddp", replicas=2)
    assert cells["small_bucket"].parallel == Ddp(kind="ddp", replicas=2, bucket_cap_mb=1.0)
    assert (cells["default"].seed, cells["small_bucket"].seed) == (0, 7)


def test_another_kind_replaces_the_whole_section(small: str) -> None:
    cells = cells_of(f"{small}cells:\n  fsdp: {{parallel: {{kind: fsdp2, shards: 4}}}}\n")
    assert cells["fsdp"].parallel == Fsdp2(kind="fsdp2", shards=4)


def test_the_same_kind_written_again_still_merges(small: str) -> None:
    cells = cells_of(f"{small}cells:\n  a: {{parallel: {{kind: ddp, bucket_cap_mb: 1}}}}\n")
    assert cells["a"].parallel == Ddp(kind="ddp", replicas=2, bucket_cap_mb=1.0)


def test_a_list_replaces_a_list(small: str) -> None:
    text = small.replace("lr: 3.0e-4", "betas: [0.1, 0.2]")
    cells = cells_of(f"{text}cells:\n  a: {{optimizer: {{betas: [0.3, 0.4]}}}}\n")
    assert cells["a"].optimizer.model_dump()["betas"] == (0.3, 0.4)


def test_a_mistake_that_all_cells_inherit_is_told_once(two_cells: str) -> None:
    told = refusal(two_cells.replace("layers: 2", "layers: two"))
    assert told.count("must be") == 1
    assert "cell" not in told


def test_a_mistake_in_one_cell_points_to_its_line_and_names_it(two_cells: str) -> None:
    told = refusal(two_cells.replace("shards: 2", "shard: 2"))
    assert told.startswith(
        "my.yaml:25:7: `shard` is not a field of `parallel` of kind `fsdp2` (cell `fsdp`); did you mean `shards`?"
    )
    assert "missing" not in told


def test_what_a_cell_lacks_points_to_its_section(two_cells: str) -> None:
    told = refusal(two_cells.replace("      shards: 2\n", ""))
    assert told.startswith("my.yaml:23:5: `parallel.shards` is missing: a whole number above 0")


@pytest.mark.parametrize("name", ["..", "../x", ".hidden", "Upper", "a b", "a.", "-a", "é", "a" * 65, "a..b"])
def test_a_cell_name_that_cannot_be_a_folder_is_refused(small: str, name: str) -> None:
    assert "a cell becomes a folder" in refusal(f'{small}cells:\n  "{name}": {{}}\n')


@pytest.mark.parametrize("name", ["a", "4x2", "v1.2-b_c"])
def test_other_cell_names_are_fine(small: str, name: str) -> None:
    assert list(cells_of(f'{small}cells:\n  "{name}": {{}}\n')) == [name]


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("cells:\n", "`cells` must be a mapping"),
        ("cells: {}\n", "`cells` must be a mapping"),
        ("cells: [a]\n", "`cells` must be a mapping"),
        ("cells:\n  a:\n", "cell `a` must be a mapping of what it changes; `{}` changes nothing"),
        ("cells:\n  a: {schema_version: 1}\n", "`schema_version` belongs to the file, not into a cell (`a`)"),
        ("cells:\n  a: {cells: {}}\n", "`cells` belongs to the file, not into a cell (`a`)"),
        ("cells:\n  a: {}\n  a: {}\n", "`a` is written twice"),
        (
            "cells:\n  a: {parallel: ddp}\n",
            "`parallel` must be a mapping with a `kind`, `ddp`, `fsdp1` or `fsdp2`, not 'ddp'",
        ),
    ],
)
def test_wrong_cells_are_refused(small: str, cells: str, told: str) -> None:
    assert told in refusal(small + cells)


def test_an_override_wins_over_every_cell(two_cells: str) -> None:
    cells = cells_of(two_cells.replace("  fsdp:\n", "  fsdp:\n    seed: 3\n"), "seed=9", "optimizer.betas=[0.5, 0.6]")
    assert [cell.seed for cell in cells.values()] == [9, 9]
    assert cells["fsdp"].optimizer.model_dump()["betas"] == (0.5, 0.6)


def test_an_override_for_one_cell_leaves_the_others(two_cells: str) -> None:
    cells = cells_of(two_cells, "cells.ddp.parallel.replicas=4")
    assert cells["ddp"].parallel == Ddp(kind="ddp", replicas=4)
    assert cells["fsdp"].parallel == Fsdp2(kind="fsdp2", shards=2)


def test_a_cell_whose_name_has_dots_can_be_overridden(small: str) -> None:
    cells = cells_of(f"{small}cells:\n  v1: {{}}\n  v1.2: {{}}\n", "cells.v1.2.seed=5")
    assert (cells["v1"].seed, cells["v1.2"].seed) == (0, 5)


def test_the_later_of_two_overrides_wins(small: str) -> None:
    assert cells_of(small, "seed=1", "seed=2")["ddp"].seed == 2


@pytest.mark.parametrize("order", [1, -1])
def test_an_override_of_the_kind_replaces_the_section_in_any_order(small: str, order: int) -> None:
    cells = cells_of(small, *["parallel.kind=fsdp2", "parallel.shards=4"][::order])
    assert cells == {"fsdp2": cells["fsdp2"]}
    assert cells["fsdp2"].parallel == Fsdp2(kind="fsdp2", shards=4)


def test_an_override_can_set_a_section_that_the_file_leaves_out(small: str) -> None:
    assert cells_of(small, "measure.measured_steps=5")["ddp"].measure.measured_steps == 5


def test_null_leaves_an_optional_field_out(small: str) -> None:
    assert cells_of(f"{small}gradient_clip_norm: 1.0\n", "gradient_clip_norm=null")["ddp"].gradient_clip_norm is None


def test_an_override_that_fits_only_some_cells_says_how_to_write_it(two_cells: str) -> None:
    assert refusal(two_cells, "parallel.bucket_cap_mb=4") == (
        "--set parallel.bucket_cap_mb=4: `bucket_cap_mb` is not a field of `parallel` of kind `fsdp2`; "
        "it is a field of kind `ddp` (cell `fsdp`); to set it only where it fits: "
        "`--set cells.ddp.parallel.bucket_cap_mb=4`"
    )


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "model.layer=2",
            (
                "--set model.layer=2: `layer` is not a field of `model` of kind `transformer`; "
                "did you mean `model.layers`?"
            ),
        ),
        (
            "modle.layers=2",
            "--set modle.layers=2: `modle` is not a section of a scenario; did you mean `model.layers`?",
        ),
        ("cells.ddp.model.layer=2", "(cell `ddp`); did you mean `cells.ddp.model.layers`?"),
        ("model={layer: 2}", "did you mean `layers`?"),
        ("model.layers='2'", "--set model.layers='2': `model.layers` must be a whole number above 0, not the text '2'"),
        ("model.layers.x=2", "`model.layers` must be a whole number above 0, not a mapping"),
        ("seed=1e3", "write 1.0e+3"),
        ("seed=[1", "this `[` is not closed"),
        ("seed=1\n---\n2", "a second document"),
        ("seed", "write `path=value`, for example `--set model.layers=2`"),
        ("seed=", "the value is missing; write `null`"),
        ("=1", "the path has an empty name"),
        ("model..layers=1", "the path has an empty name"),
        ("schema_version=1", "cannot be overridden"),
        ("cells=1", "name a field of a cell"),
        ("cells.ddp=1", "name a field of the cell: `cells.ddp.<section>.<field>=...`"),
        ("cells.dpp.seed=1", "no cell is called `dpp`; the cells are `ddp` and `fsdp`; did you mean `cells.ddp.seed`?"),
    ],
)
def test_a_wrong_override_says_what_is_wrong(two_cells: str, override: str, told: str) -> None:
    assert told in refusal(two_cells, override)


def test_mistakes_of_overrides_come_after_those_of_the_file(two_cells: str) -> None:
    lines = refusal(two_cells.replace("layers: 2", "layers: two"), "seed=-1", "repeat=0").splitlines()
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        "my.yaml",
        "--set seed=-1",
        "--set repeat=0",
    ]


CROSSED = """# Which one?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 2, dim: 32, hidden_dim: 64}
data: {global_batch: 4, sequence_length: 8}
optimizer: {kind: sgd, lr: 0.1}
cells:
  ddp: {parallel: {kind: ddp, replicas: 2}}
  fsdp2: {parallel: {kind: fsdp2, shards: 2}}
checks:
  - {kind: losses, tolerance: 1.0e-6}
answer: "It is."
"""


def names(*overrides: str, only: tuple[str, ...] = ()) -> list[str]:
    return [cell.name for cell in load_scenario(CROSSED, "my.yaml", overrides, only).cells]


def refused(*overrides: str, only: tuple[str, ...] = ()) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(CROSSED, "my.yaml", overrides, only)
    return str(caught.value)


def test_an_axis_that_is_typed_is_crossed_with_the_cells_of_the_file() -> None:
    assert names("matrix.model.layers=[2,4]") == ["ddp.layers-2", "ddp.layers-4", "fsdp2.layers-2", "fsdp2.layers-4"]
    assert names("matrix.model.layers=[2,4]", only=("fsdp2",)) == ["layers-2", "layers-4"]
    assert len(names("matrix.model.layers=[2,4]", "matrix.seed=[1,2,3]")) == 12
    file = load_scenario(CROSSED, "my.yaml", ["matrix.parallel.bucket_cap_mb=[1,null]"], ["ddp"])
    caps = [cell.scenario.parallel.bucket_cap_mb for cell in file.cells]  # type: ignore[union-attr]
    assert caps == [1, None]
    assert file.only == ("ddp",)
    assert [cell.coordinates for cell in file.cells] != [{}, {}]


def test_a_sweep_claims_nothing_of_what_the_file_claims_of_its_own_cells() -> None:
    assert load_scenario(CROSSED, "my.yaml").checklist.answer == "It is."
    assert load_scenario(CROSSED, "my.yaml", ["matrix.seed=[1,2]"]).checklist == Checklist()


def test_an_axis_of_the_file_can_get_other_values() -> None:
    text = f"{CROSSED}matrix: {{seed: [1, 2]}}\n".replace('answer: "It is."\n', "")
    cells = load_scenario(text, "my.yaml", ["matrix.seed=[7]"]).cells
    assert [cell.scenario.seed for cell in cells] == [7, 7]


def test_a_sweep_that_does_not_fit_says_what_would() -> None:
    said = refused("matrix.parallel.bucket_cap_mb=[1,4]")
    assert "`bucket_cap_mb` is not a field of `parallel` of kind `fsdp2`" in said
    assert said.endswith("`--cell ddp` sweeps that cell alone")
    assert "did you mean `model.layers`" in refused("matrix.model.layer=[1]")
    assert "give an axis, `matrix.<section>.<field>=[...]`" in refused("matrix=[1]")
    assert "give an axis" in refused("matrix.exclude=[1]")
    assert "has no cell `dpd`; did you mean `ddp`?" in refused("matrix.seed=[1,2]", only=("dpd",))
    plain = CROSSED.partition("cells:")[0] + "parallel: {kind: ddp, replicas: 2}\n"
    with pytest.raises(ScenarioError, match="has no `cells:` to choose from"):
        load_scenario(plain, "my.yaml", ["matrix.seed=[1,2]"], ["ddp"])
    with pytest.raises(ScenarioError, match="at most 1000"):
        load_scenario(plain, "my.yaml", [f"matrix.seed={list(range(1001))}"])


@pytest.mark.parametrize(
    ("typed", "override"),
    [
        ("model.layers=2,4", "matrix.model.layers=[2,4]"),
        (" model.layers = 2, 4", "matrix.model.layers=[2, 4]"),
        ("model.layers=[2,4]", "matrix.model.layers=[2,4]"),
        ("parallel.bucket_cap_mb_list=[1,4],[2]", "matrix.parallel.bucket_cap_mb_list=[[1,4],[2]]"),
        ("parallel.bucket_cap_mb_list=[[1,4],[2]]", "matrix.parallel.bucket_cap_mb_list=[[1,4],[2]]"),
        ("parallel.bucket_cap_mb=null", "matrix.parallel.bucket_cap_mb=[null]"),
    ],
)
def test_a_sweep_is_short_for_an_axis(typed: str, override: str) -> None:
    assert read_sweeps([typed]) == [override]


@pytest.mark.parametrize("typed", ["", "model.layers", "model.layers=", "=1,2"])
def test_a_sweep_without_field_or_values_is_refused(typed: str) -> None:
    with pytest.raises(typer.BadParameter, match="write a field and its values"):
        read_sweeps([typed])
    assert read_sweeps(None) == []


def test_a_misspelt_axis_is_the_only_mistake_and_named_as_it_was_typed() -> None:
    said = refused("matrix.bucket_cap_mb=[1,4]")
    assert said.startswith("--sweep bucket_cap_mb=[1,4]: `bucket_cap_mb` is not a field of a scenario")
    assert "missing" not in said

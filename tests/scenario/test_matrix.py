"""``matrix:``: which cells it makes, what they are called, and what is said about a wrong one."""

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import Cell, load_scenario
from dtbench.scenario.schema.scenario import Ddp, Fsdp2
from dtbench.scenario.sweeps.variations import is_cell_name

STRATEGY = """\
  strategy:
    ddp: {parallel: {kind: ddp, replicas: 2}}
    fsdp2: {parallel: {kind: fsdp2, shards: 2}}
"""


def cells_of(text: str, *overrides: str) -> dict[str, Cell]:
    return {cell.name: cell for cell in load_scenario(text, "my.yaml", overrides).cells}


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(text, "my.yaml", overrides)
    return str(caught.value)


@pytest.fixture
def bare(small: str) -> str:
    """The small scenario without its strategy."""
    return small.partition("parallel:")[0]


def test_a_field_with_a_list_is_an_axis_and_null_leaves_the_field_unset(small: str) -> None:
    cells = cells_of(
        f"{small}  bucket_cap_mb: 9\nmatrix:\n  parallel.bucket_cap_mb: [null, 1, 0.5]\n",
    )
    assert list(cells) == ["bucket_cap_mb-unset", "bucket_cap_mb-1", "bucket_cap_mb-0.5"]
    caps = [cell.scenario.parallel.bucket_cap_mb for cell in cells.values() if isinstance(cell.scenario.parallel, Ddp)]
    assert caps == [None, 1.0, 0.5]
    texts = [dict(cell.coordinates) for cell in cells.values()]
    assert texts == [{"parallel.bucket_cap_mb": text} for text in ("unset", "1", "0.5")]


def test_null_leaves_out_also_what_has_a_default_that_is_not_none(small: str) -> None:
    cells = cells_of(f"{small}measure: {{measured_steps: 7}}\nmatrix:\n  measure.measured_steps: [null, 9]\n")
    assert [cell.scenario.measure.measured_steps for cell in cells.values()] == [20, 9]


def test_axes_are_crossed_in_the_order_of_the_file_the_last_one_fastest(bare: str) -> None:
    cells = cells_of(f"{bare}matrix:\n{STRATEGY}  seed: [1, 2]\n")
    assert list(cells) == ["ddp.seed-1", "ddp.seed-2", "fsdp2.seed-1", "fsdp2.seed-2"]
    assert [cell.scenario.seed for cell in cells.values()] == [1, 2, 1, 2]
    assert dict(cells["fsdp2.seed-1"].coordinates) == {"strategy": "fsdp2", "seed": "1"}


def test_a_strategy_that_comes_after_its_fields_does_not_lose_them(small: str) -> None:
    text = (
        f"{small.replace('kind: ddp', 'kind: fsdp2').replace('replicas', 'shards')}matrix:\n"
        f"  parallel.bucket_cap_mb: [null, 4]\n{STRATEGY}"
        "  exclude: [{parallel.bucket_cap_mb: 4, strategy: fsdp2}]\n"
    )
    cells = cells_of(text)
    assert list(cells) == ["bucket_cap_mb-unset.ddp", "bucket_cap_mb-unset.fsdp2", "bucket_cap_mb-4.ddp"]
    assert cells["bucket_cap_mb-4.ddp"].scenario.parallel == Ddp(kind="ddp", replicas=2, bucket_cap_mb=4.0)
    assert cells["bucket_cap_mb-unset.fsdp2"].scenario.parallel == Fsdp2(kind="fsdp2", shards=2)


def test_each_named_cell_meets_each_point(two_cells: str) -> None:
    cells = cells_of(f"{two_cells}matrix:\n  seed: [1, 2]\n")
    assert list(cells) == ["ddp.seed-1", "ddp.seed-2", "fsdp.seed-1", "fsdp.seed-2"]
    assert dict(cells["fsdp.seed-2"].coordinates) == {"cell": "fsdp", "seed": "2"}
    assert isinstance(cells["fsdp.seed-2"].scenario.parallel, Fsdp2)


def test_points_of_one_named_cell_can_be_excluded(two_cells: str) -> None:
    cells = cells_of(
        f"{two_cells}matrix:\n  parallel.bucket_cap_mb: [null, 4]\n"
        "  exclude: [{cell: fsdp, parallel.bucket_cap_mb: 4}]\n"
    )
    assert list(cells) == ["ddp.bucket_cap_mb-unset", "ddp.bucket_cap_mb-4", "fsdp.bucket_cap_mb-unset"]


def test_an_included_point_may_have_new_values_and_leave_axes_out(bare: str) -> None:
    text = f"{bare}matrix:\n{STRATEGY}  seed: [1]\n  include:\n  - {{strategy: ddp, seed: 64}}\n  - {{strategy: ddp}}\n"
    cells = cells_of(text)
    assert list(cells) == ["ddp.seed-1", "fsdp2.seed-1", "ddp.seed-64", "ddp"]
    assert [cell.scenario.seed for cell in cells.values()] == [1, 1, 64, 0]
    assert dict(cells["ddp"].coordinates) == {"strategy": "ddp"}


def test_an_included_point_without_a_cell_is_one_for_each_cell(two_cells: str) -> None:
    cells = cells_of(f"{two_cells}matrix:\n  seed: [1]\n  include: [{{seed: 5}}, {{cell: ddp, seed: 6}}]\n")
    assert list(cells) == ["ddp.seed-1", "fsdp.seed-1", "ddp.seed-5", "fsdp.seed-5", "ddp.seed-6"]


def test_everything_can_be_excluded_where_points_are_included(small: str) -> None:
    cells = cells_of(f"{small}matrix:\n  seed: [1]\n  exclude: [{{seed: 1}}]\n  include: [{{seed: 2}}]\n")
    assert list(cells) == ["seed-2"]


def test_fields_of_the_same_name_are_told_apart_by_their_section(small: str) -> None:
    cells = cells_of(f"{small}matrix:\n  optimizer.kind: [adamw]\n  parallel.kind: [ddp]\n  model.dim: [64]\n")
    assert list(cells) == ["optimizer_kind-adamw.parallel_kind-ddp.dim-64"]
    text = f"{small}matrix:\n  optimizer.kind: [adamw, sgd]\n  parallel.kind: [ddp]\n"
    assert list(cells_of(text)) == ["optimizer_kind-adamw", "optimizer_kind-sgd"], "an axis of one value tells nothing"


def test_lists_are_values_too(small: str) -> None:
    cells = cells_of(f"{small}matrix:\n  optimizer.betas: [[0.9, 0.99], [0.9, 0.95]]\n")
    assert list(cells) == ["betas-0.9_0.99", "betas-0.9_0.95"]
    assert dict(cells["betas-0.9_0.95"].coordinates) == {"optimizer.betas": "[0.9, 0.95]"}


def test_long_names_have_the_initials_of_their_fields(bare: str) -> None:
    text = (
        f"{bare}matrix:\n  parallel.bucket_cap_mb: [null, 4]\n  env.TORCH_SHOW_CPP_STACKTRACES: ['0', '1']\n"
        "  python: [null, /opt/mine/bin/python3.12]\n"
        "  way:\n    ddp: {parallel: {kind: ddp, replicas: 2}}\n"
        "    twice: {parallel: {kind: ddp, replicas: 2}, repeat: 2}\n"
    )
    names = list(cells_of(text))
    assert (names[0], names[-1]) == ("bcm-unset.tscs-0.p-unset.ddp", "bcm-4.tscs-1.p-mine.twice")


def test_names_that_are_too_long_are_cut_and_stay_different_folders(small: str) -> None:
    long = "a" * 40
    variations = f"{{{long}x: {{seed: 1}}, {long}y: {{seed: 2}}}}"
    text = f"{small}matrix:\n  first: {variations}\n  second: {variations.replace('seed', 'repeat')}\n"
    names = list(cells_of(text))
    assert len(set(names)) == 4
    assert all(is_cell_name(name) for name in names)


@pytest.mark.parametrize("values", ["[1.0e-8, 1.0e+8, 0.001]", "[1.0e-8, 1.0e-9]", "[0.5, 0.25, 3]"])
def test_every_number_makes_a_name_that_can_be_a_folder(small: str, values: str) -> None:
    names = list(cells_of(f"{small}matrix:\n  optimizer.eps: {values}\n"))
    assert len(set(names)) == len(names)
    assert all(is_cell_name(name) for name in names)


def test_overrides_hold_for_all_cells_for_one_and_for_all_points_of_a_named_cell(two_cells: str) -> None:
    text = f"{two_cells}matrix:\n  seed: [1, 2]\n"
    cells = cells_of(
        text, "repeat=3", "cells.ddp.measure.measured_steps=5", "cells.fsdp.seed-2.measure.measured_steps=6"
    )
    assert {cell.scenario.repeat for cell in cells.values()} == {3}
    assert [cell.scenario.measure.measured_steps for cell in cells.values()] == [5, 5, 20, 6]


def test_an_unknown_cell_of_many_is_refused_with_a_few_names(small: str) -> None:
    values = ", ".join(str(value) for value in range(100))
    told = refusal(f"{small}matrix:\n  seed: [{values}]\n", "cells.sed-3.repeat=2")
    assert "and 92 more; did you mean `cells.seed-3.repeat`?" in told


def test_a_mistake_in_a_value_points_to_the_value_and_names_its_cell(small: str) -> None:
    told = refusal(f"{small}matrix:\n  parallel.bucket_cap_mb: [1, -2]\n")
    assert told.startswith(
        "my.yaml:21:31: `parallel.bucket_cap_mb` must be a number above 0 (or left out), not -2 (cell"
    )
    assert told.count("must be") == 1


def test_a_field_that_only_some_points_have_says_how_to_drop_the_others(bare: str) -> None:
    told = refusal(f"{bare}matrix:\n{STRATEGY}  parallel.bucket_cap_mb: [1, 2]\n")
    assert told.startswith("my.yaml:21:3: `bucket_cap_mb` is not a field of `parallel` of kind `fsdp2`")
    assert "(cells `fsdp2.bucket_cap_mb-1` and `fsdp2.bucket_cap_mb-2`); `exclude:` drops such points" in told


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        ("matrix:\n", "my.yaml:20:1: `matrix` must be a mapping from axes to lists of values or named variations"),
        ("matrix: [1]\n", "`matrix` must be a mapping"),
        ("matrix: {}\n", "`matrix` has no axis"),
        ("matrix:\n  include: [{seed: 1}]\n", "`matrix` has no axis"),
        ("matrix:\n  include: 1\n", "`matrix` has no axis"),
        ("matrix:\n  sed: [1]\n", "my.yaml:21:3: `sed` is not a field of a scenario; did you mean `seed`?"),
        ("matrix:\n  bucket_cap_mb: [1]\n", "did you mean `parallel.bucket_cap_mb`?"),
        ("matrix:\n  parallel.bucket_cap: [1]\n", "did you mean `parallel.bucket_cap_mb`?"),
        ("matrix:\n  parallel.bucket_cap: {a: {}}\n", "did you mean `parallel.bucket_cap_mb`?"),
        ("matrix:\n  model: [1]\n", "`model` is a section; an axis is one field of it"),
        ("matrix:\n  strategy: [ddp]\n", "named variations are a mapping: `strategy: {<name>: {<section>: ...}}`"),
        ("matrix:\n  schema_version: [1]\n", "`schema_version` is not a field of a scenario"),
        ("matrix:\n  cells: {a: {seed: 1}}\n  cell: {a: {}}\n", "`cell` is the axis of the names under `cells:`"),
        ("matrix:\n  seed: []\n", "my.yaml:21:9: axis `seed` has no value; write at least one"),
        ("matrix:\n  way: {}\n", "axis `way` has no variation; name at least one"),
        ("matrix:\n  seed: 1\n", "the values of an axis are a list, such as `seed: [1]`"),
        ("matrix:\n  seed: {a: {seed: 1}}\n", "`seed` is a field, so its values are a list, such as `seed: [a]`"),
        ("matrix:\n  seed: [{a: 1}]\n", "a value of `seed` cannot be a mapping; name it"),
        ("matrix:\n  seed: [1, 2, 1]\n", "my.yaml:21:16: 1 stands twice on the axis `seed`"),
        ("matrix:\n  optimizer.lr: [1, 1.0]\n", "1.0 stands twice on the axis `optimizer.lr`"),
        ("matrix:\n  way: {A: {}}\n", "a variation becomes a folder, so its name is made of"),
        ("matrix:\n  way: {a: 1}\n", "variation `a` must be a mapping of what it changes"),
        ("matrix:\n  way: {a: {matrix: {}}}\n", "`matrix` belongs to the file, not into a variation (`a`)"),
        ("matrix:\n  way: {a: {sed: 1}}\n", "`sed` is not a section of a scenario; did you mean `seed`?"),
        ("matrix:\n  seed: [1]\n  exclude: [{sed: 1}]\n", "`sed` is not an axis of this matrix; did you mean `seed`?"),
        (
            "matrix:\n  seed: [1]\n  include: [{repeat: 1}]\n",
            "`repeat` is not an axis of this matrix; the axes are `seed`",
        ),
        ("matrix:\n  seed: [1]\n  exclude: [{seed: 2}]\n", "`seed` has no value 2; it has `1`"),
        ("matrix:\n  seed: [1]\n  exclude: [{seed: '1'}]\n", "`seed` has no value the text '1'; it has `1`"),
        (
            "matrix:\n  way: {ab: {}}\n  exclude: [{way: abc}]\n",
            "`way` has no value 'abc'; it has `ab`; did you mean `ab`?",
        ),
        ("matrix:\n  way: {ab: {}}\n  include: [{way: abc}]\n", "`way` has no value 'abc'"),
        ("matrix:\n  seed: [1, 2]\n  exclude: [{seed: 1}, {seed: 1}]\n", "my.yaml:22:24: this drops nothing"),
        ("matrix:\n  seed: [1]\n  exclude: [{seed: 1}]\n", "my.yaml:22:3: every point is excluded"),
        ("matrix:\n  seed: [1]\n  exclude: [{}]\n", "a point is a mapping from axes to values"),
        ("matrix:\n  seed: [1]\n  exclude: {seed: 1}\n", "this must be a list of points, such as `[{seed: ...}]`"),
        ("matrix:\n  seed: [1]\n  include: []\n", "this must be a list of points"),
        ("matrix:\n  seed: [1]\n  include: [{seed: 1}]\n", "this point is there already"),
        ("matrix:\n  seed: [1]\n  include: [{seed: 2}, {seed: 2}]\n", "this point is there already"),
        ("matirx:\n  seed: [1]\n", "`matirx` is not a section of a scenario; did you mean `matrix`?"),
        ("cells:\n  a: {matrix: {}}\n", "`matrix` belongs to the file, not into a cell (`a`)"),
    ],
)
def test_a_wrong_matrix_says_what_is_wrong(small: str, matrix: str, told: str) -> None:
    assert told in refusal(small + matrix)


def test_all_mistakes_of_a_matrix_are_told_at_once(small: str) -> None:
    told = refusal(
        f"{small.replace('layers: 2', 'layers: two')}matrix:\n"
        "  seed: [1, 1, -1]\n  way: {a: {model: {dims: 3}}}\n  exclude: [{wy: a}, {seed: 8}]\n"
    )
    lines = [line for line in told.splitlines() if line.startswith("my.yaml")]
    assert [int(line.split(":")[1]) for line in lines] == [6, 21, 21, 22, 23, 23]


def test_an_axis_that_cannot_be_used_hides_no_mistake_elsewhere(small: str) -> None:
    told = refusal(f"{small.replace('layers: 2', 'layers: two')}matrix:\n  sed: [1]\n")
    assert [line.split(":")[1] for line in told.splitlines() if line.startswith("my.yaml")] == ["6", "21"]


def test_more_cells_than_anybody_waits_for_are_refused_before_they_are_made(small: str) -> None:
    values = ", ".join(str(value + 1) for value in range(200))
    told = refusal(f"{small}matrix:\n  seed: [{values}]\n  repeat: [{values}]\n  model.dim: [{values}]\n")
    assert "200 x 200 x 200 are 8000000 cells, and a scenario has at most 1000" in told


def test_the_matrix_cannot_be_overridden_as_a_whole(small: str) -> None:
    assert "`matrix` says which cells there are" in refusal(small, "matrix={seed: [1]}")


def test_variables_and_interpreters_are_axes(small: str) -> None:
    text = (
        f'{small}env: {{NCCL_ALGO: "Tree", OMP_NUM_THREADS: "1"}}\nmatrix:\n  env.NCCL_ALGO: [null, "Ring"]\n'
        "  python: [null, /opt/torch-2.11/bin/python, /opt/torch-2.13/bin/python]\n"
    )
    cells = cells_of(text)
    assert list(cells)[:3] == [
        "nccl_algo-unset.python-unset",
        "nccl_algo-unset.python-torch-2.11",
        "nccl_algo-unset.python-torch-2.13",
    ]
    assert [cell.scenario.env for cell in cells.values()][2:4] == [
        {"OMP_NUM_THREADS": "1"},
        {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"},
    ]
    assert [cell.scenario.python for cell in cells.values()][:2] == [None, "/opt/torch-2.11/bin/python"]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("{NCCL_ALGO: 1}", '`env.NCCL_ALGO` must be a text, not 1; write "1", in quotes'),
        ("{NCCL_ALGO: true}", 'not true; write "true", in quotes'),
        ("{NCCL_ALGO: null}", "`env.NCCL_ALGO` must be a text, but it is empty or null"),
        ("{RANK: '0'}", "`env.RANK`: it is set by what starts the ranks: the sizes come from `parallel`"),
        ("{MASTER_PORT: '0'}", "`env.MASTER_PORT`: it is set by what starts the ranks"),
        ("{TORCHELASTIC_RUN_ID: a}", "`env.TORCHELASTIC_RUN_ID`: it is set by what starts the ranks"),
        ("{CUDA_VISIBLE_DEVICES: '0'}", "set it where you start dtbench"),
        ("{NCCL_a: '1'}", "`env.NCCL_a`: a variable's name is of capital letters, digits and underscores"),
        ("{'NCCL_X; rm -rf ~': '1'}", "a variable's name is of capital letters, digits and underscores"),
        ('{NCCL_X: "a\\0b"}', "`env.NCCL_X`: a variable's value cannot have a NUL character"),
        ("{PATH: /bin}", "`env.PATH`: a scenario sets only variables of torch and what it is built on (NCCL_"),
        ("[a]", "`env` must be a mapping from names to texts, not a list of 1"),
    ],
)
def test_a_wrong_variable_points_to_its_line(small: str, env: str, told: str) -> None:
    refused = refusal(f"{small}env: {env}\n")
    assert told in refused
    assert refused.startswith("my.yaml:20:")


def test_a_wrong_variable_on_an_axis_points_to_its_value(small: str) -> None:
    told = refusal(f'{small}matrix:\n  env.NCCL_ALGO: ["Ring", 1]\n')
    assert told.startswith('my.yaml:21:27: `env.NCCL_ALGO` must be a text, not 1; write "1", in quotes (cell')


def test_all_variables_at_once_are_no_axis(small: str) -> None:
    assert "an axis sets one variable: `env.<NAME>: [...]`" in refusal(f"{small}matrix:\n  env: ['1']\n")

"""Reading a scenario file: what is right becomes records, what is wrong becomes sentences with places."""

from pathlib import Path

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import MAX_FILE_BYTES, load_scenario, load_scenario_file
from dtbench.scenario.schema.model import Transformer
from dtbench.scenario.schema.scenario import Ddp


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(text, "my.yaml", overrides)
    return str(caught.value)


def test_a_file_without_cells_is_one_cell_named_by_its_kind(small: str) -> None:
    file = load_scenario(small, "folder/my.yaml")
    assert (file.name, file.question, file.text) == ("my", "Does it work?", small)
    assert [cell.name for cell in file.cells] == ["ddp"]
    assert file.cells[0].scenario.parallel == Ddp(kind="ddp", replicas=2)


def test_lists_become_tuples_and_whole_numbers_become_floats(small: str) -> None:
    text = small.replace("lr: 3.0e-4", "lr: 1\n  betas: [0, 0.5]")
    optimizer = load_scenario(text, "my.yaml").cells[0].scenario.optimizer
    assert optimizer.model_dump()["betas"] == (0.0, 0.5)
    assert optimizer.lr == 1.0


def test_line_breaks_of_windows_and_a_byte_order_mark_are_fine(small: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + small.replace("\n", "\r\n").encode())
    file = load_scenario_file(path)
    assert file.question == "Does it work?"
    assert "\r\n" in file.text


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(small: str) -> None:
    text = (
        small.replace("layers: 2", "layer: 2")
        .replace("dim: 64", "dim: four")
        .replace("lr: 3.0e-4", "lr: 3e-4")
        .replace("  replicas: 2", "  replicas: 0")
    )
    assert refusal(text) == (
        "my.yaml:6:3: `layer` is not a field of `model` of kind `transformer`; did you mean `layers`?\n"
        "  6 |   layer: 2\n"
        "    |   ^^^^^\n"
        "my.yaml:7:8: `model.dim` must be a whole number above 0, not 'four'\n"
        "  7 |   dim: four\n"
        "    |        ^^^^\n"
        "my.yaml:16:7: YAML reads `3e-4` as text, because a number with an exponent needs a point and a sign; "
        "write 3.0e-4\n"
        "  16 |   lr: 3e-4\n"
        "     |       ^^^^\n"
        "my.yaml:19:13: `parallel.replicas` must be a whole number above 0, not 0\n"
        "  19 |   replicas: 0\n"
        "     |             ^"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (
            "device: cpu",
            "device: gpu",
            "my.yaml:3:9: `device` must be `auto`, `cpu` or `cuda`, not 'gpu'; did you mean `cuda`?",
        ),
        ("device: cpu", "device: cudaa", "did you mean `cuda`?"),
        ("device: cpu", "devise: cpu", "my.yaml:3:1: `devise` is not a section of a scenario; did you mean `device`?"),
        ("layers: 2", "layers: '2'", "my.yaml:6:11: `model.layers` must be a whole number above 0, not the text '2'"),
        ("layers: 2", "layers: 2.5", "`model.layers` must be a whole number above 0, not 2.5"),
        ("layers: 2", "layers: true", "`model.layers` must be a whole number above 0, not true"),
        ("layers: 2", "layers:", "`model.layers` must be a whole number above 0, but it is empty or null"),
        ("layers: 2", "layers: [2]", "`model.layers` must be a whole number above 0, not a list of 1"),
        ("layers: 2", "layers: {a: 1}", "`model.layers` must be a whole number above 0, not a mapping"),
        ("  layers: 2\n", "", "my.yaml:4:1: `model.layers` is missing: a whole number above 0 (number of blocks)"),
        ("  kind: transformer\n", "", "my.yaml:4:1: `model.kind` is missing: `transformer`"),
        (
            "kind: transformer\n",
            "kind: custom\n  factory: my_model.build\n",
            "`model.factory`: write `module:function`, as in `my_model:build`, not 'my_model.build'",
        ),
        (
            "kind: transformer",
            "kind: rnn",
            "my.yaml:5:9: `model.kind` must be `transformer`, `mlp`, `timed`, `preset` or `custom`, not 'rnn'",
        ),
        (
            "kind: adamw",
            "kind: adam",
            "my.yaml:15:9: `optimizer.kind` must be `adamw` or `sgd`, not 'adam'; did you mean `adamw`?",
        ),
        ("  kind: ddp\n", "", "my.yaml:17:1: `parallel.kind` is missing: `ddp`, `fsdp1` or `fsdp2`"),
        ("kind: ddp", "kind: 3", "`parallel.kind` must be `ddp`, `fsdp1` or `fsdp2`, not 3"),
        (
            "replicas: 2",
            "replicas: 2\n  shards: 2",
            "`shards` is not a field of `parallel` of kind `ddp`; it is a field of kinds `fsdp1` and `fsdp2`",
        ),
        ("device: cpu", "layers: 3", "my.yaml:3:1: `layers` is not a section of a scenario; it belongs to `model`"),
        (
            "device: cpu",
            "training: {device: cpu, lr: 1.0e-3, foo_bar: 3}",
            "`training` is not a section of a scenario; `device` stands at the top and `lr` belongs to `optimizer`",
        ),
        (
            "device: cpu",
            "foo_bar: 3",
            "my.yaml:3:1: `foo_bar` is not a section of a scenario; it has schema_version, device,",
        ),
        (
            "lr: 3.0e-4",
            "betas: [0.9]",
            "`optimizer.betas` must be a list of 2, each a number of at least 0, not a list of 1",
        ),
        (
            "lr: 3.0e-4",
            "betas: [1, 2, 3]",
            "`optimizer.betas` must be a list of 2, each a number of at least 0, not a list of 3",
        ),
        (
            "lr: 3.0e-4",
            "betas: [0.9, x]",
            "my.yaml:16:16: item 2 of `optimizer.betas` must be a number of at least 0, not 'x'",
        ),
        ("lr: 3.0e-4", "fused: 1", "`optimizer.fused` must be true or false (or left out), not 1"),
        (
            "device: cpu",
            "measure: {warmup: {min_steps: 9, max_steps: 7}}",
            "`measure.warmup`: max_steps (7) is below min_steps (9)",
        ),
        ("device: cpu", "measure: 3", "`measure` must be a mapping, not 3"),
        ("device: cpu", "precision: {autocast: bf16}", "did you mean `bfloat16`?"),
        (
            "device: cpu",
            "network: {kind: emulated, bandwidth_gb_per_s: 0}",
            "my.yaml:3:47: `network.bandwidth_gb_per_s` must be a number above 0, not 0; for example 1.0",
        ),
        (
            "device: cpu",
            "network: {kind: emulated, bandwidth_gb_per_s: 1, between_nodes: {bandwidth_gb_per_s: -2}}",
            "`network.between_nodes.bandwidth_gb_per_s` must be a number above 0, not -2; for example 1.0",
        ),
        (
            "kind: transformer\n  layers: 2\n  dim: 64\n  heads: 4\n  ffn_dim: 96\n  vocab_size: 64\n",
            "kind: timed\n  layers: 2\n  forward_ms: -20\n  backward_ms: 40\n",
            "`model.forward_ms` must be a number of at least 0 and of at most 60000, not -20; for example 20.0",
        ),
    ],
)
def test_a_mistake_says_what_is_wrong_and_what_would_be_right(small: str, right: str, wrong: str, told: str) -> None:
    assert told in refusal(small.replace(right, wrong))


def test_a_mistake_in_a_section_of_a_list_is_told_as_any_other(small: str) -> None:
    text = small + "state_dict:\n  stages: [load]\n  broken: [{stage: load, says: 12, torch: 2.13}]\n"
    told = refusal(text)
    assert "`state_dict.broken.part` is missing: `model` or `optimizer`" in told
    assert "a text with a length of at least 4, not 12" in told
    assert "in quotes" in told
    assert "`torch` is not a field of item 1 of `state_dict.broken`; it has part, stage, says" in told
    told = refusal(text.replace("says: 12", "says: oh"))
    assert "`state_dict.broken.says` must be a text with a length of at least 4, not 'oh'\n" in told


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("lr: 3.0e-4", "lr: 1e-3", "write 1.0e-3"),
        ("lr: 3.0e-4", "lr: 1e3", "write 1.0e+3"),
        ("lr: 3.0e-4", "lr: -2.5E3", "write -2.5e+3"),
        ("lr: 3.0e-4", "lr: .inf", "`.inf` is not a number that can be used here"),
        ("lr: 3.0e-4", "lr: 1.0e+999", "too large"),
        ("lr: 3.0e-4", "fused: yes", "YAML reads a bare `yes` as true; write `true`"),
        ("lr: 3.0e-4", "fused: Off", "YAML reads a bare `Off` as false; write `false`"),
        ("lr: 3.0e-4", "fused: True", "write `true` in lower case"),
        ("device: cpu", "device: no", 'or "no" in quotes if you mean the word'),
        ("layers: 2", "layers: 012", "as octal, that is 10; write 12"),
        ("layers: 2", "layers: -012", "as octal, that is -10; write -12"),
        ("layers: 2", "layers: 0x10", "not decimal"),
        ("layers: 2", "layers: 0x_", "not decimal"),
        ("layers: 2", "layers: 12:30", "in base 60"),
        ("layers: 2", "layers: 12:30.5", "in base 60"),
        ("layers: 2", f"layers: {'9' * 5000}", "too many digits"),
        ("layers: 2", "layers: 2\n  layers: 3", "my.yaml:7:3: `layers` is written twice; the first is on line 6"),
        ("layers: 2", "layers: &x 2", "anchors and aliases are not used"),
        ("layers: 2", "layers: *x", "anchors and aliases are not used"),
        ("layers: 2", "<<: {layers: 2}", "`<<` (merge) is not used here"),
        ("layers: 2", "layers: !!int 2", "YAML tags such as `!!int` are not used"),
        (
            "layers: 2",
            "layers: 2\n  12: 3",
            'my.yaml:7:3: YAML does not read a bare `12` as a name; put it in quotes: "12"',
        ),
        ("layers: 2", "layers: 2\n  on: 3", "does not read a bare `on` as a name"),
        ("layers: 2", "layers: 2\n  ?\n  : 3", "a name is missing before the `:`"),
        ("layers: 2", "layers: 2\n  [a, b]: 3", "not a list or mapping"),
        ("  layers: 2", "\tlayers: 2", "my.yaml:6:1: a tab cannot indent or align YAML; use spaces"),
        ("layers: 2", "layers 2", "my.yaml:6:3: this is not `name: value`"),
        ("  layers: 2", "    layers: 2", "my.yaml:6:11: a `:` does not fit here"),
        ("device: cpu", 'device: "cpu', "my.yaml:3:9: this quote is not closed"),
        ("device: cpu", "device: [cpu", "my.yaml:3:9: this `[` is not closed"),
        ("device: cpu", "device: {a: [}", "is not YAML"),
        ("device: cpu", "device: @cpu", "my.yaml:3:9: a text that starts with this character needs quotes"),
        ("device: cpu", 'device: "\\ud800"', "half of a character"),
        ("device: cpu", "device: " + "[" * 100_000, "levels deep"),
        ("device: cpu", "device: [" + "1, " * 20_000 + "]", "more than 10000 values"),
        ("device: cpu", "device: c\0u", "a NUL byte"),
        ("device: cpu", "device: c\x01u", "the character U+0001 cannot stand in a YAML file"),
    ],
)
def test_a_trap_of_yaml_is_refused_with_what_works(small: str, right: str, wrong: str, told: str) -> None:
    assert told in refusal(small.replace(right, wrong))


def test_a_refused_spelling_is_told_once_not_again_as_a_wrong_value(small: str) -> None:
    assert refusal(small.replace("lr: 3.0e-4", "lr: 1e-3")).count("my.yaml:") == 1


def test_underscores_and_signs_in_numbers_are_fine(small: str) -> None:
    file = load_scenario(small.replace("vocab_size: 64", "vocab_size: +12_800"), "my.yaml")
    model = file.cells[0].scenario.model
    assert isinstance(model, Transformer)
    assert model.vocab_size == 12_800


@pytest.mark.parametrize("first_line", ["", "schema_version: 1 # ?", "# A statement.", "#"])
def test_line_1_must_be_a_question(small: str, first_line: str) -> None:
    assert "line 1 must be the scenario's question" in refusal(f"{first_line}\n{small.partition(chr(10))[2]}")


@pytest.mark.parametrize("text", ["", "\n\n", "# Only a comment?", "---\n...\n"])
def test_an_empty_file_says_so(text: str) -> None:
    told = refusal(text)
    assert "no content" in told or "is a mapping" in told


@pytest.mark.parametrize("text", ["# Is it?\n- a\n", "# Is it?\nhello\n", "# Is it?\n42\n"])
def test_a_file_that_is_no_mapping_says_so(text: str) -> None:
    assert "my.yaml:2:1: a scenario is a mapping: lines of `name: value`" in refusal(text)


def test_a_second_document_is_refused(small: str) -> None:
    assert "my.yaml:20:1: a second document starts here" in refusal(f"{small}---\na: 1\n")


def test_a_missing_version_is_told_with_the_line_to_add(small: str) -> None:
    told = refusal(small.replace("schema_version: 1\n", "").replace("layers: 2", "layers: two"))
    assert "my.yaml:1:1: `schema_version` is missing; write `schema_version: 1` under the question" in told
    assert "my.yaml:5:11:" in told


def test_a_newer_version_is_the_only_mistake_told(small: str) -> None:
    told = refusal(small.replace("schema_version: 1", "schema_version: 2").replace("layers: 2", "layers: two"))
    assert told.startswith(
        "my.yaml:2:17: this file is written for schema version 2, this dtbench reads 1; upgrade dtbench"
    )
    assert "two" not in told


@pytest.mark.parametrize("version", ["0", "'1'", "true", "1.0", "[1]", "null", "{a: 1}"])
def test_any_other_version_is_refused(small: str, version: str) -> None:
    assert "my.yaml:2:17" in refusal(small.replace("schema_version: 1", f"schema_version: {version}"))


def test_a_long_line_is_cut_around_the_place(small: str) -> None:
    told = refusal(
        small.replace("device: cpu", f"device: {{{', '.join(f'field_{index}: 1' for index in range(500))}}}")
    )
    assert max(len(line) for line in told.splitlines()) < 400


def test_more_than_twenty_mistakes_are_counted_not_shown(small: str) -> None:
    told = refusal(small + "".join(f"zz{index}: 1\n" for index in range(50)))
    assert told.endswith("... and 30 more mistakes.")


def test_no_sentence_speaks_of_pydantic_or_shows_an_address(small: str) -> None:
    wrong = small.replace(": 2", ": x").replace("kind: adamw", "kind: [1]").replace("device: cpu", "device: {}")
    told = refusal(wrong, "seed=-1", "repeat=0.5")
    for jargon in ("pydantic", "http", "Input", "union", "literal", "dict", "type=", "validation"):
        assert jargon not in told


def test_a_folder_a_missing_file_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.yaml", tmp_path / "huge.yaml"
    binary.write_bytes(b"# Is it?\n\nab\xff\xfe")
    huge.write_bytes(b"# " + b"a" * MAX_FILE_BYTES)
    for path, told in (
        (tmp_path, "this is a folder"),
        (tmp_path / "missing.yaml", "cannot be read: No such file"),
        (tmp_path / "nul\0.yaml", "cannot be read"),
        (binary, "binary.yaml:3:3: byte 0xff is not UTF-8 text"),
        (huge, "larger than 1 MiB"),
    ):
        with pytest.raises(ScenarioError, match=told):
            load_scenario_file(path)


def test_an_override_that_begins_with_a_cell_is_told_what_is_missing(small: str) -> None:
    text = f"{small}cells:\n  wide: {{model: {{dim: 64}}}}\n"
    said = refusal(text, "wide.model.dim=32", "model.layers=3", "other.dim=1")
    assert "`wide` is a cell: write `cells.wide.model.dim=...`" in said
    assert "`other` is not a section" in said
    assert "`wide` is not a section" not in said
    assert load_scenario(text, "my.yaml", ["cells.wide.model.dim=32"]).cells[0].scenario.model.dim == 32  # type: ignore[union-attr]

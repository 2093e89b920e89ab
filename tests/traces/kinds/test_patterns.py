"""Files of a user's kernel patterns: read in order; a wrong one is refused with file and line."""

from pathlib import Path

import pytest

from dtbench.base.errors import PatternsError
from dtbench.base.vocabulary import Kind, Operation
from dtbench.traces.kinds.pattern_file import load_patterns
from dtbench.traces.kinds.patterns import KernelPattern


def write(folder: Path, text: str) -> Path:
    path = folder / "my_kernels.yaml"
    path.write_text(text)
    return path


def test_patterns_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """# mine
- pattern: ring_all_gather
  kind: comm
  operation: all_gather
- {pattern: '^pack<\\d+>', kind: compute}
""",
    )
    assert load_patterns(path) == (
        KernelPattern(pattern="ring_all_gather", kind=Kind.COMM, operation=Operation.ALL_GATHER),
        KernelPattern(pattern=r"^pack<\d+>", kind=Kind.COMPUTE),
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("pattern: x\nkind: comm\n", 1, "holds no list of patterns"),
        ("", 1, "holds no list of patterns"),
        ("- ring\n", 1, "is no pattern"),
        ("- kind: comm\n", 1, "`pattern` is missing"),
        ("- pattern: a\n  kind: comm\n- pattern: b\n", 3, "`kind` is missing"),
        ("- pattern: a\n  kind: network\n", 2, "`kind` is one of compute, comm, copy; not `network`"),
        ("- pattern: a\n  kind: comm\n  operation: gossip\n", 3, "`operation` is one of all_reduce, "),
        ("- pattern: a\n  kind: comm\n  name: b\n", 3, "`name` is not a field"),
        ("- pattern: a\n  kind: comm\n  kind: copy\n", 3, "`kind` is written twice"),
        ("- pattern: [a]\n  kind: comm\n", 1, "`pattern` must be a text"),
        ("- pattern: a\n  kind:\n", 2, "`kind` must be a text"),
        ("- kind: comm\n  pattern: 'a('\n", 2, "is no regular expression"),
        ("- pattern: 'a\n", 2, "is no YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(PatternsError) as caught:
        load_patterns(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert said in str(caught.value)


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(PatternsError) as caught:
        load_patterns(write(tmp_path, "- kind: comm\n- pattern: '('\n  kind: net\n"))
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["1", "2", "3"]


@pytest.mark.parametrize("content", [None, b"- pattern: \xff\n"])
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "my_kernels.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PatternsError, match=str(path)):
        load_patterns(path)


def test_a_pattern_that_is_no_regular_expression_is_refused_in_code_too() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        KernelPattern(pattern="(", kind=Kind.COMM)

"""A user's own kernel names, from a YAML file.

::

    # my_kernels.yaml
    - pattern: my_ring_all_gather     # a regular expression, searched anywhere in the kernel's name
      kind: comm                      # compute, comm or copy
      operation: all_gather           # may be left out: then the name is asked
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from dtbench.base.errors import PatternsError
from dtbench.base.vocabulary import Kind, Operation
from dtbench.traces.kinds.patterns import KernelPattern

_WORDS: Final = {"kind": tuple(Kind), "operation": tuple(Operation)}
_EXAMPLE: Final = "`- {pattern: my_all_gather, kind: comm, operation: all_gather}`"


def load_patterns(path: Path) -> tuple[KernelPattern, ...]:
    """Read a file of patterns, in its order: the first that fits a kernel decides.

    Raises:
        PatternsError: the file cannot be opened or is wrong; names file and line, and every mistake in it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise PatternsError(f"{path}: cannot be opened ({error.strerror}); check the name") from error
    except UnicodeDecodeError as error:
        raise PatternsError(f"{path}: is no UTF-8 text; save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PatternsError(f"{path}:{line}: is no YAML ({error.problem}); write a list of {_EXAMPLE}") from error
    except yaml.YAMLError as error:
        raise PatternsError(f"{path}: is no YAML ({error}); write a list of {_EXAMPLE}") from error
    if not isinstance(root, yaml.SequenceNode):
        raise PatternsError(f"{path}:1: holds no list of patterns; write {_EXAMPLE}")
    mistakes = [f"{path}:{line}: {sentence}" for item in root.value for line, sentence in _mistakes(item)]
    if mistakes:
        raise PatternsError("\n".join(mistakes))
    return tuple(_read_item(item) for item in root.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _mistakes(item: yaml.Node) -> Iterator[tuple[int, str]]:
    """Yield the line and sentence of everything wrong with one item."""
    if not isinstance(item, yaml.MappingNode):
        yield _line(item), f"is no pattern; write {_EXAMPLE}"
        return
    known = tuple(KernelPattern.model_fields)
    names = [str(key.value) for key, _ in item.value]
    for missing in [name for name in ("pattern", "kind") if name not in names]:
        yield _line(item), f"`{missing}` is missing; write {_EXAMPLE}"
    for place, (key, value) in enumerate(item.value):
        name = names[place]
        if name not in known:
            yield _line(key), f"`{name}` is not a field of a pattern; there are {', '.join(known)}"
        elif name in names[:place]:
            yield _line(key), f"`{name}` is written twice"
        elif (sentence := _wrong_value(name, value)) is not None:
            yield _line(value), sentence


def _wrong_value(name: str, value: yaml.Node) -> str | None:
    if not isinstance(value, yaml.ScalarNode) or not value.value:
        return f"`{name}` must be a text"
    if name in _WORDS:
        is_word = value.value in _WORDS[name]
        return None if is_word else f"`{name}` is one of {', '.join(_WORDS[name])}; not `{value.value}`"
    try:
        re.compile(value.value)
    except re.error as error:
        return f"`{value.value}` is no regular expression ({error}); put \\ before a character that stands for itself"
    return None


def _read_item(item: yaml.MappingNode) -> KernelPattern:
    said = {str(key.value): str(value.value) for key, value in item.value}
    return KernelPattern(
        pattern=said["pattern"],
        kind=Kind(said["kind"]),
        operation=Operation(said["operation"]) if "operation" in said else None,
    )

"""What functions a source file holds, by ``ast``: the denominator of every coverage, so that nobody chooses it.

A line belongs to the function whose code object holds it; comprehensions and lambdas count as the function around them.
The line of a ``def`` belongs to the function around it, as running that line makes the inner function and does not run
it. A function that is written on one line cannot be told from its definition: the files under study have none.
"""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType


@dataclass(frozen=True)
class SourceFunction:
    """One function of a file.

    Attributes:
        name: dotted, as ``StudiedFunction.name``.
        first_line: of its first decorator, else of its ``def``; what its code object calls the first line.
        lines: of its body that can run.
        outer: the function that makes it anew at every call; None: there is none.
    """

    name: str
    first_line: int
    lines: frozenset[int]
    outer: str | None


_Definition = ast.FunctionDef | ast.AsyncFunctionDef


def import_file(file: str) -> ModuleType:
    """Import the module that a path below the folder of packages names.

    Raises:
        ImportError: the installed torch does not have it.
    """
    importlib.import_module("torch.distributed.fsdp")  # first, or torch 2.13 imports in a circle
    return importlib.import_module(".".join(PurePosixPath(file).with_suffix("").parts))


def path_of(module: ModuleType) -> Path:
    """Return the file of a module, as its code objects name it."""
    assert module.__file__ is not None
    return Path(module.__file__)


def read_functions(path: Path) -> tuple[SourceFunction, ...]:
    """Return every function of a file, methods and nested ones included, in the order of the file."""
    source = path.read_text(encoding="utf-8")
    codes = {code.co_firstlineno: code for code in _function_codes(compile(source, str(path), "exec"))}
    return tuple(
        SourceFunction(name, first, _body_lines(definition, codes[first]), outer)
        for name, definition, outer in _definitions(ast.parse(source), "", None)
        for first in [_first_line(definition)]
    )


def _definitions(node: ast.AST, prefix: str, outer: str | None) -> Iterator[tuple[str, _Definition, str | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            name = f"{prefix}{child.name}{_accessor(child)}"
            yield name, child, outer
            yield from _definitions(child, f"{name}.", name)
        elif isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.", outer)
        else:
            yield from _definitions(child, prefix, outer)


def _accessor(definition: _Definition) -> str:
    """Tell the setter of a property from its getter, which has the same name."""
    accessors = [one.attr for one in definition.decorator_list if isinstance(one, ast.Attribute)]
    return next((f".{name}" for name in accessors if name in ("setter", "deleter")), "")


def _first_line(definition: _Definition) -> int:
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def _body_lines(definition: _Definition, code: CodeType) -> frozenset[int]:
    first = definition.body[0]
    begin = _first_line(first) if isinstance(first, _Definition) else first.lineno
    end = definition.end_lineno or definition.lineno
    return frozenset(line for line in _lines_of(code) if begin <= line <= end)


def _lines_of(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name.startswith("<"):
            yield from _lines_of(constant)


def _function_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions; that of lambdas and comprehensions belongs to others."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if not constant.co_name.startswith("<"):
                yield constant
            yield from _function_codes(constant)

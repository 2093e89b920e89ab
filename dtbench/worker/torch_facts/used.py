"""What dtbench's own source uses of torch, and where: read from its syntax trees, without importing anything."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The folder of the package."""

_LEAST_LITERAL: Final = 4
"""Letters of a text that may be the beginning of a name in a trace."""
_LOOKS: Final = ("getattr", "hasattr", "setattr", "object")
"""Calls whose text argument is a name: ``mock.patch.object`` is the last."""


@dataclass(frozen=True)
class Uses:
    """What the source uses of torch; places are ``module:line``, by name.

    Attributes:
        names: dotted, as ``torch.distributed.fsdp._runtime_utils._unshard``.
        attributes: private ones of whatever object, as ``_fsdp_param_group``.
        literals: texts that may stand in a trace, or begin what does.
        docs: first line of each module's docstring, by module.
    """

    names: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, tuple[str, ...]]
    literals: Mapping[str, tuple[str, ...]]
    docs: Mapping[str, str]


def read_uses(root: Path = ROOT) -> Uses:
    """Read every module below a folder; this room's own, which name torch in order to look at it, are left out."""
    own = Path(__file__).parent.name
    names, attributes, literals = (defaultdict[str, list[str]](list) for _ in range(3))
    docs = {}
    for path in sorted(root.rglob("*.py")):
        if own in path.relative_to(root).parts:
            continue
        module = ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs[module] = (ast.get_docstring(tree) or "").partition("\n")[0]
        found = _Reader(tree)
        for kept, read in ((names, found.names), (attributes, found.attributes), (literals, found.literals)):
            for name, line in read:
                kept[name].append(f"{module}:{line}")
    found_names, found_attributes, found_literals = (
        {name: tuple(places) for name, places in kept.items()} for kept in (names, attributes, literals)
    )
    return Uses(found_names, found_attributes, found_literals, docs)


class _Reader(ast.NodeVisitor):
    """Collects (name, line) of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: list[tuple[str, int]] = []
        self.attributes: list[tuple[str, int]] = []
        self.literals: list[tuple[str, int]] = []
        self._torch: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for node in ast.walk(tree):
            self._learn(node)
        self.uses_torch = bool(self._torch)
        self.visit(tree)

    def _learn(self, node: ast.AST) -> None:
        """Take up which local names stand for something of torch's, and which for a text."""
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name.partition(".")[0] == "torch":
                        self._torch[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                        self.names.append((alias.name, node.lineno))
            case ast.ImportFrom(module=str(module), names=aliases) if module.partition(".")[0] == "torch":
                for alias in aliases:
                    self._torch[alias.asname or alias.name] = f"{module}.{alias.name}"
                    self.names.append((f"{module}.{alias.name}", node.lineno))
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ):
                if (text := self._read_text(value)) is not None:
                    self._texts[name] = text

    def _read_text(self, node: ast.expr | None) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                return self._texts.get(name)
            case ast.JoinedStr(values=parts):
                texts = [
                    self._read_text(part.value if isinstance(part, ast.FormattedValue) else part) for part in parts
                ]
                return None if None in texts else "".join(text for text in texts if text is not None)
        return None

    def _resolve(self, node: ast.expr | None) -> str | None:
        """Spell an expression that stands for something of torch's; None for any other."""
        match node:
            case ast.Name(id=name):
                return self._torch.get(name) or self._resolve_text(node)
            case ast.Attribute(value=value, attr=attr):
                home = self._resolve(value)
                return None if home is None else f"{home}.{attr}"
            case ast.Constant() | ast.JoinedStr():
                return self._resolve_text(node)
        return None

    def _resolve_text(self, node: ast.expr) -> str | None:
        text = self._read_text(node)
        is_path = text is not None and text.startswith("torch.") and all(map(str.isidentifier, text.split(".")))
        return text if is_path else None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take up the longest chain; of other objects a private attribute."""
        whole = self._resolve(node)
        if whole is not None:
            self.names.append((whole, node.lineno))
            return
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not is_own:
            self._add_attribute(node.attr, node.lineno)
        self.generic_visit(node)

    def _add_attribute(self, name: str, line: int) -> None:
        if self.uses_torch and name.startswith("_") and not name.startswith("__"):
            self.attributes.append((name, line))

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Take up a home and the name that follows it."""
        self._pair(node.elts, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Take up what is looked up by its name."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _LOOKS:
            self._pair(node.args, node.lineno)
            for text in map(self._read_text, node.args[1:2]):
                if text is not None:
                    self._add_attribute(text, node.lineno)
        self.generic_visit(node)

    def _pair(self, nodes: Iterable[ast.expr], line: int) -> None:
        for home, name in pairwise(nodes):
            path, text = self._resolve(home), self._read_text(name)
            if path is not None and text is not None and text.isidentifier():
                self.names.append((f"{path}.{text}", line))

    def visit_Constant(self, node: ast.Constant) -> None:
        """Take up a text."""
        if isinstance(node.value, str) and len(node.value) >= _LEAST_LITERAL and "\n" not in node.value:
            self.literals.append((node.value, node.lineno))
            if (path := self._resolve_text(node)) is not None:
                self.names.append((path, node.lineno))


def find_places(uses: Uses, name: str) -> Iterator[str]:
    """Yield where something of torch's is used: by its name, by its last part alone, or what it is a part of."""
    *_, last = parts = name.split(".")
    if name not in uses.names and "_" in last:
        yield from (uses.attributes.get(last) or uses.literals.get(last) or ())
    for count in range(len(parts), 1, -1):
        if (places := uses.names.get(".".join(parts[:count]))) is not None:
            yield from places
            return

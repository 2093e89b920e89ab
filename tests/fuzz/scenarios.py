"""Mutated scenarios: ``dtbench check`` and ``list`` plan each, or say what is wrong with it in sentences."""

import contextlib
import copy
import io
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from dtbench.base.errors import DtbenchError
from dtbench.cli.check import check
from dtbench.cli.console import print_error
from dtbench.scenario.catalog import CatalogEntry, Origin, _read_entry
from dtbench.scenario.json_schema import make_file_schema
from dtbench.scenario.schema.scenario import Scenario
from tests.fuzz.tries import Outcome, find_wrong_words
from tests.scenario.yaml_pieces import YAML_PIECES

_SHIPPED: Final = Path(__file__).parent.parent.parent / "scenarios"
_COUNTS: Final = (1, 1, 1, 2, 2, 3, 5)
_TEXT: Final = 0.3
"""Up to which part of all numbers the text is damaged, not the fields."""
_LIKELY: Final = 0.6
"""Of the others, those that stay near what can be planned."""

_GROWN: Final = 0.05
"""Of those with changed fields, files in which something stands hundreds or thousands of times."""

_VALUES: Final[tuple[object, ...]] = (
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        7,
        -1,
        64,
        10**6,
        10**9,
        2**31,
        2**63,
        2**64,
        10**40,
        0.0,
        -0.0,
        0.5,
        1e-300,
        1e308,
    ),
    *(
        math.inf,
        math.nan,
        "",
        " ",
        "x",
        "auto",
        "1",
        "1e5",
        "1e-3",
        "on",
        "no",
        "null",
        "a" * 300,
        "../../x",
        "/etc/passwd",
    ),
    *(
        "\x1b[31m",
        "\x07",
        "\u202e",
        "\x85",
        "日本",
        "[bold]x[/bold]",
        "{lowest step_time}",
        "{",
        "}",
        "a.b",
        "a:b",
        "*",
        "&a",
    ),
    *([], {}, [[]], [None], [1, 1], ["x"], {"a": 1}, {"kind": "ddp"}, {"kind": "x"}, {"": 1}, {1: 2}, {"kind": None}),
)
_PIECES: Final = (
    *YAML_PIECES,
    ".inf",
    "!!python/name:os ",
    "matrix:\n",
    "\x1b[2J",
    "\ufeff",
    "# ",
    "\n",
    "  ",
    "a: &x [*x]\n",
    "[" * 300,
    "{a: " * 200,
    "1" * 5000,
    "é",
    "\x85",
    "schema_version: 2\n",
)

Plain = Any
"""What YAML holds: mappings, lists and leaves."""


class Scenarios:
    """The fuzzer of scenario files."""

    block = 200

    def make(self, number: int, folder: Path) -> Path:
        """Write the scenario of a number."""
        chance = random.Random(f"scenarios {number}")
        text = chance.choice(_read_shipped())
        mode = chance.random()
        if mode > _TEXT:
            text = _mutate_fields(chance, text)
            if chance.random() < _GROWN:
                text = _write_anew(text, _grow, chance)
        content = text.encode("utf-8", "surrogatepass")
        if mode < _TEXT or mode > 0.95:
            content = _damage(chance, content)
        path = folder / "mine.yaml"
        path.write_bytes(content)
        return path

    def judge(self, target: Path) -> Outcome:
        """Check it, list it, and hold the two and its plan against what must be."""
        said, listed = io.StringIO(), _read_entry(CatalogEntry(target.stem, Origin.OWN, target, None))
        wrong = find_wrong_words((listed.error or "") if listed.error is None else _show(listed.error))
        document = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                check(str(target), [], as_json=False)
                with contextlib.redirect_stdout(document):
                    check(str(target), [], as_json=True)
            except (DtbenchError, typer.BadParameter) as error:
                print_error(str(error))
                wrong += find_wrong_words(said.getvalue())
                wrong += _find_silent(said.getvalue())
                return Outcome("refused", tuple(wrong))
        wrong += find_wrong_words(said.getvalue())
        if listed.error is not None:
            wrong.append(f"listed as broken, and checked as right: {listed.error}")
        wrong += [sentence for cell in json.loads(document.getvalue())["cells"] for sentence in _find_wrong_plan(cell)]
        return Outcome("planned", tuple(wrong))


def _show(words: str) -> str:
    """Return words as the command prints them."""
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown):
        print_error(words)
    return shown.getvalue()


def _find_silent(said: str) -> list[str]:
    return [] if len(said.strip()) > 20 else [f"refused in too few words: {said!r}"]


def _find_wrong_plan(cell: Mapping[str, Any]) -> Iterator[str]:
    """Say what a cell's plan has that no machine has, and whether its scenario reads back as itself."""
    plan = cell["plan"]
    ranks = math.prod(axis["size"] for axis in plan["mesh"])
    if plan["ranks"] < 1 or ranks != plan["ranks"]:
        yield f"{cell['name']}: {plan['ranks']} ranks on a mesh of {ranks}"
    for name in ("parameters", "state_bytes"):
        if plan[name] is not None and plan[name] < 0:
            yield f"{cell['name']}: {name} {plan[name]}"
    if cell["wire_bytes"] is not None and cell["wire_bytes"] < 0:
        yield f"{cell['name']}: wire {cell['wire_bytes']}"
    again = Scenario.model_validate_json(json.dumps(cell["scenario"])).model_dump(mode="json")
    if again != cell["scenario"]:
        yield f"{cell['name']}: does not read back as itself"


@cache
def _read_shipped() -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in sorted(_SHIPPED.rglob("*.yaml")))


@cache
def _read_words() -> tuple[tuple[str, ...], tuple[object, ...]]:
    """Return every name of a field and every value that the schema lists."""
    names: dict[str, None] = {}
    values: dict[str, object] = {}

    def look(node: object) -> None:
        if isinstance(node, dict):
            names.update(dict.fromkeys(node.get("properties", {})))
            listed = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
            values.update({repr(one): one for one in listed})
            for one in node.values():
                look(one)
        if isinstance(node, list):
            for one in node:
                look(one)

    look(make_file_schema())
    return tuple(names), tuple(values.values())


@cache
def _read_seen() -> Mapping[str, Mapping[str, tuple[object, ...]]]:
    """Return by section, as in ``model:``, which values its fields have in any of the shipped scenarios."""
    seen: dict[str, dict[str, dict[str, object]]] = {}

    def look(node: Plain, section: str) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            seen.setdefault(section, {}).setdefault(str(key), {})[repr(value)] = value
            look(value, str(key))
        for one in node if isinstance(node, list) else ():
            look(one, section)

    for text in _read_shipped():
        look(yaml.safe_load(text), "")
    return {section: {key: tuple(of.values()) for key, of in fields.items()} for section, fields in seen.items()}


def _say_seen(chance: random.Random, root: Plain) -> None:
    """Add to a section a field with a value that it has in another scenario."""
    seen = _read_seen()
    sections = [(root, seen[""])]
    sections += [(value, seen[key]) for key, value in root.items() if isinstance(value, dict) and key in seen]
    for cell in root["cells"].values() if isinstance(root.get("cells"), dict) else ():
        if isinstance(cell, dict):
            sections += [(value, seen[key]) for key, value in cell.items() if isinstance(value, dict) and key in seen]
    node, fields = chance.choice(sections)
    key = chance.choice(list(fields))
    node[key] = copy.deepcopy(chance.choice(fields[key]))


def _mutate_fields(chance: random.Random, text: str) -> str:
    """Change fields of a scenario, and write it anew below its question."""

    def mutate(chance: random.Random, root: Plain) -> None:
        mutations = (_say_seen, _scale) if chance.random() < _LIKELY else _MUTATIONS
        for _ in range(chance.choice(_COUNTS)):
            chance.choice(mutations)(chance, root)

    return _write_anew(text, mutate, chance)


def _write_anew(text: str, change: Callable[[random.Random, Plain], None], chance: random.Random) -> str:
    root: Plain = yaml.safe_load(text)
    change(chance, root)
    question = text.split("\n", 1)[0]
    return f"{question}\n{yaml.safe_dump(root, sort_keys=False, allow_unicode=True)}"


def _choose_place(chance: random.Random, root: Plain) -> tuple[Any, Any] | None:
    """Choose a mapping or list, and a key or place in it."""
    places: list[tuple[Any, Any]] = []

    def look(node: Plain) -> None:
        if isinstance(node, dict | list):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                look(node[key])

    look(root)
    return chance.choice(places) if places else None


def _set_value(chance: random.Random, root: Plain) -> None:
    place = _choose_place(chance, root)
    if place is not None:
        node, key = place
        node[key] = copy.deepcopy(chance.choice(_VALUES if chance.random() < 0.6 else _read_words()[1]))


def _scale(chance: random.Random, root: Plain) -> None:
    """Make a number another one of its kind."""
    for _ in range(20):
        node, key = _choose_place(chance, root) or ({}, None)
        value = node[key] if key is not None else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            node[key] = chance.choice([value + 1, value - 1, value * 2, value * 1000, -value, value * 3, 0, value / 2])
            return


def _drop(chance: random.Random, root: Plain) -> None:
    place = _choose_place(chance, root)
    if place is not None:
        node, key = place
        del node[key]


def _add(chance: random.Random, root: Plain) -> None:
    """Add to a mapping a field that some scenario may have."""
    names, values = _read_words()
    place = _choose_place(chance, root)
    node = root if place is None or chance.random() < 0.3 else place[0]
    if isinstance(node, dict):
        node[chance.choice([*names, "x", "", "\x1b[2J", 5, "kind "])] = copy.deepcopy(
            chance.choice([*_VALUES, *values])
        )
    else:
        node.append(copy.deepcopy(chance.choice([*_VALUES, *values])))


def _rename(chance: random.Random, root: Plain) -> None:
    place = _choose_place(chance, root)
    if place is not None and isinstance(place[0], dict):
        node, key = place
        node[chance.choice([*_read_words()[0], f"{key}s", str(key).upper(), f"{key}.x", ""])] = node.pop(key)


def _graft(chance: random.Random, root: Plain) -> None:
    """Take a part of another scenario, in its own place or another one."""
    other: Plain = yaml.safe_load(chance.choice(_read_shipped()))
    place, source = _choose_place(chance, root), _choose_place(chance, other)
    if source is None:
        return
    value = source[0][source[1]]
    if chance.random() < 0.6 and isinstance(source[0], dict):
        root[source[1]] = value
    elif place is not None:
        place[0][place[1]] = value


def _multiply(chance: random.Random, root: Plain) -> None:
    """Sweep a field over values, or have many cells."""
    values = chance.sample(range(100), chance.choice([1, 2, 5]))
    field = chance.choice(["seed", "repeat", "model.layers", "data.global_batch", "parallel.kind", "x.y", "model"])
    if chance.random() < 0.6:
        root["matrix"] = (
            {**(root.get("matrix") or {}), field: values} if isinstance(root.get("matrix"), dict) else {field: values}
        )
    else:
        root["cells"] = {f"c{value}": {field.split(".")[0]: value} for value in values}


def _grow(chance: random.Random, root: Plain) -> None:
    """Let lists and mappings have what they have very often, each time a little unlike; and layers be many."""
    for _ in range(chance.choice([1, 1, 2])):
        node, key = _choose_place(chance, root) or (root, "cells")
        count = chance.choice([150, 900, 3500])
        value = node[key]
        if isinstance(node, dict):
            node.update({f"{key}{number}": copy.deepcopy(value) for number in range(count)})
        else:
            node.extend(f"{value}{number}" if isinstance(value, str) else number for number in range(count))
    if chance.random() < 0.3 and isinstance(root.get("model"), dict):
        root["model"]["layers"] = chance.choice([100, 1000, 10_000])
    if chance.random() < 0.3:
        root["matrix"] = {"seed": list(range(chance.choice([10, 100, 1000])))}


_MUTATIONS: Final[tuple[Callable[[random.Random, Plain], None], ...]] = (
    *(_set_value, _set_value, _scale, _say_seen, _drop, _add, _add, _rename, _graft, _graft, _multiply),
)


def _damage(chance: random.Random, content: bytes) -> bytes:
    """Damage the text of a file: its lines, its letters, its bytes."""
    text = bytearray(content)
    for _ in range(chance.choice(_COUNTS)):
        place = chance.randrange(len(text) + 1)
        match chance.randrange(7):
            case 0 | 1:
                text[place:place] = chance.choice(_PIECES).encode("utf-8", "surrogatepass")
            case 2:
                del text[place : place + chance.choice([1, 2, 5, 40])]
            case 3:
                lines = bytes(text).splitlines(keepends=True)
                chance.shuffle(lines) if chance.random() < 0.3 else lines.extend(
                    lines[: chance.randrange(len(lines) + 1)]
                )
                text = bytearray(b"".join(lines))
            case 4 if place < len(text):
                text[place] ^= 1 << chance.randrange(8)
            case 5:
                del text[place:]
            case _:
                text[place:place] = text[place : place + chance.randint(1, 200)]
    return bytes(text)

"""What torch has under the names that dtbench uses: what each is, with which parameters, defaults and members."""

import ast
import enum
import importlib
import inspect
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist

from dtbench.worker.torch_facts.facts import ABSENT, CLASS_OF, KNOBS, Kind, is_enumerated

Fact = tuple[Kind, str, str]
"""Kind, name, and what is said of it."""

_CONFIGS: Final = ("torch._dynamo.config", "torch._inductor.config")
_CONFIG_WORDS: Final = re.compile(r"overlap|bucket|ddp|collective|comm(?!ent)|fsdp|compiled_autograd")
_LONGEST_QUESTION: Final = 120
"""Letters of an expression that asks for a variable."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]{6,}")
_VARIABLE: Final = re.compile(r"\b(?:TORCH|NCCL|GLOO)_[A-Z][A-Z0-9_]{3,}")


def describe_names(names: Iterable[str], private: Collection[str]) -> Iterator[Fact]:
    """Yield what torch has under each dotted name.

    Args:
        names: as ``Uses.names``.
        private: names of private attributes that are looked at where a class has them.
    """
    for name in sorted({*names} - _VERSIONS):
        found = find_object(name)
        yield Kind.NAME, name, ABSENT if found is _NOTHING else _say_what(found)
        if found is _NOTHING:
            continue
        yield from _describe_parameters(name, found)
        if inspect.isclass(found) and is_enumerated(_say_what(found)):
            yield from _describe_class(name, found, private)


_NOTHING: Final = object()
_VERSIONS: Final = {"torch.__version__", "torch.version.cuda"}
"""Of every torch otherwise, by what they are."""
_IN_C: Final = "torch._C."


def find_object(name: str) -> Any:
    """Return what a dotted name stands for; ``_NOTHING`` where there is no such thing."""
    found: Any = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if (inner := getattr(found, part, _NOTHING)) is _NOTHING:
            inner = _import(path) if isinstance(found, types.ModuleType) else _NOTHING
        if inner is _NOTHING:
            return _NOTHING
        found = inner
    return found


def _import(path: str) -> Any:
    """Return a module that nobody has imported yet; none of C++, which cannot be imported twice."""
    if path.startswith(_IN_C):
        return sys.modules.get(path, _NOTHING)
    try:
        return importlib.import_module(path)
    except ImportError:
        return _NOTHING


def _say_what(found: Any) -> str:
    """Say what it is and where it is defined; of a small constant its value."""
    if isinstance(found, types.ModuleType):
        return "module"
    if inspect.isclass(found):
        return f"{CLASS_OF}{found.__module__}"
    if callable(found):
        return f"function of {getattr(found, '__module__', None) or 'torch'}"
    is_plain = isinstance(found, bool | int | float | str | tuple | torch.dtype)
    return f"value {_spell(found)}" if is_plain else f"{type(found).__name__}"


def _spell(value: Any) -> str:
    if isinstance(value, types.ModuleType):  # whose text says where it is installed
        return f"module {value.__name__}"
    text = _ADDRESS.sub("", repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _describe_parameters(name: str, found: Any) -> Iterator[Fact]:
    """Yield a fact for each parameter, with its default; of what C++ made, for the signatures that it documents."""
    if not callable(found):
        return
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        documented = [line.strip() for line in (found.__doc__ or "").splitlines() if "(self: " in line and "->" in line]
        yield from ((Kind.PARAMETER, f"{name}(...)", _spell_documented(line)) for line in documented[:1])
        return
    for place, parameter in enumerate(signature.parameters.values()):
        how = "keyword only" if parameter.kind is parameter.KEYWORD_ONLY else f"number {place}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            how = "any number"
        is_required = parameter.default is parameter.empty
        default = "" if is_required or how == "any number" else f", default {_spell(parameter.default)}"
        yield Kind.PARAMETER, f"{name}({parameter.name})", f"{how}{default}"


def _spell_documented(line: str) -> str:
    return re.sub(r"\s+", " ", _ADDRESS.sub("", line))


def _describe_class(name: str, found: Any, private: Collection[str]) -> Iterator[Fact]:
    """Yield the members of an enumeration; of any other class its methods, public ones and those that are used."""
    if issubclass(found, enum.Enum):
        yield from ((Kind.MEMBER, f"{name}.{one.name}", _spell(one.value)) for one in found)
        return
    if (members := getattr(found, "__members__", None)) is not None:  # of an enumeration that C++ made
        yield from ((Kind.MEMBER, f"{name}.{one}", _spell(int(value))) for one, value in members.items())
        return
    for attribute in dir(found):
        home = next((one for one in found.__mro__ if attribute in vars(one)), object)
        is_torchs = (home.__module__ or "").startswith(KNOBS)
        if not is_torchs or (attribute.startswith("_") and attribute not in private):
            continue
        what = getattr(found, attribute, None)
        yield Kind.NAME, f"{name}.{attribute}", _say_what(what) if callable(what) else "attribute"
        yield from _describe_parameters(f"{name}.{attribute}", what)


def describe_engines() -> Iterator[Fact]:
    """Yield which engine each kind of device and backend gets, and how long a collective may take."""
    backend = dist.Backend
    defaults = backend.default_device_backend_map
    yield from ((Kind.ENGINE, f"backend of {device}", _spell(name)) for device, name in defaults.items())
    yield from ((Kind.ENGINE, f"backend {name}", "there") for name in backend.backend_list)
    yield from (
        (Kind.ENGINE, f"devices of {name}", _spell(devices)) for name, devices in backend.backend_capability.items()
    )
    constants = importlib.import_module("torch.distributed.constants")
    yield Kind.ENGINE, "default timeout", _spell(constants.default_pg_timeout)


def describe_configuration() -> Iterator[Fact]:
    """Yield the defaults of the compilers' switches that concern communication, and variables that torch reads."""
    for module in _CONFIGS:
        for name, value in sorted(find_object(module).get_config_copy().items()):
            if _CONFIG_WORDS.search(name) and not callable(value):
                yield Kind.CONFIG, f"{module}.{name}", _spell(value)
    yield from _describe_variables(inspect.getsource(dist.distributed_c10d))


def _describe_variables(source: str) -> Iterator[Fact]:
    """Yield how each variable of the environment is asked for, with what it is compared: that is its default."""
    asked: dict[str, set[str]] = {name: set() for name in _VARIABLE.findall(source)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.Call) and "environ" in (text := ast.unparse(node)):
            for name in _VARIABLE.findall(text):
                if len(text) <= _LONGEST_QUESTION:
                    asked[name].add(text)
    for name, texts in sorted(asked.items()):
        whole = (text for text in sorted(texts) if not any(text in other for other in texts - {text}))
        yield Kind.VARIABLE, name, "; ".join(whole) or "named"

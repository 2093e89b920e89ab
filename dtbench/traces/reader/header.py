"""What stands around the events: who this rank is and where it ran, and the process groups of the job."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

_DISTRIBUTED: Final = re.compile(r'"distributedInfo"\s*:\s*(?=\{)')
_HOST: Final = re.compile(r'"host_name"\s*:\s*(?=")')
_BASE: Final = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_DEVICES: Final = re.compile(r'"deviceProperties"\s*:\s*(?=\[)')
_NCCL: Final = re.compile(r'"nccl_version"\s*:\s*"([^"]+)"')
_CUDA: Final = re.compile(r'"cuda_(runtime|driver)_version"\s*:\s*(\d+)\b')
_HIP: Final = re.compile(r'"hip_(runtime|driver)_version"\s*:\s*(\d+)\b')
_OPTION: Final = re.compile(r'"(with_stack|record_shapes|profile_memory|with_modules|with_flops)"\s*:\s*"?1\b')
_OPTIONS: Final = ("with_stack", "record_shapes", "profile_memory", "with_modules", "with_flops")
PROFILERS: Final = "profiler's "
"""What stands before the name of an option of torch's profiler in ``Origin.machine``."""

_MOST_RANKS: Final = 1 << 22
"""More ranks than any job has: a larger number was not read rightly."""
_LENIENT: Final = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class Distributed:
    """Kineto's ``distributedInfo``; None and empty where it does not say."""

    rank: int | None = None
    world_size: int | None = None
    descriptions: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)


def read_distributed(*texts: bytes) -> Distributed:
    """Find it in the text before or after the events; what cannot be read is as if it were not there."""
    for raw in texts:
        text = raw.decode("utf-8", "replace")
        match = _DISTRIBUTED.search(text)
        if match is None:
            continue
        try:
            info, _ = _LENIENT.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        return _read_info(info)
    return Distributed()


@dataclass(frozen=True)
class Origin:
    """Where and from when on the events were recorded; None: the trace does not say.

    Attributes:
        host: Kineto's ``host_name``, whose ranks share a clock, unless containers bear one name on many machines.
        base_ns: Kineto's ``baseTimeNanoseconds``, Unix time of the zero of the events' times.
        machine: what it tells of the software that drives devices, as text by name: ``CUDA runtime``, ``CUDA driver``,
            ``HIP runtime``, ``HIP driver``, ``nccl``; and of each option of torch's profiler whether it is ``on`` or
            ``off``: ``profiler's with_stack``.
        devices: names of the devices that the process saw, used or not, by id (Kineto's ``deviceProperties``).
    """

    host: str | None = None
    base_ns: int | None = None
    machine: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)


def read_origin(*texts: bytes) -> Origin:
    """Find host and base in the text before or after the events; what cannot be read is as if it were not there."""
    host, base_ns, machine, devices = None, None, dict[str, str](), dict[str, str]()
    for raw in texts:
        text = raw.decode("utf-8", "replace")
        machine = {**_read_machine(text), **machine}
        devices = devices or _read_devices(text)
        host = host or _read_host(text)
        found = _BASE.search(text)
        if base_ns is None and found is not None:
            base_ns = int(found[1])
    return Origin(host, base_ns, {**machine, **_read_options(texts)}, devices)


def _read_options(texts: Iterable[bytes]) -> dict[str, str]:
    """Find how the profiler was set; empty: nothing tells.

    ``torch.profiler.profile`` writes options that are on, and none that is off; who writes ``distributedInfo``, too, is
    it.
    """
    spelled = [raw.decode("utf-8", "replace") for raw in texts]
    on = {found for text in spelled for found in _OPTION.findall(text)}
    if not on and not any(_DISTRIBUTED.search(text) for text in spelled):
        return {}
    return {f"{PROFILERS}{name}": "on" if name in on else "off" for name in _OPTIONS}


def _read_machine(text: str) -> dict[str, str]:
    """Find what a text tells of software; numbers are CUDA's ``12040`` and HIP's ``60443483``."""
    told = {f"CUDA {one[1]}": f"{int(one[2]) // 1000}.{int(one[2]) % 1000 // 10}" for one in _CUDA.finditer(text)}
    told |= {
        f"HIP {one[1]}": f"{int(one[2]) // 10**7}.{int(one[2]) // 10**5 % 100}.{int(one[2]) % 10**5}"
        for one in _HIP.finditer(text)
    }
    found = _NCCL.search(text)
    return {name: words for name, words in (*told.items(), ("nccl", found and found[1])) if words}


def _read_devices(text: str) -> dict[str, str]:
    """Find the names of the devices that the process saw, by id; empty: it saw none, or they cannot be read."""
    found = _DEVICES.search(text)
    if found is None:
        return {}
    try:
        devices, _ = _LENIENT.raw_decode(text, found.end())
    except (ValueError, RecursionError):
        return {}
    return {
        str(one.get("id", place)): str(one["name"])
        for place, one in enumerate(devices)
        if isinstance(one, dict) and one.get("name")
    }


def _read_host(text: str) -> str | None:
    found = _HOST.search(text)
    if found is None:
        return None
    try:
        host, _ = _LENIENT.raw_decode(text, found.end())
    except ValueError:
        return None
    return host.strip() or None


def _read_info(info: dict[str, Any]) -> Distributed:
    config = info.get("pg_config")
    groups = [group for group in config if isinstance(group, dict)] if isinstance(config, list) else []
    return Distributed(
        rank=_to_count(info.get("rank")),
        world_size=_to_count(info.get("world_size")) or None,
        descriptions={
            str(group["pg_name"]): str(group["pg_desc"])
            for group in groups
            if group.get("pg_name") is not None and group.get("pg_desc") is not None
        },
        ranks={
            str(group["pg_name"]): ranks
            for group in groups
            if group.get("pg_name") is not None and (ranks := _to_ranks(group.get("ranks")))
        },
    )


def _to_count(value: object) -> int | None:
    """Read a number of ranks, also one written as text (on-demand traces); None for what can be none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_RANKS else None


def _to_ranks(value: object) -> tuple[int, ...]:
    """Read a list of ranks, also one written as text; ``()`` where it is shortened."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(value, list) or not all(isinstance(rank, int) for rank in value):
        return ()
    return tuple(value)

"""The accelerator that this process computes on, and the module of torch that drives it.

Nobody else in the worker names one: ``torch.cuda`` and the like answer to the same names for events, memory and
synchronising, so that another kind of accelerator is a row in ``_MEASURED``. What only CUDA has (its ``_sleep``, NCCL)
asks ``torch.cuda`` where it is used, and says so there.
"""

from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity

from dtbench.base.errors import CaptureError
from dtbench.base.vocabulary import DeviceKind
from dtbench.store.records.run import Device

_MEASURED: Final = {DeviceKind.CUDA.value: DeviceKind.CUDA}
"""What torch calls the accelerators whose work dtbench times; ROCm's are ``cuda`` to torch."""
_MUCH_MORE: Final = 10
"""A device that holds so many times what the current one holds is the one that a rank computes on."""


def find_module(kind: str) -> Any | None:
    """Return torch's module of a type of device (``torch.cuda``); None for ``cpu``, whose work is the host's own."""
    return None if kind == DeviceKind.CPU else torch.get_device_module(kind)


def settle(device: torch.device) -> None:
    """Wait until a device has done what it was given; on CPU it has."""
    if (module := find_module(device.type)) is not None:
        module.synchronize(device)


def find_activities(kind: str) -> list[ProfilerActivity]:
    """Return what the profiler records of a type of device."""
    own = [] if kind == DeviceKind.CPU else [getattr(ProfilerActivity, kind.upper())]
    return [ProfilerActivity.CPU, *own]


def describe_devices() -> tuple[Device, ...]:
    """Return the devices of this machine that this process may use."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ()
    module = torch.get_device_module(accelerator.type)
    return tuple(_describe(module.get_device_properties(index)) for index in range(module.device_count()))


def _describe(properties: Any) -> Device:
    capability = f"{properties.major}.{properties.minor}" if hasattr(properties, "major") else ""  # CUDA's and ROCm's
    return Device(name=properties.name, memory_bytes=properties.total_memory, capability=capability)


def find_device(config: str) -> DeviceKind:
    """Return where this rank computes.

    Args:
        config: as torch writes what its group has for each device: ``cpu:gloo,cuda:nccl``; empty without a group.

    Raises:
        CaptureError: on an accelerator that dtbench does not time: the host's clock would not see its work.
    """
    used = _find_used(config)
    if used is None:
        return DeviceKind.CPU
    if used not in _MEASURED:
        raise CaptureError(
            f"this rank computes on an accelerator that torch calls {used!r}, and dtbench.capture times CPUs, CUDA and "
            "ROCm: here it would time the host, which does not wait for the device. Record a trace with "
            "torch.profiler, and read it with dtbench.read_trace or `dtbench analyze`"
        )
    return _MEASURED[used]


def _find_used(config: str) -> str | None:
    """Return the accelerator in use: the group serves nothing else, or a model that was moved there has begun it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return None
    kind = accelerator.type
    serves_nothing_else = bool(config) and all(part.startswith(f"{kind}:") for part in config.split(","))
    has_begun = getattr(torch.get_device_module(kind), "is_initialized", None)
    return kind if serves_nothing_else or (has_begun is not None and has_begun()) else None


def find_device_problem(cuda: Any = torch.cuda) -> str | None:
    """Say that this rank computes on another device than its current one, whose streams are timed; None: it does not.

    Args:
        cuda: ``torch.cuda``, or what stands in for it.
    """
    if not (cuda.is_available() and cuda.is_initialized()):
        return None
    held = [cuda.memory_allocated(index) for index in range(cuda.device_count())]
    current, fullest = cuda.current_device(), max(range(len(held)), key=held.__getitem__)
    if held[current] * _MUCH_MORE >= held[fullest]:
        return None
    return (
        f"its tensors are on cuda:{fullest}, but its current device is cuda:{current}, whose streams would be timed; "
        f"call torch.cuda.set_device({fullest}) before anything is put on a device"
    )

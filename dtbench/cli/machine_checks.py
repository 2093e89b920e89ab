"""What ``dtbench doctor`` looks at: software, cores, memory, disk and network, and which scenarios can run on them."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dtbench.base.commands import spell_word
from dtbench.machine.processes import count_cores

if TYPE_CHECKING:
    from dtbench.cli.torch_probe import NoTorch, Torch
    from dtbench.plan.plan import Machine
    from dtbench.scenario.catalog import ListedScenario

_LITTLE_DISK_BYTES = 2 * 1024**3
"""A run of a few ranks writes tens of MiB; its traces under many can write hundreds."""

_HOW_TO_GET_TORCH = (
    "install it as your cluster says, or `pip install '.[run]'` in dtbench's folder; "
    "`dtbench analyze` and reports need no torch"
)


class Finding(NamedTuple):
    """One thing that was looked at; ``advice`` is None where nothing needs to be done."""

    what: str
    found: str
    advice: str | None = None


class Ability(NamedTuple):
    """Whether a scenario can run here; ``words`` say how, or why not."""

    scenario: str
    can_run: bool
    words: str


class LookedAt(NamedTuple):
    """Everything that was found."""

    findings: list[Finding]
    abilities: list[Ability]
    torch: "Torch | NoTorch"
    machine: "Machine"


def look_at_machine(results: Path) -> LookedAt:
    """Look at this machine, at where runs are written, and at all scenarios that are shown."""
    import psutil

    from dtbench.cli.torch_probe import Torch, probe_torch
    from dtbench.plan.plan import Machine
    from dtbench.scenario.catalog import list_scenarios

    torch = probe_torch()
    devices = len(torch.devices) if isinstance(torch, Torch) else 0
    memory_bytes = psutil.virtual_memory().total
    version = torch.version if isinstance(torch, Torch) else None
    machine = Machine(cpu_cores=count_cores(), cuda_devices=devices, memory_bytes=memory_bytes, torch=version)
    findings = [*check_software(torch), *check_machine(machine, results)]
    abilities = [judge_scenario(listed, torch, machine) for listed in list_scenarios() if not listed.entry.hidden_by]
    return LookedAt(findings, abilities, torch, machine)


def check_software(torch: "Torch | NoTorch") -> list[Finding]:
    """Look at Python, dtbench, torch and what it brings, and TensorBoard."""
    import platform

    from dtbench import __version__
    from dtbench.cli.torch_probe import NoTorch

    findings = [Finding("Python", platform.python_version()), Finding("dtbench", __version__)]
    if isinstance(torch, NoTorch):
        findings.append(Finding("torch", torch.reason, _HOW_TO_GET_TORCH))
    else:
        findings += _check_torch(torch)
    findings.append(_check_tensorboard())
    return findings


def _check_torch(torch: "Torch") -> list[Finding]:
    from dtbench.base.torch_versions import spell_tested_torch
    from dtbench.base.units import format_bytes

    untested = f"dtbench was tested with torch {spell_tested_torch()}; others may work, and each run records a warning"
    no_gloo = "CPU runs need a torch that was built with gloo"
    devices = [
        Finding(f"GPU {index}", f"{device.name}, {format_bytes(device.memory_bytes)}")
        for index, device in enumerate(torch.devices)
    ]
    return [
        Finding("torch", torch.version, None if torch.is_tested else untested),
        Finding("gloo", "yes" if torch.has_gloo else "no", None if torch.has_gloo else no_gloo),
        Finding("NCCL", _describe_nccl(torch)),
        *(devices or [Finding("GPUs", _why_no_gpu(torch))]),
    ]


def _describe_nccl(torch: "Torch") -> str:
    if torch.nccl is None:
        return "none"
    return torch.nccl if torch.devices else f"{torch.nccl}, of no use without a GPU"


def _why_no_gpu(torch: "Torch") -> str:
    if torch.cuda is None:
        return "none: this torch is built for CPU; everything runs over gloo"
    return f"none: torch is built for CUDA {torch.cuda} but sees no device; `nvidia-smi` shows whether the driver does"


def _check_tensorboard() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding("TensorBoard", version("tensorboard"))
    except PackageNotFoundError:
        return Finding("TensorBoard", "not installed", "`pip install tensorboard`")


def check_machine(machine: "Machine", results: Path) -> list[Finding]:
    """Look at cores, memory, disk and the network that ranks on one machine talk over."""
    import os

    import psutil

    from dtbench.base.units import format_bytes

    memory = psutil.virtual_memory()
    return [
        Finding("CPU cores", str(machine.cpu_cores)),
        Finding("memory", f"{format_bytes(memory.available)} free of {format_bytes(memory.total)}"),
        check_disk(results),
        check_interface(os.environ.get("GLOO_SOCKET_IFNAME"), sorted(psutil.net_if_addrs())),
    ]


def check_disk(results: Path) -> Finding:
    """Look at the free space where runs are written, or will be once the folder exists."""
    import shutil

    from dtbench.base.units import format_bytes

    existing = next(folder for folder in (results.absolute(), *results.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    advice = None
    if free_bytes < _LITTLE_DISK_BYTES:
        advice = "traces need room: free some, or give a run another folder with --results"
    return Finding("disk", f"{format_bytes(free_bytes)} free for {results}", advice)


def check_interface(wanted: str | None, interfaces: list[str]) -> Finding:
    """Look at the network interface over which gloo's ranks will talk.

    Args:
        wanted: ``GLOO_SOCKET_IFNAME``; None: not set, then a run takes the loopback interface.
        interfaces: names of this machine's interfaces.
    """
    loopback = [name for name in interfaces if name in ("lo", "lo0")]
    names = ", ".join(interfaces) or "none"
    if wanted is None:
        advice = None if loopback else f"set GLOO_SOCKET_IFNAME to the interface that ranks shall use: {names}"
        return Finding("gloo's interface", loopback[0] if loopback else "no loopback interface", advice)
    if wanted not in interfaces:
        advice = f"there is no such interface ({names}): unset GLOO_SOCKET_IFNAME, then runs use loopback"
        return Finding("gloo's interface", f"GLOO_SOCKET_IFNAME={wanted}", advice)
    return Finding("gloo's interface", f"{wanted}, by GLOO_SOCKET_IFNAME")


def judge_scenario(listed: "ListedScenario", torch: "Torch | NoTorch", machine: "Machine") -> Ability:
    """Say whether a scenario can run here, by planning each of its cells."""
    from dtbench.base.errors import PlanError
    from dtbench.cli.torch_probe import NoTorch
    from dtbench.plan.cells import refuse_too_many_blocks
    from dtbench.plan.plan import make_plan
    from dtbench.scenario.load import load_scenario_file

    name = listed.entry.name
    if listed.error is not None:
        return Ability(
            name, can_run=False, words=f"the file has mistakes, `dtbench check {spell_word(name)}` shows them"
        )
    if isinstance(torch, NoTorch):  # also it is not known then how many GPUs there are
        return Ability(name, can_run=False, words=f"torch: {torch.reason}")
    try:
        file = load_scenario_file(listed.entry.path)
        refuse_too_many_blocks(file)
        plans = [make_plan(cell.scenario, machine) for cell in file.cells]
    except PlanError as refusal:
        return Ability(name, can_run=False, words=str(refusal).splitlines()[0])
    if not torch.has_gloo and any(plan.backend == "gloo" for plan in plans):
        return Ability(name, can_run=False, words="this torch has no gloo")
    ranks = sorted({plan.ranks for plan in plans})
    backends = " and ".join(sorted({plan.backend for plan in plans}))
    counted = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    return Ability(name, can_run=True, words=f"{counted} {'rank' if ranks == [1] else 'ranks'} on {backends}")

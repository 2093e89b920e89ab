"""A folder that looks like Linux's ``/proc``, of processes that a test makes up."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtbench.machine.processes import ProcTree

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass
class MadeProc:
    """Processes with CPU times that a test sets; ``cpu_ns`` is what their clocks say."""

    root: Path
    cpu_ns: dict[int, int] = field(default_factory=dict)

    @property
    def tree(self) -> ProcTree:
        return ProcTree(self.root, self.cpu_ns.get, self.root / "cgroup")

    def put(self, pid: int, parent: int, command: str, *, name: str | None = None, cpu_ns: int = 0) -> None:
        """Start a process; a command of no word is a thread of the kernel."""
        folder = self.root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        words = command.split()
        name = name or Path(words[0]).name
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
        self.cpu_ns[pid] = cpu_ns

    def spend(self, **cpu_ns: int) -> None:
        """Let processes have CPU time: ``spend(p7=5)``."""
        for name, ns in cpu_ns.items():
            self.cpu_ns[int(name[1:])] += ns

    def end(self, pid: int) -> None:
        """A process is gone."""
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.root / str(pid)).rmdir()
        del self.cpu_ns[pid]

    def wait(self, pid: int, turns: Mapping[int, tuple[int, int]]) -> None:
        """Say how long each thread stood ready in all, and how often it ran."""
        for thread, (waited_ns, count) in turns.items():
            folder = self.root / str(pid) / "task" / str(thread)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"1 {waited_ns} {count}\n")

    def tick(self, *, busy: int, idle: int) -> None:
        """Say what all cores spent, in ticks."""
        (self.root / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n")

"""Slurm itself, of two nodes, on this machine: a controller and two node daemons that the tests start and end.

Both nodes are this machine under two addresses of its loopback, which resolve wherever a test runs. Slurm gives jobs
away and starts their tasks as it does elsewhere; what it does not do here is to confine them (no cgroups).
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DAEMONS: Final = ("munged", "slurmctld", "slurmd")
CLIENTS: Final = ("sbatch", "salloc", "srun", "scontrol", "scancel", "squeue", "sinfo")
NODES: Final = ("127.0.0.1", "127.0.0.2")
_PATIENCE_S: Final = 60.0

_CONF: Final = """\
ClusterName=dtbench
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
ReturnToService=2
KillWait=10
NodeName={first} NodeHostname=localhost NodeAddr={first} Port={port_1} CPUs=2
NodeName={second} NodeHostname=localhost NodeAddr={second} Port={port_2} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A cluster of two nodes.

    Attributes:
        variables: environment of every process that is to find it.
    """

    variables: dict[str, str]

    def ask(self, *command: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run a command that finds this cluster."""
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def find_state(self, job: str) -> str:
        """Return the state of a job, such as ``RUNNING``; empty: it is not known any more."""
        said = self.ask("scontrol", "show", "job", job, "--oneliner").stdout
        return next((word.partition("=")[2] for word in said.split() if word.startswith("JobState=")), "")


def find_lack() -> str | None:
    """Say why Slurm cannot be started here; None: it can."""
    absent = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name) is None]
    if absent:
        return f"Slurm is not installed here (no {', '.join(absent)})"
    return None if os.geteuid() == 0 else "Slurm's node daemons must be started by root"


@contextmanager
def start_slurm(folder: Path) -> Iterator[Slurm]:
    """Start a cluster, whose files lie in a folder, and end it and whatever it runs.

    Raises:
        RuntimeError: its nodes do not come up; says what the daemons wrote.
    """
    (folder / "state").mkdir()
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    conf = folder / "slurm.conf"
    controller, *ports = _find_ports(3)
    named = {"first": NODES[0], "second": NODES[1], "port_1": ports[0], "port_2": ports[1]}
    conf.write_text(_CONF.format(folder=folder, controller=controller, **named), encoding="utf-8")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")
    slurm = Slurm({**os.environ, "SLURM_CONF": str(conf)})
    munge = [f"--{name}={folder}/munge.{ending}" for name, ending in (("key-file", "key"), ("socket", "socket"))]
    munge += [f"--{name}={folder}/munge.{ending}" for name, ending in (("pid-file", "pid"), ("seed-file", "seed"))]
    daemons = [
        ["munged", "--foreground", "--force", *munge],
        ["slurmctld", "-D", "-f", str(conf)],
        *(["slurmd", "-D", "-N", node, "-f", str(conf)] for node in NODES),
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "daemons.log").open("wb") as log:
            for command in daemons:
                started.append(
                    subprocess.Popen(command, env=slurm.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )
                if command[0] == "munged":
                    await_that((folder / "munge.socket").exists, "munged listens")
        try:
            await_that(lambda: slurm.ask("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2", "nodes idle")
        except TimeoutError as error:
            raise RuntimeError(_read_logs(folder)) from error
        yield slurm
    finally:
        slurm.ask("scancel", "--full", "--signal=KILL", "--state=RUNNING", "--me")
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _find_ports(count: int) -> list[int]:
    """Return ports that nothing listens at."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def _read_logs(folder: Path) -> str:
    logs = sorted(folder.glob("*.log"))
    return "\n".join(f"{log.name}:\n{log.read_text(encoding='utf-8', errors='replace')[-1500:]}" for log in logs)


def await_that(holds: Callable[[], bool], what: str, timeout_s: float = _PATIENCE_S) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it does not in time; says what.
    """
    end_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.1)

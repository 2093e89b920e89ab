"""Start the agents of nodes: of node 0 as a process here, of a Slurm job's nodes by ``srun``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dtbench.base.errors import MissingError
from dtbench.launch.nodes import Nodes

_AGENT: Final = (sys.executable, "-P", "-m", "dtbench.launch.cluster.agent")
_WAIT_S: Final = 60
"""An agent is started when node 0 listens already."""


def spawn_here(nodes: Nodes, prepared: Path, endpoint: str) -> Sequence["subprocess.Popen[bytes]"]:
    """Start the agent of node 0: the other nodes have been started by somebody else."""
    return [_start([*_AGENT, *_describe(nodes, endpoint), "--node", "0", "--prepared", str(prepared)])]


def spawn_by_srun(nodes: Nodes, endpoint: str) -> Sequence["subprocess.Popen[bytes]"]:
    """Start an agent on every node of this Slurm job.

    Raises:
        MissingError: there is no ``srun``.
    """
    if shutil.which("srun") is None:
        raise MissingError(
            f"this is a Slurm job of {nodes.count} nodes, and there is no `srun` here to start ranks on them; without "
            "SLURM_JOB_ID ranks run on this machine alone"
        )
    return [_start([*spell_srun(nodes.count), *_AGENT, *_describe(nodes, endpoint)])]


def spell_srun(count: int) -> list[str]:
    """Return the command by which one task starts on each of so many nodes, with all of its cores and GPUs.

    Not ``--unbuffered``, which gives tasks a terminal: a job's log would have colours.
    """
    each = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
    return ["srun", *each, "--cpu-bind=none", "--kill-on-bad-exit=0", "--overlap", "--input=none"]


def _describe(nodes: Nodes, endpoint: str) -> list[str]:
    return ["--endpoint", endpoint, "--nodes", str(nodes.count), "--wait-s", str(_WAIT_S)]


def _start(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process that a terminal's Ctrl-C does not reach: node 0 says when to end, and why."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)

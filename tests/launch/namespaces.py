"""Two nodes that are two: network namespaces of this machine, with a cable between them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from dtbench.launch.cells import plan_for_nodes
from dtbench.launch.prepare import write_orders
from dtbench.launch.run import Observer
from dtbench.launch.submit.shape import NodeShape
from dtbench.scenario.load import load_scenario
from dtbench.store.layout import RunFolder
from tests.launch.two_ranks import LONGEST_S

ADDRESSES: Final = ("10.99.71.1", "10.99.71.2")
_PORT: Final = 29471


class NoNamespacesError(Exception):
    """Namespaces cannot be made here; says why."""


@dataclass
class Nodes:
    """Namespaces by number; each has an interface ``eth0`` and loopback."""

    names: tuple[str, str]
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, node: int, *command: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command on a node; nothing but it and its children sees the node's network."""
        environment = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
        process = subprocess.Popen(
            ("ip", "netns", "exec", self.names[node], *command),
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def execute(self, node: int, folder: RunFolder, *arguments: str) -> "subprocess.Popen[str]":
        """Start `dtbench execute` on a node."""
        options = ("--nnodes", "2", "--node-rank", str(node), "--rdzv-endpoint", f"{ADDRESSES[0]}:{_PORT}")
        return self.start(node, sys.executable, "-m", "dtbench", "execute", str(folder.path), *options, *arguments)

    def shape(self, rate: str) -> None:
        """Let no more than so much through the cable, each way, such as ``400mbit``.

        Raises:
            NoNamespacesError: this kernel shapes no traffic.
        """
        for name in self.names:
            bucket = ("tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
            words = ["tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", *bucket]
            ended = subprocess.run(words, check=False, capture_output=True, text=True)
            if ended.returncode:
                raise NoNamespacesError(f"traffic cannot be shaped here: {ended.stderr.strip()}")


@contextmanager
def connect_nodes() -> Iterator[Nodes]:
    """Make two namespaces, and end them with all that runs in them.

    Raises:
        NoNamespacesError: they cannot be made here.
    """
    if shutil.which("ip") is None:
        raise NoNamespacesError("there is no `ip` (iproute2) to make network namespaces with")
    names = (f"dtb{os.getpid()}a", f"dtb{os.getpid()}b")
    found = Nodes(names)
    try:
        try:
            _connect(names)
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode().strip()
            raise NoNamespacesError(f"network namespaces cannot be made here: {said}") from error
        yield found
    finally:
        for process in found.started:
            kill_with_ranks(process)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _connect(names: tuple[str, str]) -> None:
    """Make two namespaces with a cable between them."""
    for name in names:
        _ip("netns", "add", name)
    _ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
    for name, address in zip(names, ADDRESSES, strict=True):
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")


def prepare(scenario: str, results: Path, *overrides: str) -> RunFolder:
    """Prepare a run for two nodes."""
    file = load_scenario(scenario, "two.yaml", overrides)
    return write_orders(file, plan_for_nodes(file, 2, NodeShape()), results, observer=Observer())[0]


def end(*processes: "subprocess.Popen[str]") -> list[str]:
    """Wait until processes end; gives what each printed."""
    return [process.communicate(timeout=LONGEST_S)[0] for process in processes]


def kill_with_ranks(process: "subprocess.Popen[str]") -> None:
    """End a node's processes as one that loses its power: nothing is said to anybody."""
    if process.poll() is None:
        living = psutil.Process(process.pid)
        for one in [living, *living.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()

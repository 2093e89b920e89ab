"""``dtbench tensorboard``: look at runs, or at anyone's traces, in TensorBoard."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dtbench.base.signals import EXIT_CTRL_C
from dtbench.cli.console import print_aside, print_line
from dtbench.machine.processes import die_with_parent
from dtbench.report.page.page import Tone
from dtbench.store.layout import FOLDER_VARIABLE

_PORTS_TRIED = 50


def tensorboard(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN | TRACES]",
            help="A run, a scenario for all its runs, or a folder of runs; or traces of one job: a folder, a file or "
            "an archive. Left out: all runs.",
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 serves other machines, too.")] = "localhost",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 6006,
) -> None:
    """Start TensorBoard on a run, on all runs to compare them, or on anyone's traces; Ctrl-C ends it."""
    from dtbench.report.event_files.server import narrow, tensorboard_command

    folder = find_folder(run, results)
    refuse_taken_port(host, port)
    print_line(f"TensorBoard reads {folder}")
    with narrow(folder) as served:
        if served.shown is not None:
            print_line(
                f"Its own tabs show the newest {served.shown} of {served.of} runs, which is what its server can hold; "
                "the tab dtbench lists all"
            )
        print_line(f"http://{host}:{port}/#dtbench  (in a few seconds; Ctrl-C ends it)", tone=Tone.STRONG)
        serve(tensorboard_command(served.folder, host=host, port=port), {FOLDER_VARIABLE: str(folder)})


def find_folder(named: str | None, results: Path) -> Path:
    """Return what TensorBoard shall read: of one run its whole folder, so that its tab ``dtbench`` sees it; or traces.

    Raises:
        StoreError: there is no such folder, or neither a run, nor a trace, nor an event file in it.
    """
    from dtbench.base.errors import StoreError
    from dtbench.report.event_files.server import has_event_files
    from dtbench.report.tb_plugin.runs import LogDirectory
    from dtbench.store.find_run import find_run
    from dtbench.traces.job.foreign import are_traces

    if named is not None and Path(named).exists() and are_traces(Path(named)):
        return Path(named)
    folder = results if named is None else Path(named) if Path(named).is_dir() else results / named
    if not folder.is_dir():
        folder = find_run(named, results, print_aside)
    if not LogDirectory(folder.resolve()).has_runs() and not has_event_files(folder):
        raise StoreError(
            f"There is neither a run nor a TensorBoard event file in {folder}: `dtbench run <scenario>` makes a run."
        )
    return folder


def refuse_taken_port(host: str, port: int) -> None:
    """Raise a ``DtbenchError`` that names a free port when this one is taken."""
    from dtbench.base.errors import DtbenchError

    if _is_free(host, port):
        return
    candidates = range(port + 1, min(port + _PORTS_TRIED, 65535) + 1)
    free = next((candidate for candidate in candidates if _is_free(host, candidate)), None)
    what_next = "end what uses it" if free is None else f"use `--port {free}`, which is free"
    raise DtbenchError(
        f"Cannot listen on {host}:{port}: the port is taken, or the address is not this machine's; {what_next}."
    )


def _is_free(host: str, port: int) -> bool:
    """Try to listen, on the addresses of both families that a name may stand for."""
    import socket

    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return False
    return all(_can_listen(family, address) for family, _, _, _, address in addresses)


def _can_listen(family: int, address: tuple[object, ...]) -> bool:
    import errno
    import socket

    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        # a machine without IPv6 still resolves localhost to ::1; TensorBoard then uses the other family
        return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and family == socket.AF_INET6
    return True


def serve(command: list[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a server until it ends or somebody stops this process; on Linux it never outlives it, else only SIGKILL's.

    Args:
        command: of the server.
        variables: more for its environment.

    Raises:
        DtbenchError: the server ended on its own with an error.
    """
    from dtbench.base.errors import DtbenchError

    environment = {**os.environ, **(variables or {})}
    with subprocess.Popen(command, env=environment, preexec_fn=die_with_parent) as server:  # noqa: PLW1509 - there is one thread
        try:
            code = server.wait()
        except KeyboardInterrupt as stop:
            if getattr(stop, "exit_code", EXIT_CTRL_C) != EXIT_CTRL_C:
                raise
            code = 0  # the usual way to leave, and the terminal has told the server, too
        finally:
            server.terminate()
    if code:
        raise DtbenchError(f"TensorBoard ended with code {code}; its own message stands above.")

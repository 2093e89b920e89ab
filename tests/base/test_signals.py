"""One owner of what stops a command: the first signal interrupts, further ones hasten, ignored ones stay ignored."""

import signal
import subprocess
import sys
import time

import pytest

from dtbench.base.signals import EXIT_CTRL_C, describe_stop

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

PROGRAM = """
import signal, sys, time
from dtbench.base import signals
signals.PATIENCE_S = float(sys.argv[1])
try:
    with signals.heed_signals(), signals.heed_signals():
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt as stop:
            print(type(stop).__name__, stop, stop.exit_code, signals.is_urgent(), flush=True)
            end_s = time.monotonic() + float(sys.argv[2])
            while time.monotonic() < end_s:
                time.sleep(0.01)
            print("closed", signals.is_urgent(), flush=True)
except KeyboardInterrupt as stop:
    print("again", stop, flush=True)
print("after", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""


def run(
    *numbers: signal.Signals, patience_s: float = 5, closes_s: float = 1.0, ignored: str = "", program: str = PROGRAM
) -> list[str]:
    """Run a program; send it signals one after another, 0.2 s apart."""
    begin = (  # the tests may run under nohup, or behind a shell's `&`
        "import signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    ignore = begin + (f"signal.signal(signal.{ignored}, signal.SIG_IGN)\n" if ignored else "")
    command = [sys.executable, "-c", ignore + program, str(patience_s), str(closes_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.2)
        said = process.stdout.read().splitlines()
    assert process.returncode == 0
    return said


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGINT, "Stopped stopped by the user (Ctrl-C) 130 False"),
        (signal.SIGTERM, "Stopped stopped by SIGTERM 143 False"),
        (signal.SIGHUP, "Stopped stopped by SIGHUP 129 False"),
    ],
)
def test_each_signal_interrupts_once_and_says_which(number: signal.Signals, told: str) -> None:
    assert run(number, closes_s=0) == [told, "closed False", "after True"]


def test_further_signals_hasten_and_do_not_disturb_what_closes() -> None:
    said = run(signal.SIGINT, signal.SIGINT, signal.SIGTERM)
    assert said == ["Stopped stopped by the user (Ctrl-C) 130 False", "closed True", "after True"]


def test_what_is_stuck_can_be_interrupted_again() -> None:
    said = run(signal.SIGINT, signal.SIGTERM, patience_s=0.1, closes_s=30)
    assert said == ["Stopped stopped by the user (Ctrl-C) 130 False", "again stopped by SIGTERM", "after True"]


def test_what_was_ignored_stays_ignored() -> None:
    """As under ``nohup``, and in the background of a shell without job control."""
    said = run(signal.SIGHUP, signal.SIGTERM, ignored="SIGHUP", closes_s=0)
    assert said[0] == "Stopped stopped by SIGTERM 143 False"


def test_an_interrupt_of_pythons_own_is_ctrl_c() -> None:
    assert describe_stop(KeyboardInterrupt()) == "stopped by the user (Ctrl-C)"
    assert EXIT_CTRL_C == 130


HELD = """
import sys, time
from dtbench.base import signals
signals.PATIENCE_S = float(sys.argv[1])
try:
    with signals.heed_signals():
        try:
            with signals.hold_signals():
                print("ready", flush=True)
                end_s = time.monotonic() + float(sys.argv[2])
                while time.monotonic() < end_s:
                    time.sleep(0.01)
                print("whole", flush=True)
            print("behind", flush=True)
        finally:
            print("urgent" if signals.is_urgent() else "once", flush=True)
except KeyboardInterrupt as stop:
    print(stop, flush=True)
"""


def test_a_signal_waits_while_it_is_held_and_interrupts_behind_it() -> None:
    assert run(signal.SIGTERM, program=HELD) == ["whole", "once", "stopped by SIGTERM"]
    assert run(signal.SIGTERM, signal.SIGINT, program=HELD) == ["whole", "urgent", "stopped by SIGTERM"]


def test_what_is_stuck_while_signals_are_held_can_be_interrupted() -> None:
    said = run(signal.SIGTERM, signal.SIGINT, patience_s=0.1, closes_s=30, program=HELD)
    assert said == ["urgent", "stopped by the user (Ctrl-C)"]


def test_an_error_while_signals_are_held_does_not_hide_the_signal() -> None:
    program = HELD.replace('print("whole", flush=True)', "raise ModuleNotFoundError")
    assert run(signal.SIGHUP, program=program) == ["once", "stopped by SIGHUP"]
    assert run(program=HELD, closes_s=0) == ["whole", "behind", "once"]

"""What an error shows of a dead rank's log: what the thread that died did, or, if it was not Python's, the others."""

from pathlib import Path

from dtbench.launch.last_words import read_last_lines

BEFORE = "".join(f"step {number}\n" for number in range(40))
OTHERS = "".join(f'  File "other.py", line {number} in wait\n' for number in range(30))
FATAL = "Fatal Python error: Segmentation fault\n\n"


def test_of_a_dump_the_thread_that_died_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    mine = 'Current thread 0x01 (most recent call first):\n  File "mine.py", line 7 in step\n'
    log.write_text(f"{BEFORE}{FATAL}Thread 0x02 (most recent call first):\n{OTHERS}\n{mine}")
    assert read_last_lines(log) == (FATAL.strip(), *mine.splitlines())


def test_a_thread_without_python_leaves_what_died_and_what_the_others_did(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{BEFORE}{FATAL}Thread 0x02 (most recent call first):\n{OTHERS}\nExtension modules: numpy\n")
    shown = read_last_lines(log)
    assert shown[:3] == (FATAL.strip(), "Thread 0x02 (most recent call first):", '  File "other.py", line 0 in wait')
    assert len(shown) == 12


def test_without_a_dump_the_last_lines_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(BEFORE)
    assert read_last_lines(log) == tuple(f"step {number}" for number in range(28, 40))
    assert read_last_lines(tmp_path / "absent") == ()


def test_what_an_extension_module_says_of_itself_after_an_exception_is_not_the_end(tmp_path: Path) -> None:
    """As triton 3.9 does, which torch 2.15 brings."""
    log = tmp_path / "log"
    leaked = "".join(f' - leaked function "create_{number}"\n' for number in range(10))
    instance = ' - leaked instance 0x7f01 of type "triton._C.libtriton.ir.module"\n'
    log.write_text(
        f"{BEFORE}IndexError: leaked\nnanobind: leaked 1 instances!\n{instance}nanobind: leaked 2 keep_alive records!\n"
        f'nanobind: leaked 1 types!\n - leaked type "ir.module"\nnanobind: leaked 99 functions!\n{leaked}'
        " - ... skipped remainder\n"
        "nanobind: this is likely caused by a reference counting issue in the binding code.\n"
        "See https://nanobind.readthedocs.io/en/latest/refleaks.html\n"
    )
    assert read_last_lines(log) == (*(f"step {number}" for number in range(29, 40)), "IndexError: leaked")


def test_that_the_profiler_started_and_stopped_is_not_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    written = "USDT:2026-11-29 01:54:{} 14445:14445 SyncActivityProfilerHandler.cpp:{}] profiler_{}\n"
    log.write_text(f"step 3\n{written.format(43, 52, 'start')}OSError: no\n{written.format(49, 59, 'stop')}")
    assert read_last_lines(log) == ("step 3", "OSError: no")

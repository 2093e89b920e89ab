"""Of several ranks that ended, which one the others followed: from how and when they ended, and what they said."""

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from dtbench.launch.blame import Blame, find_culprits
from dtbench.launch.killed import HUNG, STOPPED
from dtbench.launch.memory import read_oom_kills
from dtbench.launch.rank_processes import RESOLUTION_NS, Ended
from dtbench.store.layout import LaunchFolder

DUMP = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n  File in b\n"
KILLED, SEGFAULT, ABORTED, TERMINATED = -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGTERM
MS = 1_000_000
PEER_LOST = "RuntimeError: [transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:41263"


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    folder = LaunchFolder(tmp_path)
    folder.logs.mkdir(parents=True)
    return folder


def leave_failure(folder: LaunchFolder, rank: int, *, at_ms: int, said: str = "ValueError: no") -> None:
    path = folder.events(rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"event":"failed","unix_ns":1,"monotonic_ns":{at_ms * MS},"detail":"{said}"}}\n')


def at(rank: int, exit_code: int, ms: int, *, was_told: bool = False) -> Ended:
    return Ended(rank, exit_code, ms * MS, was_told)


def find(folder: LaunchFolder, *ended: Ended, held_up: Mapping[int, str] | None = None, kills: int | None = 0) -> Blame:
    return find_culprits(folder, ended, held_up=held_up or {}, oom_kills=kills)


def culprits(blame: Blame) -> list[tuple[int, str]]:
    return [(one.rank, one.what) for one in blame.failures[: blame.culprits]]


@pytest.mark.parametrize("crash", [SEGFAULT, ABORTED])
@pytest.mark.parametrize("later_ms", [0, 3, 400])
def test_a_crash_follows_a_kill_from_outside(folder: LaunchFolder, crash: int, later_ms: int) -> None:
    """Gloo crashes in some ranks that lose a peer; a killed one has no last words."""
    folder.log(0).write_text(DUMP)
    blame = find(folder, at(1, KILLED, 5), at(0, crash, 5 + later_ms), at(2, TERMINATED, 900, was_told=True))
    assert culprits(blame)[0] == (1, "killed by SIGKILL")
    assert len(culprits(blame)) == (2 if later_ms == 0 else 1), "seen at once: nobody knows"
    assert blame.failures[-1].what == "ended because another rank failed"
    assert (
        f"; {'rank 2' if later_ms == 0 else 'ranks 0, 2'} ended with {'them' if later_ms == 0 else 'it'}"
        in blame.sentence
    )


def test_a_kill_long_after_a_crash_does_not_explain_it(folder: LaunchFolder) -> None:
    """The kernel may end a second rank for lack of memory while the first one writes its core."""
    blame = find(folder, at(0, SEGFAULT, 5), at(1, KILLED, 5 + 400))
    assert culprits(blame) == [(0, "killed by SIGSEGV")]


def test_a_crash_shortly_before_a_kill_may_be_either(folder: LaunchFolder) -> None:
    """The other end of a socket hears of a process's end before its parent does."""
    blame = find(folder, at(0, SEGFAULT, 100), at(1, KILLED, 110))
    assert culprits(blame) == [(0, "killed by SIGSEGV"), (1, "killed by SIGKILL")]
    assert "within 10.0 ms of each other, so it is not known which was first" in blame.sentence


def test_what_died_of_its_own_mistake_is_the_culprit_of_what_raised_later(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, at_ms=900)
    assert culprits(find(folder, at(1, SEGFAULT, 800), at(0, 1, 950))) == [(1, "killed by SIGSEGV")]


def test_what_raised_before_another_crashed_is_its_culprit(folder: LaunchFolder) -> None:
    """Its process ends last: Python takes its time to leave."""
    leave_failure(folder, 1, at_ms=800)
    assert culprits(find(folder, at(0, SEGFAULT, 900), at(1, 1, 1400))) == [(1, "raised")]


@pytest.mark.parametrize("said", [PEER_LOST, "DistBackendError: NCCL error: remote process exited or there was a net"])
def test_what_lost_its_peer_is_never_the_culprit_of_another_end(folder: LaunchFolder, said: str) -> None:
    """Also where it said so long before the other's process was gone."""
    leave_failure(folder, 0, at_ms=100, said=said)
    blame = find(folder, at(0, 1, 300), at(1, 3, 900))
    assert culprits(blame) == [(1, "left with exit code 3")]
    assert blame.failures[1].what == "raised because a peer was gone"


def test_a_connection_of_the_training_script_is_no_peer(folder: LaunchFolder) -> None:
    """A data loader's server closed its connection; then another rank crashed as its peer was gone."""
    leave_failure(folder, 1, at_ms=100, said="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert culprits(find(folder, at(0, SEGFAULT, 400), at(1, 1, 500))) == [(1, "raised")]


def test_where_all_lost_their_peers_they_are_named_for_it(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, at_ms=100, said=PEER_LOST)
    leave_failure(folder, 1, at_ms=110, said=PEER_LOST)
    blame = find(folder, at(0, 1, 300), at(1, 1, 310))
    assert [rank for rank, _ in culprits(blame)] == [0, 1]


@pytest.mark.parametrize(
    ("apart_ns", "named"), [(RESOLUTION_NS, [0, 1]), (RESOLUTION_NS + 1, [0])], ids=["within", "beyond"]
)
def test_ends_closer_than_the_evidence_resolves_are_both_named(
    folder: LaunchFolder, apart_ns: int, named: list[int]
) -> None:
    blame = find(folder, Ended(0, ABORTED, 1000), Ended(1, SEGFAULT, 1000 + apart_ns))
    assert [rank for rank, _ in culprits(blame)] == named


def test_what_held_up_the_others_is_the_culprit_though_it_was_killed_last(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, at_ms=10, said=PEER_LOST)
    for what in (HUNG, STOPPED):
        blame = find(folder, at(0, 1, 10), at(1, KILLED, 900), held_up={1: what})
        assert culprits(blame) == [(1, what)]


TIMED_OUT = (
    "RuntimeError: Timed out waiting 6000ms for recv operation to complete, gloo",
    "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//cpu//0/1",
)


@pytest.mark.parametrize("said", TIMED_OUT)
def test_who_gave_up_on_a_stopped_rank_is_not_the_culprit(folder: LaunchFolder, said: str) -> None:
    """The stopped one goes on when it is told to end, and may have lost its peer by then."""
    leave_failure(folder, 0, at_ms=10, said=said)
    leave_failure(folder, 1, at_ms=40, said=PEER_LOST)
    blame = find(folder, at(0, 1, 10), at(1, 1, 50, was_told=True), held_up={1: STOPPED})
    assert culprits(blame) == [(1, STOPPED)]


def test_a_mistake_while_another_rank_stood_still_names_both(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, at_ms=10)
    blame = find(folder, at(0, 1, 10), at(1, TERMINATED, 900, was_told=True), held_up={1: STOPPED})
    assert culprits(blame) == [(0, "raised"), (1, STOPPED)]
    assert "since when it was stopped is not known" in blame.sentence


@pytest.mark.parametrize("said", TIMED_OUT)
def test_giving_up_on_a_peer_follows_from_its_end(folder: LaunchFolder, said: str) -> None:
    leave_failure(folder, 0, at_ms=10, said=said)
    assert culprits(find(folder, at(0, 1, 10), at(1, KILLED, 900))) == [(1, "killed by SIGKILL")]


def test_a_rank_that_raised_and_cannot_leave_is_no_hang_and_holds_up_the_others(folder: LaunchFolder) -> None:
    """Python's end may take long where memory is short; the peer that waits for it is as silent."""
    leave_failure(folder, 0, at_ms=10)
    blame = find(folder, at(0, KILLED, 5000), at(1, KILLED, 5000), held_up={0: HUNG, 1: HUNG})
    assert culprits(blame) == [(0, "raised")]


def test_several_that_came_equally_far_are_all_named(folder: LaunchFolder) -> None:
    blame = find(folder, at(0, KILLED, 5000), at(1, KILLED, 6000), held_up={0: HUNG, 1: HUNG})
    assert [rank for rank, _ in culprits(blame)] == [0, 1]
    assert "none of them came further than the others" in blame.sentence


def test_sigterm_that_the_launcher_did_not_send_is_from_outside(folder: LaunchFolder) -> None:
    blame = find(folder, at(1, TERMINATED, 10), at(0, TERMINATED, 900, was_told=True))
    assert culprits(blame) == [(1, "ended by SIGTERM from outside")]


def test_a_rank_that_leaves_with_zero_before_its_work_is_done_failed(folder: LaunchFolder) -> None:
    blame = find(folder, at(1, 0, 10), at(0, TERMINATED, 900, was_told=True))
    assert culprits(blame) == [(1, "left without an error before its work was done")]


def test_an_exit_code_is_no_exception_unless_python_said_of_one(folder: LaunchFolder) -> None:
    folder.log(0).write_text("loading\n")
    assert culprits(find(folder, at(0, 7, 10))) == [(0, "left with exit code 7")]
    folder.log(0).write_text('Traceback (most recent call last):\n  File "x"\nImportError: no torch\n')
    assert culprits(find(folder, at(0, 1, 10))) == [(0, "raised")]


def test_lack_of_memory_is_told_where_the_kernel_counted_it(folder: LaunchFolder) -> None:
    expected = "killed by SIGKILL (the kernel ended a process for lack of memory meanwhile)"
    assert culprits(find(folder, at(0, KILLED, 10), kills=1)) == [(0, expected)]
    assert culprits(find(folder, at(0, KILLED, 10), kills=None)) == [(0, "killed by SIGKILL")]
    assert culprits(find(folder, at(0, SEGFAULT, 10), kills=1)) == [(0, "killed by SIGSEGV")]


def test_kills_are_counted_of_the_control_group_before_the_machine(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 9\n")
    assert read_oom_kills(tmp_path, tmp_path / "cgroup") == 9
    (tmp_path / "self" / "cgroup").write_text("0::/job\n")
    group = tmp_path / "cgroup" / "job"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert read_oom_kills(tmp_path, tmp_path / "cgroup") == 2
    assert read_oom_kills(tmp_path / "absent", tmp_path / "absent") is None

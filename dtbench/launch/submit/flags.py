"""Flags of sbatch as a person types them: what they ask of each node, and which of them dtbench says itself.

Options, their short names and what each means: sbatch(1), https://slurm.schedmd.com/sbatch.html.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.errors import PlanError
from dtbench.launch.submit.shape import NodeShape, count_gpus, read_memory

_LONG: Final = {
    "A": "account", "C": "constraint", "G": "gpus", "J": "job-name", "N": "nodes", "a": "array", "c": "cpus-per-task",
    "d": "dependency", "e": "error", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""Long names of the short ones that are often typed; others are passed on as they are."""
_OWN: Final = {
    "array": "one allocation is one run, and its cells take turns in it: no array of jobs",
    "nodes": "their number is what --nodes of dtbench says",
    "ntasks": "dtbench starts one task on each node, and that starts the ranks",
    "ntasks-per-node": "dtbench starts one task on each node, and that starts the ranks",
    "wrap": "what the job runs is what dtbench writes",
}
"""What is dtbench's to say, and why."""
_OF_CORES: Final = ("cpus-per-task", "cpus-per-gpu", "exclusive", "mincpus", "oversubscribe")
_OF_GPUS: Final = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
_OF_MEMORY: Final = ("mem", "mem-per-cpu", "mem-per-gpu")


@dataclass(frozen=True)
class Flag:
    """One flag of sbatch.

    Attributes:
        name: its long one, without dashes; of a short one that is not known, this.
        value: None: it has none.
        words: as typed.
    """

    name: str
    value: str | None
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """The line of a script that sets it."""
        return f"#SBATCH {' '.join(map(spell_word, self.words))}"


def read_flags(words: Sequence[str]) -> tuple[Flag, ...]:
    """Return the flags that these words of a command line are.

    Raises:
        PlanError: a word is no flag's, a flag is dtbench's to say, or a word cannot stand in a script.
    """
    odd = next((word for word in words if not word.isprintable()), None)
    if odd is not None:
        raise PlanError(f"{spell_word(odd)}: no flag of sbatch has such characters")
    flags = tuple(_read(words))
    for flag in flags:
        if flag.name in _OWN:
            raise PlanError(f"`{flag.words[0]}` is not a flag to give: {_OWN[flag.name]}")
    return flags


def _read(words: Sequence[str]) -> Iterator[Flag]:
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or len(word) < 2:
            raise PlanError(
                f"`{word}` is no flag of sbatch; what stands after -- begins with one, as in -- --partition=gpu"
            )
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        typed = [word]
        if not equals and left and not left[0].startswith("-"):
            value = left.pop(0)
            typed.append(value)
        long = name.removeprefix("--") if name.startswith("--") else _LONG.get(name[1], name[1])
        yield Flag(long, value if equals or len(typed) > 1 else None, tuple(typed))


def name_flags(flags: Sequence[Flag]) -> dict[str, str | None]:
    """Return the value of each flag by its name; of one that is there twice the last, as sbatch takes it."""
    return {flag.name: flag.value for flag in flags}


def read_request(flags: Sequence[Flag], nodes: int) -> NodeShape:
    """Return what flags ask of each node.

    Raises:
        PlanError: GPUs are asked for that nodes cannot share equally.
    """
    given = name_flags(flags)
    cores, memory = given.get("cpus-per-task") or "", given.get("mem") or ""
    return NodeShape(
        cores=int(cores) if cores.isdecimal() and int(cores) else None,
        gpus=_count_gpus(given, nodes),
        memory_bytes=read_memory(memory),
    )


def _count_gpus(given: Mapping[str, str | None], nodes: int) -> int | None:
    """Return the GPUs of each node; None: no flag says it. A task is a node's."""
    for name in ("gpus-per-node", "gpus-per-task", "gpus", "gres"):
        value = given.get(name)
        if value is None:
            continue
        count = count_gpus(value) if name == "gres" else _add_up(value)
        if name == "gpus" and count is not None and count % nodes:
            raise PlanError(f"--gpus={value} cannot be shared equally by {nodes} nodes; give --gpus-per-node")
        if count is not None:
            return count // nodes if name == "gpus" else count
    return None


def _add_up(value: str) -> int | None:
    """Return how many ``4``, ``a100:4`` or ``a100:2,h100:2`` are; None: it is no number."""
    counts = [part.rpartition(":")[2] for part in value.split(",")]
    return sum(map(int, counts)) if all(count.isdecimal() for count in counts) else None


def ask_for(said: NodeShape, flags: Sequence[Flag]) -> list[Flag]:
    """Return the flags that ask for what a person said of nodes, and for whole nodes where they say nothing of cores.

    A node of one's own is quiet; ``--mem=0`` has all of its memory, which ``--exclusive`` does not give.

    Raises:
        PlanError: a flag and an option both say it.
    """
    given = name_flags(flags)
    of_memory = None if said.memory_bytes is None else f"{said.memory_bytes // 2**20}M"
    wanted = (
        ("--cores-per-node", said.cores, "cpus-per-task", _OF_CORES),
        ("--gpus-per-node", said.gpus, "gpus-per-node", _OF_GPUS),
        ("--memory-per-node", of_memory, "mem", _OF_MEMORY),
    )
    asked = []
    for option, value, name, others in wanted:
        twice = next((other for other in others if other in given), None)
        if value is not None and twice not in (None, "exclusive"):
            raise PlanError(f"{option} and --{twice} both say what a node has; leave one of them out")
        if value is not None:
            asked.append(make_flag(name, str(value)))
    if said.cores is None and not any(name in given for name in _OF_CORES):
        asked.append(make_flag("exclusive"))
        if of_memory is None and not any(name in given for name in _OF_MEMORY):
            asked.append(make_flag("mem", "0"))
    return asked


def make_flag(name: str, value: str | None = None) -> Flag:
    """Return a flag by its long name."""
    return Flag(name, value, (f"--{name}" if value is None else f"--{name}={value}",))

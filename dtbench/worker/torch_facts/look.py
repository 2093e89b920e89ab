"""Look at the torch that is here: everything that dtbench uses of it, in under a minute.

``python -m dtbench.worker.torch_facts.look <file>`` writes the facts; only torch and the standard library are needed,
so any interpreter that has a torch can be asked.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from dtbench.worker.torch_facts.describe import describe_configuration, describe_engines, describe_names, find_object
from dtbench.worker.torch_facts.facts import Facts, Kind, spell_facts
from dtbench.worker.torch_facts.ranks import ASKED, LIVE, RANKS
from dtbench.worker.torch_facts.used import ROOT, Uses, read_uses

_TIMEOUT_S: Final = 600.0
"""Ten times and more what a quiet machine of two cores takes."""
_LAST_LINES: Final = 12

_MORE: Final = (
    "torch.distributed.pipelining.stage._PipelineStageBase",
    "torch.distributed.pipelining.schedules._batch_p2p",
    "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState",
    "torch.distributed.optim.ZeroRedundancyOptimizer",
    "torch.distributed.pipelining.PipelineStage",
)
"""Names that dtbench's source puts together from parts, or knows from a person's own loop."""


def look(uses: Uses) -> Facts:
    """Return all facts of the torch that is here.

    Raises:
        RuntimeError: the two ranks did not come to their end; with the last lines that they wrote.
    """
    facts: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
    private = sorted(uses.attributes)
    found = (
        *describe_names((*uses.names, *_MORE, *_find_functions(uses)), set(private)),
        *describe_engines(),
        *describe_configuration(),
        *_run_ranks(private),
    )
    for kind, name, said in found:
        facts[kind][name] = said
    return Facts(str(torch.__version__), torch.version.cuda, facts)


def _find_functions(uses: Uses) -> Iterator[str]:
    """Yield functions of torch.distributed that the source names in a text."""
    for text in uses.literals:
        if text.isidentifier() and "_" in text and callable(getattr(dist, text, None)):
            yield f"torch.distributed.{text}"


def _run_ranks(private: list[str]) -> Iterator[tuple[Kind, str, str]]:
    """Run the ranks in processes of their own, and yield what the first wrote."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ASKED).write_text(json.dumps(private), encoding="utf-8")
        path = os.pathsep.join([str(ROOT.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        module = find_object.__module__.replace("describe", "ranks")
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", module, str(rank), folder],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        _await(ranks)
        for kind, name, said in json.loads((Path(folder) / LIVE).read_text(encoding="utf-8")):
            yield Kind(kind), name, said


def _await(ranks: "list[subprocess.Popen[str]]") -> None:
    try:
        said = [rank.communicate(timeout=_TIMEOUT_S)[1] for rank in ranks]
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the two ranks over gloo did not end within {_TIMEOUT_S:g} s") from error
    finally:
        for rank in ranks:
            rank.kill()
    for rank, words in zip(ranks, said, strict=True):
        if rank.returncode:
            last = "\n".join(words.splitlines()[-_LAST_LINES:])
            raise RuntimeError(f"a rank over gloo ended with {rank.returncode}:\n{last}")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(spell_facts(look(read_uses())), encoding="utf-8")

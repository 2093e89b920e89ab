"""Opening somebody else's run folder or trace runs no code of theirs: a walk through what dtbench reads files with."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtbench

ROOT = Path(dtbench.__file__).parent
READERS = (
    "traces",
    "runs",
    "cli",
    "comparison",
    "integrations",
    "prediction",
    "report",
    "scenario",
    "selftest",
    "store",
)
RUNS_CODE = {
    *("eval", "exec", "__import__", "import_module", "run_path", "run_module", "find_class", "Unpickler"),
    *("pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "dill.load"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.Loader", "yaml.UnsafeLoader"),
    *("read_pickle", "torch.load", "numpy.load", "np.load", "os.system", "os.popen", "read_hdf"),
}
"""By the last name or the last two."""
EXPECTED = {
    ("traces/job/many.py", "pickle.load"): "answers of processes that this one started, over their own pipes",
    ("traces/rank/file.py", "pickle.load"): "questions from the process that started this one, over its own pipe",
    ("traces/reader/inflate.py", "import_module"): "one module, named in the code",
    ("cli/schema.py", "import_module"): "modules of dtbench, of a table in the code",
}


def uses(path: Path) -> Iterator[str]:
    """Yield what a module uses of what can run code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if {node.attr, f"{owner}.{node.attr}"} & RUNS_CODE and owner not in ("re", "self"):
                yield f"{owner}.{node.attr}" if f"{owner}.{node.attr}" in RUNS_CODE else node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_CODE:
            yield node.func.id
        elif isinstance(node, ast.keyword) and node.arg == "shell" and not _is_false(node.value):
            yield "shell"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_nothing_that_reads_files_can_run_what_is_in_them() -> None:
    found = {
        (str(path.relative_to(ROOT)), used)
        for reader in READERS
        for path in sorted((ROOT / reader).rglob("*.py"))
        for used in uses(path)
    }
    assert found == set(EXPECTED)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle\npickle.loads(b'')",
        "eval('1')",
        "yaml.load(t, yaml.Loader)",
        "pd.read_pickle(p)",
        "f(shell=True)",
    ],
)
def test_the_walk_sees_what_it_looks_for(tmp_path: Path, text: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert list(uses(path))

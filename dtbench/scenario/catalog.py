"""Scenarios by name: the person's own in ``./scenarios`` first, then those that come with dtbench."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import ScenarioFile, load_scenario_file, question_of, read_text
from dtbench.scenario.mistakes import find_nearest, join_words, shorten

_OWN_FOLDER = Path("scenarios")
_FILE_ENDINGS = (".yaml", ".yml")


class Origin(StrEnum):
    """Where a scenario comes from."""

    OWN = "./scenarios"
    SHIPPED = "dtbench"


@dataclass(frozen=True)
class CatalogEntry:
    """A scenario that a name can find.

    Attributes:
        hidden_by: the file that the name finds instead of this one; None when it finds this one.
        folder: that it lies in, below that of all scenarios; empty: in that itself.
    """

    name: str
    origin: Origin
    path: Path
    hidden_by: Path | None
    folder: str = ""


@dataclass(frozen=True)
class ListedScenario:
    """One line of a list of scenarios.

    Attributes:
        question: None when line 1 is none.
        error: what is wrong with the file, in full; None when it can be run.
    """

    entry: CatalogEntry
    question: str | None
    error: str | None


def open_scenario(name_or_path: str, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> ScenarioFile:
    """Load a scenario by its name, or by its path: whatever has a separator or a YAML file's ending.

    Raises:
        ScenarioError: when there is no such scenario, or with every mistake in it.
    """
    return load_scenario_file(find_scenario(name_or_path), overrides, only)


def find_scenario(name_or_path: str) -> Path:
    """Return the file of a scenario.

    Raises:
        ScenarioError: when a path leads nowhere, or a name is unknown or ambiguous.
    """
    entries = read_catalog()
    if _is_path(name_or_path):
        return _find_path(name_or_path, entries)
    found = [entry for entry in entries if entry.name == name_or_path]
    if not found:
        near = find_nearest(name_or_path, [entry.name for entry in entries])
        question = f"; did you mean `{near}`?" if near else "."
        raise ScenarioError(
            f"No scenario is called `{shorten(name_or_path)}`{question}\n"
            "`dtbench list` shows them all; a path to a file works, too."
        )
    rivals = [entry.path for entry in found if entry.origin is found[0].origin]
    if len(rivals) > 1:
        paths = join_words([f"`{path}`" for path in rivals], last="and")
        raise ScenarioError(f"`{name_or_path}` could be {paths}; give the path of the one you mean.")
    return found[0].path


def list_scenarios() -> list[ListedScenario]:
    """Read every scenario that a name can find, broken ones too."""
    return [_read_entry(entry) for entry in read_catalog()]


def read_catalog() -> list[CatalogEntry]:
    """Return the person's own scenarios, then the shipped ones, each sorted by name."""
    own = find_files(_OWN_FOLDER)
    shipped_folder = _shipped_folder()
    shipped = find_files(shipped_folder) if shipped_folder is not None else []
    own_by_name = {path.stem: path for path in reversed(own)}
    own_files = {path.resolve() for path in own}
    return [
        *(CatalogEntry(path.stem, Origin.OWN, path, None, _folder_in(_OWN_FOLDER, path)) for path in own),
        *(
            CatalogEntry(path.stem, Origin.SHIPPED, path, own_by_name.get(path.stem), _folder_in(shipped_folder, path))
            for path in shipped
            if path.resolve() not in own_files  # in a checkout the two folders are one
            and not _is_copy(path, own_by_name.get(path.stem))
        ),
    ]


def _folder_in(whole: Path | None, path: Path) -> str:
    folder = path.parent if whole is None else path.parent.relative_to(whole)
    return "" if folder == Path() else folder.as_posix()


def _is_copy(path: Path, own: Path | None) -> bool:
    """Tell whether a person's file is the shipped one unchanged: then there is nothing to say about the two."""
    try:
        return own is not None and own.read_bytes() == path.read_bytes()
    except OSError:
        return False


def _read_entry(entry: CatalogEntry) -> ListedScenario:
    question = None
    try:
        question = question_of(read_text(entry.path)) or None
        load_scenario_file(entry.path)
    except ScenarioError as error:
        return ListedScenario(entry, question, str(error))
    return ListedScenario(entry, question, None)


def _is_path(name_or_path: str) -> bool:
    separators = {"/", os.sep, os.altsep or os.sep}
    return any(separator in name_or_path for separator in separators) or name_or_path.endswith(_FILE_ENDINGS)


def _find_path(written: str, entries: Sequence[CatalogEntry]) -> Path:
    path = Path(written)
    if not os.path.lexists(written):
        near = find_nearest(path.stem, [entry.name for entry in entries])
        question = f"; did you mean the scenario `{near}`?" if near else "; `dtbench list` shows what there is."
        raise ScenarioError(f"There is no file `{shorten(written)}`{question}")
    return path


def find_files(folder: Path) -> list[Path]:
    """Return the scenario files of a folder and the folders in it, without hidden ones, sorted by name."""
    if not folder.is_dir():
        return []
    files = [
        path
        for path in folder.rglob("*.yaml")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return sorted(files, key=lambda path: (path.stem, path))


def is_shipped(folder: Path) -> bool:
    """Tell whether a folder of scenarios came with dtbench."""
    shipped = _shipped_folder()
    return shipped is not None and folder.resolve().is_relative_to(shipped)


def _shipped_folder() -> Path | None:
    """Return the folder that a wheel carries, or, in a checkout, the one beside the package."""
    package = Path(__file__).parent
    installed = package / "shipped"
    if installed.is_dir():
        return installed
    checkout = package.parents[1]
    return checkout / "scenarios" if (checkout / "pyproject.toml").is_file() else None

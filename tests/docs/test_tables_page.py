"""No table is missing in their reference, and every column says what it means and what it can be."""

import importlib
import pkgutil
from types import ModuleType

import pytest

from dtbench.base.columns import Column, Table, Unit
from tests.docs.tables_page import GROUPS, AnyTable

ROOMS = ("store", "traces", "runs", "comparison", "report")


def modules_of(room: str) -> list[ModuleType]:
    package = importlib.import_module(f"dtbench.{room}")
    found = pkgutil.walk_packages(package.__path__, f"dtbench.{room}.")
    return [importlib.import_module(one.name) for one in found]


@pytest.fixture(scope="module")
def declared() -> list[AnyTable]:
    """Every table that any module declares, once."""
    pytest.importorskip("tensorboard")
    values = (value for room in ROOMS for module in modules_of(room) for value in vars(module).values())
    return list({id(one): one for one in values if isinstance(one, Table)}.values())


def test_every_table_is_on_the_page(declared: list[AnyTable]) -> None:
    shown = [table.name for tables in GROUPS.values() for table in tables]
    assert sorted(shown) == sorted(table.name for table in declared)
    assert len(set(shown)) == len(shown)


def test_every_column_says_what_it_means_and_what_it_can_be(declared: list[AnyTable]) -> None:
    for table in declared:
        for column in table.all_columns:
            where = f"{table.name}.{column.name}"
            assert column.doc, where
            assert not column.is_number or column.bounds is not None, where
            ends = [unit for end, unit in ENDS.items() if column.name.endswith(end)]
            assert not ends or column.unit is ends[0], where
        assert len(table.dtypes) == len(table.all_columns), table.name


ENDS = {"_ns": Unit.NS, "_bytes": Unit.BYTES, "_fraction": Unit.FRACTION}


def test_a_column_cannot_be_declared_without_its_value() -> None:
    with pytest.raises(TypeError, match="value"):
        Column("wait_ns", "Int64", Unit.NS, "how long consumers waited")  # type: ignore[call-arg]


def test_nothing_but_a_column_brings_the_value_of_a_table() -> None:
    made = Table[int, int, int](
        name="squares",
        doc="One row per number.",
        find=lambda last: ((number, number) for number in range(last)),
        keys=(Column("number", "int64", None, "which", lambda key: key, least=0),),
        columns=(Column("square", "Int64", Unit.COUNT, "of it; NA: of 1", lambda row: None if row == 1 else row**2),),
    )
    table = made.tabulate(3)
    assert list(table["square"].fillna(-1)) == [0, -1, 4]
    assert list(made.list_rows(2)) == [{"number": 0, "square": 0}, {"number": 1, "square": None}]
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == made.dtypes

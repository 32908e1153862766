"""Tests of how `make test` distributes the tests to its processes (`tests/conftest.py`)."""

from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parents[2]
OPERATOR = "tests/controlplane/operator/test_zero.py::test_it"


def test_files_that_start_first_exist() -> None:
    named = [*(file.removesuffix("::") for file in conftest.LONGEST), *conftest.LONG]
    assert [name for name in named if not (ROOT / name).is_file()] == []
    folders = [*conftest.TOGETHER, *conftest.MIXED, *conftest.COMPUTE]
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        (OPERATOR, "tests/controlplane/operator/test_zero.py"),
        ("tests/controlplane/process/test_client.py::test_it", "tests/controlplane/process/"),
        ("tests/controlplane/test_gate.py::test_it", "tests/controlplane/"),
        ("tests/node/serving/test_zero.py::test_it", "tests/node/"),
        ("tests/unit/test_names.py::test_it[a::b]", "tests/unit/test_names.py"),
    ],
)
def test_tests_that_share_a_cluster_are_one_unit(nodeid: str, unit: str) -> None:
    assert conftest._unit(nodeid) == unit


def test_long_files_of_the_operator_start_first_and_compute_follows_clusters() -> None:
    first = "tests/controlplane/operator/test_demand.py::test_it"
    order = [first, OPERATOR, "tests/controlplane/test_gate.py::test_it", "tests/property/test_laws.py::test_it"]
    assert sorted([*order[2:], *order[:2]], key=conftest._place) == order


@pytest.mark.parametrize(
    ("process", "unit", "suits"),
    [
        ("gw0", OPERATOR, True),
        ("gw3", OPERATOR, True),
        ("gw3", "tests/router/test_zero.py", False),
        ("gw4", OPERATOR, False),
        ("gw4", "tests/unit/test_names.py", True),
        ("gw5", "tests/router/test_zero.py", False),
        ("gw7", "tests/router/test_zero.py", True),
        ("gw7", OPERATOR, False),
    ],
)
def test_each_process_prefers_its_kind_of_tests(process: str, unit: str, suits: bool) -> None:
    assert conftest._suits(process, unit) is suits

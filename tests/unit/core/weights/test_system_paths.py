"""Tests of the directories of nodes in which no weights may be."""

import pytest

from ome_operator.core.weights.system_paths import SYSTEM, system_directory


@pytest.mark.parametrize("path", SYSTEM)
def test_system_directory_is_found_in_every_spelling(path: str) -> None:
    for spelled in (path, f"{path}/", f"/{path}", f"{path}/models/tiny", f"{path}/.", f"/mnt/..{path}"):
        assert system_directory(spelled) == path


@pytest.mark.parametrize("path", ["/", "/var", "/var/lib", "/var/lib/"])
def test_parent_of_a_system_directory_is_found(path: str) -> None:
    assert system_directory(path)


@pytest.mark.parametrize(
    "path",
    ["/mnt/models", "/raid/etc", "/etcd", "/usrlocal", "/var/lib/ome/models/tiny", "/dev/shm/tiny", "/home/a", "/opt/m"],
)
def test_other_directories_are_not_system_directories(path: str) -> None:
    assert system_directory(path) == ""

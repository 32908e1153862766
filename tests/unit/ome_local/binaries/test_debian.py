"""Tests of where Prometheus comes from: this machine, the cache, or Debian's package."""

from pathlib import Path

import pytest

from ome_local.binaries import debian
from ome_local.binaries.releases import Unavailable


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_installed_prometheus_is_preferred(tmp_path: Path) -> None:
    for name in debian.PROGRAMS:
        program(tmp_path / "bin", name)
    assert debian.prometheus() == {name: tmp_path / "bin" / name for name in debian.PROGRAMS}


def test_missing_apt_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nor apt-get"):
        debian.prometheus()
    assert not (tmp_path / "cache" / "prometheus-debian").exists()


def test_apt_error_is_reported(tmp_path: Path) -> None:
    program(tmp_path / "bin", "apt-get", "echo 'E: Unable to locate package prometheus' >&2; exit 100")
    program(tmp_path / "bin", "dpkg-deb")
    with pytest.raises(Unavailable, match=r"Unable to locate package prometheus.*apt-get update"):
        debian.prometheus()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_package_is_unpacked_once(tmp_path: Path) -> None:
    program(tmp_path / "bin", "apt-get", ": > prometheus_2.42.0_amd64.deb")
    made = "cd $3/usr/bin; for name in prometheus promtool; do echo $name > $name; done; echo web > ../share/prometheus/web"
    program(tmp_path / "bin", "dpkg-deb", f"/bin/mkdir -p $3/usr/bin $3/usr/share/prometheus; {made}")
    found = debian.prometheus()
    assert {name: path.read_text().strip() for name, path in found.items()} == {
        name: name for name in (*debian.PROGRAMS, debian.PAGES)
    }
    (tmp_path / "bin/apt-get").unlink()
    assert debian.prometheus() == found, "it is requested once"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["prometheus-debian"]

"""Tests that the kernel libraries are downloaded as pinned, and that a download with another digest is refused; without
network.
"""

import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import carry

WHEELS = {
    "sgl-deep-gemm": {
        "deep_gemm/__init__.py": "", "deep_gemm/legacy/tune.py": "", "deep_gemm/include/cutlass/gemm/a.hpp": "",
        "deep_gemm/include/cutlass/arch/a.hpp": "", "deep_gemm/include/cute/arch/mma_sm90_gmma_sparse.hpp": "",
    },
    "apache-tvm-ffi": {"tvm_ffi/__init__.py": "", "tvm_ffi/lib/libtvm_ffi.so": "x" * 100, "tvm_ffi/include/tvm/a.h": ""},
    "sgl-flash-mla": {"flash_mla/__init__.py": "", "flash_mla/cuda.abi3.so": "x" * 100},
}  # fmt: skip
"""Members of the wheels of each package, and their content."""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the list of executed commands. Instead of downloading, pip writes WHEELS, and nothing is stripped."""
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        if "pip" in command:
            target = next(word.partition("=")[2] for word in command if word.startswith("--dest="))
            for package in carry.PACKAGES:
                wheel = Path(target, f"{package.name.replace('-', '_')}-{package.version}-py3-none-any.whl")
                with zipfile.ZipFile(wheel, "w") as archive:
                    for name, content in WHEELS[package.name].items():
                        archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    return ran


def test_each_package_is_pinned_by_version_and_hash() -> None:
    lines = carry.requirements(carry.PACKAGES).splitlines()
    assert len(lines) == len(carry.PACKAGES)
    assert all(re.fullmatch(r"[a-z-]+==\d[\d.]* --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_pip_downloads_for_the_machine_from_the_configured_index() -> None:
    command = carry.download_command(Path("r.txt"), Path("wheels"))
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version=3.12"} <= set(command)
    assert "--platform=manylinux_2_28_x86_64" in command and "--platform=manylinux2014_x86_64" in command
    assert not any("index" in word or "://" in word for word in command)


def test_files_that_no_kernel_needs_are_omitted(
    tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    assert carry.main([str(site)]) == 0
    found = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert found == {
        "deep_gemm/__init__.py", "deep_gemm/include/cutlass/arch/a.hpp", "tvm_ffi/__init__.py", "tvm_ffi/lib/libtvm_ffi.so",
        "flash_mla/__init__.py", "flash_mla/cuda.abi3.so",
    }  # fmt: skip
    stripped = {Path(command[-1]).name for command in commands if command[0] == "strip"}
    assert stripped == {"libtvm_ffi.so", "cuda.abi3.so"}
    assert capsys.readouterr().out == f"{site}: 0.0 MiB\n"


def test_earlier_result_is_replaced_but_other_files_are_kept(
    tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site" / "deep_gemm").mkdir(parents=True)
    old = tmp_path / "site" / "old"
    old.touch()
    assert carry.main([str(tmp_path / "site")]) == 0 and not old.exists()
    (tmp_path / "home").mkdir()
    precious = tmp_path / "home" / "precious"
    precious.touch()
    assert carry.main([str(tmp_path / "home")]) == 1 and precious.exists()
    assert capsys.readouterr().err == f"{tmp_path / 'home'} holds other files, which would be deleted: name a new folder.\n"


def test_a_folder_above_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "library.so").write_bytes(bytes(3 * 2**20))
    assert carry.too_large(tmp_path, 3 * 2**20) == ""
    why = carry.too_large(tmp_path, 2 * 2**20)
    assert why == f"{tmp_path} has 3.0 MiB, but at most 2 MiB can be carried: leave a package out."


def test_a_failed_download_and_a_missing_tool_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert carry.main([str(tmp_path / "site")]) == 1
    assert "pip could not download" in capsys.readouterr().err
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert carry.main([str(tmp_path / "site")]) == 1
    assert "install binutils" in capsys.readouterr().err

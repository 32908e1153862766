"""Tests of the script that creates stubs for libraries with which torch is linked and that the image does not contain."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "images" / "engine-cpu" / "stubs.py"


@pytest.fixture(scope="module")
def stubs() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("stubs", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["stubs"] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def test_stub_plan_covers_only_missing_libraries(stubs: ModuleType) -> None:
    """Only libraries that are neither present nor part of the system get a stub. A stub has the library's version tags, even
    if no function is used.
    """
    wants = stubs.Wants(
        libraries={"libcudart.so.13", "libcublas.so.13", "libc.so.6", "libtorch.so"},
        tags={"libcudart.so.13": "libcudart.so.13", "libcublas.so.13": "libcublas.so.13", "GLIBC_2.2": "libc.so.6"},
        functions={"cudaFree@libcudart.so.13", "free@GLIBC_2.2", "ncclInit", "PyList_New"},
    )
    assert stubs.plan(wants, {"libtorch.so"}) == {
        "libcublas.so.13": {"libcublas.so.13": []},
        "libcudart.so.13": {"libcudart.so.13": ["cudaFree"], "": ["ncclInit"]},
    }


def test_stub_source_and_version_script(stubs: ModuleType) -> None:
    """The source of a stub contains each function once. Functions without a version tag are in no version."""
    tags = {"V2": ["b", "a"], "": ["c", "a"]}
    assert stubs.source(tags).count("return 100") == 3
    assert stubs.version_script(tags) == "V2 { global: b; a; };\n"


@pytest.mark.skipif(not all(map(shutil.which, ("gcc", "readelf", "nm"))), reason="needs gcc and binutils")
def test_program_starts_with_the_stub_library(stubs: ModuleType, tmp_path: Path) -> None:
    """A program that is linked with a library with version tags starts with the stub after the library was deleted. The
    function in the stub returns 100.
    """
    library = tmp_path / "torch" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "real.c").write_text("int cudaFree(void) { return 0; }")
    (tmp_path / "real.map").write_text("libcudart.so.13 { global: cudaFree; };")
    (tmp_path / "own.c").write_text("int cudaFree(void); int own(void) { return cudaFree(); }")

    def gcc(*words: str | Path) -> None:
        subprocess.run(["gcc", "-shared", "-fPIC", *words], check=True, cwd=tmp_path)

    gcc("-Wl,-soname,libcudart.so.13", "-Wl,--version-script=real.map", "-o", library / "libcudart.so.13", "real.c")
    gcc("-Wl,-rpath,$ORIGIN", "-o", library / "libown.so", "own.c", library / "libcudart.so.13")
    (library / "libcudart.so.13").unlink()
    stubs.main(tmp_path / "torch")
    program = f"import ctypes; raise SystemExit(ctypes.CDLL('{library}/libown.so').own())"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 100


def test_missing_torch_fails_the_stub_script(stubs: ModuleType, tmp_path: Path) -> None:
    """With a wrong folder the script fails, instead of creating an image without stubs."""
    with pytest.raises(SystemExit, match="There is no torch in"):
        stubs.main(tmp_path)

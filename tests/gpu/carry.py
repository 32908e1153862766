"""Downloads the kernel libraries that the GPU checks call, for a machine without network.

    python -m tests.gpu.carry DIR

DIR becomes a folder for PYTHONPATH, for Python 3.12 and torch 2.11 (CUDA 13.0) on x86-64. It holds DeepGEMM and FlashMLA,
as SGLang publishes them, without the headers and symbols that no call needs. pip downloads the packages from the index for
which it is configured. strip (binutils) is needed.

On the machine DeepGEMM compiles its kernels when they are first called. It needs nvcc (in CUDA_HOME or on the PATH) and g++,
and keeps the results in DG_JIT_CACHE_DIR (default: ~/.deep_gemm). Several processes may share that folder.
"""

import argparse
import fnmatch
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 48 * 2**20
"""Largest permitted size of DIR in bytes. The transfer to the machine takes 64 MiB, of which the repository needs the
rest.
"""
PYTHON = "3.12"
GLIBC = (17, 24, 28)
"""Minor versions of glibc 2 whose wheels run on the machine; pip matches each of them exactly."""


@dataclass(frozen=True)
class Package:
    """A wheel to download."""

    name: str
    version: str
    sha256: str
    left_out: tuple[str, ...] = ()
    """Patterns (as of fnmatch) of members that no call needs."""


DEEP_GEMM = Package(
    "sgl-deep-gemm", "0.1.5", "e5e9f92cdf0515fe878bd81131bc25d2984e00c005824d2932af01a5e0d75261",
    ("deep_gemm/legacy/*", "*/include/cute/*_sparse*", "*/include/cutlass/conv/*", "*/include/cutlass/epilogue/*",
     "*/include/cutlass/experimental/*", "*/include/cutlass/gemm/*", "*/include/cutlass/reduction/*",
     "*/include/cutlass/transform/*"),
)  # fmt: skip
"""The last version whose library loads with torch 2.11: 0.1.5.post3 and later need symbols of later versions of torch."""
TVM_FFI = Package(
    "apache-tvm-ffi", "0.1.11", "2843f084cdc94dedacd8b257a395a2b71b8a3dc7fc99711b148bf1d161983128",
    ("tvm_ffi/include/*", "tvm_ffi/3rdparty/*", "tvm_ffi/src/*", "tvm_ffi/share/*", "tvm_ffi/cython/*"),
)  # fmt: skip
"""TVM FFI loads the library of DeepGEMM, which requires exactly this version."""
FLASH_MLA = Package("sgl-flash-mla", "1.0.0", "95d2761376337af4568dbadedc1807b0d90e4d8383c63fa859518a34937392b3")
"""FlashMLA uses torch's stable ABI, so it loads with torch 2.10 and later, although its metadata require 2.14."""
PACKAGES = (DEEP_GEMM, TVM_FFI, FLASH_MLA)


def requirements(packages: Iterable[Package]) -> str:
    """Return a requirements file for pip, with hashes."""
    return "".join(f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in packages)


def download_command(file: Path, target: Path) -> list[str]:
    """Return the pip command that downloads the requirements in FILE to TARGET, for the Python of the other machine."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC] + ["--platform=manylinux2014_x86_64"]
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:",
        f"--python-version={PYTHON}", "--implementation=cp", *platforms, f"--dest={target}", f"--requirement={file}",
    ]  # fmt: skip


def members(names: Iterable[str], package: Package) -> list[str]:
    """Return the members of PACKAGE's wheel that are unpacked."""
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in package.left_out)]


def wheel_of(folder: Path, package: Package) -> Path:
    """Return the path of PACKAGE's wheel in FOLDER."""
    return next(folder.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))


def unpack(wheel: Path, package: Package, site: Path) -> None:
    """Unpack the members of WHEEL that are needed to SITE, and strip the libraries of debugging symbols."""
    with zipfile.ZipFile(wheel) as archive:
        carried = members(archive.namelist(), package)
        archive.extractall(site, carried)
    for library in (site / name for name in carried if name.endswith(".so")):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)


def size(folder: Path) -> int:
    """Return the number of bytes of all files below FOLDER."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def too_large(folder: Path, limit: int = LIMIT) -> str:
    """Return the reason why FOLDER is too large for the machine; "" if it is not too large."""
    bytes_ = size(folder)
    if bytes_ <= limit:
        return ""
    return f"{folder} has {bytes_ / 2**20:.1f} MiB, but at most {limit / 2**20:.0f} MiB can be carried: leave a package out."


def carry(site: Path) -> str:
    """Replace the folder SITE with a folder that contains all packages. Return the reason if this failed; "" if it
    succeeded.
    """
    if not shutil.which("strip"):
        return "strip is missing: install binutils."
    if site.exists() and not (site / "deep_gemm").is_dir() and any(site.iterdir()):
        return f"{site} holds other files, which would be deleted: name a new folder."
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch)
        (wheels / "requirements.txt").write_text(requirements(PACKAGES))
        if subprocess.run(download_command(wheels / "requirements.txt", wheels), check=False).returncode:
            return "pip could not download the packages: see its message above."
        shutil.rmtree(site, ignore_errors=True)
        for package in PACKAGES:
            unpack(wheel_of(wheels, package), package, site)
    return too_large(site)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.carry", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dir", metavar="DIR", type=Path, help="the folder to make; an earlier result is replaced")
    given = parser.parse_args(arguments)
    if why := carry(given.dir):
        print(why, file=sys.stderr)
        return 1
    print(f"{given.dir}: {size(given.dir) / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

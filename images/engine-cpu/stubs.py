"""Create stubs of the NVIDIA libraries that torch is linked with, so that torch can be imported where they are not
installed.

    python3 stubs.py FOLDER_OF_TORCH

Requires readelf, nm and gcc. Each stub has the name, the version tags and the functions that torch needs; every function
returns 100, which is cudaErrorNoDevice, so that torch finds no GPU, as on any machine without one.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)\.so|ld-linux")
"""Libraries that are in the image."""
UNTAGGED = re.compile(r"cu[a-zA-Z]|nccl|nvrtc|nvshmem|nvml|cupti")
"""Prefixes of functions of NVIDIA's libraries. Functions without a version tag do not identify their library."""


@dataclass
class Wants:
    """The libraries, version tags and functions that shared objects need from other libraries."""

    libraries: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    """Version tag -> its library."""
    functions: set[str] = field(default_factory=set)
    """`name` or `name@tag`."""


def read(files: Iterable[Path]) -> Wants:
    """Read the needs of these files with readelf and nm."""
    wants = Wants()
    for file in files:
        wants.libraries |= set(re.findall(r"Shared library: \[([^]]+)\]", _output("readelf", "-dW", file)))
        library = ""
        for line in _output("readelf", "-VW", file).splitlines():
            if match := re.search(r"File: (\S+)", line):
                library = match[1]
            elif library and (match := re.search(r"Name: (\S+)\s+Flags", line)):
                wants.tags[match[1]] = library
        symbols = _output("nm", "-D", "--undefined-only", file).splitlines()
        wants.functions |= {line.split()[-1].replace("@@", "@") for line in symbols if line.strip()}
    return wants


def plan(wants: Wants, present: set[str]) -> dict[str, dict[str, list[str]]]:
    """Return library -> version tag -> functions, for each library that is needed and neither in the system nor in
    `present`.

    Functions without a tag are added to the stub of the CUDA runtime, which is always loaded; the linker accepts them from
    any library.
    """
    missing = sorted(name for name in wants.libraries - present if not SYSTEM.match(name))
    stubs: dict[str, dict[str, list[str]]] = {name: {} for name in missing}
    for tag, library in sorted(wants.tags.items()):
        if library in stubs:
            stubs[library][tag] = []
    runtime = next((name for name in missing if name.startswith("libcudart")), None)
    for function in sorted(wants.functions):
        name, _, tag = function.partition("@")
        if tag and wants.tags.get(tag) in stubs:
            stubs[wants.tags[tag]][tag].append(name)
        elif not tag and runtime and UNTAGGED.match(name):
            stubs[runtime].setdefault("", []).append(name)
    return stubs


def source(tags: Mapping[str, list[str]]) -> str:
    """Return the functions as C source code."""
    names = {name for functions in tags.values() for name in functions}
    return "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))


def version_script(tags: Mapping[str, list[str]]) -> str:
    """Return the linker's version script; "" if no function has a version tag."""
    return "".join(f"{tag} {{ global: {''.join(f'{name}; ' for name in names)}}};\n" for tag, names in tags.items() if tag)


def compile_stub(library: Path, tags: Mapping[str, list[str]]) -> None:
    """Compile the shared library."""
    with tempfile.TemporaryDirectory() as folder:
        code, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        code.write_text(source(tags))
        script.write_text(version_script(tags))
        versions = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library.name}", *versions]
        subprocess.run([*command, "-o", library, code], check=True)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(torch: Path) -> None:
    """Create the stubs next to torch's own libraries, where its run path finds them."""
    libraries = torch / "lib"
    torch_libraries = [*libraries.glob("*.so*"), *torch.glob("_C*.so")]
    if not torch_libraries:
        sys.exit(f"There is no torch in {torch}.")
    for name, tags in plan(read(torch_libraries), {path.name for path in torch_libraries}).items():
        compile_stub(libraries / name, tags)
        print(f"{name}: {sum(map(len, tags.values()))} functions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Writes stand-ins for the NVIDIA libraries that torch is linked with, so that it imports where they are not installed.

    python3 stubs.py FOLDER_OF_TORCH

Needs readelf, nm and gcc. Each stand-in has the name, the version tags and the functions that torch asks for; every function
answers 100, which is cudaErrorNoDevice. With it torch finds no GPU, as on any machine without one.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)\.so|ld-linux")
"""Libraries that the image has."""
UNTAGGED = re.compile(r"cu[a-zA-Z]|nccl|nvrtc|nvshmem|nvml|cupti")
"""How functions of NVIDIA's libraries begin. Those without a version tag do not say which library they are of."""


@dataclass
class Wants:
    """What shared objects ask of other libraries."""

    libraries: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    """Version tag -> the library that it is of."""
    functions: set[str] = field(default_factory=set)
    """`name` or `name@tag`."""


def read(files: Iterable[Path]) -> Wants:
    """Ask readelf and nm."""
    wants = Wants()
    for file in files:
        wants.libraries |= set(re.findall(r"Shared library: \[([^]]+)\]", _told("readelf", "-dW", file)))
        library = ""
        for line in _told("readelf", "-VW", file).splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found[1]
            elif library and (found := re.search(r"Name: (\S+)\s+Flags", line)):
                wants.tags[found[1]] = library
        listed = _told("nm", "-D", "--undefined-only", file).splitlines()
        wants.functions |= {line.split()[-1].replace("@@", "@") for line in listed if line.strip()}
    return wants


def plan(wants: Wants, there: set[str]) -> dict[str, dict[str, list[str]]]:
    """Library -> version tag -> functions, for each library that is asked for and neither the system's nor in `there`.

    Functions without a tag go to the CUDA runtime, which everything loads; the linker takes them from any library.
    """
    missing = sorted(name for name in wants.libraries - there if not SYSTEM.match(name))
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
    """The functions in C."""
    names = {name for each in tags.values() for name in each}
    return "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))


def version_script(tags: Mapping[str, list[str]]) -> str:
    """The linker's version script; empty without tags."""
    return "".join(f"{tag} {{ global: {''.join(f'{name}; ' for name in names)}}};\n" for tag, names in tags.items() if tag)


def compile_stub(library: Path, tags: Mapping[str, list[str]]) -> None:
    """Make the shared library."""
    with tempfile.TemporaryDirectory() as folder:
        code, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        code.write_text(source(tags))
        script.write_text(version_script(tags))
        versions = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library.name}", *versions]
        subprocess.run([*command, "-o", library, code], check=True)


def _told(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(torch: Path) -> None:
    """Put the stand-ins beside torch's own libraries, where its run path finds them."""
    libraries = torch / "lib"
    own = [*libraries.glob("*.so*"), *torch.glob("_C*.so")]
    if not own:
        sys.exit(f"There is no torch in {torch}.")
    for name, tags in plan(read(own), {path.name for path in own}).items():
        compile_stub(libraries / name, tags)
        print(f"{name}: {sum(map(len, tags.values()))} functions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Tests of bills of materials: the contents of an image, and the dependencies of a wheel, by package URL."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion

from ome_operator.errors import UserError
from release.sbom import bom, pinned_packages, wheel_bom
from tests.support.parts import ROOT

STATUS = b"""\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
Description: words
 Version: not this

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.11.2-1+b1
"""


def valid(text: str) -> None:
    """Validate the text with the schema of its format."""
    from cyclonedx.validation.json import JsonStrictValidator  # compiling 38 grammars takes seconds in each process of tests

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_image_sbom_lists_debian_and_python_packages() -> None:
    """The bill of materials of an image lists the installed packages of Debian and Python, each once, even if several layers
    contain the file that names it.
    """
    yaml = b"Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0\n\nwords"
    dpkg = "var/lib/dpkg/status"
    files = [(dpkg, b""), (dpkg, STATUS), ("usr/lib/PyYAML-6.0.dist-info/METADATA", yaml)]
    text = bom("ome-operator", "1.2.3", files)
    valid(text)
    made = json.loads(text)
    assert made["bomFormat"] == "CycloneDX"
    own = made["metadata"]["component"]
    assert (own["name"], own["version"], own["type"]) == ("ome-operator", "1.2.3", "container")
    assert [part["purl"] for part in made["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64",
        "pkg:deb/debian/python3@3.11.2-1%2Bb1?arch=amd64",
        "pkg:pypi/pyyaml@6.0",
    ]
    (dependencies,) = [one for one in made["dependencies"] if one["ref"] == "ome-operator"]
    assert len(dependencies["dependsOn"]) == 3


OPERATOR = """\
aiohttp==3.14.5 \\
    --hash=sha256:0133 \\
    --hash=sha256:038c
    # via ome-operator (pyproject.toml)
uvloop==0.22.1 ; sys_platform != 'win32' \\
    --hash=sha256:05e4
"""
AGENT = OPERATOR + "huggingface-hub==2.4.0 \\\n    --hash=sha256:05e5\n"


def wheel(folder: Path, *needs: str) -> Path:
    """Return the path of a wheel with these requirements."""
    made = folder / "ome_operator-1.2.3-py3-none-any.whl"
    lines = ["Metadata-Version: 2.4", "Name: ome-operator", "Version: 1.2.3", *(f"Requires-Dist: {need}" for need in needs)]
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("ome_operator-1.2.3.dist-info/METADATA", "\n".join(lines))
    return made


def test_wheel_sbom_lists_locked_requirements(tmp_path: Path) -> None:
    """The bill of materials of a wheel lists its requirements with their locked versions, and marks packages of an extra as
    optional.
    """
    needs = ("aiohttp>=3.10", "uvloop>=0.21; sys_platform != 'win32'", "huggingface_hub>=2.4; extra == 'agent'")
    made = wheel(tmp_path, *needs)
    text = wheel_bom(made, OPERATOR, AGENT)
    valid(text)
    bill = json.loads(text)
    own = bill["metadata"]["component"]
    assert (own["purl"], own["type"]) == ("pkg:pypi/ome-operator@1.2.3", "application")
    assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(made.read_bytes()).hexdigest()}]
    assert {part["purl"]: part["scope"] for part in bill["components"]} == {
        "pkg:pypi/aiohttp@3.14.5": "required",
        "pkg:pypi/uvloop@0.22.1": "required",
        "pkg:pypi/huggingface-hub@2.4.0": "optional",
    }


def test_unlocked_package_gives_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs rich, which no lock file contains: run `make lock`"):
        wheel_bom(wheel(tmp_path, "rich>=13"), OPERATOR, AGENT)
    with pytest.raises(UserError, match=r"needs sglang, which no lock file contains"):
        wheel_bom(wheel(tmp_path, "sglang>=0.5; extra == 'engine'"), OPERATOR, AGENT)


def test_unlocked_extra_uses_its_own_version(tmp_path: Path) -> None:
    made = wheel(tmp_path, "sglang==0.5.23; sys_platform == 'linux' and extra == 'engine'")
    parts = json.loads(wheel_bom(made, OPERATOR, AGENT))["components"]
    assert [part["scope"] for part in parts if part["purl"] == "pkg:pypi/sglang@0.5.23"] == ["optional"]


def test_lock_files_of_the_images_are_readable() -> None:
    """The lock files of the images, from which bills of materials get versions, can be read. The agent's image has all
    packages of the operator's, and more.
    """
    found = [pinned_packages((ROOT / "images" / name / "requirements.txt").read_text()) for name in ("operator", "agent")]
    assert found[0]["kopf"] and "huggingface-hub" not in found[0]
    assert found[0].items() < found[1].items()

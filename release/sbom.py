"""Software bills of materials in CycloneDX format. The bill of an image lists the packages in the image; the bill of a
wheel lists its dependencies.

A wheel contains none of its dependencies. Its bill lists the versions with which the commit was tested.
"""

import email
import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ome_operator.errors import UserError

_FIELD = re.compile(r"^(Package|Version|Architecture|Status): (.*)$", re.MULTILINE)


def bom(name: str, version: str, files: Iterable[tuple[str, bytes]]) -> str:
    """Return the bill of materials of an image: its Debian and Python packages. If several layers contain the same file,
    the last layer is used.
    """
    last = dict(files)
    parts = [part for path, content in last.items() for part in _parts(path, content)]
    return _written(Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=name), parts)


def wheel_bom(wheel: Path, lock: str, with_extras: str) -> str:
    """Return the bill of materials of a wheel. Required: packages of the lock file. Optional: packages that only the lock
    file with extras or a pinned extra has.
    """
    facts = _metadata(wheel)
    name, version = canonicalize_name(facts["Name"]), facts["Version"]
    asked = [Requirement(line) for line in facts.get_all("Requires-Dist") or ()]
    required, more = pinned_packages(lock), _exact(asked) | pinned_packages(with_extras)
    needs = {canonicalize_name(each.name) for each in asked}
    if lacks := sorted(needs - required.keys() - more.keys()):
        raise UserError(f"{wheel.name} needs {', '.join(lacks)}, which no lock file contains: run `make lock`.")
    parts = [_package(package, at, ComponentScope.REQUIRED) for package, at in required.items()]
    optional = {package: at for package, at in more.items() if package not in required}
    parts += [_package(package, at, ComponentScope.OPTIONAL) for package, at in optional.items()]
    digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())
    url = PackageURL("pypi", name=name, version=version)
    own = Component(name=name, version=version, type=ComponentType.APPLICATION, purl=url, hashes=[digest], bom_ref=str(url))
    return _written(own, parts)


def _exact(asked: Iterable[Requirement]) -> dict[str, str]:
    """Return package name -> version of the requirements that pin one version exactly."""
    found: dict[str, str] = {}
    for each in asked:
        (only, *others) = each.specifier or (None,)
        if each.marker and "extra" in str(each.marker) and only and not others and only.operator == "==":
            found[canonicalize_name(each.name)] = only.version
    return found


def pinned_packages(lock: str) -> dict[str, str]:
    """Return package name -> version of each package in a lock file."""
    lines = (line.rstrip("\\").strip() for line in lock.splitlines() if line[:1].isalnum())
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(need.name): next(iter(need.specifier)).version for need in found}


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [path for path in archive.namelist() if path.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


def _written(own: Component, parts: list[Component]) -> str:
    made = Bom(components=sorted(parts, key=lambda part: (str(part.purl), part.name)))
    made.metadata.component = own
    made.register_dependency(own, parts)
    return make_outputter(made, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _parts(path: str, content: bytes) -> Iterator[Component]:
    text = content.decode(errors="replace")
    if path.endswith("METADATA"):
        facts = email.message_from_string(text)
        yield _component(PackageURL("pypi", name=str(facts["Name"]).lower().replace("_", "-"), version=facts["Version"]))
        return
    for block in text.split("\n\n"):
        found = dict(_FIELD.findall(block))
        if found.get("Status", "").endswith(" installed"):
            more = {"arch": found["Architecture"]}
            yield _component(PackageURL("deb", "debian", found["Package"], found["Version"], qualifiers=more))


def _package(name: str, version: str, scope: ComponentScope) -> Component:
    return _component(PackageURL("pypi", name=name, version=version), scope)


def _component(url: PackageURL, scope: ComponentScope | None = None) -> Component:
    return Component(name=url.name, version=url.version, type=ComponentType.LIBRARY, purl=url, scope=scope, bom_ref=str(url))

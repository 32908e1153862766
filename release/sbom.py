"""Software bills of materials, as CycloneDX: what is in an image, read from the image itself."""

import email
import re
from collections.abc import Iterable, Iterator

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

_FIELD = re.compile(r"^(Package|Version|Architecture|Status): (.*)$", re.MULTILINE)


def bom(name: str, version: str, files: Iterable[tuple[str, bytes]]) -> str:
    """The bill of an image: Debian's packages and Python's. Of a file that several layers have, the last counts."""
    last = dict(files)
    parts = [part for path, content in last.items() for part in _parts(path, content)]
    own = Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=name)
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


def _component(url: PackageURL) -> Component:
    return Component(name=url.name, version=url.version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url))

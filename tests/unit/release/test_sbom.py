"""Bills of materials: what is in an image, by package URL."""

import json

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release.sbom import bom

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


def test_packages_of_debian_and_of_python() -> None:
    """Those that are installed; of a file in several layers the last."""
    yaml = b"Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0\n\nwords"
    dpkg = "var/lib/dpkg/status"
    files = [(dpkg, b""), (dpkg, STATUS), ("usr/lib/PyYAML-6.0.dist-info/METADATA", yaml)]
    text = bom("ome-operator", "1.2.3", files)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
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

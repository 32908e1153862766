"""Go programs that a release needs. They are built like those of a local cluster, from modules pinned by go.sum."""

from pathlib import Path

from ome_local.binaries import ensure
from ome_local.binaries.versions import Tool

GOMODS = Path(__file__).parent / "gomods"
ORAS = Tool(name="oras", module="registry", version="1.2.3", package="oras.land/oras/cmd/oras", gomods=GOMODS)
"""The program that pushes an OCI layout by digest and tags digests."""
REGISTRY = Tool(
    name="registry",
    module="registry",
    version="0.20.6",
    package="github.com/google/go-containerregistry/cmd/registry",
    gomods=GOMODS,
)
"""The registry on loopback that tests use."""
ACTIONLINT = Tool(
    name="actionlint",
    module="actionlint",
    version="1.7.8",
    package="github.com/rhysd/actionlint/cmd/actionlint",
    gomods=GOMODS,
)
"""The program that checks .github/workflows."""


def program(tool: Tool) -> Path:
    """Return the path of the program, after building it if it is not in the cache."""
    return ensure.provide([tool])[tool.name]

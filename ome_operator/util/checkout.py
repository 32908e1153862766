"""Where the files are that come with `ome` and are no Python: in a checkout beside the package, from a wheel inside it."""

from pathlib import Path

import ome_operator
from ome_operator.errors import UserError

FOLDERS = ("charts", "config")
"""What pyproject.toml puts into the wheel."""


def shipped(folder: str) -> Path:
    """One of FOLDERS, as this installation has it."""
    package = Path(ome_operator.__file__).parent
    inside = package / "shipped" / folder  # first: beside an installed package there may be a stranger's `config`
    found = inside if inside.is_dir() else package.parent / folder
    if not (found / _KNOWN[folder]).is_dir():
        missing = f"There is no {folder}/{_KNOWN[folder]} in {found.parent}"
        raise UserError(f"{missing}: install the wheel, or work in a checkout.")
    return found


_KNOWN = {"charts": "ome-crd", "config": "models"}
"""Folder → what is in it for certain."""


def checkout() -> Path:
    """The repository that this package is part of; images are built from it."""
    root = Path(ome_operator.__file__).parents[1]
    if not (root / "images" / "operator" / "Dockerfile").is_file():
        raise UserError(f"There is no images/operator in {root}: this needs a checkout of the repository (`git clone`).")
    return root

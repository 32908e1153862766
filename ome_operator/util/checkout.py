"""Locate the files other than Python code that are installed with `ome`. In a checkout they are next to the package; in a
wheel they are inside the package.
"""

from pathlib import Path

import ome_operator
from ome_operator.errors import UserError

FOLDERS = ("charts", "config")
"""The folders that pyproject.toml adds to the wheel."""


def shipped_folder(folder: str) -> Path:
    """Return the path of a folder in FOLDERS for this installation. Raises UserError if the folder is missing."""
    package = Path(ome_operator.__file__).parent
    packaged = (
        package / "shipped" / folder
    )  # checked first, because another project's `config` may be next to an installed package
    location = packaged if packaged.is_dir() else package.parent / folder
    if not (location / _CONTENTS[folder]).is_dir():
        missing = f"There is no {folder}/{_CONTENTS[folder]} in {location.parent}"
        raise UserError(f"{missing}: install the wheel, or work in a checkout.")
    return location


_CONTENTS = {"charts": "ome-crd", "config": "models"}
"""Name of a folder -> name of a subfolder that it always contains."""


def checkout() -> Path:
    """Return the root of the repository that contains this package. Images are built from this root. Raises UserError if
    the package is not in a checkout.
    """
    root = Path(ome_operator.__file__).parents[1]
    if not (root / "images" / "operator" / "Dockerfile").is_file():
        raise UserError(f"There is no images/operator in {root}: this needs a checkout of the repository (`git clone`).")
    return root

"""Where the operator was installed from."""

from pathlib import Path

import ome_operator
from ome_operator.errors import UserError


def checkout() -> Path:
    """Where charts/ and config/ are: beside the package, which is installed from a checkout."""
    root = Path(ome_operator.__file__).parents[1]
    if not (root / "charts" / "ome-crd").is_dir():
        raise UserError(f"There is no charts/ome-crd in {root}: this needs a checkout of the repository.")
    return root

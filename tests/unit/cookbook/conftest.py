"""A fixture with the models, hardware and recipes of this checkout (`Library`), which are read once."""

import pytest

from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook.library import Library


@pytest.fixture(scope="session")
def shelf() -> Library:
    return bookshelf()

"""A fixture with the library of this checkout, which is read once."""

import pytest

from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook.library import Library


@pytest.fixture(scope="session")
def shelf() -> Library:
    return bookshelf()

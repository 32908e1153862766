"""Fixture: the library of this checkout, read once."""

import pytest

from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook.library import Library


@pytest.fixture(scope="session")
def shelf() -> Library:
    return bookshelf()

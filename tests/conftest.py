"""For every suite: how many examples hypothesis makes, and how golden files are written anew.

Property tests take the same sample every time, or with OME_SOAK=1 many examples that differ from run to run; a failing one
is printed with the line that repeats it.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

SOAK = bool(os.environ.get("OME_SOAK"))
settings.register_profile(
    "ome",
    derandomize=not SOAK,
    max_examples=5000 if SOAK else 40,
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ome")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes tests/golden/*.yaml anew: read the difference before committing it."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/*.yaml anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to write golden files instead of comparing them."""
    return bool(request.config.getoption("--update-golden"))

"""The part of the Dockerfile language that images/ uses."""

import pytest

from ome_local.images.dockerfile import Copy, Run, parse
from ome_operator.errors import UserError

TEXT = """\
# A comment
FROM debian:bookworm-slim AS base
RUN apt-get update && \\
    # inside
    apt-get install -y python3
ENV A=1 B="two words"
RUN --mount=type=cache,target=/root/.cache/pip pip install \\
    x

FROM base
COPY --from=base /opt/a /opt/b
COPY one two/ /dir/
USER 65532:65532
ENTRYPOINT ["python3", "-m", "x"]
"""


def test_stages() -> None:
    """In order, by name; the image itself has none."""
    stages = parse(TEXT)
    assert list(stages) == ["base", ""]
    assert (stages["base"].parent, stages[""].parent) == ("debian:bookworm-slim", "base")
    assert stages[""].user == "65532:65532"
    assert stages[""].entrypoint == ("python3", "-m", "x")


def test_steps() -> None:
    """Lines are joined, comments vanish, and RUN sees the ENV lines above it."""
    stages = parse(TEXT)
    first, second = stages["base"].steps
    assert first == Run("apt-get update && apt-get install -y python3", (), {})
    assert second == Run("pip install x", ("/root/.cache/pip",), {"A": "1", "B": "two words"})
    assert stages[""].steps == [Copy(("/opt/a",), "/opt/b", "base"), Copy(("one", "two/"), "/dir/", None)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no FROM line"),
        ("RUN true", "cannot be built here"),
        ("FROM a\nWORKDIR /x", "the instruction is not one of FROM, RUN"),
        ("FROM a b c", "it is not FROM image AS name"),
        ("FROM a\nCOPY --chown=1:1 a b", r"it is not COPY \[--from=stage\]"),
        ("FROM a\nENV A 1", "it is not ENV NAME=value"),
        ("FROM a\nENTRYPOINT python3", "cannot be built here"),
        ("FROM a\nUSER 1\nRUN id", "RUN after USER would run as root here"),
    ],
)
def test_what_docker_would_do_otherwise_is_refused(text: str, why: str) -> None:
    """In one sentence that names the file."""
    with pytest.raises(UserError, match=why) as error:
        parse(text, "images/x/Dockerfile")
    assert str(error.value).startswith("images/x/Dockerfile")

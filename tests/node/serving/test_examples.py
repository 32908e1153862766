"""The programs in examples/ as people run them: through a port-forward."""

import os
import subprocess
import sys

import pytest

from tests.node.serving.conftest import FULL
from tests.node.test_pods import forwarded
from tests.support.rig import ROOT, Rig

RARELY = "streamed calls of random weights lack the mark before their arguments, which the parser needs: `make e2e` tries it"


@pytest.mark.parametrize(
    ("example", "words", "expected"),
    [
        ("thinking.py", (), "Content"),
        pytest.param(
            "tool_call.py", ("--force",), "Tool call: get_weather", marks=pytest.mark.skipif(not FULL, reason=RARELY)
        ),
        ("tool_result.py", (), ""),
        ("chat.py", ("Hi",), ""),
    ],
)
def test_example(serving: Rig, tiny: str, example: str, words: tuple[str, ...], expected: str) -> None:
    """Random weights say noise, but a call's arguments fit what the tool asks for."""
    with forwarded(serving.cluster, "service/kimi-k2-tiny", 80, "kimi-k2-tiny") as local:
        command = [sys.executable, str(ROOT / "examples" / example), "--max-tokens", "120", *words]
        env = {**os.environ, "OPENAI_BASE_URL": f"{local}v1", "OPENAI_MODEL": "kimi-k2-tiny", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(command, env=env, capture_output=True, timeout=90, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert said.strip() and expected in said

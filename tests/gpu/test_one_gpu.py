"""Tests real engines on a real GPU. Without a GPU, checks that the manifests rendered for them are complete."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import check, rendered

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISSING = [name for name in ("sglang", "sglang_router", "mooncake", "torch") if importlib.util.find_spec(name) is None]
NEEDS = pytest.mark.skipif(
    bool(MISSING) or shutil.which("nvidia-smi") is None,
    reason=f"needs an NVIDIA GPU and SGLang; missing: {', '.join(MISSING) or 'nvidia-smi'}",
)


def render(to: Path, *words: str) -> Path:
    """Write what the operator would create to a file, and return the file."""
    command = [sys.executable, "-m", "ome_operator", "render", *words, "-o", "json"]
    to.write_text(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return to


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the rendered services of one-gpu.yaml."""
    return render(tmp_path_factory.mktemp("gpu") / "one.json", "-f", str(HERE / "one-gpu.yaml"))


def test_rendered_commands_contain_no_unexpanded_variable(one: Path) -> None:
    """The commands of prefill, decode and router contain no reference that a kubelet would have to expand, and each engine
    gets an address of its own.
    """
    of = {rendered.part(manifest): manifest for manifest in rendered.read(one)}
    prefill, decode = rendered.process(of["pair-engine"], 0), rendered.process(of["pair-decoder"], 1)
    front = rendered.router(of["pair-router"], prefill, decode)
    assert not [word for each in (prefill, decode, front) for word in each.argv if "$(" in word]
    assert "--dist-init-addr=127.0.0.11:5758" in decode.argv and "--host=127.0.0.11" in decode.argv
    assert "--tp-size=1" in prefill.argv and prefill.env["SGLANG_HOST_IP"] == "127.0.0.10"
    assert front.argv[-5:] == ["--prefill", prefill.url, "8998", "--decode", decode.url]
    assert not [word for word in front.argv if "selector" in word or "discovery" in word]


@NEEDS
@pytest.mark.timeout(0)
def test_prefill_decode_pair_generates_the_same_tokens_as_one_server(one: Path, tmp_path: Path) -> None:
    """Prefill, decode and router as rendered must generate the same tokens as a single server if the sums of the kernels do
    not depend on the batch.
    """
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps({"items": []}))
    found = check.main(one, samples, tmp_path / "out")
    assert found["pair"]["ok"] and found["pair"]["called"]["unit"] in ("celsius", "fahrenheit")
    assert found["exact"]["as_plain"]
    for name in ("lora", "lora-triton", "lora-pinned"):
        assert found[name]["poet_differs"] and found[name]["silent_as_plain"]

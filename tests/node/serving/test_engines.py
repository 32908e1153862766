"""What is known of flags is what engines themselves say, in the images that are built here. No GPU is needed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ome_local.realnode.spec import PLACED
from ome_operator.engines import extract
from ome_operator.engines.flags import command_line, mistake
from tests.node.serving.conftest import MINUTES
from tests.support.rig import Rig

pytestmark = MINUTES
SOURCE = Path(extract.__file__)
PARSE = """
import argparse, contextlib, io, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
def taken(words):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(["--model-path=m", *words])
    except SystemExit:
        return False
    return True
print(json.dumps([taken(words) for words in json.loads(sys.argv[1])]))
"""
LINES = (
    ["--tp-size=8"],
    ["--tp", "8"],
    ["--tensor-parallel-size", "8"],
    ["--tp-size", "8", "9"],
    ["--tp-size=eight"],
    ["--tp-size=8.0"],
    ["--tp-size"],
    ["--enable-deepep-moe"],
    ["--cuda-graph-bs", "8"],
    ["--cuda-graph-bs-decode", "8", "16"],
    ["--enable-dp-attention"],
    ["--enable-metrics=1"],
    ["--mem-fraction-static=.85"],
    ["--mem-fraction-static=85%"],
    ["--mem-fraction-statik=0.9"],
    ["--deepep-mode=fast"],
    ["--moe-a2a-backend", "deepep"],
    ["--kv-cache-dtype=fp8"],
    ["--no-enable-tf32-matmul"],
    ["--lora-paths"],
    ["--context-length=abc"],
    ["--context-length=128k"],
    ["--context-length=128K"],
    ["--context-length=1.5Ki"],
    ["--context-length=1.5k"],
    ["--context-length", "128_000"],
    ["--mem-fraction-static=1E-1"],
    ["--mm-process-config={}"],
    ["--mm-process-config=none"],
    ["--forward-hooks=[]"],
    ["--forward-hooks=[}"],
    ["--max-runing-requests=16"],
)


def printed(rig: Rig, name: str, image: str, *command: str) -> str:
    """What a command prints in a pod of an image; what it complains about stays there."""
    quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "quiet", *command]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**PLACED, "restartPolicy": "Never", "containers": [{"name": "main", "image": image, "command": quiet}]},
    }
    rig.cluster.apply(pod)
    try:
        rig.cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=200s")
        return rig.cluster.kubectl("logs", name)
    finally:
        rig.delete("Pod", "default", name)


@pytest.mark.parametrize(
    ("name", "image"),
    [("sglang-0.5.23", "local/sglang-cpu:0.5.23"), ("sglang-router-0.3.2", "local/sglang-router:0.3.2")],
)
def test_the_shipped_file_is_what_the_extractor_writes(serving: Rig, name: str, image: str) -> None:
    pod = f"extract-{name.rpartition('-')[0]}"
    written = printed(serving, pod, image, "python3", "-c", SOURCE.read_text(encoding="utf-8"))
    assert written == (SOURCE.parent / "data" / f"{name}.json").read_text(encoding="utf-8")


def known(words: list[str]) -> bool:
    """What our data say of a flag and the words behind it."""
    flag, equals, value = words[0].partition("=")
    found = command_line("sglang-0.5.23").find(flag)
    return found is not None and not mistake(found, [value, *words[1:]] if equals else words[1:])


def test_what_we_refuse_the_engines_parser_refuses_and_what_we_pass_it_takes(serving: Rig) -> None:
    said = printed(serving, "parse", "local/sglang-cpu:0.5.23", "python3", "-c", PARSE, json.dumps(LINES))
    taken = dict(zip(map(" ".join, LINES), json.loads(said), strict=True))
    assert taken == {" ".join(words): known(words) for words in LINES}

"""Tests that the operator's data about the flags of engines equal what the engines in the images of this repository print.
No GPU is needed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ome_local.realnode.spec import PLACED
from ome_operator.engines import extract
from tests.support import resolver
from tests.support.command_lines import LINES, taken
from tests.support.linting import found
from tests.support.rig import Rig

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
RESOLVE = """
import argparse, contextlib, io, json, logging, sys
logging.disable(logging.CRITICAL)
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import ServerArgs
def taken(words):
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            args = ServerArgs.from_cli_args(parser.parse_args(["--model-path=/model", "--device=cpu", *words]))
            args.resolve_once()
            args.check_server_args()
    except (Exception, SystemExit):
        return False
    return True
print(json.dumps([taken(words.split()) for words in json.loads(sys.argv[1])]))
"""
SIZES = (
    "--tp-size=8",
    "--tp-size=8 --attn-dp-size=3",
    "--tp-size=8 --attn-dp-size=4",
    "--tp-size=8 --dp-size=6 --enable-dp-attention",
    "--tp-size=8 --dp-size=2 --attn-dp-size=4",
    "--tp-size=8 --attn-dp-size=8 --moe-dense-tp-size=2",
    "--tp-size=8 --attn-dp-size=8 --moe-dense-tp-size=1",
    "--tp-size=8 --enable-eplb",
    "--tp-size=8 --ep-size=8 --enable-eplb",
    "--tp-size=8 --ep-num-redundant-experts=8",
    "--tp-size=8 --enable-two-batch-overlap",
    "--tp-size=8 --page-size=64 --chunked-prefill-size=1000",
    "--tp-size=8 --page-size=64 --chunked-prefill-size=1024",
)
"""Sizes for 8 GPUs that SGLang checks before it reads weights. Sizes that fail only in a layer, such as EP 7, cannot be
tested in this way.
"""


def printed(rig: Rig, name: str, image: str, *command: str, wait_s: int = 200) -> str:
    """Return the output of a command in a pod of an image with the tiny model. The error output is left out."""
    quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "quiet", *command]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            **PLACED,
            "restartPolicy": "Never",
            "volumes": [{"name": "model", "hostPath": {"path": "/var/lib/ome/models/kimi-k2-tiny"}}],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": quiet,
                    "volumeMounts": [{"name": "model", "mountPath": "/model", "readOnly": True}],
                }
            ],
        },
    }
    rig.cluster.apply(pod)
    try:
        rig.cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", f"--timeout={wait_s}s")
        return rig.cluster.kubectl("logs", name)
    finally:
        rig.delete("Pod", "default", name)


@pytest.mark.parametrize(
    ("name", "image"),
    [("sglang-0.5.23", "local/sglang-cpu:0.5.23"), ("sglang-router-0.3.2", "local/sglang-router:0.3.2")],
)
def test_shipped_flag_data_equal_the_output_of_the_extractor(serving: Rig, name: str, image: str) -> None:
    pod = f"extract-{name.rpartition('-')[0]}"
    written = printed(serving, pod, image, "python3", "-c", SOURCE.read_text(encoding="utf-8"))
    assert written == (SOURCE.parent / "data" / f"{name}.json").read_text(encoding="utf-8")


def test_lint_refuses_exactly_what_the_parser_of_the_engine_refuses(serving: Rig) -> None:
    said = printed(serving, "parse", "local/sglang-cpu:0.5.23", "python3", "-c", PARSE, json.dumps(LINES))
    theirs = dict(zip(map(" ".join, LINES), json.loads(said), strict=True))
    assert theirs == {" ".join(words): taken(words) for words in LINES}


def refused(words: str) -> bool:
    """Return whether `ome lint` reports an error for these arguments, with 8 GPUs and a model without any known facts."""
    runner = {
        "name": "ome-container",
        "image": "docker.io/lmsysorg/sglang:v0.5.23",
        "command": ["sglang", "serve", "--model-path=/model", "--host=0.0.0.0"],
        "args": words.split(),
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    runtime = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "rt"},
        "spec": {"engineConfig": {"runner": runner}},
    }
    return any(finding.rule.severity == "error" for finding in found([runtime]))


@pytest.mark.timeout(1000, func_only=True)
def test_recorded_resolver_results_equal_those_of_the_image(serving: Rig) -> None:
    """SGLang's resolver in the image gives the answers that are recorded. `tests/unit/lint/test_resolver.py` compares `ome
    lint` with this record.
    """
    folder, lines = "/tmp/k2", list(resolver.record())
    words = json.dumps([resolver.argv(line, folder) for line in lines])
    script = f"mkdir {folder}; cd {folder}; mkdir {' '.join(resolver.other_configs())}\n"
    for path, config in resolver.configs().items():
        script += f"cat >{path} <<'END'\n{json.dumps(config)}\nEND\n"
    script += f"exec python3 -W ignore -c \"$0\" {folder} <<'END'\n{words}\nEND\n"
    said = printed(serving, "record", "local/sglang-cpu:0.5.23", "sh", "-c", script, resolver.PROGRAM, wait_s=900)
    assert dict(zip(lines, json.loads(said), strict=True)) == resolver.record()


def test_lint_refuses_exactly_the_sizes_that_the_engine_refuses(serving: Rig) -> None:
    said = printed(serving, "resolve", "local/sglang-cpu:0.5.23", "python3", "-c", RESOLVE, json.dumps(SIZES))
    assert dict(zip(SIZES, json.loads(said), strict=True)) == {words: not refused(words) for words in SIZES}

"""Tests of the memory of an agent's process that reads files whose author wants to exhaust it (T1 of the second security
review).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ome_operator.agent.model_facts import MAX_HEADER_BYTES
from ome_operator.modelinfo.extract import CONFIG, HEADER_MEMORY, INDEX, MEMORY, MODELOPT
from ome_operator.storage import hub as real_hub
from ome_operator.storage.listing import RequestRefused
from ome_operator.util.json_limits import MIB, estimate_memory
from tests.support.hub import Hub, served

MOST_MIB = 300
"""Maximum memory of the process at any time. The chart gives an agent 2 GiB."""
AGENT = """
import asyncio, json, sys, time
from pathlib import Path
import ome_operator.agent.loop, ome_operator.cli.agent
from ome_operator.agent.download import Limits
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.api import Model
from ome_operator.storage.grants import Trust
from tests.support import yamls

endpoint, root = sys.argv[1:]
body = {**yamls.model("m", "hf://org/model"), "kind": "ClusterBaseModel"}
body["metadata"]["uid"] = "u"
body["spec"]["storage"]["path"] = root + "/m"
trust = Trust(private_hosts=frozenset({"127.0.0.1", "localhost"}))
settings = AgentSettings(endpoint=endpoint, roots=(root,), trust=trust, limits=Limits(tries=1))
work = Work(Model.parse(body), settings)
began = time.monotonic()
asyncio.run(work.run())
most = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
report = work.report()
print(json.dumps([most >> 10, report.state, report.message, report.facts, time.monotonic() - began]))
"""


def ran(url: str, root: Path) -> tuple[int, str, str, dict[str, object]]:
    """Run the agent's work on one model in a new process, and return its highest memory in MiB and the model's report."""
    argv = [sys.executable, "-c", AGENT, url, str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    most, state, message, facts, seconds = json.loads(done.stdout.splitlines()[-1])
    print(f"VmHWM {most} MiB, {seconds:.1f} s: {state} {message} {str(facts)[:600]}")
    return most, state, message, facts


def bomb(size: int, start: bytes = b'{"architectures":["X"],"a":[') -> bytes:
    """Return JSON of this size whose parsed values need 25 times the memory of the text."""
    return start + b"[]," * ((size - len(start) - 4) // 3) + b"[]]}"


def test_files_with_large_parsed_size_are_not_parsed(tmp_path: Path) -> None:
    """Three files of 64 MiB whose values would need 25 times as much memory are not parsed: the agent reports that they are
    too large. Reported: they took 5 GB, and again after each restart.
    """
    data = bomb(64 * MIB)
    files = {CONFIG: data, MODELOPT: data, INDEX: data}
    with served(Hub(files)) as hub:
        for _ in range(2):  # the second process finds the complete files
            most, state, _, facts = ran(hub.url, tmp_path)
            assert most < MOST_MIB and state == "Ready"
            assert sum("is too large" in line for line in facts["unknown"]) == 3  # type: ignore[attr-defined]


def most_permitted(memory: int, made: Callable[[int], bytes]) -> bytes:
    """Return the longest text that `made` builds and that is still parsed with `memory` bytes, or a text that is at most a
    tenth shorter. The argument of `made` is the number of values in the text.
    """
    count = int(memory / (estimate_memory(made(1000)) / 1000))
    while estimate_memory(text := made(count)) > memory:
        count = int(count * 0.95)
    return text


def nested(count: int) -> bytes:
    return b'{"architectures":["X"],"a":[' + b",".join([b'{"":' * 40 + b"0" + b"}" * 40] * (count // 80)) + b"]}"


def keyed(count: int) -> bytes:
    return b'{"architectures":["X"],' + b",".join(b'"%x":"zz"' % number for number in range(count // 2)) + b"}"


def wide(count: int) -> bytes:
    return b'{"architectures":["X"],"a":"' + b"a" * count + b'\\ud83d\\ude00"}'


@pytest.mark.parametrize("shape", [nested, keyed, wide])
def test_the_largest_files_that_are_parsed_fit_into_an_agents_memory(shape: Callable[[int], bytes], tmp_path: Path) -> None:
    files = {name: most_permitted(MEMORY[name], shape) for name in (CONFIG, MODELOPT, INDEX)}
    header = most_permitted(HEADER_MEMORY, shape)
    assert all(estimate_memory(files[name]) <= MEMORY[name] for name in files) and estimate_memory(header) <= HEADER_MEMORY
    files |= {f"m-{number}.safetensors": len(header).to_bytes(8, "little") + header for number in range(2)}
    assert len(header) * 2 < MAX_HEADER_BYTES
    with served(Hub(files)) as hub:
        most, state, _, facts = ran(hub.url, tmp_path)
    assert most < MOST_MIB and state == "Ready" and facts["architecture"] == "X", "they are parsed"


def test_hub_description_with_large_parsed_size_is_refused() -> None:
    """A hub's description of a model has the largest permitted size, and its values would need much more memory. It is
    refused before it is parsed. (A description of 32 MiB needed 0.8 GiB.)
    """
    data = bomb(real_hub.LIMIT, b'{"sha":"c0ffee","siblings":[')
    with pytest.raises(RequestRefused, match="than agents read: its description may need"):
        real_hub.Hub("org/model", "").read_description(data)

"""Tests of pod settings other than the command: the network of the node, and a larger stack."""

import resource
import subprocess
from typing import Any

import pytest
import yaml

from ome_operator.cookbook.layout import PlanProposal, plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.manifests import manifests
from ome_operator.cookbook.request import RecipeRequest

STACK_KIB = 65536


def made(shelf: Library, **asked: Any) -> PlanProposal:
    return plan(RecipeRequest(**{"hardware": "h200", "model": "instruct", **asked}), shelf)


def components(planned: PlanProposal) -> list[dict[str, Any]]:
    spec = yaml.safe_load(manifests(planned).runtime)["spec"]
    return [spec[name] for name in ("engineConfig", "decoderConfig") if name in spec]


@pytest.mark.parametrize("asked", [{}, {"strategy": "pd"}, {"engine": "tensorrt-llm", "strategy": "tp+dp+ep"}])
def test_host_network_is_used_only_on_request(asked: dict[str, Any], shelf: Library) -> None:
    for part in components(made(shelf, **asked, host_network=True)):
        assert (part["hostNetwork"], part["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    for part in components(made(shelf, **asked)):
        assert "hostNetwork" not in part and "dnsPolicy" not in part
    assert any("NetworkPolicy" in note for note in made(shelf, **asked, host_network=True).notes)


def test_mpi_and_its_ssh_processes_get_the_required_stack_size(shelf: Library) -> None:
    (part,) = components(made(shelf, engine="tensorrt-llm", strategy="tp+dp+ep", tp=16))
    for rank, program in (("leader", "exec mpirun"), ("worker", 'exec "$(command -v sshd)"')):
        script = part[rank]["runner"]["args"][0]
        (line,) = [text for text in script.splitlines() if text.startswith("ulimit")]
        assert script.index(line) < script.index(program)
        said = subprocess.run(["bash", "-ec", f"{line}\nulimit -s"], capture_output=True, text=True, check=True).stdout
        most = resource.getrlimit(resource.RLIMIT_STACK)[1]
        enough = most == resource.RLIM_INFINITY or most >= STACK_KIB * 1024
        assert said.split()[-1] == str(STACK_KIB) if enough else "this node allows no more" in said

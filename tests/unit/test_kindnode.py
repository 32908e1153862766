"""Tests of the code that provides Docker and kind for tests: it requests only what the machine has, and removes only its own
changes.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

from tests.support.kindnode import docker, runc_fit
from tests.support.kindnode.bundle import Image, write


def test_container_gets_only_capabilities_of_the_machine() -> None:
    """A container gets no capability that the machine does not have. Docker requests every capability for kind's nodes, and
    runc fails if one of them is not available.
    """
    process: dict[str, Any] = {
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": None},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 99, "soft": 50}, {"type": "RLIMIT_CORE", "hard": 7, "soft": 7}],
        "oomScoreAdj": -999,
    }
    runc_fit.fit(process, {"CAP_CHOWN"}, {"RLIMIT_NOFILE": 60, "RLIMIT_CORE": -1}.__getitem__, 0)
    assert process["capabilities"] == {"bounding": ["CAP_CHOWN"], "ambient": []}
    assert process["rlimits"][0] == {"type": "RLIMIT_NOFILE", "hard": 60, "soft": 50}
    assert process["rlimits"][1] == {"type": "RLIMIT_CORE", "hard": 7, "soft": 7}, "without a limit nothing is cut"
    assert process["oomScoreAdj"] == 0


def test_options_of_runc_in_both_spellings() -> None:
    words = ["--root", "/x", "exec", "--process=/p", "id"]
    assert runc_fit.option(words, "--process", "-p") == "/p"
    assert runc_fit.option(["create", "-b", "/b", "id"], "--bundle", "-b") == "/b"
    assert runc_fit.option(["state", "id"], "--bundle", "-b") == ""


def test_every_image_of_an_archive_is_in_both_indexes(tmp_path: Path) -> None:
    """Every image of an archive is in both of its lists, because kind reads only the first image of manifest.json. A layer
    that two images share is stored once.
    """
    layer = tmp_path / "layer.tar"
    layer.write_bytes(b"a layer")
    write(tmp_path / "all.tar", Image("host/a:1", layer), Image("host/b:2", layer, {"Entrypoint": ["/b"]}))
    with tarfile.open(tmp_path / "all.tar") as tar:
        names = tar.getnames()
        told = {name: json.load(tar.extractfile(name)) for name in ("repositories", "manifest.json")}
    assert list(told["repositories"]) == ["host/a", "host/b"]
    assert [one["RepoTags"] for one in told["manifest.json"]] == [["host/a:1"], ["host/b:2"]]
    assert len([name for name in names if name.endswith(".tar")]) == 1
    assert len({one["Config"] for one in told["manifest.json"]}) == 2


RULES = """\
-P FORWARD ACCEPT
-N DOCKER
-A FORWARD -j DOCKER-USER
-A FORWARD -o br-0123456789ab -j ACCEPT
-A FORWARD -i br-lan -o eth0 -j ACCEPT
-A FORWARD -j KUBE-FORWARD
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
"""


def test_only_packet_filter_rules_of_docker_are_removed() -> None:
    """When the session's Docker daemon is removed, its rules in chains of other programs are removed, and no other rules.
    Rules in Docker's own chains are removed with the chains. A bridge of another program does not belong to Docker.
    """
    assert [" ".join(rule) for rule in docker.rules_of_docker(RULES)] == [
        "FORWARD -j DOCKER-USER",
        "FORWARD -o br-0123456789ab -j ACCEPT",
        "POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
    ]

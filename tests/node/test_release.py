"""Test of a release as users install it: from a registry with TLS onto a real node. The service generates tokens, is
upgraded to the next version, and is rolled back.

`make release-check` runs it. For helm, the registry is 127.0.0.1, as in the commands that users type. The node has its own
loopback interface, so its containerd is configured with the address that this machine has for the node, as for a registry
mirror.
"""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from ome_local import layout, lifecycle, tinymodel
from ome_local.cluster import Cluster
from ome_local.images import build
from ome_local.realnode.spec import NAME, PLACED
from tests.node.conftest import Steps
from tests.node.serving.conftest import HOLDS, MINUTES, MODEL, RUNTIME, SINGLE, come_up, tokens
from tests.support import clusters, tls_registry
from tests.support.rig import ROOT, Manifest, Rig
from tests.support.tls_registry import Front

pytestmark = [MINUTES, pytest.mark.timeout(1800, func_only=True)]
VERSIONS = ("90.0.0", "90.1.0")
"""Versions that are newer than any tag that a clone may have."""
PLACES = ("ome_operator/__init__.py", "pyproject.toml", "charts/ome-crd/Chart.yaml", "charts/ome-resources/Chart.yaml")
SAID = re.compile(r'^((?:__version__ = |version = )"|(?:version|appVersion): )[\d.]+', re.MULTILINE)
SERVICE = "kimi-k2-tiny"
ENGINES = quote("component in (engine,decoder)")


@pytest.fixture(scope="module")
def rig(real: Cluster) -> Iterator[Rig]:
    """Yield a cluster with a real node and no object of this project."""
    name = clusters.name("release")
    try:
        yield Rig(Cluster.up(name, real_node=True))
    finally:
        lifecycle.down(layout.layout(name))


@pytest.fixture(scope="module")
def front(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Yield the registry, whose certificate authority helm, oras and the node trust."""
    node = rig.cluster.node
    folder = tmp_path_factory.mktemp("tls")
    with tls_registry.running(folder, [node.host]) as made, pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
        bundle = (
            folder / "bundle.crt"
        )  # Images are built from registries whose certificates the machine's own authorities have signed.
        bundle.write_text((Path(known).read_text() if known else "") + made.authority.read_text())
        patch.setenv("SSL_CERT_FILE", str(bundle))
        patch.setenv("DOCKER_CONFIG", str(folder))
        there = f"https://{node.host}:{made.port}"
        hosts = node.registries / made.host / "hosts.toml"
        hosts.parent.mkdir(parents=True)
        hosts.write_text(
            f'server = "{there}"\n[host."{there}"]\ncapabilities = ["pull", "resolve"]\nca = "{made.authority}"\n'
        )
        yield made


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of this checkout's commit, from which releases are built."""
    folder = tmp_path_factory.mktemp("clone") / "repository"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    return folder


def commit_version(clone: Path, version: str) -> None:
    """Commit the version as docs/releases.md describes for a release."""
    for place in PLACES:
        text = (clone / place).read_text()
        (clone / place).write_text(SAID.sub(rf"\g<1>{version}", text))
    log, heading = clone / "CHANGELOG.md", f"## [{version}] - 2026-01-01\n\n- Version {version}."
    text = log.read_text().replace("## [Unreleased]\n", "")
    before, _, after = text.partition("\n## [" if "\n## [" in text else "\n### ")
    log.write_text(f"{before}\n{heading}\n\n{text[len(before) :].lstrip()}" if after else text)
    mail = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", clone, *mail, "commit", "-qam", f"release {version}"], check=True)
    subprocess.run(["git", "-C", clone, "tag", f"v{version}"], check=True)


def release(clone: Path, front: Front, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command of `make release` with the code of the clone."""
    command = [sys.executable, "-m", "release", *words, "--registry", front.host]
    env = {**os.environ, "PYTHONPATH": str(clone)}
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, check=False)


def operator(rig: Rig) -> Manifest:
    """Return the operator's only pod after all other operator pods are gone."""
    selector = "app.kubernetes.io/name=ome-operator"
    rig.wait("a single operator", lambda: len(rig.all("Pod", "ome", selector)) == 1, 60)
    (found,) = rig.all("Pod", "ome", selector)
    return found


def running_image(pod: Manifest) -> str:
    """Return the image that the pod's status names."""
    return str(pod["spec"]["containers"][0]["image"])


def engines(rig: Rig) -> set[str]:
    return {pod["metadata"]["uid"] for pod in rig.all("Pod", SERVICE, ENGINES)}


def publish(clone: Path, front: Front, version: str, steps: Steps) -> None:
    """Run `make release`, which pushes; the version was committed before, as a maintainer does."""
    commit_version(clone, version)
    with steps.measure(f"release {version}: made and pushed"):
        done = release(clone, front, "push", "--version", version)
    assert done.returncode == 0, done.stderr
    for repository in ("ome-operator", "ome-agent", "charts/ome-crd", "charts/ome-resources"):
        assert version in front.tags(repository)


SEED = "upgrade --install ome-crd oci://REGISTRY/charts/ome-crd --namespace ome --create-namespace"
"""The first `helm` command of the documents in docs/seeds.md, except for the name of the registry."""


def test_release_is_installed_upgraded_and_rolled_back(rig: Rig, front: Front, clone: Path, steps: Steps) -> None:
    cluster, (first, second) = rig.cluster, VERSIONS
    publish(clone, front, first, steps)
    placed = ["--set-json", f"operator={json.dumps(PLACED)}", "--namespace", "ome", "--wait", "--timeout=180s"]
    chart = f"oci://{front.host}/charts/ome-resources"
    with steps.measure("helm install from the registry"):
        cluster.helm(*SEED.replace("REGISTRY", front.host).split())
        cluster.await_crds()
        cluster.helm("install", "ome", chart, *placed)
    pod = operator(rig)
    image = running_image(pod)
    assert pod["spec"]["nodeName"] == NAME
    assert re.fullmatch(rf"{re.escape(front.host)}/ome-operator@sha256:\w+", image)
    with steps.measure("helm test"):
        assert "Phase:          Succeeded" in cluster.helm("test", "ome", "--namespace", "ome", "--timeout", "120s")

    for archive in build.build(("engine-cpu", "router")).values():
        cluster.load_image(archive)
    tinymodel.put()
    cluster.kubectl("label", "node", NAME, HOLDS)
    for file in (MODEL, RUNTIME):
        cluster.kubectl("apply", "-f", str(ROOT / file))
    url = come_up(rig, SINGLE, SERVICE, steps, "the tiny service with the released operator, apply to Ready")
    said, running = tokens(url, "The future of AI is"), engines(rig)
    assert said and len(running) == 2

    publish(clone, front, second, steps)
    with steps.measure("helm upgrade to the next version"):
        cluster.helm("upgrade", "ome", chart, *placed)
    assert running_image(operator(rig)) != image
    again(rig, url, said, running)
    with steps.measure("helm rollback"):
        cluster.helm("rollback", "ome", "1", "--namespace", "ome", "--wait", "--timeout=180s")
    assert running_image(operator(rig)) == image
    again(rig, url, said, running)


def again(rig: Rig, url: str, said: list[int], running: set[str]) -> None:
    """Check the service after an upgrade of the operator. The router's sidecar has the image of the operator, so routers
    are replaced. Engines are not replaced, and generate the same tokens.
    """
    image = running_image(operator(rig))

    def replaced() -> bool:
        pods = rig.all("Pod", SERVICE, "component=router")
        return bool(pods) and all(pod["spec"]["initContainers"][-1]["image"] == image for pod in pods)

    rig.wait("the router has the operator's registry", replaced, 120)
    rig.ready(SERVICE, SERVICE, 120)
    assert tokens(url, "The future of AI is") == said
    assert engines(rig) == running


def test_make_release_fails_without_requests_for_dirty_tree_or_existing_version(front: Front, clone: Path) -> None:
    """`make release` with a changed working tree, or with a version that exists, fails with one message and exit code 1,
    before it sends any request to the registry.
    """
    front.asked.clear()
    (clone / "new.txt").write_text("x")
    dirty = release(clone, front, "push", "--version", VERSIONS[-1])
    (clone / "new.txt").unlink()
    old = release(clone, front, "push", "--version", VERSIONS[0])
    assert (dirty.returncode, old.returncode) == (1, 1)
    assert dirty.stderr.startswith("The working tree has changes (new.txt)") and dirty.stderr.count("\n") == 1
    assert old.stderr.startswith(f"VERSION is {VERSIONS[0]}, and tag v{VERSIONS[0]} exists") and old.stderr.count("\n") == 1
    assert front.asked == []

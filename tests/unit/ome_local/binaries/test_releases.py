"""Tests of release binaries from a server on loopback whose files are good, wrong, not verifiable or missing, or that does
not answer.
"""

import dataclasses
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from ome_local.binaries import ensure, gobuild, releases
from ome_local.binaries.versions import (
    CONTROL_PLANE,
    GOMODS,
    LDFLAGS,
    NODE,
    OF_VERSION,
    OTHERS,
    PATCHES,
    TOOLS,
    Target,
    Tool,
    kubernetes,
    tools,
)
from ome_operator.errors import UserError
from tests.unit.ome_local.binaries.conftest import Host, sha

MACHINE = Target("linux", "amd64")
PROGRAM = b"#!/bin/sh\necho I am the program\n"
KUBECTL = TOOLS["kubectl"]
KUBECTL_PATH = "/v1.34.2/bin/linux/amd64/kubectl"


def archive(member: str, content: bytes) -> bytes:
    """Return a .tar.gz archive with one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def never_build(tools: list[Tool], *_: object, more_to_come: bool) -> None:
    """Replace the Go build: print the programs that it was asked to build."""
    raise UserError(f"built {', '.join(tool.name for tool in tools)}")


def test_plain_release_binary_is_downloaded_and_executable(host: Host, place: Path) -> None:
    """Some release files, such as those of Kubernetes, are the program itself. Such a file is downloaded and made
    executable. No other file is requested.
    """
    host.release(KUBECTL_PATH, PROGRAM)
    releases.fetch(KUBECTL, MACHINE, place / "kubectl")
    assert (place / "kubectl").read_bytes() == PROGRAM
    assert os.access(place / "kubectl", os.X_OK)
    assert host.asked == [KUBECTL_PATH]


def test_program_is_extracted_from_release_archive(host: Host, place: Path) -> None:
    """Some release files, such as etcd's, are a .tar.gz archive. Only the program in the archive is kept, and the archive
    is deleted.
    """
    host.release("/v3.6.6/etcd-v3.6.6-linux-amd64.tar.gz", archive("etcd-v3.6.6-linux-amd64/etcd", PROGRAM))
    releases.fetch(TOOLS["etcd"], MACHINE, place / "etcd")
    assert (place / "etcd").read_bytes() == PROGRAM
    assert [path.name for path in place.iterdir()] == ["etcd"], "the archive is deleted"


def test_recorded_digest_and_not_the_host_checksum_decides(host: Host, place: Path) -> None:
    """The digest in checksums.txt decides, and not a checksum from the host. The host provides another program together with
    a matching checksum: the download is refused, and no file of it is kept.
    """
    host.release(KUBECTL_PATH, PROGRAM)
    evil = PROGRAM + b"evil"
    host.files |= {KUBECTL_PATH: evil, f"{KUBECTL_PATH}.sha256": sha(evil).encode()}
    with pytest.raises(
        releases.Unavailable, match=f"SHA-256 {sha(evil)}, but checksums.txt has {sha(PROGRAM)}, so the file is not used"
    ):
        releases.fetch(KUBECTL, MACHINE, place / "kubectl")
    assert list(place.iterdir()) == []


def test_program_without_a_recorded_digest_is_not_downloaded(host: Host, place: Path) -> None:
    """A program without a digest in checksums.txt is not downloaded. No request is sent, even if the host offers the file
    and its checksum.
    """
    host.files |= {KUBECTL_PATH: PROGRAM, f"{KUBECTL_PATH}.sha256": sha(PROGRAM).encode()}
    with pytest.raises(releases.Unavailable, match=r"checksums\.txt has no SHA-256 for linux amd64"):
        releases.fetch(KUBECTL, MACHINE, place / "kubectl")
    assert host.asked == [] and list(place.iterdir()) == []


def test_reason_for_building_each_program_is_printed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """If programs are built instead of downloaded, a message gives the reason for each: no recorded digest, a file that is
    missing on a host, or a host that cannot be reached.
    """
    said: list[str] = []
    monkeypatch.setattr(ensure, "print_progress", said.append)
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    monkeypatch.setattr(gobuild, "build", never_build)
    for name in ("kube-scheduler", "kubelet", "kubectl"):
        host.release(f"/v1.34.2/bin/linux/amd64/{name}", PROGRAM)
    host.release("/v3.6.6/etcd-v3.6.6-linux-amd64.tar.gz", b"")
    del host.files["/v1.34.2/bin/linux/amd64/kube-scheduler"]
    monkeypatch.setenv("OME_ETCD_RELEASES", "http://127.0.0.1:1")
    with pytest.raises(UserError, match="built kwok, helm, kube-scheduler, etcd"):
        ensure.ensure(["kwok", "kubectl", "helm", "kube-scheduler", "kubelet", "etcd"])
    (line,) = said
    assert "release of kwok, helm (checksums.txt has no SHA-256 for linux amd64); kube-scheduler (http" in line
    assert "kube-scheduler: HTTP Error 404: Not Found); etcd (http://127.0.0.1:1: " in line and "kubectl" not in line


@pytest.mark.parametrize("content", [b"<html>log in</html>", b""])
def test_html_page_in_place_of_a_program_is_refused(host: Host, place: Path, content: bytes) -> None:
    """If a host returns an HTML page instead of a program, as captive portals and incomplete mirrors do, the page is
    refused.
    """
    host.release(KUBECTL_PATH, PROGRAM)
    host.files[KUBECTL_PATH] = content
    with pytest.raises(releases.Unavailable, match="not used"):
        releases.fetch(KUBECTL, MACHINE, place / "kubectl")
    assert list(place.iterdir()) == []


def test_silent_host_delays_only_seconds_and_is_contacted_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """A host that accepts connections and never answers delays the programs by some seconds, and is asked only once,
    although four programs come from it.
    """
    monkeypatch.setattr(releases, "ANSWER_WITHIN_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OME_K8S_RELEASES", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("kubectl", "kube-apiserver", "kube-scheduler", "kube-controller-manager"):
            host.release(f"/v1.34.2/bin/linux/amd64/{name}", PROGRAM)
            with pytest.raises(releases.Unavailable, match="no response within 1 s"):
                releases.fetch(TOOLS[name], MACHINE, place / name)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_slow_download_is_not_interrupted(host: Host, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """A slow download is not interrupted: the time limit is for the first byte of the response. A download of 100 MB may
    take longer.
    """
    monkeypatch.setattr(releases, "ANSWER_WITHIN_S", 0.5)
    host.release(KUBECTL_PATH, PROGRAM)
    host.pauses[KUBECTL_PATH] = 1.0
    releases.fetch(KUBECTL, MACHINE, place / "kubectl")
    assert (place / "kubectl").read_bytes() == PROGRAM


def test_refused_connection_to_host_is_reported(host: Host, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """If no server listens at the host's address, the message says that the connection was refused."""
    host.release(KUBECTL_PATH, PROGRAM)
    monkeypatch.setenv("OME_K8S_RELEASES", "http://127.0.0.1:1")
    with pytest.raises(releases.Unavailable, match="refused"):
        releases.fetch(KUBECTL, MACHINE, place / "kubectl")


def test_cached_programs_are_used_without_a_download(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in the cache are used without contacting a host. Programs that cannot be downloaded are built, with one build
    for each module.
    """
    monkeypatch.setattr(gobuild, "build", never_build)
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    host.release(KUBECTL_PATH, PROGRAM)
    path = ensure.ensure(["kubectl"])["kubectl"]
    assert path == ensure.cache_dir() / "kubectl-1.34.2-linux-amd64" / "kubectl"
    asked = len(host.asked)
    assert ensure.ensure(["kubectl"]) == {"kubectl": path}
    assert len(host.asked) == asked
    with pytest.raises(UserError, match="built kube-scheduler, kube-proxy"):
        ensure.ensure(["kubectl", "kube-scheduler", "kube-proxy"])
    left = [entry.name for entry in ensure.cache_dir().iterdir() if not entry.name.endswith(".lock")]
    assert left == ["kubectl-1.34.2-linux-amd64"], "no incomplete file stays"


def test_concurrent_calls_download_a_program_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two calls need the same program at the same time, the second waits for the first, and finds the finished file."""
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    host.release(KUBECTL_PATH, PROGRAM)
    threads = [threading.Thread(target=ensure.ensure, args=(["kubectl"],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.asked.count(KUBECTL_PATH) == 1


def test_every_program_is_pinned() -> None:
    """Every program has a pinned version: its module has go.mod and go.sum, and go.mod requires the version in the table,
    unless the program's source is in this repository. Paths of releases have no unfilled placeholders.
    """
    for tool in TOOLS.values():
        for file in ("go.mod", "go.sum"):
            assert (GOMODS / tool.module / file).is_file()
        for pattern in (tool.archive, tool.checksums, tool.member or ""):
            assert "{" not in tool.fill(pattern, MACHINE)
        required = (GOMODS / tool.module / "go.mod").read_text()
        if not tool.archive and tool.package.startswith("."):
            assert (GOMODS / tool.module / tool.package / "main.go").is_file()
            continue
        assert f"v{tool.version}" in required, "go.mod and the table have the same version"
        assert not tool.archive or dataclasses.replace(tool, base="x").address()


def test_programs_of_a_cluster_are_one_module() -> None:
    """The programs of a cluster are built from one module, because Kubernetes, helm, kwok and CoreDNS have most packages in
    common. Separate modules would compile these again in other versions.
    """
    assert len({TOOLS[name].module for name in (*CONTROL_PLANE, *NODE)}) == 1
    others = {tools(version)[name].module for version in OTHERS for name in OF_VERSION}
    assert {path.parent.name for path in GOMODS.glob("*/go.mod")} == {
        TOOLS["etcd"].module,
        TOOLS["kueue"].module,
        "keda",
        *others,
    }


@pytest.mark.parametrize("version", OTHERS)
def test_other_kubernetes_version_has_its_own_module(version: str) -> None:
    found = tools(version)
    assert {name for name in found if found[name] != TOOLS[name]} == set(OF_VERSION)
    (module,) = {found[name].module for name in OF_VERSION}
    required = (GOMODS / module / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{version} " in required
    assert all(f"\t{found[name].package}\n" in required for name in OF_VERSION)
    assert LDFLAGS[module]["k8s.io/component-base/version.gitVersion"] == f"v{version}"


def test_kubernetes_version_is_selected_by_its_minor_version() -> None:
    assert [kubernetes(asked) for asked in ("1.31", "v1.37.2", "1.34")] == ["1.31.13", "1.37.2", "1.34.2"]
    with pytest.raises(UserError, match=r"Kubernetes '1.3' is not supported: use one of 1\.31\.13, 1\.34\.2, "):
        kubernetes("1.3")


def test_releases_are_downloaded_in_parallel(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads run in parallel, so that the delays of a network do not add up. In this test no download continues before a
    second one has started.
    """
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    two = threading.Barrier(2)
    fetch = releases.fetch

    def together(tool: Tool, target: Target, into: Path) -> None:
        two.wait(20)
        fetch(tool, target, into)

    monkeypatch.setattr(releases, "fetch", together)
    for name in ("kubectl", "kube-scheduler"):
        host.release(f"/v1.34.2/bin/linux/amd64/{name}", PROGRAM)
    assert all(path.read_bytes() == PROGRAM for path in ensure.ensure(["kubectl", "kube-scheduler"]).values())


@pytest.mark.parametrize("more", [True, False])
def test_compiled_packages_are_kept_until_all_programs_are_built(
    more: bool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled packages, which take several GB, are kept until all programs are built. Without them, building the programs
    of a real node takes as long as building those of its control plane.
    """
    go = ensure.cache_dir().parent / "bin" / "go"
    go.parent.mkdir(parents=True)
    go.write_text('#!/bin/sh\nmkdir -p "$GOCACHE"; for w; do [ "$l" = -o ] && echo >"$w"; l=$w; done\n')
    go.chmod(0o755)
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    monkeypatch.setattr(gobuild, "find_go", lambda *_: str(go))
    ensure.ensure(["kubectl"], more_to_come=more)
    assert [path.name for path in ensure.cache_dir().glob(".go-*")] == ([".go-cluster"] if more else [])


class TestPatches:
    """Tests of building kwok with the libraries of a newer Kubernetes version than its own."""

    PATCH = PATCHES["kwok"]

    @pytest.fixture
    def go(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return the path of a simulated `go` that provides the module's source, and records the go.mod with which it
        builds.
        """
        folder = ensure.cache_dir().parent
        go = folder / "go"
        told = json.dumps({"Version": "v0.7.0", "Zip": f"{folder}/source.zip"})
        go.write_text(
            f"#!/bin/sh\nif [ $1 = mod ]; then echo '{told}'; exit; fi\n"
            f'for w; do case $w in -modfile=*) cp "${{w#*=}}" {folder}/used.mod; ls "${{w#*=}}" "${{w%mod}}sum"\nesac\n'
            f'[ "$l" = -o ] && echo >"$w"; l=$w; done; grep -h replace.*/ {folder}/used.mod | tail -1 >{folder}/replaced\n'
            f'cat $(sed "s/.*=> //" {folder}/replaced)/{self.PATCH.file} >{folder}/compiled\n'
        )
        go.chmod(0o755)
        monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
        monkeypatch.setattr(gobuild, "find_go", lambda *_: str(go))
        return go

    def source(self, go: Path, text: str) -> None:
        """Let the simulated `go` provide a module with this source text."""
        with zipfile.ZipFile(go.parent / "source.zip", "w") as file:
            file.writestr(f"{self.PATCH.module}@v0.7.0/{self.PATCH.file}", text)

    def test_patch_is_applied_to_a_copy_of_the_module(self, go: Path) -> None:
        self.source(go, f"a({self.PATCH.old})\n")
        ensure.ensure(["kwok"])
        assert (go.parent / "compiled").read_text() == f"a({self.PATCH.new})\n"
        own = (GOMODS / TOOLS["kwok"].module / "go.mod").read_text()
        used = (go.parent / "used.mod").read_text()
        assert used.startswith(own), "everything else is pinned as before"
        assert len(used.removeprefix(own).split()) == 4, "replace MODULE => FOLDER"

    def test_outdated_patch_gives_a_one_line_error(self, go: Path) -> None:
        """If a newer version of kwok does not contain the text that a patch replaces, the message says to correct the
        patches.
        """
        self.source(go, "other\n")
        with pytest.raises(
            UserError, match=rf"sigs.k8s.io/kwok v0.7.0 does not contain {self.PATCH.old} in .*: correct PATCHES"
        ):
            ensure.ensure(["kwok"])


def test_registry_is_recognized_by_its_response(host: Host) -> None:
    """A server counts as a registry only if it answers like a registry. Any other server at the address, such as a proxy
    that refuses requests, does not count as one. A port on which no server listens does not count, either.
    """
    host.files["/v2/"] = b"{}"
    assert not releases.is_registry(f"{host.address}/v2/")
    assert not releases.is_registry("http://127.0.0.1:1/v2/")
    host.headers["Docker-Distribution-Api-Version"] = "registry/2.0"
    assert releases.is_registry(f"{host.address}/v2/")
    del host.files["/v2/"]
    assert releases.is_registry(f"{host.address}/v2/"), "a registry may refuse the request"

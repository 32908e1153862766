"""Tests of the recorded digests, and of what `make checksums` adds to them."""

from collections import Counter

import pytest

from ome_local.binaries import checksums, digests, releases
from ome_local.binaries.versions import KUBERNETES, OTHERS, TOOLS, Target
from tests.unit.ome_local.binaries.conftest import Host, sha

LINES = digests.FILE.read_text().splitlines()
PROGRAM, OTHER = b"the program", b"another program"
APISERVER, KUBECTL = (f"v{KUBERNETES}/bin/linux/amd64/{name}" for name in ("kube-apiserver", "kubectl"))


def test_every_checksum_line_is_valid_and_belongs_to_a_downloadable_file() -> None:
    """Every line in checksums.txt is valid and belongs to a file that may be downloaded. A line that cannot be parsed would
    have no effect, and neither would a line of an old version.
    """
    found = [digests.LINE.fullmatch(line) for line in LINES]
    assert found and [line for line, match in zip(LINES, found, strict=True) if match is None] == []
    paths = [match[2] for match in found if match]
    assert [path for path, times in Counter(paths).items() if times > 1] == []
    assert paths == sorted(paths)
    assert set(paths) <= {path for path, _, _ in checksums.files()}
    assert len({match[1] for match in found if match}) == len(paths), "two paths have the same content"
    assert digests.read_digests() == {match[2]: match[1] for match in found if match}


def test_every_release_file_has_a_unique_name() -> None:
    """Every release file has a unique name, which contains the program, its version and its machine. So each line belongs to
    a single file.
    """
    every = [path for path, _, _ in checksums.files()]
    assert len(set(every)) == len(every)
    assert {f"v{version}/bin/linux/arm64/kube-apiserver" for version in (KUBERNETES, *OTHERS)} <= set(every)
    assert f"v{KUBERNETES}/bin/darwin/arm64/kubectl" in every and f"v{KUBERNETES}/bin/darwin/arm64/kubelet" not in every
    assert {tool.name for _, tool, _ in checksums.files()} == {name for name, tool in TOOLS.items() if tool.archive}


def test_missing_checksums_are_added(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """`make checksums` adds the lines that are missing, in order and each once. For a file without a digest, it prints the
    reason instead.
    """
    for path, content in ((KUBECTL, PROGRAM), (APISERVER, OTHER)):
        host.files[f"/{path}.sha256"] = sha(content).encode()
    assert checksums.main() == 0
    assert digests.FILE.read_text() == f"{sha(OTHER)}  {APISERVER}\n{sha(PROGRAM)}  {KUBECTL}\n"
    said = capsys.readouterr().out
    assert f"{KUBECTL}: added\n" in said and f"{APISERVER}: added\n" in said
    assert f"v0.7.0/kwok-linux-amd64: no digest was found: {host.address}/v0.7.0/kwok-linux-amd64.sha256: HTTP" in said
    assert checksums.main() == 0 and "added" not in capsys.readouterr().out


def test_existing_checksums_are_never_changed(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """`make checksums` never changes an existing line. If the host now states another digest, this is printed and make
    fails.
    """
    host.release(f"/{KUBECTL}", PROGRAM)
    host.files |= {f"/{KUBECTL}.sha256": sha(OTHER).encode(), f"/{APISERVER}.sha256": sha(OTHER).encode()}
    assert checksums.main() == 1
    assert digests.read_digests() == {KUBECTL: sha(PROGRAM), APISERVER: sha(OTHER)}
    said = f"{KUBECTL}: {host.address} has the digest {sha(OTHER)}, but the existing line has {sha(PROGRAM)}; the "
    said += "existing line is kept\n"
    assert said in capsys.readouterr().out


def test_checksum_of_an_old_version_is_reported(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.release("/v1.0.0/bin/linux/amd64/kubectl", PROGRAM)
    assert checksums.main() == 0
    assert "v1.0.0/bin/linux/amd64/kubectl: no program" in capsys.readouterr().out
    assert digests.read_digests() == {"v1.0.0/bin/linux/amd64/kubectl": sha(PROGRAM)}


def test_digest_is_read_from_a_list_but_not_from_an_html_page(host: Host) -> None:
    """The digest is read from a list such as etcd's. A page, which a captive portal returns instead, is not accepted as a
    list.
    """
    etcd, machine = TOOLS["etcd"], Target("linux", "amd64")
    lines = f"{sha(OTHER)}  etcd-v3.6.6-linux-arm64.tar.gz\n{sha(PROGRAM)}  etcd-v3.6.6-linux-amd64.tar.gz\n"
    host.files["/v3.6.6/SHA256SUMS"] = lines.encode()
    assert releases.published_digest(etcd, machine) == sha(PROGRAM)
    host.files["/v3.6.6/SHA256SUMS"] = b"<html>log in</html>"
    with pytest.raises(releases.Unavailable, match=r"states no SHA-256 for v3\.6\.6/etcd-v3\.6\.6-linux-amd64\.tar\.gz"):
        releases.published_digest(etcd, machine)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{'a' * 64}\n", "a" * 64),
        (f"{'A' * 64}  helm.tar.gz\n", "a" * 64),
        (f"{'a' * 64} *helm.tar.gz\n", "a" * 64),
        (f"{'b' * 64}  other\n{'a' * 64}  ./helm.tar.gz\n", "a" * 64),
        (f"{'b' * 64}  other\n", None),
        ("404 page not found", None),
        ("", None),
    ],
)
def test_digest_is_read_from_each_checksum_format(text: str, found: str | None) -> None:
    """The digest of a file is found in every format of digest files that the projects of these programs use."""
    assert releases.digest_of(text, "helm.tar.gz") == found

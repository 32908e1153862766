"""Tests of the KEDA of a local cluster: its programs, certificates and command lines, and how the API server reaches it."""

import base64
import json
import zipfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ome_local import creation, keda, options
from ome_local.binaries import ensure, gobuild
from ome_local.binaries.versions import KEDA, TOOLS, Target
from ome_local.components import IDENTITIES, PORTS, POWERFUL, apiserver
from ome_local.layout import Layout
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError

MACHINE = Target("linux", "amd64")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Layout, ClusterFile]:
    """Return the files of a new cluster with KEDA."""
    at = Layout(tmp_path / "mine")
    return at, creation.create(at, Spec(keda=True))


def test_keda_certificates_are_valid_for_client_and_server(made: tuple[Layout, ClusterFile]) -> None:
    """The adapter is a client of KEDA's operator, and a server for the API server, which expects the name of a Service in
    the certificate.
    """
    at, _ = made
    environment = keda.write(at)
    assert environment["KEDA_CLUSTER_OBJECT_NAMESPACE"] == keda.NAMESPACE and environment["WATCH_NAMESPACE"] == ""
    assert (at.keda / "ca.crt").read_bytes() == (at.pki / "ca.crt").read_bytes()
    assert (at.keda / "tls.key").stat().st_mode & 0o077 == 0
    found = x509.load_pem_x509_certificate((at.keda / "tls.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["keda-metrics-apiserver.keda.svc"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    uses = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {*uses} == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_keda_processes_listen_on_loopback(made: tuple[Layout, ClusterFile], monkeypatch: pytest.MonkeyPatch) -> None:
    at, kept = made
    monkeypatch.setattr(ensure, "ensure", lambda names: {name: Path(f"/programs/{name}") for name in names})
    operator, adapter = (keda.command(at, kept, name) for name in keda.PROCESSES)
    assert operator[0] == "/programs/keda-operator" and adapter[0] == "/programs/keda-adapter"
    grpc = f"127.0.0.1:{kept.ports['keda']}"
    assert f"--metrics-service-bind-address={grpc}" in operator and f"--metrics-service-address={grpc}" in adapter
    assert f"--health-probe-bind-address=127.0.0.1:{kept.ports['keda-health']}" in operator
    assert {"--bind-address=127.0.0.1", f"--secure-port={kept.ports['keda-adapter']}"} <= {*adapter}


def test_api_server_authenticates_to_the_adapter_with_its_own_authority(
    made: tuple[Layout, ClusterFile],
) -> None:
    at, kept = made
    spec = keda.api_service(at, kept)["spec"]
    assert spec["service"] == {"name": keda.SERVICE, "namespace": keda.NAMESPACE, "port": kept.ports["keda-adapter"]}
    assert base64.b64decode(spec["caBundle"]) == (at.pki / "ca.crt").read_bytes()
    arguments = apiserver(at, kept, 1, at.audit_log)
    authority = at.front_pki / "ca.crt"
    assert f"--requestheader-client-ca-file={authority}" in arguments
    assert authority.read_bytes() != (at.pki / "ca.crt").read_bytes()
    client = x509.load_pem_x509_certificate((at.front_pki / "front-proxy-client.crt").read_bytes())
    client.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))


def test_clusters_of_earlier_versions_start_without_keda_settings(made: tuple[Layout, ClusterFile]) -> None:
    at, _ = made
    assert {*keda.PORTS} <= {*PORTS} and keda.NAME in IDENTITIES and keda.NAME in POWERFUL
    old = ClusterFile(Spec(), {name: 1 for name in PORTS if name not in keda.PORTS})
    assert not [word for word in apiserver(at, old, 1, at.audit_log) if "requestheader" in word or "proxy-client" in word]
    with pytest.raises(UserError, match="--with keda: cluster mine was created by an earlier version"):
        options.check("mine", old, Spec(keda=True))


@pytest.mark.parametrize("wanted", [Spec(kind=True, keda=True), Spec(kind=True, keda=True, kueue=True)])
def test_keda_is_refused_with_kind(wanted: Spec) -> None:
    told = options.option_error("mine", None, wanted)
    assert "--with keda: the API server of kind cannot connect" in told and ("--with kueue" in told) is wanted.kueue


def test_keda_programs_have_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of KEDA are named `keda-operator` and `keda-adapter`, and not `operator` and `adapter` as Go would name
    them. The folder of the programs contains the CRDs of the same version.
    """
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    with zipfile.ZipFile(tmp_path / "source.zip", "w") as file:
        for path in ("crd/bases/a.yaml", "crd/patches/b.yaml"):
            file.writestr(f"github.com/kedacore/keda/v2@v{KEDA}/config/{path}", path)
    told = {"Path": "github.com/kedacore/keda/v2", "Version": f"v{KEDA}", "Zip": str(tmp_path / "source.zip")}
    go = tmp_path / "go"
    go.write_text(
        f"#!/bin/sh\nif [ $1 = mod ]; then echo '{json.dumps(told)}'; exit; fi\n"
        'for w; do [ "$l" = -o ] && to=$w; l=$w; done\necho "$l" >"$to"\n'
    )
    go.chmod(0o755)
    monkeypatch.setattr(gobuild, "find_go", lambda *_: str(go))
    keda.programs()
    for name, package in (("keda-operator", "operator"), ("keda-adapter", "adapter")):
        assert ensure.program_path(TOOLS[name], MACHINE).read_text() == f"github.com/kedacore/keda/v2/cmd/{package}\n"
    files = ensure.files(TOOLS["keda-operator"], MACHINE)
    assert [path.name for path in files.rglob("*") if path.is_file()] == ["a.yaml"]

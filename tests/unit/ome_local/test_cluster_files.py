"""Tests of the pure parts of a cluster: names, ports, certificates, command lines, nodes, stages and counts."""

import json
import random
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ome_local import audit_log, components, creation, kubeconfig, layout, lifecycle, nodes, pki, ports, spec, stages, tokens
from ome_local.lock import locked
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home directory of clusters."""
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path))
    return tmp_path


class TestNames:
    """Tests of the names of clusters, which are names of directories."""

    @pytest.mark.parametrize("name", ["a", "ome", "ome-demo", "test-123", "x" * 40])
    def test_valid_cluster_name_is_accepted(self, home: Path, name: str) -> None:
        """A name that consists of letters, digits and dashes is accepted."""
        assert layout.layout(name).root == home / name

    @pytest.mark.parametrize("name", ["", "-a", "a-", "A", "../a", "a/b", "a b", "x" * 41, "."])
    def test_invalid_cluster_names_are_refused(self, home: Path, name: str) -> None:
        """Names that could lead to a path outside the home directory are refused, and so are other invalid names."""
        with pytest.raises(UserError, match="is not a valid name of a cluster"):
            layout.layout(name)

    def test_clusters_are_stored_in_state_directory_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By default, clusters are stored in the user's directory for state."""
        monkeypatch.delenv("OME_LOCAL_HOME", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", "/state")
        assert layout.layout("a").root == Path("/state/ome/clusters/a")


class TestPorts:
    """Tests that ports are chosen once, stored, and not shared between clusters."""

    def test_chosen_ports_are_free_and_distinct(self) -> None:
        """The ports of a cluster are free, differ from each other, and are within the range."""
        found = ports.choose(6)
        assert len(set(found)) == 6
        assert all(port in ports.RANGE and ports.is_free(port) for port in found)

    def test_port_in_use_is_skipped(self) -> None:
        """A port in use is not chosen: with the same random numbers, other ports are chosen."""
        first = ports.choose(1, dice=random.Random(7))[0]
        with socket.create_server(("127.0.0.1", first)):
            assert ports.choose(1, dice=random.Random(7))[0] != first

    def test_ports_of_stopped_clusters_are_skipped(self, home: Path) -> None:
        """Ports of stopped clusters are not chosen. They are free now, but will be in use when that cluster starts again."""
        first = creation.create(layout.layout("a"), Spec())
        assert set(first.ports.values()) == ports.of_clusters(home)
        dice = [random.Random(7), random.Random(7)]
        port = ports.choose(1, dice=dice[0])[0]
        assert ports.choose(1, {port}, dice[1])[0] != port

    def test_unreadable_cluster_files_do_not_prevent_choosing_ports(self, home: Path) -> None:
        """A file of another cluster that is incomplete, or from another version, does not prevent the choice of ports."""
        for name, text in (("a", ""), ("b", "{}"), ("c", '{"ports": {"x": 20001}}')):
            (home / name).mkdir()
            (home / name / "cluster.json").write_text(text)
        assert ports.of_clusters(home) == {20001}


class TestCertificates:
    """Tests of what the API server and its clients verify."""

    def test_client_certificate_contains_user_and_groups(self, tmp_path: Path) -> None:
        """The certificate contains the user and the groups as the API server reads them."""
        authority = pki.Authority(tmp_path)
        authority.client("admin", "admin", ["system:masters"])
        found = x509.load_pem_x509_certificate((tmp_path / "admin.crt").read_bytes())
        assert found.subject.rfc4514_string() == "CN=admin,O=system:masters"
        use = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(use) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        assert found.not_valid_after_utc - datetime.now(UTC) > timedelta(days=365)
        for file in ("admin.key", "ca.key"):
            assert (tmp_path / file).stat().st_mode & 0o077 == 0

    def test_strict_tls_client_accepts_only_the_server_names(self, tmp_path: Path) -> None:
        """A client with the strict checks of newer Python versions accepts the server under each of its names only."""
        authority = pki.Authority(tmp_path)
        authority.server("server", ["10.244.0.1"])
        client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
        for name in ("127.0.0.1", "10.96.0.1", "10.244.0.1", "kubernetes.default.svc"):
            handshake(client, server, name)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(client, server, "example.com")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Run both ends of a TLS handshake in memory. Raise the error with which one of them fails."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


class TestCommandLines:
    """Tests of the arguments of each component."""

    def kept(self, **options: bool) -> ClusterFile:
        """Return the stored data of a cluster whose ports are consecutive."""
        return ClusterFile(Spec(**options), {name: 20000 + i for i, name in enumerate(components.PORTS)})  # type: ignore[arg-type]

    def test_components_listen_only_on_loopback(self, tmp_path: Path) -> None:
        """No component listens on another address than loopback."""
        at, kept = layout.Layout(tmp_path), self.kept()
        lines = [
            components.etcd(at, kept),
            components.apiserver(at, kept, 20002, at.audit_log),
            components.controller_manager(at, kept),
            components.scheduler(at, kept),
        ]
        for line in lines[1:]:
            assert "--bind-address=127.0.0.1" in line
        for word in lines[0]:
            if "-urls=" in word:
                assert "=https://127.0.0.1:" in word

    def test_etcd_accepts_only_the_api_server_as_client(self, home: Path) -> None:
        """Only the API server is accepted as a client of etcd. It has a separate certificate authority, because the
        cluster's authority signs certificates for everybody with the right to request them.
        """
        at = layout.layout("a")
        kept = creation.create(at, Spec())
        line = components.etcd(at, kept)
        assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(line)
        named = {word.partition("=")[2] for word in line if word.startswith("--") and word.endswith((".crt", ".key"))}
        server = components.apiserver(at, kept, 1, at.audit_log)
        named |= {word.partition("=")[2] for word in server if word.startswith("--etcd-") and "=/" in word}
        assert {Path(file).parent for file in named} == {at.etcd_pki}
        assert {Path(file).name for file in named} == {
            "ca.crt",
            "member.crt",
            "member.key",
            "apiserver.crt",
            "apiserver.key",
        }
        assert (at.etcd_pki / "ca.crt").read_bytes() != (at.pki / "ca.crt").read_bytes()
        assert all(file.stat().st_mode & 0o077 == 0 for file in (at.etcd_pki, *at.etcd_pki.iterdir()))

    def test_cluster_with_unauthenticated_etcd_is_not_started(self, home: Path) -> None:
        """A cluster of an earlier version, whose etcd requires no certificate, is not started: the user has to remove it."""
        at = layout.layout("a")
        creation.create(at, Spec())
        for file in at.etcd_pki.iterdir():
            file.unlink()
        with pytest.raises(UserError, match="remove the cluster with `ome local down --name a`"):
            lifecycle.up(at, Spec())

    def test_high_request_rates_and_audit_log_are_optional(self, tmp_path: Path) -> None:
        """High request rates and the audit log are off by default. The grace period of nodes is always long."""
        at = layout.Layout(tmp_path)
        plain, fast = (components.controller_manager(at, self.kept(fast=fast)) for fast in (False, True))
        assert not [word for word in plain if "kube-api-qps" in word]
        assert "--kube-api-qps=500" in fast
        assert "--concurrent-statefulset-syncs=20" in fast
        for line in (plain, fast):
            assert "--node-monitor-grace-period=1h" in line
        for on in (False, True):
            line = components.apiserver(at, self.kept(audit=on), 20002, at.audit_log)
            assert any(word.startswith("--audit-log-path") for word in line) is on

    def test_each_component_has_its_own_identity(self) -> None:
        """Each component has a user of its own, as the audit log needs it. Only the administrator is in system:masters."""
        users = [user for user, _ in components.IDENTITIES.values()]
        assert len(set(users)) == len(users)
        assert [file for file, (_, groups) in components.IDENTITIES.items() if "system:masters" in groups] == ["admin"]


class TestKept:
    """Tests of cluster.json."""

    def test_cluster_file_round_trip(self, home: Path) -> None:
        """Reading cluster.json returns the values that were written."""
        at = layout.layout("a")
        kept = creation.create(at, Spec(nodes=3, accelerator="b200", audit=True))
        assert spec.load(at) == kept
        assert layout.known_clusters() == ["a"]

    def test_missing_or_broken_cluster_file(self, home: Path) -> None:
        """Without cluster.json, the result is None. A broken file leads to a message that says how to remove the cluster."""
        at = layout.layout("a")
        assert spec.load(at) is None
        at.make()
        at.spec.write_text("{")
        with pytest.raises(UserError, match="run `ome local down`, which removes"):
            spec.load(at)

    def test_lock_without_cluster_creates_no_directory(self, home: Path) -> None:
        """`down` without a cluster creates no directory."""
        with locked(home / "a", create=False) as there:
            assert not there
        assert list(home.iterdir()) == []


class TestNodes:
    """Tests that simulated nodes look like the real machines."""

    def test_simulated_h200_node_has_labels_and_gpus(self) -> None:
        """The node has the labels that runtimes, accelerator classes and placement use."""
        node = nodes.simulated("h200", 16)[5]
        labels = node["metadata"]["labels"]
        assert node["metadata"]["name"] == labels["kubernetes.io/hostname"] == "h200-05"
        assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
        assert labels["nvidia.com/gpu.memory"] == "143771"
        assert labels[nodes.RACK] == "rack-01"
        assert labels[nodes.BLOCK] == "block-00"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"

    @pytest.mark.parametrize("accelerator", sorted(nodes.MACHINES))
    def test_simulated_nodes_have_distinct_names_and_addresses(self, accelerator: str) -> None:
        """Names and addresses are distinct, even for thousands of nodes, and label values are valid."""
        made = nodes.simulated(accelerator, 1100)
        assert len({node["metadata"]["name"] for node in made}) == 1100
        assert len({node["status"]["addresses"][0]["address"] for node in made}) == 1100
        for value in made[0]["metadata"]["labels"].values():
            assert len(value) <= 63

    def test_simulated_node_without_addresses_for_kind(self) -> None:
        """A simulated node can be created without addresses, because kind's network daemon panics if it cannot route to an
        InternalIP.
        """
        (node,) = nodes.simulated("h200", 1, addresses=False)
        assert node["status"]["addresses"] == [{"type": "Hostname", "address": "h200-00"}]

    def test_number_of_gpus_of_simulated_node_is_configurable(self) -> None:
        """The label of a node states its number of GPUs. A machine without GPUs has none, and a number is refused."""
        node = nodes.simulated("h100", 1, 4)[0]
        assert node["status"]["capacity"]["nvidia.com/gpu"] == node["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
        assert "nvidia.com/gpu" not in nodes.simulated("cpu", 1)[0]["status"]["capacity"]
        with pytest.raises(UserError, match="has no GPUs"):
            nodes.simulated("cpu", 1, 4)

    def test_unknown_machine_is_refused(self) -> None:
        """An unknown machine is refused, with the names of the known ones."""
        with pytest.raises(UserError, match="use one of a100, b200, cpu, h100, h200"):
            nodes.simulated("h300", 1)


class TestStages:
    """Tests of the file with kwok's stages."""

    def test_kwok_stages_are_distinct_json_documents(self) -> None:
        """The file contains one JSON document for each stage, and the names are distinct."""
        made = [*stages.defaults(2.5), stages.ready_stage(9, {"a": "b"}), stages.crash({"a": "b"})]
        text = stages.config(made)
        assert [json.loads(part) for part in text.split("---\n")[1:]] == made
        assert len({stage["metadata"]["name"] for stage in made}) == len(made)

    def test_additional_stages_override_the_defaults(self) -> None:
        """Additional stages have a weight, because kwok ignores stages without a weight if another has one."""
        assert all(stage["spec"].get("weight", 0) == 0 for stage in stages.defaults())
        for stage in (stages.ready_stage(1), stages.terminate(1), stages.never_ready({"a": "b"}), stages.crash({"a": "b"})):
            assert stage["spec"]["weight"] > 0

    def test_kwok_stages_have_start_delay(self) -> None:
        """Stages of kwok state the start delay in milliseconds, and a pod's annotation overrides this delay."""
        ready = next(stage for stage in stages.defaults(2.5) if stage["metadata"]["name"] == "pod-ready")
        assert ready["spec"]["delay"]["durationMilliseconds"] == 2500
        assert stages.START_DELAY in ready["spec"]["delay"]["durationFrom"]["expressionFrom"]


class TestAudit:
    """Tests of the number of requests in the audit log."""

    def test_audit_log_counts_each_request_once(self, tmp_path: Path) -> None:
        """A watch is counted when it starts, and other requests when they end. An incomplete line does not count."""
        log = tmp_path / "audit.log"
        log.write_text("".join(f"{json.dumps(event(verb, stage))}\n" for verb, stage in (
            ("create", "ResponseComplete"),
            ("watch", "ResponseStarted"),
            ("watch", "ResponseComplete"),
            ("list", "ResponseComplete"),
        )) + '{"verb": "cre')  # fmt: skip
        assert [(r.verb, r.is_write) for r in audit_log.read(log)] == [("create", True), ("watch", False), ("list", False)]
        mark = audit_log.log_position(log)
        assert list(audit_log.read(log, mark)) == []
        with log.open("a") as file:
            file.write(f'ate"}}\n{json.dumps(event("delete", "ResponseComplete"))}\n')
        assert [r.verb for r in audit_log.read(log, mark)] == ["delete"], "began after the mark"

    def test_incomplete_audit_event_of_a_killed_server_is_skipped(self, tmp_path: Path) -> None:
        """An event that a killed server has left incomplete is skipped, together with what stands behind it on the line."""
        log = tmp_path / "audit.log"
        events = [event(verb, "ResponseComplete") for verb in ("get", "list", "create")]
        first, torn, after = (json.dumps(one, separators=(",", ":")) for one in events)
        log.write_text(f"{first}\n{torn[:24]}{after}\n")
        assert [one.verb for one in audit_log.read(log)] == ["get", "create"]

    def test_missing_audit_log_has_no_requests(self, tmp_path: Path) -> None:
        """Before there is an audit log, it has no requests."""
        assert list(audit_log.read(tmp_path / "absent")) == []
        assert audit_log.log_position(tmp_path / "absent") == 0


def event(verb: str, stage: str) -> dict[str, object]:
    """Return a line of the audit log as the API server writes it."""
    return {
        "kind": "Event",
        "verb": verb,
        "stage": stage,
        "user": {"username": "kwok"},
        "requestURI": "/api/v1/pods",
        "objectRef": {"resource": "pods"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2025-01-01T00:00:00.000000Z",
    }


class TestTokens:
    """Tests of when a token is renewed, and of how it is written."""

    @pytest.mark.parametrize(
        ("written", "due"), [(None, True), (1000.0, False), (-801.0, True), (-800.0, True), (-799.0, False)]
    )
    def test_token_is_renewed_at_half_its_lifetime(self, written: float | None, due: bool) -> None:
        """A token is renewed when half of its lifetime is over. A missing token is renewed at once."""
        assert tokens.is_due(written, 3600, 1000.0) is due

    def test_files_are_replaced_atomically(self, tmp_path: Path) -> None:
        """A file that is written again has the new content, can be read by its owner only, and leaves no temporary file."""
        kubeconfig.write_atomically(tmp_path / "token", "one")
        kubeconfig.write_atomically(tmp_path / "token", "two")
        assert (tmp_path / "token").read_text() == "two"
        assert (tmp_path / "token").stat().st_mode & 0o077 == 0
        assert [path.name for path in tmp_path.iterdir()] == ["token"]

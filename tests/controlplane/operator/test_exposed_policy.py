"""Tests of the admission policy for Ingresses and HTTPRoutes. A real API server denies the operator's token hosts of other
namespaces, annotations that the chart does not list, and every other field with an effect beyond the service.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from ome_operator import keys
from ome_operator.core.render.exposure import manifests
from ome_operator.core.render.meta import Owner
from ome_operator.settings import Exposure
from tests.controlplane.operator.tries import APPLY, JSON, MERGE
from tests.support import yamls
from tests.support.identity import Token
from tests.support.rig import Rig

NS = "team-a"
LABELS = {keys.SERVICE: "s", keys.MANAGED_BY: keys.MANAGER}
VALUES = (
    "exposure.domain=models.example.com",
    "exposure.gateway=infra/edge",
    "exposure.ingressClassName=inner",
    "exposure.domains={team-a=example.org,*=shared.example.com,team-b=team-b.example.net}",
    "exposure.annotations={nginx.ingress.kubernetes.io/proxy-read-timeout,cert-manager.io/}",
)
FINE = ("s.team-a.models.example.com", "example.org", "a.example.org", "s.shared.example.com", "*.team-a.models.example.com")
FOREIGN = (
    "s.team-b.models.example.com", "team-a.models.example.com", "models.example.com", "xteam-a.models.example.com",
    "s.xteam-a.models.example.com", "login.bank.example.com", "badexample.org", "team-b.example.net", "a.team-b.example.net",
    "",
)  # fmt: skip
ALLOWED = ("nginx.ingress.kubernetes.io/proxy-read-timeout", "cert-manager.io/cluster-issuer")
OTHERS = (
    "nginx.ingress.kubernetes.io/server-snippet", "nginx.ingress.kubernetes.io/proxy-read-timeout-x", "cert-manager.iox/a",
    "haproxy.org/backend-config-snippet", "external-dns.alpha.kubernetes.io/hostname",
)  # fmt: skip
NOT_HOST, NOT_ANNOTATION = "under hosts of its namespace", "annotations that exposure.annotations lists"
PLACES = {
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/team-a/ingresses",
    "HTTPRoute": "/apis/gateway.networking.k8s.io/v1/namespaces/team-a/httproutes",
}


class Try(NamedTuple):
    """An attempt to create an object. `said` is a part of the message with which the attempt is denied; "" if it is
    accepted.
    """

    what: str
    body: dict[str, Any]
    said: str


def made(kind: str, hosts: list[str], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return an object as the operator makes it, with these fields of its spec."""
    if kind == "Ingress":
        backend = {"service": {"name": "s", "port": {"number": 80}}}
        paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
        usual: dict[str, Any] = {"rules": [{**({"host": host} if host else {}), "http": paths} for host in hosts]}
        usual["ingressClassName"] = "inner"
    else:
        named = [host for host in hosts if host]
        usual = {"hostnames": named} if named else {}
        usual["parentRefs"] = [{"name": "edge", "namespace": "infra"}]
        usual["rules"] = [{"backendRefs": [{"name": "s", "port": 80}]}]
    metadata = {"name": "s", "namespace": NS, "labels": LABELS, "annotations": annotations or {}}
    version = "networking.k8s.io/v1" if kind == "Ingress" else "gateway.networking.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**usual, **spec}}


def tries(kind: str) -> Iterator[Try]:
    """Yield all attempts with an Ingress or an HTTPRoute."""
    for host in FINE:
        yield Try(f"host {host}", made(kind, [host]), "")
    for host in FOREIGN:
        yield Try(f"host {host}", made(kind, [host]), NOT_HOST)
        if kind == "Ingress" or host:
            yield Try(f"{host} behind its own host", made(kind, [FINE[0], host]), NOT_HOST)
    for name in ALLOWED:
        yield Try(f"annotation {name}", made(kind, [FINE[0]], {name: "1"}), "")
    for name in OTHERS:
        yield Try(f"annotation {name}", made(kind, [FINE[0]], {name: "1"}), NOT_ANNOTATION)
    yield from (_of_ingresses() if kind == "Ingress" else _of_routes())


def _of_ingresses() -> Iterator[Try]:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    yield Try("a default backend", made("Ingress", [FINE[0]], defaultBackend=backend), "default backend")
    tls = [{"hosts": ["s.team-b.models.example.com"], "secretName": "t"}]
    yield Try("a certificate", made("Ingress", [FINE[0]], tls=tls), "certificates of hosts")
    yield Try("another class", made("Ingress", [FINE[0]], ingressClassName="outer"), "IngressClass of the chart")


def _of_routes() -> Iterator[Try]:
    for what, parent in (
        ("another Gateway", {"name": "other", "namespace": "infra"}),
        ("a Gateway of another namespace", {"name": "edge", "namespace": "team-b"}),
        ("a Gateway here", {"name": "edge"}),
    ):
        yield Try(what, made("HTTPRoute", [FINE[0]], parentRefs=[parent]), "the Gateway of the chart")
    only = "to Services of the service's namespace"
    for what, rule in (
        ("a Service elsewhere", {"backendRefs": [{"name": "s", "namespace": "team-b", "port": 80}]}),
        ("another kind", {"backendRefs": [{"name": "s", "kind": "Other", "group": "a.example.com", "port": 80}]}),
        ("a mirror", {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "x", "port": 80}}}]}),
        ("a redirect", {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "a.example.com"}}]}),
    ):
        yield Try(what, made("HTTPRoute", [FINE[0]], rules=[rule]), only)


@pytest.fixture(scope="module", params=PLACES)
def exposed(installed: Rig, request: pytest.FixtureRequest) -> Iterator[tuple[Rig, str]]:
    """Yield a pair: the cluster, with the chart's rights and policies for Ingresses or for HTTPRoutes, and the name of that
    kind.
    """
    rig, kind = installed, str(request.param)
    rig.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(yamls.route_crd()))
    rig.wait("HTTPRoutes can be stored", lambda: rig.is_kind_stored("HTTPRoute"))
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    rig.install(f"exposure.kind={kind}", *VALUES)
    token = Token(rig.kubeconfig)
    bad = made(kind, [FOREIGN[0]])
    rig.wait("the policy is in force", lambda: NOT_HOST in sent(token, "POST", kind, bad)[1])
    yield rig, kind
    rig.install()
    rig.delete("Namespace", "", NS)
    rig.wait("the namespace is gone", lambda: rig.get("Namespace", "", NS) is None, 60)


def sent(token: Token, method: str, kind: str, body: Any, content: str = JSON, name: str = "") -> tuple[int, str]:
    """Return the status code and the message of the answer to a dry run."""
    after = (f"/{name}" if name else "") + "?dryRun=All&fieldManager=test" + ("&force=true" if content == APPLY else "")
    return token.send(method, PLACES[kind] + after, body, content)


def rendered(kind: str, annotations: dict[str, str]) -> list[dict[str, Any]]:
    """Return the object that the operator creates for a service with these annotations."""
    exposure = Exposure(
        kind=kind,
        domain="models.example.com",
        ingress_class="inner",
        gateway="infra/edge",
        domains=("team-a=example.org", "*=shared.example.com", "team-b=team-b.example.net"),
        annotations=("nginx.ingress.kubernetes.io/proxy-read-timeout", "cert-manager.io/"),
    )
    return manifests(Owner("s", NS, "0"), keys.ENGINE, exposure, tuple(annotations.items()))


@pytest.mark.parametrize("kind", PLACES)
def test_operator_creates_exactly_the_hosts_that_the_policy_accepts(kind: str) -> None:
    for host in (*FINE, *FOREIGN):
        valid = host and not host.startswith("*")  # the operator gives no service a host with a wildcard
        assert bool(rendered(kind, {keys.INGRESS_TEMPLATE: host or "-"})) is bool(valid and host in FINE), host
    (body,) = rendered(kind, dict.fromkeys((*ALLOWED, *OTHERS), "1"))
    assert body["metadata"]["annotations"].keys() == {*ALLOWED}


def test_policy_refuses_every_field_that_reaches_beyond_the_service(exposed: tuple[Rig, str]) -> None:
    rig, kind = exposed
    token = Token(rig.kubeconfig)
    wrong = []
    own = [Try("what the operator makes", body, "") for body in rendered(kind, {ALLOWED[0]: "1", OTHERS[0]: "1"})]
    for attempt in (*tries(kind), *own):
        for method, content, name in (("POST", JSON, ""), ("PATCH", APPLY, "s")):
            code, said = sent(token, method, kind, attempt.body, content, name)
            if (code in (200, 201)) is bool(attempt.said) or attempt.said not in said:
                wrong.append(f"{method} {attempt.what}: {code} {said[:300]}")
    assert wrong == []


def test_forbidden_values_written_by_a_user_are_kept(exposed: tuple[Rig, str]) -> None:
    """If a user has written values that the policy forbids, they stay, and the operator still repairs the other fields of
    the object.
    """
    rig, kind = exposed
    rig.create(made(kind, [FINE[0], FOREIGN[0]], {OTHERS[0]: "theirs"}))
    try:
        token = Token(rig.kubeconfig)
        code, said = sent(token, "PATCH", kind, {"metadata": {"labels": {"component": "router"}}}, MERGE, "s")
        assert code == 200, said
        code, said = sent(token, "PATCH", kind, {"metadata": {"annotations": {OTHERS[0]: "mine"}}}, MERGE, "s")
        assert code == 403 and NOT_ANNOTATION in said
        code, said = sent(token, "PATCH", kind, {"spec": made(kind, [FINE[0], FOREIGN[1]])["spec"]}, MERGE, "s")
        assert code == 403 and NOT_HOST in said
    finally:
        rig.delete(kind, NS, "s")

"""Tests of the objects that expose a service outside the cluster."""

from typing import Any

import pytest

from ome_operator.core.render import exposure, meta
from ome_operator.settings import Exposure
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import World

OWNER = meta.Owner("svc", "team", "u")
DOMAINS = ("team=other.org", "*=a.org", "team=b.org", "team=models.example.com", "others=forbidden.org")
INGRESS = Exposure("Ingress", "models.example.com", "nginx", domains=DOMAINS)
STRICT = INGRESS._replace(domains=(), annotations=())
ROUTE = Exposure("HTTPRoute", "models.example.com", "", "infra/edge")


def made(how: Exposure = INGRESS, **annotations: str) -> list[dict[str, Any]]:
    """Return the objects for a service with these annotations of OME."""
    notes = {f"ome.io/ingress-{name.replace('_', '-')}": value for name, value in annotations.items()}
    return exposure.manifests(OWNER, "router", how, tuple(notes.items()))


def hosts(**annotations: str) -> list[str]:
    """Return the hosts of the Ingress."""
    return [rule["host"] for ingress in made(**annotations) for rule in ingress["spec"]["rules"]]


def test_ingress_routes_to_the_service_of_the_inference_service() -> None:
    (ingress,) = made()
    assert (ingress["apiVersion"], ingress["kind"]) == ("networking.k8s.io/v1", "Ingress")
    assert (ingress["metadata"]["name"], ingress["spec"]["ingressClassName"]) == ("svc", "nginx")
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "svc.team.models.example.com"
    (path,) = rule["http"]["paths"]
    assert path["backend"] == {"service": {"name": "svc", "port": {"number": 80}}}
    assert "ingressClassName" not in made(replaced(INGRESS, ingress_class=""))[0]["spec"]


def replaced(how: Exposure, **edit: str) -> Exposure:
    """Return the exposure with these changes."""
    return how._replace(**edit)


def test_http_route_routes_from_a_gateway_to_the_service() -> None:
    (route,) = made(ROUTE)
    assert (route["apiVersion"], route["kind"]) == ("gateway.networking.k8s.io/v1", "HTTPRoute")
    (parent,) = route["spec"]["parentRefs"]
    assert (parent["namespace"], parent["name"]) == ("infra", "edge")
    assert route["spec"]["hostnames"] == ["svc.team.models.example.com"]
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert (backend["name"], backend["port"]) == ("svc", 80)


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({"domain": "other.org"}, ["svc.team.other.org"]),
        ({"domain_template": "{{ .Name }}-{{.Namespace}}.{{.IngressDomain}}"}, ["svc-team.models.example.com"]),
        ({"additional_domains": "a.org, b.org"}, ["svc.team.models.example.com", "svc.team.a.org", "svc.team.b.org"]),
        ({"disable_creation": "true"}, []),
        ({"disable_creation": "false"}, ["svc.team.models.example.com"]),
    ],
)
def test_ome_annotations_determine_the_hosts(annotations: dict[str, str], found: list[str]) -> None:
    assert hosts(**annotations) == found


@pytest.mark.parametrize("template", ["{{.Labels}}.{{.IngressDomain}}", "a b", "-{{.IngressDomain}}", "x" * 300])
def test_invalid_host_creates_no_ingress_and_gives_advice(template: str) -> None:
    notes = {"ome.io/ingress-domain-template": template}
    assert exposure.manifests(OWNER, "router", INGRESS, tuple(notes.items())) == []
    (said,) = exposure.advice(OWNER, INGRESS, notes)
    assert "is not a valid host name: correct annotation ome.io/ingress-domain-template" in said


def test_missing_domain_creates_no_ingress_and_gives_advice() -> None:
    nowhere = INGRESS._replace(domain="", domains=("team=a.org",))
    assert made(nowhere) == [] and made(nowhere, domain="a.org")
    (said,) = exposure.advice(OWNER, nowhere, {})
    assert "set exposure.domain of the chart" in said
    assert exposure.advice(OWNER, Exposure(), {}) == made(Exposure()) == []


def test_ingress_controller_annotations_are_copied() -> None:
    timeout = "nginx.ingress.kubernetes.io/proxy-read-timeout"
    notes = {timeout: "600", "ome.io/ingress-domain": "a.org", "kueue-enabled": "1", "meta.helm.sh/release-name": "x"}
    for listed in ((timeout,), ("nginx.ingress.kubernetes.io/", "ome.io/", "kueue-enabled")):
        how = INGRESS._replace(annotations=listed)
        (ingress,) = exposure.manifests(OWNER, "router", how, tuple(notes.items()))
        assert ingress["metadata"]["annotations"] == {timeout: "600"} and exposure.advice(OWNER, how, notes) == []


@pytest.mark.parametrize(
    "notes",
    [
        {"domain": "login.bank.example.org"},
        {"domain_template": "victim.team-b.{{.IngressDomain}}"},
        {"domain_template": "victim.team-b.models.example.com"},
        {"domain_template": "{{.Name}}-{{.Namespace}}.{{.IngressDomain}}"},
        {"domain_template": "models.example.com"},
        {"domain_template": "team.models.example.com"},
        {"domain_template": "x.other-team.models.example.com"},
        {"domain": "team-b.models.example.com", "domain_template": "victim.{{.IngressDomain}}"},
        {"domain": "forbidden.org"},
    ],
)
@pytest.mark.parametrize("how", [STRICT, INGRESS._replace(domains=("others=forbidden.org",)), STRICT._replace(domain="")])
def test_t8_service_cannot_claim_a_host_of_another_namespace(how: Exposure, notes: dict[str, str]) -> None:
    """A service cannot get a host of another namespace (finding T8). The operator may write HTTPRoutes, and a tenant could
    otherwise choose any host for its own.
    """
    assert made(how, **notes) == []
    given = {f"ome.io/ingress-{name.replace('_', '-')}": value for name, value in notes.items()}
    (said,) = exposure.advice(OWNER, how, given)
    assert "ask an administrator to permit its domain in exposure.domains" in said or "its domain is not known" in said


def test_t8_forbidden_host_is_omitted_and_others_are_kept() -> None:
    (ingress,) = made(STRICT, additional_domains="evil.org")
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == ["svc.team.models.example.com"]


def test_t8_only_listed_annotations_are_copied_to_the_ingress() -> None:
    notes = {"nginx.ingress.kubernetes.io/configuration-snippet": "evil", "meta.helm.sh/release-name": "x"}
    (ingress,) = exposure.manifests(OWNER, "router", STRICT, tuple(notes.items()))
    assert "annotations" not in ingress["metadata"]
    (said,) = exposure.advice(OWNER, STRICT, notes)
    assert said.startswith("annotation nginx.ingress.kubernetes.io/configuration-snippet is not copied to the Ingress")


@pytest.mark.parametrize("how", [INGRESS, ROUTE])
def test_ingress_is_created_with_the_service_and_deleted_by_annotation(how: Exposure) -> None:
    service = parts.service(engine={}, router={})
    world = World(service, change_deps(parts.deps(parts.model(), parts.simple()), exposure=how), 1)
    world.settle()
    assert (how.kind, "svc") in world.children
    world.edit(parts.service(engine={}, router={}, annotations={"ome.io/ingress-disable-creation": "true"}))
    world.settle()
    assert (how.kind, "svc") not in world.children
    assert world.condition("Advice") == {}

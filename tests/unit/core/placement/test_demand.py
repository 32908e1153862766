"""Tests of what a pod template requests from a node."""

from typing import Any

import pytest

from ome_operator.core.observed.objects import Taint
from ome_operator.core.placement.demand import Demand, Expression, Term, Toleration, demand, never_share_node, requests

LABELS = {"gpu": "H100", "memory": "80", "empty": ""}


def template(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod template."""
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": [], **spec}}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a required node affinity with these terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """Return an expression of a selector."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("operator", "key", "values", "met"),
    [
        ("In", "gpu", ("A100", "H100"), True), ("In", "gpu", ("A100",), False), ("In", "none", ("H100",), False),
        ("NotIn", "gpu", ("A100",), True), ("NotIn", "gpu", ("H100",), False), ("NotIn", "none", ("H100",), True),
        ("Exists", "empty", (), True), ("Exists", "none", (), False),
        ("DoesNotExist", "none", (), True), ("DoesNotExist", "empty", (), False),
        ("Gt", "memory", ("79",), True), ("Gt", "memory", ("80",), False), ("Gt", "none", ("-1",), False),
        ("Lt", "memory", ("81",), True), ("Lt", "memory", ("80",), False), ("Lt", "gpu", ("81",), False),
        ("Gt", "memory", ("7_9",), False), ("Gt", "memory", (), False),
        ("Resembles", "none", ("x",), True),
    ],
)  # fmt: skip
def test_node_expression_supports_every_operator(operator: str, key: str, values: tuple[str, ...], met: bool) -> None:
    assert Expression(key, operator, values).is_met(LABELS) is met


def test_node_selector_terms_are_alternatives_and_an_empty_term_matches_no_node() -> None:
    found = demand(template(affinity=affinity({"matchFields": [expression("metadata.name", "In", "n1")]}, {})), True)
    first, empty = found.terms
    assert first.is_met("n1", {}) and not first.is_met("n2", {})
    assert not empty.is_met("n1", LABELS)


def test_weight_labels_are_omitted_if_the_model_gate_checks_them() -> None:
    ready = expression("models.ome.io/clusterbasemodel.m", "In", "Ready")
    of_pod = template(affinity=affinity({"matchExpressions": [ready, expression("zone", "In", "a")]}))
    assert [str(each) for each in demand(of_pod, True).terms[0].labels] == [
        "models.ome.io/clusterbasemodel.m=Ready",
        "zone=a",
    ]
    assert demand(of_pod, False).terms == (Term((Expression("zone", "In", ("a",)),), ()),)
    assert demand(template(affinity=affinity({"matchExpressions": [ready]})), False).terms == ()


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("gpu", "Exists", "", ""), True), (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "", "no", ""), False), (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists", "", ""), True), (Toleration("other", "Exists", "", ""), False),
        (Toleration("gpu", "Gt", "5", ""), True),
    ],
)  # fmt: skip
def test_toleration_matches_taint(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.matches_taint(Taint("gpu", "yes", "NoSchedule")) is tolerates


def test_taint_named_like_a_resource_is_tolerated_by_pods_that_request_it() -> None:
    """A taint with the name of a resource does not keep pods away that request this resource, because the admission plugin
    ExtendedResourceToleration adds the toleration to such pods.
    """
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    assert Demand(requests=(("nvidia.com/gpu", 8),)).tolerates(taint)
    assert not Demand(requests=(("cpu", 8),)).tolerates(taint)


def test_capacity_of_queued_or_custom_scheduled_pods_is_not_judged() -> None:
    boxes = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 8}}}]
    for told in (
        template(schedulerName="volcano", nodeSelector={"a": "b"}, containers=boxes),
        template({"kueue.x-k8s.io/queue-name": "q"}, nodeSelector={"a": "b"}, containers=boxes),
    ):
        assert demand(told, True) == Demand((Expression("a", "In", ("b",)),), (), None, ())
    assert demand(template(runtimeClassName="nvidia"), True).tolerations is None
    assert demand(template(schedulerName="default-scheduler"), True).tolerations == ()


def box(cpu: str = "", limit: str = "", **more: Any) -> dict[str, Any]:
    """Return a container."""
    resources = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"name": "c", "resources": resources, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [box("1"), box("500m"), box(limit="2")]}, 3500),
        ({"containers": [box("1", limit="4")]}, 1000),
        ({"containers": [box("1")], "initContainers": [box("3"), box("2")]}, 3000),
        ({"containers": [box("1")], "initContainers": [box("1", restartPolicy="Always"), box("3")]}, 4000),
        ({"containers": [box("1")], "initContainers": [box("3"), box("1", restartPolicy="Always")]}, 3000),
        ({"containers": [box("3")], "initContainers": [box("1", restartPolicy="Always")], "overhead": {"cpu": "1"}}, 5000),
        ({"containers": [box("3")], "resources": {"requests": {"cpu": "2"}}}, 2000),
    ],
)
def test_pod_requests_are_summed_like_in_the_scheduler(spec: dict[str, Any], cpu: int) -> None:
    assert requests(spec) == (("cpu", cpu), ("pods", 1))


def test_host_ports_are_counted_as_requested_amounts() -> None:
    boxes = [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "hostIP": "10.0.0.1"}]}]
    assert requests({"containers": boxes}) == (("pods", 1),)
    assert requests({"containers": boxes, "hostNetwork": True}) == (("host port 80/TCP", 1), ("pods", 1))


def test_anti_affinity_by_node_between_ranks() -> None:
    """Pod anti-affinity keeps ranks on different nodes if a required term has the topology of nodes and selects the other
    ranks. A term is ignored if it has another topology, selects other pods or names other namespaces.
    """

    def avoiding(**term: Any) -> dict[str, Any]:
        rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}, **term}
        found = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        return template({"app": "a"}, affinity=found)

    other = template({"app": "b"})
    assert never_share_node(avoiding(), avoiding(), "ns")
    assert never_share_node(template({"app": "a"}), avoiding(), "ns") and never_share_node(
        avoiding(), template({"app": "a"}), "ns"
    )
    assert not never_share_node(avoiding(), other, "ns")
    assert not never_share_node(avoiding(topologyKey="zone"), avoiding(topologyKey="zone"), "ns")
    assert not never_share_node(avoiding(namespaces=["else"]), avoiding(namespaces=["else"]), "ns")
    by_group = {"matchExpressions": [expression("ome.io/group", "In", "0")]}
    assert not never_share_node(avoiding(labelSelector=by_group), avoiding(labelSelector=by_group), "ns")

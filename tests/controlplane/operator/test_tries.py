"""Tests of what the operator's token and an agent's token permit, and what they do not. Every request is sent to a real API
server.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.operator.tries import ACCEPTED, LABELLED, MERGE, NS, OURS, PODS, REFUSED, Try, of, workload
from tests.support.identity import Token, agent
from tests.support.rig import ROOT, Rig

CREATED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
OTHERS = "only write the NodeModels of the node that it runs on"
RECORDS = "/apis/ome.io/v1beta1/nodemodels"
RIGHTS = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings"],
    "verbs": ["get", "create", "patch"],
}
THEIRS = [
    workload("Deployment", "web"),
    of("Pod", "alone", spec={"containers": [{"name": "c", "image": "i"}]}),
    of("ServiceAccount", "strong"),
    of("RoleScale", "theirs", spec={"replicas": 1}),
    of("Role", "dep-router", rules=[RIGHTS]),
    of("Role", "reader", rules=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
]  # fmt: skip
SCALES = {"scaleTargetRef": {"apiVersion": "ome.io/v1beta1", "kind": "RoleScale", "name": "s"}, "maxReplicas": 3}
SELECTS = {"ports": [{"port": 80}], "selector": OURS}
OWN = [
    of("Role", "s-router", metadata=LABELLED, rules=PODS),
    of("Service", "s", metadata=LABELLED, spec=SELECTS),
    of("HorizontalPodAutoscaler", "s", metadata=LABELLED, spec=SCALES),
    of(
        "Service", "given", metadata=LABELLED, spec={"ports": [{"port": 80}], "selector": OURS, "externalIPs": ["192.0.2.1"]}
    ),
]


def kept(rig: Rig, body: Any) -> Any:
    """Return the parts of an object that no controller of Kubernetes writes."""
    found = rig.get(body["kind"], NS, body["metadata"]["name"])
    assert found is not None, f"{body['kind']} {body['metadata']['name']} is gone"
    metadata = {name: found["metadata"].get(name) for name in ("uid", "labels", "ownerReferences", "deletionTimestamp")}
    spec = {name: value for name, value in (found.get("spec") or {}).items() if name != "nodeName"}
    return metadata, spec, found.get("rules")


@pytest.fixture(scope="module")
def operators(installed: Rig) -> Iterator[Token]:
    """Yield a client with the operator's token, in a cluster with objects of other users. These objects must be unchanged
    afterwards.
    """
    rig = installed
    rig.create(CREATED)
    system = rig.get("Namespace", "", "kube-system")
    assert system is not None
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": system["metadata"]["uid"]}
    rig.create(of("Node", "z-guarded", "", metadata={"finalizers": ["a.test/x"], "ownerReferences": [owner]}))
    watcher = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "watcher"}}
    rig.cluster.apply({**watcher, "rules": PODS})
    for body in (*THEIRS, *OWN):
        rig.create(body)
    before = [kept(rig, body) for body in THEIRS]
    yield Token(rig.kubeconfig)
    assert [kept(rig, body) for body in THEIRS] == before
    guarded = rig.get("Node", "", "z-guarded")
    assert guarded is not None and guarded["metadata"]["finalizers"] == ["a.test/x"]
    assert [each["uid"] for each in guarded["metadata"]["ownerReferences"]] == [owner["uid"]]
    rig.patch("Node", "", "z-guarded", {"metadata": {"finalizers": None}})
    rig.delete("Node", "", "z-guarded")
    rig.cluster.kubectl("delete", "clusterrole", "watcher")
    rig.clear(NS)
    rig.delete("Namespace", "", NS)


def sent(rig: Rig, token: Token, attempt: Try) -> tuple[int, str]:
    """Return the status code and the message of the answer."""
    node = rig.all("Node", "")[0]["metadata"]["name"]
    body = attempt.body
    if isinstance(body, dict) and body.get("metadata", {}).get("name") == "NODE":
        body = {**body, "metadata": {**body["metadata"], "name": node}}
    return token.send(attempt.method, attempt.where.replace("NODE", node), body, attempt.content, **attempt.headers)


@pytest.mark.parametrize("attempt", REFUSED, ids=lambda attempt: attempt.what)
def test_token_of_operator_is_refused_forbidden_requests(installed: Rig, operators: Token, attempt: Try) -> None:
    code, said = sent(installed, operators, attempt)
    assert code == 403 and attempt.said in said, (code, said)


@pytest.mark.parametrize("attempt", ACCEPTED, ids=lambda attempt: attempt.what)
def test_operator_token_is_permitted_the_required_requests(installed: Rig, operators: Token, attempt: Try) -> None:
    """The operator's token permits what the operator needs, and also the remaining risks that docs/security.md lists."""
    code, said = sent(installed, operators, attempt)
    assert code in (200, 201), (code, said)


def test_object_with_an_invented_owner_is_garbage_collected(installed: Rig, operators: Token) -> None:
    """An object whose owner, identified by its UID, does not exist is deleted by Kubernetes' garbage collector. So an object
    with an invented owner does not last.
    """
    for kind, namespace in (("ClusterBaseModel", ""), ("InferenceService", NS)):
        gone = lambda kind=kind, namespace=namespace: installed.get(kind, namespace, "made-up") is None  # noqa: E731
        installed.wait(f"{kind} made-up is collected", gone, 90)


# --- an agent's token -----------------------------------------------------------------------------------------------------


class Agent:
    """A client with the token of a node's agent, the name of that node, and the name of another node."""

    def __init__(self, token: Token, own: str, other: str) -> None:
        self.token, self.own, self.other = token, own, other


@pytest.fixture(scope="module")
def agents(installed: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Yield the client of an agent: the chart is installed with agents, and the token is bound to the pod of an agent."""
    rig = installed
    chart = ("upgrade", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", "--set", "operator.external=true")
    rig.cluster.helm(*chart, "--set", "agent.enabled=true", "--set", "agent.image.repository=registry.example.com/ome-agent")
    own, other = (body["metadata"]["name"] for body in rig.all("Node", "")[:2])
    token = Token(agent(rig, own, tmp_path_factory.mktemp("agent")))

    def writes() -> bool:  # the authorizer learns of a new binding only after a moment
        return token.send("POST", RECORDS, record(own))[0] in (201, 409)

    def binds() -> bool:  # and so does the admission of a new policy
        return OTHERS in token.send("POST", f"{RECORDS}?dryRun=All", record("nobody"))[1]

    rig.wait("an agent can write its record", writes)
    rig.wait("the policy of agents binds", binds)
    rig.create(record(other))
    yield Agent(token, own, other)
    for name in (own, other):
        rig.delete("NodeModels", "", name)
    rig.cluster.helm(*chart)


def record(node: str) -> dict[str, Any]:
    return {"apiVersion": "ome.io/v1beta1", "kind": "NodeModels", "metadata": {"name": node}}


@pytest.mark.parametrize(
    ("method", "where", "body", "content", "said"),
    [
        ("PATCH", f"{RECORDS}/OTHER/status", {"status": {"summary": "mine"}}, MERGE, OTHERS),
        ("POST", RECORDS, record("OTHER"), "application/json", OTHERS),
        ("DELETE", f"{RECORDS}/OTHER", None, "application/json", "cannot delete"),
        ("PATCH", f"{RECORDS}/OWN", {"spec": {"remove": ["0"]}}, MERGE, "cannot patch"),
        ("GET", "/api/v1/namespaces/ome/secrets", None, "application/json", "cannot list"),
    ],
)
def test_token_of_agent_is_refused_other_objects(
    agents: Agent, method: str, where: str, body: Any, content: str, said: str
) -> None:
    names = {"OTHER": agents.other, "OWN": agents.own}
    for word, name in names.items():
        where = where.replace(word, name)
    if body == record("OTHER"):
        body = record(agents.other)
    code, answer = agents.token.send(method, where, body, content)
    assert code == 403 and said in answer, (code, answer)


def test_agent_token_can_write_its_own_record(agents: Agent) -> None:
    """An agent's token permits writes to the record of the agent's own node. So the attempts in the other tests are denied
    because of what they request, and not because the token is invalid.
    """
    assert agents.token.send("PATCH", f"{RECORDS}/{agents.own}/status", {"status": {"summary": "1"}}, MERGE) == (200, "")

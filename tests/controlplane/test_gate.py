"""Tests that `ome lint -f` and a real API server refuse the same objects. For each bound in the schemas of the CRDs, and for
each of their CEL rules, there is a value that meets it and one that violates it. The API server validates strictly, as
kubectl requests it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError
from ome_operator.api import crds, strict
from ome_operator.api.kinds import KINDS, Kind
from tests.support import bounds

SPACE = "test-gate"
NAMES = {"a", "a-b", "a.b", "A", "-a", "a-", "a_b", "a" * 50, "a" * 51, "a" * 253, "a" * 254, "1a", "ä"}
LABELS: list[dict[str, Any]] = [
    {"a": "b"}, {"a/b": "c"}, {"a.b/c": ""}, {"a b": "c"}, {"": "c"}, {"a/b/c": "d"}, {"a": "b c"}, {"a": "-b"},
    {"a" * 64: "b"}, {"a": "b" * 64}, {"A/b": "c"}, {"a/": "b"}, {"a": 1}, {"a": None}, {"_a": "b"},
]  # fmt: skip


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with the CRDs and a namespace for this module."""
    cluster.kubectl("apply", "-f", str(crds.ROOT / crds.PLAIN))
    cluster.await_crds()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    yield cluster
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def schema_of(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = crds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def made(kind: Kind, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return an object; without `spec` it has the fields that the kind requires."""
    about = {"name": "a", **({"namespace": SPACE} if kind.namespaced else {}), **metadata}
    whole = bounds.sample(schema_of(kind)["properties"]["spec"]) if spec is None else spec
    return {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": about, "spec": whole}


def bodies(kind: Kind) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every case of a kind: the bound or rule that it tests, and the object."""
    schema = schema_of(kind)["properties"]["spec"]
    first = next(one for one in KINDS if one.spec is kind.spec)
    for case in bounds.cases(schema_of(kind)) if first is kind else ():  # the other kind has the same spec
        where = ".".join(map(str, case.path))
        whole = bounds.placed(bounds.sample(schema), case.path[1:], case.value, schema)
        yield f"{case.bound} of {where} = {str(case.value)[:60]}", made(kind, whole)
    for name in sorted(NAMES):
        yield f"name {name}", made(kind, name=name)
    for labels in LABELS:
        yield f"labels {labels}", made(kind, labels=labels)
        yield f"annotations {labels}", made(kind, annotations=labels)
    yield "large annotations", made(kind, annotations={"a": "b" * 300_000})
    yield "metadata", made(kind, lables={})
    yield "top", {**made(kind), "specs": {}}
    yield "no spec", {key: value for key, value in made(kind).items() if key != "spec"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.crd)
def test_lint_and_api_server_refuse_the_same_objects(served: Cluster, kind: Kind) -> None:
    place = f"namespaces/{SPACE}/{kind.plural}" if kind.namespaced else kind.plural
    path = f"/apis/{kind.group}/{kind.version}/{place}?dryRun=All&fieldValidation=Strict&fieldManager=test"
    differ, seen = [], Counter[bool]()
    with closing(served.api()) as api:
        for what, body in bodies(kind):
            told = ""
            try:
                api.create(path, body)
            except ApiError as error:
                told = str(error)
            ours = [mistake.sentence for mistake in strict.find_mistakes(kind, body) if not mistake.of_pod]
            seen[bool(told)] += 1
            if bool(told) is not bool(ours):
                differ.append(f"{what}: server {told[:300]!r}, ours {ours}")
    assert differ == [], f"{len(differ)} of {seen.total()}"
    assert min(seen[True], seen[False]) > 10, "some cases must be refused, and some accepted"


def test_every_rule_has_accepted_and_refused_values() -> None:
    rules = {entry["rule"] for kind in KINDS for entry in _rules(schema_of(kind))}
    assert len(rules) >= 15
    used = {part for rule in rules for part in bounds.RULES if part in rule}
    assert used == bounds.RULES.keys(), "every entry of RULES belongs to a rule"
    assert all(all(bounds.of_rule(rule)) for rule in rules if "oldSelf" not in rule)


def _rules(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from value.get("x-kubernetes-validations", ()) if isinstance(value, dict) else ()
        for inner in value.values():
            yield from _rules(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _rules(inner)

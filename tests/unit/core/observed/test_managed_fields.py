"""Tests of the digests of a manifest, and of the operator's own fields in a stored object. tests/controlplane compares them
with a real API server.
"""

import json
from copy import deepcopy
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed import managed_fields

MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {
        "name": "a",
        "namespace": "x",
        "labels": {"l": "1", "empty": ""},
        "annotations": {keys.HASH: "old"},
        "ownerReferences": [{"apiVersion": "v", "kind": "K", "name": "n", "uid": "u", "controller": True}],
    },
    "spec": {
        "replicas": 0,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "args": ["a", "b"],
                        "env": [{"name": "E", "value": ""}, {"name": "F", "value": "1"}],
                        "ports": [{"containerPort": 80}],
                        "securityContext": {},
                    }
                ]
            }
        },
    },
}

FIELDS: dict[str, Any] = {
    "f:metadata": {
        "f:labels": {"f:l": {}, "f:empty": {}},
        "f:annotations": {f"f:{keys.HASH}": {}},
        "f:ownerReferences": {'k:{"uid":"u"}': {}},
    },
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"main"}': {
                        ".": {},
                        "f:name": {},
                        "f:args": {},
                        "f:env": {
                            'k:{"name":"E"}': {".": {}, "f:name": {}, "f:value": {}},
                            'k:{"name":"F"}': {".": {}, "f:name": {}, "f:value": {}},
                        },
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                        "f:securityContext": {},
                    }
                }
            }
        },
    },
}


def stored() -> dict[str, Any]:
    """Return MANIFEST as the server stores it: without zero values, with defaults, and with a sidecar that another client
    added.
    """
    body = deepcopy(MANIFEST)
    body["metadata"] |= {"uid": "1", "resourceVersion": "7", "generation": 1}
    body["metadata"]["annotations"]["other"] = "x"
    body["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:paused": {}}}},
        {"manager": keys.MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": deepcopy(FIELDS)},
    ]
    pod = body["spec"]["template"]["spec"]
    main = pod["containers"][0]
    del main["env"][0]["value"]
    main["ports"][0]["protocol"] = "TCP"
    main["imagePullPolicy"] = "Always"
    pod["containers"].insert(0, {"name": "sidecar"})
    pod["restartPolicy"] = "Always"
    body["status"] = {"replicas": 3}
    return body


def test_owned_equals_digest_after_the_first_apply() -> None:
    assert managed_fields.owned_digest(stored()) == managed_fields.digest(MANIFEST)
    assert len(managed_fields.digest(MANIFEST)) == 16


@pytest.mark.parametrize("image", ["a:1", "ü", "\x7f", "", "\ud800", 2**70])
def test_the_text_of_a_pod_spec_is_the_same_for_all_groups(image: Any) -> None:
    """The StatefulSets of the groups of a role have the same pod spec, whose text is made once."""
    rendered, found = deepcopy(MANIFEST), stored()
    for body in (rendered, found):
        body["spec"]["template"]["spec"]["containers"][-1]["args"] = [image]
    for name in ("a-0", "a-1"):
        sibling = {**rendered, "spec": {**rendered["spec"], "serviceName": name}}
        assert managed_fields.digest_of_rendered(sibling) == managed_fields.digest(sibling)
        fields = deepcopy(FIELDS)
        fields["f:spec"]["f:serviceName"] = {}
        metadata = found["metadata"] | {"managedFields": [{**found["metadata"]["managedFields"][2], "fieldsV1": fields}]}
        answer = {**found, "metadata": metadata, "spec": {**found["spec"], "serviceName": name}}
        assert managed_fields.owned_digest(answer) == managed_fields.digest(sibling)


def test_own_digest_ignores_identity_and_own_hash_annotation() -> None:
    other = deepcopy(MANIFEST)
    other["metadata"] |= {"name": "b", "namespace": "y", "uid": "z"}
    other["metadata"]["annotations"] = {keys.HASH: "new"}
    assert managed_fields.digest(other) == managed_fields.digest(MANIFEST)
    del other["metadata"]["annotations"]
    assert managed_fields.digest(other) == managed_fields.digest(MANIFEST)
    other["metadata"]["annotations"] = {"mine": "1"}
    assert managed_fields.digest(other) != managed_fields.digest(MANIFEST)


def test_changed_value_changes_the_digest() -> None:
    body = stored()
    body["spec"]["template"]["spec"]["containers"][1]["args"] = ["c"]
    assert managed_fields.owned_digest(body) != managed_fields.digest(MANIFEST)


def test_field_taken_by_another_manager_changes_the_digest_even_if_zero() -> None:
    body = stored()
    del body["metadata"]["managedFields"][2]["fieldsV1"]["f:spec"]["f:replicas"]
    body["spec"]["replicas"] = 5
    assert managed_fields.owned_digest(body) != managed_fields.digest(MANIFEST)


def test_status_change_does_not_change_the_digest() -> None:
    body = stored()
    body["status"] = {"replicas": 4}
    body["metadata"]["resourceVersion"] = "8"
    assert managed_fields.owned_digest(body) == managed_fields.digest(MANIFEST)


def test_object_never_applied_by_the_operator_has_no_own_digest() -> None:
    assert managed_fields.owned_digest({"metadata": {"name": "a"}}) == ""
    assert managed_fields.owned_digest({}) == ""


def test_managed_fields_select_values_and_indices_of_lists() -> None:
    body = {"a": ["x", "y", "z"], "b": [1, 2, 3]}
    assert managed_fields.project(body, {"f:a": {'v:"z"': {}, 'v:"x"': {}}, "f:b": {"i:1": {}}}) == {
        "a": ["x", "z"],
        "b": [2],
    }


def test_digest_ignores_key_order_but_not_list_order() -> None:
    assert managed_fields.digest({"spec": {"a": 1, "b": 2}}) == managed_fields.digest({"spec": {"b": 2, "a": 1}})
    assert managed_fields.digest({"spec": [1, 2]}) != managed_fields.digest({"spec": [2, 1]})


def test_malformed_managed_fields_keys_cause_no_error() -> None:
    """Keys of any form in the operator's entry of managedFields cause no error. Anybody who may write an object may also
    write this entry.
    """
    body = {"a": [{"name": "x", "resources": {}}, {"name": "y", "resources": {"cpu": [1]}}], "b": ["plain"], "c": [{"k": 1}]}
    fields = {
        "f:a": {'k:{"resources":{"cpu":[1]}}': {"f:name": {}}},
        "f:b": {'k:{"name":"x"}': {}},
        "f:c": {'k:{"k":1}': {}, 'k:{"k":{"a":{"b":[1]}}}': {}},
    }
    assert managed_fields.project(body, fields) == {"a": [{"name": "y"}], "b": [], "c": [{"k": 1}]}


class Word(str):
    """A subclass of str, as the reasons of conditions have one."""


class Choice(StrEnum):
    ONE = "one"


NUMBERS = st.integers() | st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([1e16, 1e-7, 2**64, -(2**63) - 1])
TEXTS = st.text() | st.text(st.characters(codec=None)) | st.text('a\x7f\x1f"\\\n/\u00e9', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | TEXTS.map(Word) | st.just(Choice.ONE),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=2).map(tuple) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=20,
)


def slowly(manifest: dict[str, Any]) -> str:
    """Return the digest according to its first definition. Digests are stored in annotations, so they must never change."""

    def zeros(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: zeros(below) for name, below in value.items()} or None
        if isinstance(value, list | tuple):
            return [zeros(below) for below in value] or None
        return value or None

    text = json.dumps(zeros(manifest), sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


@settings(max_examples=500)
@given(VALUES)
def test_digest_equals_reference_implementation(value: Any) -> None:
    assert managed_fields.digest({"spec": value}) == slowly({"spec": value})


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"a": [1, True, None, "x"], "b": {"c": "", "d": 1.5}}, "229bec7273bb6752"),
        ({"a": 1e16, "b": 1e-7, "c": float("inf")}, "6ab3b8db39bfd675"),
        ({"é": "\x7f", "\ud800": 2**70}, "1dfbe49b6e01970b"),
    ],
)
def test_a_digest_is_the_same_as_in_earlier_versions(value: Any, stored: str) -> None:
    assert managed_fields.digest({"spec": value}) == stored

"""Tests of parsing objects. An invalid object leads to a message with the YAML name of the field and the fix, and never to
an exception.
"""

from typing import Any

import pytest

from ome_operator.api import (
    BenchmarkJob,
    Component,
    InferenceService,
    Invalid,
    Model,
    Object,
    RoleScale,
    Runtime,
    Serving,
    SglangModel,
    propose_name,
)


def service(spec: dict[str, Any], name: str = "kimi") -> InferenceService | Invalid:
    """Parse an InferenceService with this spec."""
    return InferenceService.parse({"kind": "InferenceService", "metadata": {"name": name}, "spec": spec})


def parsed(spec: dict[str, Any]) -> InferenceService:
    """Return the parsed InferenceService, which must be valid."""
    one = service(spec)
    assert not isinstance(one, Invalid), one.why
    return one


def test_parsed_object_provides_metadata_and_status() -> None:
    """A parsed object provides identity, metadata and status next to the spec."""
    one = InferenceService.parse(
        {
            "apiVersion": "ome.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {
                "name": "kimi",
                "namespace": "ns",
                "uid": "u",
                "generation": 3,
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
                "deletionTimestamp": "2025-01-01T00:00:00Z",
                "managedFields": [{"anything": 1}],
            },
            "spec": {"model": {"name": "m"}},
            "status": {"url": "http://x"},
        }
    )
    assert not isinstance(one, Invalid)
    assert (one.kind, one.name, one.namespace, one.uid, one.generation) == ("InferenceService", "kimi", "ns", "u", 3)
    assert (one.labels, one.annotations, one.status, one.deleting) == ({"a": "b"}, {"c": "d"}, {"url": "http://x"}, True)


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [({"name": "a"}, "ClusterBaseModel"), ({"name": "a", "namespace": "n"}, "BaseModel")],
)
def test_object_without_kind_is_recognized_by_its_namespace(metadata: dict[str, Any], kind: str) -> None:
    """An object without a kind, as in the items of a list, is recognized by its namespace: an object with a namespace is
    namespaced, and an object without a namespace is cluster-wide.
    """
    one = Model.parse({"metadata": metadata, "spec": {"storage": {"storageUri": "hf://a/b"}}})
    assert not isinstance(one, Invalid)
    assert one.kind == kind


def test_undeclared_component_fields_form_the_inline_pod_spec() -> None:
    """All fields that a component does not declare form its inline pod spec, unchanged."""
    engine = parsed(
        {
            "engine": {
                "minReplicas": 2,
                "hostNetwork": True,
                "volumes": [{"name": "v"}],
                "runner": {"args": ["{{ x }}"]},
                "leader": {"nodeSelector": {"a": "b"}},
                "worker": {"size": 3, "tolerations": []},
            }
        }
    ).spec.engine
    assert engine is not None and engine.leader is not None and engine.worker is not None
    assert engine.pod == {"hostNetwork": True, "volumes": [{"name": "v"}]}
    assert engine.runner == {"args": ["{{ x }}"]}
    assert (engine.leader.pod, engine.worker.pod, engine.worker.size) == (
        {"nodeSelector": {"a": "b"}},
        {"tolerations": []},
        3,
    )


def test_pod_spec_of_a_runtime_has_only_declared_fields() -> None:
    """The pod spec of a runtime has declared fields only, so that a misspelled component is found."""
    one = Runtime.parse(
        {
            "metadata": {"name": "r"},
            "spec": {"hostIPC": True, "containers": [{"name": "c"}], "labels": {"a": "b"}, "disabled": False},
        }
    )
    assert not isinstance(one, Invalid)
    assert one.spec.pod == {"hostIPC": True, "containers": [{"name": "c"}]}
    assert one.spec.labels == {"a": "b"}


def test_unset_fields_stay_unset() -> None:
    """A field that the user did not write stays unset. A default of ours must never look like something that the user wrote
    (decisions 2).
    """
    engine = parsed({"engine": {"minReplicas": 1}}).spec.engine
    assert engine is not None
    assert engine.model_fields_set == {"min_replicas"}
    assert engine.dump() == {"minReplicas": 1}


def test_null_is_absent_in_declared_fields_and_kept_in_pod_specs() -> None:
    """A field with the value null counts as absent if the class declares it, because an API server removes null from typed
    fields. In an inline pod spec, null is kept, because it may mean that a merge removes the field.
    """
    one = parsed({"model": {"name": "m", "kind": None}, "engine": {"minReplicas": None, "affinity": None}, "router": None})
    assert one.spec.dump() == {"model": {"name": "m"}, "engine": {"affinity": None}}


def test_python_names_are_not_accepted_in_yaml() -> None:
    """Only the YAML spelling is accepted in YAML. Python code may construct objects with the Python names."""
    assert Component(min_replicas=5).dump() == {"minReplicas": 5}


def test_components_have_a_fixed_order() -> None:
    """The order of components does not depend on the order in the YAML file."""
    assert list(parsed({"router": {}, "decoder": {}, "engine": {}}).spec.components) == ["engine", "decoder", "router"]


WRONG = [
    ({"engine": {"min_replicas": 5}}, "spec.engine is refused: write minReplicas instead of min_replicas"),
    ({"engine": {"minReplicas": "2"}}, 'spec.engine.minReplicas is "2": write a whole number without quotes'),
    ({"engine": {"minReplicas": -1}}, "spec.engine.minReplicas is -1: write 0 or more"),
    ({"engine": {"minReplicas": 1001}}, "spec.engine.minReplicas is 1001: write 1000 or less"),
    ({"router": {"maxReplicas": 2**62}}, "spec.router.maxReplicas is 4611686018427387904: write 1000 or less"),
    ({"engine": {"worker": {"size": 2**31}}}, "spec.engine.worker.size is 2147483648: write 1000 or less"),
    ({"engine": {"minAvailable": "9" * 5000}}, "spec.engine.minAvailable is refused: write a count such as 1, or a share"),
    ({"rollout": {"rollingUpdate": {"maxSurge": "9" * 5000 + "%"}}}, "maxSurge is refused: write a count such as 1"),
    (
        {"acceleratorSelector": {"constraints": {"minArchitectureVersion": "9" * 5000}}},
        "minArchitectureVersion is too long: keep it below 254 characters",
    ),
    ({"engine": {"labels": {"a": 1}}}, "spec.engine.labels.a is 1: write a string; put quotes around numbers"),
    (
        {"engine": {"scaleMetric": "gpu"}},
        "spec.engine.scaleMetric is \"gpu\": write 'cpu', 'memory', 'concurrency' or 'rps'",
    ),
    ({"engine": {"worker": 3}}, "spec.engine.worker is 3: write a map of keys and values"),
    ({"engine": {"worker": {"size": True}}}, "spec.engine.worker.size is true: write a whole number"),
    ({"engine": {"runner": []}}, "spec.engine.runner is []: write a map of keys and values"),
    ({"engine": {"minAvailable": "half"}}, "spec.engine.minAvailable is refused: write a count such as 1, or a share"),
    ({"engine": {"minAvailable": True}}, "spec.engine.minAvailable is true: write a whole number or a string"),
    ({"engine": {"timeoutSeconds": -5}}, "spec.engine.timeoutSeconds is -5: write 0 or more"),
    ({"engine": {"minReplicas": 3, "maxReplicas": 2}}, "spec.engine is refused: minReplicas is greater than maxReplicas"),
    ({"engine": {"minAvailable": 1, "maxUnavailable": 1}}, "spec.engine is refused: minAvailable and maxUnavailable"),
    ({"engine": {"autoscaler": {"class": "KEDA"}}}, "spec.engine.autoscaler is refused: class KEDA requires triggers"),
    ({"model": {}}, "spec.model.name is missing: set it"),
    ({"model": {"name": ""}}, "spec.model.name is empty: give it a value"),
    ({"model": {"name": "m", "fineTunedWeights": "w"}}, 'spec.model.fineTunedWeights is "w": write a list'),
    ({"decoder": {}}, "spec is refused: decoder requires an engine for prefill"),
    ({"runtime": {"revision": "r"}}, "spec.runtime is refused: revision pins the runtime"),
    ({"model": {"name": "m", "revision": "r"}}, "spec.model is refused: revision pins the model"),
    ({"rollout": {"paused": "yes"}}, 'spec.rollout.paused is "yes": write true or false without quotes'),
    (
        {"rollout": {"recreate": {}, "blueGreen": {}}},
        "spec.rollout is refused: groups, blueGreen, rollingUpdate and recreate",
    ),
    (
        {"rollout": {"groups": [{"components": ["engine"], "recreate": {}, "canary": {}}]}},
        "spec.rollout.groups[0] is refused: canary, blueGreen, rollingUpdate and recreate are mutually exclusive",
    ),
    ({"rollout": {"groups": [{"components": []}]}}, "spec.rollout.groups[0].components has 0 entries: give at least 1"),
    ({"rollout": {"groups": [{"components": ["engine"]}] * 4}}, "spec.rollout.groups has 4 entries: keep at most 3"),
    (
        {"rollout": {"groups": [{"components": ["engine"], "soak": "1 minute"}]}},
        'spec.rollout.groups[0].soak is refused: write a duration such as "90s"',
    ),
    ({"rollout": {"pairingProtocol": "x" * 254}}, "spec.rollout.pairingProtocol is too long: keep it below 254"),
    ({"scalingPolicy": {"proportional": {"ratios": {"decoder": []}}}}, "ratios.decoder is []: write a number"),
]


@pytest.mark.parametrize(("spec", "why"), WRONG, ids=[why.split(":")[0][:40] for _, why in WRONG])
def test_invalid_spec_gives_a_one_line_message(spec: dict[str, Any], why: str) -> None:
    """A wrong spec is refused with a message that contains the field in its YAML spelling, its value, and what to write
    instead.
    """
    one = service(spec)
    assert isinstance(one, Invalid)
    assert why in one.why


def nested(levels: int) -> Any:
    """Return maps that are nested `levels` deep."""
    out: Any = 1
    for _ in range(levels):
        out = {"a": out}
    return out


@pytest.mark.parametrize("levels", [51, 300, 3000])
@pytest.mark.parametrize("value", [nested, lambda levels: [nested(levels)]])
def test_deeply_nested_spec_is_refused(levels: int, value: Any) -> None:
    one = service({"engine": {"x": value(levels)}})
    assert isinstance(one, Invalid)
    assert one.why.startswith("spec.engine.x")
    assert one.why.endswith("is nested more than 50 levels deep: remove what is below it")
    assert not isinstance(service({"engine": {"x": value(45)}}), Invalid)


def test_self_referencing_map_is_refused() -> None:
    whole: dict[str, Any] = {}
    whole["again"] = [whole, whole]
    one = service({"traffic": whole})
    assert isinstance(one, Invalid) and "is nested more than 50 levels deep" in one.why


def test_message_of_many_errors_ends_with_count_of_further_errors() -> None:
    """A spec with many errors is refused with a message that contains the first errors and the number of further errors."""
    one = service({"engine": {"minReplicas": "a", "maxReplicas": "b", "timeoutSeconds": "c", "scaleTarget": "d"}})
    assert isinstance(one, Invalid)
    assert one.why.endswith("; and 1 more")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "metadata is missing: set it"),
        ([], "the object is []: write a map of keys and values"),
        (None, "the object is null: write a map of keys and values"),
        ({"metadata": {}}, "metadata.name is missing: set it"),
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, "metadata.labels.x is 1: write a string"),
        ({"metadata": {"name": "a"}, "spec": []}, "spec is []: write a map of keys and values"),
        ({"metadata": {"name": 7}}, "metadata.name is 7: write a string"),
    ],
)
def test_document_that_is_no_object_is_refused(body: Any, why: str) -> None:
    """A YAML document that is no object, such as a list or a number, is refused with a message and not with an exception."""
    one = InferenceService.parse(body)
    assert isinstance(one, Invalid)
    assert one.why.startswith(why)


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("kimi-k2.5", "kimi-k2-5"), ("7b-chat", "m-7b-chat"), ("a" * 70, "a" * 50), ("a" * 49 + ".bc", "a" * 49),
        ("Kimi", "kimi"), ("1kimi", "m-1kimi"), ("müller", "ller"), ("k2_chat", "k2-chat"), ("ü", "kimi-k2"),
    ],
)  # fmt: skip
def test_invalid_name_is_refused_with_a_proposal(name: str, proposal: str) -> None:
    """An invalid name is refused with a message that proposes another name, which is accepted."""
    one = service({}, name)
    assert isinstance(one, Invalid)
    assert one.why.startswith("metadata.name is refused: names of services become host names")
    assert one.why.endswith(f"for example {proposal}")
    assert propose_name(name) == proposal
    assert not isinstance(service({}, proposal), Invalid) and propose_name(proposal) == proposal


def test_a_name_of_a_single_letter_is_a_name() -> None:
    assert propose_name("k") == "k" and not isinstance(service({}, "k"), Invalid)


def test_benchmark_without_service_or_url_is_refused() -> None:
    """A BenchmarkJob is refused if its endpoint names neither a service nor a URL."""
    one = BenchmarkJob.parse({"metadata": {"name": "b"}, "spec": {"endpoint": {}}})
    assert isinstance(one, Invalid)
    assert "spec.endpoint is refused: there is no target to test" in one.why


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (SglangModel, {"source": {"huggingface": {"repo": "kimi-ai/Kimi-K2-Chat"}}}),
        (Serving, {"baseModel": "kimi-k2-chat", "runtime": "sglang"}),
        (RoleScale, {"replicas": 4}),
    ],
)
def test_sglang_kinds_and_role_scale_are_parsed_and_dumped(kind: type[Object[Any]], spec: dict[str, Any]) -> None:
    """Objects of the kinds of sglang.ai, as in docs/seeds.md, and a RoleScale of the operator are parsed and dumped."""
    one = kind.parse({"metadata": {"name": "kimi-k2-chat"}, "spec": spec})
    assert not isinstance(one, Invalid)
    assert one.dump() == {
        "apiVersion": kind.API_VERSION,
        "kind": kind.KINDS[0],
        "metadata": {"name": "kimi-k2-chat"},
        "spec": spec,
    }


def test_unknown_fields_are_ignored() -> None:
    """Fields that a class does not know are left out, so that the operator can use an object that was written for a newer
    version. An API server with these CRDs refuses or removes unknown fields anyway.
    """
    assert parsed({"model": {"name": "m", "tomorrow": 1}, "tomorrow": {}}).spec.dump() == {"model": {"name": "m"}}

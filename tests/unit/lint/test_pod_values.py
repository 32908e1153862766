"""Tests that pod values that an API server refuses are found without a server. tests/controlplane/test_pod_values.py sends
the same cases to a server.
"""

import pytest

from ome_operator.api import pod_fields
from ome_operator.lint.pod_tables import LATE, OBJECT
from ome_operator.lint.pod_values import refusals
from tests.support import pod_values
from tests.support.pod_examples import pod

CASES = list(pod_values.cases())


def test_exactly_the_refused_pod_values_are_found() -> None:
    wrong = [case.what for case in CASES if any(not each.late for each in refusals(case.spec)) is not case.refused]
    assert wrong == [] and len(CASES) > 4000


def test_every_scalar_pod_field_is_checked_or_excluded_with_a_reason() -> None:
    fields = {
        f"{type_}.{field}"
        for type_ in (pod_fields.POD, *pod_values.holders())
        for field, form in pod_fields.field_forms(type_).items()
        if form.lstrip("[]{}") in pod_values.ASKED and type_ not in pod_values.NOT_ASKED
    }
    named = {name for name in pod_values.NOT_ASKED if "." in name}
    assert fields - named == pod_values.refused_values().keys() and named <= fields


FINE_LATE: dict[tuple[str, str], tuple[str, ...]] = {
    ("Capabilities", "add"): ("IPC_LOCK", "CAP_IPC_LOCK", "sys_ptrace", "ALL"),
    ("Container", "image"): (
        "sglang", "sglang:v0.5.23", "docker.io/lmsysorg/sglang:v0.5.23", "localhost/sglang", "10.0.0.1:5000/a/b_c:1",
        "a/b__c", "[::1]:5000/a", f"a.b/c@sha256:{'0' * 64}", f"a.b/c:1@sha256:{'0' * 64}", "host:5000/a-b",
        "Registry.example.com/a",
    ),
    ("Container", "workingDir"): ("/", "/a b"),
    ("EmptyDirVolumeSource", "medium"): ("", "Memory", "HugePages", "HugePages-2Mi"),
    ("TopologySpreadConstraint", "topologyKey"): ("kubernetes.io/hostname", "a"),
}  # fmt: skip
WRONG_LATE: dict[tuple[str, str], tuple[str, ...]] = {
    ("Capabilities", "add"): ("SYS_PTRAC", "RDMA", "IPC-LOCK"),
    ("Container", "image"): (
        "Wrong Name:1", "Lmsysorg/sglang", "docker.io/SGLang:1", "a:b:c", "sglang:", "sglang@sha256:0", "a//b", "/a", "a b",
        "https://a.b/c", "a.b/c_:1", "${IMAGE}", "sglang:v1 ", "0" * 64,
    ),
    ("Container", "workingDir"): ("relative", "~"),
    ("EmptyDirVolumeSource", "medium"): ("memory", "Ram", "HugePages-2M", "tmpfs"),
    ("TopologySpreadConstraint", "topologyKey"): ("a b", "../b"),
}  # fmt: skip
NAMES = {field for field, grammar in LATE.items() if grammar is OBJECT}


@pytest.mark.parametrize("field", LATE, ids=".".join)
def test_values_refused_only_by_a_node_are_found(field: tuple[str, str]) -> None:
    same = ("Container", "image") if field == ("ImageVolumeSource", "reference") else field
    fine = ("a", "a.b-c") if field in NAMES else FINE_LATE[same]
    wrong = ("My_Name", "a/b", "A") if field in NAMES else WRONG_LATE[same]
    asked = {value: list(refusals(pod_values.pod_spec_with(*field, value))) for value in (*fine, *wrong)}
    assert [value for value, found in asked.items() if found] == list(wrong)
    assert all(each.late for found in asked.values() for each in found)


def test_an_optional_volume_may_have_any_name() -> None:
    for optional in (False, True):
        spec = pod(volumes=[{"name": "v", "secret": {"secretName": "My_Secret", "optional": optional}}])
        assert bool(list(refusals(spec))) is not optional


def test_a_priority_is_computed_from_a_class() -> None:
    (found,) = refusals(pod(priority=1000))
    assert found.late and "priorityClassName" in found.remedy
    assert not list(refusals(pod(priority=1000, priorityClassName="a"))) + list(refusals(pod(priority=0)))


@pytest.mark.parametrize(
    ("spec", "says", "remedy"),
    [
        (pod(nodeSelector={"gpu": True}), "nodeSelector.gpu is true", "write a string; put quotes around"),
        (pod(terminationGracePeriodSeconds="60"), 'terminationGracePeriodSeconds is "60"', "write a whole number without"),
        (pod({"imagePullPolicy": "always"}), 'containers[0].imagePullPolicy is "always"', "write Always"),
        (pod({"ports": [{"containerPort": 70000}]}), "containers[0].ports[0].containerPort is 70000", "write a number"),
        (pod(volumes=[{"name": "v", "hostPath": "/x"}]), 'volumes[0].hostPath is "/x"', "write {path: /x}"),
        (pod(tolerations=[{"key": "k", "effect": "NoSchedul"}]), 'tolerations[0].effect is "NoSchedul"', "write NoSch"),
        (
            pod({"resources": {"requests": {"nvidia.com/gpu": 4}}}),
            "containers[0].resources requests 4 of nvidia.com/gpu, but its limit is not given",
            "write the same number",
        ),
    ],
)  # fmt: skip
def test_message_about_a_pod_value_names_field_and_remedy(spec: dict[str, object], says: str, remedy: str) -> None:
    (found,) = refusals(spec)
    assert found.says == says and found.remedy.startswith(remedy)

"""Tests of what is proposed in place of a field that a part of a pod does not have."""

import re

import pytest

from ome_operator.api.pod_fields import CONTAINER, POD, REMOVE, _types, advice, fields

WRONG = [
    ("SecretKeySelector", "secretName", "name"),
    ("ConfigMapKeySelector", "configMapName", "name"),
    ("EnvVarSource", "secret", "secretKeyRef"),
    ("EnvVarSource", "configMap", "configMapKeyRef"),
    ("SecretVolumeSource", "name", "secretName"),
    ("ConfigMapVolumeSource", "configMapName", "name"),
    ("PersistentVolumeClaimVolumeSource", "name", "claimName"),
    ("EmptyDirVolumeSource", "size", "sizeLimit"),
    ("VolumeMount", "path", "mountPath or subPath"),
    ("ContainerPort", "port", "containerPort or hostPort"),
    ("Probe", "http", "httpGet"),
    ("NodeAffinity", "requiredDuringScheduling", "requiredDuringSchedulingIgnoredDuringExecution"),
]
"""Type, a name that users write, and the field that they mean. Kubernetes calls the same thing by different names."""


@pytest.mark.parametrize(("type_", "written", "meant"), WRONG)
def test_misnamed_pod_field_suggests_the_right_name(type_: str, written: str, meant: str) -> None:
    assert advice(written, fields(type_), type_) == f"did you mean {meant}?"


def test_only_existing_fields_are_suggested() -> None:
    """If a field of one type is written into another type, the message never proposes a field that the other type does not
    have.
    """
    everything = {name for type_ in _types() for name in fields(type_)}
    proposed = 0
    for type_ in _types().keys() - {POD, CONTAINER}:
        known = fields(type_)
        for name in everything - known.keys():
            text = advice(name, known, type_)
            found = re.fullmatch(r"did you mean (.+)\?", text)
            for path in re.split(r", | or ", found[1]) if found else ():
                assert re.split(r"[.\[]", path)[0] in known, (type_, name, text)
                proposed += 1
    assert proposed > 1000
    assert advice("nothing", fields("Probe"), "Probe") == REMOVE


@pytest.mark.parametrize("name", ["_", "-", "", "é"])
def test_no_field_is_suggested_for_a_name_without_words(name: str) -> None:
    assert advice(name, fields("SecretKeySelector"), "SecretKeySelector") == REMOVE

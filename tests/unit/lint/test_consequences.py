"""Tests of which findings are left out because another finding names their cause."""

from typing import Any

import pytest

from ome_operator.lint import rules
from ome_operator.lint.files import without_consequences
from ome_operator.lint.finding import Finding, Location, RuleHit

RUNTIME, SERVICE = "ClusterServingRuntime rt", "InferenceService team/svc"


def unknown(field: str, remedy: str, of: str = SERVICE) -> Finding:
    return Finding(
        rules.RULES["pod-field-unknown"], "", RuleHit(Location(of, field), f"{field} is not a field of a pod", remedy)
    )


def refused(field: str, key: str, of: str = SERVICE) -> Finding:
    hit = RuleHit(Location(of, field), f"{field} must be a map with a {key}", "write a map that has this key")
    return Finding(rules.RULES["refused"], "", hit)


def invalid(field: str, path: str, key: str, of: str = "InferenceService svc") -> Finding:
    return Finding(
        rules.RULES["pod-invalid"], "team/svc", RuleHit(Location(of, field), f"engine: {path} has no {key}", f"add {key}")
    )


CAUSE = unknown("spec.engineConfig.volumes[0].nam", "write name", RUNTIME)
SECRET = unknown("spec.engine.runner.env[0].valueFrom.secretKeyRef.secretName", "write name")
VOLUME = unknown("spec.engine.volumes[1].secret.name", "write secretName")
CASES: dict[str, tuple[list[Finding], list[Any]]] = {
    "the same entry": ([CAUSE, refused("spec.engineConfig.volumes[0]", "name", RUNTIME)], [0]),
    "another entry": ([CAUSE, refused("spec.engineConfig.volumes[1]", "name", RUNTIME)], [0, 1]),
    "another component": ([CAUSE, refused("spec.decoderConfig.volumes[0]", "name", RUNTIME)], [0, 1]),
    "another list": ([CAUSE, refused("spec.engineConfig.env.volumes[0]", "name", RUNTIME)], [0, 1]),
    "another field": ([CAUSE, refused("spec.engineConfig.volumes[0]", "image", RUNTIME)], [0, 1]),
    "another object": ([CAUSE, refused("spec.engineConfig.volumes[0]", "name")], [0, 1]),
    "behind entries of the operator": (
        [SECRET, invalid("spec.engine.runner.env", "containers[0].env[10].valueFrom.secretKeyRef", "name")], [0],
    ),
    "the second of two": (
        [
            SECRET,
            invalid("spec.engine.runner.env", "containers[0].env[10].valueFrom.secretKeyRef", "name"),
            invalid("spec.engine.runner.env", "containers[0].env[11].valueFrom.secretKeyRef", "name"),
        ],
        [0, 2],
    ),
    "the index counts": (
        [
            VOLUME,
            invalid("spec.engine.volumes", "volumes[0].secret", "secretName"),
            invalid("spec.engine.volumes", "volumes[1].secret", "secretName"),
        ],
        [0, 1],
    ),
    "in leader and worker": (
        [
            VOLUME,
            invalid("spec.engine.volumes", "volumes[1].secret", "secretName"),
            invalid("spec.engine.worker.volumes", "volumes[1].secret", "secretName"),
        ],
        [0],
    ),
    "in two services": (
        [
            CAUSE,
            invalid("spec.engineConfig", "volumes[3]", "name", RUNTIME),
            invalid("spec.engineConfig", "volumes[4]", "name", RUNTIME)._replace(service="team/other"),
        ],
        [0],
    ),
    "a container beside the runner": (
        [SECRET, invalid("spec.engine.containers", "containers[1].envFrom[0].secretKeyRef", "name")], [0, 1],
    ),
    "a pod of another component": (
        [VOLUME, invalid("spec.decoder.volumes", "volumes[1].secret", "secretName")], [0, 1],
    ),
}  # fmt: skip
"""Name -> the findings, and the positions of those that remain."""


@pytest.mark.parametrize("case", CASES)
def test_only_consequences_at_the_same_place_are_left_out(case: str) -> None:
    found, remain = CASES[case]
    assert without_consequences(found) == [found[number] for number in remain]

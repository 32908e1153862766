"""Tests that fields without any effect are listed with their path.

`tests/unit/test_silent_fields.py` tests every field.
"""

from ome_operator.core.resolve.ignored_fields import LABELS_OF_OPERATOR, ignored_field_messages, in_service
from tests.support import parts


def test_fields_without_effect_are_reported() -> None:
    engine = {
        "topologySpread": "Preferred", "topologySpreadKey": "zone", "containerConcurrency": 4,
        "lifecycle": {"readyPolicy": "None", "hangTimeout": "5s"}, "annotations": {"ome.io/x": "1", "a/b": "c"},
    }  # fmt: skip
    written = parts.service(engine=engine, router={"canaryTrafficPercent": 5}, deploymentMode="MultiNode")
    runtime = parts.runtime(engineConfig={"topologySpread": "Required"}, decoderConfig={"topologySpread": "Required"})
    assert in_service(written, runtime, False) == (
        "spec.deploymentMode has no effect: the value is derived from the components and their workers",
        "spec.engine.containerConcurrency has no effect: the arguments of the engine limit its requests",
        "spec.engine.topologySpread has no effect",
        "spec.engine.topologySpreadKey has no effect",
        "spec.engine.lifecycle.readyPolicy has no effect",
        "spec.router.canaryTrafficPercent has no effect: use spec.rollout",
        "annotation ome.io/x of spec.engine has no effect",
        "runtime rt: spec.engineConfig.topologySpread has no effect",
    )
    assert ignored_field_messages(runtime) == (
        "spec.engineConfig.topologySpread has no effect",
        "spec.decoderConfig.topologySpread has no effect",
    )


def test_default_values_of_ignored_fields_are_not_reported() -> None:
    written = parts.service(engine={"containerConcurrency": 0, "minReplicas": 2, "lifecycle": {"hangTimeout": "5s"}})
    assert in_service(written, None, False) == ()


def test_ignored_field_with_the_effective_value_is_not_reported() -> None:
    storage = {"storageUri": "s3://b/f", "downloadPolicy": "ReuseIfExists", "parameters": {"region": "r"}}
    assert ignored_field_messages(parts.model(storage=storage)) == ()
    storage |= {"downloadPolicy": "AlwaysDownload", "parameters": {"region": "r", "auth": "instance"}}
    assert [said.partition(":")[0] for said in ignored_field_messages(parts.model(storage=storage))] == [
        "spec.storage.downloadPolicy has no effect",
        "spec.storage.parameters.auth has no effect",
    ]


def test_ignored_fields_inside_lists_and_maps_are_reported() -> None:
    formats = [{"modelType": "x"}, {"modelType": "y", "acceleratorConfig": {"h100": {"minMemoryPerBillionParams": 2}}}]
    assert [said.partition(":")[0] for said in ignored_field_messages(parts.runtime(supportedModelFormats=formats))] == [
        "spec.supportedModelFormats.modelType has no effect",
        "spec.supportedModelFormats.acceleratorConfig.h100.minMemoryPerBillionParams has no effect",
    ]


def test_labels_set_by_the_operator_are_reported() -> None:
    labels = dict.fromkeys((*LABELS_OF_OPERATOR, "team"), "a")
    written = parts.service(engine={"labels": labels}, router={"labels": labels})
    runtime = parts.runtime(decoderConfig={"labels": labels})
    for found, places in (
        (in_service(written, None, False), ("engine", "router")),
        (ignored_field_messages(runtime), ("decoderConfig",)),
    ):
        assert found == tuple(
            f"label {name} of spec.{place} has no effect: the operator sets this value on its pods"
            for place in places
            for name in sorted(LABELS_OF_OPERATOR)
        )

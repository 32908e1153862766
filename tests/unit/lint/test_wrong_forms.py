"""Tests that a value of a pod whose form is wrong, such as a text in the place of a map, is a finding that names the field
and what to write. No such value stops `ome lint`.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.support import linting

FILES = """
apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: tiny}
spec:
  modelFormat: {name: safetensors}
  modelArchitecture: OlmoeForCausalLM
  storage: {storageUri: "local:///raid/tiny", path: /raid/tiny}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: tiny}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, modelArchitecture: OlmoeForCausalLM, autoSelect: true}]
  engineConfig:
    volumes:
    - {name: shm, emptyDir: {medium: Memory, sizeLimit: 32Gi}}
    - {name: directory, hostPath: {path: /x}}
    - {name: claim, persistentVolumeClaim: {claimName: c}}
    - {name: secret, secret: {secretName: s, items: [{key: a, path: b}]}}
    - {name: config, configMap: {name: c}}
    - {name: both, projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}]}}
    initContainers: [{name: first, image: busybox, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]
    runner:
      image: lmsysorg/sglang:v0.5.23
      command: [python3, -m, sglang.launch_server]
      args: [--model-path=$(MODEL_PATH), --tp-size=4, --host=0.0.0.0, --port=30000]
      env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: B, value: b}]
      envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}}]
      ports: [{name: http, containerPort: 30000}]
      readinessProbe: {httpGet: {path: /health, port: 30000}, timeoutSeconds: 5}
      lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
      securityContext: {capabilities: {add: [IPC_LOCK]}}
      resources: {limits: {nvidia.com/gpu: 4, memory: 100Gi}, requests: {memory: 100Gi}}
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: tiny, namespace: default}
spec: {model: {name: tiny}, engine: {}}
"""
WRONG: tuple[Any, ...] = ("x", ["x"], {}, 1)


def edited(path: tuple[str | int, ...], value: Any) -> list[Any]:
    """Return the objects with another value in `engineConfig` of the runtime."""
    objects = list(yaml.safe_load_all(FILES))
    _put(objects[1]["spec"]["engineConfig"], path, value)
    return objects


def _put(where: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        where = where[step]
    if value is None:
        del where[path[-1]]
    else:
        where[path[-1]] = value


def paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in a value."""
    if above:
        yield above
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from paths(inner, (*above, key))


def test_unmodified_test_files_have_no_error() -> None:
    assert linting.grave(linting.found(yaml.safe_load_all(FILES), whole=False)) == []


def test_rules_return_findings_for_any_pod_value() -> None:
    """Each value of the runtime's pod is removed, and replaced by values of other forms: the rules return findings."""
    pod = list(yaml.safe_load_all(FILES))[1]["spec"]["engineConfig"]
    cases = [(path, value) for path in paths(pod) for value in (*WRONG, None)]
    assert len(cases) > 500
    for path, value in cases:
        for finding in linting.found(deepcopy(edited(path, value)), whole=False):
            assert finding.hit.place.field and finding.hit.remedy, (path, value)


@pytest.mark.parametrize(
    ("path", "value", "says", "remedy"),
    [
        (("volumes", 1, "hostPath"), "/x", 'volumes[1].hostPath is "/x"', "write {path: /x}"),
        (("volumes", 2, "persistentVolumeClaim"), "c", 'persistentVolumeClaim is "c"', "write {claimName: c}"),
        (("volumes", 3, "secret"), "s", 'secret is "s"', "write {secretName: s}"),
        (("volumes", 4, "configMap"), "c", 'configMap is "c"', "write {name: c}"),
        (("volumes", 0, "emptyDir"), "Memory", 'emptyDir is "Memory"', "write {medium: Memory}"),
        (("volumes", 5, "projected", "sources", 0, "secret"), "s", 'sources[0].secret is "s"', "write {name: s}"),
        (("runner", "envFrom", 1, "secretRef"), "s", 'secretRef is "s"', "write {name: s}"),
        (("volumes", 1, "hostPath"), "{{ .path }}", "hostPath is", "write a map of keys and values"),
    ],
)
def test_string_in_place_of_a_map_suggests_the_map(path: tuple[str | int, ...], value: str, says: str, remedy: str) -> None:
    found = linting.found(edited(path, value), whole=False)
    assert [each.hit.remedy for each in found if says in each.hit.says] == [remedy]


def test_missing_image_is_reported_at_the_container() -> None:
    """A missing image is reported at the container, and not at the missing field: the path in the finding ends with the
    container.
    """
    (found,) = (
        each.hit for each in linting.found(edited(("runner", "image"), None), whole=False) if each.rule.id == "pod-invalid"
    )
    assert found.says == "engine: containers[0] has no image"
    assert found.place == ("ClusterServingRuntime tiny", "spec.engineConfig.runner")


def test_wrong_device_amount_is_reported_at_the_device() -> None:
    """The name of a device contains a slash, and is nevertheless a part of the path of the field."""
    path = ("runner", "resources", "limits", "nvidia.com/gpu")
    (found,) = (each.hit for each in linting.found(edited(path, "four"), whole=False) if each.rule.id == "refused")
    assert found.place == ("ClusterServingRuntime tiny", f"spec.engineConfig.{'.'.join(path)}")


def test_misspelled_device_suggests_its_name() -> None:
    objects = edited(("runner", "resources", "limits"), {"nvidia.com/gpus": 4, "memory": "100Gi"})
    (found,) = (each.hit for each in linting.found(objects, whole=False) if each.rule.id == "gpus-none")
    assert found.remedy == "write nvidia.com/gpu in place of nvidia.com/gpus"


@pytest.mark.parametrize(
    ("amount", "remedy"),
    [
        (64, "write a unit, such as 64Gi"),
        ("512Ki", "write a larger unit, such as 512Gi"),
        ("100m", "write a larger unit, such as 100Gi"),
    ],
)
def test_amount_with_a_small_unit_is_not_reported_as_missing_its_unit(amount: object, remedy: str) -> None:
    objects = edited(("runner", "resources", "limits"), {"nvidia.com/gpu": 4, "memory": amount})
    (found,) = (each.hit for each in linting.found(objects, whole=False) if each.rule.id == "size-without-unit")
    assert found.remedy == remedy

"""Tests of the rules about vendors of GPUs."""

import pytest

from ome_operator.lint.vendors import VENDORS, image_for
from tests.support import parts
from tests.support.linting import found

NODE = parts.ROOT / "tests/lint/base/minimal-one-node.yaml"


@pytest.mark.parametrize(
    ("image", "made_for"),
    [
        ("docker.io/lmsysorg/sglang:v0.5.23", "NVIDIA"),
        ("lmsysorg/sglang:v0.4.9.post2-cu126", "NVIDIA"),
        ("docker.io/lmsysorg/sglang:v0.5.23-rocm720-mi30x", "AMD"),
        ("rocm/vllm:latest", "AMD"),
        ("docker.io/lmsysorg/sglang:v0.5.23-xeon", "processors"),
        ("lmsysorg/sglang:v0.5.23-cann8.5.0-910b", "Ascend"),
        ("intel/vllm:0.11-xpu", "Intel"),
        ("vault.habana.ai/gaudi-docker/1.22/vllm:1", "Gaudi"),
        ("rocm.example.com/team/engine:1", ""),
        ("cuda.example.com:5000/team/engine:1", ""),
        ("example.com/team/engine:cu126-rocm7", ""),
        ("example.com/team/engine@sha256:0", ""),
        ("example.com/team/microcuda-engine:1", ""),
        ("", ""),
    ],
)
def test_vendor_of_an_image_is_derived_from_its_name(image: str, made_for: str) -> None:
    assert image_for(image) == made_for


RESOURCE = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Intel": "gpu.intel.com/i915", "Gaudi": "habana.ai/gaudi",
            "Ascend": "huawei.com/Ascend910"}  # fmt: skip
IMAGE = {
    "NVIDIA": "cu129",
    "AMD": "rocm720",
    "Intel": "xpu",
    "Gaudi": "hpu",
    "Ascend": "cann9",
    "processors": "xeon",
    "": "1",
}


def said(vendor: str, **changes: object) -> list[str]:
    """Return the messages of the rule about the smallest service with these fields of its engine."""
    objects = [
        *parts.read_documents(NODE),
        *parts.read_documents(parts.ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml"),
    ]
    engine = objects[0]["spec"]["engineConfig"]
    engine["runner"] |= {
        "image": "example.com/engine:1",
        "resources": {"limits": {RESOURCE[vendor]: 8}},
        **changes.pop("runner", {}),
    }  # type: ignore[dict-item]
    engine |= changes
    return [each.hit.says for each in found(objects, whole=False) if each.rule.id == "vendor-other"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_another_vendor_in_image_back_end_or_selector_is_an_error(vendor: str) -> None:
    assert RESOURCE.keys() == VENDORS.keys()
    for other, tag in IMAGE.items():
        told = said(vendor, runner={"image": f"example.com/engine:{tag}"})
        assert len(told) == (other not in ("", vendor)), (other, told)
    for other, each in VENDORS.items():
        assert len(said(vendor, nodeSelector={f"{each.prefix}present": "true"})) == (other != vendor)
        for word in each.backends:
            args = ["--model-path=$(MODEL_PATH)", f"--attention-backend={word}"]
            assert len(said(vendor, runner={"image": "example.com/sglang:1", "args": args})) == (other != vendor), word
    assert len(said(vendor, runtimeClassName="nvidia")) == (vendor != "NVIDIA")

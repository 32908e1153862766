"""Tests of what `ome lint` calls an error only if it is certain: ranges, ports, vendors, models of a runtime."""

import copy
from typing import Any

import pytest
import yaml

from ome_operator.engines.flags import packaged_versions
from ome_operator.lint.ranges import _CACHE_AWARE, _UNLESS, RANGES
from tests.support.linting import found, grave
from tests.support.overlays import BASES, LINT, compose

Body = dict[str, Any]
WORKS = {
    "--max-prefill-tokens=0": "the first prompt of a batch is admitted above the limit",
    "--stream-interval=0": "each token is sent",
    "--chunked-prefill-size=-5": "a size below 1 turns chunks off",
    "--hicache-ratio=0.5": "SGLang warns that the cache is smaller than that of the GPU",
    "--num-reserved-decode-tokens=-1": "not known to end the engine",
    "--decode-log-interval=-5": "the remainder of a division by it is defined",
}
"""Values of SGLang that look wrong -> why they are no error."""


def base(name: str = "minimal-one-node") -> list[Body]:
    return list(yaml.safe_load_all((BASES / f"{name}.yaml").read_text(encoding="utf-8")))


def of(rule: str, bodies: list[Body]) -> list[str]:
    return [each.hit.says for each in found(bodies) if each.rule.id == rule]


def with_engine(name: str = "minimal-one-node", **fields: Any) -> list[Body]:
    """Return the documents of a base in tests/lint/base, with these fields in the engine of its runtime."""
    bodies = copy.deepcopy(base(name))
    bodies[0]["spec"]["engineConfig"] |= fields
    return bodies


@pytest.mark.parametrize("argument", WORKS)
def test_flag_value_that_the_engine_accepts_is_no_error(argument: str) -> None:
    bodies = base()
    bodies[0]["spec"]["engineConfig"]["runner"]["args"].append(argument)
    assert of("flag-range", bodies) == []


def test_every_flag_with_a_range_exists_and_its_default_is_in_the_range() -> None:
    router = {name: valid for ranges in (*_UNLESS.values(), _CACHE_AWARE) for name, valid in ranges.items()}
    for engine, ranges in {**RANGES, "sglang-router": {**RANGES["sglang-router"], **router}}.items():
        lines = [
            line
            for version in packaged_versions().versions_of(engine)
            if (line := packaged_versions().get(f"{engine}-{version}")) is not None
        ]
        for name, valid in ranges.items():
            flags = [line.flags[name] for line in lines if name in line.flags]
            assert flags, f"no version of {engine} has {name}"
            defaults = [flag.default for flag in flags if isinstance(flag.default, int | float)]
            assert all(map(valid.contains, defaults)), name


def sidecar(**fields: Any) -> list[Body]:
    return [{"name": "other", "image": "lmsysorg/sglang:v0.5.23", **fields}]


@pytest.mark.parametrize(
    "box",
    [
        sidecar(command=["sglang", "serve"], args=["--port=30001"]),
        sidecar(command=["nginx"], args=["--port=30000"]),
        sidecar(ports=[{"containerPort": 30000, "protocol": "UDP"}]),
        sidecar(ports=[{"containerPort": 8998}]),
        sidecar(command=["sh", "-c", "sglang serve --port $PORT"]),
    ],
)
def test_different_ports_are_no_error(box: list[Body]) -> None:
    assert of("port-twice", with_engine(containers=box)) == []


def test_listeners_on_different_addresses_do_not_collide() -> None:
    bodies = with_engine(containers=sidecar(command=["sglang", "serve"], args=["--port=30000"]))
    runner = bodies[0]["spec"]["engineConfig"]["runner"]
    assert len(of("port-twice", bodies)) == 1
    runner["args"] = [word.replace("0.0.0.0", "$(POD_IP)") for word in runner["args"]]
    assert of("port-twice", bodies) == []


@pytest.mark.parametrize(
    ("main", "other"),
    [
        ({"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 1}, {}),
        ({"amd.com/gpu": 8, "nvidia.com/rdma_shared_device_a": 1}, {}),
        ({"nvidia.com/gpu": 8}, {"gpu.intel.com/i915": 1}),
        ({"nvidia.com/gpu": 8, "amd.com/gpu": 0}, {}),
    ],
)
def test_devices_that_may_share_a_node_are_no_error(main: Body, other: Body) -> None:
    bodies = with_engine(containers=sidecar(command=["x"], resources={"limits": other}))
    bodies[0]["spec"]["engineConfig"]["runner"] |= {"image": "acme/engine:1", "resources": {"limits": main}}
    assert of("vendors-two", bodies) == [] == of("vendor-other", bodies)


def test_gpus_of_two_vendors_are_not_added_up() -> None:
    bodies = compose(LINT / "corpus/vendors-two/amd.yaml")
    rules = {each.rule.id for each in found(bodies)}
    assert "vendors-two" in rules and not rules & {"gpus-idle", "gpus-too-few"}


@pytest.mark.parametrize(
    "script",
    [
        "MODEL_PATH=/x; ls $MODEL_PATH",
        "ls ${MODEL_PATH:-/x}",
        "ls \\$MODEL_PATH",
        "read MODEL_PATH; ls $MODEL_PATH",
        "ls $HOME",
    ],
)
def test_variable_set_in_the_script_itself_is_no_error(script: str) -> None:
    bodies = with_engine(initContainers=[{"name": "warm", "image": "acme/tool:1", "command": ["sh", "-c", script]}])
    assert of("variable-misplaced", bodies) == []


def test_a_runtime_alone_is_checked_with_every_model_that_fits_it() -> None:
    bodies = compose(LINT / "corpus/model-dependent/heads.yaml")
    assert grave(found(bodies)) == []
    (note,) = of("model-dependent", bodies)
    assert note.startswith(
        "with 1 of the 2 models that fit it, the runtime has the finding heads-divide; with ClusterBaseModel acme-64"
    )
    bodies[0]["spec"]["modelConfiguration"] = bodies[1]["spec"]["modelConfiguration"]
    (message,) = grave(found(bodies))
    assert message.startswith("heads-divide: ") and message.endswith("and with the other models that fit the runtime)")
    assert of("model-dependent", bodies) == []

"""Tests of the predicted speed of groups: what a service must state for a prediction, and that the prediction is reduced by
its error.
"""

from typing import Any

import pytest

from ome_operator.core.demand.curves import batch_within
from ome_operator.core.demand.facts import FULL, PlannedSpeeds
from ome_operator.sizing import gpus, shapes, steps
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import GPU, by_class, left_out
from ome_operator.sizing.speeds import DescribedGroup, predict_speeds
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker
from tests.support import parts

R1, K2 = "hf://deepseek-ai/DeepSeek-R1", "hf://moonshotai/Kimi-K2-Instruct"
PREFILL = ["--tp-size=8", "--ep-size=8", "--disaggregation-mode=prefill"]
DECODE = ["--tp-size=8", "--dp-size=8", "--enable-dp-attention", "--moe-a2a-backend=deepep", "--disaggregation-mode=decode"]


def group(*args: str, program: tuple[str, ...] = ("python3", "-m", "sglang.launch_server")) -> DescribedGroup:
    """Return a group whose engine has these arguments."""
    return DescribedGroup({"image": "lmsysorg/sglang:v0.5.8.post1", "command": list(program), "args": list(args)}, {})


def speeds(
    prefill: list[str] = PREFILL, decode: list[str] = DECODE, uri: str = R1, hardware: str = "b200", **other: Any
) -> PlannedSpeeds:
    """Return the prediction for requests of 8,000 tokens in and 1,000 out."""
    groups = {"prefill": group(*prefill, **other), "decode": group(*decode, **other)}
    return predict_speeds(groups, parts.model(uri), frozenset(hardware.split()), 8000.0, 1000.0)


def test_predicted_speed_is_that_of_the_planner_minus_its_error() -> None:
    """The predicted speed is the planner's, reduced by an error. Nine of ten rows of SGLang on B200 in FP8 do not exceed
    this error.
    """
    found, error = speeds(), by_class()["sglang b200 fp8 narrow"]
    place = ServingStack(shapes.shape("DeepSeek-R1"), gpus.gpu("b200"), "sglang", "0.5.8.post1")
    raw = steps.prefill(place, Worker(8, 1, 8), 8000, 8000, shipped_constants())
    assert found.work is not None and found.work.seconds(1, 8000) == pytest.approx(
        (1 + error["tokens"].ninth) * raw, rel=1e-3
    )
    step = steps.decoder(place, Worker(1, 8, 8), 8500, shipped_constants())
    slower = 1 / (1 - error["tpot"].ninth)
    assert [y / step(x) for x, y in found.curve[:-1]] == pytest.approx([slower] * (len(found.curve) - 1), rel=1e-3)


def test_predicted_batch_is_limited_by_the_kv_cache() -> None:
    last, full = speeds().curve[-2:]
    assert full == (last[0] + 1, FULL)
    assert last[0] < batch_within(speeds().curve, 10.0) < full[0]
    few = speeds(decode=[*DECODE, "--max-running-requests=64"])
    assert few.curve[-2][0] == pytest.approx(64)


def test_without_rows_of_the_family_the_error_is_that_of_an_unknown_gpu() -> None:
    found = speeds(
        uri=K2,
        hardware="h200",
        prefill=["--tp-size=16", "--ep-size=16"],
        decode=[*DECODE[1:], "--tp-size=16", "--dp-size=16"],
    )
    place = ServingStack(shapes.shape("Kimi-K2-Instruct"), gpus.gpu("h200"), "sglang", "0.5.8.post1")
    raw = steps.prefill(place, Worker(16, 1, 16), 8000, 8000, shipped_constants())
    assert found.work is not None
    assert found.work.seconds(1, 8000) == pytest.approx((1 + left_out(GPU, False)["tokens"].ninth) * raw, rel=1e-3)


def test_prefill_time_has_nonnegative_fixed_and_positive_token_parts() -> None:
    work = speeds().work
    assert work is not None and work.fixed >= 0 and work.token > 0


REFUSED = {
    "an unknown model": ({"uri": "pvc://claim/model"}, "does not know the config.json of the model"),
    "an unknown GPU": ({"hardware": "gaudi3"}, "No data for the GPU gaudi3"),
    "a GPU without rows": ({"hardware": "mi300x"}, "Too few published runs on MI300X"),
    "two GPUs": ({"hardware": "b200 h200"}, "may run on 2 models of GPUs"),
    "no GPU": ({"hardware": ""}, "may run on 0 models of GPUs"),
    "another engine": ({"program": ("vllm", "serve")}, "prefill starts vllm"),
    "another program": ({"program": ("sleep",)}, "prefill starts another program"),
    "CPUs": ({"decode": [*DECODE, "--device=cpu"]}, "decode runs on CPUs"),
    "drafts": ({"decode": [*DECODE, "--speculative-algorithm=EAGLE"]}, "decode uses speculative decoding"),
    "a size in a variable": ({"prefill": ["--tp-size=$(SIZE)"]}, "does not know the parallel sizes of prefill"),
    "pipeline stages": ({"prefill": ["--tp-size=8", "--pp-size=2"]}, "prefill has pipeline stages"),
    "copies": ({"decode": ["--tp-size=4", "--dp-size=2"]}, "decode has pipeline stages"),
    "too little memory": ({"decode": ["--tp-size=1"]}, "does not fit into the memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_missing_prediction_is_explained_in_one_sentence(name: str) -> None:
    other, words = REFUSED[name]
    found = speeds(**other)
    assert (found.work, found.curve) == (None, ())
    assert found.missing.startswith("`ome plan` has no prediction: ") and words in found.missing
    assert not found.missing.endswith(".")

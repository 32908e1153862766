"""The options of `ome plan` that select the model, the hardware and the load. Each option is declared once, as a field that
is annotated with an `Option`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ome_operator.settings.option import Option

MOST_NODES = 10_000


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `ome plan`, in the order of its flags. A field without a default is a flag that must be set."""

    model: Annotated[str, Option(flag="--model", help="Name of a model, such as Kimi-K2-Instruct, or a config.json.")]
    hardware: Annotated[
        str,
        Option(
            flag="--hardware",
            help="A GPU such as h200, several GPUs to compare (h200,b200), or a YAML file with the data of a GPU.",
        ),
    ]
    workload: Annotated[
        str,
        Option(
            flag="--workload", help="Tokens of prompt and answer (IN/OUT), such as 2000/100, or a YAML file with workloads."
        ),
    ]
    nodes: Annotated[
        int | None,
        Option(flag="--nodes", help="Number of nodes. If unset: the smallest number that works.", ge=1, le=MOST_NODES),
    ] = None
    gpus: Annotated[
        int | None,
        Option(
            flag="--gpus", help="Number of GPUs, instead of --nodes. For example, 4 is half a node.", ge=1, le=8 * MOST_NODES
        ),
    ] = None
    requests_per_second: Annotated[
        float | None, Option(flag="--requests-per-second", help="Mean rate of requests, which arrive at random.")
    ] = None
    concurrency: Annotated[
        float | None, Option(flag="--concurrency", help="Number of requests in progress at all times.")
    ] = None
    ttft: Annotated[
        str | None,
        Option(flag="--ttft", help="Maximum mean time to first token, such as 2 (seconds) or 500ms."),
    ] = None
    tpot: Annotated[
        str | None,
        Option(flag="--tpot", help="Maximum mean time per output token, such as 50 (ms) or 0.05s."),
    ] = None
    prefix_hit: Annotated[
        float, Option(flag="--prefix-hit", help="Fraction of the prompt tokens that the prefix cache holds.")
    ] = 0.0
    price: Annotated[float | None, Option(flag="--price", help="USD per GPU and hour. If unset: a published price.")] = None
    engine: Annotated[str, Option(flag="--engine", help="Engine for inference: sglang, trtllm or vllm.")] = "sglang"
    engine_version: Annotated[
        str, Option(flag="--engine-version", help="Version of the engine. If unset: the newest version with measured runs.")
    ] = ""
    precision: Annotated[
        str,
        Option(flag="--precision", help="bf16, fp8, fp4, mxfp4 or int4. If unset: the precision of the published weights."),
    ] = ""
    mtp: Annotated[
        int, Option(flag="--mtp", help="Number of draft tokens of a step (multi-token prediction).", ge=0, le=16)
    ] = 0
    accepted: Annotated[
        float | None,
        Option(
            flag="--accepted",
            help="Mean number of accepted draft tokens of a step. If unset: each draft "
            "token is accepted with a probability of 80 %.",
        ),
    ] = None
    prefill: Annotated[str, Option(flag="--prefill", help="Predict this layout only: prefill workers, such as 1xDEP32.")] = (
        ""
    )
    decode: Annotated[
        str,
        Option(
            flag="--decode",
            help="Predict this layout only: decode workers, or without --prefill all workers, such as 2xTP8.",
        ),
    ] = ""
    calibration: Annotated[
        Path | None,
        Option(flag="--calibration", help="File with your own measurements, as docs/sizing.md describes."),
    ] = None

"""Write cases.json: the sizes of the models that the GPU script measures, and the batches.

    python -m tests.gpu.cases

The machine with the GPU lacks the packages of the planner, so the file is made here, and is committed.
"""

import json
from dataclasses import asdict, dataclass

from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.queueing import Load
from ome_operator.sizing.shapes import Shape, shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker
from tests.gpu.models import FILE, Model

HARDWARE, ENGINE = "h200", "sglang"
EP32 = Worker(1, 32, 32)
CHUNK = 131_072
"""Tokens of a prefill step of all ranks: `--chunked-prefill-size` of the Kimi K2 runtimes in config/runtimes."""
LOADS = (Load(2000, 100), Load(30_000, 2000))
"""Lengths of a request, in tokens of the prompt and of the answer: those of the published figures, and the usual lengths of
an agent's requests (docs/sizing.md).
"""
FEW, MANY = 8, 128
"""Numbers of requests per rank that are measured in addition to the predicted number."""


@dataclass(frozen=True)
class Wanted:
    """A model of the planner, the number of redundant copies of its experts, and the batches to measure."""

    name: str
    copies: int
    batches: tuple[int, ...]
    """Requests of a rank. When they were first measured, the planner predicted them for 16 nodes and LOADS."""


WANTED = (Wanted("Kimi-K2", 96, (11, 35)), Wanted("DeepSeek-V3", 32, (31, 35)), Wanted("Qwen3-235B-A22B", 32, (17, 112)))


def models() -> list[Model]:
    """Return the models to measure, the most important first."""
    return [_model(wanted) for wanted in WANTED]


def text() -> str:
    """Return the content of cases.json."""
    return json.dumps([asdict(model) for model in models()], indent=1) + "\n"


def stack(model: Shape) -> ServingStack:
    """Return the GPU and engine for which the planner predicts."""
    return ServingStack(model, gpu(HARDWARE), ENGINE)


def _model(wanted: Wanted) -> Model:
    read = shape(wanted.name, "fp8")
    attention, mixture = read.facts.attention, read.facts.experts
    assert attention is not None and mixture is not None
    expert_width, *dense_widths = read.known.widths
    return Model(
        name=wanted.name,
        ranks=EP32.gpus,
        layers=read.layers,
        expert_layers=read.expert_layers,
        hidden=read.hidden,
        vocabulary=read.facts.vocabulary or 0,
        dense_width=dense_widths[0] if dense_widths else expert_width,
        experts=read.experts,
        copies=wanted.copies,
        per_token=read.per_token,
        expert_width=expert_width,
        shared=mixture.shared or 0,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim or 0,
        q_rank=attention.q_lora_rank or 0,
        latent=attention.kv_lora_rank or 0,
        rope=attention.qk_rope_head_dim or 0,
        nope=attention.qk_nope_head_dim or 0,
        value=attention.v_head_dim or 0,
        batches=tuple(sorted({FEW, *wanted.batches, MANY})),
        contexts=tuple(int(load.prompt) for load in LOADS),
        tokens=CHUNK // EP32.gpus,
        prompts=tuple(int(load.prompt) for load in LOADS),
    )


if __name__ == "__main__":
    FILE.write_text(text())
    print(FILE.read_text())

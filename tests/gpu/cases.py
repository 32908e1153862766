"""Write cases.json: the sizes of the models that the GPU script measures, and the batches that `ome plan` predicts.

    python -m tests.gpu.cases

The machine with the GPU lacks the packages of the planner, so the file is made here, and is committed.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ome_operator.sizing.constants import fitted
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.layouts import layouts
from ome_operator.sizing.queueing import Load
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.shapes import Shape, shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker
from tests.gpu.models import FILE, Model

HARDWARE, ENGINE = "h200", "sglang"
EP32 = Worker(1, 32, 32)
CHUNK = 131_072
"""Tokens of a prefill step of all ranks: `--chunked-prefill-size` of the Kimi K2 runtimes in config/runtimes."""
LOADS = (Load(2000, 100), Load(30_000, 2000))
"""The requests of the published figures, and those of an agent (docs/sizing.md)."""
FEW, MANY = 8, 128
"""Numbers of requests per rank that are measured in addition to the predicted number."""


@dataclass(frozen=True)
class Wanted:
    """A model of the planner, the number of redundant copies of its experts, and the number of nodes to plan for."""

    name: str
    copies: int
    nodes: int = 16


WANTED = (Wanted("Kimi-K2", 96), Wanted("DeepSeek-V3", 32), Wanted("Qwen3-235B-A22B", 32))


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
    expert_width, dense_width = read.known.widths
    return Model(
        name=wanted.name,
        ranks=EP32.gpus,
        layers=read.layers,
        expert_layers=read.expert_layers,
        hidden=read.hidden,
        vocabulary=read.facts.vocabulary or 0,
        dense_width=dense_width,
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
        batches=tuple(sorted({FEW, *_predicted(read, wanted.nodes), MANY})),
        contexts=tuple(int(load.prompt) for load in LOADS),
        tokens=CHUNK // EP32.gpus,
        prompts=tuple(int(load.prompt) for load in LOADS),
    )


def _predicted(read: Shape, nodes: int) -> Iterator[int]:
    """Yield the requests of a rank that the planner predicts for the best layout with EP32 decode, for each load."""
    for load in LOADS:
        for layout in layouts(PlanRequest(stack(read), (load,), nodes), fitted()):
            if layout.prefill is not None and layout.decode.role.worker == EP32:
                yield max(1, round(layout.state.batch / layout.decode.role.copies / EP32.dp))
                break


if __name__ == "__main__":
    FILE.write_text(text())
    print(FILE.read_text())

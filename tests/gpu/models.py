"""The sizes of a model whose part on one GPU is measured. Needs only Python's standard library."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cases.json")


@dataclass(frozen=True)
class Model:
    """The sizes of a model of which one GPU's part is measured, and the batches to measure. The model is spread over `ranks`
    GPUs, with data-parallel attention and expert parallelism. Sizes are numbers of elements or of objects; the fields for
    tokens and requests say so.
    """

    name: str
    ranks: int
    layers: int
    expert_layers: int
    hidden: int
    vocabulary: int
    dense_width: int
    experts: int
    copies: int
    """Redundant copies of experts, over all GPUs."""
    per_token: int
    expert_width: int
    shared: int
    """Shared experts, which every token uses."""
    heads: int
    kv_heads: int
    head_dim: int
    """Width of a head of grouped-query attention; 0 with latent attention."""
    q_rank: int
    """Width of the compressed query of latent attention."""
    latent: int
    """Width of the compressed key and value of latent attention; 0 with grouped-query attention."""
    rope: int
    nope: int
    value: int
    batches: tuple[int, ...]
    """Requests of a rank in decode."""
    contexts: tuple[int, ...]
    """Tokens to which a request attends in decode."""
    tokens: int
    """Tokens of a rank in a prefill step."""
    prompts: tuple[int, ...]
    """Lengths of the prompts of prefill, in tokens."""

    @property
    def slots(self) -> int:
        """Return the number of experts on one GPU, including redundant copies."""
        return (self.experts + self.copies) // self.ranks


def models(text: str) -> list[Model]:
    """Return the models in the text of cases.json."""
    return [_model(each) for each in json.loads(text)]


def _model(fields: Mapping[str, Any]) -> Model:
    return Model(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def small(model: Model) -> Model:
    """Return a model of the same kind with sizes that a CPU computes in seconds, to try the code."""
    return Model(
        name=model.name, ranks=2, layers=2, expert_layers=1, hidden=256, vocabulary=256, dense_width=256, experts=4,
        copies=2, per_token=2, expert_width=128, shared=model.shared, heads=16, kv_heads=min(16, model.kv_heads),
        head_dim=model.head_dim and 64, q_rank=model.q_rank and 128, latent=model.latent and 128, rope=model.rope and 16,
        nope=model.nope and 32, value=model.value and 32, batches=(3,), contexts=(100,), tokens=64, prompts=(32, 128),
    )  # fmt: skip

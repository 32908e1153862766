"""How the GPUs of an engine share a model."""

from typing import NamedTuple


class ParallelShape(NamedTuple):
    """The sizes of an engine's parallelism, as SGLang counts them."""

    tp: int
    """GPUs that hold all routed experts together; of a single stage where there is a pipeline."""
    pp: int = 1
    """Stages of the pipeline."""
    attention_dp: int = 1
    """Groups of GPUs inside TP whose attention has requests of its own; 1 without data-parallel attention."""
    attention_cp: int = 1
    """GPUs that share the tokens of a prompt; 1 without context parallelism."""
    copies: int = 1
    """Whole copies of the model."""
    ep: int = 1
    """Groups of GPUs inside TP among which whole experts are spread; 1 if every expert is cut over all GPUs."""
    redundant: int = 0
    """Copies of busy experts in a layer."""
    cut: int = 1
    """Pieces into which a quantized matrix is cut."""

    @property
    def attention_tp(self) -> int:
        """GPUs that share the attention of a token."""
        return self.tp // (self.attention_dp * self.attention_cp)

    @property
    def dense(self) -> int:
        """GPUs that share everything but routed experts: those of attention where attention is data-parallel."""
        return self.tp if self.attention_dp == 1 else self.attention_tp

    def stage_layers(self, layers: int) -> int:
        """Layers of the largest stage of the pipeline, for a model of `layers`."""
        return -(-layers // self.pp)

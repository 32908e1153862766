"""The parallel sizes by which the GPUs of an engine share a model."""

from typing import NamedTuple


class ParallelShape(NamedTuple):
    """The sizes of an engine's parallelism, as SGLang counts them."""

    tp: int
    """Tensor-parallel size: the GPUs of one pipeline stage, over which all routed experts of its layers are distributed."""
    pp: int = 1
    """Number of pipeline stages."""
    attention_dp: int = 1
    """Number of attention groups, each of which serves its own requests. They are groups of GPUs inside TP; 1 without
    data-parallel attention."""
    attention_cp: int = 1
    """Number of GPUs that share the tokens of a prompt; 1 without context parallelism."""
    copies: int = 1
    """Number of complete copies of the model."""
    ep: int = 1
    """Number of groups of GPUs inside TP among which complete experts are distributed; 1 if every expert is divided among
    all GPUs."""
    redundant: int = 0
    """Number of redundant copies of busy experts in a layer."""
    cut: int = 1
    """Number of pieces into which each quantized matrix is cut."""

    @property
    def attention_tp(self) -> int:
        """The number of GPUs that share the attention of a token."""
        return self.tp // (self.attention_dp * self.attention_cp)

    @property
    def dense(self) -> int:
        """The number of GPUs that share the weights other than routed experts. With data-parallel attention, these are
        the GPUs that share the attention of a token.
        """
        return self.tp if self.attention_dp == 1 else self.attention_tp

    def stage_layers(self, layers: int) -> int:
        """Return the number of layers in the largest pipeline stage, for a model of `layers` layers."""
        return -(-layers // self.pp)

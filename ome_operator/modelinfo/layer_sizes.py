"""Types and functions for the sizes of a layer of a model and for the cache entries that its attention reads. The module
`layers` builds its groups of layers from them.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from ome_operator.modelinfo.json_fields import Config, whole_number

SHORT, LONG = 2, 4
"""Bytes of a number in BF16 and in FP32."""


@dataclass(frozen=True)
class CacheEntries:
    """Entries of the cache that attention, or an indexer of sparse attention, reads for each token."""

    every: int = 1
    """Number of tokens for which the cache has one entry: 1, or more if the cache is compressed."""
    most: int = 0
    """Largest number of entries that are read for a token: the entries of a window, or the entries that an indexer chooses;
    0 if all are read."""
    numbers: int = 0
    """Number of values in an entry that have the data type of the cache."""
    fixed: int = 0
    """Bytes of an entry that do not depend on the data type of the cache. Each GPU reads all of them."""
    operations: int = 0
    """Number of operations for each pair of a token and an entry that it reads."""
    of_prompts: int = 0
    """Number of operations for each pair of a token and an entry in prefill, if all earlier tokens of the prompt are read;
    0 if the number is the same as `operations`. With latent attention (MLA), the number is smaller, because only decode
    computes on the latent vectors."""
    heads: int = 0
    """Largest number of GPUs among which tensor parallelism divides the operations. 0 if all GPUs of tensor parallelism
    divide them."""
    precision: str = "bf16"
    """Precision of the operations."""

    def times(self, layers: int) -> "CacheEntries":
        """Return the cache entries that `layers` equal layers read together."""
        return replace(
            self,
            numbers=layers * self.numbers,
            fixed=layers * self.fixed,
            operations=layers * self.operations,
            of_prompts=layers * self.of_prompts,
        )


@dataclass(frozen=True)
class Layers:
    """A group of layers with the same attention. All other fields describe a single layer of the group."""

    layers: int
    inputs: int = 0
    """Parameters of the attention without its output matrix."""
    outputs: int = 0
    """Parameters of the output matrix of the attention."""
    others: int = 0
    """Parameters that are never quantized and belong neither to attention nor to experts: norms, residual paths."""
    wider: int = 0
    """Parameters of the network without experts, in addition to the parameters that follow from the width in config.json."""
    tables: int = 0
    """Parameters of an embedding of the layer. A token needs a single row of it."""
    cached: int = 0
    """Number of values that the cache keeps for each token in the data type of the cache."""
    cached_bytes: Fraction = Fraction(0)
    """Additional bytes that the cache keeps for each token, whatever its data type. The bytes of a compressed token are
    divided among the tokens for which it stands, so the number may be a fraction."""
    window: int = 0
    """Size of the attention window in tokens, for each of which the cache keeps `windowed` numbers; 0 if the layers keep no
    window."""
    windowed: int = 0
    """Number of values that the cache keeps for each token of the window in the data type of the cache."""
    state: int = 0
    """Bytes of state that a request needs, whatever its length."""
    attended: tuple[CacheEntries, ...] = ()
    """The cache entries that the layer reads for each token; empty for linear attention, which reads only its state."""
    heads: int = 0
    """Heads of linear attention, which GPUs divide among themselves; 0 for other attention."""


class ConfigSizes:
    """Reads sizes that a config has to state. A missing size raises KeyError with the name of its field."""

    def __init__(self, text: Config) -> None:
        self.text = text

    def __call__(self, *names: str) -> int:
        """Return the value of the first of the fields `names` that is a whole number above 0. Raises KeyError if there is no
        such field.
        """
        found = whole_number(self.text, *names)
        if not found:
            raise KeyError(names[0])
        return found

    def optional_size(self, name: str) -> int:
        """Return the value of an optional field; 0 if the field is missing."""
        return whole_number(self.text, name) or 0


def layer_kinds(size: ConfigSizes, layers: int) -> list[str]:
    """Return the kind of each layer, as `layer_types` lists them. Draft layers at the end of the list are left out."""
    listed = size.text.get("layer_types")
    if not isinstance(listed, list) or len(listed) < layers:
        raise KeyError("layer_types")
    return [kind if isinstance(kind, str) else "" for kind in listed[:layers]]


def grouped_query_layers(size: ConfigSizes, heads: int, kv_heads: int, key: int, value: int, layers: int = 1) -> Layers:
    """Return layers of grouped-query attention whose cache keeps every token. `key` and `value` are the dimensions of a key
    head and of a value head.
    """
    hidden, kept = size("hidden_size"), kv_heads * (key + value)
    return Layers(
        layers,
        inputs=hidden * (heads * key + kept),
        outputs=heads * value * hidden,
        cached=kept,
        attended=(CacheEntries(numbers=kept, operations=2 * heads * (key + value)),),
    )


def with_more_parameters(layers: Layers, inputs: int = 0, others: int = 0, window: int = 0) -> Layers:
    """Return layers with more parameters, and with attention to a window of tokens only, if `window` is above 0. `inputs`
    and `others` are the numbers that are added to the fields of the same names.
    """
    return replace(
        layers,
        inputs=layers.inputs + inputs,
        others=layers.others + others,
        cached=0 if window else layers.cached,
        window=window,
        windowed=layers.cached if window else 0,
        attended=tuple(replace(each, most=window) for each in layers.attended),
    )


def latent_attention(heads: int, rank: int, rope: int, nope: int, value: int) -> CacheEntries:
    """Return the cache entries that a layer of latent attention (MLA) reads. `rank` is the size of a latent vector; the
    other parameters are the sizes of the parts of a head: with and without position embedding, and of a value.
    """
    return CacheEntries(
        numbers=rank + rope, operations=2 * heads * (2 * rank + rope), of_prompts=2 * heads * (nope + rope + value)
    )

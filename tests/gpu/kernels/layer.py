"""A decoder layer's work on one GPU of an expert-parallel group, without the messages between GPUs, as parts to be timed.

A part is a list of functions that do the same work on different copies of the weights, so that no copy stays in the GPU's
cache. Random weights take as long as trained ones; only which experts tokens choose is simplified: each slot is chosen
equally often, as redundant experts aim for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tests.gpu.kernels import matrices, triton_kernels
from tests.gpu.kernels.quantized import BLOCK, FP8, column_major, dequantized, random_weights, token_groups
from tests.gpu.kernels.timing import DEVICE, relative_error
from tests.gpu.models import Model

Call = Callable[[], object]
CACHED = 100_000_000
"""Bytes that the calls of a part should read together: twice the L2 cache of an H100."""


@dataclass
class Part:
    """One kind of work of a layer, to be timed."""

    name: str
    kernel: str
    calls: list[Call]
    bytes: float
    """Bytes of weights and cache that one call has to read."""
    flops: float
    """Operations of one call."""
    error: float | None = None
    """Relative error against the same computation in FP32; None if only tests/gpu/test_kernels.py checks the kernel."""
    shapes: dict[str, object] = field(default_factory=dict)


def random(*shape: int) -> torch.Tensor:
    """Return random numbers in BF16."""
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def copies_for(read: float) -> int:
    """Return how many copies of weights are needed so that the GPU's cache does not hold them. `read` is the number of bytes
    that one call reads.
    """
    return max(2, min(16, -int(-CACHED // max(1.0, read))))


class Matrix:
    """An FP8 matrix in several copies, with its input and output for a number of tokens."""

    def __init__(self, n: int, k: int, tokens: int) -> None:
        self.n, self.k, self.tokens = n, k, tokens
        self.weights = [random_weights((n, k), DEVICE) for _ in range(copies_for(float(n * k)))]
        self.input = token_groups(random(tokens, k))
        self.out = torch.full((tokens, n), float("nan"), device=DEVICE, dtype=torch.bfloat16)

    def call(self, copy: int) -> None:
        """Multiply the input by one of the copies."""
        matrices.dense(self.input, self.weights[copy % len(self.weights)], self.out)

    def part(self, name: str) -> Part:
        """Return the `Part` that times this product. Its error is relative to the product in FP32."""
        self.call(0)
        values, scales = self.weights[0]
        reference = dequantized(*self.input) @ dequantized(values, scales, BLOCK).T
        error = relative_error(self.out, reference)
        calls: list[Call] = [lambda copy=copy: self.call(copy) for copy in range(len(self.weights))]  # type: ignore[misc]
        shapes: dict[str, object] = {"m": self.tokens, "n": self.n, "k": self.k}
        return Part(name, matrices.kernel(), calls, self.n * self.k, 2.0 * self.tokens * self.n * self.k, error, shapes)


def projections(model: Model, tokens: int, decode: bool) -> list[Part]:
    """Return the matrix products of attention and of the shared expert for a number of tokens.

    In decode the two parts of the projection that expands latent vectors are folded into query and output (BF16).
    """
    parts = []
    if model.latent:
        width = model.heads * (model.nope + model.rope)
        sizes = {
            "query_key_value_down": (_up(model.q_rank + model.latent + model.rope), model.hidden),
            "query_up": (width, model.q_rank),
            "output": (model.hidden, model.heads * model.value),
        }
        if not decode:
            sizes["key_value_up"] = (model.heads * (model.nope + model.value), model.latent)
    else:
        sizes = {
            "query_key_value": ((model.heads + 2 * model.kv_heads) * model.head_dim, model.hidden),
            "output": (model.hidden, model.heads * model.head_dim),
        }
    if model.shared:
        sizes["shared_gate_up"] = (2 * model.shared * model.expert_width, model.hidden)
        sizes["shared_down"] = (model.hidden, model.shared * model.expert_width)
    for name, (n, k) in sizes.items():
        parts.append(Matrix(n, k, tokens).part(name))
    if model.latent and decode:
        parts += [_folded("fold_query", model, tokens, model.nope, model.latent)]
        parts += [_folded("fold_output", model, tokens, model.latent, model.value)]
    return parts


def _up(number: int) -> int:
    return -(-number // BLOCK) * BLOCK


def _folded(name: str, model: Model, tokens: int, k: int, n: int) -> Part:
    """Return a product of each head with its own BF16 matrix, as torch does it."""
    read = 2.0 * model.heads * k * n
    weights = [random(model.heads, k, n) for _ in range(copies_for(read))]
    given = random(model.heads, tokens, k)
    out = torch.empty(model.heads, tokens, n, device=DEVICE, dtype=torch.bfloat16)
    calls: list[Call] = [lambda weight=weight: torch.bmm(given, weight, out=out) for weight in weights]  # type: ignore[misc]
    shapes: dict[str, object] = {"batch": model.heads, "m": tokens, "n": n, "k": k}
    return Part(name, f"torch {torch.__version__} bmm", calls, read, 2.0 * model.heads * tokens * k * n, None, shapes)


def head(model: Model, tokens: int) -> Part:
    """Return the product with the output embedding in BF16, once per step."""
    weights = [random(model.vocabulary, model.hidden)]
    given = random(tokens, model.hidden)
    out = torch.empty(tokens, model.vocabulary, device=DEVICE, dtype=torch.bfloat16)
    calls: list[Call] = [lambda: torch.mm(given, weights[0].T, out=out)]
    size = float(model.vocabulary * model.hidden)
    return Part("head", f"torch {torch.__version__} mm", calls, 2 * size, 2 * tokens * size, None, {"m": tokens})


def dense_layer(model: Model, tokens: int) -> list[Part]:
    """Return the products of a layer without experts, which the first layers of some models are."""
    if model.layers == model.expert_layers:
        return []
    return [
        Matrix(2 * model.dense_width, model.hidden, tokens).part("dense_gate_up"),
        Matrix(model.hidden, model.dense_width, tokens).part("dense_down"),
    ]


def rows_of_experts(model: Model, tokens: int, seed: int = 0) -> list[int]:
    """Return how many rows each expert slot of a GPU gets, if all ranks have `tokens` tokens each and every token chooses
    `per_token` of all slots at random.
    """
    generator = torch.Generator(DEVICE).manual_seed(seed)
    slots = model.experts + model.copies
    chosen = torch.rand(tokens * model.ranks, slots, generator=generator, device=DEVICE).topk(model.per_token, 1).indices
    return torch.bincount(chosen.flatten(), minlength=slots)[: model.slots].tolist()


def experts_masked(model: Model, batch: int) -> Part:
    """Return the experts of one GPU in decode: products of padded groups of rows, as DeepEP's low-latency mode delivers
    them.
    """
    rows = rows_of_experts(model, batch)
    most = max(BLOCK, _up(batch * model.ranks * model.per_token // (model.experts + model.copies) * 4))
    slots, width, hidden = model.slots, model.expert_width, model.hidden
    used = torch.tensor([min(each, most) for each in rows], dtype=torch.int32, device=DEVICE)
    expected = max(1, round(sum(rows) / slots))
    weights = [
        (random_weights((slots, 2 * width, hidden), DEVICE), random_weights((slots, hidden, width), DEVICE))
        for _ in range(2)
    ]
    given = token_groups(random(slots, most, hidden))
    both = torch.full((slots, most, 2 * width), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    middle = torch.zeros(slots, most, width, device=DEVICE, dtype=FP8)
    scales = column_major(slots, most, width // BLOCK, device=DEVICE)
    out = torch.full((slots, most, hidden), float("nan"), device=DEVICE, dtype=torch.bfloat16)

    def call(copy: int) -> None:
        up, down = weights[copy]
        matrices.masked(given, up, both, used, expected)
        triton_kernels.silu_mul(both, middle, scales, used)
        matrices.masked((middle, scales), down, out, used, expected)

    call(0)
    errors = []
    for slot in range(slots):
        count = int(used[slot])
        if count:
            up, down = ((values[slot], each[slot]) for values, each in weights[0])
            lines = dequantized(given[0][slot, :count], given[1][slot, :count])
            errors.append(_expert_error(lines, up, down, out[slot, :count]))
    read = float(3 * width * hidden * sum(each > 0 for each in rows))
    calls: list[Call] = [lambda: call(0), lambda: call(1)]
    shapes: dict[str, object] = {"rows": rows, "padded": most, "expected": expected}
    kernel = f"{matrices.kernel()}, masked"
    return Part("experts", kernel, calls, read, 6.0 * sum(rows) * width * hidden, max(errors, default=0.0), shapes)


def experts_contiguous(model: Model, tokens: int) -> Part:
    """Return the experts of one GPU in prefill: products of consecutive groups of rows."""
    rows = rows_of_experts(model, tokens)
    slots, width, hidden = model.slots, model.expert_width, model.hidden
    aligned = [_up(each) for each in rows]
    first = [sum(aligned[:slot]) for slot in range(slots)]
    total = sum(aligned)
    experts = torch.full((total,), -1, dtype=torch.int32, device=DEVICE)
    for slot, (begin, count) in enumerate(zip(first, rows, strict=True)):
        experts[begin : begin + count] = slot
    starts, used = (torch.tensor(each, dtype=torch.int32, device=DEVICE) for each in (first, rows))
    all_rows = torch.tensor([total], dtype=torch.int32, device=DEVICE)
    up, down = random_weights((slots, 2 * width, hidden), DEVICE), random_weights((slots, hidden, width), DEVICE)
    given = token_groups(random(total, hidden))
    both = torch.zeros(1, total, 2 * width, device=DEVICE, dtype=torch.bfloat16)
    middle = torch.zeros(1, total, width, device=DEVICE, dtype=FP8)
    scales = column_major(1, total, width // BLOCK, device=DEVICE)
    out = torch.full((total, hidden), float("nan"), device=DEVICE, dtype=torch.bfloat16)

    def call() -> None:
        matrices.contiguous(given, up, both[0], experts, starts, used)
        triton_kernels.silu_mul(both, middle, scales, all_rows)
        matrices.contiguous((middle[0], scales[0]), down, out, experts, starts, used)

    call()
    slot = max(range(slots), key=rows.__getitem__)
    where = slice(first[slot], first[slot] + min(rows[slot], 256))
    lines = dequantized(given[0][where], given[1][where])
    error = _expert_error(lines, (up[0][slot], up[1][slot]), (down[0][slot], down[1][slot]), out[where])
    read = float(3 * width * hidden * slots)
    kernel = f"{matrices.kernel()}, contiguous"
    return Part("experts", kernel, [call], read, 6.0 * sum(rows) * width * hidden, error, {"rows": rows})


def _expert_error(lines: torch.Tensor, up: matrices.Quantized, down: matrices.Quantized, out: torch.Tensor) -> float:
    """Return the relative error of an expert's output for these rows. The reference quantizes between the products, too."""
    gate, other = (lines @ dequantized(*up, BLOCK).T).bfloat16().float().chunk(2, -1)
    middle = token_groups(torch.nn.functional.silu(gate) * other)
    return relative_error(out, dequantized(*middle) @ dequantized(*down, BLOCK).T)


def small_kernels(model: Model, tokens: int) -> list[Part]:
    """Return norms with quantization, rotary embedding and the choice of experts of a layer."""
    hidden = model.hidden
    norms = [hidden, hidden, *((model.q_rank, model.latent) if model.latent else ())]
    inputs = [(random(tokens, size), random(tokens, size), random(size)) for size in norms]
    outputs = [torch.empty(tokens, size, device=DEVICE, dtype=FP8) for size in norms]
    scales = [column_major(tokens, size // BLOCK, device=DEVICE) for size in norms]
    latent_out = torch.empty(tokens, max(1, model.latent), device=DEVICE, dtype=torch.bfloat16)

    def normalize() -> None:
        for number, (given, residual, weight) in enumerate(inputs):
            if number == 3:
                triton_kernels.rms_norm(given, residual, weight, latent_out, None)
            else:
                triton_kernels.rms_norm(given, residual, weight, outputs[number], scales[number])

    width = model.heads * (model.value or model.head_dim)
    attended = random(tokens, width)
    quantized = torch.empty(tokens, width, device=DEVICE, dtype=FP8), column_major(tokens, width // BLOCK, device=DEVICE)
    turned = model.rope or model.head_dim
    head_width = (model.nope + model.rope) or model.head_dim
    query = random(tokens, model.heads, head_width)
    key = random(tokens, model.kv_heads if not model.latent else 1, turned)
    positions = torch.arange(tokens, device=DEVICE)
    table = torch.randn(tokens, turned, device=DEVICE)
    gate = random(model.experts, hidden)
    residual = random(tokens, hidden)
    scores = torch.empty(tokens, model.experts, device=DEVICE, dtype=torch.bfloat16)
    bias = torch.randn(model.experts, device=DEVICE)
    weights = torch.empty(tokens, model.per_token, device=DEVICE)
    chosen = torch.empty(tokens, model.per_token, device=DEVICE, dtype=torch.int32)

    def rotate() -> None:
        triton_kernels.rope(query, positions, table, head_width - turned)
        triton_kernels.rope(key, positions, table, 0)

    def route() -> None:
        torch.mm(residual, gate.T, out=scores)
        triton_kernels.top_experts(scores, bias, weights, chosen)

    own = triton_kernels.NAME
    read = sum(6.0 * tokens * size for size in norms)
    return [
        Part("norms", own, [normalize] * 4, read, 0.0),
        Part("quantize_output", own, [lambda: triton_kernels.quantize(attended, *quantized)] * 4, 3.0 * tokens * width, 0.0),
        Part("rotary", own, [rotate] * 4, 4.0 * tokens * model.heads * turned, 0.0),
        Part(
            "router", f"torch {torch.__version__} mm; {own}", [route] * 4, 2.0 * model.experts * hidden,
            2.0 * tokens * model.experts * hidden,
        ),
    ]  # fmt: skip

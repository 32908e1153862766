"""The memory bandwidth and the rates of matrix products that this GPU reaches, to compare with its data sheet."""

from collections.abc import Iterator

import torch

from tests.gpu.kernels import matrices, triton_kernels
from tests.gpu.kernels.layer import Part, random
from tests.gpu.kernels.quantized import BLOCK, dequantized, random_weights, token_groups
from tests.gpu.kernels.timing import DEVICE, ON_GPU, relative_error

SIDE = 8192 if ON_GPU else 256
"""Rows and columns of the square matrices."""
READ_NUMBERS = (1 << 30) if ON_GPU else (1 << 16)
"""FP32 numbers that are read: 4 GiB."""


def parts() -> Iterator[Part]:
    """Yield the measurements. Numbers are random, because a GPU computes faster with zeros."""
    yield from _memory()
    yield from _products()


def _memory() -> Iterator[Part]:
    numbers = torch.randn(READ_NUMBERS, device=DEVICE)
    sums = torch.empty(READ_NUMBERS // triton_kernels.READ, device=DEVICE)
    triton_kernels.read(numbers, sums)
    error = relative_error(sums.sum(), numbers.sum(dtype=torch.float64))
    yield Part("read", triton_kernels.NAME, [lambda: triton_kernels.read(numbers, sums)], 4.0 * READ_NUMBERS, 0.0, error)
    other = torch.empty_like(numbers)
    yield Part("copy", f"torch {torch.__version__} copy_", [lambda: other.copy_(numbers)], 8.0 * READ_NUMBERS, 0.0)


def _products() -> Iterator[Part]:
    flops = 2.0 * SIDE**3
    shapes: dict[str, object] = {"m": SIDE, "n": SIDE, "k": SIDE}
    a, b = random(SIDE, SIDE), random(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE, device=DEVICE, dtype=torch.bfloat16)
    torch.mm(a, b.T, out=out)
    error = relative_error(out[:64], a[:64].float() @ b.float().T)
    name = f"torch {torch.__version__} mm (cuBLAS)"
    yield Part("gemm_bf16", name, [lambda: torch.mm(a, b.T, out=out)], 6.0 * SIDE**2, flops, error, shapes)
    tokens, weights = token_groups(a), random_weights((SIDE, SIDE), DEVICE)
    if ON_GPU:
        one = torch.ones((), device=DEVICE)

        def scaled() -> torch.Tensor:
            return torch._scaled_mm(tokens[0], weights[0].T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

        error = relative_error(scaled()[:64], tokens[0][:64].float() @ weights[0].float().T)
        name = f"torch {torch.__version__} _scaled_mm (cuBLASLt), one scale for a matrix"
        yield Part("gemm_fp8", name, [scaled], 4.0 * SIDE**2, flops, error, shapes)
    matrices.dense(tokens, weights, out)
    error = relative_error(out[:64], dequantized(tokens[0][:64], tokens[1][:64]) @ dequantized(*weights, BLOCK).T)
    call = [lambda: matrices.dense(tokens, weights, out)]
    yield Part("gemm_fp8_blocks", matrices.kernel(), call, 4.0 * SIDE**2, flops, error, shapes)

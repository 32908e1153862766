"""FP8 matrix products with scales of blocks of 128, by DeepGEMM if it is installed, else by Triton kernels."""

import importlib
import importlib.metadata
from functools import cache
from typing import Any

import torch

from tests.gpu.kernels import triton_kernels
from tests.gpu.kernels.timing import ON_GPU

Quantized = tuple[torch.Tensor, torch.Tensor]
"""Numbers in FP8, and their scales."""
ALIGNED = 128
"""DeepGEMM's contiguous kernel wants the rows of each expert to begin at a multiple of this number."""


@cache
def deep_gemm() -> Any:
    """Return the module of DeepGEMM; None if DeepGEMM is not installed or does not support this machine."""
    if not ON_GPU:
        return None
    try:
        return importlib.import_module("deep_gemm")
    except Exception as error:
        print(f"no DeepGEMM: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None


@cache
def kernel() -> str:
    """Return the name and version of the kernels that `dense`, `masked` and `contiguous` use."""
    if deep_gemm() is None:
        return triton_kernels.NAME
    for name in ("sgl-deep-gemm", "deep-gemm"):
        try:
            return f"DeepGEMM ({name} {importlib.metadata.version(name)})"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"DeepGEMM {getattr(deep_gemm(), '__version__', '')}".strip()


def dense(a: Quantized, b: Quantized, out: torch.Tensor) -> None:
    """Write a times the transpose of b into `out`, [m, n] in BF16. `a` is [m, k] with scales [m, k / 128]; `b` is [n, k]
    with scales [n / 128, k / 128].
    """
    if (module := deep_gemm()) is not None:
        module.fp8_gemm_nt(a, b, out)
        return
    rows = torch.tensor([a[0].shape[0]], dtype=torch.int32, device=out.device)
    first = torch.zeros(1, dtype=torch.int32, device=out.device)
    triton_kernels.grouped_gemm(*a, b[0][None], b[1][None], out, first, rows, a[0].shape[0])


def masked(a: Quantized, b: Quantized, out: torch.Tensor, used: torch.Tensor, expected: int) -> None:
    """Multiply the first `used[e]` rows of each expert e by the transpose of the expert's matrix, as decode does.

    * `a` is [experts, rows, k] with scales [experts, rows, k / 128].
    * `b` is [experts, n, k] with scales [experts, n / 128, k / 128].
    * `out` is [experts, rows, n] in BF16.
    * `expected` is the mean of `used`.
    """
    if (module := deep_gemm()) is not None:
        module.fp8_m_grouped_gemm_nt_masked(a, b, out, used, expected)
        return
    experts, rows, k = a[0].shape
    starts = torch.arange(0, experts * rows, rows, dtype=torch.int32, device=out.device)
    triton_kernels.grouped_gemm(a[0].view(-1, k), a[1], *b, out.view(experts * rows, -1), starts, used, rows)


def contiguous(
    a: Quantized, b: Quantized, out: torch.Tensor, experts: torch.Tensor, starts: torch.Tensor, used: torch.Tensor
) -> None:
    """Multiply the rows of each expert by the transpose of the expert's matrix, as prefill does.

    `a` is [rows, k] with scales [rows, k / 128]. The rows of an expert are consecutive and begin at a multiple of ALIGNED.
    `experts`, [rows], is the expert of each row, and -1 for rows that fill up; `starts` and `used`, [experts], are the
    first row and the number of rows of each expert.
    """
    if (module := deep_gemm()) is not None:
        module.m_grouped_fp8_gemm_nt_contiguous(a, b, out, experts)
        return
    triton_kernels.grouped_gemm(*a, *b, out, starts, used, int(used.max()))

"""Tests that the kernels of tests/gpu/kernels compute the right results, on a GPU or on a CPU with Triton's interpreter."""

import importlib.util
import os
import shutil

import pytest

if MISSING := [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]:
    pytest.skip(f"needs {' and '.join(MISSING)}", allow_module_level=True)
if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when the module is imported.

import torch
from torch.nn import functional

from tests.gpu.kernels import triton_kernels
from tests.gpu.kernels.quantized import FP8, column_major, dequantized, random_weights, token_groups
from tests.gpu.kernels.timing import DEVICE, relative_error

ROUNDED = 0.08
"""Relative error of quantized numbers: 0.026 where FP8 is rounded to nearest, up to 0.08 in Triton's interpreter."""


def random(*shape: int) -> torch.Tensor:
    """Return random numbers in BF16."""
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


@pytest.mark.parametrize("quantize", [True, False])
def test_a_norm_adds_the_residual_first(quantize: bool) -> None:
    """The norm kernel adds the residual first: it normalizes the sum, which also stays in the residual. The latent part of a
    key is not quantized.
    """
    x, residual, weight = random(3, 1536), random(3, 1536), random(1536)
    total = x.float() + residual.float()
    scale = column_major(3, 12, device=DEVICE) if quantize else None
    out = torch.empty(3, 1536, device=DEVICE, dtype=FP8 if quantize else torch.bfloat16)
    triton_kernels.rms_norm(x, residual, weight, out, scale)
    result = dequantized(out, scale) if scale is not None else out
    expected = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()
    assert relative_error(result, expected) < ROUNDED
    assert relative_error(residual, total) < 0.01


def test_only_rows_with_tokens_are_processed() -> None:
    """Only rows with tokens are activated: the padding rows of an expert's part are neither read nor written."""
    x, used = random(2, 4, 512), torch.tensor([4, 2], dtype=torch.int32, device=DEVICE)
    out, scale = torch.zeros(2, 4, 256, device=DEVICE, dtype=FP8), column_major(2, 4, 2, device=DEVICE)
    triton_kernels.silu_mul(x, out, scale, used)
    expected = functional.silu(x[..., :256].float()) * x[..., 256:].float()
    expected[1, 2:] = 0
    assert relative_error(dequantized(out, scale), expected) < ROUNDED
    assert not out[1, 2:].float().any()


def test_token_groups_are_quantized_with_their_own_scale() -> None:
    """Groups of 128 numbers of a token are quantized, each with a scale of its own."""
    x, out, scale = random(5, 384), torch.empty(5, 384, device=DEVICE, dtype=FP8), column_major(5, 3, device=DEVICE)
    triton_kernels.quantize(x, out, scale)
    assert relative_error(dequantized(out, scale), x) < ROUNDED
    assert relative_error(scale, token_groups(x)[1]) < 0.01


def test_the_last_numbers_of_a_head_are_rotated() -> None:
    """Only the last numbers of each head are rotated, by the angles of the table. All other numbers stay the same."""
    x, table = random(3, 4, 192), torch.randn(10, 64, device=DEVICE)
    positions, before = torch.tensor([1, 5, 7], device=DEVICE), x.clone()
    triton_kernels.rope(x, positions, table, 128)
    pairs = before[..., 128:].float().view(3, 4, 32, 2)
    cos, sin = table[positions][:, None, :32], table[positions][:, None, 32:]
    expected = torch.stack((pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin), -1)
    assert relative_error(x[..., 128:], expected.flatten(-2)) < 0.01
    assert torch.equal(x[..., :128], before[..., :128])


def test_bias_changes_the_choice_of_experts_but_not_their_weights() -> None:
    """The bias changes the choice of experts, and not their weights, as in Kimi K2's router."""
    scores, bias = torch.randn(5, 384, device=DEVICE), torch.randn(384, device=DEVICE) / 10
    weights = torch.empty(5, 8, device=DEVICE)
    chosen = torch.empty(5, 8, device=DEVICE, dtype=torch.int32)
    triton_kernels.top_experts(scores, bias, weights, chosen)
    expected = (scores.sigmoid() + bias).topk(8).indices
    gates = scores.sigmoid().gather(1, expected)
    assert torch.equal(chosen.long(), expected)
    assert relative_error(weights, gates / gates.sum(1, keepdim=True)) < 1e-4


@pytest.mark.parametrize("by_expert", [True, False])
def test_each_expert_multiplies_its_own_rows(by_expert: bool) -> None:
    """Each expert multiplies its own rows by its own matrix. The rows of an expert begin at a fixed multiple, or directly
    after the rows of the previous expert.
    """
    values, scales = random_weights((3, 256, 256), DEVICE)
    counts = [5, 0, 70]
    starts = [0, 80, 160] if by_expert else [0, 5, 5]
    rows = 240 if by_expert else 75
    a = token_groups(random(3, 80, 256) if by_expert else random(rows, 256))
    out = torch.full((rows, 256), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    first, used = (torch.tensor(each, dtype=torch.int32, device=DEVICE) for each in (starts, counts))
    triton_kernels.grouped_gemm(a[0].view(rows, 256), a[1], values, scales, out, first, used, 80)
    left = dequantized(*a).view(rows, 256)
    for expert in (0, 2):
        part = slice(starts[expert], starts[expert] + counts[expert])
        expected = left[part] @ dequantized(values[expert], scales[expert], 128).T
        assert relative_error(out[part], expected) < 0.01


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_latent_attention_reads_the_pages_of_a_request(splits: int) -> None:
    """Latent attention reads the cache pages of each request, and returns the same result for any number of programs per
    request, even for more programs than pages.
    """
    heads, latent, rope, page = 16, 128, 16, 64
    cache, query = random(8 * page, latent + rope), random(2, heads, latent + rope)
    pages = torch.tensor([[3, 0, 5], [7, 1, 2]], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([150, 64], dtype=torch.int32, device=DEVICE)
    out = torch.empty(2, heads, latent, device=DEVICE, dtype=torch.bfloat16)
    space = torch.empty(2, heads, splits, latent, device=DEVICE), torch.empty(2, heads, splits, device=DEVICE)
    triton_kernels.latent_decode(query, cache, pages, lengths, out, 0.1, splits, *space, latent, page)
    for request in range(2):
        keys = cache.view(8, page, -1)[pages[request].long()].flatten(0, 1)[: lengths[request]].float()
        expected = (query[request].float() @ keys.T * 0.1).softmax(-1) @ keys[:, :latent]
        assert relative_error(out[request], expected) < 0.01


def test_all_numbers_of_an_array_are_read() -> None:
    """All numbers of an array are read, even if the last part is shorter than the share of a program."""
    x, out = torch.randn(100_000, device=DEVICE), torch.empty(4, device=DEVICE)
    triton_kernels.read(x, out)
    assert abs(float(out.sum() - x.sum())) < 0.01

"""FP8 quantization in blocks of 128, as Kimi K2 and DeepSeek V3 store their weights: E4M3 numbers, FP32 scales."""

import torch

BLOCK = 128
LARGEST = 448.0
"""Largest number of E4M3."""
FP8 = torch.float8_e4m3fn


def weight_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize weights of shape [..., n, k] in blocks of 128 x 128. Returns the weights in FP8, and the scales of shape
    [..., n / 128, k / 128] in FP32. n and k are multiples of 128.
    """
    *lead, n, k = weight.shape
    blocks = weight.float().view(*lead, n // BLOCK, BLOCK, k // BLOCK, BLOCK)
    scale = blocks.abs().amax(dim=(-3, -1), keepdim=True).clamp(1e-4) / LARGEST
    return (blocks / scale).view(*lead, n, k).to(FP8), scale.view(*lead, n // BLOCK, k // BLOCK)


def random_weights(shape: tuple[int, ...], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random weights of this shape, [..., n, k], in FP8 with their scales, as `weight_blocks` does. The weights of
    one matrix after the other are made, to keep the memory small.
    """
    *lead, n, k = shape
    values = torch.empty(shape, dtype=FP8, device=device)
    scales = torch.empty((*lead, n // BLOCK, k // BLOCK), device=device)
    for value, scale in zip(values.view(-1, n, k), scales.view(-1, n // BLOCK, k // BLOCK), strict=True):
        one, its = weight_blocks(torch.randn(n, k, device=device) / k**0.5)
        value.copy_(one)
        scale.copy_(its)
    return values, scales


def token_groups(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize activations of shape [..., k] in groups of 128 numbers of a token. Returns them in FP8, and the scales of
    shape [..., k / 128] in FP32, in the layout of `column_major`.
    """
    *lead, k = tokens.shape
    groups = tokens.float().view(*lead, k // BLOCK, BLOCK)
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(1e-4) / LARGEST
    scales = column_major(*lead, k // BLOCK, device=str(tokens.device))
    scales.copy_(scale.squeeze(-1))
    return (groups / scale).view(*lead, k).to(FP8), scales


def dequantized(values: torch.Tensor, scales: torch.Tensor, rows: int = 1) -> torch.Tensor:
    """Return quantized numbers of shape [..., n, k] as FP32. The scales hold for blocks of `rows` x 128 numbers."""
    out = scales.repeat_interleave(BLOCK, -1)
    if rows > 1:
        out = out.repeat_interleave(rows, -2)
    return values.float() * out


def column_major(*shape: int, device: str) -> torch.Tensor:
    """Return an empty tensor for scales of shape [..., rows, groups] whose rows are adjacent in memory and padded to 16
    bytes. The copy engine of Hopper GPUs needs this layout, and DeepGEMM converts any other layout at each call.
    """
    *lead, rows, groups = shape
    padded = -(-rows // 4) * 4
    return torch.ones(*lead, groups, padded, device=device)[..., :rows].transpose(-1, -2)

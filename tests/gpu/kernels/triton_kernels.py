"""Triton kernels for the parts of a layer for which torch has no fused operation, and in place of kernels that are missing.

They are written to be read, not to be the fastest. A result names the kernel that was measured.
"""

import torch
import triton
import triton.language as tl

from tests.gpu.kernels.quantized import BLOCK
from tests.gpu.kernels.timing import ON_GPU

NAME = f"triton {triton.__version__}, tests/gpu/kernels"
"""The name of these kernels in results."""


@triton.jit
def _rms_norm(
    x,
    residual,
    weight,
    out,
    scale,
    of_row,
    of_group,
    size: tl.constexpr,
    group: tl.constexpr,
    padded: tl.constexpr,
    quantize: tl.constexpr,
):
    """Add a residual, normalize a token, and quantize it in groups. One program per token."""
    token = tl.program_id(0)
    at = tl.arange(0, padded)
    inside = at < size
    value = tl.load(x + token * size + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(residual + token * size + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + token * size + at, value.to(tl.bfloat16), mask=inside)
    mean = tl.sum(value * value, axis=0) / size
    value = value * (1.0 / tl.sqrt(mean + 1e-6)) * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if quantize:
        groups = tl.reshape(value, (padded // group, group))
        most = tl.maximum(tl.max(tl.abs(groups), axis=1), 1e-4) / 448.0
        groups = groups / most[:, None]
        tl.store(out + token * size + at, tl.reshape(groups, (padded,)).to(tl.float8e4nv), mask=inside)
        which = tl.arange(0, padded // group)
        tl.store(scale + token * of_row + which * of_group, most, mask=which < size // group)
    else:
        tl.store(out + token * size + at, value.to(tl.bfloat16), mask=inside)


def rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, scale: torch.Tensor | None
) -> None:
    """Add `x` to `residual` (both [tokens, size], BF16), and write the normalized sum into `out`: in BF16 if `scale` is
    None, else in FP8 with scales of groups of 128 in `scale`, [tokens, size / 128].
    """
    tokens, size = x.shape
    _rms_norm[(tokens,)](
        x, residual, weight, out, scale if scale is not None else out, *(scale.stride() if scale is not None else (0, 0)),
        size=size, group=BLOCK, padded=triton.next_power_of_2(size), quantize=scale is not None, num_warps=8,
    )  # fmt: skip


@triton.jit
def _quantize(x, out, scale, groups, of_row, of_group, group: tl.constexpr):
    """Quantize a group of numbers. One program per group."""
    number = tl.program_id(0)
    at = number.to(tl.int64) * group + tl.arange(0, group)
    value = tl.load(x + at).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(value), axis=0), 1e-4) / 448.0
    tl.store(out + at, (value / most).to(tl.float8e4nv))
    tl.store(scale + (number // groups) * of_row + (number % groups) * of_group, most)


def quantize(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> None:
    """Quantize `x`, [tokens, size] in BF16, in groups of 128 into `out` in FP8 and `scale`, [tokens, size / 128], which may
    have any strides.
    """
    _quantize[(x.numel() // BLOCK,)](x, out, scale, x.shape[1] // BLOCK, *scale.stride(), group=BLOCK, num_warps=1)


@triton.jit
def _silu_mul(x, out, scale, used, of_expert, of_row, of_group, size: tl.constexpr, group: tl.constexpr, rows: tl.constexpr):
    """SiLU of the first half times the second half of a row, quantized in groups. One program per row and group."""
    row, which = tl.program_id(0), tl.program_id(1)
    expert = row // rows
    if row % rows < tl.load(used + expert):
        at = which * group + tl.arange(0, group)
        gate = tl.load(x + row.to(tl.int64) * 2 * size + at).to(tl.float32)
        up = tl.load(x + row.to(tl.int64) * 2 * size + size + at).to(tl.float32)
        value = gate / (1.0 + tl.exp(-gate)) * up
        most = tl.maximum(tl.max(tl.abs(value), axis=0), 1e-4) / 448.0
        tl.store(out + row.to(tl.int64) * size + at, (value / most).to(tl.float8e4nv))
        tl.store(scale + expert.to(tl.int64) * of_expert + (row % rows) * of_row + which * of_group, most)


def silu_mul(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor, used: torch.Tensor) -> None:
    """Write SiLU(gate) * up, quantized in groups of 128, for `x` of shape [experts, rows, 2 * size]. `used`, [experts],
    is the number of rows of each expert that hold tokens; the others are skipped. `out` is [experts, rows, size] in FP8,
    `scale` [experts, rows, size / 128], with any strides.
    """
    experts, rows, twice = x.shape
    size = twice // 2
    _silu_mul[(experts * rows, size // BLOCK)](
        x, out, scale, used, *scale.stride(), size=size, group=BLOCK, rows=rows, num_warps=1
    )


@triton.jit
def _rope(x, positions, table, heads, stride: tl.constexpr, first: tl.constexpr, half: tl.constexpr):
    """Rotate the last 2 * half numbers of each head. One program per token and head."""
    token, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, half)
    base = x + (token.to(tl.int64) * heads + head) * stride + first
    position = tl.load(positions + token)
    cos = tl.load(table + position * 2 * half + at)
    sin = tl.load(table + position * 2 * half + half + at)
    one = tl.load(base + 2 * at).to(tl.float32)
    two = tl.load(base + 2 * at + 1).to(tl.float32)
    tl.store(base + 2 * at, (one * cos - two * sin).to(tl.bfloat16))
    tl.store(base + 2 * at + 1, (two * cos + one * sin).to(tl.bfloat16))


def rope(x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor, first: int) -> None:
    """Rotate in place the numbers from `first` on of each head of `x`, [tokens, heads, width] in BF16, by the angles in
    `table`, [positions, width - first] in FP32: cosines, then sines.
    """
    tokens, heads, width = x.shape
    _rope[(tokens, heads)](x, positions, table, heads, stride=width, first=first, half=(width - first) // 2, num_warps=1)


@triton.jit
def _top_experts(scores, bias, weights, chosen, experts: tl.constexpr, padded: tl.constexpr, count: tl.constexpr):
    """Choose the experts with the largest biased sigmoid, and normalize their weights. One program per token."""
    token = tl.program_id(0)
    at = tl.arange(0, padded)
    inside = at < experts
    score = tl.load(scores + token * experts + at, mask=inside, other=-1e9).to(tl.float32)
    gate = 1.0 / (1.0 + tl.exp(-score))
    biased = tl.where(inside, gate + tl.load(bias + at, mask=inside, other=0.0), -1e9)
    total = 0.0
    for number in tl.static_range(count):
        best = tl.argmax(biased, axis=0)
        weight = tl.sum(tl.where(at == best, gate, 0.0), axis=0)
        tl.store(chosen + token * count + number, best.to(tl.int32))
        tl.store(weights + token * count + number, weight)
        total += weight
        biased = tl.where(at == best, -1e9, biased)
    for number in tl.static_range(count):
        weight = tl.load(weights + token * count + number)
        tl.store(weights + token * count + number, weight / total)


def top_experts(scores: torch.Tensor, bias: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> None:
    """Write the experts of each token and their weights, both [tokens, count], for `scores`, [tokens, experts]. They are
    computed as in the router of Kimi K2: a sigmoid, a bias for the choice alone, and weights that sum to 1.
    """
    tokens, experts = scores.shape
    _top_experts[(tokens,)](
        scores, bias, weights, chosen,
        experts=experts, padded=triton.next_power_of_2(experts), count=chosen.shape[1], num_warps=4,
    )  # fmt: skip


@triton.jit
def _grouped_gemm(
    a, a_scale, b, b_scale, out, starts, used, n_size, of_expert, of_row, of_group, k_size: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr,
):  # fmt: skip
    """Compute one tile of A times the transpose of B for an expert, with scales for each step of 128 along k."""
    expert, tile_m, tile_n = tl.program_id(2), tl.program_id(1), tl.program_id(0)
    count = tl.load(used + expert)
    if tile_m * bm < count:
        m = tile_m * bm + tl.arange(0, bm)
        n = tile_n * bn + tl.arange(0, bn)
        k = tl.arange(0, bk)
        start = tl.load(starts + expert).to(tl.int64)
        groups: tl.constexpr = k_size // bk
        first = tl.where(of_expert > 0, 0, start)
        scale_at = a_scale + expert.to(tl.int64) * of_expert + (first + m) * of_row
        a_at = a + (start + m[:, None]) * k_size + k[None, :]
        b_at = b + (expert.to(tl.int64) * n_size + n[None, :]) * k_size + k[:, None]
        product = tl.zeros((bm, bn), dtype=tl.float32)
        for step in range(groups):
            left = tl.load(a_at + step * bk, mask=m[:, None] < count, other=0.0)
            right = tl.load(b_at + step * bk)
            of_a = tl.load(scale_at + step * of_group, mask=m < count, other=0.0)
            of_b = tl.load(b_scale + (expert * (n_size // 128) + (tile_n * bn) // 128) * groups + step)
            product += tl.dot(left, right) * (of_a * of_b)[:, None]
        tl.store(out + (start + m[:, None]) * n_size + n[None, :], product.to(tl.bfloat16), mask=m[:, None] < count)


def grouped_gemm(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out: torch.Tensor,
    starts: torch.Tensor, used: torch.Tensor, most: int,
) -> None:  # fmt: skip
    """Multiply the rows of each expert by the transpose of the expert's matrix.

    `a` is [rows, k] in FP8; its scales are [rows, k / 128] or [experts, rows of an expert, k / 128], with any strides.
    `b` is [experts, n, k] in FP8 with scales [experts, n / 128, k / 128]; `out` is [rows, n] in BF16. The rows of expert e
    are `starts[e]` to `starts[e] + used[e]`; `most` bounds `used`.
    """
    experts, n, k = b.shape
    bm = 64 if most > 32 else 16
    strides = a_scale.stride() if a_scale.dim() == 3 else (0, *a_scale.stride())
    _grouped_gemm[(n // BLOCK, triton.cdiv(most, bm), experts)](
        a,
        a_scale,
        b,
        b_scale,
        out,
        starts,
        used,
        n,
        *strides,
        k_size=k,
        bm=bm,
        bn=BLOCK,
        bk=BLOCK,
        num_warps=4,
        num_stages=4,
    )


@triton.jit
def _latent_decode(
    query, cache, pages, lengths, partial, logs, scale, most_pages, splits,
    heads: tl.constexpr, bh: tl.constexpr, latent: tl.constexpr, rotary: tl.constexpr, page: tl.constexpr,
    widen: tl.constexpr,
):  # fmt: skip
    """Attention of some heads of a token over a part of its cached latent vectors. One page in each step."""
    request, block, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = block * bh + tl.arange(0, bh)
    of_latent, of_rotary, of_page = tl.arange(0, latent), tl.arange(0, rotary), tl.arange(0, page)
    width: tl.constexpr = latent + rotary
    q_at = query + (request * heads + head[:, None]).to(tl.int64) * width
    q_latent = tl.load(q_at + of_latent[None, :])
    q_rotary = tl.load(q_at + latent + of_rotary[None, :])
    if widen:
        q_latent, q_rotary = q_latent.to(tl.float32), q_rotary.to(tl.float32)
    length = tl.load(lengths + request)
    count = tl.cdiv(tl.cdiv(length, page), splits)
    first = split * count
    best = tl.full((bh,), -1e30, dtype=tl.float32)
    total = tl.zeros((bh,), dtype=tl.float32)
    attended = tl.zeros((bh, latent), dtype=tl.float32)
    for number in range(first, tl.minimum(first + count, tl.cdiv(length, page))):
        row = tl.load(pages + request * most_pages + number).to(tl.int64) * page + of_page
        key = tl.load(cache + row[:, None] * width + of_latent[None, :])
        key_rotary = tl.load(cache + row[:, None] * width + latent + of_rotary[None, :])
        if widen:
            key, key_rotary = key.to(tl.float32), key_rotary.to(tl.float32)
        score = tl.dot(q_latent, tl.trans(key)) + tl.dot(q_rotary, tl.trans(key_rotary))
        score = tl.where((number * page + of_page < length)[None, :], score * scale, -1e30)
        most = tl.maximum(best, tl.max(score, axis=1))
        weight = tl.exp(score - most[:, None])
        shrink = tl.exp(best - most)
        total = total * shrink + tl.sum(weight, axis=1)
        attended = attended * shrink[:, None] + tl.dot(weight.to(key.dtype), key)
        best = most
    at = (request * heads + head).to(tl.int64) * splits + split
    tl.store(partial + at[:, None] * latent + of_latent[None, :], attended / tl.maximum(total, 1e-30)[:, None])
    tl.store(logs + at, tl.where(total > 0, best + tl.log(tl.maximum(total, 1e-30)), -1e30))


@triton.jit
def _latent_merge(partial, logs, out, splits: tl.constexpr, padded: tl.constexpr, latent: tl.constexpr):
    """Merge the parts of a head of a token."""
    row = tl.program_id(0).to(tl.int64)
    at, of_latent = tl.arange(0, padded), tl.arange(0, latent)
    log = tl.load(logs + row * splits + at, mask=at < splits, other=-1e30)
    weight = tl.exp(log - tl.max(log, axis=0))
    part = tl.load(
        partial + (row * splits + at[:, None]) * latent + of_latent[None, :], mask=at[:, None] < splits, other=0.0
    )
    merged = tl.sum(part * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(out + row * latent + of_latent, merged.to(tl.bfloat16))


def latent_decode(
    query: torch.Tensor, cache: torch.Tensor, pages: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor,
    scale: float, splits: int, partial: torch.Tensor, logs: torch.Tensor, latent: int, page: int,
) -> None:  # fmt: skip
    """Compute latent attention (MLA) of one new token of each request, with the projections of keys and values folded into
    the query.

    `query` is [requests, heads, latent + rotary] in BF16, `cache` [pages * page, latent + rotary] in BF16, `pages`
    [requests, most pages] the pages of a request, `lengths` [requests] its tokens, `out` [requests, heads, latent].
    Triton's interpreter multiplies the bit patterns of BF16 numbers (3.6.0), so `widen` converts them to FP32 on a CPU.
    `partial` [requests, heads, splits, latent] and `logs` [requests, heads, splits] are FP32 work space.
    """
    requests, heads, width = query.shape
    bh = min(64, max(16, heads))
    _latent_decode[(requests, triton.cdiv(heads, bh), splits)](
        query, cache, pages, lengths, partial, logs, scale, pages.shape[1], splits,
        heads=heads, bh=bh, latent=latent, rotary=width - latent, page=page,
        widen=not ON_GPU, num_warps=8, num_stages=2,
    )  # fmt: skip
    _latent_merge[(requests * heads,)](
        partial, logs, out, splits=splits, padded=triton.next_power_of_2(splits), latent=latent, num_warps=4
    )


@triton.jit
def _read(x, out, size, block: tl.constexpr, steps: tl.constexpr):
    """Sum a part of an array."""
    at = tl.program_id(0).to(tl.int64) * block * steps + tl.arange(0, block)
    part = tl.zeros((block,), dtype=tl.float32)
    for step in range(steps):
        where = at + step * block
        part += tl.load(x + where, mask=where < size, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(part, axis=0))


def read(x: torch.Tensor, out: torch.Tensor) -> None:
    """Read all numbers of `x` (FP32, one dimension), and write the sum of each part of `READ` numbers into `out`."""
    _read[(triton.cdiv(x.numel(), READ),)](x, out, x.numel(), block=READ // 8, steps=8, num_warps=8)


READ = 32768
"""Numbers that one program of `read` sums."""

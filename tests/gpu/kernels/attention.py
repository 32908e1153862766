"""Latent attention (MLA) of decode and prefill on one GPU, as parts to be timed, with each kernel that is installed."""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tests.gpu.kernels import triton_kernels
from tests.gpu.kernels.layer import Part, random
from tests.gpu.kernels.timing import DEVICE, ON_GPU, relative_error
from tests.gpu.models import Model

PAGE = 64
"""Tokens of a page of the KV cache."""
CHECKED = 2
"""Requests whose output is compared with FP32."""


class Decode:
    """Paged caches of a batch of requests, in several copies if one fits into the GPU's cache."""

    def __init__(self, model: Model, batch: int, context: int) -> None:
        self.model, self.batch, self.context = model, batch, context
        self.width = model.latent + model.rope
        self.scale = (model.nope + model.rope) ** -0.5
        self.count = -(-context // PAGE)
        self.read = 2.0 * batch * context * self.width
        copies = max(1, min(8, int(200e6 // self.read)))
        self.query = random(batch, model.heads, self.width)
        self.caches = [random(batch * self.count * PAGE, self.width) for _ in range(copies)]
        self.pages = torch.randperm(batch * self.count, device=DEVICE).to(torch.int32).view(batch, self.count)
        self.lengths = torch.full((batch,), context, dtype=torch.int32, device=DEVICE)

    def reference(self, request: int) -> torch.Tensor:
        """Return the output of a request in FP32, [heads, latent]."""
        pages = self.caches[0].view(-1, PAGE, self.width)[self.pages[request].long()]
        keys = pages.reshape(-1, self.width)[: self.context].float()
        weights = (self.query[request].float() @ keys.T * self.scale).softmax(-1)
        return weights @ keys[:, : self.model.latent]

    def part(self, kernel: str, calls: list[Callable[[], torch.Tensor]]) -> Part:
        """Return the calls of a kernel as a part. A call returns [requests, heads, latent] for its copy of the caches."""
        out = calls[0]()
        checked = range(min(CHECKED, self.batch))
        error = max(relative_error(out[request], self.reference(request)) for request in checked)
        pairs = float(self.batch * self.context)
        flops = 2.0 * pairs * self.model.heads * (2 * self.model.latent + self.model.rope)
        shapes: dict[str, object] = {"batch": self.batch, "context": self.context, "page": PAGE, "heads": self.model.heads}
        return Part("attention", kernel, list(calls), self.read, flops, error, shapes)

    def with_triton(self, splits: int = 0) -> Part:
        """Return the part with the Triton kernel of this folder."""
        blocks = self.batch * -(-self.model.heads // 64)
        splits = splits or max(1, min(16, self.count, -(-264 // blocks)))
        heads, latent = self.model.heads, self.model.latent
        partial = torch.empty(self.batch, heads, splits, latent, device=DEVICE)
        logs = torch.empty(self.batch, heads, splits, device=DEVICE)

        out = torch.full((self.batch, heads, latent), float("nan"), device=DEVICE, dtype=torch.bfloat16)

        def call(cache: torch.Tensor) -> torch.Tensor:
            triton_kernels.latent_decode(
                self.query, cache, self.pages, self.lengths, out, self.scale, splits, partial, logs, latent, PAGE
            )
            return out

        name = f"{triton_kernels.NAME}, {splits} splits"
        return self.part(name, [lambda cache=cache: call(cache) for cache in self.caches])  # type: ignore[misc]

    def with_flash_mla(self) -> Part:
        """Return the part with FlashMLA, the kernel of DeepSeek, as SGLang ships it."""
        flash_mla: Any = importlib.import_module("flash_mla")
        heads, latent = self.model.heads, self.model.latent
        plan, _ = flash_mla.get_mla_metadata()
        plan.tile_scheduler_metadata, plan.num_splits = flash_mla.get_mla_decoding_metadata(
            self.lengths, heads, 1, use_legacy=True
        )

        def call(cache: torch.Tensor) -> torch.Tensor:
            out, _ = flash_mla.flash_mla_with_kvcache(
                self.query[:, None], cache.view(-1, PAGE, 1, self.width), self.pages, self.lengths, latent, plan,
                softmax_scale=self.scale, causal=True, use_legacy=True,
            )  # fmt: skip
            return out[:, 0]  # type: ignore[no-any-return]

        name = f"FlashMLA (sgl-flash-mla {importlib.metadata.version('sgl-flash-mla')})"
        return self.part(name, [lambda cache=cache: call(cache) for cache in self.caches])  # type: ignore[misc]


def decode(model: Model, batch: int, context: int) -> list[Part]:
    """Return attention of a decode step with each kernel that runs here."""
    state = Decode(model, batch, context)
    parts = [state.with_triton()]
    if ON_GPU:
        try:
            parts.append(state.with_flash_mla())
        except Exception as error:
            print(f"no FlashMLA: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return parts


def prefill(model: Model, tokens: int, prompt: int) -> list[Part]:
    """Return attention of a prefill step of `tokens` tokens of prompts of this length.

    Prompts that fit into the step are computed whole, with a causal mask. Of a longer prompt, a step computes a part: its
    tokens attend to half of the prompt, which is the mean, without a mask.
    """
    heads, width = model.heads, model.nope + model.rope
    count = max(1, tokens // prompt)
    asked = min(tokens, prompt)
    causal = prompt <= tokens
    keys = asked if causal else prompt // 2
    query, key = random(count, heads, asked, width), random(count, heads, keys, width)
    value = random(count, heads, keys, model.value)
    pairs = count * (asked * (asked + 1) / 2 if causal else float(asked * keys))
    flops = 2.0 * pairs * heads * (width + model.value)
    read = 2.0 * (query.numel() + key.numel() + value.numel())
    shapes: dict[str, object] = {"prompts": count, "queries": asked, "keys": keys, "causal": causal, "heads": heads}
    weights = (query[0, 0].float() @ key[0, 0].float().T) * width**-0.5
    if causal:
        weights = weights.masked_fill(torch.ones_like(weights, dtype=torch.bool).triu(1), float("-inf"))
    reference = weights.softmax(-1) @ value[0, 0].float()
    parts = []
    for name, call in _prefill_kernels(query, key, value, causal):
        try:
            error = relative_error(call()[0, 0], reference)
        except Exception as failure:
            print(f"no {name}: {type(failure).__name__}: {str(failure).splitlines()[0][:300]}", flush=True)
            continue
        parts.append(Part("attention", name, [call], read, flops, error, shapes))
    return parts


def _prefill_kernels(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> list[tuple[str, Any]]:
    """Return the kernels for prefill by name: functions that return [prompts, heads, tokens, value width]."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def torch_kernel(backend: Any, padded: bool) -> Any:
        values = functional.pad(value, (0, query.shape[-1] - value.shape[-1])) if padded else value

        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(query, key, values, is_causal=causal)[..., : value.shape[-1]]

        return call

    version = f"torch {torch.__version__}"
    if not ON_GPU:
        return [(f"{version} math", torch_kernel(SDPBackend.MATH, False))]
    cudnn = torch.backends.cudnn.version()
    return [
        (f"{version} cuDNN {cudnn} attention", torch_kernel(SDPBackend.CUDNN_ATTENTION, False)),
        (f"{version} flash attention 2, values padded to {query.shape[-1]}", torch_kernel(SDPBackend.FLASH_ATTENTION, True)),
    ]

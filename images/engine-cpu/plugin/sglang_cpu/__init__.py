"""Four settings that SGLang 0.5.23 lacks for CPUs, added through its plugin interface."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def activate() -> None:
    """Change SGLang's settings; SGLang calls this function in every process of the engine, before the model is built."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry, AttnForwardMethod

    # In plain torch, multi-head latent attention exists only in its absorbed form, so that form is used for prompts too.
    AttentionBackendRegistry.register("torch_native", lambda attention, batch: AttnForwardMethod.MLA)
    # Data-parallel attention pads batches with sequences of this length, which this backend does not define.
    TorchNativeAttnBackend.get_cpu_graph_seq_len_fill_value = lambda self: 1
    _send_from_plain_memory()
    _adapt_in_plain_memory()


def _send_from_plain_memory() -> None:
    """Make the sender of KV caches work without pinned memory and CUDA events."""
    try:
        from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender
    except ImportError:  # without Mooncake, KV caches are not sent
        return
    MooncakeKVSender.supports_host_tensor_indices = False


def _adapt_in_plain_memory() -> None:
    """Make LoRA work without pinned memory, which it requests even with the backend `torch_native`."""
    import torch
    from torch.utils._device import _device_constructors

    _device_constructors()  # stores the original functions, for `with torch.device(…)`
    for name in ("tensor", "zeros"):
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_: tensor


def _unpinned(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made

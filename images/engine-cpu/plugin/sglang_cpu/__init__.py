"""Four settings that SGLang 0.5.23 lacks for CPUs, made through its own plugin interface."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def activate() -> None:
    """Called by SGLang in every process of the engine, before the model is built."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry, AttnForwardMethod

    # Multi-head latent attention in plain torch exists in its absorbed form only: use it for prompts too.
    AttentionBackendRegistry.register("torch_native", lambda attention, batch: AttnForwardMethod.MLA)
    # Data-parallel attention pads batches with sequences of this length, which this backend does not name.
    TorchNativeAttnBackend.get_cpu_graph_seq_len_fill_value = lambda self: 1
    _send_from_plain_memory()
    _adapt_in_plain_memory()


def _send_from_plain_memory() -> None:
    """The sender of KV caches asks for pinned memory and CUDA events unless it says that it cannot use them."""
    try:
        from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender
    except ImportError:  # without Mooncake there is nothing to send with
        return
    MooncakeKVSender.supports_host_tensor_indices = False


def _adapt_in_plain_memory() -> None:
    """LoRA asks for pinned memory, even on its back end `torch_native`. Without a GPU it is memory as any other."""
    import torch
    from torch.utils._device import _device_constructors

    _device_constructors()  # remembers the functions as they are, for `with torch.device(…)`
    for name in ("tensor", "zeros"):
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_: tensor


def _unpinned(make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return make(*args, **kwargs)

    return made

"""Three settings that SGLang 0.5.23 lacks for CPUs, made through its own plugin interface."""


def activate() -> None:
    """Called by SGLang in every process of the engine, before the model is built."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry, AttnForwardMethod

    # Multi-head latent attention in plain torch exists in its absorbed form only: use it for prompts too.
    AttentionBackendRegistry.register("torch_native", lambda attention, batch: AttnForwardMethod.MLA)
    # Data-parallel attention pads batches with sequences of this length, which this backend does not name.
    TorchNativeAttnBackend.get_cpu_graph_seq_len_fill_value = lambda self: 1
    _send_from_plain_memory()


def _send_from_plain_memory() -> None:
    """The sender of KV caches asks for pinned memory and CUDA events unless it says that it cannot use them."""
    try:
        from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender
    except ImportError:  # without Mooncake there is nothing to send with
        return
    MooncakeKVSender.supports_host_tensor_indices = False

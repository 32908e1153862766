"""Published config.json files, reduced to the fields that matter here.

Sources: the test data of sgl-project/ome (pkg/hfutil/modelconfig/testdata, pkg/modelconfig/testdata) for gpt-oss, Llama and
the quantizations; for all others, the sizes in their makers' reports. The published parameter counts confirm these sizes to
every published digit (DeepSeek V3 671.026e9, GLM-4.5-Air 106.852e9, gpt-oss 116.83e9, Llama 3.1 8.030e9).
"""

from typing import Any

Config = dict[str, Any]

_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
}
DEEPSEEK_V3: Config = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "vocab_size": 129280, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "topk_method": "noaux_tc", "tie_word_embeddings": False,
    "max_position_embeddings": 163840, "torch_dtype": "bfloat16", "transformers_version": "4.33.1",
    "quantization_config": _FP8,
}  # fmt: skip
KIMI_K2: Config = DEEPSEEK_V3 | {
    "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840,
    "n_routed_experts": 384, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "max_position_embeddings": 131072,
    "transformers_version": "4.48.3",
}  # fmt: skip
KIMI_K2_THINKING: Config = KIMI_K2 | {"max_position_embeddings": 262144, "quantization_config": _INT4}
KIMI_K25: Config = {
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": KIMI_K2_THINKING,
}  # fmt: skip
GLM_45: Config = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288,
    "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552,
    "n_routed_experts": 160, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 1536,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "attention_bias": True, "use_qk_norm": True,
    "tie_word_embeddings": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
GLM_45_AIR: Config = GLM_45 | {
    "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128,
    "num_hidden_layers": 46, "first_k_dense_replace": 1, "use_qk_norm": False,
}  # fmt: skip
QWEN3_235B: Config = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "mlp_only_layers": [],
    "decoder_sparse_step": 1, "tie_word_embeddings": False, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B: Config = QWEN3_235B | {
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
    "moe_intermediate_size": 768,
}  # fmt: skip
GPT_OSS_120B: Config = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
    "num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4, "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "sliding_window": 128, "tie_word_embeddings": False,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens", "lm_head"]},
}  # fmt: skip
GPT_OSS_20B: Config = GPT_OSS_120B | {
    "num_hidden_layers": 24, "num_local_experts": 32, "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
LLAMA4_SCOUT: Config = {
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "use_qk_norm": True,
        "max_position_embeddings": 10485760,
    },
    "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408, "num_hidden_layers": 34},
}  # fmt: skip
LLAMA4_MAVERICK: Config = LLAMA4_SCOUT | {
    "text_config": LLAMA4_SCOUT["text_config"] | {"num_local_experts": 128, "interleave_moe_layer_step": 2},
}
LLAMA_31_8B: Config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_31_405B: Config = LLAMA_31_8B | {
    "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
}  # fmt: skip
MIXTRAL: Config = LLAMA_31_8B | {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 32768,
}  # fmt: skip

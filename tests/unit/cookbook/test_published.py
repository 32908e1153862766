"""Tests that the generated commands equal those of Moonshot AI's deployment guide and of the SGLang cookbook's page, flag
for flag.

Two commands of the page write `python` instead of `python3`, and `--model` instead of its alias `--model-path`; the test
uses the same spelling for all.
"""

import re
import shlex
from typing import Any

import pytest
import yaml

from ome_operator.cookbook.command import commands
from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.request import RecipeRequest

PAGE, GUIDE = "0.5.6.post1", "0.4.9.post2"
"""The versions that the page and the guide were written for."""
INSTRUCT, THINKING, GGUF = "Kimi-K2-Instruct", "Kimi-K2-Thinking", "Kimi-K2-Instruct-GGUF"
GUIDE_VLLM = {"model_path": "$MODEL_PATH", "name": "kimi-k2"}


def read(text: str) -> list[tuple[dict[str, str], str, dict[str, str]]]:
    """Parse each command into (variables, program, flag -> value)."""
    found = []
    for block in re.split(r"\n\n+", text.strip()):
        words = " ".join(line for line in block.splitlines() if not line.startswith("#")).replace("\\", " ").split()
        env = {}
        while "=" in words[0] and not words[0].startswith("-"):
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        start = next((number for number, word in enumerate(words) if word.startswith("--")), len(words))
        flags: dict[str, str] = {}
        for word in words[start:]:
            if word.startswith("--"):
                flags[name := word] = ""
            else:
                flags[name] = f"{flags[name]} {word}".strip()
        found.append((env, " ".join(words[:start]), flags))
    return found


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "page 3.1": (
        {"model": INSTRUCT},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --trust-remote-code",
    ),
    "page 3.1, DP attention and EP, on the day's version": (
        {"model": INSTRUCT, "strategy": "tp+dp+ep", "version": PAGE, "tool_call_parser": True},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --dp 4 --enable-dp-attention "
        "--ep 4 --trust-remote-code --tool-call-parser kimi_k2",
    ),
    "page 3.2": (
        {"model": INSTRUCT, "context_length": 128000, "kv_cache_dtype": "fp8_e4m3"},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --trust-remote-code "
        "--context-length 128000 --kv-cache-dtype fp8_e4m3",
    ),
    # The page omits --trust-remote-code here, but its own generator always writes it, and the tokenizer needs it.
    "page 4.2.1": (
        {"model": THINKING, "reasoning_parser": True, "host": "0.0.0.0", "port": 8000},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Thinking --reasoning-parser kimi_k2 --tp 8 "
        "--host 0.0.0.0 --port 8000 --trust-remote-code",
    ),
    "page 4.2.2": (
        {"model": INSTRUCT, "tool_call_parser": True, "host": "0.0.0.0", "port": 8000},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tool-call-parser kimi_k2 --tp 8 "
        "--trust-remote-code --host 0.0.0.0 --port 8000",
    ),
    "page 5.1.1": (
        {"hardware": "b200", "model": INSTRUCT, "strategy": "tp+dp", "version": PAGE, "host": "0.0.0.0", "port": 8000},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --dp 4 --enable-dp-attention "
        "--trust-remote-code --host 0.0.0.0 --port 8000",
    ),
    "page 5.1.2": (
        {"hardware": "b200", "model": INSTRUCT, "strategy": "tp+dp+ep", "version": PAGE, "host": "0.0.0.0", "port": 8000},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --dp 4 --ep 4 "
        "--enable-dp-attention --trust-remote-code --host 0.0.0.0 --port 8000",
    ),
    # Without DP attention, these are four copies, which need a machine with 32 GPUs.
    "page 5.2.1": (
        {"hardware": "b200", "model": INSTRUCT, "dp": 4, "tp": 8, "gpus_per_node": 32, "host": "0.0.0.0", "port": 8000},
        "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2-Instruct --tp 8 --dp 4 --trust-remote-code "
        "--host 0.0.0.0 --port 8000",
    ),
    "guide, SGLang TP": (
        {"model": INSTRUCT, "tp": 16, "version": GUIDE, "tool_call_parser": True, "model_path": "$MODEL_PATH"},
        "python -m sglang.launch_server --model-path $MODEL_PATH --tp 16 --dist-init-addr $MASTER_IP:50000 --nnodes 2 "
        "--node-rank 0 --trust-remote-code --tool-call-parser kimi_k2"
        "\n\n"
        "python -m sglang.launch_server --model-path $MODEL_PATH --tp 16 --dist-init-addr $MASTER_IP:50000 --nnodes 2 "
        "--node-rank 1 --trust-remote-code --tool-call-parser kimi_k2",
    ),
    # The guide also says "start ray on node 0 and node 1"; --name is the name of the served model.
    "guide, vLLM TP": (
        {"model": INSTRUCT, "engine": "vllm", "version": "0.17.1", "tp": 16, "tool_call_parser": True, **GUIDE_VLLM},
        "ray start --head --port=6379\n"
        "vllm serve $MODEL_PATH --port 8000 --served-model-name kimi-k2 --trust-remote-code --tensor-parallel-size 16 "
        "--enable-auto-tool-choice --tool-call-parser kimi_k2"
        "\n\n"
        "ray start --block --address=$MASTER_IP:6379",
    ),
    "guide, vLLM DP and EP": (
        {"model": INSTRUCT, "engine": "vllm", "strategy": "dp+ep", "dp": 16, "tool_call_parser": True, **GUIDE_VLLM},
        "vllm serve $MODEL_PATH --port 8000 --served-model-name kimi-k2 --trust-remote-code --data-parallel-size 16 "
        "--data-parallel-size-local 8 --data-parallel-address $MASTER_IP --data-parallel-rpc-port $PORT "
        "--enable-expert-parallel --max-num-batched-tokens 8192 --max-num-seqs 256 --gpu-memory-utilization 0.85 "
        "--enable-auto-tool-choice --tool-call-parser kimi_k2"
        "\n\n"
        "vllm serve $MODEL_PATH --headless --data-parallel-start-rank 8 --port 8000 --served-model-name kimi-k2 "
        "--trust-remote-code --data-parallel-size 16 --data-parallel-size-local 8 --data-parallel-address $MASTER_IP "
        "--data-parallel-rpc-port $PORT --enable-expert-parallel --max-num-batched-tokens 8192 --max-num-seqs 256 "
        "--gpu-memory-utilization 0.85 --enable-auto-tool-choice --tool-call-parser kimi_k2",
    ),
    "guide, KTransformers": (
        {"model": GGUF, "engine": "ktransformers", "strategy": "cpu", "model_path": "/path/to/K2"},
        "python ktransformers/server/main.py --model_path /path/to/K2 --gguf_path /path/to/K2 --cache_lens 30000",
    ),
    "guide, KTransformers with AMX": (
        {"model": GGUF, "engine": "ktransformers", "strategy": "cpu+amx", "model_path": "/path/to/K2"},
        "python ktransformers/server/main.py --model_path /path/to/K2 --gguf_path /path/to/K2 --cache_lens 30000 "
        "--optimize_config_path ktransformers/optimize/optimize_rules/"
        "DeepSeek-V3-Chat-fp8-linear-ggml-experts-serve-amx.yaml",
    ),
    # The guide writes "$PREFILL_NODE0$:5757"; the second $ is a typing error.
    "guide, SGLang 4P12D": (
        {"model": INSTRUCT, "strategy": "pd", "version": GUIDE, "tool_call_parser": True, "model_path": "$MODEL_PATH"},
        r"""MC_TE_METRIC=true SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL=10000000 SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=100000 SGLANG_DISAGGREGATION_WAITING_TIMEOUT=100000 PYTHONUNBUFFERED=1 \
python -m sglang.launch_server --model-path $MODEL_PATH \
--trust-remote-code --disaggregation-mode prefill --dist-init-addr $PREFILL_NODE0:5757 --tp-size 32 --dp-size 32 --enable-dp-attention --host $LOCAL_IP --decode-log-interval 1 --disable-radix-cache --enable-deepep-moe --moe-dense-tp-size 1 --enable-dp-lm-head --disable-shared-experts-fusion --watchdog-timeout 1000000 --enable-two-batch-overlap --disaggregation-ib-device $IB_DEVICE --chunked-prefill-size 131072 --mem-fraction-static 0.85 --deepep-mode normal --ep-dispatch-algorithm dynamic --eplb-algorithm deepseek --max-running-requests 1024 --nnodes 4 --node-rank $RANK --tool-call-parser kimi_k2

SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=480 MC_TE_METRIC=true SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL=10000000 SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=100000 SGLANG_DISAGGREGATION_WAITING_TIMEOUT=100000 PYTHONUNBUFFERED=1 \
python -m sglang.launch_server --model-path $MODEL_PATH --trust-remote-code --disaggregation-mode decode --dist-init-addr $DECODE_NODE0:5757 --tp-size 96 --dp-size 96 --enable-dp-attention --host $LOCAL_IP --decode-log-interval 1 --context-length 2176 --disable-radix-cache --enable-deepep-moe --moe-dense-tp-size 1 --enable-dp-lm-head --disable-shared-experts-fusion --watchdog-timeout 1000000 --enable-two-batch-overlap --disaggregation-ib-device $IB_DEVICE  --deepep-mode low_latency --mem-fraction-static 0.8 --cuda-graph-bs 480 --max-running-requests 46080 --ep-num-redundant-experts 96 --nnodes 12 --node-rank $RANK --tool-call-parser kimi_k2

PYTHONUNBUFFERED=1 python3 -m sglang.srt.disaggregation.launch_lb --prefill http://${PREFILL_NODE0}:30000 --decode http://${DECODE_NODE0}:30000""",  # noqa: E501
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_generated_command_equals_the_published_one(case: str, shelf: Library) -> None:
    asked, published = CASES[case]
    made = plan(RecipeRequest(**{"hardware": "h200", **asked}), shelf)
    assert read(commands(made)) == read(published)


def test_generated_tensorrt_llm_command_equals_the_guide(shelf: Library) -> None:
    """The generated commands for TensorRT-LLM equal those of the guide, apart from its placeholders for hosts and
    directories. The option padding_enabled was renamed to enable_padding in version 1.0.
    """
    asked = RecipeRequest(
        hardware="h200", model=INSTRUCT, engine="tensorrt-llm", strategy="tp+dp+ep", tp=16, model_path="$MODEL_DIR"
    )
    text = commands(plan(asked, shelf)).partition("\n\n# Node 1")[0]
    config, _, launch = text.removeprefix("# Node 0\ncat >extra-llm-api-config.yml <<EOF\n").partition("\nEOF\n")
    assert yaml.safe_load(config) == {
        "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 2, 4, 8, 16, 32, 64, 128]},
        "print_iter_log": True,
        "enable_attention_dp": True,
    }
    assert shlex.split(launch.replace("\\\n", " ")) == shlex.split(
        "mpirun -np 16 -H $HOST1:8,$HOST2:8 -mca plm_rsh_args '-p 2233' --allow-run-as-root trtllm-llmapi-launch "
        "trtllm-serve serve --backend pytorch --tp_size 16 --ep_size 8 --kv_cache_free_gpu_memory_fraction 0.95 "
        "--trust_remote_code --max_batch_size 128 --max_num_tokens 4096 "
        "--extra_llm_api_options extra-llm-api-config.yml --port 8000 $MODEL_DIR"
    )

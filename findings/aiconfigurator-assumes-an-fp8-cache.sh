#!/usr/bin/env bash
# For FP8 weights, AIConfigurator assumes an FP8 KV cache, and then it predicts decode that is up to 4.5 times slower.
#
# Software: aiconfigurator 0.12.0 with its data of SGLang 0.5.14 on H200, Python 3.11.
#
# The script estimates the time per output token of DeepSeek-V3 on 8 H200 with SGLang (TP 8, 64 requests), for two lengths
# of the prompt: without a type of the KV cache, with `--kvcache-quant-mode fp8`, and with `--kvcache-quant-mode bfloat16`.
#
# Expected: without the option, the type that the engine uses without its option. SGLang keeps the cache of this model in
# BF16 unless `--kv-cache-dtype` is set. And a cache of half the bytes makes decode of long contexts faster, not slower.
# Seen: without the option, the answer equals that for FP8, which is the slower one by far. The result does not state the
# type; only a log line of level INFO does. Output:
#
#   prompt of  2048 tokens: default 42.638 ms, fp8 42.638 ms, bfloat16 28.671 ms
#   prompt of 32768 tokens: default 270.875 ms, fp8 270.875 ms, bfloat16 59.630 ms
#
# A published run of this engine (version 0.5.9, DeepSeek R1, which has the same architecture; 922 tokens in, 7,373 out, 8
# requests) took 12.2 ms per token: `--estimate-mode agg` predicts 16.6 ms without the option, and 12.3 ms with bfloat16.
# On B200, the estimate with FP8 is the faster one.
#
# What helps: always set `--kvcache-quant-mode` to what the engine is started with, and compare both types.
# Exit code 0: as described. 1: the behavior is another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check aiconfigurator==0.12.0
cd "$folder"

tpot() { # tpot TOKENS [OPTION...]: the estimated milliseconds per output token
  local tokens=$1
  shift
  PYTHONWARNINGS=ignore venv/bin/aiconfigurator cli estimate --model-path deepseek-ai/DeepSeek-V3 --system h200_sxm --backend sglang \
    --perf-db-version 0.5.14 --estimate-mode static_gen --isl "$tokens" --osl 64 --batch-size 64 --tp-size 8 --moe-tp-size 8 \
    --no-color --log-level ERROR "$@" 2>/dev/null | awk '/TPOT:/ {print $2}'
}

for tokens in 2048 32768; do
  default=$(tpot "$tokens")
  fp8=$(tpot "$tokens" --kvcache-quant-mode fp8)
  bf16=$(tpot "$tokens" --kvcache-quant-mode bfloat16)
  printf 'prompt of %5d tokens: default %s ms, fp8 %s ms, bfloat16 %s ms\n' "$tokens" "$default" "$fp8" "$bf16"
  python3 -c "import sys; default, fp8, bf16 = map(float, sys.argv[1:]); sys.exit(not default == fp8 > 1.3 * bf16)" "$default" "$fp8" "$bf16"
done
python3 -c "import sys; fp8, bf16 = map(float, sys.argv[1:]); sys.exit(not fp8 > 4 * bf16)" "$fp8" "$bf16"

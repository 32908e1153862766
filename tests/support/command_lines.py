"""Arguments of SGLang 0.5.23, and whether its parser accepts them. `make e2e` runs the parser in SGLang's image."""

from ome_operator.engines.flags import command_line, usage_error

LINES = (
    ["--tp-size=8"],
    ["--tp", "8"],
    ["--tensor-parallel-size", "8"],
    ["--tp-size", "8", "9"],
    ["--tp-size=eight"],
    ["--tp-size=8.0"],
    ["--tp-size"],
    ["--enable-deepep-moe"],
    ["--cuda-graph-bs", "8"],
    ["--cuda-graph-bs-decode", "8", "16"],
    ["--enable-dp-attention"],
    ["--enable-metrics=1"],
    ["--mem-fraction-static=.85"],
    ["--mem-fraction-static=85%"],
    ["--mem-fraction-statik=0.9"],
    ["--deepep-mode=fast"],
    ["--moe-a2a-backend", "deepep"],
    ["--kv-cache-dtype=fp8"],
    ["--no-enable-tf32-matmul"],
    ["--lora-paths"],
    ["--context-length=abc"],
    ["--context-length=128k"],
    ["--context-length=128K"],
    ["--context-length=1.5Ki"],
    ["--context-length=1.5k"],
    ["--context-length", "128_000"],
    ["--mem-fraction-static=1E-1"],
    ["--mm-process-config={}"],
    ["--mm-process-config=none"],
    ["--forward-hooks=[]"],
    ["--forward-hooks=[}"],
    ["--max-runing-requests=16"],
    ["--context-length 8192"],
)


def taken(words: list[str]) -> bool:
    """Return whether, according to the operator's data about SGLang, a flag accepts the words that follow it."""
    flag, equals, value = words[0].partition("=")
    known_flag = command_line("sglang-0.5.23").find_flag(flag)
    return known_flag is not None and not usage_error(known_flag, [value, *words[1:]] if equals else words[1:])

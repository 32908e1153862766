"""Rules about arguments of SGLang that must be compatible with the model."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from ome_operator.lint import locations
from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import number
from ome_operator.lint.subject import Role, Subject, items
from ome_operator.util import package_data

_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_OTHERS = {
    "fp8": frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "bitsandbytes", "gguf", "w8a8_int8"}),
    "awq": frozenset({"fp8", "gptq", "gptq_marlin", "bitsandbytes", "gguf", "w8a8_int8", "w8a8_fp8"}),
    "gptq": frozenset({"fp8", "awq", "awq_marlin", "bitsandbytes", "gguf", "w8a8_int8", "w8a8_fp8"}),
}
"""Maps a quantization method of the weights to the values of --quantization that are certainly incompatible with it."""
_TOKENIZERS_OF_CODE = frozenset({"baichuan", "chatglm", "internlm2", "kimi_k2", "kimi_vl", "orion", "qwen"})
"""Values of `model_type` of models whose published tokenizer is Python code that is shipped with the weights, and for which
transformers has no tokenizer of its own."""
_OWN_DRAFT = frozenset({"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Glm4MoeForCausalLM"})
"""Architectures of models whose weights contain a draft model."""


@rule(
    "model-missing",
    Severity.ERROR,
    "The argument --model-path is missing",
    ignored="The engine exits at once with code 2: `the following arguments are required: --model-path`.",
    evidence="The parser of SGLang; the arguments of a service replace those of its runtime (docs/architecture.md, Merge).",
)
def model_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        named = start.last_argument("--model-path") is not None or start.last_argument("--config") is not None
        behind = any(not word.startswith("-") for word in start.words[:1])
        if start.read_as is not None and not named and not behind:
            remedy = "add --model-path=$(MODEL_PATH), and the other arguments of the runtime that you need"
            yield RuleHit(locations.arguments(role), "--model-path is not given", remedy)


@rule(
    "model-elsewhere",
    Severity.WARNING,
    "No volume is mounted at the model's path",
    ignored="Unless the image contains the files, the engine takes the path for a repository of the hub, and exits.",
    evidence="Pods get their model at `storage.path`, which is $(MODEL_PATH) (docs/architecture.md).",
)
def model_elsewhere(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        for flag in ("--model-path", "--speculative-draft-model-path"):
            path = start.text(flag)
            if path.startswith("/") and "$" not in path and not _mounted(role, path):
                remedy = "write $(MODEL_PATH), or mount a volume at this path"
                yield RuleHit(locate_flag(role, start, flag), f"{flag} is {path}, but no volume is mounted there", remedy)


def _mounted(role: Role, path: str) -> bool:
    wanted = PurePosixPath(path)
    mounts = [PurePosixPath(str(mount.get("mountPath", ""))) for mount in items(role.container, "volumeMounts")]
    return any(mount == wanted or mount in wanted.parents for mount in mounts)


@rule(
    "context-beyond",
    Severity.ERROR,
    "The context length is larger than the model supports",
    ignored="The engine exits with `greater than the derived context_length` after it has read config.json.",
    evidence=f"SGLang 0.5.23, configs/model_config.py, _derive_context_length: a ValueError, unless {_LONGER}=1 is set.",
)
def context_beyond(subject: Subject) -> Iterator[RuleHit]:
    whole = subject.model.facts.context_length if subject.model is not None else None
    for role, start, _ in engines(subject):
        asked = number(start.text("--context-length"))
        changed = start.may_be_on(_LONGER) or start.last_argument("--json-model-override-args") is not None
        if whole and asked and asked > whole and not changed:
            message = f"--context-length is {asked}, but the model supports {whole}"
            yield RuleHit(
                locate_flag(role, start, "--context-length"),
                message,
                f"write a value of at most {whole}, or set {_LONGER}=1",
            )


@rule(
    "quantization-differs",
    Severity.ERROR,
    "The argument --quantization does not match the weights",
    ignored="The engine exits with `does not match the quantization method specified`.",
    evidence="SGLang 0.5.23, configs/model_config.py, _verify_quantization.",
)
def quantization_differs(subject: Subject) -> Iterator[RuleHit]:
    kind = subject.model.facts.quantization if subject.model is not None else None
    for role, start, _ in engines(subject):
        method = start.text("--quantization")
        if kind is not None and method in _OTHERS.get(kind.name, ()):
            message = f"--quantization is {method}, but the weights are quantized with {kind.name}"
            yield RuleHit(
                locate_flag(role, start, "--quantization"),
                message,
                "remove --quantization, because the engine reads the quantization from config.json",
            )


@rule(
    "code-refused",
    Severity.WARNING,
    "The model's tokenizer or configuration is Python code, which the engine is not allowed to run",
    ignored="The engine exits with `contains custom code which must be executed` when it loads the tokenizer or the config.",
    evidence="config/runtimes/srt/kimi-k2-pd-rt.yaml; the deployment guide of Kimi K2. transformers 5.19 "
    "(auto_factory.py) runs code of the model only if transformers has no class for this type of model; "
    "tests/support/model_types.py lists the types for which transformers or SGLang has a class.",
)
def code_refused(subject: Subject) -> Iterator[RuleHit]:
    kind = subject.model.facts.model_type if subject.model is not None else None
    named = subject.model is not None and subject.model.names_code
    for role, start in subject.launched("sglang", "vllm"):
        own = start.engine == "sglang" and named and kind is not None and kind not in _types()
        refused = kind in _TOKENIZERS_OF_CODE and not start.is_on("--skip-tokenizer-init")
        if (own or refused) and not start.is_on("--trust-remote-code"):
            part = (
                f"config.json names Python code for the model type {kind}"
                if own
                else (f"the tokenizer of {kind} is Python code")
            )
            message = f"--trust-remote-code is not given, but {part}, which is stored with the weights"
            yield RuleHit(locations.arguments(role), message, "review this code, then add --trust-remote-code")


@cache
def _types() -> frozenset[str]:
    """Return the values of `model_type` for which SGLang or transformers has a configuration class."""
    found = json.loads(package_data.text("ome_operator.lint", "model_types.json"))
    return frozenset(found["modelTypes"])


@rule(
    "draft-missing",
    Severity.WARNING,
    "Speculative decoding is enabled without a draft model",
    ignored="The engine uses the model itself as its draft model, and exits while it loads the draft model.",
    evidence="SGLang 0.5.23, arg_groups/speculative_hook.py: only some architectures include a draft model.",
)
def draft_missing(subject: Subject) -> Iterator[RuleHit]:
    kind = subject.model.facts.architecture if subject.model is not None else None
    for role, start, _ in engines(subject):
        drafts = start.text("--speculative-algorithm")
        own = kind is None or kind in _OWN_DRAFT
        if drafts in ("EAGLE3", "STANDALONE") and not start.text("--speculative-draft-model-path") and not own:
            message = f"--speculative-algorithm is {drafts}, but --speculative-draft-model-path is not given"
            yield RuleHit(
                locate_flag(role, start, "--speculative-algorithm"),
                message,
                "add --speculative-draft-model-path with the path of a draft model",
            )


RULES: tuple[Rule, ...] = (
    model_missing,
    model_elsewhere,
    context_beyond,
    quantization_differs,
    code_refused,
    draft_missing,
)

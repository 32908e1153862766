"""Rules about arguments and the model that they are for. All of SGLang."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from ome_operator.lint import places
from ome_operator.lint.division import engines, of
from ome_operator.lint.finding import Hit, Rule, Severity, rule
from ome_operator.lint.launch import number
from ome_operator.lint.subject import Role, Subject, items

_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_OTHERS = {
    "fp8": frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "bitsandbytes", "gguf", "w8a8_int8"}),
    "awq": frozenset({"fp8", "gptq", "gptq_marlin", "bitsandbytes", "gguf", "w8a8_int8", "w8a8_fp8"}),
    "gptq": frozenset({"fp8", "awq", "awq_marlin", "bitsandbytes", "gguf", "w8a8_int8", "w8a8_fp8"}),
}
"""How weights are quantized -> what certainly is another way."""
_CODE = frozenset({"kimi_k2"})
"""`model_type`s whose tokenizer is Python code beside the weights."""
_OWN_DRAFT = frozenset({"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Glm4MoeForCausalLM"})
"""Architectures whose weights have a draft."""


@rule(
    "model-missing",
    Severity.ERROR,
    "The engine is not told which model to serve",
    ignored="The engine ends at once with code 2: `the following arguments are required: --model-path`.",
    evidence="The parser of SGLang; arguments of a service replace those of its runtime (docs/architecture.md, Merge).",
)
def model_missing(subject: Subject) -> Iterator[Hit]:
    for role, start, _ in engines(subject):
        named = start.given("--model-path") is not None or start.given("--config") is not None
        behind = any(not word.startswith("-") for word in start.words[:1])
        if start.read_as is not None and not named and not behind:
            remedy = "add --model-path=$(MODEL_PATH), and what else of the runtime's arguments is wanted"
            yield Hit(places.arguments(role), "--model-path is not given", remedy)


@rule(
    "model-elsewhere",
    Severity.WARNING,
    "A model's path is where nothing is mounted",
    ignored="Unless the image has the files, the engine takes the path for a repository of the hub, and ends.",
    evidence="Pods get their model at `storage.path`, which is $(MODEL_PATH) (docs/architecture.md).",
)
def model_elsewhere(subject: Subject) -> Iterator[Hit]:
    for role, start, _ in engines(subject):
        for flag in ("--model-path", "--speculative-draft-model-path"):
            path = start.text(flag)
            if path.startswith("/") and "$" not in path and not _mounted(role, path):
                remedy = "write $(MODEL_PATH), or mount a volume there"
                yield Hit(of(role, start, flag), f"{flag} is {path}, and nothing is mounted there", remedy)


def _mounted(role: Role, path: str) -> bool:
    wanted = PurePosixPath(path)
    mounts = [PurePosixPath(str(mount.get("mountPath", ""))) for mount in items(role.container, "volumeMounts")]
    return any(mount == wanted or mount in wanted.parents for mount in mounts)


@rule(
    "context-beyond",
    Severity.WARNING,
    "The longest request is longer than the model's context",
    ignored="The engine ends with `greater than the derived context_length` when it has read config.json.",
    evidence=f"SGLang 0.5.23, configs/model_config.py, _derive_context_length; {_LONGER}=1 allows it.",
)
def context_beyond(subject: Subject) -> Iterator[Hit]:
    whole = subject.model.facts.context_length if subject.model is not None else None
    for role, start, _ in engines(subject):
        asked = number(start.text("--context-length"))
        changed = _LONGER in start.names or start.given("--json-model-override-args") is not None
        if whole and asked and asked > whole and not changed:
            said = f"--context-length is {asked}, and the model takes {whole}"
            yield Hit(of(role, start, "--context-length"), said, f"write at most {whole}, or set {_LONGER}=1")


@rule(
    "quantization-differs",
    Severity.ERROR,
    "Weights are quantized in another way than the engine is told",
    ignored="The engine ends with `does not match the quantization method specified`.",
    evidence="SGLang 0.5.23, configs/model_config.py, _verify_quantization.",
)
def quantization_differs(subject: Subject) -> Iterator[Hit]:
    kind = subject.model.facts.quantization if subject.model is not None else None
    for role, start, _ in engines(subject):
        told = start.text("--quantization")
        if kind is not None and told in _OTHERS.get(kind.name, ()):
            said = f"--quantization is {told}, and the weights are {kind.name}"
            yield Hit(of(role, start, "--quantization"), said, "take it out: the engine reads it from config.json")


@rule(
    "code-refused",
    Severity.WARNING,
    "The model's tokenizer is Python code, which the engine may not run",
    ignored="The engine ends with `contains custom code which must be executed` when it loads the tokenizer.",
    evidence="config/runtimes/srt/kimi-k2-pd-rt.yaml; the deployment guide of Kimi K2.",
)
def code_refused(subject: Subject) -> Iterator[Hit]:
    kind = subject.model.facts.model_type if subject.model is not None else None
    for role, start, _ in engines(subject):
        if kind in _CODE and not start.on("--trust-remote-code") and not start.on("--skip-tokenizer-init"):
            yield Hit(places.arguments(role), "--trust-remote-code is not given", "add --trust-remote-code")


@rule(
    "draft-missing",
    Severity.WARNING,
    "Tokens are to be drafted, and no model is named that drafts them",
    ignored="The engine takes the model itself for its draft, and ends while it loads it.",
    evidence="SGLang 0.5.23, arg_groups/speculative_hook.py: only some architectures bring their draft along.",
)
def draft_missing(subject: Subject) -> Iterator[Hit]:
    kind = subject.model.facts.architecture if subject.model is not None else None
    for role, start, _ in engines(subject):
        drafts = start.text("--speculative-algorithm")
        own = kind is None or kind in _OWN_DRAFT
        if drafts in ("EAGLE3", "STANDALONE") and not start.text("--speculative-draft-model-path") and not own:
            said = f"--speculative-algorithm is {drafts}, and --speculative-draft-model-path is not given"
            yield Hit(of(role, start, "--speculative-algorithm"), said, "add --speculative-draft-model-path")


RULES: tuple[Rule, ...] = (
    model_missing,
    model_elsewhere,
    context_beyond,
    quantization_differs,
    code_refused,
    draft_missing,
)

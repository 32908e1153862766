"""Extract the facts of a model from the contents of its small files and the headers of its large files.

An agent reads these files on its node (`FILES`, and the header of every safetensors file if there are few) and calls
`facts`. The result is stored in the agent's record and from there in the model's status.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ome_operator.api.learned import Facts, Named
from ome_operator.modelinfo import architecture, gguf
from ome_operator.modelinfo.json_fields import Config, parse, string, text_part, whole_number
from ome_operator.modelinfo.quantization import quantization
from ome_operator.modelinfo.safetensors import index_sizes, tensors

CONFIG, PIPELINE = "config.json", "model_index.json"
INDEX, MODELOPT = "model.safetensors.index.json", "hf_quant_config.json"
FILES = (CONFIG, PIPELINE, INDEX, MODELOPT)
"""Small files in the model's directory that `facts` parses."""
_CACHE_BYTES = {"bfloat16": 2, "fp8": 1}
FILE_LIMIT = 64 << 20
"""Maximum bytes of each of `FILES`; callers should not read larger files."""


def facts(
    files: Mapping[str, str | bytes],
    headers: Mapping[str, str | bytes] | None = None,
    ggufs: Collection[str] = (),
) -> Facts:
    """Return the facts of a model.

    `files` maps the names of the existing `FILES` to their contents. `headers` maps the name of each safetensors file to its
    JSON header; pass the headers of all files or of none. `ggufs` are the names of GGUF files if there are no safetensors
    files; the small files next to them are those of the original model, with another format and quantization.

    Never raises: a file that cannot be parsed is reported in `unknown`.
    """
    unknown: list[str] = []
    if ggufs:
        files = {name: text for name, text in files.items() if name not in (INDEX, MODELOPT)}
    small_files = {name: _read(name, files[name], unknown) for name in FILES if name in files}
    parsed = {name: _read(name, text, unknown) for name, text in (headers or {}).items()}
    config = small_files.get(CONFIG)
    found: dict[str, Any] = {}
    if small_files.get(PIPELINE):
        found |= _pipeline(small_files[PIPELINE] or {})
    if config is not None:
        found |= _config(config, small_files.get(MODELOPT), unknown)
    elif CONFIG not in files and PIPELINE not in files:
        unknown.append(f"architecture: {CONFIG} does not exist")
    complete_headers = [header for header in parsed.values() if header is not None]
    found |= _sizes(found, small_files.get(INDEX), complete_headers if len(complete_headers) == len(parsed) else [], unknown)
    if headers or INDEX in files:
        found["format"] = Named(name="safetensors", version="1.0.0")
    elif ggufs:
        found |= {"format": Named(name=gguf.METHOD), "quantization": gguf.quantization(ggufs)}
        if found["quantization"] is None:
            unknown.append("quantization: the names of the GGUF files contain different quantizations, or none")
    if found.get("parameters"):
        found["parameter_size"] = architecture.format_parameters(found["parameters"])
    elif not found.get("pipeline"):
        unknown.append("parameters: the architecture is not known, and no file header contains the number")
    if unknown:
        found["unknown"] = list(dict.fromkeys(unknown))
    return Facts(**{key: value for key, value in found.items() if value is not None})


def _read(name: str, text: str | bytes, unknown: list[str]) -> Config | None:
    parsed = parse(text)
    if parsed is None:
        unknown.append(f"{name} cannot be read: it is not a JSON object")
    return parsed


def _config(config: Config, modelopt: Config | None, unknown: list[str]) -> dict[str, Any]:
    text = text_part(config)
    architectures = config.get("architectures") or text.get("architectures")
    attention, mixture = architecture.attention(text), architecture.experts(text)
    count = architecture.count_parameters(text, attention, mixture, _tied(config, text))
    numbers = architecture.cache_numbers_per_token(text, attention)
    quantized = quantization(config, modelopt)
    version = string(config, "transformers_version")
    fields = {
        "architecture": architectures[0]
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
        else None,
        "model_type": string(config, "model_type"),
        "framework": Named(name="transformers", **({"version": version} if version else {})),
        "parameters": count.total if count else None,
        "active_parameters": count.active if count else None,
        "layers": whole_number(text, "num_hidden_layers", "n_layers", "n_layer"),
        "draft_layers": whole_number(text, "num_nextn_predict_layers", "num_mtp_modules"),
        "hidden_size": whole_number(text, "hidden_size", "d_model", "n_embd"),
        "vocabulary": whole_number(text, "vocab_size"),
        "context_length": architecture.context(config, text),
        "experts": mixture,
        "attention": attention,
        "quantization": quantized,
        "dtype": string(text, "torch_dtype", "dtype") or string(config, "torch_dtype", "dtype"),
        "kv_bytes_per_token": {kind: numbers * size for kind, size in _CACHE_BYTES.items()} if numbers else None,
    }
    for name, field in (
        ("architecture", "architectures"),
        ("layers", "num_hidden_layers"),
        ("attention", "attention heads"),
    ):
        if fields[name] is None:
            unknown.append(f"{name}: {CONFIG} does not contain {field}")
    if fields["context_length"] is None:
        unknown.append(f"contextLength: {CONFIG} does not contain it")
    if quantized is None:
        unknown.append(f"quantization: {CONFIG} has an unknown quantization")
    if numbers is None and attention is not None:
        unknown.append(f"kvBytesPerToken: the cache of model type {string(text, 'model_type') or '(none)'} is not known")
    return fields


def _tied(config: Config, text: Config) -> bool:
    """Return whether the embedding is also the output matrix. The configs of families in which it never is do not contain
    the field.
    """
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return bool(tied)


def _pipeline(index: Config) -> dict[str, Any]:
    version = string(index, "_diffusers_version")
    framework = Named(name="diffusers", **({"version": version} if version else {}))
    return {"pipeline": string(index, "_class_name"), "framework": framework}


def _sizes(
    facts_so_far: Mapping[str, Any], index: Config | None, headers: list[Config], unknown: list[str]
) -> dict[str, Any]:
    """Return the bytes of the tensors, and the parameters if `facts_so_far` does not contain them."""
    fields: dict[str, Any] = {}
    size, parameters = index_sizes(index or {})
    if headers:
        quantized = facts_so_far.get("quantization")
        totals = tensors(headers, quantized.bits if quantized else None)
        if totals is None:
            unknown.append("tensorBytes: a safetensors header cannot be parsed")
        else:
            size, parameters = sum(totals.bytes.values()), totals.parameters
            fields["tensor_bytes"] = totals.bytes
    if size:
        fields["weight_bytes"] = size
    if parameters and not facts_so_far.get("parameters"):
        fields["parameters"] = parameters
    return fields

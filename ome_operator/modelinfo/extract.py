"""Extract the facts of a model from the contents of its small files and the headers of its large files.

An agent reads these files on its node (`FILES`, and the header of every safetensors file if there are few) and calls
`facts`. The result is stored in the agent's record and from there in the model's status.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from ome_operator.api.learned import Facts, Named, Quantization
from ome_operator.modelinfo import architecture, gguf
from ome_operator.modelinfo.experts import experts, layer_count, unknown_experts
from ome_operator.modelinfo.json_fields import LARGEST, Config, shorten, string, text_part, whole_number
from ome_operator.modelinfo.quantization import has_fp4_experts, quantization
from ome_operator.modelinfo.request_cache import request_cache
from ome_operator.modelinfo.safetensors import Tensors, combine_headers, index_sizes, tensors
from ome_operator.modelinfo.uncounted import uncounted
from ome_operator.util.json_limits import MIB, TooLarge, parse_untrusted

CONFIG, PIPELINE = "config.json", "model_index.json"
INDEX, MODELOPT = "model.safetensors.index.json", "hf_quant_config.json"
FILES = (CONFIG, PIPELINE, INDEX, MODELOPT)
"""Small files in the model's directory that `facts` parses."""
_CACHE_BYTES = {"bfloat16": 2, "fp8": 1}
T = TypeVar("T")
MEMORY: Mapping[str, int] = {CONFIG: 64 * MIB, PIPELINE: 64 * MIB, MODELOPT: 64 * MIB, INDEX: 160 * MIB}
"""Maps each file to the maximum number of bytes of memory that parsing it may take, as computed by
`json_limits.estimate_memory`. The largest published indexes have some 208,000 entries (a trillion parameters in 4 bits)."""
HEADER_MEMORY = 160 * MIB
"""Maximum number of bytes of memory that parsing the header of one safetensors file may take."""


def facts(
    files: Mapping[str, str | bytes],
    headers: Mapping[str, str | bytes] | None = None,
    ggufs: Collection[str] = (),
) -> Facts:
    """Return the facts of a model.

    `files` maps the names of the existing `FILES` to their contents. `headers` maps the name of each safetensors file to
    its JSON header; pass the headers of all files or of none. `ggufs` are the names of GGUF files if there are no
    safetensors files; the small files next to them come from the original model, with another format and quantization.

    Each content is requested once, parsed, and dropped before the next content is requested. A mapping may therefore read a
    file when its content is requested. Raises only what these mappings raise: a file that cannot be parsed, for which a
    mapping may raise TooLarge, is reported in `unknown`.
    """
    unknown: list[str] = []
    names = [name for name in FILES if name in files and not (ggufs and name in (INDEX, MODELOPT))]
    found: dict[str, Any] = {}
    if PIPELINE in names:
        found |= _read(files, PIPELINE, MEMORY[PIPELINE], unknown, _pipeline) or {}
    if CONFIG in names:
        found |= _configs(files, MODELOPT in names, unknown)
    elif PIPELINE not in names:
        unknown.append(f"architecture: {CONFIG} does not exist")
    found |= _sizes(found, files if INDEX in names else {}, headers or {}, unknown)
    if headers or INDEX in names:
        found["format"] = Named(name="safetensors", version="1.0.0")
    elif ggufs:
        found |= {"format": Named(name=gguf.METHOD), "quantization": gguf.quantization(ggufs)}
        if found["quantization"] is None:
            unknown.append("quantization: the names of the GGUF files contain different quantizations, or none")
    _drop_large_numbers(found, unknown)
    if found.get("parameters"):
        found["parameter_size"] = architecture.format_parameters(found["parameters"])
    elif not found.get("pipeline"):
        why = found.pop("uncounted", "the architecture is not known")
        unknown.append(f"parameters: {why}, and no file header contains the number")
    found.pop("uncounted", None)
    if unknown:
        found["unknown"] = list(dict.fromkeys(unknown))
    return Facts(**{key: value for key, value in found.items() if value is not None})


def _read(
    files: Mapping[str, str | bytes], name: str, memory: int, unknown: list[str], take: Callable[[Config], T]
) -> T | None:
    """Return the result of `take` for the JSON object in a file, or None if the file cannot be parsed. `memory` is the
    maximum number of bytes of memory that the JSON may need.
    """
    try:
        return parse_untrusted(files[name], "its JSON", memory=memory, extract=lambda value: take(_object(value)))
    except TooLarge as error:
        unknown.append(f"{shorten(name)} is too large: {error}")
    except ValueError:
        unknown.append(f"{shorten(name)} cannot be read: it is not a JSON object")
    return None


def _object(value: Any) -> Config:
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _configs(files: Mapping[str, str | bytes], has_modelopt: bool, unknown: list[str]) -> dict[str, Any]:
    """Return the facts in config.json, and in NVIDIA's file with the quantization if it exists. `has_modelopt` states
    whether NVIDIA's file exists. Reasons why a fact is not known are appended to `unknown`.
    """
    modelopt = _read(files, MODELOPT, MEMORY[MODELOPT], unknown, lambda value: value) if has_modelopt else None
    return _read(files, CONFIG, MEMORY[CONFIG], unknown, lambda config: _config(config, modelopt, unknown)) or {}


def _drop_large_numbers(found: dict[str, Any], unknown: list[str]) -> None:
    """Remove the calculated numbers that the API server could not store. Numbers that files state are never so large."""
    for name, shown in (
        ("parameters", "parameters"), ("active_parameters", "activeParameters"), ("kv_bytes_per_token", "kvBytesPerToken"),
        ("bytes_per_request", "bytesPerRequest"),
    ):  # fmt: skip
        value = found.get(name)
        if any(abs(number) > LARGEST for number in (value.values() if isinstance(value, dict) else (value or 0,))):
            found[name] = None
            unknown.append(f"{shown}: the sizes in {CONFIG} result in a number above 2^63")


def _config(config: Config, modelopt: Config | None, unknown: list[str]) -> dict[str, Any]:
    text = text_part(config)
    architectures = config.get("architectures") or text.get("architectures")
    attention, mixture = architecture.attention_shape(text), experts(text)
    count = architecture.count_parameters(text, attention, mixture, architecture.has_tied_embedding(config))
    kept = request_cache(text, attention)
    quantized = quantization(config, modelopt)
    version = string(config, "transformers_version")
    fields = {
        "architecture": shorten(architectures[0])
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
        else None,
        "model_type": string(config, "model_type"),
        "framework": Named(name="transformers", **({"version": version} if version else {})),
        "parameters": count.total if count else None,
        "uncounted": uncounted(config) if count is None else None,
        "active_parameters": count.active if count else None,
        "layers": layer_count(text),
        "draft_layers": whole_number(text, "num_nextn_predict_layers", "num_mtp_modules"),
        "hidden_size": whole_number(text, "hidden_size", "d_model", "n_embd"),
        "vocabulary": whole_number(text, "vocab_size"),
        "context_length": architecture.context(config, text),
        "experts": mixture,
        "attention": attention,
        "quantization": quantized,
        "dtype": string(text, "torch_dtype", "dtype") or string(config, "torch_dtype", "dtype"),
        "kv_bytes_per_token": {kind: kept.token_bytes(size) for kind, size in _CACHE_BYTES.items()} if kept else None,
        "bytes_per_request": (kept.request_bytes(_CACHE_BYTES["bfloat16"]) or None) if kept else None,
    }
    for name, field in (
        ("architecture", "architectures"),
        ("layers", "num_hidden_layers"),
        ("attention", "the numbers of attention heads and key-value heads"),
    ):
        if fields[name] is None:
            unknown.append(f"{name}: {CONFIG} does not contain {field}")
    if why := unknown_experts(text):
        unknown.append(f"experts: {why}")
    if fields["context_length"] is None:
        unknown.append(f"contextLength: {CONFIG} does not contain it")
    if quantized is None:
        unknown.append(f"quantization: {CONFIG} has an unknown quantization")
    if kept is None and attention is not None:
        unknown.append(f"kvBytesPerToken: the cache of model type {string(text, 'model_type') or '(none)'} is not known")
    return fields


def _pipeline(index: Config) -> dict[str, Any]:
    version = string(index, "_diffusers_version")
    framework = Named(name="diffusers", **({"version": version} if version else {}))
    return {"pipeline": string(index, "_class_name"), "framework": framework}


def _sizes(
    facts_so_far: Mapping[str, Any],
    files: Mapping[str, str | bytes],
    headers: Mapping[str, str | bytes],
    unknown: list[str],
) -> dict[str, Any]:
    """Return the bytes of the tensors, and the parameters if `facts_so_far` does not contain them. `files` maps the index
    file, and `headers` the safetensors files, to their contents. Reasons why a fact is unknown are appended to `unknown`.
    """
    fields: dict[str, Any] = {}
    size, parameters = (_read(files, INDEX, MEMORY[INDEX], unknown, index_sizes) if files else None) or (None, None)
    if headers:
        quantized, problems = facts_so_far.get("quantization"), len(unknown)
        totals = combine_headers(_totals(headers, quantized, unknown))
        if totals is not None:
            size, parameters = sum(totals.bytes.values()), totals.parameters
            fields["tensor_bytes"] = totals.bytes
        elif len(unknown) == problems:
            unknown.append("tensorBytes: a safetensors header cannot be parsed")
    if size:
        fields["weight_bytes"] = size
    if parameters and not facts_so_far.get("parameters"):
        fields["parameters"] = parameters
    return fields


def _totals(
    headers: Mapping[str, str | bytes], quantized: Quantization | None, unknown: list[str]
) -> Iterator[Tensors | None]:
    """Yield the totals of each header, and None for a header that cannot be parsed."""
    bits = quantized.bits if quantized else None
    packed = quantized is not None and has_fp4_experts(quantized)
    for name in headers:
        yield _read(headers, name, HEADER_MEMORY, unknown, lambda header: tensors(header, bits, packed_experts=packed))

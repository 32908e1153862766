"""The facts of a model from the texts of its small files and the headers of its large ones.

An agent reads them on its node (`FILES`, and the header of every safetensors file where there are few) and calls `facts`;
what comes back goes into its record and from there into the model's status.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ome_operator.api.learned import Facts, Named
from ome_operator.modelinfo import architecture, gguf
from ome_operator.modelinfo.json_fields import Config, parse, text_part, whole, word
from ome_operator.modelinfo.quantization import quantization
from ome_operator.modelinfo.safetensors import index_sizes, tensors

CONFIG, PIPELINE = "config.json", "model_index.json"
INDEX, MODELOPT = "model.safetensors.index.json", "hf_quant_config.json"
FILES = (CONFIG, PIPELINE, INDEX, MODELOPT)
"""Small files, in the model's directory, that `facts` understands."""
_CACHE_BYTES = {"bfloat16": 2, "fp8": 1}
FILE_LIMIT = 64 << 20
"""Bytes above which nobody should read one of `FILES`."""


def facts(
    files: Mapping[str, str | bytes],
    headers: Mapping[str, str | bytes] | None = None,
    ggufs: Collection[str] = (),
) -> Facts:
    """The facts of a model.

    `files`: name -> text of those of `FILES` that exist. `headers`: name of a safetensors file -> its JSON header; give
    those of all files or none. `ggufs`: names of GGUF files where there are no safetensors; the small files beside them are
    those of the original, whose format and quantization they do not have.

    Never raises: what cannot be read is said in `unknown`.
    """
    unknown: list[str] = []
    if ggufs:
        files = {name: text for name, text in files.items() if name not in (INDEX, MODELOPT)}
    read = {name: _read(name, files[name], unknown) for name in FILES if name in files}
    parsed = {name: _read(name, text, unknown) for name, text in (headers or {}).items()}
    config = read.get(CONFIG)
    said: dict[str, Any] = {}
    if read.get(PIPELINE):
        said |= _pipeline(read[PIPELINE] or {})
    if config is not None:
        said |= _config(config, read.get(MODELOPT), unknown)
    elif CONFIG not in files and PIPELINE not in files:
        unknown.append(f"architecture: there is no {CONFIG}")
    whole_set = [one for one in parsed.values() if one is not None]
    said |= _sizes(said, read.get(INDEX), whole_set if len(whole_set) == len(parsed) else [], unknown)
    if headers or INDEX in files:
        said["format"] = Named(name="safetensors", version="1.0.0")
    elif ggufs:
        said |= {"format": Named(name=gguf.METHOD), "quantization": gguf.quantization(ggufs)}
        if said["quantization"] is None:
            unknown.append("quantization: the names of the GGUF files do not agree on it")
    if said.get("parameters"):
        said["parameter_size"] = architecture.in_words(said["parameters"])
    elif not said.get("pipeline"):
        unknown.append("parameters: the architecture is not known and no header says them")
    if unknown:
        said["unknown"] = list(dict.fromkeys(unknown))
    return Facts(**{key: value for key, value in said.items() if value is not None})


def _read(name: str, text: str | bytes, unknown: list[str]) -> Config | None:
    found = parse(text)
    if found is None:
        unknown.append(f"{name} cannot be read: it is no JSON object")
    return found


def _config(config: Config, modelopt: Config | None, unknown: list[str]) -> dict[str, Any]:
    text = text_part(config)
    named = config.get("architectures") or text.get("architectures")
    seen, mixture = architecture.attention(text), architecture.experts(text)
    count = architecture.counted(text, seen, mixture, _tied(config, text))
    numbers = architecture.cache(text, seen)
    quantized = quantization(config, modelopt)
    version = word(config, "transformers_version")
    out = {
        "architecture": named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None,
        "model_type": word(config, "model_type"),
        "framework": Named(name="transformers", **({"version": version} if version else {})),
        "parameters": count.total if count else None,
        "active_parameters": count.active if count else None,
        "layers": whole(text, "num_hidden_layers", "n_layers", "n_layer"),
        "draft_layers": whole(text, "num_nextn_predict_layers", "num_mtp_modules"),
        "hidden_size": whole(text, "hidden_size", "d_model", "n_embd"),
        "vocabulary": whole(text, "vocab_size"),
        "context_length": architecture.context(config, text),
        "experts": mixture,
        "attention": seen,
        "quantization": quantized,
        "dtype": word(text, "torch_dtype", "dtype") or word(config, "torch_dtype", "dtype"),
        "kv_bytes_per_token": {kind: numbers * each for kind, each in _CACHE_BYTES.items()} if numbers else None,
    }
    for name, what in (("architecture", "architectures"), ("layers", "num_hidden_layers"), ("attention", "attention heads")):
        if out[name] is None:
            unknown.append(f"{name}: {CONFIG} names no {what}")
    if out["context_length"] is None:
        unknown.append(f"contextLength: {CONFIG} names none")
    if quantized is None:
        unknown.append(f"quantization: its words in {CONFIG} are not known")
    if numbers is None and seen is not None:
        unknown.append(f"kvBytesPerToken: the cache of model type {word(text, 'model_type') or '(none)'} is not known")
    return out


def _tied(config: Config, text: Config) -> bool:
    """Whether the embedding is the last matrix too; families that never tie do not say so."""
    said = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return bool(said)


def _pipeline(index: Config) -> dict[str, Any]:
    version = word(index, "_diffusers_version")
    framework = Named(name="diffusers", **({"version": version} if version else {}))
    return {"pipeline": word(index, "_class_name"), "framework": framework}


def _sizes(said: Mapping[str, Any], index: Config | None, headers: list[Config], unknown: list[str]) -> dict[str, Any]:
    """Bytes of the tensors, and parameters where the architecture did not tell them."""
    out: dict[str, Any] = {}
    size, parameters = index_sizes(index or {})
    if headers:
        quantized = said.get("quantization")
        found = tensors(headers, quantized.bits if quantized else None)
        if found is None:
            unknown.append("tensorBytes: a safetensors header cannot be understood")
        else:
            size, parameters = sum(found.bytes.values()), found.parameters
            out["tensor_bytes"] = found.bytes
    if size:
        out["weight_bytes"] = size
    if parameters and not said.get("parameters"):
        out["parameters"] = parameters
    return out

"""Which storage URI a user probably means who writes another address of a model, such as the address of its page."""

import re
from collections.abc import Mapping

_HUB_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?!datasets/|spaces/|docs/)(?P<repository>[\w.-]+/[\w.-]+)"
    r"(?:/(?:tree|blob|resolve)/(?P<revision>[^/?#@\s]+)(?:/[^?#\s]*)?)?/?(?:[?#]\S*)?"
)
"""The address of a repository's page, which users copy from a browser."""
_SAME: Mapping[str, str] = {
    "huggingface": "hf", "gcs": "gs", "azure": "az", "abfs": "az", "s3a": "s3", "docker": "oci", "oras": "oci",
    "file": "local",
}  # fmt: skip
"""Maps schemes that other tools use to the scheme of the same kind of source."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?:@[^@\s]+)?")


def repository_of_page(address: str) -> str:
    """Return the repository of a page of Hugging Face as `org/model` or `org/model@revision`; "" for another address."""
    found = _HUB_PAGE.fullmatch(address)
    if found is None:
        return ""
    revision = found["revision"]
    return found["repository"] + (f"@{revision}" if revision and revision != "main" else "")


def meant(uri: str) -> str:
    """Return the storage URI that a user probably means who writes `uri`, whose scheme is not one of this operator; "" if
    that is not known.
    """
    if repository := repository_of_page(uri):
        return f"hf://{repository}"
    if uri.startswith("/") and not uri.startswith("//"):
        return f"local://{uri}"
    written, divider, place = uri.partition("://")
    lower = written.lower()
    scheme = _SAME.get(lower, lower if lower in _SAME.values() else "") if divider else "hf"
    place = place if divider else uri
    if scheme == "az":  # abfs://container@account/path names the storage account, too
        place = re.sub("^([^/@]*)@[^/]*", r"\1", place)
    fine = _REPOSITORY.fullmatch(place) if scheme == "hf" else place.startswith("/") if scheme == "local" else place
    return f"{scheme}://{place}" if scheme and scheme != written and fine else ""

"""The names of the devices of each vendor, and of software that is made for these devices."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ome_operator.util.similar import most_similar


class Vendor(NamedTuple):
    """How the devices of a vendor are requested, and the words that identify software for these devices."""

    prefix: str
    """Prefix of the names of the vendor's extended resources and of its node labels."""
    image: str
    """A regular expression for a word of an image's repository or tag."""
    devices: str
    """A regular expression for the part of a resource's name behind the prefix, if the resource is a GPU."""
    backends: frozenset[str]
    """Attention backends of SGLang that run only on these devices."""


VENDORS: Mapping[str, Vendor] = {
    "NVIDIA": Vendor(
        "nvidia.com/",
        r"cuda[0-9]*|cu1[0-9]{2}|tensorrt",
        r"gpu(\..+)?|mig-.+",
        frozenset({"cutlass_mla", "fa3", "fa4", "flashinfer", "flashmla", "trtllm_mha", "trtllm_mla"}),
    ),
    "AMD": Vendor(
        "amd.com/", r"rocm[0-9]*|mi[23][0-9]{1,2}x?|gfx[0-9a-f]+", r"gpu|[sdqc]px_nps\d", frozenset({"aiter", "wave"})
    ),
    "Intel": Vendor("gpu.intel.com/", r"xpu", r"i915|xe", frozenset({"intel_xpu"})),
    "Gaudi": Vendor("habana.ai/", r"gaudi[0-9]*|hpu|habana", r"gaudi", frozenset()),
    "Ascend": Vendor("huawei.com/", r"npu|cann[0-9]*|ascend", r"(?i:ascend).*|npu", frozenset({"ascend"})),
}
"""Maps the name of a vendor, or of a line of its devices, to how software for these devices is recognized."""
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915", "habana.ai/gaudi")
"""Names of extended resources for GPUs. Other names are compared with these names to find misspelled names."""
_OTHER_DEVICES = (
    r"google\.com/tpu|aws\.amazon\.com/neuron(core|device)?|cambricon\.com/.+|metax-tech\.com/.+|mthreads\.com/.+"
)
"""A regular expression for the extended resources of accelerators of other vendors."""


def vendor_of(resource: str) -> str:
    """Return the vendor of the devices that an extended resource stands for. For GPUs of a known vendor, this is a key of
    VENDORS. For `gpu` of an unknown vendor, and for accelerators of other known vendors, the result is the name of the
    resource. For every other resource, the result is "".
    """
    for name, vendor in VENDORS.items():
        if resource.startswith(vendor.prefix):
            return name if re.fullmatch(vendor.devices, resource.removeprefix(vendor.prefix)) else ""
    return resource if resource.endswith("/gpu") or re.fullmatch(_OTHER_DEVICES, resource) else ""


def misspelt_device(resources: Iterable[str]) -> tuple[str, str] | None:
    """Return the first of these resources whose name is probably a misspelled name of a GPU, and the correct name. Return
    None if there is no such resource.
    """
    found = ((name, most_similar(name, _GPUS)) for name in resources)
    return next(((name, right) for name, right in found if right), None)


def requests_device(resources: Iterable[str]) -> bool:
    """Return whether one of these extended resources stands for a GPU, a part of a GPU, or another accelerator."""
    return any(map(vendor_of, resources))

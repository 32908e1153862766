"""Read the memory, peak rates and prices of GPUs from data/gpus.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.capacity.memory import GIB
from ome_operator.sizing.errors import PlanRefused, nearest
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class Price:
    """The price of one GPU for one hour."""

    usd: float
    date: str
    source: str
    others: str = ""
    """The range of prices of other sellers, as text; "" if unknown."""

    def __str__(self) -> str:
        also = f"; other prices {self.others}" if self.others else ""
        return f"${self.usd:.2f} ({self.date}, {self.source}{also})"


@dataclass(frozen=True)
class Gpu:
    """A GPU model. All rates are hardware peaks. The fraction of a peak that an engine reaches is a fitted constant."""

    name: str
    family: str
    memory: float
    """Memory of the GPU, in bytes."""
    bandwidth: float
    """Memory bandwidth, in bytes per second."""
    flops: Mapping[str, float]
    """Maps each precision to the number of dense operations per second."""
    link: float
    """Bandwidth of the link (such as NVLink) to GPUs of the same link domain, in bytes per second and direction."""
    domain: int
    """Number of GPUs in a link domain, the group of GPUs that are connected by links such as NVLink."""
    network: float
    """Network bandwidth of a GPU to GPUs of other link domains, in bytes per second and direction."""
    node: int
    """Number of GPUs in a node."""
    price: Price | None
    source: str
    checked: str
    """The source against which the values were checked."""

    def bandwidth_within(self, gpus: int) -> float:
        """Return the bandwidth from a GPU to the other GPUs of a group of `gpus` GPUs, in bytes per second and direction."""
        return self.link if gpus <= self.domain else self.network

    def at_least(self, other: "Gpu") -> bool:
        """Return whether this GPU is at least as good as another GPU in every number of the data sheets, and better in
        one of them.
        """
        mine, others = self._numbers(other), other._numbers(self)
        return all(a >= b for a, b in zip(mine, others, strict=True)) and mine != others

    def _numbers(self, other: "Gpu") -> tuple[float, ...]:
        names = sorted({*self.flops, *other.flops})
        rates = tuple(self.rate(name) for name in names)
        return self.memory, self.bandwidth, self.link, self.domain, self.network, *rates

    def rate(self, precision: str) -> float:
        """Return the operations per second in this precision, or in the next wider precision if the GPU does not support
        it.

        Weights in INT4, and on GPUs without FP4 also weights in MXFP4, are converted to BF16 before they are multiplied.
        """
        if precision == "int4":
            return self.flops["bf16"]
        if precision == "mxfp4":
            return self.flops.get("fp4", self.flops["bf16"])
        for name in ("fp4", "fp8", "bf16")[("fp4", "fp8", "bf16").index(precision) :]:
            if name in self.flops:
                return self.flops[name]
        raise AssertionError(precision)


@cache
def gpus() -> Mapping[str, Gpu]:
    """Return all supported GPUs by name. A GPU with several names occurs under each of them."""
    text = package_data.text("ome_operator.sizing", "gpus.yaml")
    data: dict[str, dict[str, Any]] = document(text)
    return {
        spelling: found
        for name, facts in data.items()
        for found in [_gpu(name, facts)]
        for spelling in (name, *facts["names"])
    }


def gpu(name: str) -> Gpu:
    """Return the GPU with this name. The name of an AcceleratorClass, and a name that calibration files use, are also
    accepted.

    Raises PlanRefused for an unknown name.
    """
    found = gpus().get(name.strip().lower())
    if found is None:
        names = dict.fromkeys(each.name for each in gpus().values())
        raise PlanRefused(f"No data for the GPU {name or '(none)'}: {nearest(name, names)}.")
    return found


_FIELDS = ("name", "family", "memory", "bandwidth", "tflops", "link", "domain", "network", "node")
"""The required fields of a hardware file, named as in data/gpus.yaml."""
_OPTIONAL = ("price",)
_LARGEST = 1e9


def from_file(data: Any, file: str) -> Gpu:
    """Return the GPU of a hardware file. `data` is the content of the file, a map with the fields of data/gpus.yaml, and
    `file` is its name for messages.

    Raises PlanRefused, with the name of the field, if a field is missing or wrong.
    """
    if not isinstance(data, Mapping):
        raise PlanRefused(f"{file} is not a GPU: write a map with the fields {', '.join(_FIELDS)}.")
    if unknown := [str(name) for name in data if name not in (*_FIELDS, *_OPTIONAL)]:
        raise PlanRefused(f"{file} has the unknown field {unknown[0]}: {nearest(unknown[0], (*_FIELDS, *_OPTIONAL))}.")
    if missing := [name for name in _FIELDS if name not in data]:
        raise PlanRefused(f"{file} lacks the field {missing[0]}: the fields are {', '.join(_FIELDS)}.")
    families = sorted({each.family for each in gpus().values()})
    if data["family"] not in families:
        raise PlanRefused(f"{file}: the family {data['family']!r} is unknown: the families are {', '.join(families)}.")
    name, rates = str(data["name"]).lower(), data["tflops"]
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", name):
        raise PlanRefused(f"{file}: name is {data['name']!r}: write a short name of letters, digits, '-', '_' and '.'.")
    if not isinstance(rates, Mapping) or "bf16" not in rates or not {*rates} <= {"bf16", "fp8", "fp4"}:
        raise PlanRefused(f"{file}: tflops is not a map of bf16 and, if the GPU has them, fp8 and fp4.")
    numbers = {name: data[name] for name in ("memory", "bandwidth", "link", "network", "domain", "node")}
    numbers |= {f"tflops.{precision}": rate for precision, rate in rates.items()}
    numbers |= {"price": data["price"]} if data.get("price") is not None else {}
    for field, value in numbers.items():
        whole = field in ("domain", "node")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 < value < _LARGEST:
            raise PlanRefused(
                f"{file}: {field} is {value!r}: write a {'whole number' if whole else 'number'} above 0 and below a billion."
            )
    price = {"usd": data["price"], "date": "as given", "source": file} if data.get("price") is not None else None
    return _gpu(name, {**data, "price": price, "source": file, "checked": ""})


def _gpu(name: str, facts: Mapping[str, Any]) -> Gpu:
    price = facts["price"]
    return Gpu(
        name=name,
        family=facts["family"],
        memory=facts["memory"] * GIB,
        bandwidth=facts["bandwidth"] * 1e9,
        flops={precision: rate * 1e12 for precision, rate in facts["tflops"].items()},
        link=facts["link"] * 1e9 / 2,
        domain=facts["domain"],
        network=facts["network"] * 1e9,
        node=facts["node"],
        price=Price(price["usd"], str(price["date"]), price["source"], _others(price.get("others"))) if price else None,
        source=facts["source"],
        checked=facts["checked"],
    )


def _others(facts: Mapping[str, Any] | None) -> str:
    return f"${facts['low']:.2f} to ${facts['high']:.2f} ({facts['date']}, {facts['source']})" if facts else ""

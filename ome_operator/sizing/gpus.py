"""Read the memory, peak rates and prices of GPUs from data/gpus.yaml."""

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
    """Precision -> number of dense operations per second."""
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

    def wire(self, gpus: int) -> float:
        """Return the bandwidth from a GPU to the other GPUs of a group of `gpus` GPUs, in bytes per second and direction."""
        return self.link if gpus <= self.domain else self.network

    def rate(self, precision: str) -> float:
        """Return the operations per second in this precision, or in the next wider precision if the GPU does not support
        it.
        """
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
        spelling: found for name, said in data.items() for found in [_gpu(name, said)] for spelling in (name, *said["names"])
    }


def gpu(name: str) -> Gpu:
    """Return the GPU with this name. The name may also be that of an AcceleratorClass, or one that calibration files use.

    Raises PlanRefused for an unknown name.
    """
    found = gpus().get(name.strip().lower())
    if found is None:
        names = dict.fromkeys(each.name for each in gpus().values())
        raise PlanRefused(f"No data for the GPU {name or '(none)'}: {nearest(name, names)}.")
    return found


def _gpu(name: str, said: Mapping[str, Any]) -> Gpu:
    price = said["price"]
    return Gpu(
        name=name,
        family=said["family"],
        memory=said["memory"] * GIB,
        bandwidth=said["bandwidth"] * 1e9,
        flops={precision: rate * 1e12 for precision, rate in said["tflops"].items()},
        link=said["link"] * 1e9 / 2,
        domain=said["domain"],
        network=said["network"] * 1e9,
        node=said["node"],
        price=Price(price["usd"], str(price["date"]), price["source"], _others(price.get("others"))) if price else None,
        source=said["source"],
        checked=said["checked"],
    )


def _others(said: Mapping[str, Any] | None) -> str:
    return f"${said['low']:.2f} to ${said['high']:.2f} ({said['date']}, {said['source']})" if said else ""

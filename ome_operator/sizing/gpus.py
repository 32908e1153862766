"""GPUs: memory, rates and prices, from data/gpus.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ome_operator.capacity.memory import GIB
from ome_operator.sizing.refused import PlanRefused, nearest
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


@dataclass(frozen=True)
class Price:
    """What an hour of a GPU costs."""

    usd: float
    date: str
    source: str
    others: str = ""
    """What other sellers ask; "" where that was not found."""

    def __str__(self) -> str:
        also = f"; others {self.others}" if self.others else ""
        return f"${self.usd:.2f} ({self.date}, {self.source}{also})"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU. Rates are peaks: a number of what is reached is fitted."""

    name: str
    family: str
    memory: float
    """Bytes."""
    bandwidth: float
    """Of memory, bytes a second."""
    flops: Mapping[str, float]
    """Precision -> dense operations a second."""
    link: float
    """To GPUs of its domain, bytes a second in a direction."""
    domain: int
    """GPUs that the link joins."""
    network: float
    """To other domains, bytes a second in a direction."""
    node: int
    """GPUs of a node."""
    price: Price | None
    source: str
    checked: str
    """What others say of the same facts."""

    def wire(self, gpus: int) -> float:
        """Bytes a second from a GPU to the others of a group."""
        return self.link if gpus <= self.domain else self.network

    def rate(self, precision: str) -> float:
        """Operations a second; a GPU without a precision computes in the next wider."""
        for name in ("fp4", "fp8", "bf16")[("fp4", "fp8", "bf16").index(precision) :]:
            if name in self.flops:
                return self.flops[name]
        raise AssertionError(precision)


@cache
def gpus() -> Mapping[str, Gpu]:
    """All that are known."""
    text = package_data.text("ome_operator.sizing", "gpus.yaml")
    data: dict[str, dict[str, Any]] = document(text)
    return {
        spelling: found for name, said in data.items() for found in [_gpu(name, said)] for spelling in (name, *said["names"])
    }


def gpu(name: str) -> Gpu:
    """A GPU by its name, the name of its AcceleratorClass, or the spelling of a calibration file."""
    found = gpus().get(name.strip().lower())
    if found is None:
        names = dict.fromkeys(each.name for each in gpus().values())
        raise PlanRefused(f"The GPU {name or '(none)'} is not known: {nearest(name, names)}.")
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

"""Faults of the API server and of the connection to it. A proxy between the operator and the API server causes them. It
always forwards requests for the Lease.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.support import yamls
from tests.support.kubelet import MERGE
from tests.support.proxy import Answer, Late, Proxy, Sent, Verdict
from tests.support.rig import path

KIND = "ClusterBaseModel"
"""The kind of the objects that the faults of this module create. It is chosen because a pass over such an object writes
only a status, and because no alert fires for an unused model that is on no node."""


def proxied(bed: Bed) -> Proxy:
    """Replace the running operator by one behind a proxy until the cleanup. Return the proxy."""
    proxy = Proxy(bed.rig.kubeconfig)
    proxy.start()
    bed.later(proxy.stop)
    bed.later(bed.operate)
    bed.operate(kubeconfig=proxy.kubeconfig(bed.folder / "proxied.kubeconfig"))
    return proxy


def models(bed: Bed, count: int) -> list[str]:
    """Create models, which are deleted after the test, and return their names."""
    names = [f"model-{number}" for number in range(count)]
    for name in names:
        bed.later(bed.rig.delete, KIND, "", name)
        bed.rig.create(yamls.model(name, f"hf://test/{name}"))
    return names


def late(seconds: float) -> Callable[[Sent], Verdict]:
    """Return a function for the proxy that delays each read and each write of the operator by `seconds`. Watches and
    requests for the Lease are not delayed.
    """
    return lambda sent: None if sent.lease or sent.watch else Late(seconds)


@contextmanager
def again(every_s: float, do: Callable[[int], object]) -> Iterator[None]:
    """Call `do` repeatedly at this interval inside the `with` block. Its argument is the number of calls so far."""
    over = threading.Event()

    def run() -> None:
        for number in itertools.count():
            do(number)
            if over.wait(every_s):
                return

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            over.set()
            running.result()


@fault("OmeRequestsFail")
def _(bed: Bed) -> Iterator[None]:
    """The API server answers every write with 500 while the operator has to write the statuses of 100 new models."""
    proxy = proxied(bed)
    with proxy.judging(lambda sent: Answer(500, "InternalError") if sent.is_write else None):
        models(bed, 100)
        yield


@fault("OmePassesSlow")
def _(bed: Bed) -> Iterator[None]:
    """Each request of the operator takes 12 s while models are edited. There are fewer models than reconciliations that may
    run at the same time, so that none waits in the queue.
    """
    proxy, api = proxied(bed), bed.rig.cluster.api()
    names = models(bed, 8)

    def edit(number: int) -> None:
        body = {"spec": {"displayName": f"edit {number}"}}
        api.request("PATCH", path(KIND, "", names[number % len(names)]), body, MERGE)

    with proxy.judging(late(12.0)), again(3.0, edit):
        yield


@fault("OmeQueueGrows")
def _(bed: Bed) -> Iterator[None]:
    """Each request of the operator takes 8 s, and 150 models are new. Ten reconciliations run at a time, so the others wait
    in the queue, and no single reconciliation takes 10 s.
    """
    proxy = proxied(bed)
    with proxy.judging(late(8.0)):
        models(bed, 150)
        yield


@fault("OmeWatchSilent")
def _(bed: Bed) -> Iterator[None]:
    """The API server accepts watches, but no events arrive, as behind a proxy that buffers responses. No events arrive on
    watches that are opened later, either.
    """
    proxy = proxied(bed)
    with proxy.holding():
        yield
        for kind in ("Pod", "InferenceService"):  # one kind that our informer watches, and one that kopf watches
            firing = f'ALERTS{{alertname="OmeWatchSilent",alertstate="firing",kind="{kind}"}}'
            bed.rig.wait(f"it fires for {kind}", lambda firing=firing: bed.asked.ask(firing), 60)

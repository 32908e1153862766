"""Settings of all test suites: the number of hypothesis examples, golden files, tables that are printed after the session,
and the distribution of tests among processes.

Property tests use the same examples in every run. With OME_SOAK=1 they use many examples, which differ between runs.
Hypothesis prints a line that reproduces a failing example.
"""

import contextlib
import gc
import os
import signal
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

os.environ.pop("KUBECONFIG", None)  # no test may connect to a user's own cluster, or to the demo of another checkout
os.environ.setdefault("GOGC", "400")  # Go servers spent a fifth of their CPU time in garbage collection
os.environ.setdefault("GOMAXPROCS", "1")  # switching between cores took a tenth of the time of clusters
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a script's background job, but tests send SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # no garbage is made while tests are collected
SOAK = bool(os.environ.get("OME_SOAK"))
settings.register_profile(
    "ome",
    derandomize=not SOAK,
    max_examples=1000 if SOAK else 25,
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ome")
STORY = settings(max_examples=300 if SOAK else 12)
"""Settings of properties whose examples are complete stories in the simulator. Each example takes at least a tenth of a
second.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which rewrites tests/golden/*/out.yaml and the copies of `config` in in.yaml. Read the
    difference before you commit it.
    """
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/*/out.yaml and pages anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Return whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


# --- tables that are printed when the session ends ------------------------------------------------------------------------
Tables = dict[str, list[str]]
"""Heading -> lines of each table."""
_TABLES = pytest.StashKey[Tables]()


@pytest.fixture(scope="session")
def tables(pytestconfig: pytest.Config) -> Tables:
    """Return the tables that are printed after the session, so that a test can add its own."""
    return pytestconfig.stash.setdefault(_TABLES, {})


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the tables of a worker process to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tables"] = session.config.stash.get(_TABLES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Add the tables of a worker process. A process that crashed has none."""
    node.config.stash.setdefault(_TABLES, {}).update(getattr(node, "workeroutput", {}).get("tables", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the tables."""
    for heading, lines in config.stash.get(_TABLES, {}).items():
        terminalreporter.section(heading)
        for line in lines:
            terminalreporter.line(line)


# --- distribution to processes: `pytest -n 8` -----------------------------------------------------------------------------
LARGE, CLUSTERS = "tests/controlplane/operator/test_", 4
"""LARGE is the beginning of the paths of files whose tests mostly wait. Each of the first CLUSTERS processes creates a
cluster, and runs one of these files after the other. All of these processes then end at about the same time. Other
processes run none of these files.
"""
TOGETHER = ("tests/node/", *(f"tests/controlplane/{folder}" for folder in ("namespaces/", "process/", "adopt/", "")))
"""Folders whose files share a cluster and therefore run in one process. The files of LARGE are excluded. Every file outside
of these folders may run in any process.
"""
LONGEST = tuple(
    f"{LARGE}{name}.py::"
    for name in (
        *("demand", "moves", "demand_night", "agent", "freeze", "disturbed", "moves_bounded", "placement"),
        *("demand_beside_hpa", "fairness", "flood", "restore", "races", "recovery", "bad_nodes", "demand_routers"),
    )
)
"""The longest files of LARGE, longest first. They start in this order, before the shorter ones."""
RACES = f"{LARGE}races.py::test_competing_services_all_serve_in_the_end["
"""Number of races: a thousand in `make soak`, in as many clusters as there are processes."""
MIXED = ("tests/property", "tests/router", "tests/unit/preflight")
"""Folders whose files start in alphabetical order. Some of these files compute, and others wait for seconds again and
again. In this order, they are mixed: the processes neither wait all at once, nor compete for the cores all at once.
"""
COMPUTE, COMPUTING = ("tests/property", "tests/lint", "tests/unit", "tests/docs"), ("gw4", "gw5")
"""COMPUTE are folders whose tests compute, and COMPUTING are the processes that run these tests first. The two cores then
always have work, while the tests of clusters and routers wait. These processes have a lower priority, because an operator
whose API server does not answer in time ends.
"""
LONG = (
    "tests/process/test_wheel.py",
    "tests/unit/test_silent_fields.py",
    "tests/unit/controllers/test_waves_of_services.py",
)
FIRST = (LARGE, *TOGETHER, MIXED, LONG, "tests/lint")
"""Folders in the order in which they start. The longest ones start first, so that the many short files fill the remaining
time.
"""


def _unit(nodeid: str) -> str:
    """Return the unit of a test: all tests of a unit run in the same process."""
    if SOAK and nodeid.startswith(RACES):
        return f"{RACES}{int(nodeid.removeprefix(RACES).rstrip(']')) % 3}"
    folders = () if nodeid.startswith(LARGE) else TOGETHER
    return next((folder for folder in folders if nodeid.startswith(folder)), nodeid.split("::")[0])


def _place(nodeid: str) -> tuple[int, int, str]:
    """Return the place of an item in the order of starts; smaller numbers start sooner."""
    place = next((place for place, folders in enumerate(FIRST) if nodeid.startswith(folders)), len(FIRST))
    long = next((number for number, file in enumerate(LONGEST) if nodeid.startswith(file)), len(LONGEST))
    return place, long, nodeid.split("::")[0].rpartition("/")[2] if nodeid.startswith(MIXED) else ""


class Units(LoadScopeScheduling):
    """A scheduler that gives complete units to processes: the first unit, in the order of collection, that suits the
    process; if no unit does, the first of all.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _unit(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        suitable = (unit for unit in self.workqueue if _suits(node.gateway.id, unit))
        others = (unit for unit in self.workqueue if not unit.startswith(LARGE))
        self.workqueue.move_to_end(next(suitable, None) or next(others, None) or next(iter(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _suits(process: str, unit: str) -> bool:
    """Return whether a process should run this unit before others."""
    if process in COMPUTING:
        return unit.startswith(COMPUTE) and not unit.startswith(MIXED[1:])
    return unit.startswith(LARGE) == (int(process.removeprefix("gw")) < CLUSTERS)


def pytest_configure(config: pytest.Config) -> None:
    """Lower the priority of the processes that compute."""
    if getattr(config, "workerinput", {}).get("workerid") in COMPUTING:
        os.nice(3)


def pytest_collection(session: pytest.Session) -> None:
    """In a new clone, let each process compile other modules first, so that the processes do not all compile the same
    ones.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    folders = [Path(arg).absolute() for arg in session.config.args]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    files = [file for file in files if not (file.parent / "__init__.py").exists()]  # in packages, modules have other names
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # pytest reports the error when it collects the tests
            import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units:
    """Use `Units` whatever `--dist` is, because any other scheduler would start a cluster in every process."""
    config.option.loadscopereorder = False
    gc.enable()  # the main process collects no tests
    return Units(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests so that the longest start first, if several processes run."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.nodeid))


def pytest_collection_finish() -> None:
    """Exclude what exists after the collection from garbage collection: examining thousands of tests and all modules
    repeatedly took a twentieth of the CPU time.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()

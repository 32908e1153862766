"""Every exception class of the project, and the errors of the command line.

A class stays in the module that raises it; this drawing shows all of them, with the class that they derive from
(tests/unit/test_errors.py compares it with the code). `kube/errors.py` continues it below `KubeError`.

Exception
├── OmeError                    errors.py: the base of the following classes
│   ├── UserError               errors.py: a command cannot do what its user asked for
│   │   ├── QuestionUnanswered          errors.py: a command whose exit code 1 is an answer has no answer
│   │   ├── InvalidOption       errors.py: an option of a command is invalid
│   │   ├── Unavailable         ome_local/binaries/releases.py: a program cannot be downloaded or verified
│   │   └── Cancelled           ome_local/cancel.py: the work of a thread was cancelled
│   ├── KubeError               kube/errors.py: the API server did not answer with success
│   ├── NoConnection            kube/connection.py: there is no usable kubeconfig or ServiceAccount
│   ├── KubeconfigMistake       kube/kubeconfig.py: a part of a kubeconfig cannot be used
│   ├── LeadershipLost                    kube/leader_election.py: another process is the leader
│   ├── CannotWatch             watch/sink.py: a kind cannot be watched any more
│   ├── _Again                  watch/informer.py: a list has to begin again
│   ├── PortTaken               machinery/health.py: another process listens on the port
│   ├── ProblemError            core/problem.py: carries a Problem out of nested functions
│   ├── UnusableSummary                core/observed/telemetry.py: the summary of a router's registry cannot be used
│   ├── _TooMany                core/placement/packing.py: there are too many combinations to try
│   ├── DataError               engines/flags.py: a data file of an engine's version is invalid (a ValueError)
│   ├── RecipeRefused           cookbook/request.py: `ome generate` has no recipe for the request
│   ├── PlanRefused             sizing/errors.py: `ome plan` has no answer
│   ├── UnreadableRecording              recorder/facts.py: a recording is invalid
│   ├── CheckStopped                 cli/live/preflight.py: a signal ended `ome preflight`
│   ├── UnexpectedAnswer        registry/pods.py: the API server or a router sent an unexpected response
│   ├── UnreadableSelection     core/weights/node_selection.py: the field of a model that selects nodes cannot be read
│   ├── CacheRefused            agent/compile_store.py: there is no compile cache, or none is accepted
│   ├── DownloadFailed                  agent/download.py: the download of a model failed
│   ├── SourceError             storage/listing.py: the base of the errors of sources of weights
│   │   ├── RequestRefused             storage/listing.py: a retry does not help until a person changes something
│   │   │   ├── SourceUnauthorized  storage/http.py: 401
│   │   │   └── FileAbsent          storage/http.py: 403, 404, 410
│   │   ├── SourceUnreachable         storage/listing.py: a retry may help
│   │   │   └── RangeIgnored        storage/listing.py: the source sends a complete file instead of the requested part
│   │   ├── TooSlow             agent/minimum_speed.py: the source is slower than the minimum speed
│   │   └── TurnExpired            agent/fair_queue.py: the turn of this download is over
│   ├── TooLarge                util/json_limits.py: the values of a JSON text might need too much memory (a ValueError)
│   ├── PrivateAddress                 storage/private_addresses.py: an address inside the cluster (an OSError, for aiohttp)
│   ├── ApiError                ome_local/kubeapi.py: the API server of a local cluster refused a request
│   └── ApiUnreachable          ome_local/kubeapi.py: the API server of a local cluster did not answer
├── NoCache                     compile_cache/archive.py: there is no usable compile cache; runs without this package
├── ChangedError                compile_cache/archive.py: a file changed while it was read; runs without this package
├── BusyError                   compile_cache/pod.py: the agent does not answer now; runs without this package
└── Unfit                       benchmark_pod/inside.py: the image does not support the plan; runs without this package
"""


class OmeError(Exception):
    """The base of the exceptions of this project."""


class UserError(OmeError):
    """The error of a command, with one sentence that says what is wrong and what to do. The command line prints it and
    exits with `exit_code`.
    """

    exit_code = 1


class InvalidOption(UserError):
    """The error of a command whose option has an invalid value, or whose options exclude each other. The exit code is that
    of the errors that typer reports, such as a missing argument.
    """

    exit_code = 2


class QuestionUnanswered(UserError):
    """The error of a command, such as `ome diff`, that cannot answer the question of its user. The exit code is 2, because
    the exit code 1 is one of the answers of such a command.
    """

    exit_code = 2

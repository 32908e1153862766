"""Builds the subjects of `ome lint`: services and runtimes of files, or services of a cluster, as they would run."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid, Model, Runtime
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.cli.live.cluster_from_manifests import build_cluster, derived_objects, ref_of_body
from ome_operator.cli.live.cluster_from_manifests import full_name as name_of
from ome_operator.cli.live.file_problems import separate_runtime_problem, without_cluster, without_repeats
from ome_operator.cli.live.references import dangling_references, misspelled_references, named_references, of_pods
from ome_operator.core.benchmarkjob import job
from ome_operator.core.observed.objects import Deps, Manifest, Ref
from ome_operator.core.observed.validation import RenderedComponent
from ome_operator.core.reasons import Reason
from ome_operator.core.render import meta
from ome_operator.core.render.statefulsets import stamp
from ome_operator.core.resolve.inputs import resolve
from ome_operator.core.resolve.references import NamedReference
from ome_operator.core.resolve.system_paths import refusal
from ome_operator.core.selection.match import violations
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.weights.mount import AnyModel, claim, unsupported_scheme, weights
from ome_operator.describe.outcome import TargetOutcome, compute_outcome
from ome_operator.engines.flags import Versions, packaged_versions
from ome_operator.errors import QuestionUnanswered
from ome_operator.lint import rules
from ome_operator.lint.finding import Severity
from ome_operator.lint.model import gpu_memory, model_facts, node_labels
from ome_operator.lint.subject import RefusedPart, Subject, subject
from ome_operator.lint.validator import ALREADY_REPORTED, Validator, refusals
from ome_operator.util.similar import suggestion

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

MOST_LINES = 10
"""Number of lint findings that other commands print beside their own result."""
MADE_UP = "ome-lint"
"""Name of the model and of the service that are created to check a runtime that no service uses."""


def subjects(
    given: list[Manifest],
    beside: list[Manifest],
    versions: Versions,
    refused: tuple[RefusedPart, ...] = (),
    catalog: str = "the catalog",
    others: Collection[Ref] = (),
) -> Iterator[Subject]:
    """Yield the services in the files, then the runtimes that none of these services uses, each with the models that the
    runtime states to support. If a cluster would refuse parts of objects in the files (`refused`), a subject with these
    parts comes first, and services that only have these problems are left out. `catalog` names the source of `beside` in
    messages. `others` are the objects of other kinds in the files.
    """
    if refused:
        yield Subject("", "", (), None, (), versions, {}, refused=refused)
    cluster = build_cluster([*beside, *given], model_agent=False)
    services = [kept.ref for kept in cluster.services()]
    named = {ref_of_body(body) for body in given}
    written = any(derived_objects(cluster, kind) for kind in SHORT)
    used, models = set(), set()
    for looked_at in of_services(cluster, services if written else named, versions):
        if refused and not looked_at.roles and _is_refused(looked_at, refused):
            continue
        used.add(looked_at.runtime)
        models.add(looked_at.model_name)
        told_apart = (ABSENT, NO_FIELD) if refused else (ABSENT,)
        advice = "; ".join(part for part in looked_at.advice.split("; ") if not any(words in part for words in told_apart))
        problems, elsewhere = separate_runtime_problem(
            without_repeats(looked_at.problems, refused, looked_at.service), named
        )
        told = without_cluster(problems, catalog, named)
        near = misspelled_references(_of_pods(looked_at), others)
        yield replace(looked_at, problems=told, elsewhere=elsewhere, advice=advice, dangling_references=near)
    yield from _misplaced(cluster, named, models, versions)
    yield from _unfetched(cluster, named, versions)
    yield from _underived(cluster, named, refused, versions, catalog)
    yield from _dangling(cluster, named, others, versions, catalog)
    alone = [each for which, each in cluster.deps().runtimes.items() if which in named and isinstance(each, Runtime)]
    for runtime in (each for each in alone if f"{each.kind} {each.name}" not in used):
        fitting = _models_of(runtime, cluster.deps(), named)
        first, *variants = _alone(runtime, fitting, [*beside, *given], services, versions)
        yield replace(first, variants=tuple(variants))


def _alone(
    runtime: Runtime, models: list[Model], around: list[Manifest], services: list[Ref], versions: Versions
) -> Iterator[Subject]:
    """Yield the subject of a runtime with its model. For several models, yield the subject with a model of which nothing is
    known, then one subject for each model. `around` contains the other objects, and `services` names the services among
    them.
    """
    bodies = [_made_up(runtime, models[0])] if len(models) == 1 else [_model(), _made_up(runtime)]
    if len(models) > 1:
        bodies += [_made_up(runtime, model, f"-{number}") for number, model in enumerate(models)]
    cluster = build_cluster([*around, *bodies], model_agent=False)
    made_up = {kept.ref.name: kept.parsed for kept in cluster.services() if kept.ref not in services}
    for name in (str(body["metadata"]["name"]) for body in bodies if body["kind"] == SERVICE):
        service = made_up[name]
        if isinstance(service, InferenceService):
            yield _subject(service, cluster, versions, alone=True)
        else:  # no service can name this runtime
            name = f"{runtime.kind} {runtime.name}"
            yield Subject("", name, (), None, (getattr(service, "why", ""),), versions, {})


def _underived(
    cluster: ClusterCache, named: Collection[Ref], refused: Collection[RefusedPart], versions: Versions, catalog: str
) -> Iterator[Subject]:
    """Yield the objects of sglang.ai in the files from which the operator could derive nothing, and the BenchmarkJobs for
    which it could create no Job. Objects that a cluster would refuse are left out.
    """
    found = {item.of: item.why for kind in SHORT for item in derived_objects(cluster, kind)}
    jobs = (each for each in cluster.resources[BENCHMARK] if not isinstance(each.parsed, Invalid))
    found |= {each.ref: job.refusal(each.parsed) for each in jobs}
    for which, why in found.items():
        if why and which in named and all(each.object != name_of(which) for each in refused):
            yield Subject("", name_of(which), (), None, without_cluster([why], catalog, named), versions, {})


def _of_pods(looked_at: Subject) -> Iterator[NamedReference]:
    """Yield the claims, Secrets and ConfigMaps that the pods of a service name."""
    pods = [(f"spec.{role.component}", pod) for role in looked_at.roles for pod in role.pods]
    return of_pods(pods, looked_at.service.partition("/")[0])


def _dangling(
    cluster: ClusterCache, named: Iterable[Ref], others: Collection[Ref], versions: Versions, catalog: str
) -> Iterator[Subject]:
    """Yield the objects `named` that refer to objects that are not known."""
    found = {which: [*each] for which, each in dangling_references(cluster, named)}
    for which, reference in named_references(cluster, named):
        found.setdefault(which, []).extend(misspelled_references([reference], others))
    for which, each in found.items():
        told = tuple((one.field, without_cluster([one.sentence], catalog)[0]) for one in each)
        if told:
            yield Subject("", name_of(which), (), None, (), versions, {}, dangling_references=told)


def _misplaced(
    cluster: ClusterCache, named: Collection[Ref], used: Collection[str], versions: Versions
) -> Iterator[Subject]:
    """Yield the weights in the files whose path is a directory of the operating system. Weights that a service in the files
    uses are left out, because the findings of that service report their path.
    """
    for each in _weights(cluster, named):
        name, where = f"{each.kind} {each.name}", weights(each)
        message = "" if claim(where.uri) is not None else refusal(each.kind, each.name, where.path)
        if message and name not in used:
            yield Subject("", name, (), None, (message,), versions, {})


def _unfetched(cluster: ClusterCache, named: Collection[Ref], versions: Versions) -> Iterator[Subject]:
    """Yield the weights in the files that nothing downloads, because the scheme of their URI is not supported."""
    for each in _weights(cluster, named):
        if message := unsupported_scheme(each.spec.storage.storage_uri):
            name = name_of(Ref(each.kind, each.namespace, each.name))
            yield Subject("", name, (), None, (), versions, {}, source=message)


def _weights(cluster: ClusterCache, named: Collection[Ref]) -> Iterator[AnyModel]:
    """Yield the models and the fine-tuned weights among the objects `named`."""
    deps = cluster.deps()
    for each in (*deps.models.values(), *deps.weights.values()):
        if not isinstance(each, Invalid) and Ref(each.kind, each.namespace, each.name) in named:
            yield each


NO_FIELD = " is not a field of a pod: "
"""Part of a sentence of the operator's advice. The rule `pod-field-unknown` reports the same mistake, so the advice is
left out."""
ABSENT = " does not exist: "
"""Part of a sentence of the operator's advice about an object that may be on a cluster. The rule `reference-missing` reports
it."""


def on_machine(looked_at: list[Subject], accelerator: str) -> list[Subject]:
    """Return the subjects as if `accelerator` were the only accelerator class. Raises QuestionUnanswered if no subject may
    run on its GPUs.
    """
    known = sorted({name for each in looked_at for name in each.memory})
    if accelerator not in known:
        classes = (
            f"{suggestion(accelerator, known)}name one of {', '.join(known)}"
            if known
            else "no accelerator class with a known memory provides its GPUs"
        )
        raise QuestionUnanswered(f"--accelerator: no checked service or runtime runs on {accelerator}: {classes}.")
    return [_with_memory(each, accelerator) for each in looked_at]


def _with_memory(looked_at: Subject, accelerator: str) -> Subject:
    """Return the subject, and the subjects of its models, with `accelerator` as the only accelerator class."""
    variants = tuple(_with_memory(each, accelerator) for each in looked_at.variants)
    memory = {name: size for name, size in looked_at.memory.items() if name == accelerator}
    return replace(looked_at, memory=memory, variants=variants)


def _is_refused(looked_at: Subject, refused: Iterable[RefusedPart]) -> bool:
    """Return whether each problem of a service is already reported as a part of its object that a cluster would refuse."""
    of = f"{SERVICE} {looked_at.service}"
    mine = [f"{each.says.partition(', because ')[0]}: " for each in refused if each.object == of]
    return bool(mine) and all(any(text in problem for text in mine) for problem in looked_at.problems)


def with_validator(deps: Deps) -> Deps:
    """Return `deps` with a validator that refuses the same revisions as the operator. The validator gives no advice,
    because the commands print the findings of `ome lint` separately.
    """
    judge = Validator()
    return replace(deps, judge=lambda asked: judge(asked)._replace(advice=(), reason=Reason.NO_EFFECT))


def lines(cluster: ClusterCache, named: Collection[Ref], all_of_it: str, reported: Collection[str] = ()) -> tuple[str, ...]:
    """Return the errors and warnings of these services, one line each, for commands other than `ome lint`. After
    `MOST_LINES` lines, the number of the remaining findings follows, and `all_of_it` names the command that shows all.
    `reported` contains the sentences that the command prints beside these lines; refusals that they contain are left out.
    """
    messages = []
    for looked_at in of_services(cluster, named, packaged_versions()):
        refused = {(each.rule, each.says) for each in refusals(looked_at)}
        for finding in rules.check(looked_at, ALREADY_REPORTED):
            if finding.rule.severity != Severity.NOTE:
                rule, says, remedy = finding.rule.id, finding.hit.says, finding.hit.remedy
                word = "refused" if (rule, says) in refused else str(finding.rule.severity)
                if word != "refused" or not any(f" {rule}: {says}; " in sentence for sentence in reported):
                    messages.append(f"{looked_at.service}: {word} {rule}: {says}; {remedy}")
    messages = list(dict.fromkeys(messages))
    more = (f"{len(messages) - MOST_LINES} more: {all_of_it}",) if len(messages) > MOST_LINES else ()
    return (*messages[:MOST_LINES], *more)


async def on_a_cluster(client: "Client", namespace: str, name: str, versions: Versions) -> list[Subject]:
    """Return the subject of one service or, if `name` is "", the subjects of all services in a namespace ("" for all
    namespaces). Raises KubeError if a request fails, and NotFound if the named service does not exist.

    Forbidden, a subclass of KubeError, is raised if the user may not read one of the kinds. Otherwise a runtime that the
    user may not read would be reported as missing.
    """
    # imported here because it loads the package kubernetes, which checks of files do not need
    from ome_operator.cli.live.trees import read_service_object
    from ome_operator.kube.listing import listed_around
    from ome_operator.kube.resources import RESOURCES

    asked = [await read_service_object(client, namespace, name)] if name else []
    there = await listed_around(client, (SERVICE, *CATALOG, *SHORT), [namespace])
    cluster = build_cluster([*there, *asked], model_agent=False)
    wanted = [kept.ref for kept in cluster.services() if name in ("", kept.ref.name)]
    absent = not await client.served_plurals(RESOURCES["ScaledObject"].api_version)
    return [replace(looked_at, keda_absent=absent) for looked_at in of_services(cluster, wanted, versions)]


def of_services(cluster: ClusterCache, named: Collection[Ref], versions: Versions) -> Iterator[Subject]:
    """Yield the subjects of the named services of a cluster or of files."""
    for kept in cluster.services():
        if kept.ref in named:
            if isinstance(kept.parsed, InferenceService):
                yield _subject(kept.parsed, cluster, versions)
            else:
                yield _unread(kept.ref, kept.parsed.why if isinstance(kept.parsed, Invalid) else "", versions)


def _unread(which: Ref, why: str, versions: Versions) -> Subject:
    """Return the subject of a service that cannot be parsed."""
    return Subject(f"{which.namespace}/{which.name}", "", (), None, (why,), versions, {})


def _subject(service: InferenceService, cluster: ClusterCache, versions: Versions, alone: bool = False) -> Subject:
    deps = cluster.deps()
    comes_to, resolved = compute_outcome(service, deps), resolve(service, deps)
    runtime = resolved.runtime if isinstance(resolved.runtime, Runtime) else None
    used = resolved.model if isinstance(resolved.model, Model) and resolved.model.name != MADE_UP else None
    model = model_facts(used, deps.well_known) if used is not None else None
    parts = tuple(_parts(comes_to, service))
    memory = gpu_memory(comes_to.inputs, runtime, parts, deps.accelerators)
    looked_at = subject(service, runtime, parts, model, versions, memory, node_labels(deps.accelerators), alone)
    named = f"{used.kind} {used.name}" if used is not None else ""
    advice = "" if alone else comes_to.advice
    return replace(looked_at, problems=comes_to.problems, advice=advice, model_name=named, demand=comes_to.demand)


def _parts(found: TargetOutcome, service: InferenceService) -> Iterator[RenderedComponent]:
    """Yield the components of an outcome that have pods. A role that is scaled to zero groups has the pods with which it
    will start.
    """
    owner = meta.Owner(service.name, service.namespace, service.uid)
    sizes = {role.component: (role.size, role.title) for role in found.roles}
    asleep = [role.component for role in found.roles if not role.groups and not found.problems]
    later = [body for component in asleep for body in stamp(owner, found.workloads[component], (0,))]
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        size, title = sizes.get(component, (1, component))
        if pods := tuple(_templates((*found.manifests, *later), component)):
            yield RenderedComponent(component, title, size, pods)


def _templates(manifests: Iterable[Manifest], component: str) -> Iterator[Manifest]:
    """Yield the pod templates of a component, the leader's first."""
    for manifest in manifests:
        workload = manifest["kind"] in ("StatefulSet", "Deployment")
        if workload and manifest["metadata"]["labels"].get(keys.COMPONENT) == component:
            yield manifest["spec"]["template"]


def _model() -> Manifest:
    """Return a model with no known properties."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "ClusterBaseModel",
        "metadata": {"name": MADE_UP},
        "spec": {"storage": {"storageUri": "hf://ome/lint", "path": "/mnt/models/ome-lint"}},
    }


def _models_of(runtime: Runtime, deps: Deps, named: Collection[Ref]) -> list[Model]:
    """Return the models that a runtime states to support: of the models `named`, or else of all."""
    models = {which: model for which, model in deps.models.items() if isinstance(model, Model)}
    fitting = {
        which: model
        for which, model in models.items()
        if runtime.spec.supported_model_formats
        and which.namespace in ("", runtime.namespace or which.namespace)
        and not violations(runtime, profile_of(model, True, deps.well_known), chosen=False)
    }
    return [model for which, model in fitting.items() if which in named] or list(fitting.values())


def _made_up(runtime: Runtime, model: Model | None = None, suffix: str = "") -> Manifest:
    """Return a service that uses all components of a runtime. The service has the model `model`, or the model named MADE_UP
    if `model` is None. Its name ends in `suffix`.
    """
    parts = {keys.ENGINE: True, keys.DECODER: runtime.spec.decoder_config, keys.ROUTER: runtime.spec.router_config}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "InferenceService",
        "metadata": {
            "name": f"{MADE_UP}{suffix}",
            "namespace": runtime.namespace or (model and model.namespace) or "default",
        },
        "spec": {
            "model": {"name": model.name, "kind": model.kind} if model else {"name": MADE_UP, "kind": "ClusterBaseModel"},
            "runtime": {"name": runtime.name, "kind": runtime.kind},
            **{name: {"minReplicas": 1} for name, there in parts.items() if there},
        },
    }

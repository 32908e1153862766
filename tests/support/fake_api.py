"""A client for unit tests: it records all calls, and returns the answers that the test configures.

It does not implement any behavior of an API server. Tests that depend on that are in tests/controlplane, with a real server.
"""

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, NamedTuple

from ome_operator.kube.client import SOME, ApplyResult, Client, Manifest


class Call(NamedTuple):
    """A request that was made."""

    verb: str
    """Name of the client's method."""
    kind: str
    name: str
    body: Manifest = {}  # noqa: RUF012 (it is never changed)
    """Body that was sent; {} for reads and deletions."""
    uid: str = ""
    subresource: str = ""
    selector: str = ""
    """Label or field selector."""
    namespace: str = ""
    """Namespace of a list."""
    limit: int = 0
    """Maximum number of objects in a list; 0 for all."""
    dry_run: bool = False
    """Whether a creation is a dry run."""


class FakeApi(Client):
    """A client with answers by "verb Kind/subresource", "verb Kind" or "verb"; the first existing key is used.

    An answer is a body (a list of bodies for lists), an error to raise, or a function, possibly async, that returns either
    for a Call. For a write without an answer the result is the sent body with a UID and a version. A read needs an answer.
    """

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.answers, self.calls = dict(answers or {}), list[Call]()

    def kinds(self, verb: str) -> list[str]:
        """Return the kinds of the objects in all calls with this verb, in the order of the calls."""
        return [call.kind for call in self.calls if call.verb == verb]

    def bodies(self, verb: str) -> list[Manifest]:
        """Return the bodies of all calls with this verb, in the order of the calls."""
        return [call.body for call in self.calls if call.verb == verb]

    async def _answer(self, call: Call) -> Any:
        self.calls.append(call)
        keys = (f"{call.verb} {call.kind}/{call.subresource}", f"{call.verb} {call.kind}", call.verb)
        answer = next((self.answers[key] for key in keys if key in self.answers), None)
        if callable(answer):
            answer = answer(call)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if call.kind == "PodDisruptionBudget" and call.verb == "list_objects":
            return []  # other clients have none
        assert call.body, f"no answer is configured for {call}"
        given = {"uid": call.uid or f"uid-of-{call.kind}", "resourceVersion": str(100 + len(self.calls))}
        return {**call.body, "metadata": {**call.body["metadata"], **given}}

    # --- as the client ----------------------------------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        return dict(await self._answer(Call("get", kind, name)))

    async def get_metadata(self, kind: str, namespace: str, name: str) -> Manifest:
        return dict((await self._answer(Call("get_metadata", kind, name, namespace=namespace)))["metadata"])

    async def served_plurals(self, api_version: str) -> frozenset[str]:
        return frozenset(await self._answer(Call("served", api_version, "")))

    async def list_objects(
        self, kind: str, namespace: str = "", *, label_selector: str = "", field_selector: str = "", limit: int = 0
    ) -> list[Manifest]:
        selector = label_selector or field_selector
        call = Call("list_objects", kind, "", selector=selector, namespace=namespace, limit=limit)
        return list(await self._answer(call))[: limit or None]

    async def list_some(
        self, kind: str, namespace: str, *, label_selector: str = "", field_selector: str = ""
    ) -> list[Manifest]:
        found = await self.list_objects(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        return found[:SOME]

    async def list_metadata(self, kind: str, namespace: str = "", *, label_selector: str = "") -> list[Manifest]:
        return list(await self._answer(Call("list_metadata", kind, "", selector=label_selector, namespace=namespace)))

    async def list_uids(self, kind: str, namespace: str = "", *, label_selector: str = "") -> set[str]:
        return {each["uid"] for each in await self.list_metadata(kind, namespace, label_selector=label_selector)}

    async def apply(self, manifest: Manifest, uid: str = "", *, subresource: str = "", dry_run: bool = False) -> ApplyResult:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        return ApplyResult(await self._answer(Call("apply", kind, name, manifest, uid, subresource)), ())

    async def create(self, manifest: Manifest, manager: str = "", *, dry_run: bool = False) -> Manifest:
        name = manifest["metadata"].get("name", "")
        return dict(await self._answer(Call("create", manifest["kind"], name, manifest, dry_run=dry_run)))

    async def patch_merge(
        self, kind: str, namespace: str, name: str, uid: str, patch: Manifest, manager: str = ""
    ) -> Manifest:
        return dict(await self._answer(Call("patch_merge", kind, name, patch, uid)))

    async def delete(self, kind: str, namespace: str, name: str, uid: str, grace: int | None = None) -> Manifest:
        return dict(await self._answer(Call("delete", kind, name, uid=uid)))

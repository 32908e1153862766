"""`oci://<registry>/<repository>[:tag][@sha256:…]`: an OCI artifact, as `oras push` and its like leave it in a registry.

Spoken by hand over aiohttp, as bytes of a hub are. The Python package `oras` (0.2.43) knows the same protocol, but asks
without a time limit, repeats on its own for two minutes, shows an expired token again, cannot ask for a part of a blob, and
looks at no digest; docs/models-agent.md has the measurement. Tests push with the program `oras`.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from urllib.parse import urlencode, urlsplit

from ome_operator.storage.http import NONE, Direct, SourceUnauthorized, ranged, small
from ome_operator.storage.listing import Listing, Refused, RemoteFile, Unreachable, listing
from ome_operator.storage.oci_artifact import MANIFESTS, Reference, files

LIMIT = 4 * 1024 * 1024
"""Bytes of the largest manifest that registries have to take; no answer that is not a blob may be longer."""
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Registry(Direct):
    """One artifact of one registry."""

    def __init__(
        self,
        place: Reference,
        *,
        endpoint: str = "",
        credentials: str = "",
        shows: Callable[[str], None] = lambda address: None,
        private: Collection[str] | None = None,
    ) -> None:
        """`shows` raises Refused for an address that the credentials must not be sent to."""
        super().__init__(private)
        self._shows = shows
        self._place, self._endpoint = place, (endpoint or place.address).rstrip("/")
        self._credentials = credentials
        self._headers: Mapping[str, str] = NONE

    async def listing(self, revision: str) -> Listing:
        """All files of the manifest that `revision`, or what the URI says, stands for now; its digest is the revision."""
        wanted = revision or self._place.revision
        raw = await self._manifest(wanted)
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if wanted.startswith("sha256:") and digest != wanted:
            raise Unreachable("the registry sent another manifest than the one that was asked for")
        try:
            manifest = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise Unreachable("the registry sent a manifest that is no JSON") from error
        try:
            return listing(files(manifest if isinstance(manifest, dict) else {}), digest)
        except Refused as error:
            raise Refused(f"{self._reference(wanted)} cannot be used: {error}") from error

    async def _manifest(self, wanted: str) -> bytes:
        for _ in range(2):
            try:
                return await self._small(self._url(f"manifests/{wanted}"), {**self._headers, "Accept": ", ".join(MANIFESTS)})
            except SourceUnauthorized as error:
                await self._authorize(error.challenge)
            except Refused as error:
                raise self._hidden(wanted) from error
        raise self._hidden(wanted)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The blob's bytes from `start` up to, and without, `end`."""
        url = self._url(f"blobs/{file.hash}")
        try:
            async for data in ranged(self._open(), url, start, end, file.size, self._headers):
                yield data
            return
        except SourceUnauthorized as error:  # before the first byte: tokens of registries live for minutes
            await self._authorize(error.challenge)
        async for data in ranged(self._open(), url, start, end, file.size, self._headers):
            yield data

    async def _authorize(self, challenge: str) -> None:
        """Get what the registry wants to see: the credentials themselves, or a token that its realm gives for them."""
        scheme, _, rest = challenge.partition(" ")
        asked = dict(_PARAMETER.findall(rest))
        own = {"Authorization": f"Basic {self._credentials}"} if self._credentials else {}
        if scheme.lower() == "basic":
            if own:
                self._shows(self._endpoint)
            self._headers = own
            return
        realm = asked.get("realm", "")
        if scheme.lower() != "bearer" or urlsplit(realm).scheme not in ("https", urlsplit(self._endpoint).scheme):
            raise Refused(f"the registry {self._place.host} asks for an authentication that is not known here")
        if own:
            self._shows(realm)
        query = urlencode({key: asked[key] for key in ("service", "scope") if key in asked})
        try:
            answer = json.loads(await self._small(f"{realm}{'&' if '?' in realm else '?'}{query}", own))
            self._headers = {"Authorization": f"Bearer {answer.get('token') or answer['access_token']}"}
        except Refused as error:
            raise self._hidden(self._place.revision) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Unreachable("the registry's realm sent something that is no token") from error

    async def _small(self, url: str, headers: Mapping[str, str]) -> bytes:
        """A manifest or a token."""
        return await small(self._open(), url, LIMIT, headers)

    def _url(self, rest: str) -> str:
        return f"{self._endpoint}/v2/{self._place.repository}/{rest}"

    def _reference(self, revision: str) -> str:
        mark = "@" if ":" in revision else ":"
        return f"{self._place.host}/{self._place.repository}{mark}{revision}"

    def _hidden(self, revision: str) -> Refused:
        own = "those of spec.storage.key do not open it" if self._credentials else "spec.storage.key gives none"
        return Refused(f"the registry has no {self._reference(revision)}, or does not show it to us (credentials: {own})")

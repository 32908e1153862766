"""`oci://<registry>/<repository>[:tag][@sha256:…]`: an OCI artifact, as `oras push` and similar tools store it in a
registry.

The protocol is implemented here with aiohttp, as for hubs. The Python package `oras` (0.2.43) implements it too, but makes
requests without a time limit, retries for two minutes, sends an expired token again, does not support ranges of a blob, and
verifies no digest; docs/models-agent.md has the measurement. Tests push with the program `oras`.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from yarl import URL  # the class of URLs in the interface of aiohttp

from ome_operator.storage.addresses import HostRules
from ome_operator.storage.http import NO_HEADERS, Credential, HttpSource, SourceUnauthorized, read_range, read_small
from ome_operator.storage.listing import Listing, RemoteFile, RequestRefused, SourceUnreachable, make_listing
from ome_operator.storage.oci_artifact import MANIFESTS, Reference, artifact_files, is_revision
from ome_operator.util.json_limits import MIB, TooLarge, parse_untrusted
from ome_operator.util.untrusted_json import PARSE_ERRORS, text

LIMIT = 4 * 1024 * 1024
"""Maximum number of bytes of a response that is not a blob. Registries must accept manifests up to this size."""
MEMORY = 64 * MIB
"""Maximum bytes of memory while a response is parsed (`json_limits.parse_untrusted`)."""
_PARAMETER = re.compile(r'(?<!\w)(\w++)="([^"]*+)"')


class OciRegistry(HttpSource):
    """One artifact of one registry."""

    def __init__(
        self,
        reference: Reference,
        *,
        endpoint: str = "",
        credentials: str = "",
        check_secret: Callable[[str], None] = lambda address: None,
        reach: HostRules | None = None,
    ) -> None:
        """Initialize the source. `check_secret` raises RequestRefused for an address that must get no credentials.
        `endpoint` is the URL of the registry; "" for the host of the reference. `reach` states which addresses may be
        contacted; None permits every address.
        """
        super().__init__(reach)
        self._target, self._endpoint = reference, (endpoint or reference.address).rstrip("/")
        self._secret = Credential(f"Basic {credentials}", check_secret) if credentials else None
        self._credential: Credential | None = None
        """The credential that the registry asked for: the Secret itself, or a token."""

    async def listing(self, revision: str) -> Listing:
        """Return the files of a manifest: the manifest of `revision` if `revision` is not "", otherwise the manifest of the
        URI's revision. The revision of the listing is the manifest's digest.
        """
        wanted = revision or self._target.revision
        if not is_revision(wanted):
            raise RequestRefused(f"{wanted[:80]!r} is not a revision of a registry: write a tag or a digest")
        raw = await self._manifest(wanted)
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if wanted.startswith("sha256:") and digest != wanted:
            raise SourceUnreachable("the registry sent a manifest whose digest is not the requested one")
        try:
            files = parse_untrusted(
                raw,
                "its manifest",
                memory=MEMORY,
                extract=lambda manifest: artifact_files(manifest if isinstance(manifest, dict) else {}),
            )
            return make_listing(files, digest)._replace(shared_directory=True)
        except TooLarge as error:
            raise RequestRefused(f"{self._reference(wanted)} cannot be used: {error}") from error
        except ValueError as error:
            raise SourceUnreachable("the registry sent a manifest that is not JSON") from error
        except RequestRefused as error:
            raise RequestRefused(f"{self._reference(wanted)} cannot be used: {error}") from error

    async def _manifest(self, wanted: str) -> bytes:
        for _ in range(2):
            try:
                headers = {"Accept": ", ".join(MANIFESTS)}
                return await self._small(self._url(f"manifests/{wanted}"), headers, self._credential)
            except SourceUnauthorized as error:
                await self._authorize(error.challenge)
            except RequestRefused as error:
                raise self._hidden(wanted) from error
        raise self._hidden(wanted)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the blob's bytes from `start` up to, and excluding, `end`."""
        url = self._url(f"blobs/{file.hash}")
        try:
            async for data in read_range(self._open(), url, start, end, file.size, self._credential):
                yield data
            return
        except SourceUnauthorized as error:  # raised before the first byte: tokens of registries expire after minutes
            await self._authorize(error.challenge)
        async for data in read_range(self._open(), url, start, end, file.size, self._credential):
            yield data

    async def _authorize(self, challenge: str) -> None:
        """Store the credential that the registry requires: the Secret itself, or a token from the authentication server
        that `challenge` names.

        A token is guarded like the Secret that it was exchanged for: the endpoint has to be permitted before a token is
        requested, and the token is valid for pulling this repository only, whatever the challenge says.
        """
        scheme, _, rest = challenge.partition(" ")
        if self._secret is not None:
            self._secret.check(self._endpoint)
        if scheme.lower() == "basic":
            self._credential = self._secret
            return
        parameters = dict(_PARAMETER.findall(rest))
        address = self._token_address(parameters) if scheme.lower() == "bearer" else None
        if address is None:
            raise RequestRefused(f"the registry {self._target.host} requires an unsupported kind of authentication")
        if self._secret is not None:
            self._secret.check(str(address))
        try:
            answer = await self._small(str(address), NO_HEADERS, self._secret)
            token = Credential(f"Bearer {parse_untrusted(answer, 'its token', memory=MEMORY, extract=_token)}")
        except RequestRefused as error:
            raise self._hidden(self._target.revision) from error
        except PARSE_ERRORS as error:
            raise SourceUnreachable("the token server of the registry sent an invalid token") from error
        self._credential = self._secret._replace(header=token.header) if self._secret else token

    def _token_address(self, parameters: Mapping[str, str]) -> URL | None:
        """Return the URL at which a token for pulling this repository is requested; None if the realm in `parameters`, the
        parameters of a challenge, is not usable.
        """
        try:
            realm = URL(parameters.get("realm", "")).with_fragment(None)
            if realm.scheme not in ("https", URL(self._endpoint).scheme) or not realm.host:
                return None
        except ValueError:
            return None
        service = {"service": parameters["service"]} if "service" in parameters else {}
        return realm.update_query({**service, "scope": f"repository:{self._target.repository}:pull"})

    async def _small(self, url: str, headers: Mapping[str, str], credential: Credential | None) -> bytes:
        """Return the bytes of a manifest or a token. `credential` is None for a request without a credential."""
        return await read_small(self._open(), url, LIMIT, headers, credential)

    def _url(self, rest: str) -> str:
        return f"{self._endpoint}/v2/{self._target.repository}/{rest}"

    def _reference(self, revision: str) -> str:
        mark = "@" if ":" in revision else ":"
        return f"{self._target.host}/{self._target.repository}{mark}{revision}"

    def _hidden(self, revision: str) -> RequestRefused:
        credentials = "those in spec.storage.key give no access" if self._secret else "spec.storage.key contains none"
        return RequestRefused(
            f"the registry has no {self._reference(revision)}, or denies access (credentials: {credentials})"
        )


def _token(answer: Any) -> str:
    """Return the token in the response of a token server. Raises one of PARSE_ERRORS if the response contains no token."""
    return text(answer.get("token") or answer["access_token"])

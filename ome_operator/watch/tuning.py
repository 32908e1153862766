"""How kopf's streams of events are set up."""

from collections.abc import Mapping

import kopf

BACKOFFS = (0.2, 0.5, *[1.0] * 10, *[2.0] * 10, *[5.0] * 20)
"""A request of a watch is tried again for two minutes: an API server that restarts answers 403, 404 and 503 for some
seconds. After that the error ends the process, which is restarted and costs lists only."""


def tuned(server_timeout: int, selectors: Mapping[tuple[str, str, str], str]) -> kopf.OperatorSettings:
    """Every kopf setting that we rely on; `selectors` by group, version and plural, for a key of another spelling matches
    nothing, silently.
    """
    settings = kopf.OperatorSettings()
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = BACKOFFS
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = server_timeout
    settings.watching.client_timeout = server_timeout + 30.0
    settings.watching.inactivity_timeout = 70.0  # bookmarks come every minute; a silent connection is dead
    settings.watching.reconnect_backoff = 0.1
    settings.watching.chunk_size = 500
    for key, selector in selectors.items():
        settings.watching.label_selectors[key] = selector
    return settings

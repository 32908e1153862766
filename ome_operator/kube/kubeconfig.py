"""Read a kubeconfig, or find what is wrong with it, and say in one sentence which field of which file to correct.

The client library assumes the form of the file: most wrong values lead to exceptions that name neither file nor field, and
some are used as if they were right (`insecure-skip-tls-verify: "false"` switches the checks of certificates off).
"""

import base64
import binascii
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from ome_operator.errors import OmeError

SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""Maps a list of a kubeconfig to the field of its entries that contains the settings."""
STRINGS = {
    "cluster": (
        "server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url",
    ),
    "context": ("cluster", "user", "namespace"),
    "user": (
        "client-certificate", "client-certificate-data", "client-key", "client-key-data", "tokenFile", "username",
        "password",
    ),
}  # fmt: skip
"""Fields whose values are strings. A token may also be written as a number, because the client library sends it as text."""
PEM = ("certificate-authority", "client-certificate", "client-key")
"""Fields whose file contains PEM. The same fields with the suffix `-data` contain it in base64."""
SECRET = ("password", "client-key-data", "client-certificate-data", "certificate-authority-data")
"""Secret fields: error messages do not contain their values."""
FIXES = {
    "cluster": "write the address of the API server, such as https://10.0.0.1:6443",
    "proxy": "write the URL of a proxy, such as http://10.0.0.1:3128, or remove the field",
}


class _Entry(NamedTuple):
    """The settings of a cluster, a context or a user."""

    file: Path
    where: str
    """Path of the settings in the file, such as `clusters[0].cluster`."""
    settings: Mapping[str, Any]


class KubeconfigMistake(OmeError):
    """A part of a kubeconfig that cannot be used. The text is a sentence without a full stop."""


class Kubeconfig(NamedTuple):
    """The settings that a context uses."""

    content: dict[str, Any]
    """A kubeconfig that contains only this context, its cluster and its user. The names of files are absolute."""
    namespace: str
    """Namespace of the context; "" if the context names no namespace."""
    plugin: str
    """File and field that declare the plugin for credentials; "" if the context uses no plugin."""


def read_kubeconfig(path: Path, context: str | None) -> Kubeconfig:
    """Read and check the settings that a context of a kubeconfig uses.

    `path` is one file, or several files in the format of KUBECONFIG. If `context` is None, `current-context` is used.
    Raises KubeconfigMistake if the context cannot be used.
    """
    files = [Path(name).expanduser() for name in str(path).split(os.pathsep) if name]
    bodies = {file: _body(file) for file in files if file.exists()}
    if not bodies:
        raise KubeconfigMistake(f"{path} does not exist")
    entries = {section: _entries(bodies, section) for section in SECTIONS}
    chosen = _named(entries, "contexts", *_context(bodies, path, context))
    _strings(chosen, "context")
    cluster = _referred(entries, chosen, "cluster", "clusters")
    if cluster is None:
        raise KubeconfigMistake(f"{chosen.file}: {chosen.where}.cluster is missing: name an entry of clusters")
    _cluster(cluster)
    # The client library ignores the name of a user that does not exist.
    user = _referred(entries, chosen, "user", "users") if chosen.settings.get("user") in entries["users"] else None
    if user is not None:
        _user(user, secure=str(cluster.settings["server"]).startswith("https:"))
    content = {
        "current-context": "context",
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "clusters": [{"name": "cluster", "cluster": _with_absolute_names(cluster)}],
        "users": [{"name": "user", "user": _with_absolute_names(user) if user is not None else {}}],
    }
    plugin = f"{user.file}: {user.where}.exec" if user is not None and "exec" in user.settings else ""
    return Kubeconfig(content, chosen.settings.get("namespace") or "", plugin)


def _with_absolute_names(entry: _Entry) -> dict[str, Any]:
    """Return the settings with the names of files relative to the folder of the kubeconfig that contains them."""
    names = {field: entry.settings[field] for field in (*PEM, "tokenFile") if entry.settings.get(field)}
    return {**entry.settings, **{field: str(_file(entry, name)) for field, name in names.items()}}


def _file(entry: _Entry, name: str) -> Path:
    return Path(os.path.normpath(entry.file.absolute().parent / name))


def _body(file: Path) -> Mapping[str, Any]:
    """Return the parsed content of a kubeconfig file. Raises KubeconfigMistake if the file is not a YAML map."""
    again = "write the file again, for example with `ome kubeconfig`, or name another file"
    try:
        body = yaml.safe_load(file.read_text())
    except IsADirectoryError as error:
        raise KubeconfigMistake(f"{file} is a folder: name the kubeconfig in this folder") from error
    except OSError as error:
        raise KubeconfigMistake(f"{file} cannot be read ({error.strerror}): name a file that you may read") from error
    except UnicodeDecodeError as error:
        raise KubeconfigMistake(f"{file} is not a kubeconfig, because it is not a text: name another file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise KubeconfigMistake(f"{file} is not valid YAML{line}: correct it, or name another file") from error
    if body is None:
        raise KubeconfigMistake(f"{file} is empty: {again}")
    if not isinstance(body, Mapping):
        raise KubeconfigMistake(f"{file} is not a kubeconfig, because it contains {_form(body)} instead of fields: {again}")
    return body


def _entries(bodies: Mapping[Path, Mapping[str, Any]], section: str) -> dict[str, _Entry]:
    """Return the entries of a list of the kubeconfig (clusters, contexts or users) by name. If several files have an entry
    of the same name, the entry in the first file is used.
    """
    found: dict[str, _Entry] = {}
    for file, body in bodies.items():
        listed, here = body.get(section) or [], set()
        if not isinstance(listed, list):
            raise KubeconfigMistake(f"{file}: {section} is {_form(listed)}: write a list")
        for number, item in enumerate(listed):
            at, inner = f"{section}[{number}]", SECTIONS[section]
            if not isinstance(item, Mapping):
                raise KubeconfigMistake(f"{file}: {at} is {_form(item)}: write a map with name and {inner}")
            name, settings = item.get("name"), item.get(inner)
            if not isinstance(name, str):
                raise KubeconfigMistake(f"{file}: {at}.name {_is(name)}: write a string")
            if settings is not None and not isinstance(settings, Mapping):
                raise KubeconfigMistake(f"{file}: {at}.{inner} is {_form(settings)}: write a map of fields")
            if name in here:
                raise KubeconfigMistake(f"{file}: {section} has two entries with the name {name}: remove one of them")
            here.add(name)
            found.setdefault(name, _Entry(file, f"{at}.{inner}", settings or {}))
    return found


def _context(bodies: Mapping[Path, Mapping[str, Any]], path: Path, context: str | None) -> tuple[str, str]:
    """Return the place that names the context, and the name. The place is the option --context, or a file and its field
    current-context.
    """
    if context is not None:
        return f"{path}: --context", context
    named = [(file, body["current-context"]) for file, body in bodies.items() if "current-context" in body]
    file, found = named[-1] if named else (path, None)  # as in the client library, the last file counts
    if not isinstance(found, str) or not found:
        raise KubeconfigMistake(f"{file}: current-context {_is(found)}: name an entry of contexts, or pass --context")
    return f"{file}: current-context", found


def _named(entries: Mapping[str, Mapping[str, _Entry]], section: str, field: str, name: str) -> _Entry:
    """Return the entry of the list `section` with the name `name`. `field` is the file and the field that contain this name,
    for messages.
    """
    if name not in entries[section]:
        known = ", ".join(sorted(entries[section])[:8])
        what = f"write one of {known}" if known else f"add it to {section}, or name another file"
        raise KubeconfigMistake(f"{field} is {name}, and {section} has no entry with this name: {what}")
    return entries[section][name]


def _referred(entries: Mapping[str, Mapping[str, _Entry]], chosen: _Entry, field: str, section: str) -> _Entry | None:
    name = chosen.settings.get(field)
    return _named(entries, section, f"{chosen.file}: {chosen.where}.{field}", name) if name else None


def _cluster(entry: _Entry) -> None:
    _strings(entry, "cluster")
    place = f"{entry.file}: {entry.where}"
    server = entry.settings.get("server") or None
    _url(f"{place}.server", server, FIXES["cluster"])
    proxy, unchecked = entry.settings.get("proxy-url"), entry.settings.get("insecure-skip-tls-verify")
    if proxy:
        _url(f"{place}.proxy-url", proxy, FIXES["proxy"])
    if unchecked is not None and not isinstance(unchecked, bool):
        raise KubeconfigMistake(f"{place}.insecure-skip-tls-verify {_is(unchecked)}: write true or false, without quotes")
    if str(server).startswith("https:"):  # without TLS, nothing reads the certificates
        _contents(entry, "certificate-authority")


def _user(entry: _Entry, secure: bool) -> None:
    _strings(entry, "user")
    place, settings = f"{entry.file}: {entry.where}", entry.settings
    token = settings.get("token")
    if token is not None and not isinstance(token, str | int):
        raise KubeconfigMistake(f"{place}.token is {_form(token)}: write a string")
    for name in ("exec", "auth-provider"):
        if name in settings and not isinstance(settings[name], Mapping):
            raise KubeconfigMistake(f"{place}.{name} is {_form(settings[name])}: write a map of fields, or remove it")
    if "exec" in settings:
        _plugin(f"{place}.exec", settings["exec"])
    elif not token:
        _contents(entry, "tokenFile")
    if secure:
        for one, other in (("client-certificate", "client-key"), ("client-key", "client-certificate")):
            if _has(settings, one) and not _has(settings, other):
                raise KubeconfigMistake(
                    f"{place}.{one} is set without {other}: add {other}, or {other}-data, or remove {one}"
                )
            _contents(entry, one)


def _plugin(place: str, settings: Mapping[str, Any]) -> None:
    """Check the settings of a plugin for credentials. Raises KubeconfigMistake for the first mistake. `place` is the path of
    the settings in the kubeconfig, for the message.
    """
    for name in ("command", "apiVersion"):
        if not isinstance(settings.get(name), str) or not settings[name]:
            such = "client.authentication.k8s.io/v1" if name == "apiVersion" else "the name of the plugin's program"
            raise KubeconfigMistake(f"{place}.{name} {_is(settings.get(name))}: write {such}")
    args, variables = settings.get("args") or [], settings.get("env") or []
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise KubeconfigMistake(f"{place}.args {_is(args)}: write a list of strings")
    pairs = isinstance(variables, list) and all(
        isinstance(each, Mapping) and isinstance(each.get("name"), str) and isinstance(each.get("value"), str)
        for each in variables
    )
    if not pairs:
        raise KubeconfigMistake(f"{place}.env {_is(variables)}: write a list of entries with name and value, both strings")
    command, own = settings["command"], {each["name"]: each["value"] for each in variables}
    if shutil.which(command, path=own.get("PATH")) is None:
        raise KubeconfigMistake(
            f"{place}.command is {command}, which is not a program on this machine: install it, or correct the field"
        )


def _strings(entry: _Entry, kind: str) -> None:
    for field in STRINGS[kind]:
        value = entry.settings.get(field)
        if value is not None and not isinstance(value, str):
            found = f"is {_form(value)}" if field in SECRET else _is(value)
            raise KubeconfigMistake(f"{entry.file}: {entry.where}.{field} {found}: write a string, in quotes")


def _contents(entry: _Entry, field: str) -> None:
    """Check the certificate or the key in the file that `field` names, or in the field with the suffix `-data`, which
    replaces the file.
    """
    place, data = f"{entry.file}: {entry.where}.{field}", entry.settings.get(f"{field}-data")
    what = "a private key" if field == "client-key" else "a certificate"
    marker = b"PRIVATE KEY-----" if field == "client-key" else b"BEGIN CERTIFICATE-----"
    if data is not None and f"{field}-data" in entry.settings:
        fix = f"write {what} in PEM, encoded in base64"
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise KubeconfigMistake(f"{place}-data is not base64: {fix}") from error
        if data and marker not in content and b"BEGIN TRUSTED CERTIFICATE" not in content:
            raise KubeconfigMistake(f"{place}-data does not contain {what}: {fix}")
    elif entry.settings.get(field):
        file = _file(entry, entry.settings[field])
        try:
            content = file.read_bytes()
        except OSError as error:
            why = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
            raise KubeconfigMistake(f"{place} is {entry.settings[field]}, and {file} {why}: correct the path") from error
        if field in PEM and marker not in content and b"BEGIN TRUSTED CERTIFICATE" not in content:
            raise KubeconfigMistake(
                f"{place} is {entry.settings[field]}, and this file does not contain {what} in PEM: name another file"
            )


def _url(field: str, value: str | None, fix: str) -> None:
    try:
        url = urlsplit(value or "")
        fine = url.scheme in ("http", "https") and bool(url.hostname) and not set(url.netloc) & set(" \t\n")
        _ = url.port  # raises ValueError
    except ValueError:
        fine = False
    if not fine:
        raise KubeconfigMistake(f"{field} {_is(value)}: {fix}")


def _has(settings: Mapping[str, Any], field: str) -> bool:
    return bool(settings.get(field) or settings.get(f"{field}-data"))


def _is(value: Any) -> str:
    """Return `is missing`, `is empty`, or `is` with the value."""
    if value is None:
        return "is missing"
    if isinstance(value, str | int | float):
        return f"is {value}" if value != "" else "is empty"
    return f"is {_form(value)}"


def _form(value: Any) -> str:
    """Return a description of a value, such as its type, without its content, which may be a secret."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Mapping | list):
        return "a map" if isinstance(value, Mapping) else "a list"
    return "a text" if isinstance(value, str) else "a number" if isinstance(value, int | float) else "a date"

"""Hadoop's settings for hdfs-native (the HDFS client), and the name node's URL in the form that this client needs."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import orjson

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions

AUTHENTICATION, DEFAULT_FS, PROTECTION = (
    "hadoop.security.authentication", "fs.defaultFS", "dfs.data.transfer.protection",
)  # fmt: skip
REPLICATION, BLOCK_SIZE, UMASK = "dfs.replication", "dfs.blocksize", "fs.permissions.umask-mode"
_NUMBER, _BYTES, _OCTAL = re.compile("[0-9]{1,5}"), re.compile("([0-9]{1,18})([kmgt]?)", re.I), re.compile("0?[0-7]{3}")
LOGIN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
_CLIENT_KEY_TABLE = "KRB5_CLIENT_KTNAME"
"""Environment variable of Kerberos' library: it names the key table for logins of a process without a valid ticket."""
_CONF = "storage.hdfs.conf."
_NAME_NODES, _PORT = "dfs.ha.namenodes.", 8020
_RETRIES = {"max.attempts": "3", "sleep.base.millis": "100", "sleep.max.millis": "500"}
"""Settings of the client's own retries. Its defaults would take minutes, and `Attempts` already repeats requests."""


_XINCLUDE, _MAX_INCLUDES = "{http://www.w3.org/2001/XInclude}", 20
_VARIABLE, _MAX_SUBSTITUTIONS = re.compile(r"\$\{(?:env\.([^}:\-]+)(?:(:?-)([^}]*))?|([^{}$ ]+))\}"), 20


class NewFiles(NamedTuple):
    """Properties of a new file in HDFS: number of replicas, block size in bytes, and permission bits.

    If `replication` or `block_bytes` is None, the name node chooses it.
    """

    replication: int | None
    block_bytes: int | None
    permission: int


def hadoop_settings_of(options: StorageOptions) -> dict[str, str]:
    """Return Hadoop's settings by name: files and properties in the options override the files in HADOOP_CONF_DIR.

    The plugin's properties `storage.hdfs.conf.*` override the files that the options name. The properties' names are in
    lower case, as all names of options are. The result includes the settings in HADOOP_CONF_DIR, because hdfs-native
    itself replaces no variables, reads no included files, and allows no blanks in lists of name nodes.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    settings = {f"dfs.client.failover.{name}": value for name, value in _RETRIES.items()}
    for path in filter(None, (options.hdfs_core_site, options.hdfs_hdfs_site)):
        settings |= _settings_in(Path(path))
    own = {name.removeprefix(_CONF): value for name, value in options.rsm_config.items() if name.startswith(_CONF)}
    if (default := own.pop("fs.defaultfs", None)) is not None:
        own[DEFAULT_FS] = default
    settings |= own | dict(orjson.loads(options.hdfs_settings or "{}"))
    settings = _in_conf_dir() | settings
    settings = {name: _resolved(value, settings) for name, value in settings.items()}
    # Hadoop allows blanks in `nn1, nn2`, but the client takes them for a part of the name.
    return {name: "".join(value.split()) if name.startswith(_NAME_NODES) else value for name, value in settings.items()}


def default_file_system(given: str | None = None) -> str:
    """Return the URI of the file system for paths without a scheme (`fs.defaultFS`), which Spark's JVM uses, too.

    `given`, if not empty, takes precedence over the value in HADOOP_CONF_DIR, which Spark's launcher puts on the class
    path. Without both, the result is `file:///`.

    Raises:
        ConfigurationError: a file in HADOOP_CONF_DIR cannot be read.
    """
    in_files = _in_conf_dir() if not given and os.environ.get("HADOOP_CONF_DIR") else {}
    return given or _resolved(in_files.get(DEFAULT_FS, ""), in_files) or "file:///"


def set_client_key_table(options: StorageOptions) -> None:
    """Set the environment variable KRB5_CLIENT_KTNAME to the key table in the options, unless it is set already.

    The variable is for libraries in this process that have no option for a key table. Such a library logs in with the
    key table if the ticket cache has no valid ticket.
    """
    if options.hdfs_keytab is not None:
        path = Path(options.hdfs_keytab.removeprefix("FILE:")).absolute()
        os.environ.setdefault(_CLIENT_KEY_TABLE, f"FILE:{path}")


def new_files(settings: Mapping[str, str]) -> NewFiles:
    """Return the properties of new files by Hadoop's settings for replicas, block size and umask.

    Hadoop's own client applies these settings, but hdfs-native ignores them.

    Raises:
        ConfigurationError: a value is malformed.
    """

    def read(name: str, form: re.Pattern[str], known: str) -> re.Match[str] | None:
        if (value := settings.get(name)) is None:
            return None
        if (match := form.fullmatch(value.strip())) is None:
            raise ConfigurationError(f"{name} = {value!r} cannot be followed: write {known}")
        return match

    replication = read(REPLICATION, _NUMBER, "a number such as 3")
    block = read(BLOCK_SIZE, _BYTES, "a number of bytes such as 134217728 or 128m")
    umask = read(UMASK, _OCTAL, "an octal number such as 027")
    return NewFiles(
        replication and int(replication[0]),
        block and int(block[1]) << 10 * " kmgt".index(block[2].lower() or " "),
        0o666 & ~int(umask[0] if umask else "022", 8),
    )


def asks_for_kerberos(settings: Mapping[str, str]) -> bool:
    """Return whether the settings ask for a login by Kerberos or a delegation token."""
    return (settings.get(AUTHENTICATION) or "simple") != "simple"


def name_node_url(service: str, settings: Mapping[str, str]) -> str:
    """Return the URL of a name node with a port, and with the IP address if a delegation token has only that address.

    hdfs-native takes a host without a port for a name service. In Hadoop, the host is a name service only if
    `dfs.ha.namenodes.HOST` is set; otherwise it is a name node at port 8020. A host that cannot be resolved gets no
    port, so that the client's error says that there is no such name service.

    Hadoop names a token's name node by its IP address (`hadoop.security.token.service.use_ip`), and hdfs-native looks
    for a token with the text of its URL. So the URL must have the IP address if only the IP address is in the token.

    `service` is a URL without a path, such as `hdfs://namenode`. If it has no host, the default file system is meant.
    """
    place = urlsplit(service if urlsplit(service).netloc else settings.get(DEFAULT_FS, ""))
    host = place.netloc
    if place.scheme == "hdfs" and host and ":" not in host and _NAME_NODES + host not in settings:
        with suppress(OSError, UnicodeError):
            socket.gethostbyname(host)
            service = f"hdfs://{host}:{_PORT}"
            place = urlsplit(service)
    try:
        tokens = Path(os.environ[LOGIN_FILE]).read_bytes()
        name, port = place.hostname, place.port
        if name is None or port is None or f"{name}:{port}".encode() in tokens:
            return service
        addresses = socket.gethostbyname_ex(name)[2]
    except (KeyError, OSError, ValueError):  # the client says what is wrong with the URL or the login
        return service
    known = (each for each in addresses if f"{each}:{port}".encode() in tokens)
    return next((f"{place.scheme}://{each}:{port}" for each in known), service)


def conf_dir_advice() -> str:
    """Return advice about HADOOP_CONF_DIR for an error about a missing setting, without a period at the end."""
    if folder := os.environ.get("HADOOP_CONF_DIR"):
        files = ", ".join(file.name for file in _files_in_conf_dir()) or "neither core-site.xml nor hdfs-site.xml"
        return f"HADOOP_CONF_DIR is {folder}, which has {files}: add the settings of this name service there"
    return "Set HADOOP_CONF_DIR to the folder of core-site.xml and hdfs-site.xml"


def _files_in_conf_dir() -> list[Path]:
    """Return the files with settings in HADOOP_CONF_DIR; a file overrides the files after it.

    Without HADOOP_CONF_DIR, the folder is `etc/hadoop` in HADOOP_HOME.
    """
    home = os.environ.get("HADOOP_HOME")
    folder = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    files = [Path(folder, file) for file in ("hdfs-site.xml", "core-site.xml")] if folder else []
    return [file for file in files if file.is_file()]


def _in_conf_dir() -> dict[str, str]:
    """Return the settings in the files of HADOOP_CONF_DIR, by name; variables in the values are not replaced."""
    return {name: value for file in reversed(_files_in_conf_dir()) for name, value in _settings_in(file).items()}


def _settings_in(file: Path) -> Mapping[str, str]:
    try:
        return dict(_pairs_in(ElementTree.parse(file).getroot(), file, _MAX_INCLUDES))
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigurationError(f"the file {file} with settings of Hadoop cannot be read: {error}") from error


def _pairs_in(element: ElementTree.Element, file: Path, left: int) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the settings below an XML element of `file`, in order (Hadoop: `Configuration.Parser`).

    The settings of an included file stand in place of the element that includes it. `left` is the number of levels of
    included files that are still allowed.

    Raises:
        ConfigurationError: a file is included that is not local, or too many levels deep.
        OSError, ElementTree.ParseError: an included file cannot be read.
    """
    for each in element:
        if each.tag == f"{_XINCLUDE}include":
            yield from _included(each, file, left)
        elif each.tag != "property":
            yield from _pairs_in(each, file, left)
        elif (name := each.findtext("name")) and (value := each.findtext("value")):
            yield name.strip(), value.strip()


def _included(include: ElementTree.Element, file: Path, left: int) -> Iterator[tuple[str, str]]:
    reference = include.get("href") or ""
    place = urlsplit(reference)
    path = Path(file.parent, unquote(place.path))
    if place.scheme not in ("", "file") or not reference or not left:
        raise ConfigurationError(
            f"the file {file} with settings of Hadoop includes {reference[:200]!r}: name a file, at most "
            f"{_MAX_INCLUDES} levels deep"
        )
    fallback = include.find(f"{_XINCLUDE}fallback")
    if fallback is not None and not path.is_file():
        yield from _pairs_in(fallback, file, left)
    else:
        yield from _pairs_in(ElementTree.parse(path).getroot(), path, left - 1)


def _resolved(value: str, settings: Mapping[str, str]) -> str:
    """Return a value with its variables replaced, as Hadoop does (`Configuration.substituteVars`).

    A variable is another setting, `user.name`, `user.home`, or `env.NAME` with a default after `-` or `:-`. A variable
    without a value stays as it is.
    """
    for _ in range(_MAX_SUBSTITUTIONS):
        replaced = _VARIABLE.sub(lambda match: _value_of(match, settings), value)
        if replaced == value:
            break
        value = replaced
    return value


def _value_of(match: re.Match[str], settings: Mapping[str, str]) -> str:
    variable, operator, default, name = match.groups()
    if variable is not None:
        found = os.environ.get(variable)
        is_set = bool(found) if operator == ":-" else found is not None
        return str(found) if is_set else match[0] if default is None else default
    with suppress(KeyError, OSError, RuntimeError):  # the system knows no name or no home of this process's user
        if name == "user.name":
            return getpass.getuser()
        if name == "user.home":
            return str(Path.home())
    return settings.get(name, match[0])

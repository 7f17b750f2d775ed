"""The operator's own settings, read from the environment and from flags, with every fault reported at once.

It does not know what the settings are used for.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rampway_operator.core.promql import PodLabels
from rampway_operator.errors import SettingsError

__all__ = ["OWN_NAMESPACE_FILE", "PrometheusSettings", "Settings", "read_settings"]

OWN_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
ALL_NAMESPACES = "*"
LOG_FORMATS = ("json", "console")
LOG_LEVELS = ("debug", "info", "warning", "error")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SOURCE_KEYS: Final = frozenset(
    {"name", "url", "tokenFile", "caFile", "namespaceLabel", "podLabel", "matchers"}
)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """One Prometheus that InferenceDeployments may name as their metrics source."""

    name: str
    url: str
    """Base address, http or https, up to where `/api/v1` begins."""
    token_file: str = ""
    """File with a bearer token, read for each query; empty: none is sent."""
    ca_file: str = ""
    """Certificates that an https address must chain up to; empty: the system's."""
    labels: PodLabels = field(default_factory=PodLabels)


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process runs."""

    namespaces: tuple[str, ...]
    """Namespaces served; empty means all of them."""
    lease_name: str
    lease_namespace: str
    identity: str
    """Name of this process in the Lease; unique for each start."""
    http_port: int = 8080
    """Port of /livez, /readyz and /metrics; 0 takes a free one."""
    log_format: str = "json"
    log_level: str = "info"
    prometheus: tuple[PrometheusSettings, ...] = ()
    """Metrics sources that InferenceDeployments may name."""
    kubeconfig: str | None = None
    """Path of a kubeconfig; None inside a cluster, or to use KUBECONFIG and then ~/.kube/config."""


def read_settings(
    environ: Mapping[str, str],
    *,
    flags: Mapping[str, str | None] | None = None,
    namespace_file: Path = OWN_NAMESPACE_FILE,
) -> Settings:
    """Settings from `RAMPWAY_*` variables; a flag of the same name without the prefix wins.

    Raises SettingsError with every fault in one line.
    """
    reader = _Reader(environ, flags or {})
    own = _own_namespace(namespace_file)
    namespaces = reader.namespaces(own)
    settings = Settings(
        namespaces=namespaces,
        lease_name=reader.named("LEASE_NAME", "rampway-operator", _LEASE_NAME),
        lease_namespace=reader.named("LEASE_NAMESPACE", _lease_home(own, namespaces), _NAME),
        identity=reader.text("IDENTITY", f"{socket.gethostname()}_{secrets.token_hex(4)}"),
        http_port=reader.port("HTTP_PORT", 8080),
        log_format=reader.choice("LOG_FORMAT", "json", LOG_FORMATS),
        log_level=reader.choice("LOG_LEVEL", "info", LOG_LEVELS),
        prometheus=reader.prometheus(),
        kubeconfig=reader.file("KUBECONFIG"),
    )
    if reader.faults:
        raise SettingsError("; ".join(reader.faults))
    return settings


def _own_namespace(namespace_file: Path) -> str | None:
    try:
        return namespace_file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _is_base_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and not parts.query
            and not parts.fragment
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        return False


def _lease_home(own: str | None, namespaces: tuple[str, ...]) -> str:
    """Where the Lease lives unless told: beside the operator, else in the first namespace served."""
    return own or (namespaces[0] if namespaces else "default")


class _Reader:
    """Reads one value after the other and keeps what is wrong with them."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, str | None]) -> None:
        self.environ = environ
        self.flags = flags
        self.faults: list[str] = []

    def text(self, name: str, default: str) -> str:
        flag = self.flags.get(name)
        return flag if flag is not None else self.environ.get(f"RAMPWAY_{name}", "") or default

    def fault(self, name: str, got: str, need: str) -> None:
        self.faults.append(f"RAMPWAY_{name}: got {got!r}, need {need}")

    def named(self, name: str, default: str, pattern: re.Pattern[str]) -> str:
        value = self.text(name, default)
        if not pattern.fullmatch(value):
            self.fault(name, value, "a Kubernetes name: lower case letters, digits and dashes")
        return value

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name, default).lower()
        if value not in allowed:
            self.fault(name, value, f"one of {', '.join(allowed)}")
        return value

    def port(self, name: str, default: int) -> int:
        value = self.text(name, str(default))
        if value.isascii() and value.isdigit() and int(value) <= 65535:
            return int(value)
        self.fault(name, value, "a TCP port from 0 (any free one) to 65535")
        return default

    def file(self, name: str) -> str | None:
        value = self.text(name, "")
        if value and not Path(value).is_file():
            self.fault(name, value, "the path of an existing file")
        return value or None

    def prometheus(self) -> tuple[PrometheusSettings, ...]:
        """A JSON list of objects with `name` and `url` and the optional keys of _SOURCE_KEYS."""
        value = self.text("PROMETHEUS", "[]")
        try:
            listed = json.loads(value)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
            self.fault("PROMETHEUS", value[:80], "a JSON list of objects with name and url")
            return ()
        names = [str(item.get("name")) for item in listed]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.fault("PROMETHEUS", name, "each name once")
        return tuple(self._source(item) for item in listed)

    def _source(self, item: dict[str, Any]) -> PrometheusSettings:
        texts = {key: item.get(key, "") for key in sorted(_SOURCE_KEYS - {"matchers"})}
        matchers = item.get("matchers", {})
        for key in sorted(item.keys() - _SOURCE_KEYS):
            self.fault("PROMETHEUS", str(key), f"only the keys {', '.join(sorted(_SOURCE_KEYS))}")
        for key in sorted(key for key, text in texts.items() if not isinstance(text, str)):
            self.fault("PROMETHEUS", f"{key} {texts[key]!r}", "text")
            texts[key] = ""
        if not isinstance(matchers, dict) or not all(
            isinstance(text, str) for text in matchers.values()
        ):
            self.fault("PROMETHEUS", f"matchers {matchers!r}", "an object of labels and texts")
            matchers = {}
        if not _NAME.fullmatch(texts["name"]):
            self.fault(
                "PROMETHEUS", f"name {texts['name']!r}", "lower case letters, digits, dashes"
            )
        if not _is_base_address(texts["url"]):
            self.fault(
                "PROMETHEUS",
                f"url {texts['url']!r}",
                "http(s)://host without user, query or fragment",
            )
        labels = PodLabels(
            texts["namespaceLabel"] or "namespace",
            texts["podLabel"] or "pod",
            tuple(sorted(matchers.items())),
        )
        for label in (labels.namespace, labels.pod, *matchers):
            if not _LABEL.fullmatch(label):
                self.fault("PROMETHEUS", f"label {label!r}", "letters, digits and underscores")
        return PrometheusSettings(
            texts["name"], texts["url"], texts["tokenFile"], texts["caFile"], labels
        )

    def namespaces(self, own: str | None) -> tuple[str, ...]:
        value = self.text("NAMESPACES", "")
        names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if names == (ALL_NAMESPACES,):
            return ()
        if not names and own is None:
            self.fault(
                "NAMESPACES", value, "a comma list or * when not running inside a cluster's pod"
            )
        for bad in (name for name in names if not _NAME.fullmatch(name)):
            self.fault("NAMESPACES", bad, "names of namespaces, or * alone for all")
        return names or ((own,) if own else ())

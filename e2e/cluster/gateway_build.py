"""Puts together what Traefik is built from: committed modules and two changed copies of public ones.

Traefik asks for three modules that are not served: a part of its own repository that only its authors
have, and forks of two others. Small stand-ins take their places; what serves HTTP routes is untouched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from cluster.commands import run
from cluster.layout import cache_folder
from cluster.versions import SOURCES

__all__ = ["assemble", "crds_folder", "keep_crds"]

FOLDER = SOURCES / "traefik"
ORIGINALS = {
    "lego": "github.com/go-acme/lego/v5",
    "httpauth": "github.com/abbot/go-http-auth",
}
"""Folder in the build to the module that it is a changed copy of; originals/go.sum verifies them."""
REMEDY = "read the lines above; run the same command again"


def crds_folder() -> Path:
    """The Gateway API's definitions of exactly the version that Traefik was built with."""
    return cache_folder() / "cluster" / "gateway-api"


def assemble(target: Path, env: Mapping[str, str]) -> Path:
    """The module to build, made anew in `target`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(FOLDER, target, ignore=shutil.ignore_patterns("changed", "originals"))
    for name, module in ORIGINALS.items():
        listing = ["go", "mod", "download", "-json", module]
        answer = run(listing, remedy=REMEDY, timeout_s=600, cwd=FOLDER / "originals", env=env)
        shutil.copytree(json.loads(answer)["Dir"], target / name)
        run(["chmod", "-R", "u+w", target / name], remedy=REMEDY)
    for provider in (target / "lego" / "providers" / "dns").iterdir():
        if provider.is_dir():
            shutil.rmtree(provider)  # a hundred clouds' clients for certificates by DNS
    shutil.copytree(FOLDER / "changed", target, dirs_exist_ok=True)
    return target


def keep_crds(module: Path, env: Mapping[str, str]) -> None:
    """Copies the definitions out of Go's cache before it is deleted."""
    listing = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"]
    found = Path(run(listing, remedy=REMEDY, cwd=module, env=env).strip())
    shutil.rmtree(crds_folder(), ignore_errors=True)
    crds_folder().mkdir(parents=True)
    for file in (found / "config" / "crd" / "standard").glob("*.yaml"):
        (crds_folder() / file.name).write_bytes(file.read_bytes())

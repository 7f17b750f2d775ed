"""The command line: `python -m cluster up|load|images|build|down|status|env`.

It parses and prints; every command is one call into another module.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from cluster import engines, gateway, gobuild, images, lifecycle, loading, prerequisites, processes
from cluster.commands import run
from cluster.errors import ClusterError
from cluster.layout import INDEXES, Layout, bin_folder
from cluster.versions import BINARIES, GATEWAY_BINARIES, Binary


def main(argv: Sequence[str]) -> int:
    """Runs one command; 0 when done, 1 with one line and a remedy, 130 after Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        status: int | None = arguments.command(arguments)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"error: {error.filename or 'the machine'} refuses: {error.strerror or error}\n"
            "  remedy: check rights and free space there; HOME must be writable",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return status or 0


def _build(arguments: argparse.Namespace) -> None:
    gobuild.build(_programs(gateway=arguments.with_gateway))


def _programs(*, gateway: bool) -> tuple[Binary, ...]:
    return BINARIES + (GATEWAY_BINARIES if gateway else ())


def _up(arguments: argparse.Namespace) -> None:
    prerequisites.require_root_on_linux()
    prerequisites.refuse_kubernetes_node()
    prerequisites.ensure_programs(prerequisites.CLUSTER_PROGRAMS)
    known = lifecycle.settings_of(Layout(arguments.name))
    wants_gateway = arguments.with_gateway or bool(known and known.gateway)
    gobuild.build(_programs(gateway=wants_gateway))
    asked = lifecycle.Settings(
        arguments.index or 0, node=not arguments.control_plane, audit=arguments.audit_log,
        gateway=arguments.with_gateway,
    )  # fmt: skip
    index = known.index if known and arguments.index is None else asked.index
    lifecycle.up(Layout(arguments.name, index), asked)


def _down(arguments: argparse.Namespace) -> None:
    prerequisites.require_root_on_linux()
    lifecycle.down(Layout(arguments.name))


def _load(arguments: argparse.Namespace) -> None:
    loading.load(_running(arguments), engines.choose(), arguments.image)


def _status(arguments: argparse.Namespace) -> int:
    layout = _running(arguments)
    settings = lifecycle.settings_of(layout)
    assert settings
    for name in processes.recorded(layout):
        state = "runs" if processes.lives(layout, name) else "DEAD"
        print(f"{name:24} {state:5} {layout.log(name)}")
    if reason := lifecycle.missing(layout, settings):
        print(f"cluster {layout.name} does not serve: {reason}")
        return 1
    print(f"cluster {layout.name} serves at {layout.api_url}")
    get = ["get", "nodes,pods", "--all-namespaces"]
    kubectl = [str(bin_folder() / "kubectl"), f"--kubeconfig={layout.kubeconfig()}"]
    print(run([*kubectl, *get], remedy="see the API server's log"), end="")
    return 0


def _env(arguments: argparse.Namespace) -> None:
    layout = _running(arguments)
    values = {
        "KUBECONFIG": str(layout.kubeconfig()),
        "NODE_IP": layout.node_ip,
        "HOST_IP": layout.host_ip,
    }
    settings = lifecycle.settings_of(layout)
    if settings and settings.gateway:
        values["GATEWAY"] = gateway.url(layout)
    if layout.audit_log.exists():
        values["AUDIT_LOG"] = str(layout.audit_log)
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")
    print(f"export PATH={shlex.quote(str(bin_folder()))}:$PATH")


def _images_build(arguments: argparse.Namespace) -> None:
    for tag in images.build(arguments.what, base_image_name=arguments.base_image):
        print(tag)


def _images_list(_: argparse.Namespace) -> None:
    engine = engines.choose()
    for name in images.PLAIN:
        tag = images.parse(name).tag
        found = engine.image_id(tag)
        print(f"{name:12} {tag:40} {found[:19] if found else 'not built'}")


def _running(arguments: argparse.Namespace) -> Layout:
    prerequisites.require_root_on_linux()
    settings = lifecycle.settings_of(Layout(arguments.name))
    if settings is None:
        raise ClusterError(
            f"cluster {arguments.name} is not up", f"python -m cluster up --name {arguments.name}"
        )
    return Layout(arguments.name, settings.index)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, function: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(command=function)
        return added

    build = command("build", _build, "build the programs (13 min from nothing, 0 s when built)")
    up = command("up", _up, "build what is missing and start; does nothing when all is well")
    up.add_argument("--control-plane", action="store_true", help="API server only, no node")
    for added in (build, up):
        added.add_argument(
            "--with-gateway", action="store_true", help="Traefik and the Gateway API, too"
        )
    up.add_argument("--audit-log", action="store_true", help="record every write, see `env`")
    up.add_argument(
        "--index", type=int, choices=INDEXES, help="subnets to use; default 0, or as it runs"
    )
    down = command("down", _down, "stop everything and remove every trace")
    load = command("load", _load, "load built images into the node")
    load.add_argument("image", nargs="+", help="full name, such as localhost/rampway/operator:dev")
    status = command("status", _status, "what runs, where the logs are, what the cluster holds")
    env = command("env", _env, "shell lines: eval $(python -m cluster env)")
    for added in (up, down, load, status, env):
        added.add_argument("--name", default="rw", help="default rw; several run side by side")
    _add_images(command("images", None, "build the project's images and list them"))
    return parser


def _add_images(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="command")
    build = commands.add_parser("build", help="build images with docker or buildah")
    build.add_argument("what", nargs="+", help=images.GRAMMAR)
    build.add_argument("--base-image", default="", help="default: chosen for this machine")
    build.set_defaults(command=_images_build)
    listing = commands.add_parser("list", help="which images are built")
    listing.set_defaults(command=_images_list)

"""Describes the node: containerd, kubelet, kube-proxy, the pod network and the pause image.

It starts nothing but the import of the pause image; `lifecycle` does the rest.
"""

from __future__ import annotations

import hashlib
import json

from cluster.commands import run, succeeds
from cluster.errors import ClusterError
from cluster.layout import Layout, bin_folder
from cluster.prerequisites import cni_folder
from cluster.processes import Daemon
from cluster.sharing import tar_of

PAUSE_IMAGE = "localhost/pause:1"


def write_files(layout: Layout) -> None:
    """Writes the configuration that the node's daemons read at their start."""
    (layout.state / "cni").mkdir(parents=True, exist_ok=True)
    layout.sockets.mkdir(parents=True, exist_ok=True)
    network = json.dumps(pod_network(layout), indent=1)
    (layout.state / "cni" / "10-pods.conflist").write_text(network)
    (layout.state / "containerd.toml").write_text(containerd_config(layout))
    (layout.state / "kubelet.json").write_text(json.dumps(kubelet_config(layout), indent=1))


def pod_network(layout: Layout) -> dict[str, object]:
    """The CNI configuration.

    `ptp`, not `bridge`: every packet between pods is routed, so a Service's reply is always
    translated back, also on kernels without br_netfilter.
    """
    ipam = {
        "type": "host-local",
        "dataDir": str(layout.state / "ipam"),
        "ranges": [[{"subnet": layout.node_pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}]
    return {"cniVersion": "1.0.0", "name": layout.netns, "plugins": plugins}


def containerd_config(layout: Layout) -> str:
    """The container runtime's configuration; containerd 1.6 reads it, 2.x migrates it."""
    folder = cni_folder()
    if folder is None:
        raise ClusterError(
            "network plugins are not installed", "apt-get install containernetworking-plugins"
        )
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE (many sandboxes) every pod would die with
    # "can't get final child's PID from pipe".
    return f"""\
version = 2
root = "{layout.state}/containerd"
state = "{layout.sockets}/containerd"
[grpc]
  address = "{layout.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    discard_unpacked_layers = true
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{layout.sockets}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}"
    conf_dir = "{layout.state}/cni"
"""


def kubelet_config(layout: Layout) -> dict[str, object]:
    """The kubelet's configuration; all its files stay in the cluster's folders."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [layout.dns_ip],
        "resolvConf": "",
        "podLogsDir": str(layout.state / "pod-logs"),
        "volumePluginDir": str(layout.state / "volume-plugins"),
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
        },
        # Images come by `load`, not from a registry: one that is deleted never returns.
        "imageGCHighThresholdPercent": 100,
    }


def containerd(layout: Layout) -> Daemon:
    """The container runtime, with a store of its own."""
    return Daemon("containerd", ("containerd", "--config", str(layout.state / "containerd.toml")))


def kubelet(layout: Layout) -> Daemon:
    """The kubelet of the only node, node-0."""
    return Daemon(
        "kubelet",
        (
            str(bin_folder() / "kubelet"),
            f"--config={layout.state / 'kubelet.json'}",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
            f"--root-dir={layout.state / 'kubelet'}",
            f"--cert-dir={layout.state / 'kubelet' / 'pki'}",
            "--hostname-override=node-0",
            f"--node-ip={layout.node_ip}",
        ),
    )


def kube_proxy(layout: Layout) -> Daemon:
    """Services, by nftables rules inside the namespace."""
    return Daemon(
        "kube-proxy",
        (
            str(bin_folder() / "kube-proxy"),
            f"--kubeconfig={layout.kubeconfig('kube-proxy')}",
            "--hostname-override=node-0",
            f"--cluster-cidr={layout.pod_subnet}",
            "--proxy-mode=nftables",
            "--conntrack-max-per-core=0",
            "--metrics-bind-address=127.0.0.1:10249",
        ),
    )


def containerd_missing(layout: Layout) -> str:
    """What keeps containerd from serving; empty when nothing does."""
    if succeeds(["ctr", "-a", layout.containerd_socket, "version"]):
        return ""
    return "containerd does not answer"


def ensure_pause_image(layout: Layout) -> None:
    """Imports the image of every pod's first process; made by hand, so no builder is needed."""
    ctr = ["ctr", "-a", str(layout.containerd_socket), "-n", "k8s.io", "images"]
    if PAUSE_IMAGE not in run([*ctr, "ls", "-q"], remedy="see containerd's log").split():
        archive = pause_archive((bin_folder() / "pause").read_bytes())
        run([*ctr, "import", "-"], stdin=archive, remedy="see containerd's log")


def pause_archive(program: bytes) -> bytes:
    """A Docker archive of one image with one layer with one file."""
    layer = tar_of({"pause": program}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    )
    entry = {"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}
    files = {
        "manifest.json": json.dumps([entry]).encode(),
        "config.json": config.encode(),
        "layer.tar": layer,
    }
    return tar_of(files)

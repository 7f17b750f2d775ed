"""The Kubernetes kinds that the operator reads or writes, and where the API serves them.

It does not know what is done with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "BY_KIND",
    "CONFIG_MAPS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "HTTP_ROUTES",
    "INFERENCE_DEPLOYMENTS",
    "LEASES",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "REPLICA_SETS",
    "SERVICES",
    "Resource",
]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of namespaced object."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """As written in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of an object, or of all objects of a namespace; an empty namespace means all."""
        root = f"/apis/{self.group}" if self.group else "/api"
        home = f"/namespaces/{namespace}" if namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/{self.version}{home}/{self.plural}{tail}"


INFERENCE_DEPLOYMENTS: Final = Resource(
    "rampway.dev", "v1alpha1", "inferencedeployments", "InferenceDeployment"
)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
PODS: Final = Resource("", "v1", "pods", "Pod")
SERVICES: Final = Resource("", "v1", "services", "Service")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POD_DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
HTTP_ROUTES: Final = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")

BY_KIND: Final[dict[str, Resource]] = {
    resource.kind: resource
    for resource in (
        REPLICA_SETS,
        PODS,
        SERVICES,
        CONFIG_MAPS,
        POD_DISRUPTION_BUDGETS,
        HTTP_ROUTES,
    )
}
"""What an action may create or delete, by its kind."""

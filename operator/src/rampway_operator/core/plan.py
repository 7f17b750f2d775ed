"""What is to be done now so that the cluster becomes what the stored state wants.

It works on `observed.state` alone, never on what this tick decides: whatever it plans was stored before,
so a crash between any two actions is healed by planning again. Converged means an empty plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rampway_operator.core import objects
from rampway_operator.core.actions import (
    Action,
    ClearCommand,
    CreateObject,
    DeletePod,
    LabelPod,
    PatchPodDisruptionBudget,
    PatchReplicaSet,
    PatchReport,
    SendSmoke,
    SendWarmup,
)
from rampway_operator.core.check_report import digest, reports_by_node
from rampway_operator.core.cleanup import clean_up, is_stale
from rampway_operator.core.config_refs import copy_name, missing_configs
from rampway_operator.core.observed import Arm, CheckState, Observed, Pool, ReplicaSet
from rampway_operator.core.rotation import Rotation
from rampway_operator.core.scaling import Sizes, sizes
from rampway_operator.core.spec import PreflightMode, Spec
from rampway_operator.core.state import Phase, Revision
from rampway_operator.core.status_text import short
from rampway_operator.core.tick import Tick, look
from rampway_operator.core.view import candidate_hash, find_set

__all__ = ["plan"]

KEPT_COST, FREE_COST = 100, -100
"""Scale-down takes the pods with the lowest cost first: those out of rotation."""


def plan(spec: Spec, observed: Observed, *, now: datetime) -> tuple[Action, ...]:
    """The actions of this tick, in order: names first, then traffic, then pods, then what is left over.

    Nothing is planned for a name that belongs to someone else.
    """
    tick = look(spec, observed, observed.state, now)
    rotation = tick.rotation()
    wanted = sizes(spec, observed, rotation, now)
    return (
        *_clear_command(observed),
        *_create(tick, wanted),
        *_label(tick, rotation),
        *_resize(tick, wanted),
        *_report_checks(tick),
        *_replace_pods(tick),
        *_budget(tick),
        *_probe(tick),
        *clean_up(tick),
    )


def _clear_command(observed: Observed) -> Iterator[Action]:
    last = observed.state.last_command
    if observed.command and last is not None and last.id == short(observed.command):
        yield ClearCommand(observed.command)


def _create(tick: Tick, wanted: Sizes) -> Iterator[Action]:
    observed, state = tick.observed, tick.state
    if state.stable is None and state.rollout is None:
        return
    yield from _service(tick, observed.name)
    preview = objects.preview_name(observed.name)
    if tick.spec.blue_green is not None and preview not in observed.services:
        yield from _new(observed, "Service", objects.preview_service(tick.spec, observed))
    if state.stable is not None:
        yield from _revision(tick, state.stable, Arm.STABLE, wanted.stable)
        source = find_set(observed, state.stable.hash, Pool.MAIN)
        missing = find_set(observed, state.stable.hash, Pool.BASELINE) is None
        if wanted.baseline and missing and source is not None and source.template:
            yield from _service(tick, state.stable.hash, Pool.BASELINE)
            manifest = objects.baseline_set(observed, source, state.stable, wanted.baseline)
            yield from _new(observed, "ReplicaSet", manifest)
    if candidate_hash(state) is not None and state.phase is not Phase.ROLLING_BACK:
        yield from _revision(tick, tick.rollout.candidate, Arm.CANDIDATE, wanted.candidate)


def _revision(tick: Tick, revision: Revision, arm: Arm, replicas: int) -> Iterator[Action]:
    """Service, check_env and ReplicaSet of a revision; only what the spec still describes can be made."""
    observed = tick.observed
    yield from _service(tick, revision.hash)
    existing = find_set(observed, revision.hash, Pool.MAIN)
    if existing is not None or revision.hash != observed.spec_hash:
        return
    if missing_configs(tick.spec, observed):
        return
    name = objects.child_name(observed.name, revision.hash)
    if tick.spec.preflight.mode is not PreflightMode.OFF and name not in observed.config_maps:
        yield from _new(observed, "ConfigMap", objects.check_env_map(observed, revision.hash))
    for ref in tick.spec.config_refs:
        if copy_name(name, ref.name) not in observed.config_maps:
            yield from _new(
                observed, "ConfigMap", objects.config_copy(observed, revision.hash, ref.name)
            )
    avoided = tick.rollout.avoided_nodes if arm is Arm.CANDIDATE else ()
    manifest = objects.replica_set(
        tick.spec,
        observed,
        revision,
        replicas=replicas,
        arm=arm,
        in_rotation=arm is Arm.STABLE,
        avoided_nodes=avoided,
    )
    yield from _new(observed, "ReplicaSet", manifest)


def _service(tick: Tick, of: str, pool: Pool = Pool.MAIN) -> Iterator[Action]:
    observed = tick.observed
    alias = of == observed.name
    name = of if alias else objects.child_name(observed.name, of, pool)
    if name in observed.services:
        return
    manifest = (
        objects.alias_service(tick.spec, observed)
        if alias
        else objects.revision_service(tick.spec, observed, of, pool)
    )
    yield from _new(observed, "Service", manifest)


def _new(observed: Observed, kind: str, manifest: dict[str, object]) -> Iterator[Action]:
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict), "every manifest has metadata"
    if f"{kind}/{metadata['name']}" not in observed.foreign:
        yield CreateObject(kind, metadata["name"], manifest)


def _label(tick: Tick, rotation: Rotation) -> Iterator[Action]:
    """Rotation by pod: those that enter before those that leave, so that no moment lacks endpoints."""
    parts, changes = tick.arms, []
    arms = (
        *((p, Arm.STABLE) for p in parts.stable),
        *((p, Arm.CANDIDATE) for p in parts.candidate),
        *((p, Arm.BASELINE) for p in parts.baseline),
        *((p, p.arm or Arm.STABLE) for p in parts.retired),
    )
    for pod, arm in arms:
        inside = pod.name in rotation.names
        if pod.in_rotation != inside or pod.arm is not arm:
            cost = KEPT_COST if inside else FREE_COST
            changes.append(LabelPod(pod.name, pod.resource_version, arm, inside, cost))
    yield from sorted(changes, key=lambda change: not change.in_rotation)


def _resize(tick: Tick, wanted: Sizes) -> Iterator[Action]:
    state, observed = tick.state, tick.observed
    if state.stable is not None:
        found = find_set(observed, state.stable.hash, Pool.MAIN)
        if found is not None:
            yield from _patch(found, wanted.stable, Arm.STABLE, in_rotation=True)
        copies = find_set(observed, state.stable.hash, Pool.BASELINE)
        if copies is not None:
            yield from _patch(copies, wanted.baseline, Arm.BASELINE, in_rotation=False)
    trial = find_set(observed, candidate_hash(state) or "", Pool.MAIN)
    if trial is not None and not is_stale(tick, trial):
        yield from _patch_candidate(tick, trial, wanted.candidate)
    for item in observed.replica_sets:
        if item.name in wanted.retired:
            arm = item.template_arm or Arm.STABLE
            yield from _patch(item, wanted.retired[item.name], arm, in_rotation=False)


def _patch_candidate(tick: Tick, item: ReplicaSet, replicas: int) -> Iterator[Action]:
    rollout = tick.rollout
    phase = rollout.paused_from if tick.state.phase is Phase.PAUSED else tick.state.phase
    inside = phase is Phase.BAKING
    avoided = rollout.avoided_nodes
    affinity = None
    if avoided != item.template_avoided_nodes and item.hash == tick.observed.spec_hash:
        affinity = objects.with_avoided_nodes(tick.spec.engine.affinity, avoided)
    same = (item.replicas, item.template_arm, item.template_in_rotation)
    if affinity is not None or same != (replicas, Arm.CANDIDATE, inside):
        yield PatchReplicaSet(
            item.name, item.resource_version, replicas, Arm.CANDIDATE, inside, avoided, affinity
        )


def _patch(item: ReplicaSet, replicas: int, arm: Arm, *, in_rotation: bool) -> Iterator[Action]:
    same = (item.replicas, item.template_arm, item.template_in_rotation)
    if same != (replicas, arm, in_rotation):
        avoided = item.template_avoided_nodes
        yield PatchReplicaSet(item.name, item.resource_version, replicas, arm, in_rotation, avoided)


def _report_checks(tick: Tick) -> Iterator[Action]:
    """What check_env found, before a pod that failed is deleted and its message with it."""
    observed, state = tick.observed, tick.state
    stable = state.stable.hash if state.stable is not None else ""
    for revision in sorted({stable, candidate_hash(state) or ""} - {""}):
        pods = (p for p in observed.pods if p.hash == revision)
        reports = reports_by_node(pods)
        name, now = objects.report_name(observed.name, revision), digest(reports)
        if not reports or observed.reports.get(name) == now:
            continue
        if name in observed.config_maps:
            yield PatchReport(name, reports, now)
        else:
            manifest = objects.check_report_map(observed, revision, reports, now)
            yield from _new(observed, "ConfigMap", manifest)


def _replace_pods(tick: Tick) -> Iterator[Action]:
    """Stuck pods of counted checks: a template's affinity does not move the pod that exists."""
    if candidate_hash(tick.state) is None or tick.state.phase is Phase.ROLLING_BACK:
        return
    found = find_set(tick.observed, tick.rollout.candidate.hash, Pool.MAIN)
    kept_away = found.template_avoided_nodes if found is not None else ()
    for pod in tick.arms.candidate:
        if pod.uid not in tick.rollout.handled_pods:
            continue
        if pod.check is None or pod.check.state is CheckState.PASSED:
            continue
        if pod.node in tick.rollout.avoided_nodes and pod.node not in kept_away:
            continue
        yield DeletePod(pod.name, pod.uid, "its environment check failed or hangs")


def _budget(tick: Tick) -> Iterator[Action]:
    observed, stable = tick.observed, tick.state.stable
    if stable is None:
        return
    wanted = (stable.hash, str(tick.spec.pdb_max_unavailable))
    now = observed.pod_disruption_budget
    if now is None:
        manifest = objects.disruption_budget(tick.spec, observed, stable.hash)
        yield from _new(observed, "PodDisruptionBudget", manifest)
    elif (now[0], str(now[1])) != wanted:
        labels = objects.selector(observed.name, stable.hash, Pool.MAIN)
        yield PatchPodDisruptionBudget(observed.name, labels, tick.spec.pdb_max_unavailable)


def _probe(tick: Tick) -> Iterator[Action]:
    """One real token of every new pod; and the prompts, while the phase is Warming."""
    if candidate_hash(tick.state) is None or tick.state.phase is Phase.ROLLING_BACK:
        return
    for pod in (*tick.arms.candidate, *tick.arms.baseline):
        if pod.ready and pod.ip and not pod.in_rotation and pod.uid not in tick.observed.smoked:
            yield SendSmoke(pod.name, pod.uid, pod.ip)
    prompts, cold = tick.spec.warmup.prompt_config_map, tick.cold
    if tick.state.phase is Phase.WARMING and prompts is not None and cold:
        yield SendWarmup(
            candidate_ips=tick.cold_ips[0],
            baseline_ips=tick.cold_ips[1],
            prompt_config_map=prompts,
            max_requests=max(0, tick.spec.warmup.max_requests - tick.warmup.requests_sent),
        )

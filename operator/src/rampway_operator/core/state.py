"""What the operator remembers between ticks: the typed mirror of `.status`, and nothing else.

Everything a restarted operator needs is here or in the names of the children. It does not know how
status is written (`status.py`) or read (`status_read.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

__all__ = [
    "Command",
    "Decision",
    "EndReason",
    "Evidence",
    "FailedRevision",
    "HistoryEntry",
    "Phase",
    "Revision",
    "Rollout",
    "State",
    "Sums",
    "Verdict",
    "VerdictRecord",
]


class Phase(StrEnum):
    """Where a rollout stands. The legal moves between phases are the table in `phases.py`."""

    IDLE = "Idle"
    PREFLIGHT = "Preflight"
    PROVISIONING = "Provisioning"
    WARMING = "Warming"
    SHIFTING = "Shifting"
    ANALYZING = "Analyzing"
    PAUSED = "Paused"
    BAKING = "Baking"
    DRAINING = "Draining"
    ROLLING_BACK = "RollingBack"


class EndReason(StrEnum):
    """Why a rollout ended; the closed list that conditions, events and history use."""

    PROMOTED = "Promoted"
    ANALYSIS_FAILED = "AnalysisFailed"
    ANALYSIS_UNDECIDED = "AnalysisUndecided"
    BAD_REVISION = "BadRevision"
    BAD_NODES = "BadNodes"
    INFRASTRUCTURE = "Infrastructure"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SMOKE_FAILED = "SmokeFailed"
    CANDIDATE_UNAVAILABLE = "CandidateUnavailable"
    WARMUP_FAILED = "WarmupFailed"
    ABORTED = "Aborted"
    REVERTED = "Reverted"
    SUPERSEDED = "Superseded"


class Verdict(StrEnum):
    """What the evidence says of one objective."""

    PASS = "Pass"
    FAIL = "Fail"
    UNDECIDED = "Undecided"


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable version of the pods. `number` counts up and never repeats."""

    hash: str
    number: int
    image: str


@dataclass(frozen=True, slots=True)
class Sums:
    """Sufficient statistics of paired windows: all that the intervals need, of any number of them.

    `c` is the candidate, `r` the reference. A window i gives the numerators x and denominators n of both
    arms; w = 1 / (nc + nr). Against an absolute limit there is no reference: u = xc and v = nc.
    """

    windows: int = 0
    xc: float = 0.0
    nc: float = 0.0
    xr: float = 0.0
    nr: float = 0.0
    rc: float = 0.0
    """Requests behind nc; differs from it where the denominator counts tokens."""
    rr: float = 0.0
    sc: float = 0.0
    """Sum of xc * nr * w: the candidate's numerator, standardised to the windows' shared load."""
    sr: float = 0.0
    """Sum of xr * nc * w."""
    same: float = 0.0
    """Sum of x * nc * w, where x is the reference's numerator had it been judged as a candidate."""
    v: float = 0.0
    """Sum of nc * nr * w: the weight of the evidence, and its information."""
    uu: float = 0.0
    """Sum of u * u, where u = (xc * nr - xr * nc) * w of one window."""
    uv: float = 0.0
    vv: float = 0.0
    q: float = 0.0
    """Sum of the squared scores of single requests of both arms, for scores that are not 0 or 1."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one objective in this rollout, from its first voting window on.

    `reference_edge` and `candidate_edge` (seconds) are pinned from planning windows that do not vote,
    so that the edge is never chosen from the data it is tested on; None until pinned and for ratios.
    `planning` holds the reference arm's bucket counts (for ratios: the arms' running rates) until then.

    A look judges everything up to it: `sums` and `step_sums` are as of the last look, `pending` is what
    came since, and the levels are those of the last look. So a stored Evidence recomputes its verdict.
    """

    objective: str
    definition: str = ""
    """What was judged; evidence of an objective that has been edited since is thrown away."""
    voting: bool = False
    """Planning is over: edges are pinned and the arms are steady."""
    sums: Sums = Sums()
    step_sums: Sums = Sums()
    """The same for the current analysis step alone."""
    pending: Sums = Sums()
    """Windows since the last look; they vote at the next one."""
    groups: tuple[float, ...] = ()
    """Squares of all windows so far taken in groups of 2, 4, 16 and 64; see `sums.grouped`."""
    inflation: float = 1.0
    """How much wider than single windows groups of them spread, as of the last look; at least 1."""
    reference_edge: float | None = None
    candidate_edge: float | None = None
    planning: tuple[float, ...] = ()
    step: int = -1
    """Index of the step that `step_sums` belongs to."""
    alpha_spent: float = 0.0
    step_alpha_spent: float = 0.0
    beta_spent: float = 0.0
    looks: int = 0
    step_looks: int = 0
    fail_level: float = 0.0
    """One-sided level of the last look's Fail test; 0 before the first look."""
    step_level: float = 0.0
    """The same for the step's own guard."""
    pass_level: float = 0.0
    passed: bool = False
    """Passed at a look of the current step; a later Fail outranks it."""


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """The numbers behind one verdict, as status and events show them."""

    objective: str
    verdict: Verdict
    n: int
    n_reference: int
    windows: int
    estimate: float | None
    low: float | None
    high: float | None
    margin: float
    alpha_spent: float
    candidate_value: float | None
    reference_value: float | None
    needed: int | None
    message: str
    """One sentence with the numbers, for people."""


@dataclass(frozen=True, slots=True)
class Command:
    """The last one-shot command that was taken, recorded before acting on it."""

    id: str
    result: str
    """Applied | Stale | Refused, with a reason after a colon for the last two."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One transition and the numbers that caused it."""

    at: datetime
    reason: str
    message: str
    revision: str


@dataclass(frozen=True, slots=True)
class FailedRevision:
    """A hash that is not tried again without a retry command or another spec."""

    hash: str
    reason: EndReason
    generation: int
    plan: str = ""
    """Digest of everything in the spec but engine, replicas and paused: another plan is another spec."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One ended rollout."""

    number: int
    hash: str
    image: str
    outcome: EndReason
    message: str
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout that has not ended. All instants are UTC."""

    candidate: Revision
    attempt: int
    started_at: datetime
    phase_started_at: datetime
    step_index: int = 0
    """Index into spec.strategy.canary.steps of the step that is current or comes next."""
    step_started_at: datetime | None = None
    desired_weight: int = 0
    verified_weight: int = 0
    weight_note: str = ""
    evidence: tuple[Evidence, ...] = ()
    verdicts: tuple[VerdictRecord, ...] = ()
    paused_from: Phase | None = None
    """The phase to go back to when a pause ends."""
    paused_reason: str = ""
    outage_since: datetime | None = None
    """Since when the metrics source has not answered."""
    infrastructure_failures: int = 0
    avoided_nodes: tuple[str, ...] = ()
    handled_pods: tuple[str, ...] = ()
    """UIDs of pods whose failed check was already counted."""
    warm: bool = False
    """The warm-up reached Steady, or was passed over with a reason in `weight_note`."""
    end_reason: EndReason | None = None
    """Set when the outcome is decided: in RollingBack and Draining."""
    end_message: str = ""
    successor_pending: bool = False
    """A newer spec waits for this rollout to be wound down."""
    plan: str = ""
    """Digests `<steps>.<objectives>` of the plan that runs; another one restarts the current step."""
    approval: str = ""
    """Why promotion is allowed: Evidence, Person, Proceed, Preview, NoStable or StableDown; empty: not yet."""
    hard: bool = False
    """The candidate failed hard: its weight goes before stable is back at need."""
    weight_losses: int = 0
    """How often every candidate endpoint vanished while it had weight."""
    warmed_until: datetime | None = None
    """Pods of the candidate and the baseline created up to this instant have been warmed."""
    stable_down_since: datetime | None = None
    """Since when no pod of the stable revision is ready; None while one is."""
    strategy: str = "canary"
    """canary or blueGreen: the strategy that this rollout began with."""
    recorded: tuple[tuple[float, ...], ...] = ()
    """Windows of the stable revision from before a blue-green switch, oldest first; see `record.py`."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything remembered of one InferenceDeployment."""

    phase: Phase = Phase.IDLE
    observed_generation: int = -1
    stable: Revision | None = None
    rollout: Rollout | None = None
    last_number: int = 0
    route_made: bool = False
    """Our HTTPRoute may exist; so it is looked for, and removed, after the provider was changed."""
    failed: tuple[FailedRevision, ...] = ()
    last_command: Command | None = None
    decisions: tuple[Decision, ...] = ()
    """Newest last, at most 20."""
    history: tuple[HistoryEntry, ...] = ()
    """Newest last, at most revisionHistoryLimit."""

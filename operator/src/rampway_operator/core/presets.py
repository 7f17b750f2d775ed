"""Which series of which engine give the numbers that objectives need.

It does not know how series are fetched, nor whether a given engine version really exports them: a
scrape tells, and what is absent is reported as missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from rampway_operator.core.spec import EngineType, Metric

__all__ = ["NEEDS", "PRESETS", "Outcomes", "Preset", "Quantity", "Selector"]


@dataclass(frozen=True, slots=True)
class Selector:
    """The sum over all series of `name` whose labels start with one of the given prefixes."""

    name: str
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(label, accepted prefixes of its value); all of them must hold."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One counter split by outcome. `errors` is empty where the engine counts no errors of its own."""

    requests: Selector
    errors: Selector | None


class Quantity(StrEnum):
    """Names of what a preset can give; used where a missing one is reported."""

    REQUESTS = "requests"
    ERRORS = "errors"
    PROMPT_TOKENS = "prompt tokens"
    CACHED_TOKENS = "cached tokens"
    TTFT = "TTFT histogram"
    ITL = "inter-token latency histogram"
    E2E = "E2E latency histogram"


@dataclass(frozen=True, slots=True)
class Preset:
    """Alternatives in order of preference; the first whose series exist is used.

    Only counters and histograms, never gauges: a gauge cannot be summed over pods or over time. An empty
    tuple says that no known version of the engine has such a series.
    """

    outcomes: tuple[Outcomes, ...]
    prompt_tokens: tuple[Selector, ...]
    cached_tokens: tuple[Selector, ...]
    ttft: tuple[str, ...]
    inter_token: tuple[str, ...]
    e2e: tuple[str, ...]
    arrived: tuple[Selector, ...] = ()
    """Every request that the engine has answered in any way; the first that a scrape has is used."""
    in_flight: tuple[str, ...] = ()
    """Gauges of requests that it has not answered yet; all that a scrape has are summed."""


NEEDS: MappingProxyType[Metric, tuple[Quantity, ...]] = MappingProxyType(
    {
        Metric.TTFT: (Quantity.TTFT,),
        Metric.INTER_TOKEN_LATENCY: (Quantity.ITL,),
        Metric.E2E_LATENCY: (Quantity.E2E,),
        Metric.PREFIX_CACHE_HIT_RATE: (Quantity.PROMPT_TOKENS, Quantity.CACHED_TOKENS),
        Metric.ERROR_RATE: (Quantity.REQUESTS, Quantity.ERRORS),
    }
)

_API = ("handler", ("/v1/", "/generate", "/classify", "/pooling", "/score", "/rerank"))
_POST = ("method", ("POST",))

_RAMPWAY = Preset(
    # Aborted requests are the client's doing and rejected ones are load shedding: neither is an error.
    outcomes=(
        Outcomes(
            requests=Selector("rampway_requests_total", (("outcome", ("ok", "error")),)),
            errors=Selector("rampway_requests_total", (("outcome", ("error",)),)),
        ),
    ),
    prompt_tokens=(Selector("rampway_prompt_tokens_total"),),
    cached_tokens=(Selector("rampway_cached_tokens_total"),),
    ttft=("rampway_ttft_seconds",),
    inter_token=("rampway_inter_token_latency_seconds",),
    e2e=("rampway_e2e_latency_seconds",),
    arrived=(Selector("rampway_requests_total"),),
    in_flight=("rampway_requests_running", "rampway_requests_waiting"),
)

_VLLM = Preset(
    # The HTTP counter sees a dead engine's 500s; the engine's own counter, used where the HTTP counter is
    # switched off, sees only requests that it finished.
    outcomes=(
        Outcomes(
            requests=Selector("http_requests_total", (_API, _POST, ("status", ("2", "5")))),
            errors=Selector("http_requests_total", (_API, _POST, ("status", ("5",)))),
        ),
        Outcomes(
            requests=Selector(
                "vllm:request_success_total",
                (("finished_reason", ("stop", "length", "error")),),
            ),
            errors=Selector("vllm:request_success_total", (("finished_reason", ("error",)),)),
        ),
    ),
    prompt_tokens=(
        Selector("vllm:prefix_cache_queries_total"),
        Selector("vllm:prefix_cache_queries"),
        Selector("vllm:gpu_prefix_cache_queries_total"),
        Selector("vllm:gpu_prefix_cache_queries"),
    ),
    cached_tokens=(
        Selector("vllm:prefix_cache_hits_total"),
        Selector("vllm:prefix_cache_hits"),
        Selector("vllm:gpu_prefix_cache_hits_total"),
        Selector("vllm:gpu_prefix_cache_hits"),
    ),
    ttft=("vllm:time_to_first_token_seconds",),
    inter_token=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    e2e=("vllm:e2e_request_latency_seconds",),
    arrived=(
        Selector("http_requests_total", (_API, _POST)),
        Selector("vllm:request_success_total"),
    ),
    in_flight=("vllm:num_requests_running", "vllm:num_requests_waiting"),
)

_SGLANG_HTTP = (("endpoint", ("/v1/", "/generate")), _POST)
_SGLANG = Preset(
    outcomes=(
        Outcomes(
            requests=Selector(
                "sglang:http_responses_total", (*_SGLANG_HTTP, ("status_code", ("2", "5")))
            ),
            errors=Selector(
                "sglang:http_responses_total", (*_SGLANG_HTTP, ("status_code", ("5",)))
            ),
        ),
        Outcomes(requests=Selector("sglang:num_requests_total"), errors=None),
    ),
    prompt_tokens=(Selector("sglang:prompt_tokens_total"),),
    cached_tokens=(Selector("sglang:cached_tokens_total"),),
    ttft=("sglang:time_to_first_token_seconds",),
    inter_token=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    e2e=("sglang:e2e_request_latency_seconds",),
    arrived=(
        Selector("sglang:http_responses_total", _SGLANG_HTTP),
        Selector("sglang:num_requests_total"),
    ),
    in_flight=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)

_TENSORRT_LLM = Preset(
    outcomes=(Outcomes(requests=Selector("trtllm_request_success_total"), errors=None),),
    # Its hit rate is a gauge, and its block counters count blocks of the whole batch, not prompt tokens.
    prompt_tokens=(Selector("trtllm_prompt_tokens_total"),),
    cached_tokens=(),
    ttft=("trtllm_time_to_first_token_seconds",),
    # One observation a request (its mean), not one a token: comparable between arms all the same.
    inter_token=("trtllm_time_per_output_token_seconds",),
    e2e=("trtllm_e2e_request_latency_seconds",),
    arrived=(Selector("trtllm_request_success_total"),),
)

PRESETS: MappingProxyType[EngineType, Preset] = MappingProxyType(
    {
        EngineType.RAMPWAY: _RAMPWAY,
        EngineType.VLLM: _VLLM,
        EngineType.SGLANG: _SGLANG,
        EngineType.TENSORRT_LLM: _TENSORRT_LLM,
    }
)

"""The entry of `make demo`: stage, four stories under load, summary."""

from __future__ import annotations

import sys
from typing import Any

from demo import stories
from demo.stage import NAMESPACE, load_pod, prepare, say
from harness.kube import CommandFailed

__all__ = ["main"]


def main() -> int:
    """Play everything; 0 when each story ended as it must and no request was lost."""
    kube = prepare()
    results = []
    try:
        say()
        say("STORY 1: a first deployment is checked, started and serves")
        results.append(stories.first_deployment(kube))
        load = load_pod(kube)
        say(f"load: {' '.join(load.arguments)}")
        load.start()
        for title, play in (
            ("STORY 2: a new image is warmed, judged and promoted", stories.new_image),
            (
                "STORY 3: a candidate without prefix cache is rolled back on the hit rate",
                stories.cold_cache,
            ),
            (
                "STORY 4: a candidate with an old libstdc++ never gets a request",
                stories.bad_environment,
            ),
        ):
            say()
            say(title)
            results.append(play(kube))
        report = load.stop()
    except (stories.StoryFailed, TimeoutError, CommandFailed) as failure:
        say(f"demo failed: {failure}")
        say(
            "look with: kubectl describe infd chat; kubectl logs deploy/rampway; remove all with: make demo-down"
        )
        return 1
    _summary(results, report)
    return 0 if report["failed"] == 0 else 1


def _summary(results: list[stories.Result], report: dict[str, Any]) -> None:
    say()
    for result in results:
        print(f"  {result.story:<22}{result.outcome:<12}{result.seconds:6.0f} s  {result.numbers}")
    print()
    answered, failed = report["answered_by_connection"], report["failed_by_connection"]
    for kind in ("fresh", "pooled"):
        print(
            f"  requests over {kind:<7} connections: answered {answered.get(kind, 0)}, failed {failed.get(kind, 0)}"
        )
    print(
        f"  requests in all: sent {report['sent']}, answered {report['answered']}, failed {report['failed']}"
    )
    share = report["cached_tokens"] / max(1, report["prompt_tokens"])
    print(f"  prompt tokens served from the prefix cache: {share:.0%}")
    for failure in report["failures"]:
        print(f"  lost: {failure}")
    print(
        f"""
The cluster is still up. Try:
  eval "$(PYTHONPATH=e2e ~/.cache/rampway/venv/bin/python -m cluster env)"
  kubectl -n {NAMESPACE} get infd -o wide
  kubectl -n {NAMESPACE} describe infd chat
  kubectl -n {NAMESPACE} get events --field-selector involvedObject.kind=InferenceDeployment
  make demo-down            # removes everything"""
    )


if __name__ == "__main__":
    sys.exit(main())

"""The tables of docs/kernels.md, written from the record, the tolerances and the targets.

It knows Markdown and names; where the figures come from is for `usage_record.py`.
"""

from __future__ import annotations

from rampway_server.kernels.tolerances import TOLERANCES

__all__ = ["BEGIN", "END", "FACTS", "with_table"]

BEGIN = "<!-- written by: python -m rampway_server.kernels.usage_record docs -->"
END = "<!-- end of what is written -->"

FACTS = {
    "rms_norm": ("2 T·H (4 with a residual) × itemsize", "85 % of a device copy"),
    "rope_kv_write": ("2 T·(Hq + 2 Hk)·D × itemsize", "80 % of a device copy"),
    "silu_mul": ("3 T·I × itemsize", "85 % of a device copy"),
    "paged_decode_attention": (
        "2 Σlength·Hk·D × itemsize",
        "80 % of a device copy from 256k tokens in the batch, 60 % for one of 32k",
    ),
    "prefix_extend_attention": (
        "compute bound: 4 Hq·D·Σ(position + 1) operations",
        "60 % of FlashAttention-2, by torch's SDPA",
    ),
    "sample": ("V × 4, once; with top-k or top-p up to 32 times more from cache", "50 % of a copy"),
}
"""By kernel: bytes moved, and what it is to reach. Source: engines.md §5.5 of the design."""
_PARTS = {
    "paged_decode_attention": ("decode_split", "decode_merge"),
    "prefix_extend_attention": ("prefix_extend",),
    "sample": ("edit", "summary", "pick"),
}
"""The compiled functions of a kernel, where it is not one of the same name."""
Figures = dict[str, dict[str, int]]


def with_table(page: str, record: Figures) -> str:
    """Return `page` with what stands between the two marks written anew."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"page has no place for the table: need the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{_kernels()}\n{_usage(record)}\n{END}{after}"


def _kernels() -> str:
    lines = [
        "| kernel | bytes moved (ideal) | target share | max error fp32, fp16, bf16 |",
        "|---|---|---|---|",
    ]
    for name, (moved, target) in FACTS.items():
        bounds = TOLERANCES.get(name)
        error = ", ".join(f"{value:g}" for value in bounds.values()) if bounds else "equal tokens"
        lines.append(f"| `{name}` | {moved} | {target} | {error} |")
    return "\n".join(lines) + "\n"


def _usage(record: Figures) -> str:
    archs = sorted({_split(key)[0] for key in record})
    heads = [f"{arch.replace('sm_', '')[:-1]}.{arch[-1]}" for arch in archs]

    spilled = max((row["spill_bytes"] for row in record.values()), default=0)
    lines = [
        (
            "Registers a thread / shared bytes a block / instructions, the largest over all "
            f"configs of {len(record)} compilations; most bytes spilled in any: {spilled}."
        ),
        "",
        f"| kernel | dtype | {' | '.join(heads)} |",
        f"|---|---|{'---|' * len(heads)}",
    ]
    for name in FACTS:
        for part in _PARTS.get(name, (name,)):
            for dtype in ("bf16", "fp16", "fp32"):
                cells = [_largest(record, arch, dtype, part) for arch in archs]
                if any(cells):
                    lines.append(f"| `{part}` | {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _largest(record: Figures, arch: str, dtype: str, part: str) -> str:
    rows = [row for key, row in record.items() if _split(key) == (arch, dtype, part)]
    if not rows:
        return ""
    columns = ("registers", "shared_bytes", "instructions")
    return " / ".join(f"{max(row[column] for row in rows):,}" for column in columns)


def _split(key: str) -> tuple[str, str, str]:
    arch, dtype, kernel, *_ = key.split(" ")
    return arch, dtype, kernel

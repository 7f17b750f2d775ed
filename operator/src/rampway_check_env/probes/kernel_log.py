"""Reads the kernel's message buffer for the NVIDIA driver's Xid messages.

It knows no requirements, nor which Xid is bad. It runs in a child because a device file is read.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List

__all__ = ["probe"]

_MAX_RECORDS = 1 << 18
_RECORD = 8192
"""A read of /dev/kmsg gives one record, and fails where the buffer is smaller than it."""
_XID = re.compile(rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]+),? ?([^\n]*)")


def probe(path: str) -> Dict[str, Any]:
    """Each Xid message: PCI address, number and text; the oldest first, as far back as the buffer goes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    text = bytearray()
    try:
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:  # all is read
                break
            except BrokenPipeError:  # the record was overwritten meanwhile; the next read goes on
                continue
            if not record:
                break
            text += record
    finally:
        os.close(descriptor)
    found: List[Dict[str, Any]] = [
        {
            "gpu": address.decode("ascii"),
            "number": int(number),
            "text": words.decode("utf-8", "replace")[:200],
        }
        for address, number, words in _XID.findall(bytes(text))
    ]
    return {"messages": found}

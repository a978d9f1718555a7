"""What a number depends on, in three groups that decide what may be compared with what."""

from __future__ import annotations

import hashlib
import json
import re

from servegate.model import Model


class Fingerprint(Model):
    """Name to value, all text. ``unknown`` is written where a target does not tell, never left out.

    Timed rows compare only where ``machine`` is equal. A difference in ``software`` or ``served`` is a
    change that the report lists and the rows judge: it is what a pull request does on purpose.
    """

    machine: dict[str, str]
    """cpu, cores, memory, os, gpu, driver, device (what computed: cpu or the GPU's name), threads; server,
    where it is another machine that serves."""
    software: dict[str, str]
    """engine ("servegate 0.1.0"), python, torch, numpy, cuda, cupy, kernels; ``none`` where none is used."""
    served: dict[str, str]
    """model, model digest, tokenizer digest, dtype, KV block size and count, limits, sampling as sent."""

    @property
    def hardware_key(self) -> str:
        """File-name-safe key of ``machine``: a readable part and eight hex digits of its digest."""
        readable = self.machine.get("gpu") or self.machine.get("cpu", "unknown")
        if readable in ("none", "unknown"):
            readable = self.machine.get("cpu", "unknown")
        if readable == "unknown":
            readable = self.machine.get("server", "unknown")
        slug = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")[:40].rstrip("-") or "unknown"
        canonical = json.dumps(self.machine, sort_keys=True, separators=(",", ":"))
        return f"{slug}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

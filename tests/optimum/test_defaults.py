"""The defaults as they are, without one tuned number: they learn a market whose optimum is known,
and the quickstart's training days."""

from __future__ import annotations

STEPS = {"mlp": 400_000, "gru": 400_000}

"""The rule that the service's counts obey: every submission is in exactly one place."""

PLACES = (
    "deduped",
    "cache_hit",
    "queued",
    "in_flight",
    "done",
    "failed",
    "expired",
    "dropped",
    "poisoned",
)


def imbalance(snapshot):
    """Submissions less the places where they are: 0, or something was lost or counted twice."""
    return snapshot["submitted"] - sum(snapshot[place] for place in PLACES)

"""A market that grows bar by bar, and the decisions of a policy on it."""

from jaxtrade.stream.live import Stream as Stream

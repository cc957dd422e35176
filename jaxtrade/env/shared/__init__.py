"""A market that all agents of a population share: their orders move its price."""

"""A live page about runs that train: read from their folders, shown on this machine alone."""

"""What a message must name, whatever its wording."""


def missing(message, *facts):
    """The facts that a message does not name."""
    return [str(fact) for fact in facts if str(fact) not in message]

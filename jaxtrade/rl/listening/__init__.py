"""How a policy listens to advice."""

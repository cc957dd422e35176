"""What a command shows while it works: a live panel on a terminal, plain lines elsewhere."""

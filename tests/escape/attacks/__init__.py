"""What the attacker can do, by kind of target."""

"""Learning and acting with the algorithms of rsl_rl."""

"""Gymnasium environments and torch tasks as rsl_rl vector environments."""

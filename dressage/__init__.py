"""dressage: on-policy reinforcement learning that stays inside the arena."""

__version__ = "0.1.0"

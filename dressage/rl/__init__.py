"""Multi-agent learners over PettingZoo and JAX environments."""

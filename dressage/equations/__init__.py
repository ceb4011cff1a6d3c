"""Every equation of the learners, once, as a pure function of arrays with its reference.

`returns` (targets), `surrogate` (losses), `distributions` (policies), `statistics` (normalisers), `schedules`
(learning rates and step counts), `action_scaling` (bounds), `trust_region` (constrained steps), `lagrange`
(multipliers) and `cost_shaping` (failure labels). All accept NumPy or JAX arrays and work under `jit`, `vmap`
and `grad`.
"""

"""The constrained trust-region problem solved by SciPy's SLSQP, in float64."""

import numpy as np
from scipy import optimize


def best_step(g, b, hessian, c, delta):
    """Solve for the step, by its whitened coordinates so that SLSQP sees a well-scaled problem.

    Returns:
        The step and whether any step is lawful. Where none is, the step is the one that lowers the cost most.
    """
    root = np.linalg.cholesky(hessian).T  # H = root^T root, y = root x
    whiten = np.linalg.solve(root.T, np.stack([g, b]).T).T / np.array(
        [[np.linalg.norm(g)], [np.linalg.norm(b)]]
    )
    radius = np.sqrt(2 * delta)
    excess = c / np.linalg.norm(b)
    reward, cost = whiten
    lawful = excess <= radius * np.linalg.norm(cost)
    constraints = [{"type": "ineq", "fun": lambda y: 1 - y @ y, "jac": lambda y: -2 * y}]
    if lawful:
        scale = radius * np.linalg.norm(cost)
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda y: -(excess + radius * (cost @ y)) / scale,
                "jac": lambda y: -radius * cost / scale,
            }
        )
    objective = -reward / np.linalg.norm(reward) if lawful else cost / np.linalg.norm(cost)
    start = -0.5 * cost / np.linalg.norm(cost)
    solution = optimize.minimize(
        lambda y: objective @ y,
        start,
        jac=lambda y: objective,
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return np.linalg.solve(root, radius * solution.x), lawful

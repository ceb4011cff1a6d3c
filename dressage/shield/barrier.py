"""A shield for continuous actions: barrier functions, and the nearest action that they allow."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.errors import ConfigError, UnsupportedSpaceError
from dressage.shield.decision import Decision, PyTree, Space
from dressage.shield.projection import Projection, project

GREATEST_GAIN = 1e6  # 1/s; larger ones change nothing but overflow
_HALVINGS = 24  # of the way to the fallback; the last one is below float32's precision
_MISSED = 1e-4  # what a margin may lack, in its own unit, before a step counts as unlawful


_Cuts = tuple[Projection, Array, Array]  # found, normals, offsets


class Constraint(Protocol):
    """What makes an action lawful."""

    def margins(self, seen: PyTree, action: Array, gain: Array) -> Array:
        """Return how much an action leaves of each condition.

        Args:
            seen: What the shield knows of the state.
            action: `[n]`.
            gain: `[]`, alpha, 1/s, >= 0: how fast a barrier may be approached.

        Returns:
            `[m]`, >= 0 where lawful; concave in the action.
        """

    def fallback(self, seen: PyTree) -> Array | None:
        """Return an action `[n]` that is lawful in every state that is safe, or None where none is known."""


@dataclass(frozen=True)
class ControlBarrier:
    r"""Conditions of control barrier functions in continuous time, for $\dot x = f(x) + g(x)\,u$.

    Safe is where $h(x) \ge 0$. Relative degree 1 ($u$ acts on $\dot h$) asks for

    $$\dot h(x, u) + \alpha\, h(x) \ge 0$$

    and relative degree 2 ($u$ acts on $\ddot h$ only), with $\psi = \dot h + \alpha_1 h$, for

    $$\dot\psi(x, u) + \alpha\, \psi(x) = \ddot h + (\alpha_1 + \alpha)\, \dot h + \alpha_1 \alpha\, h \ge 0$$

    an exponential barrier function with poles $-\alpha_1$ and $-\alpha$. The inner gain is fixed, since a
    change of it would move the set that is kept; the outer one may change at any time.

    **Guarantee.** $h \ge 0$ for all times. **Conditions:** the dynamics are exact and act in continuous time;
    at the start $h \ge 0$, for degree 2 also $\psi \ge 0$; $h$ has the relative degree said; and in every
    state on the way some action within the bounds is lawful, which bounded actuators must be checked for
    (`feasible` says so step by step). Sampled at intervals $\Delta t$, $h$ may become negative by the order
    of $\Delta t^2$: keep a margin in $h$, or use `SampledBarrier`.

    Attributes:
        drift: f, from the state `[d]` to its rate of change `[d]` without action.
        actuation: g, from the state to `[d, n]`.
        barrier: h, from the state to `[m]`.
        degree: 1 or 2.
        inner_gain: alpha_1, 1/s, > 0; of degree 2 only.

    Raises:
        ConfigError: If the degree is neither 1 nor 2, or the inner gain is not positive.

    Reference:
        Ames et al. 2019, "Control Barrier Functions: Theory and Applications"; Nguyen, Sreenath
        2016, "Exponential Control Barrier Functions for Enforcing High Relative-Degree Safety-Critical
        Constraints".
    """

    drift: Callable[[Array], Array]
    actuation: Callable[[Array], Array]
    barrier: Callable[[Array], Array]
    degree: int = 1
    inner_gain: float = 1.0

    def __post_init__(self) -> None:
        if self.degree not in {1, 2}:
            raise ConfigError(f"ControlBarrier's degree must be 1 or 2, got {self.degree!r}.")
        if not self.inner_gain > 0:
            raise ConfigError(f"ControlBarrier's inner_gain must be > 0, got {self.inner_gain!r}.")

    def margins(self, seen: Array, action: Array, gain: Array) -> Array:
        """Return what is left of each condition, `[m]`; see `Constraint.margins`."""
        rate = self.drift(seen) + self.actuation(seen) @ action
        value, change = jax.jvp(self.kept, (seen,), (rate,))
        return jnp.atleast_1d(change + gain * value)

    def kept(self, seen: Array) -> Array:
        """Return what stays positive: h, or psi for degree 2, `[m]`."""
        if self.degree == 1:
            return jnp.asarray(self.barrier(seen))
        value, change = jax.jvp(self.barrier, (seen,), (self.drift(seen),))
        return jnp.asarray(change + self.inner_gain * value)

    def fallback(self, seen: Array) -> None:
        """None is known."""


@dataclass(frozen=True)
class SampledBarrier:
    r"""The condition of a barrier function for a stepped system, with a way out that is always lawful.

    Safe is where $h(x) \ge 0$; with the next state $F(x, u)$ the condition is

    $$h(F(x, u)) \ge e^{-\alpha \Delta t}\, h(x)$$

    **Guarantee.** $h \ge 0$ in every step, for every policy and every sequence of gains. **Conditions:** `F`
    is exact, $h \ge 0$ at the start, $h(F(x, \cdot))$ is concave, and `way_out(x)` satisfies
    $h(F(x, u)) \ge h(x)$ wherever $h(x) \ge 0$, as braking often does.

    Attributes:
        step: F, from state and action `[n]` to the next state.
        barrier: h, from the state to `[m]`.
        way_out: From the state to an action `[n]` that keeps h from falling.
        time_step: Seconds of a step, > 0.

    Raises:
        ConfigError: If the time step is not positive.

    Reference:
        Agrawal, Sreenath 2017, "Discrete Control Barrier Functions for Safety-Critical Control of Discrete
        Systems with Application to Bipedal Robot Navigation".
    """

    step: Callable[[PyTree, Array], PyTree]
    barrier: Callable[[PyTree], Array]
    way_out: Callable[[PyTree], Array]
    time_step: float

    def __post_init__(self) -> None:
        if not self.time_step > 0:
            raise ConfigError(f"SampledBarrier's time_step must be > 0, got {self.time_step!r}.")

    def margins(self, seen: PyTree, action: Array, gain: Array) -> Array:
        """Return what is left of each condition, `[m]`; see `Constraint.margins`."""
        left = jnp.exp(-gain * self.time_step)
        return jnp.atleast_1d(self.barrier(self.step(seen, action)) - left * self.barrier(seen))

    def fallback(self, seen: PyTree) -> Array:
        """Return the way out, `[n]`."""
        return self.way_out(seen)


@dataclass(frozen=True)
class BarrierShield:
    r"""Executes the lawful action nearest to the proposal; its parameter is how boldly one may approach.

    $$\min_u \|u - p\|^2 \quad\text{where}\quad m(x, u, \alpha) \ge 0,\quad l \le u \le h,
    \qquad \alpha = \alpha_0\, \mathrm{softplus}(z)$$

    where $m$ are the margins of the constraint and $\alpha_0$ is the scale of the gain. Margins that are
    linear in the action make this one quadratic program, solved exactly; concave ones are cut by tangents
    `cuts` times, which closes in on the same point from outside. What a cut missed is made up for by moving
    towards the constraint's fallback, as far as is needed. A small gain keeps far from a barrier, a large one
    lets the agent come close and turn late; neither affects safety.

    **Guarantee and conditions:** those of the constraint, with the fallback in reach of the bounds. Where no
    action within the bounds is lawful, the one that violates least (in the sum of squares) is executed and
    `feasible` is False; so it is where a margin is NaN. Proposals are first cut to the bounds, which does not
    count as an intervention; NaN in a proposal counts as 0, and as an intervention.

    Attributes:
        constraint: What makes an action lawful.
        low: Least action, n numbers, minus infinity where there is no bound.
        high: Greatest action, n numbers.
        gain: A fixed gain, 1/s, >= 0; None for one that comes with each proposal.
        choices: Actions among which proposals choose by number; empty where a proposal is an action.
        cuts: Tangents a step, at least 1; 1 is exact for linear margins.
        gain_scale: alpha_0, 1/s, > 0, of a gain that comes with each proposal: an untrained policy starts
            near 0.69 of it, and a step of 1 in z changes a gain above it by about as much.

    Raises:
        ConfigError: If bounds, choices or cuts do not fit, the gain is negative, or its scale not positive.

    Reference:
        Ames et al. 2019, "Control Barrier Functions: Theory and Applications" (the quadratic program);
        Kelley 1960, "The Cutting-Plane Method for Solving Convex Programs".
    """

    constraint: Constraint
    low: tuple[float, ...]
    high: tuple[float, ...]
    gain: float | None = None
    choices: tuple[tuple[float, ...], ...] = ()
    cuts: int = 1
    gain_scale: float = 1.0

    def __post_init__(self) -> None:
        size = len(self.low)
        if size == 0 or len(self.high) != size or not all(np.less_equal(self.low, self.high)):
            raise ConfigError(
                f"BarrierShield needs as many lower as upper bounds, each no greater than its upper one, got "
                f"{self.low} and {self.high}."
            )
        if any(len(choice) != size for choice in self.choices):
            raise ConfigError(f"BarrierShield needs choices of {size} numbers each, got {self.choices}.")
        if self.gain is not None and not self.gain >= 0:
            raise ConfigError(f"BarrierShield's gain must be >= 0 or None, got {self.gain!r}.")
        if not self.gain_scale > 0:
            raise ConfigError(f"BarrierShield's gain_scale must be > 0, got {self.gain_scale!r}.")
        if self.cuts < 1:
            raise ConfigError(f"BarrierShield's cuts must be >= 1, got {self.cuts!r}.")

    @property
    def parameter_dim(self) -> int:
        """1, or 0 with a fixed gain."""
        return 1 if self.gain is None else 0

    @property
    def memory_dim(self) -> int:
        """0."""
        return 0

    def proposal_space(self, space: Space, agent: str) -> Space:
        """Return the choices' space, or the agent's own, which must be a `Box` of as many numbers."""
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (len(self.low),):
            raise UnsupportedSpaceError(
                f"This BarrierShield shields a Box of shape ({len(self.low)},), as many as its bounds; "
                f"agent {agent!r} acts in {space}. Leave the agent out of the shields, or give it one that "
                "fits."
            )
        return gymnasium.spaces.Discrete(len(self.choices)) if self.choices else space

    def begin(self, seen: PyTree) -> tuple[()]:
        """Remember nothing."""
        return ()

    def decide(self, memory: PyTree, seen: PyTree, proposal: Array, parameters: Array) -> Decision:
        """Take the lawful action nearest to the proposal; see `Shield.decide`."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        asked = jnp.asarray(self.choices)[proposal] if self.choices else jnp.asarray(proposal)
        wanted = jnp.clip(jnp.nan_to_num(asked.astype(jnp.float32)), low, high)
        margins = partial(self.constraint.margins, seen, gain=self.gain_of(parameters))
        found = self._nearest(margins, wanted, low, high)
        action, feasible = found.point, found.feasible
        fallback = self.constraint.fallback(seen)
        if fallback is not None:
            action = _towards(margins, action, jnp.clip(fallback, low, high))
            feasible = jnp.min(margins(action)) >= -_MISSED
        # Where the state is unknown nothing is lawful for sure.
        feasible = feasible & ~jnp.any(jnp.isnan(margins(action)))
        moved = (jnp.abs(action - wanted) > 1e-6 * (1 + jnp.abs(wanted))) | jnp.isnan(asked)
        return Decision(action, jnp.any(moved), feasible, ())

    def follow(self, memory: PyTree, seen: PyTree) -> tuple[()]:
        """Remember nothing."""
        return ()

    def features(self, memory: PyTree) -> Array:
        """Nothing to see, `[0]`."""
        return jnp.zeros(0)

    def gain_of(self, parameters: Array) -> Array:
        """Return alpha, `[]`, 1/s."""
        if self.gain is not None:
            return jnp.asarray(self.gain, jnp.float32)
        opened = self.gain_scale * jax.nn.softplus(jnp.nan_to_num(parameters[0]))
        gain: Array = jnp.minimum(opened, GREATEST_GAIN)
        return gain

    def _nearest(
        self, margins: Callable[[Array], Array], wanted: Array, low: Array, high: Array
    ) -> Projection:
        number = jax.eval_shape(margins, wanted).shape[0]
        none = jnp.zeros((self.cuts * number, wanted.shape[0])), jnp.full(self.cuts * number, jnp.inf)

        def cut(number_of: Array, carry: _Cuts) -> _Cuts:
            found, normals, offsets = carry
            left, slope = margins(found.point), jax.jacobian(margins)(found.point)
            place = number_of * number
            normals = jax.lax.dynamic_update_slice(normals, -slope, (place, 0))
            offsets = jax.lax.dynamic_update_slice(offsets, left - slope @ found.point, (place,))
            return project(wanted, normals, offsets, low, high), normals, offsets

        start: _Cuts = (Projection(wanted, jnp.asarray(True)), *none)
        ended: _Cuts = jax.lax.fori_loop(0, self.cuts, cut, start)
        return ended[0]


def _towards(margins: Callable[[Array], Array], action: Array, fallback: Array) -> Array:
    """Move towards the fallback, as little as is needed to keep every margin."""

    def halve(bounds: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        kept, broken = bounds
        share = (kept + broken) / 2
        lawful = jnp.min(margins(fallback + share * (action - fallback))) >= 0
        return (jnp.where(lawful, share, kept), jnp.where(lawful, broken, share)), None

    (share, _), _ = jax.lax.scan(halve, (jnp.float32(0), jnp.float32(1)), length=_HALVINGS)
    return jnp.where(jnp.min(margins(action)) >= 0, action, fallback + share * (action - fallback))

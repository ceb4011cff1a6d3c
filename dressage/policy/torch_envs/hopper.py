"""A planar one-legged hopper in torch: a body on a springy leg that runs at a commanded speed.

The machine is Raibert's planar hopper: a rigid body, a hip that turns the leg, and a leg that is a spring
whose rest length the motor moves. The leg has no mass, the foot does not slip while it stands, and its
tangential force is bounded by friction.

Reference: M. H. Raibert, "Legged Robots That Balance", 1986, chapter 2; the numbers are our own.
"""

import torch
from torch import Tensor

from dressage.policy.torch_envs.episode_batch import EpisodeBatch

GRAVITY = 9.81  # m/s²
BODY_MASS = 10.0  # kg
BODY_INERTIA = 0.8  # kg m²
REST_LENGTH = 0.7  # m, of the leg
STIFFNESS = 4000.0  # N/m: the leg sinks in by 2.5 cm under the standing body
DAMPING = 25.0  # N s/m
FRICTION = 0.8
THRUST = 0.08  # m, by which the motor moves the leg's rest length either way
SWING = 0.6  # rad, the farthest hip angle either way
SWING_RATE = 8.0  # rad/s, of the leg in the air
HIP_STIFFNESS, HIP_DAMPING, HIP_TORQUE = 150.0, 6.0, 60.0  # N m/rad, N m s/rad, N m

STEP_DT = 0.02  # s, control period
SUBSTEPS = 10  # of 2 ms: 150 to one period of body and spring
FALL_HEIGHT, FALL_PITCH = 0.35, 1.0  # m, rad

X, HEIGHT, PITCH, SPEED, CLIMB, PITCH_RATE, LEG, LENGTH, FOOT, STANDS, COMMAND = range(11)
"""Columns of a state: m, m, rad, m/s, m/s, rad/s, leg's angle in the world (rad, 0 straight down, forward
positive), leg's length (m), foot's place (m), whether it stands (0 or 1), commanded speed (m/s)."""


class Hopper(EpisodeBatch):
    """Hop along at the commanded speed without falling.

    Actions, each clipped to [-1, 1]: where the hip turns the leg (±0.6 rad from the body's axis) and how far
    the motor moves the leg's rest length (±8 cm). The reward of a step is

        exp(-2 (speed - command)²) + 0.2 exp(-4 pitch²) - 0.01 |action|²

    and the episode terminates when the body sinks under 0.35 m or tilts beyond 1 rad.

    Observation groups: `policy` holds what such a machine measures (height, pitch, speeds, leg relative to
    the body, contact, command), `critic` besides that the foot's place relative to the body and the leg's
    length rate.

    Args:
        num_envs: Number of copies.
        max_steps: Time limit, steps of 0.02 s.
        seed: Draws initial states and commands (0.5 to 1.5 m/s).
        device: Where the states live.
    """

    def __init__(self, num_envs: int = 64, max_steps: int = 500, seed: int = 0, device: str = "cpu") -> None:
        super().__init__(num_envs, 2, max_steps, STEP_DT, seed, device)

    def _new_states(self, count: int) -> Tensor:
        states = torch.zeros(count, 11, device=self.device)
        states[:, HEIGHT] = self._uniform(count, 0.75, 0.95)
        states[:, PITCH] = self._uniform(count, -0.05, 0.05)
        states[:, SPEED] = self._uniform(count, 0.0, 0.5)
        states[:, LENGTH] = REST_LENGTH
        states[:, COMMAND] = self._uniform(count, 0.5, 1.5)
        return states

    def _advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        bounded = actions.clamp(-1.0, 1.0)
        columns = list(states.unbind(dim=1))
        for _ in range(SUBSTEPS):
            columns = _substep(columns, SWING * bounded[:, 0], THRUST * bounded[:, 1], STEP_DT / SUBSTEPS)
        after = torch.stack(columns, dim=1)
        miss = (after[:, SPEED] - after[:, COMMAND]).square()
        upright = torch.exp(-4.0 * after[:, PITCH].square())
        rewards = torch.exp(-2.0 * miss) + 0.2 * upright - 0.01 * bounded.square().sum(dim=1)
        terminated = (after[:, HEIGHT] < FALL_HEIGHT) | (after[:, PITCH].abs() > FALL_PITCH)
        return after, rewards, terminated

    def _observe(self, states: Tensor) -> dict[str, Tensor]:
        measured = [HEIGHT, PITCH, SPEED, CLIMB, PITCH_RATE, LENGTH, STANDS, COMMAND]
        leg = (states[:, LEG] - states[:, PITCH]).unsqueeze(1)
        policy = torch.cat([states[:, measured], leg], dim=1)
        reach = states[:, LENGTH] * torch.sin(states[:, LEG])
        drop = states[:, HEIGHT] - states[:, LENGTH] * torch.cos(states[:, LEG])
        return {"policy": policy, "critic": torch.stack([reach, drop, _length_rate(states)], dim=1)}


def _substep(columns: list[Tensor], hip: Tensor, thrust: Tensor, dt: float) -> list[Tensor]:
    """Go on by one short step: forces where the body is, speeds from forces, places from the new speeds.

    Args:
        columns: The state's columns, `[N]` each.
        hip: Where the leg shall turn to, relative to the body, `[N]` rad.
        thrust: How far the leg's rest length is moved, `[N]` m.
        dt: Seconds.
    """
    x, height, pitch, speed, climb, pitch_rate, leg, length, foot, stands, command = columns
    standing = stands > 0.5
    force, torque = _leg_forces(columns, hip, thrust)
    sine, cosine = torch.sin(leg), torch.cos(leg)
    # The spring pushes the body along the leg. The leg has no mass, so the ground answers the hip's torque by
    # a force across it: a leg that swings forward pushes the body backward.
    across = -torque / length
    push_x = torch.where(standing, -force * sine + across * cosine, torch.zeros_like(x))
    push_z = torch.where(standing, force * cosine + across * sine, torch.zeros_like(x)).clamp(min=0.0)
    push_x = push_x.clamp(-FRICTION * push_z, FRICTION * push_z)
    speed = speed + push_x / BODY_MASS * dt
    climb = climb + (push_z / BODY_MASS - GRAVITY) * dt
    pitch_rate = pitch_rate + torch.where(standing, -torque / BODY_INERTIA, torch.zeros_like(x)) * dt
    x, height, pitch = x + speed * dt, height + climb * dt, pitch + pitch_rate * dt
    turn = ((pitch + hip - leg) / dt).clamp(-SWING_RATE, SWING_RATE)
    stood_leg, stood_length = torch.atan2(foot - x, height), torch.sqrt((foot - x).square() + height.square())
    leg = torch.where(standing, stood_leg, leg + turn * dt)
    length = torch.where(standing, stood_length, torch.full_like(length, REST_LENGTH))
    lands = ~standing & (height <= length * torch.cos(leg)) & (climb < 0.0)
    foot = torch.where(
        lands, x + length * torch.sin(leg), torch.where(standing, foot, x + length * torch.sin(leg))
    )
    leaves = standing & (length >= REST_LENGTH + thrust.clamp(min=0.0))
    stands = ((standing & ~leaves) | lands).to(x.dtype)
    return [x, height, pitch, speed, climb, pitch_rate, leg, length, foot, stands, command]


def _leg_forces(columns: list[Tensor], hip: Tensor, thrust: Tensor) -> tuple[Tensor, Tensor]:
    """Return the spring's force (N, it only pushes) and the hip's torque on the leg (N m) while it stands."""
    states = torch.stack(columns, dim=1)
    shortening = -_length_rate(states)
    spring = STIFFNESS * (REST_LENGTH + thrust - states[:, LENGTH]) + DAMPING * shortening
    turn = states[:, LEG] - states[:, PITCH]
    torque = HIP_STIFFNESS * (hip - turn) - HIP_DAMPING * (_leg_rate(states) - states[:, PITCH_RATE])
    return spring.clamp(min=0.0), torque.clamp(-HIP_TORQUE, HIP_TORQUE)


def _length_rate(states: Tensor) -> Tensor:
    """Return how fast a standing leg lengthens, m/s; 0 in the air."""
    rate = -states[:, SPEED] * torch.sin(states[:, LEG]) + states[:, CLIMB] * torch.cos(states[:, LEG])
    return rate * states[:, STANDS]


def _leg_rate(states: Tensor) -> Tensor:
    """Return how fast a standing leg turns in the world, rad/s."""
    across = states[:, SPEED] * torch.cos(states[:, LEG]) + states[:, CLIMB] * torch.sin(states[:, LEG])
    return -across / states[:, LENGTH]

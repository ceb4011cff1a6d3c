"""Actors and critics: all ways through them give one answer, parameters have the documented names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from dressage.networks import ACTIVATIONS, KERNEL_INITS, MLP, Actor, ActorCritic, Critic

OBSERVATIONS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


class Stock(nn.Module):
    """The same perceptron of `flax.linen.Dense` layers."""

    sizes: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, values):
        for size in self.sizes[:-1]:
            values = ACTIVATIONS[self.activation](nn.Dense(size)(values))
        return nn.Dense(self.sizes[-1])(values)


def scaled(params):
    """Larger weights and biases, so that every activation is used away from 0."""
    keys = iter(jax.random.split(jax.random.key(9), 100))
    return jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(next(keys), leaf.shape), params)


def check_close(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=["kernel", "columns"])
def way(request, monkeypatch):
    """The two ways to learn; where there is no kernel both are the second."""
    if request.param == "columns":
        monkeypatch.setattr("dressage.networks.mlp.takes", lambda *_: False)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_acting_learning_and_stock_layers_agree_in_values_and_gradients(activation, way):
    critic = Critic(hidden_sizes=(5, 4), activation=activation, kernel_init="lecun_normal")
    params = scaled(critic.init(jax.random.key(0), OBSERVATIONS))
    stock = Stock((5, 4, 1), activation)

    @jax.jit
    def answers(params, observations):
        def loss(outputs):
            return (outputs**3).sum(), outputs

        take = {"argnums": (0, 1), "has_aux": True}
        acting = jax.value_and_grad(lambda p, x: loss(critic.apply(p, x)), **take)
        learning = jax.value_and_grad(lambda p, x: loss(critic.apply(p, x, learning=True)), **take)
        plain = jax.value_and_grad(lambda p, x: loss(stock.apply(p, x)[:, 0]), **take)
        return tuple(function(params, observations) for function in (acting, learning, plain))

    acting, learning, plain = answers(params, OBSERVATIONS)
    check_close(acting, plain)
    check_close(learning, plain)


@pytest.mark.parametrize("kernel_init", KERNEL_INITS)
def test_parameters_have_the_documented_scale(kernel_init):
    size = 64
    critic = Critic(hidden_sizes=(size,), kernel_init=kernel_init)
    rows = jax.jit(critic.init)(jax.random.key(1), jnp.zeros((1, size)))
    kernel = np.asarray(rows["params"]["Dense_0"]["kernel"])
    if kernel_init == "orthogonal":
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(size), atol=1e-4)
    else:
        # With equal fan-in and fan-out, Xavier and LeCun have variance 1/n, Kaiming 2/n.
        expected = (2 if kernel_init.startswith("kaiming") else 1) / size
        assert kernel.var() == pytest.approx(expected, rel=0.06)
    if kernel_init.endswith("_uniform"):
        assert np.abs(kernel).max() <= np.sqrt(3 * kernel.var()) * 1.05


@pytest.fixture(scope="module")
def pair():
    actor = Actor(5, 2, hidden_sizes=(4, 6), kernel_init="lecun_normal")
    network = ActorCritic(actor, Critic(hidden_sizes=(8,), kernel_init="lecun_normal"))
    return network, network.init(jax.random.key(0), OBSERVATIONS)


def test_parameters_are_named_and_shaped_as_those_of_dense_layers(pair):
    shapes = jax.tree.map(jnp.shape, pair[1])
    assert shapes == {
        "params": {
            "actor": {
                "Dense_0": {"kernel": (3, 4), "bias": (4,)},
                "Dense_1": {"kernel": (4, 6), "bias": (6,)},
                "Dense_2": {"kernel": (6, 5), "bias": (5,)},
                "log_std": (2,),
            },
            "critic": {
                "Dense_0": {"kernel": (3, 8), "bias": (8,)},
                "Dense_1": {"kernel": (8, 1), "bias": (1,)},
            },
        }
    }


def test_actor_and_critic_share_nothing(pair):
    network, params = pair
    outputs, values = network.apply(params, OBSERVATIONS)
    silent = {"params": params["params"] | {"actor": jax.tree.map(jnp.zeros_like, params["params"]["actor"])}}
    np.testing.assert_array_equal(network.apply(silent, OBSERVATIONS)[1], values)
    np.testing.assert_array_equal(network.apply(silent, OBSERVATIONS)[0][0], np.zeros_like(outputs[0]))


def test_each_half_applied_alone_equals_the_pair(pair):
    network, params = pair
    params = scaled(params)
    together = network.apply(params, OBSERVATIONS)
    check_close(network.apply(params, OBSERVATIONS, method="policy"), together[0])
    check_close(network.apply(params, OBSERVATIONS, method="value"), together[1])


@pytest.mark.parametrize("learning", [False, True])
def test_one_observation_a_batch_and_two_batch_axes_agree(pair, learning, way):
    network, params = pair

    def both(observations):
        if learning:
            return network.apply(params, observations)
        return tuple(network.apply(params, observations, method=one) for one in ("policy", "value"))

    actor, critic = lambda x: both(x)[0], lambda x: both(x)[1]
    (outputs, log_std), values = actor(OBSERVATIONS), critic(OBSERVATIONS)
    assert (outputs.shape, log_std.shape, values.shape) == ((7, 5), (7, 2), (7,))
    one, one_value = actor(OBSERVATIONS[2]), critic(OBSERVATIONS[2])
    assert (one[0].shape, one[1].shape, one_value.shape) == ((5,), (2,), ())
    check_close((one, one_value), ((outputs[2], log_std[2]), values[2]))
    stacked = np.stack([OBSERVATIONS[:3], OBSERVATIONS[3:6]])
    two, two_values = actor(stacked), critic(stacked)
    assert (two[0].shape, two[1].shape, two_values.shape) == ((2, 3, 5), (2, 3, 2), (2, 3))
    check_close((two[0].reshape(6, 5), two_values.reshape(6)), (outputs[:6], values[:6]))


def test_a_discrete_actor_has_no_deviations():
    actor = Actor(4, hidden_sizes=(3,), kernel_init="lecun_normal")
    params = actor.init(jax.random.key(0), OBSERVATIONS)
    assert "log_std" not in params["params"]
    assert actor.apply(params, OBSERVATIONS)[1] is None


def test_a_free_deviation_is_the_same_for_all_observations():
    actor = Actor(2, 2, hidden_sizes=(3,), kernel_init="lecun_normal")
    params = actor.init(jax.random.key(0), OBSERVATIONS)
    np.testing.assert_array_equal(params["params"]["log_std"], [0, 0])
    params["params"]["log_std"] = jnp.array([0.5, -1.0])
    np.testing.assert_array_equal(actor.apply(params, OBSERVATIONS)[1], [[0.5, -1.0]] * 7)


def test_a_deviation_of_the_state_is_the_heads_own_last_outputs():
    actor = Actor(3, 2, state_independent_std=False, hidden_sizes=(3,), kernel_init="lecun_normal")
    params = scaled(actor.init(jax.random.key(0), OBSERVATIONS))
    assert "log_std" not in params["params"]
    assert params["params"]["Dense_1"]["kernel"].shape == (3, 5)
    outputs, log_std = actor.apply(params, OBSERVATIONS)
    whole = Stock((3, 5), "tanh").apply(params, OBSERVATIONS)
    check_close((outputs, log_std), (whole[:, :3], whole[:, 3:]))
    assert np.ptp(log_std, axis=0).min() > 0.01


@pytest.mark.parametrize("learning", [False, True])
def test_without_hidden_layers_a_network_is_affine(learning):
    critic = Critic(hidden_sizes=(), kernel_init="lecun_normal")
    params = scaled(critic.init(jax.random.key(0), OBSERVATIONS))
    assert list(params["params"]) == ["Dense_0"]
    layer = jax.tree.map(np.asarray, params["params"]["Dense_0"])
    expected = (OBSERVATIONS @ layer["kernel"] + layer["bias"])[:, 0]
    check_close(critic.apply(params, OBSERVATIONS, learning=learning), expected)


def test_first_choices_are_nearly_equal_and_the_first_value_has_the_full_gain():
    network = ActorCritic(Actor(16, hidden_sizes=(16,)), Critic(hidden_sizes=(16,)))
    params = jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, 16)))["params"]
    head = np.asarray(params["actor"]["Dense_1"]["kernel"])
    np.testing.assert_allclose(head.T @ head, 0.01**2 * np.eye(16), atol=1e-6)
    assert np.linalg.norm(params["critic"]["Dense_1"]["kernel"]) == pytest.approx(1.0, rel=1e-5)
    assert not np.any(params["actor"]["Dense_1"]["bias"])


def test_the_general_perceptron_is_the_same_function():
    mlp = MLP((5, 4), 2, "relu", "lecun_normal")
    params = scaled(mlp.init(jax.random.key(0), OBSERVATIONS))
    check_close(mlp.apply(params, OBSERVATIONS), Stock((5, 4, 2), "relu").apply(params, OBSERVATIONS))

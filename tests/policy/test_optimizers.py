"""How the optimisers of an algorithm step: many parameters in one call, and with the bits of one by one."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.policy.rsl_rl_policy.optimizers import stepping_together  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config  # noqa: E402


class Owner:
    """Holds an optimiser as an algorithm of rsl_rl does."""

    def __init__(self, kind, parameters, **options):
        self.optimizer = kind(parameters, lr=1e-3, **options)

    @property
    def chosen(self):
        return [group["foreach"] for group in self.optimizer.param_groups]


def parameters_of(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in ((4, 3), (4,), (1,))]


KINDS = {
    "adam": (torch.optim.Adam, {}),
    "adam with decay": (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {}),
    "sgd with momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_stepping_together_has_the_bits_of_torchs_steps_one_by_one(kind):
    make, options = KINDS[kind]
    together, alone = parameters_of(), parameters_of()
    owner, torchs = Owner(make, together, **options), make(alone, lr=1e-3, foreach=False, **options)
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        for one, other in zip(together, alone, strict=True):
            one.grad = torch.randn(one.shape, generator=generator) * 10.0 ** (step % 7 - 4)
            other.grad = one.grad.clone()
        with stepping_together(owner):
            assert owner.chosen == [True]
            owner.optimizer.step()
        torchs.step()
    assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("options", [{"foreach": False}, {"fused": True}, {"differentiable": True}], ids=str)
def test_what_was_chosen_for_an_optimiser_holds(options):
    owner = Owner(torch.optim.Adam, parameters_of(), **options)
    before = owner.chosen
    with stepping_together(owner):
        assert owner.chosen == before != [True]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate:UserWarning")
def test_parameters_that_stand_twice_step_one_by_one():
    parameters = parameters_of()
    owner = Owner(torch.optim.Adam, [*parameters, parameters[0]])
    with stepping_together(owner):
        assert owner.chosen == [None]


def test_a_failing_update_leaves_the_optimiser_as_it_was():
    owner = Owner(torch.optim.Adam, parameters_of())
    with pytest.raises(ZeroDivisionError), stepping_together(owner):
        raise ZeroDivisionError
    assert owner.chosen == [None]


def test_an_update_steps_together_and_its_checkpoint_does_not_say_so():
    loop = PlainLoop(Pendulum(num_envs=4), ppo_config())
    seen = []
    optimizer = loop.learner.algo.optimizer
    optimizer.register_step_pre_hook(lambda one, *_: seen.append(one.param_groups[0]["foreach"]))
    before = copy.deepcopy(optimizer.state_dict()["param_groups"][0])
    loop.iterate()
    after = optimizer.state_dict()["param_groups"][0]
    assert seen == [True] * 4  # 2 epochs of 2 minibatches
    assert {**after, "lr": before["lr"]} == before

"""One rank of a run of several learners, in a process of its own."""

import datetime


def train_rank(rank, shares, meeting_place, answers):
    import torch
    from torch import distributed

    from dressage.policy import TrainConfig
    from dressage.runtime import Engine, RuntimeConfig
    from tests.runtime.test_rsl_rl_runs import pendulum_run

    torch.set_num_threads(1)
    store = distributed.FileStore(meeting_place, len(shares))
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=len(shares), timeout=datetime.timedelta(seconds=120)
    )
    config = TrainConfig(rank=rank, world_size=len(shares))
    with Engine(pendulum_run(num_envs=shares[rank]), RuntimeConfig(seed=3), config) as engine:
        engine.run(4)
        answers.put((rank, dict(engine.learner.weights().arrays)))
    distributed.destroy_process_group()

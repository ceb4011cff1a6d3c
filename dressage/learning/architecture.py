"""Which network an agent's spaces and a learner's network options make."""

from dataclasses import dataclass
from typing import Any

from dressage.learning.forward import Network
from dressage.learning.specs import AgentSpec
from dressage.networks import Actor, ActorCritic, Critic, RecurrentActorCritic


@dataclass(frozen=True)
class Architecture:
    """The shape of actor and critic, without the sizes that an agent's spaces give.

    Attributes:
        hidden_sizes: Units of each hidden layer.
        activation: A name in `networks.ACTIVATIONS`.
        kernel_init: A name in `networks.KERNEL_INITS`.
        recurrent: Whether the last hidden layer is a gated recurrent unit.
    """

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    kernel_init: str = "orthogonal"
    recurrent: bool = False

    def network(self, spec: AgentSpec) -> Network:
        """Return the actor-critic for an agent."""
        shape = (self.hidden_sizes, self.activation, self.kernel_init)
        if self.recurrent:
            return RecurrentActorCritic(spec.action_dim, spec.continuous_dim, *shape)
        return ActorCritic(Actor(spec.action_dim, spec.continuous_dim, True, *shape), self.critic())

    def critic(self) -> Critic:
        """Return one more critic of the same shape, without memory."""
        return Critic(self.hidden_sizes, self.activation, self.kernel_init)

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Architecture":
        """Read the architecture off a learner's checked options."""
        network = config["network"]
        return cls(
            tuple(network["hidden_sizes"]), network["activation"], recurrent=config.get("recurrent", False)
        )

"""How XLA compiles training on a CPU: options beside its defaults, which were made for other programs."""

import jax

from dressage.kernels import registered

CompilerOptions = dict[str, bool | int | str]

_CPU_OPTIONS: CompilerOptions = {
    # Finds more of the copies in loops that nothing needs.
    "xla_cpu_copy_insertion_use_region_analysis": True,
    # XLA asks for 256 bits, a choice for older processors; no effect where there are no wider vectors.
    "xla_cpu_prefer_vector_width": 512,
}

# By default operations that do not need one another go to different threads. With a hundred samples they take
# a few microseconds each, as long as it takes to hand one over, and more where the other cores are busy.
# Programs that draw parameters must not do so at all: a network of the user's own may draw by factorisations,
# as JAX's orthogonal initialiser does, each of which waits for threads that the others hold. On two cores
# three agents with networks of 64-64 waited for ever. The networks here draw by products alone.
_IN_SEQUENCE: CompilerOptions = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}

# XLA hands products and sums to a library that shares each among threads. Small products gain by it. Where
# the kernels do the large ones, sums over a thousand samples are what is left, and lose.
_WITHOUT_LIBRARY: CompilerOptions = {"xla_cpu_experimental_ynn_fusion_type": ""}

SMALL = 1024  # Samples; measured with networks of 64-64 on two cores, the ways cross between 500 and 1,000.


def compiler_options(samples: int = 0) -> CompilerOptions | None:
    """Return the options to compile training with on JAX's default backend, for `jax.jit(compiler_options=)`.

    On a CPU with two cores an update takes 15 to 25 % less time with them. Programs of dressage's own are
    compiled with them. `train` as a pure function leaves that to whoever compiles it; its numbers equal those
    of training in chunks bit for bit where both are compiled alike.

    Args:
        samples: Samples of a minibatch, for instance `config.MINIBATCH_SIZE`; times the seeds, where they are
            vmapped. From about a thousand on, operations gain by running beside one another where there are
            no kernels (`dressage.kernels`), which share their work themselves.

    Returns:
        Names and values for XLA; None where the default backend is no CPU.
    """
    if jax.default_backend() != "cpu":
        return None
    if samples < SMALL:
        return _CPU_OPTIONS | _IN_SEQUENCE
    return _CPU_OPTIONS | (_IN_SEQUENCE | _WITHOUT_LIBRARY if registered() else {})

"""`dressage doctor`: what this machine has, and what is missing."""


def doctor() -> None:
    """Show devices, cores, versions, optional packages and the folder of compiled programs."""
    from dressage.cli.start_up import start_jax

    start_jax()
    from dressage.cli.health import print_health

    print_health()

"""`dressage tasks`: list what can be trained on."""


def tasks() -> None:
    """List the built-in tasks with their spaces, and the prefixes that reach other ecosystems."""
    from dressage.cli.task_tables import print_tasks

    print_tasks()

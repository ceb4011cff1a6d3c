"""`dressage verify`: let exported files prove themselves again."""

import typer

from dressage.cli.policy_place import PolicyPlaces, place_of


def verify(policies: PolicyPlaces) -> None:
    """Check exported policies: checksum, structure, the test that each carries, batch sizes, extremes."""
    from dressage.cli.card_pages import print_verification
    from dressage.export import verify_policies

    results = [result for path in policies for result in verify_policies(place_of(path))]
    for result in results:
        print_verification(result)
    if not all(result.passed for result in results):
        raise typer.Exit(1)

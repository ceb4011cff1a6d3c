"""`dressage inspect`: show what an exported policy is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dressage.cli.policy_place import PolicyPlace, place_of

AS_JSON = "Print JSON: an object for a file, a list for a folder or a policies.json."


def inspect(
    policies: PolicyPlace,
    as_json: Annotated[bool, typer.Option("--json", help=AS_JSON)] = False,
) -> None:
    """Show a policy's card: what goes in and comes out, how it was trained, what it achieved."""
    from dressage.cli.card_pages import print_cards
    from dressage.errors import CheckpointError
    from dressage.export.places import exported_at

    found = exported_at(place_of(policies))
    described, errors = _descriptions(found.policies)
    errors += [flaw for manifest in found.manifests for flaw in _flaws_of(manifest)]
    if as_json:
        _print_json(described, alone=found.policies == (policies,))
    else:
        print_cards(described)
    if errors:
        raise CheckpointError("\n".join(errors))


def _descriptions(files: tuple[Path, ...]) -> tuple[dict[Path, dict[str, Any]], list[str]]:
    """Return what files tell of themselves, and what is wrong with those that tell nothing."""
    from dressage.errors import CheckpointError
    from dressage.export import describe_file

    described, errors = {}, []
    for path in files:
        try:
            described[path] = describe_file(path)
        except CheckpointError as error:
            errors.append(str(error))
    return described, errors


def _flaws_of(manifest: Path) -> list[str]:
    from dressage.errors import CheckpointError
    from dressage.export.manifest import check_manifest

    try:
        listed = check_manifest(manifest)
    except CheckpointError as error:
        return [str(error)]
    return [f"{manifest}: {flaw}." for _, flaw in listed.values() if flaw]


def _print_json(described: Mapping[Path, Mapping[str, Any]], *, alone: bool) -> None:
    from dressage.cli.json_output import print_as_json

    rows = [
        {"file": str(path), **{name: value for name, value in description.items() if name != "test"}}
        for path, description in described.items()
    ]
    print_as_json(rows[0] if alone and rows else rows)

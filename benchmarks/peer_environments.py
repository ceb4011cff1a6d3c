"""The peers' virtual environments: made on first use under `benchmarks/.peers`, from pinned versions.

Every peer wants its own versions of JAX or of gymnax, so that none can share an environment with another or
with dressage. An environment is made anew when its list of pins in `benchmarks/peers` changes.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE / "peers"
ENVIRONMENTS = HERE / ".peers"
OWN = "dressage"  # The environment that runs this script.
FIRST = "torch=="  # Installed alone before the rest, so that nothing can pull in another build of it.
PIP = (
    sys.executable,
    "-m",
    "pip",
)  # That of this environment: older ones search for minutes what it finds at once.


def python_of(name: str) -> Path:
    """Return the interpreter of a peer's environment, which is made if need be.

    Args:
        name: A file of `benchmarks/peers` without `.txt`, or "dressage" for the environment that runs this.

    Raises:
        subprocess.CalledProcessError: If an installation fails.
    """
    if name == OWN:
        return Path(sys.executable)
    pins, folder = PINS / f"{name}.txt", ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        print(f"Making the environment of {name} (once; minutes) ...", flush=True)
        venv.create(folder, clear=True)
        for arguments in _installations(pins):
            subprocess.run([*PIP, "--python", python, "install", "--quiet", *arguments], check=True)
        stamp.write_text(pins.read_text())
    return python


def names() -> list[str]:
    """Return all peers that have pins."""
    return sorted(path.stem for path in PINS.glob("*.txt"))


def _installations(pins: Path) -> list[list[str]]:
    """Return the arguments of one or two calls of pip: torch, where it is pinned, then everything."""
    torch = [[line.strip()] for line in pins.read_text().splitlines() if line.startswith(FIRST)]
    return [*torch, ["--requirement", str(pins)]]


def main() -> None:
    """Make all environments, or those named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", default=names(), help=f"of {', '.join(names())}; all by default")
    for name in parser.parse_args().peers:
        print(python_of(name))


if __name__ == "__main__":
    main()

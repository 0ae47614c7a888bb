"""Packages, megabytes and seconds of an install of maskpolicy, and what each extra adds.

python -m benchmarks.installs WHEEL [EXTRA ...] prints a table. Each is installed into a
virtual environment of its own; files that it shares with the base are links to them.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import one_line_of_error
from maskpolicy.core import hardware

_ROOT = Path(__file__).resolve().parent.parent
_MEGA = 1_000_000


def extras() -> list[str]:
    """Return the extras of setup.cfg."""
    config = ConfigParser()
    config.read(_ROOT / "setup.cfg", encoding="utf-8")
    return sorted(config["options.extras_require"])


def install(venv: Path, what: str) -> tuple[float, float]:
    """Install a wheel with an extra; return the seconds and the processor's seconds it took.

    inspect_ai needs older versions of some packages than constraints.txt has.
    """
    pins = [] if what.endswith("[inspect]") else ["-c", str(_ROOT / "constraints.txt")]
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    began, before = time.perf_counter(), _processor()
    subprocess.run([*pip, "install", "-q", *pins, what], check=True)
    return time.perf_counter() - began, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def contents(venv: Path) -> tuple[int, float]:
    """Return the number of packages in an environment besides pip, and the bytes of all files."""
    (site,) = venv.glob("lib/python*/site-packages")
    packages = sum(1 for each in site.glob("*.dist-info") if not each.name.startswith("pip-"))
    return packages, sum(each.stat().st_size for each in site.rglob("*") if each.is_file())


@one_line_of_error()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*", default=extras())
    given = parser.parse_args()
    if unknown := set(given.extras) - set(extras()):
        parser.error(f"no extra {min(unknown)!r}: choose from {', '.join(extras())}")
    wheel = given.wheel.resolve()
    print(f"{wheel.name}: {wheel.stat().st_size / _MEGA:.2f} MB, on {hardware.describe()}, Python")
    print(f"{platform.python_version()}, packages in pip's cache\n")
    print("| install | packages | MB | seconds | of a processor |\n|---|---:|---:|---:|---:|")
    with TemporaryDirectory() as scratch:
        base = Path(scratch, "base")
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        empty = contents(base)
        for extra in ["", *given.extras]:
            venv = Path(scratch, extra) if extra else base
            if extra:
                shutil.copytree(base, venv, symlinks=True, copy_function=os.link)
            before = contents(venv) if extra else empty
            seconds, processor = install(venv, f"{wheel}[{extra}]" if extra else str(wheel))
            packages, size = (now - then for now, then in zip(contents(venv), before, strict=True))
            name = f"`{extra}`" if extra else "maskpolicy"
            print(
                f"| {name} | {packages} | {size / _MEGA:.0f} | {seconds:.0f} | {processor:.0f} |",
                flush=True,
            )
            if extra:
                shutil.rmtree(venv)


if __name__ == "__main__":
    main()

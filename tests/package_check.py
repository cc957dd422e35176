"""Build the wheel and the source distribution, install them into empty environments, and use them
as a user would.

    python -m tests.package_check [--python PYTHON ...] [--uvx] [--tests]
    python -m tests.package_check --found | --lowest

By default every Python of a supported version that is found here is tried. For each of them, the
wheel is installed into an empty virtual environment and checked in an empty folder: import,
command, shipped configurations and contracts, bundled bars, a training run, the commit in its
manifest. The source distribution must hold every file of the checkout; with `--tests`, some of its
tests are run in it. With `--uvx`, the same run is made by `uvx --from`. Prints one line for each
step; the exit code is 1 if one failed. Downloads the dependencies.

`--found` only prints the Pythons, oldest first. `--lowest` only prints the lowest versions that pyproject.toml allows,
as constraints for pip. Both need nothing but Python.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.reading import ROOT

LEAST, MOST = (3, 11), (3, 13)  # supported versions
TRAIN = (
    "train",
    "--test",
    "--market",
    "NQ",
    "--non-interactive",
    "--set",
    "train.total_timesteps=8_192",
    "--set",
    "train.chunk_updates=1",
    "--set",
    "rollout.num_envs=32",
    "--run-dir",
    "run",
)
# What a user's first hour touches, in the installed package and in no checkout.
PROBE = """
import importlib, json, pathlib, sys
import jaxtrade
home = pathlib.Path(jaxtrade.__file__).parent
assert "site-packages" in str(home), home
for name in jaxtrade.__all__:
    getattr(jaxtrade, name)
from jaxtrade.cli.entry import bench_module
bench_module("catalogue")
from jaxtrade.config import load_config, make_config
from jaxtrade.curriculum.config import load_curriculum
from jaxtrade.data.contracts import load_contract
configs = sorted(path.stem for path in (home / "configs").glob("*.yaml"))
for name in configs:
    if name == "curriculum":
        load_curriculum(name, (), (), make_config)
    else:
        load_config(name)
contracts = [load_contract(path.stem) for path in sorted((home / "configs" / "contracts").glob("*.yaml"))]
bars = {symbol: len(jaxtrade.load_market(load_config("quickstart", [f"data.market={symbol}"])).bars)
        for symbol in ("ES", "EURUSD")}
from jaxtrade.web import assets
assert all(assets.text(name) for name in (*assets.STYLES, *assets.SCRIPTS))
assert (home / "web" / "vendor" / "uplot" / "LICENSE").is_file()
assert pathlib.Path("run/report/report.html").read_text().count("uPlot") > 1
manifest = json.loads(pathlib.Path("run/manifest.json").read_text())
assert manifest["git"] == sys.argv[1], (manifest["git"], sys.argv[1])
assert json.loads(pathlib.Path("run/evaluation/test/evaluation.json").read_text())["agents"]
print(f"{len(jaxtrade.__all__)} names, {len(configs)} configurations, {len(contracts)} contracts, bars {bars}, "
      f"commit {manifest['git'][:12]}")
"""
TESTS = (
    "tests/test_config.py",
    "tests/test_layering.py",
    "tests/test_docs_tables.py",
    "tests/test_places.py",
    "tests/data/test_contracts.py",
    "tests/env/test_money.py",
    "tests/bench/test_render.py",
    "tests/test_old_run.py::test_it_is_evaluated_to_the_same_trades",
)
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")


def run(words, cwd, fine=(0,), **variables):
    """The output of a command. Raises RuntimeError, with the end of what it said, for an exit code
    not in `fine`.
    """
    env = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env | variables, capture_output=True, text=True
    )
    if done.returncode not in fine:
        raise RuntimeError(
            f"{' '.join(map(str, words[:6]))}: exit code {done.returncode}\n"
            f"{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout


def pythons():
    """Version -> one Python of each supported version that is on the path or in pyenv's folder."""
    found = {}
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(LEAST[1], MOST[1] + 1):
        name = f"{LEAST[0]}.{minor}"
        places = [
            sys.executable,
            shutil.which(f"python{name}"),
            *sorted(home.glob(f"{name}.*/bin/python{name}")),
        ]
        for place in filter(None, places):
            if (version := version_of(Path(place))) is not None and version.rpartition(".")[
                0
            ] == name:
                found.setdefault(version, Path(place))
                break
    return found


def version_of(python):
    """`3.12.1`; None if it does not run (a shim without a version) or is no release."""
    try:
        done = subprocess.run(
            [str(python), "-c", "import platform, venv; print(platform.python_version())"],
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    said = done.stdout.strip()
    return said if done.returncode == 0 and re.fullmatch(r"\d+\.\d+\.\d+", said) else None


def lowest():
    """`name==version` of the lowest version of each package that pyproject.toml names, the extras
    included.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    stated = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return [
        re.sub(r"(\[.*])?>=([^,]+).*", r"==\2", line)
        for line in stated
        if not line.startswith("jaxtrade[")
    ]


def environment(python, folder, *packages):
    """The Python of a new virtual environment with these packages."""
    run([python, "-m", "venv", folder], folder.parent)
    inside = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run([inside, "-m", "pip", "install", "--quiet", *packages], folder.parent)
    return inside


def built(folder):
    """Wheel and source distribution. The wheel is built from the source distribution, as an
    installer does.
    """
    builder = environment(Path(sys.executable), folder / "builder", "build")
    run([builder, "-m", "build", "--outdir", folder / "dist", ROOT], folder)
    [wheel], [source] = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, source


def missing(source):
    """Files of the checkout that a source distribution lacks. Without git, those that this folder
    has are unknown.
    """
    if not (ROOT / ".git").exists():
        return []
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    return sorted(set(run(["git", "ls-files"], ROOT).splitlines()) - held)


def commit():
    """What the manifest of a run of the installed package must say."""
    if not (ROOT / ".git").exists():
        return "unknown"
    return run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], ROOT
    ).strip()


def check_wheel(python, wheel, folder, built_from):
    """Install the wheel and use it in an empty folder -> what was found. built_from: the commit
    that it must name.
    """
    folder.mkdir()
    work = folder / "work"
    work.mkdir()
    inside = environment(python, folder / "venv", wheel)
    command = inside.parent / "jaxtrade"
    for words in (
        [command, "--version"],
        [inside, "-m", "jaxtrade", "--version"],
        [command, "train", "--help"],
    ):
        assert run(words, work).strip(), words
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    table = run(
        [command, *TRAIN], work, (0, 1), **cache
    )  # 1: so short a run may fail its health check
    assert "your policy" in table, table
    run([inside, "-m", "jaxtrade", "evaluate", "run"], work, **cache)
    run([inside, "-m", "jaxtrade", "report", "run"], work, **cache)
    return run([inside, "-c", PROBE, built_from], work, **cache).strip()


def check_source(python, source, folder):
    """Unpack the source distribution and run some of its tests in it -> the last line of pytest."""
    folder.mkdir()
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = folder.iterdir()
    inside = environment(python, folder / "venv", unpacked, *TEST_PACKAGES)
    return (
        run(
            [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
            unpacked,
            XDG_CACHE_HOME=str(folder / "cache"),
        )
        .strip()
        .splitlines()[-1]
    )


def check_uvx(folder):
    """`uvx --from CHECKOUT jaxtrade` -> its version; and a training run."""
    work = folder / "work"
    work.mkdir(parents=True)
    uvx = environment(Path(sys.executable), folder / "venv", "uv").parent / "uvx"
    cache = {"UV_CACHE_DIR": str(folder / "uv"), "XDG_CACHE_HOME": str(folder / "cache")}
    words = [uvx, "--python", sys.executable, "--from", ROOT, "jaxtrade"]
    version = run([*words, "--version"], work, **cache).strip()
    assert "your policy" in run([*words, *TRAIN], work, (0, 1), **cache)
    return version


def main():
    """Run the steps. Returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.package_check", description=__doc__)
    parser.add_argument(
        "--python", action="append", type=Path, default=[], help="only this one; may be repeated"
    )
    parser.add_argument("--uvx", action="store_true", help="also run it by uvx")
    parser.add_argument(
        "--tests", action="store_true", help="also run some tests of the source distribution"
    )
    parser.add_argument(
        "--found", action="store_true", help="only print the Pythons of this machine, oldest first"
    )
    parser.add_argument(
        "--lowest", action="store_true", help="only print the lowest versions that are allowed"
    )
    given = parser.parse_args()
    if given.found or given.lowest:
        print(*(lowest() if given.lowest else pythons().values()), sep="\n")
        return 0
    chosen = {version_of(path) or "?": path for path in given.python} or pythons()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="jaxtrade-package-") as name:
        folder = Path(name)
        built_from = commit()
        wheel, source = built(folder)
        if lacks := missing(source):
            failed += 1
            print(
                f"{source.name}: FAILED: it lacks {len(lacks)} files of the checkout: {', '.join(lacks[:9])}"
            )
        steps = [
            (
                f"{wheel.name}, Python {version}",
                check_wheel,
                (python, wheel, folder / version, built_from),
            )
            for version, python in chosen.items()
        ]
        if given.tests:
            steps.append(
                (source.name, check_source, (Path(sys.executable), source, folder / "source"))
            )
        if given.uvx:
            steps.append(("uvx", check_uvx, (folder / "uvx",)))
        # Two at a time: half of their time is an installer's, which uses one core.
        with ThreadPoolExecutor(2) as pool:
            failed += sum(pool.map(taken, *zip(*steps, strict=True)))
    return int(failed > 0)


def taken(title, check, args):
    """Take a step and print what it found -> whether it failed."""
    start, failed = time.monotonic(), False
    try:
        said = check(*args)
    except (RuntimeError, AssertionError) as error:
        failed, said = True, f"FAILED: {error}"
    print(f"{title}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

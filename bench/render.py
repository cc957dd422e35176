"""Write the generated parts of README.md and docs/benchmarks.md from the committed results.

    python -m bench.render            (in a checkout)
    python -m bench.render --check    (writes nothing; exit code 1 where a part is not up to date)

A generated part stands between `<!-- bench:begin -->` and `<!-- bench:end -->`. Every figure is read
from `bench/results/NAME.json`; a quick result, or one of a machine that was not idle, is refused.
Imports no JAX.
"""

import sys
from pathlib import Path

from jaxtrade.errors import DataError

from . import catalogue, table
from .table import number, size

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NOTE = "<!-- written by `python -m bench.render` from bench/results: change nothing here -->"
PER_CPU = "per CPU second"
NETWORKS = {"small": "64-64", "large": "256-256-128"}
SIDES = {
    "ours": "jaxtrade",
    "ours_unseen": "jaxtrade, observations not built",
    "ours_one_core": "jaxtrade, one core",
    "gymnax": "gymnax's rollout of our environment",
    "bare": "the NumPy twin alone",
    "dummy": "SB3's DummyVecEnv",
    "subproc": "SB3's SubprocVecEnv",
}
SHOWN = {"ours": (1_024, 65_536), "ours_unseen": (4_096,), "ours_one_core": (4_096,)}
SHOWN |= {"gymnax": (1_024,), "bare": (1,), "dummy": (1, 16), "subproc": (8,)}
OTHERS = {
    "sb3_dummy": "SB3's MaskablePPO",
    "rejax": "rejax",
    "purejaxrl": "PureJaxRL",
    "sbx": "sbx",
}


def load(name, root=ROOT):
    """The committed result of a bench. Raises DataError: missing, quick, or forced."""
    path = root / "bench" / "results" / f"{name}.json"
    result = table.read(path)
    if result["quick"] or result.get("forced"):
        raise DataError(
            f"{path}: a {'quick' if result['quick'] else 'forced'} result, which shows no speed; "
            f"expected one of an idle machine: run `jaxtrade bench {name}`"
        )
    return result


def said(ratio, interval=None):
    """A ratio of speeds with its interval and what it means; *slower* in bold."""
    word = table.compared(ratio, interval)
    within = f" ({' to '.join(map(number, interval))})" if interval else ""
    return f"{number(ratio)}x{within}: {f'**{word}**' if word == 'slower' else word}"


def both(ratio):
    """A ratio by the clock and per CPU second."""
    return [said(ratio[clock], ratio.get(f"{clock}_interval")) for clock in ("wall", "cpu")]


def rows(header, cells):
    """A Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells)]


def env_step(result):
    """Environment steps, every side; jaxtrade's best size over the others."""
    cells, best = [], result["best"]
    for name, side in result["sides"].items():
        if name != best and side["num_envs"] not in SHOWN[side["kind"]]:
            continue
        ratio = result["ratios"].get(f"{best} / {name}")
        speeds = [number(side[f"steps_per_{key}"]) for key in ("second", "cpu_second")]
        over = both(ratio) if ratio else ["", ""]
        cells.append([SIDES[side["kind"]], f"{side['num_envs']:,}", *speeds, *over])
    header = ("side", "environments", "steps/s", "steps/CPU-s", "our best over it", PER_CPU)
    return rows(header, cells)


def ppo_train(result):
    """Whole updates of the same mathematics, by network and number of environments."""
    cells = []
    for name, ratio in result["ratios"].items():
        network, other, count = name.split("/")
        speeds = [
            number(result["sides"][side]["steps_per_second"])
            for side in (f"{network}/ours/{count}", name)
        ]
        cells.append([NETWORKS[network], count, OTHERS[other], *speeds, *both(ratio)])
    header = ("network", "environments", "other", "our steps/s", "its steps/s", "by the clock")
    return rows((*header, PER_CPU), cells)


def raced(name, found, ours, theirs, ratio):
    """The row of a learner that was trained until the target."""
    own, other = found["sides"][ours], found["sides"][theirs]
    times = [number(other["seconds"]), number(own["seconds"]), number(own["compile_seconds"])]
    sooner = [said(each["wall"]) for each in (ratio, ratio["with_compile"])]
    return [name, *(f"{each} s" for each in times), *sooner, number(ratio["env_steps"])]


RACED = ("SB3", "ours", "compilation", "without compilation", "with it", "our steps over SB3's")


def time_to_reward(result):
    """Seconds and steps until the target reward, by number of environments."""
    cells = [
        raced(f"{count} environments", result, f"ours/{count}", f"sb3/{count}", ratio)
        for count, ratio in result["ratios"].items()
    ]
    return rows(("both with", *RACED), cells)


def learners(result):
    """Seconds of each learner until the target of its task, against SB3's DQN."""
    cells = [
        raced(f"{name.upper()}, {task}", race, name, "sb3_dqn", ratio)
        for task, race in result["race"].items()
        for name, ratio in race["ratios"].items()
    ]
    return rows(("learner", *RACED), cells)


def ratios(result):
    """Every ratio of a result."""
    cells = [[name, *both(ratio)] for name, ratio in result["ratios"].items()]
    return rows(("speed of", "by the clock", PER_CPU), cells)


def measured(found, key):
    """Name, median and range of measured figures."""
    return [
        [name, number(each[key]), " to ".join(map(number, each[f"{key}_range"]))]
        for name, each in found.items()
    ]


def waits(root):
    """What a user waits for: seconds of several benches in one table."""
    found = {name: load(name, root) for name in ("first_result", "startup", "data")}
    parts = load("compile", root)["seconds"]
    told = {**found["first_result"]["steps"], **found["startup"]["start"]}
    for kind in ("cold", "cached"):
        for part, what in (("chunk", "train chunk"), ("ready", "from start to first update")):
            told[f"compile, {kind}: {what}"] = parts[f"default {kind}"][part]
    for kind, each in found["data"]["to_market"].items():
        peak = size(found["data"]["peak_resident_bytes"][kind])
        told[f"ten years of minute bars from {kind} to a market (peak memory {peak})"] = each
    return rows(("what", "seconds", "range"), measured(told, "seconds"))


def memory(result):
    """Bytes of ours, and temporaries beside the peers'."""
    cells = [[name.replace("_", " "), size(value)] for name, value in result["bytes"].items()]
    for name, each in (*result["training"].items(), *result["peers"].items()):
        bytes_ = each.get("temporary_bytes", each.get("temporaries"))
        cells.append([f"temporaries of training: {name}", size(bytes_)])
    return rows(("what", "bytes"), cells)


TABLES = {
    "env_step": env_step,
    "ppo_train": ppo_train,
    "time_to_reward": time_to_reward,
    "learners": learners,
    "population": ratios,
    "advisor": ratios,
    "memory": memory,
}


def page(root=ROOT):
    """The generated part of docs/benchmarks.md: a table for each bench, and one of waiting."""
    lines = []
    for name, make in TABLES.items():
        about = catalogue.BENCHES[name]
        lines += [f"### {name}", "", f"{about[:1].upper()}{about[1:]} ({source(name, root)})."]
        lines += ["", *make(load(name, root)), ""]
    told = "; ".join(source(name, root) for name in ("first_result", "startup", "compile", "data"))
    return [*lines, "### What a user waits for", "", f"{told}.", "", *waits(root)]


def source(name, root):
    """A link to a result, and where it was measured."""
    stamp = load(name, root)["stamp"]
    where = f"{stamp['device']}, {stamp['cores']} cores, commit {stamp['commit']}"
    return f"[{name}.json](../bench/results/{name}.json): {where}"


def readme(root=ROOT):
    """The generated part of README.md: jaxtrade's speed over the others', in a line each."""
    steps, trained, reached = map(load, ("env_step", "ppo_train", "time_to_reward"), [root] * 3)
    cells = [
        [
            "environment alone",
            "SB3's DummyVecEnv",
            *both(steps["ratios"][f"{steps['best']} / sb3_dummy_16"]),
        ]
    ]
    for other in ("sb3_dummy", "rejax", "purejaxrl"):
        for network, widths in NETWORKS.items():
            ratio = trained["ratios"][f"{network}/{other}/16"]
            cells.append([f"PPO, network {widths}", OTHERS[other], *both(ratio)])
    sooner = reached["at_fastest"]["with_compile"]
    cells.append(
        ["seconds until a given reward, with compilation", OTHERS["sb3_dummy"], *both(sooner)]
    )
    return rows(("jaxtrade's speed, 16 environments", "over", "by the clock", PER_CPU), cells)


def inserted(text, lines, name):
    """`text` with its generated part replaced. Raises DataError where the markers do not stand
    once, in order.
    """
    head, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise DataError(f"{name}: expected one line '{BEGIN}' and after it one line '{END}'")
    return "\n".join([f"{head}{BEGIN}", NOTE, *lines, f"{END}{tail}"])


def stale(root=ROOT):
    """Page that is not up to date -> its text as it should be."""
    parts = {root / "README.md": readme(root), root / "docs" / "benchmarks.md": page(root)}
    found = {}
    for path, lines in parts.items():
        before = path.read_text(encoding="utf-8")
        if (after := inserted(before, lines, path.name)) != before:
            found[path] = after
    return found


def main(argv):
    """The command."""
    behind = stale()
    for path, text in behind.items():
        if "--check" not in argv:
            path.write_text(text, encoding="utf-8")
        print(f"{'not up to date' if '--check' in argv else 'written'}: {path}")
    return int("--check" in argv and bool(behind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

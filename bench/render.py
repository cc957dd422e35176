"""Write the generated parts of README.md and docs/benchmarks.md from the committed results.

    python -m bench.render            (in a checkout)
    python -m bench.render --check    (writes nothing; exit code 1 where a part is not up to date)

A generated part stands between `<!-- bench:begin -->` and `<!-- bench:end -->`. Every figure is read
from `bench/results/NAME.json`; a quick result, or one of a machine that was not idle, is refused.
Imports no JAX.
"""

import sys
from pathlib import Path

import yaml
from jinja2 import Environment

from jaxtrade.errors import DataError

from . import catalogue, table
from .table import number, size

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NOTE = "<!-- written by `python -m bench.render` from bench/results: change nothing here -->"
TABLES = ["env_step", "ppo_train", "time_to_reward", "learners", "population", "advisor", "memory"]
WAITS = ["first_result", "startup", "compile", "data"]
NAMED = yaml.safe_load("""
ours: jaxtrade
ours_unseen: jaxtrade, observations not built
ours_one_core: jaxtrade, one core
gymnax: gymnax's rollout of our environment
bare: the NumPy twin alone
dummy: SB3's DummyVecEnv
subproc: SB3's SubprocVecEnv
sb3_dummy: SB3's MaskablePPO
rejax: rejax
purejaxrl: PureJaxRL
sbx: sbx
small: 64-64
large: 256-256-128
""")
# Side of `env_step` -> the numbers of environments that are shown, beside the best.
SHOWN = yaml.safe_load("""
ours: [1024, 65536]
ours_unseen: [4096]
ours_one_core: [4096]
gymnax: [1024]
bare: [1]
dummy: [1, 16]
subproc: [8]
""")
PAGE = """
{{ head("env_step") }}
| side | environments | steps/s | steps/CPU-s | our best over it | per CPU second |
| --- | --- | --- | --- | --- | --- |
% for name, side in env_step.sides.items()
% if name == env_step.best or side.num_envs in shown[side.kind]
{{ row(named[side.kind], "{:,}".format(side.num_envs), number(side.steps_per_second),
       number(side.steps_per_cpu_second), *both(env_step.ratios[env_step.best ~ " / " ~ name])) }}
% endif
% endfor

{{ head("ppo_train") }}
| network | environments | other | our steps/s | its steps/s | by the clock | per CPU second |
| --- | --- | --- | --- | --- | --- | --- |
% for name, ratio in ppo_train.ratios.items()
% set network, other, count = name.split("/")
% set ours = ppo_train.sides[network ~ "/ours/" ~ count]
{{ row(named[network], count, named[other], number(ours.steps_per_second),
       number(ppo_train.sides[name].steps_per_second), *both(ratio)) }}
% endfor

{{ head("time_to_reward") }}
| both with | SB3 | ours | compilation | without compilation | with it | our steps over SB3's |
| --- | --- | --- | --- | --- | --- | --- |
% for count, ratio in time_to_reward.ratios.items()
{{ raced(count ~ " environments", time_to_reward.sides, "ours/" ~ count, "sb3/" ~ count, ratio) }}
% endfor

{{ head("learners") }}
| learner | SB3 | ours | compilation | without compilation | with it | our steps over SB3's |
| --- | --- | --- | --- | --- | --- | --- |
% for task, race in learners.race.items()
% for name, ratio in race.ratios.items()
{{ raced(name.upper() ~ ", " ~ task, race.sides, name, "sb3_dqn", ratio) }}
% endfor
% endfor

% for name, result in [("population", population), ("advisor", advisor)]
{{ head(name) }}
| speed of | by the clock | per CPU second |
| --- | --- | --- |
% for pair, ratio in result.ratios.items()
{{ row(pair, *both(ratio)) }}
% endfor

% endfor
{{ head("memory") }}
| what | bytes |
| --- | --- |
% for name, value in memory.bytes.items()
{{ row(name.replace("_", " "), size(value)) }}
% endfor
% for part in [memory.training, memory.peers]
% for name, each in part.items()
{{ row("temporaries of training: " ~ name, size(each.temporary_bytes or each.temporaries)) }}
% endfor
% endfor

{{ head("What a user waits for", waits) }}
| what | seconds | range |
| --- | --- | --- |
% for part in [first_result.steps, startup.start]
% for name, each in part.items()
{{ waited(name, each) }}
% endfor
% endfor
% for kind in ["cold", "cached"]
{{ waited("compile, " ~ kind ~ ": train chunk", compile.seconds["default " ~ kind].chunk) }}
{{ waited("compile, " ~ kind ~ ": from start to first update", compile.seconds["default " ~ kind].ready) }}
% endfor
% for kind, each in data.to_market.items()
% set peak = size(data.peak_resident_bytes[kind])
{{ waited("ten years of minute bars from " ~ kind ~ " to a market (peak memory " ~ peak ~ ")", each) }}
% endfor
"""
README = """
| jaxtrade's speed | over | ratio |
| --- | --- | --- |
{{ row("environment alone", named.dummy, said(env_step.ratios[env_step.best ~ " / sb3_dummy_16"].wall)) }}
{{ row("training with PPO, network 64-64", named.sb3_dummy, said(ppo_train.ratios["small/sb3_dummy/16"].wall)) }}
{{ row("the same", named.rejax, said(ppo_train.ratios["small/rejax/16"].wall)) }}
{{ row("a short run to a given reward, with compilation", named.sb3_dummy,
       said(time_to_reward.at_fastest.with_compile.wall)) }}
"""


def load(name, root=ROOT):
    """Return the committed result of a bench. Raises DataError: missing, quick, or forced."""
    path = root / "bench" / "results" / f"{name}.json"
    result = table.read(path)
    if result["quick"] or result.get("forced"):
        raise DataError(
            f"{path}: a {'quick' if result['quick'] else 'forced'} result, which shows no speed; "
            f"expected one of an idle machine: run `jaxtrade bench {name}`"
        )
    return result


def said(ratio, interval=None):
    """Return a ratio of speeds with its interval and what it means; *slower* in bold."""
    word = table.compared(ratio, interval)
    within = f" ({' to '.join(map(number, interval))})" if interval else ""
    return f"{number(ratio)}x{within}: {f'**{word}**' if word == 'slower' else word}"


def both(ratio):
    """Return a ratio by the clock and per CPU second; empty where there is none."""
    clocks = ("wall", "cpu")
    return [said(ratio[x], ratio.get(f"{x}_interval")) for x in clocks] if ratio else ["", ""]


def row(*cells):
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def raced(name, sides, ours, theirs, ratio):
    """Return the row of a learner that was trained until the target."""
    own, other = sides[ours], sides[theirs]
    times = [number(other["seconds"]), number(own["seconds"]), number(own["compile_seconds"])]
    sooner = [said(each["wall"]) for each in (ratio, ratio["with_compile"])]
    return row(name, *(f"{each} s" for each in times), *sooner, number(ratio["env_steps"]))


def waited(name, found):
    """Return the row of measured seconds, with their range."""
    return row(name, number(found["seconds"]), " to ".join(map(number, found["seconds_range"])))


def rendered(template, root=ROOT):
    """Return the lines of a template, from the results below `root`."""
    results = {name: load(name, root) for name in (*TABLES, *WAITS)}

    def source(name):
        """Return a link to a result, and where it was measured."""
        stamp = results[name]["stamp"]
        where = f"{stamp['device']}, {stamp['cores']} cores, commit {stamp['commit']}"
        return f"[{name}.json](../bench/results/{name}.json): {where}"

    def head(title, names=()):
        about = catalogue.BENCHES.get(title, "")
        text = "; ".join(map(source, names)) or f"{about[:1].upper()}{about[1:]} ({source(title)})"
        return f"\n### {title}\n\n{text}.\n"

    tools = {"said": said, "both": both, "row": row, "raced": raced, "waited": waited}
    tools |= {"number": number, "size": size, "head": head}
    names = {"named": NAMED, "shown": SHOWN, "waits": WAITS}
    made = Environment(line_statement_prefix="%").from_string(template.strip())
    return made.render(results | tools | names).strip().splitlines()


def inserted(text, lines, name):
    """Return `text` with its generated part replaced.

    Raises DataError where the markers do not stand once, in order.
    """
    head, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise DataError(f"{name}: expected one line '{BEGIN}' and after it one line '{END}'")
    return "\n".join([f"{head}{BEGIN}", NOTE, *lines, f"{END}{tail}"])


def stale(root=ROOT):
    """Page that is not up to date -> its text as it should be."""
    found = {}
    for path, template in {
        root / "README.md": README,
        root / "docs" / "benchmarks.md": PAGE,
    }.items():
        before, lines = path.read_text(encoding="utf-8"), rendered(template, root)
        if (after := inserted(before, lines, path.name)) != before:
            found[path] = after
    return found


def main(argv):
    """Run the command."""
    behind = stale()
    for path, text in behind.items():
        if "--check" not in argv:
            path.write_text(text, encoding="utf-8")
        print(f"{'not up to date' if '--check' in argv else 'written'}: {path}")
    return int("--check" in argv and bool(behind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

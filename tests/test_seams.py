"""Parts of a user's own, in a module outside the package: `--import` finds them, runs remember
them.
"""

import importlib

import pytest

from jaxtrade.config import load_config
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from jaxtrade.parts import NETWORKS, find_homes
from jaxtrade.registry import import_parts
from jaxtrade.runs import plan, rundir
from jaxtrade.runs.plan import plan_new
from tests.messages import missing, refused, refuses

PARTS = """
import flax.linen as nn
import jaxtrade
from jaxtrade.parts import LEARNERS, SAMPLERS
jaxtrade.register_network("net_of_{0}", nn.Dense)
LEARNERS.register("learner_of_{0}", object())
SAMPLERS.register("sampler_of_{0}", object())
"""


def test_a_module_that_is_not_there_is_refused_before_anything_is_read(
    capsys,
):
    refuses(capsys, ["train", "--import", "no_such_parts"], "module 'no_such_parts'")


def test_what_a_users_module_lacks_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_parts.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refused("no_such_library", kind=ModuleNotFoundError):
        load_config(None, ["imports=[half_parts]"])


def test_a_built_in_feature_is_never_taken_over():
    for name in ("close", "sma_20"):
        with refused(f"feature '{name}' exists already"):
            register_feature(FeatureSpec(name, "price", 1, "my own"), lambda bars, spec: bars.close)


def test_a_resumed_run_keeps_its_modules(capsys):
    refuses(capsys, ["train", "--resume", "nowhere", "--import", "my_parts"], "drop --import")


@pytest.fixture
def own_parts(tmp_path, monkeypatch):
    """Writes a module NAME with parts, net_of_NAME and others, and returns its folder."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name):
        (tmp_path / f"{name}.py").write_text(PARTS.format(name))
        return tmp_path

    return write


def test_a_plan_names_the_modules_that_a_program_has_imported_itself(own_parts, tmp_path):
    own_parts("seam_used")
    own_parts("seam_unused")
    for name in ("seam_used", "seam_unused"):
        importlib.import_module(name)
    config = load_config("quickstart", ["network.kind=net_of_seam_used"])
    assert plan_new(config, tmp_path / "run").config.imports == ("seam_used",)
    given = load_config("quickstart", ["imports=[seam_used]", "network.kind=net_of_seam_used"])
    assert plan_new(given, tmp_path / "run").config.imports == ("seam_used",)
    values = {"sweep": {"keys": {"sampler.kind": ["uniform", "sampler_of_seam_used"]}}}
    assert find_homes(values) == {"sampler 'sampler_of_seam_used'": "seam_used"}
    assert find_homes({"allocate": {"actions": "sampler_of_seam_used"}}) == {}, "of another key"
    values = {"sweep": {"settings": [{"algorithm": "learner_of_seam_used"}]}}
    assert find_homes(values) == {"learner 'learner_of_seam_used'": "seam_used"}


def test_a_part_belongs_to_the_module_that_was_asked_for(own_parts):
    folder = own_parts("seam_inner")
    (folder / "seam_outer.py").write_text("import seam_inner\n")
    import_parts(["seam_outer"])
    config = load_config("quickstart", ["network.kind=net_of_seam_inner"])
    assert plan.with_own_modules(config).imports == ("seam_outer",)


def test_a_part_of_the_program_itself_is_told_of(tmp_path, capsys):
    code = PARTS.format("seam_script")
    exec(compile(code, "script", "exec"), {"__name__": "__main__"})
    config = load_config("quickstart", ["network.kind=net_of_seam_script"])
    config = plan.with_own_modules(config)
    assert config.imports == ()
    rundir.create_run(tmp_path / "run", config, {})
    said = capsys.readouterr().err
    assert not missing(said, "network 'net_of_seam_script'", "__main__")
    rundir.create_run(tmp_path / "other", load_config("quickstart"), {})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [["evaluate"], ["replay", "--session", "2013-10-11"]])
def test_commands_import_a_module_that_a_run_does_not_name(own_parts, argv, tmp_path, capsys):
    name = f"seam_{argv[0]}"
    own_parts(name)
    refuses(capsys, [*argv, str(tmp_path / "nowhere"), "--import", name], "nowhere")
    assert f"net_of_{name}" in NETWORKS

"""Parts of a user's own, in a module outside the package: `--import` finds them, runs remember
them.
"""

from jaxtrade.config import load_config
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from tests.messages import refused, refuses


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

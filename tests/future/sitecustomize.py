"""A stand-in for a release of JAX and XLA that was never tried and knows none of the options that
we use if we can.

    PYTHONPATH=tests/future jaxtrade train quickstart
    PYTHONPATH=tests/future python -m pytest -q -n 2 --dist loadfile

Python loads this file when it starts, in child processes too. It changes modules once they are
loaded: XLA ends the process for a flag in `XLA_FLAGS`, as it does for unknown ones, a compilation
refuses every option, and no release of jaxlib counts as tried.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

# Asked for by tests of several devices, and no option of speed.
NEEDED = ("--xla_force_host_platform_device_count=",)


def refuse_flags(xla_client):
    """XLA reads its flags when a client is made, and ends the process for one that it does not
    know.
    """
    make = xla_client.make_cpu_client

    def checked(*args, **kwargs):
        unknown = [
            flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(NEEDED)
        ]
        if unknown:
            print("Unknown flags in XLA_FLAGS:", *unknown, file=sys.stderr, flush=True)
            os.abort()
        return make(*args, **kwargs)

    xla_client.make_cpu_client = checked


def refuse_options(compiler):
    """A compilation fails at an option that XLA does not know."""
    given = compiler.get_compile_options

    def checked(*args, env_options_overrides=None, **kwargs):
        for name in env_options_overrides or ():
            from jax.errors import JaxRuntimeError

            raise JaxRuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'")
        return given(*args, **kwargs)

    compiler.get_compile_options = checked


def try_none(internals):
    """No release counts as tried, so XLA is asked for every option."""
    internals.TRIED = ()


CHANGES = {
    "jaxlib.xla_client": refuse_flags,
    "jax._src.compiler": refuse_options,
    "jaxtrade.storage.internals": try_none,
}


class Changing(MetaPathFinder):
    """Finds the modules of `CHANGES` as Python does, and changes each once it is loaded."""

    def find_spec(self, fullname, path=None, target=None):
        """The spec of a module, with a loader that changes it. None for any other module."""
        if (
            fullname not in CHANGES
            or (spec := PathFinder.find_spec(fullname, path, target)) is None
        ):
            return None
        loader = spec.loader
        load = loader.exec_module

        def load_and_change(module):
            load(module)
            CHANGES[fullname](module)

        loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, Changing())

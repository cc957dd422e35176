"""How the programs of tests are compiled: fast, where the installed XLA has the options for it.

Compiling is most of what the tests do. No option here changes what a test may see; without one,
tests only take longer.
"""

import functools

import jax

# Loops are written by XLA's older emitters, which takes two thirds of the time. XLA passes over an
# unknown one of its backend options.
PLAIN_LOOPS = "xla_cpu_disable_new_fusion_emitters"


@functools.cache
def _accepted(name, value):
    try:
        jax.jit(lambda x: x).lower(0).compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def accepted(options):
    """Those of the options of a compilation that the installed XLA knows; it fails at others."""
    return {name: value for name, value in options.items() if _accepted(name, value)}


def fast():
    """Options of `jax.jit` that halve the time of compiling. Integers do not depend on them."""
    return accepted({"xla_backend_optimization_level": 0})


def _field(number, data):
    """A field of a protobuf message, of less than 128 bytes."""
    tag, head = number << 3 | 2, b""
    while tag > 127:
        head, tag = head + bytes([tag & 127 | 128]), tag >> 7
    return head + bytes([tag, len(data)]) + data


# CompileOptionsProto.executable_build_options.debug_options.xla_backend_extra_options[PLAIN_LOOPS]
# = "". JAX gives no name to it, and as a text it is no option of a compilation; XLA_FLAGS has it
# for whole processes only.
_EXTRA = _field(3, _field(3, _field(500, _field(1, PLAIN_LOOPS.encode()) + _field(2, b""))))


class Compilation:
    """Whether programs are compiled with plain loops now. It takes the place of JAX's private
    `get_compile_options`, if there is one: no public setting gives options to all compilations."""

    def __init__(self):
        self.plain = False
        self._given = None

    def install(self):
        """Stand between JAX and XLA from now on."""
        try:
            from jax._src import compiler

            self._given = compiler.get_compile_options
        except (ImportError, AttributeError):
            return
        compiler.get_compile_options = self

    def __call__(self, *args, **kwargs):
        """What JAX gives to a compilation, and plain loops if they are wanted."""
        options = self._given(*args, **kwargs)
        if self.plain and hasattr(options, "ParseFromString"):
            return type(options).ParseFromString(options.SerializeAsString() + _EXTRA)
        return options


def flags(given, plain):
    """`XLA_FLAGS` for child processes. given: those of this process."""
    own = "--xla_backend_extra_options="
    if not plain or own not in given:  # this XLA lacks them
        return given
    return " ".join(
        f"{flag},{PLAIN_LOOPS}" if flag.startswith(own) else flag for flag in given.split()
    )

"""Counting launches, loops and bytes, on a module written by hand."""

# ruff: noqa: E501 (the text of a module has long lines)

import pytest

from bench import accelerator
from bench.accelerator import launched, parse, shape_bytes

MODULE = """HloModule by_hand

%add_one (p: s32[]) -> s32[] {
  %p = s32[] parameter(0)
  ROOT %sum = s32[] add(%p, %p)
}

%inner_body (state: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[8,4]{1,0} get-tuple-element(%state), index=1
  %loop_add_fusion = f32[8,4]{1,0} fusion(%x), kind=kLoop, calls=%add_one, metadata={op_name="jit(f)/while/body/add"}
  %copy.1 = s32[] copy(%i)
  ROOT %tuple = (s32[], f32[8,4]{1,0}) tuple(%copy.1, %loop_add_fusion)
}

%inner_cond (state: (s32[], f32[8,4])) -> pred[] {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %limit = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

%outer_body (state: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  %while.2 = (s32[], f32[8,4]{1,0}) while(%state), condition=%inner_cond, body=%inner_body, metadata={op_name="jit(f)/while/body/gather"}
  %i = s32[] get-tuple-element(%while.2), index=0
  %x = f32[8,4]{1,0} get-tuple-element(%while.2), index=1
  %gemm = f32[8,4]{1,0} custom-call(%x), custom_call_target="__cublas$gemm"
  ROOT %tuple = (s32[], f32[8,4]{1,0}) tuple(%i, %gemm)
}

%outer_cond (state: (s32[], f32[8,4])) -> pred[] {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %flag = pred[] fusion(%state), kind=kLoop, calls=%add_one
}

ENTRY %main (a: f32[8,4], table: f32[100,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %table = f32[100,4]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,4]{1,0}) tuple(%zero, %a)
  %while.1 = (s32[], f32[8,4]{1,0}) while(%start), condition=%outer_cond, body=%outer_body, metadata={op_name="jit(f)/while"}, backend_config={"known_trip_count":{"n":"3"}}
  %x = f32[8,4]{1,0} get-tuple-element(%while.1), index=1
  %loop_gather_fusion = f32[8,4]{1,0} fusion(%x, %table), kind=kLoop, calls=%add_one, backend_config={"estimated_cycles":"70"}
  ROOT %loop_dynamic_update_slice_fusion = f32[8,4]{1,0} fusion(%loop_gather_fusion, %zero), kind=kLoop, calls=%add_one, backend_config={"estimated_cycles":"30"}
}
"""


@pytest.fixture(scope="module")
def module():
    return parse(MODULE)


@pytest.mark.parametrize("opcode", ["all-gather", "all-reduce", "copy", "collective-permute"])
def test_what_is_started_and_waited_for_is_one_launch(opcode):
    text = (
        "ENTRY %main (a: f32[8]) -> f32[8] {\n  %a = f32[8]{0} parameter(0)\n"
        f"  %s = f32[8]{{0}} {opcode}-start(%a)\n  ROOT %d = f32[8]{{0}} {opcode}-done(%s)\n}}\n"
    )
    assert parse(text).total(launched) == 1


def test_launches_by_hand(module):
    """An inner round starts 2. The outer loop starts 5 of these rounds and a product, 3 times; then
    2 more.
    """
    assert module.total(launched, "inner_body") == 2
    assert module.total(launched, "outer_body") == 5 * 2 + 1
    assert module.total(launched) == 3 * 11 + 2


def test_loops_and_their_rounds(module):
    """The length of one is in its configuration, that of the other in its condition."""
    outer, inner = module.loops()
    assert outer[:2] + outer[3:] == ("while.1", (), 3, 11, "outer_body")
    assert inner[:2] + inner[3:] == ("while.2", ("while.1",), 5, 2, "inner_body")
    assert inner.scope.endswith("gather")


def test_of_a_condition_the_longest_branch_counts_and_every_loop_is_seen():
    branches = MODULE.replace("ENTRY ", "").replace(
        "}\n\n%main",
        "}\n\n%other (x: f32[8]) -> f32[8] {\n  ROOT %neg = f32[8] negate(%x)\n}\n\n%main",
    )
    text = branches + (
        "\nENTRY %all (a: f32[8,4]) -> f32[8,4] {\n  %a = f32[8,4]{1,0} parameter(0)\n"
        "  ROOT %c = f32[8,4] conditional(%a), branch_computations={%other, %main}\n}\n"
    )
    module = parse(text)
    assert module.total(launched) == 1 + 3 * 11 + 2
    assert len(list(module.loops())) == 2


def test_a_loop_of_unknown_length_counts_once():
    text = MODULE.replace(', backend_config={"known_trip_count":{"n":"3"}}', "")
    module = parse(text)
    assert next(module.loops()).trips is None
    assert module.total(launched) == 11 + 2


def test_operations_of_several_devices_are_counted_by_their_start():
    text = (
        "ENTRY %main (a: f32[8]) -> f32[8] {\n  %a = f32[8]{0} parameter(0)\n"
        "  %s = f32[8]{0} all-reduce-start(%a)\n  %d = f32[8]{0} all-reduce-done(%s)\n"
        "  ROOT %r = f32[8]{0} all-gather(%d)\n}\n"
    )
    assert parse(text).total(accelerator.together) == 2


def test_shapes():
    assert shape_bytes("(f32[2,3]{1,0}, pred[8]{0}, bf16[])") == 24 + 8 + 2

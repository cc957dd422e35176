"""No module and no function outgrows what one can hold in mind."""

import ast

from tests.reading import ROOT

MODULE, FUNCTION = 700, 80  # lines; of a function without its docstring


def _lines(function):
    described = ast.get_docstring(function) is not None
    docstring = function.body[0]
    without = (docstring.end_lineno or 0) - docstring.lineno + 1 if described else 0
    return (function.end_lineno or 0) - function.lineno + 1 - without


def test_modules_and_functions_stay_short():
    long = []
    for top in ("jaxtrade", "bench", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text()
            if (count := text.count("\n")) > MODULE:
                long.append(f"{path.relative_to(ROOT)}: {count} lines")
            long += [
                f"{path.relative_to(ROOT)}: {each.name}: {_lines(each)} lines"
                for each in ast.walk(ast.parse(text))
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                and _lines(each) > FUNCTION
            ]
    assert long == []

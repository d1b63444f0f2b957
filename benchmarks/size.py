"""Files and lines of each package of hermes_core, and the share of comments.

The figures at the end of docs/architecture.md. The scaffold's project is not counted: it is a
template.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "hermes_core"
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    texts = {path: path.read_text("utf-8") for path in modules(CORE)}
    files, lines = Counter[str](), Counter[str]()
    for path, text in texts.items():
        package = path.relative_to(CORE).parts[0].removesuffix(".py")
        files[package] += 1
        lines[package] += len(text.splitlines())
    print(f"top-level names: {len(files.keys() - {'__init__', '__main__'})}")
    print(f"hermes_core: {files.total()} files, {lines.total():,} lines")
    print(f"plugins: {len(modules(ROOT / 'plugins'))} files")
    counts = [comments_and_code(text) for text in texts.values()]
    comments, code = (sum(each) for each in zip(*counts, strict=True))
    print(f"comments: {comments / code:.1%} of the lines of code")
    for package, number in lines.most_common():
        print(f"  {package:14} {files[package]:3} files {number:6,} lines")


def modules(folder: Path) -> list[Path]:
    template = CORE / "conformance" / "scaffold" / "project"
    return [path for path in folder.rglob("*.py") if not path.is_relative_to(template)]


def comments_and_code(text: str) -> tuple[int, int]:
    """How many lines have a comment, and how many have code; docstrings are neither."""
    comments: set[int] = set()
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(comments), len(code)


if __name__ == "__main__":
    main()

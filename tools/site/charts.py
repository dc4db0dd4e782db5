#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Charts of tables in the documentation, as SVG. Writes docs/ladder.svg and docs/speed.svg; with --check, says whether they
show what the tables say."""
import html
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH, LEFT, LINE = 480, 150, 20
STYLE = """<style>text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}.now{font-weight:600}.page{fill:#fff}
.bar{fill:#a8b1bb}.bar.now{fill:#0969da}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#161b22}.bar{fill:#57606a}.bar.now{fill:#4493f8}}</style>"""


def table_of(path, head):
    """The cells of the rows of the table whose first line starts with `head`, without marks."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = last = next(number for number, line in enumerate(lines) if line.startswith(head)) + 2
    while lines[last].startswith("|"):
        last += 1
    return [[cell.strip().replace("`", "").replace("*", "") for cell in line.strip("|").split("|")] for line in lines[first:last]]


def number(cell):
    return float(re.match(r"[\d.]+", cell.replace(",", ""))[0])


def chart(label, rows, now):
    """Rows of (name, length of the bar from 0 to 1, text); those named in `now` are emphasised."""
    height, room = LINE * len(rows) + 36, WIDTH - LEFT - 168
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
           f'aria-label="{html.escape(label)}">', "<!-- made by tools/site/charts.py; do not edit -->", STYLE,
           f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/><text x="10" y="18">{html.escape(label)}</text>']
    for line, (name, share, text) in enumerate(rows):
        y, kind = 28 + LINE * line, " now" if name in now else ""
        out.append(f'<text class="{kind.strip()}" x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>'
                   f'<rect class="bar{kind}" x="{LEFT}" y="{y + 2}" width="{max(1, room * share):.0f}" height="{LINE - 6}" rx="2"/>'
                   f'<text class="{kind.strip()}" x="{LEFT + 6 + max(1, room * share):.0f}" y="{y + 13}">{html.escape(text)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def ladder(path, name, column):
    """The limits (a copy, multiply-adds) and the steps of a ladder up to `name`; bars are speeds, whether the table has GB/s or
    milliseconds."""
    rows = [cells for cells in table_of(path, "| variant | 3×3" if path == "kernels/README.md" else "| variant | 1→6")
            if re.match("cuda_|device copy|copy|multiply-adds", cells[0])]
    is_rate = "GB/s" in rows[0][column]
    speeds = [number(cells[column]) ** (1 if is_rate else -1) for cells in rows]
    texts = [cells[column] if is_rate else re.sub(r"^[\d.]+", r"\g<0> ms", cells[column]) for cells in rows]
    last = [cells[0] for cells in rows].index(name) + 1
    return [(re.sub("^cuda_(layer_)?", "", cells[0]), speed / max(speeds), text) for cells, speed, text in zip(rows, speeds, texts)][:last]


def charts():
    steps = ladder("kernels/README.md", "cuda_tma_mma", 1)
    programs = table_of("docs/benchmarks.md", "| program | seconds | min")
    most = max(number(row[1]) for row in programs)
    return {"docs/ladder.svg": chart("A 3×3 filter on a GPU, step by step: GB/s, share of a copy, factor", steps, steps[-1]),
            "docs/speed.svg": chart("10,000 photographs, PNG to PNG, 16 cores, seconds: shorter is faster",
                                    [(row[0], number(row[1]) / most, row[1]) for row in programs], [row[0] for row in programs if "conv" in row[0]])}


def main():
    wrong = []
    for path, text in charts().items():
        path = os.path.join(ROOT, path)
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        elif not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
            wrong.append(path)
    return f"{', '.join(wrong)}: not what the tables say; run tools/site/charts.py" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""Charts in SVG, whose colours follow the reader's light or dark background."""
import html
import sys

from measure import values_of

WIDTH, LEFT, BARS = 944, 206, 480  # of the chart; where names end; of the longest bar
STEP, THICK, PANEL, HEAD = 24, 16, 70, 64
STYLE = """<style>
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}
.small{font-size:11px;fill:#59636e}.end{text-anchor:end}.page{fill:#ffffff}
.title{font-size:17px;font-weight:600}.panel{font-weight:600}.middle{text-anchor:middle}
.value{paint-order:stroke;stroke:#ffffff;stroke-width:3px}.grid{stroke:#d1d9e0;stroke-width:1}
.limit{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:5 4}.spread{stroke:#1f2328;stroke-width:1.5}
.copy{fill:#bf8700}.variant{fill:#0969da}.shape{fill:#80b4ee}.competitor{fill:#bc4c00}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.value{stroke:#0d1117}.grid{stroke:#3d444d}
.limit{stroke:#d29922}.spread{stroke:#e6edf3}.copy{fill:#d29922}.variant{fill:#4493f8}.shape{fill:#2a5590}
.competitor{fill:#f0883e}}
</style>"""


def svg(width, height, title, body):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
                      f"<title>{html.escape(title)}</title>", *body, "</svg>"]) + "\n"


def text(x, y, content, kind=""):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(content)}</text>'


# --- conv bench kernels and conv bench layers ------------------------------------------------------------

def tick_step(top):
    """A round step of 1, 2 or 5 that cuts `top` into about 5 parts."""
    power = 1e-6
    while True:
        for step in (power, 2 * power, 5 * power):
            if step * 5 >= top:
                return step
        power *= 10


def rate(row, key):
    """A layer's rate in TFLOP/s, any other in GB/s."""
    return row.get("tflop_per_s", row["gb_per_s"]) * row["ms"] / row[key]


def describe(row):
    if "tflop_per_s" in row:
        words = f"{row['tflop_per_s']:.3g} TFLOP/s, {row['us_per_image']:.4g} µs per image"
    else:
        words = f"{row['gb_per_s']:.4g} GB/s, {row['ms']:.3g} ms"
    if row["kind"] != "copy":
        words += f", {100 * row['share_of_copy']:.0f} % of a copy"
    return words + (f", {row['step']:.2f}×" if row["step"] else "")


def panel(title, rows, y, limits):
    """Bars with their spread, beside dashed limits."""
    unit = "TFLOP/s" if "tflop_per_s" in rows[0] else "GB/s, read and written"
    limits = [*limits, *(rate(row, "ms") for row in rows if row["kind"] == "copy")]
    top, bottom = max([rate(row, "ms_p25") for row in rows] + limits), y + 28 + len(rows) * STEP
    yield text(20, y + 16, title, "panel")
    y += 28
    step = tick_step(top)
    for i in range(int(top * 1.001 / step) + 1):
        x = LEFT + BARS * i * step / top
        yield f'<line class="grid" x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}"/>' + text(x, bottom + 14, f"{i * step:g}", "small middle")
    yield text(LEFT + BARS + 24, bottom + 14, unit, "small")
    values = []
    for number, row in enumerate(rows):
        at = y + (STEP - THICK) // 2 + number * STEP
        length, slow, fast = (BARS * rate(row, key) / top for key in ("ms", "ms_p75", "ms_p25"))
        yield text(LEFT - 8, at + THICK - 4, row["name"], "end small" if row["kind"] == "shape" else "end")
        yield (f'<rect class="{row["kind"]}" x="{LEFT}" y="{at}" width="{max(length, 1):.1f}" height="{THICK}" rx="2"><title>'
               f'{html.escape(row["summary"])}; {row["runs"]} runs of {row["ms_min"]:.3g} to {row["ms_max"]:.3g} ms</title></rect>')
        yield f'<line class="spread" x1="{LEFT + slow:.1f}" y1="{at + THICK / 2}" x2="{LEFT + fast:.1f}" y2="{at + THICK / 2}"/>'
        values.append(text(LEFT + fast + 6, at + THICK - 4, describe(row), "small value"))
    for limit in limits:
        x = LEFT + BARS * limit / top
        yield f'<line class="limit" x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}"/>'
    yield from values


def panels_of(table):
    """Title, rows and limits of each panel; of a layer the limits are a copy of the same bytes, and multiply-adds."""
    rows = [row for row in table["rows"] if "skipped" not in row]
    if table["type"] == "bench-kernels":
        for place in ("cpu", "cuda"):
            yield table[place], [row for row in rows if row["where"] == place], ()
        return
    layer = (f"{table['channels']}→{table['maps']}, {table['height']}×{table['width']}, {table['kernel_height']}×{table['kernel_width']}, "
             f"batch of {table['batch']}")
    for place, where, all_cores in (("cpu", "cpu", False), ("cpu_all", "cpu", True), ("cuda", "cuda", False)):
        mine = [row for row in rows if row["where"] == where and (row.get("threads", 1) > 1) == all_cores]
        copy = table[place + "_copy_gb_per_s"] * table["flops"] / table["bytes"] / 1e3
        yield f"{layer}: {table[place]}", mine, (copy, table[place + "_fma_tflop_per_s"])


def draw(tables):
    panels = [one for table in tables for one in panels_of(table) if one[1]]
    height = HEAD + sum(len(rows) * STEP + PANEL for _, rows, _ in panels)
    table, title = tables[0], "conv bench layers"
    note = "float32; cold caches; step (×) over the rung above; dashed: as fast as a copy of the same bytes, and multiply-adds in registers"
    if table["type"] == "bench-kernels":
        size = f" of {table['width']}×{table['height']}" if table["width"] else " of mixed sizes"
        title = f"conv bench kernels: {table['filter']}"
        note = (f"{table['images']} {'image' if table['images'] == 1 else 'images'}{size}, 3 planes of {table['depth']} bits, {table['border']} border; "
                "cold caches; step (×) over the variant above; black line: the middle half of the runs")
    body, y = [STYLE, f'<rect class="page" width="{WIDTH}" height="{height}"/>', text(20, 28, title, "title"), text(20, 48, note, "small")], HEAD
    for name, rows, limits in panels:
        body += panel(name, rows, y, limits)
        y += len(rows) * STEP + PANEL
    return svg(WIDTH, height, title, body)


def chart(parser):
    """Draws what `conv bench kernels --json` or `conv bench layers --json` printed, on standard input: one panel for each
    place, one bar per row, beside the copy that all rows are compared with.

    conv bench kernels --json | tools/bench chart >ladder.svg"""
    parser.parse_args(parser.arguments)
    print(draw(values_of(sys.stdin.read())), end="")

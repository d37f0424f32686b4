"""The chart: how many times better than Java, on a logarithmic axis."""

import math
from html import escape

from .report import ROWS, STORES, show

LEFT, RIGHT, TOP, GROUP, BAR = 330, 170, 70, 44, 15
WIDTH = 1000
COLOURS = {"": "#1f6f8b", "_cosmos": "#8fbccb"}


def draw(found, title):
    """An SVG image of the rows that can be compared."""
    by_name = {one["row"]: one for one in found}
    groups = []
    for row in ROWS:
        if not row.chart:
            continue
        bars = []
        for _, suffix, _ in STORES:
            one = by_name[row.name + suffix]
            if one["ratio"]:
                bars.append((suffix, one, 1 / one["ratio"] if row.lower_is_better else one["ratio"]))
        if bars:
            groups.append((row, bars))
    factors = [factor for _, bars in groups for _, _, factor in bars]
    low = math.floor(math.log10(min([1, *factors])))
    high = math.ceil(math.log10(max([10, *factors])))
    scale = (WIDTH - LEFT - RIGHT) / (high - low)

    def place(factor):
        return LEFT + (math.log10(factor) - low) * scale

    height = TOP + GROUP * len(groups) + 50
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="20" y="26" font-size="16" font-weight="bold">{escape(title)}</text>',
        '<text x="20" y="46" fill="#555">how many times better than Java; right of the line is better, logarithmic</text>',
    ]
    for number, (_, suffix, store) in enumerate(STORES):
        x = 560 + number * 160
        out.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{COLOURS[suffix]}"/>')
        out.append(f'<text x="{x + 17}" y="46">{escape(store.split(" ")[0])}</text>')
    for power in range(low, high + 1):
        x = place(10.0 ** power)
        strong = ' stroke-width="2"' if power == 0 else ' stroke-dasharray="3 3"'
        colour = "#333" if power == 0 else "#bbb"
        bottom = TOP + GROUP * len(groups)
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"{strong}/>')
        label = f"{10 ** power:,} ×" if power >= 0 else f"1/{10 ** -power:,}"
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for number, (row, bars) in enumerate(groups):
        top = TOP + GROUP * number
        java = bars[0][1]
        out.append(f'<text x="{LEFT - 12}" y="{top + 16}" text-anchor="end">{escape(row.name)}</text>')
        out.append(f'<text x="{LEFT - 12}" y="{top + 31}" text-anchor="end" fill="#777">'
                   f'Java {show(java["java"])} {escape(row.unit)}</text>')
        for index, (suffix, one, factor) in enumerate(bars):
            y = top + 4 + index * (BAR + 1)
            begin, end = sorted((place(1), place(factor)))
            out.append(f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{BAR}" '
                       f'fill="{COLOURS[suffix]}"/>')
            text = f'{show(one["ours"])} {one["unit"]} ({factor:.3g} ×)'
            out.append(f'<text x="{max(end, place(1)) + 5:.1f}" y="{y + 12}">{escape(text)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"

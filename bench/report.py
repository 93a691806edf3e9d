#!/usr/bin/python3
# bench/report.py - the results of all benchmarks as a table, and how cost grows as a plot
#
#     report.py DIRECTORY    reads *.results and scale.tsv there, prints the table, writes report.txt and scale.svg
#
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

HEAD = ("section", "what", "way", "value", "unit", "ratio", "aim")


def table(rows):
    widths = [max(len(row[i]) for row in [HEAD, *rows]) for i in range(len(HEAD))]
    lines, section = [], None
    for row in [HEAD, *rows]:
        shown = list(row)
        if row[0] == section:
            shown[0] = ""
        elif section is not None:
            lines.append("")
        section = row[0]
        cells = [c.rjust(w) if i in (3, 5) else c.ljust(w) for i, (c, w) in enumerate(zip(shown, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def plot(title, label, points, x0):
    """One panel: linear axes from zero, a line through the points."""
    width, height = 260, 180
    most_x = max(x for x, _ in points)
    most_y = max(y for _, y in points) * 1.2 or 1
    at = [(x0 + 50 + x / most_x * width, 220 - y / most_y * height) for x, y in points]
    parts = [
        f'<text x="{x0 + 50}" y="25" font-weight="bold">{title}</text>',
        f'<text x="{x0 + 50}" y="40">{label}</text>',
        f'<path d="M{x0 + 50} 40 V220 H{x0 + 50 + width}" fill="none" stroke="#888"/>',
        f'<polyline points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in at)}" fill="none" stroke="#06c" stroke-width="2"/>',
    ]
    for (x, y), (px, py) in zip(points, at):
        parts.append(f'<circle cx="{px:.0f}" cy="{py:.0f}" r="3" fill="#06c"/>')
        parts.append(f'<text x="{px:.0f}" y="236" text-anchor="middle">{x:g}</text>')
        parts.append(f'<text x="{px:.0f}" y="{py - 7:.0f}" text-anchor="middle">{y:g}</text>')
    return "\n".join(parts)


def svg(points):
    panels = []
    for kind, title, column, label in (
        ("hosts", "hosts waiting for one lock", 2, "requests to ZooKeeper of a hand-over"),
        ("locks", "locks that a host has", 2, "ns of a new lock"),
        ("processes", "processes of a host at once", 2, "ms until all have had it"),
    ):
        chosen = [(float(p[1]), float(p[column])) for p in points if p[0] == kind]
        if chosen:
            panels.append(plot(title, label, chosen, 340 * len(panels)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{340 * len(panels)}" height="250" '
            'font-family="sans-serif" font-size="10">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(panels) + "\n</svg>\n")


def main():
    directory = pathlib.Path(sys.argv[1])
    rows = []
    for file in directory.glob("*.results"):
        for line in file.read_text().splitlines():
            cells = line.split("\t")
            if len(cells) == len(HEAD):
                rows.append(tuple(cells))
    rows.sort(key=lambda row: row[0])  # stable: the order within a section stays
    load = os.getloadavg()
    text = table(rows) + f"\n{os.cpu_count()} processors, load average {load[0]:.1f}; times are this machine's, now.\n"
    missed = [row for row in rows if row[6].startswith("missed")]
    met = [row for row in rows if row[6].startswith("met")]
    text += f"aims: {len(met)} met, {len(missed)} missed\n"
    (directory / "report.txt").write_text(text)
    if (directory / "scale.tsv").exists():
        points = [line.split("\t") for line in (directory / "scale.tsv").read_text().splitlines()]
        (directory / "scale.svg").write_text(svg(points))
    print(text, end="")


main()

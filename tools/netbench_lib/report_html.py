# SPDX-License-Identifier: GPL-2.0-or-later
"""The HTML report: one file, with plots as SVG in it; nothing is loaded from elsewhere."""

import html
import math

from netbench_lib import figures, tables, traffic

COLORS = ('#1b6ca8', '#d1495b', '#2e933c', '#8f5aa8', '#c77d0a', '#3a3a3a', '#14919b', '#9b2d6f')
STYLE = '''body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 75em; margin: 2em auto;
padding: 0 1em } h2 { margin-top: 2.5em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px } td, th { padding: .2em .7em; text-align: right;
border-bottom: 1px solid #e4e4e4; vertical-align: top } td:first-child, th:first-child { text-align: left }
th { border-bottom: 2px solid #999 } .scroll { overflow-x: auto } figure { display: inline-block; margin: .5em 1.5em .5em 0 }
figcaption { font-size: 13px; color: #444 } svg text { font: 11px system-ui, sans-serif; fill: #333 }
summary { cursor: pointer; color: #1b6ca8 }'''
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 260, 64, 12, 40


def nice_steps(top):
    """Values for the lines of an axis from 0 to a little above `top`."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / 4))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if top / (step * factor) <= 5)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def number(value):
    if value >= 1e6:
        return f'{value / 1e6:g}M'
    return f'{value / 1e3:g}k' if value >= 1e4 else f'{value:g}'


class Plot:
    """An SVG with a vertical axis from 0."""

    def __init__(self, top):
        self.steps = nice_steps(top)
        self.parts = []
        for value in self.steps:
            y = self.y(value)
            self.parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}" stroke="#ddd"/>'
                              f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')

    def y(self, value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.steps[-1])

    def whisker(self, x, summary, color):
        low, high = self.y(summary['min']), self.y(summary['max'])
        self.parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8" '
                          f'stroke="{color}" fill="none"/>')

    def svg(self, height=HEIGHT):
        return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">' + \
            ''.join(self.parts) + '</svg>'


def bars(some, get):
    """A bar for each machine: the median, with a line from the least to the most."""
    plot = Plot(max(get(cell)['max'] for cell in some))
    slot = (WIDTH - LEFT) / len(some)
    for place, cell in enumerate(some):
        summary, color = get(cell), COLORS[place % len(COLORS)]
        x, y = LEFT + slot * (place + 0.2), plot.y(summary['median'])
        plot.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot * 0.6:.1f}" '
                          f'height="{plot.y(0) - y:.1f}" fill="{color}" opacity="0.8"/>')
        plot.whisker(x + slot * 0.3, summary, '#222')
        room = max(4, int(slot / 6))
        name = cell['machine'] if len(cell['machine']) <= room else cell['machine'][:room - 1] + '…'
        plot.parts.append(f'<text x="{x + slot * 0.3:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                          f'{html.escape(name)}<title>{html.escape(cell["machine"])}</title></text>')
    return plot.svg()


def lines(some, get):
    """A line for each machine, over the number of sessions."""
    plot = Plot(max(get(cell)['max'] for cell in some))
    sessions = sorted({cell['sessions'] for cell in some})
    machines = list(dict.fromkeys(cell['machine'] for cell in some))
    gap = (WIDTH - LEFT - 40) / max(1, len(sessions) - 1)
    places = {count: LEFT + 20 + gap * place for place, count in enumerate(sessions)}
    for count, x in places.items():
        plot.parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{count}</text>')
    plot.parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">sessions</text>')
    for index, machine in enumerate(machines):
        color = COLORS[index % len(COLORS)]
        own = sorted((cell for cell in some if cell['machine'] == machine), key=lambda cell: cell['sessions'])
        points = [(places[cell['sessions']], plot.y(get(cell)['median'])) for cell in own]
        plot.parts.append('<polyline points="' + ' '.join(f'{x:.1f},{y:.1f}' for x, y in points) +
                          f'" fill="none" stroke="{color}" stroke-width="2"/>')
        for cell, (x, y) in zip(own, points):
            plot.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
            plot.whisker(x, get(cell), color)
        plot.parts.append(f'<rect x="{LEFT}" y="{HEIGHT + 14 * index}" width="10" height="10" fill="{color}"/>'
                          f'<text x="{LEFT + 16}" y="{HEIGHT + 9 + 14 * index}">{html.escape(machine)}</text>')
    return plot.svg(HEIGHT + 14 * len(machines) + 4)


def plots(some):
    """Of the figure, and of what it cost."""
    wanted = [(some[0]['unit'] + (', less is better' if not traffic_up(some[0]) else ''), lambda cell: cell['figure'])]
    for name in ('sd_host', 'sd_guest', 'kicks', 'irq_rx', 'irq_tx', 'exits'):
        if all(name in cell['metrics'] for cell in some):
            column = figures.BY_NAME[name]
            wanted.append((f'{column.title}, {tables.unit_of(column, some[0])}',
                           lambda cell, name=name: cell['metrics'][name]))
    draw = lines if len({cell['sessions'] for cell in some}) > 1 else bars
    return ''.join(f'<figure>{draw(some, get)}<figcaption>{html.escape(title)}</figcaption></figure>'
                   for title, get in wanted)


def traffic_up(cell):
    return traffic.higher_is_better(cell)


def table(head, rows):
    def line(row, tag):
        return '<tr>' + ''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in row) + '</tr>'
    return '<div class="scroll"><table>' + line(head, 'th') + ''.join(line(row, 'td') for row in rows) + \
        '</table></div>'


def page(result):
    parts = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><title>netbench</title>',
             f'<style>{STYLE}</style></head><body><h1>netbench</h1><ul>',
             *(f'<li>{html.escape(line)}</li>' for line in tables.header(result)), '</ul>',
             '<p>Figures are medians, with their range in parentheses; in the plots a thin line is the range.</p>']
    for title, some in tables.sections(result):
        parts += [f'<h2>{html.escape(title)}</h2>', plots(some), table(*tables.figure_table(some)),
                  *(table(*found) for found in tables.metric_tables(some))]
        details = tables.detail_tables(some)
        if details:
            parts.append('<details><summary>threads, exits and protocols</summary>')
            parts += [f'<p>{html.escape(caption)}</p>{table(*found)}' for caption, found in details]
            parts.append('</details>')
    parts.append('</body></html>\n')
    return '\n'.join(parts)

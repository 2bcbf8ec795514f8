# SPDX-License-Identifier: GPL-2.0-or-later
"""The HTML report: one file, with plots as SVG in it; nothing is loaded from elsewhere."""

import html
import math

from netbench_lib import figures, tables, traffic
from netbench_lib import plan as plans

LIGHT = ('#1b6ca8', '#d1495b', '#2e933c', '#8f5aa8', '#c77d0a', '#3a3a3a', '#14919b', '#9b2d6f')
DARK = ('#5aa9e6', '#f07f8f', '#62c370', '#bf94d6', '#eaa53c', '#c4c4c4', '#4cc3cd', '#dd72b4')


def _palette(colors):
    return ' '.join(f'--c{place}: {color};' for place, color in enumerate(colors))


STYLE = ':root { color-scheme: light dark; --bg: #fff; --fg: #222; --soft: #555; --line: #ddd; --rule: #999; ' \
    '--link: #1b6ca8; --better: #1d7a2c; --worse: #b3263c; ' + _palette(LIGHT) + ''' }
@media (prefers-color-scheme: dark) { :root { --bg: #16181b; --fg: #e4e4e4; --soft: #aaa; --line: #3a3d42; --rule: #777;
--link: #7bb8ea; --better: #6fd080; --worse: #f58b99; ''' + _palette(DARK) + ''' } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 82em; margin: 1.5em auto;
padding: 0 1em; overflow-wrap: anywhere } h1 { margin: 0 } p { max-width: 65em }
a, summary { color: var(--link) } summary { cursor: pointer }
h2 { margin-top: 2em; border-top: 1px solid var(--line); padding-top: .8em } .caution { border-left: 4px solid var(--worse);
padding-left: .7em } .soft, small { color: var(--soft) } .better { color: var(--better) } .worse { color: var(--worse) }
table { border-collapse: collapse; font-size: 13px } .scroll { overflow-x: auto; margin: 1em 0 } td, th { padding: .2em .7em;
text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; font-variant-numeric: tabular-nums }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0; background: var(--bg) }
th { border-bottom: 2px solid var(--rule); white-space: normal; overflow-wrap: normal;
vertical-align: bottom }
@media (max-width: 40em) { td:first-child, th:first-child { position: static } td, th { padding: .2em .4em }
.glance td:nth-child(-n+2) { white-space: normal; overflow-wrap: normal; min-width: 5em } }
ul { font-size: 13px; padding-left: 1.5em }
.glance td:nth-child(2), .glance th:nth-child(2) { text-align: left } .plots { display: flex; flex-wrap: wrap; gap: 1.2em 2em }
figure { margin: 0; flex: 1 1 27em; max-width: 35em } figcaption { font-size: 13px; font-weight: 600; margin-bottom: .3em }
svg { display: block; width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: var(--fg) }
.grid { stroke: var(--line) } .range { stroke: var(--fg); fill: none } .line { stroke: var(--c); fill: none; stroke-width: 2 }
.line.range { stroke-width: 1 } .bar { fill: var(--c); opacity: .75 } .mark { fill: var(--c) } .dashed { stroke-dasharray: 5 3 }
''' + ' '.join(f'.c{place} {{ --c: var(--c{place}) }}' for place in range(len(LIGHT)))
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 260, 64, 12, 40
# Of bars, which lie: a row's height, room for the figure behind a bar, a character's width, and the most of a name.
ROW, BEHIND, LETTER, NAME = 24, 56, 6.6, 24
# Of what, where a figure's unit does not tell.
QUANTITY = {'stream': 'throughput, ', 'ping': 'mean round trip, '}


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


def color(place):
    """The classes of a machine: past the palette's end its lines are dashed."""
    return f'c{place % len(LIGHT)}' + ' dashed' * (place // len(LIGHT) % 2)


def svg(parts, height, title):
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" ' \
        f'aria-label="{html.escape(title)}">' + ''.join(parts) + '</svg>'


def text(x, y, words, anchor='middle'):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def bars(some, get, places, show, title):
    """A lying bar for each machine, so that names of any length fit: the median, with a line from the least to the most."""
    steps = nice_steps(max(get(cell)['max'] for cell in some))
    left = 10 + LETTER * min(NAME, max(len(cell['machine']) for cell in some))
    bottom = TOP + ROW * len(some)

    def x_of(value):
        return left + (WIDTH - BEHIND - left) * value / steps[-1]
    parts = []
    for value in steps:
        x = x_of(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" class="grid"/>' +
                     text(x, bottom + 15, number(value)))
    for row, cell in enumerate(some):
        summary, name, y = get(cell), cell['machine'], TOP + ROW * (row + 0.5)
        low, middle, high = (x_of(summary[key]) for key in ('min', 'median', 'max'))
        parts.append(f'<rect x="{left:.1f}" y="{y - 8:.1f}" width="{middle - left:.1f}" height="16" '
                     f'class="bar {color(places[name])}"><title>{html.escape(name)}</title></rect>')
        if summary['n'] > 1:
            parts.append(f'<path d="M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8" '
                         'class="range"/>')
        parts.append(text(left - 6, y + 4, name if len(name) <= NAME else name[:NAME - 1] + '…', 'end') +
                     text(max(middle, high) + 6, y + 4, show(summary['median']), 'start'))
    return svg(parts, bottom + 22, title)


def lines(some, get, places, title):
    """A line for each machine, over the number of sessions."""
    steps = nice_steps(max(get(cell)['max'] for cell in some))
    sessions = sorted({cell['sessions'] for cell in some})
    machines = list(dict.fromkeys(cell['machine'] for cell in some))
    gap = (WIDTH - LEFT - 60) / max(1, len(sessions) - 1)

    def y_of(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / steps[-1])
    parts = [f'<line x1="{LEFT}" y1="{y_of(value):.1f}" x2="{WIDTH}" y2="{y_of(value):.1f}" class="grid"/>' +
             text(LEFT - 6, y_of(value) + 4, number(value), 'end') for value in steps]
    parts += [text(LEFT + 30 + gap * place, HEIGHT - BOTTOM + 16, str(count)) for place, count in enumerate(sessions)]
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 6, 'sessions'))
    for index, machine in enumerate(machines):
        # Beside each other, lest one range hides another.
        aside = (index - (len(machines) - 1) / 2) * min(8, 40 / len(machines))
        own = sorted((cell for cell in some if cell['machine'] == machine), key=lambda cell: cell['sessions'])
        points = [(LEFT + 30 + aside + gap * sessions.index(cell['sessions']), get(cell)) for cell in own]
        hue = color(places[machine])
        parts.append('<polyline points="' + ' '.join(f'{x:.1f},{y_of(summary["median"]):.1f}' for x, summary in points) +
                     f'" class="line {hue}"/>')
        for x, summary in points:
            parts.append(f'<circle cx="{x:.1f}" cy="{y_of(summary["median"]):.1f}" r="3" class="mark {hue}"/>')
            if summary['n'] > 1:
                low, high = y_of(summary['min']), y_of(summary['max'])
                parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8" '
                             f'class="range line {hue.partition(" ")[0]}"/>')
        y = HEIGHT + 16 * index + 8
        parts.append(f'<path d="M{LEFT} {y}h24" class="line {hue}"/>'
                     f'<circle cx="{LEFT + 12}" cy="{y}" r="3" class="mark {hue}"/>' + text(LEFT + 32, y + 4, machine, 'start'))
    return svg(parts, HEIGHT + 16 * len(machines) + 4, title)


def plots(some, places):
    """Of the figure, and of what it cost."""
    wanted = [(QUANTITY.get(traffic.TESTS[some[0]['test']].kind, '') + traffic.unit_and_sense(some[0]), lambda cell: cell['figure'],
               lambda value: format(value, tables.form_of(some[0]['unit'], value)))]
    for name in ('sd_host', 'sd_guest', 'kicks', 'irq_rx', 'irq_tx', 'exits'):
        if all(name in cell['metrics'] for cell in some):
            column, demand = figures.BY_NAME[name], name.startswith('sd_')
            unit = tables.unit_of(column, some[0]).replace('/1000', 'per 1,000 packets')
            title = f'{column.title.replace("SD", "service demand,")}, {unit}' + ', less is better' * demand
            wanted.append((title, lambda cell, name=name: cell['metrics'][name],
                           lambda value, form=column.form, demand=demand: format(
                               value, ('.1f' if value >= 10 else '.2f') if demand else form)))
    many = len({cell['sessions'] for cell in some}) > 1
    return '<div class="plots">' + ''.join(
        f'<figure><figcaption>{html.escape(title)}</figcaption>'
        f'{lines(some, get, places, title) if many else bars(some, get, places, show, title)}</figure>'
        for title, get, show in wanted) + '</div>'


def anchor(cell):
    return f'{cell["test"]}-{cell["way"]}-{cell["size"]}'


def verdict(cell):
    """(class, mark) of a ratio whose range, over runs enough to have one, is all on one side of 1."""
    ratio = cell['ratio']
    if cell['machine'] == cell['reference'] or ratio['n'] < 3 or ratio['min'] <= 1 <= ratio['max']:
        return 'soft', ''
    return ('better', ' ▲') if (ratio['min'] > 1) == traffic.higher_is_better(cell) else ('worse', ' ▼')


def glance(result):
    """A line for each case, a column for each machine: what one wants to know first."""
    found = {}
    for cell in result['cells']:
        found.setdefault(cell['case'], {})[cell['machine']] = cell
    machines = [entry['name'] for entry in result['plan']['machines']]

    def column(cell):
        if not cell:
            return '<td>-</td>'
        figure = tables.shown_figure(cell, spread=False)
        if not cell['ratio']:
            return f'<td>{figure}</td>'
        name, mark = verdict(cell)
        ratio = 'ref.' if cell['machine'] == cell['reference'] else f'×{cell["ratio"]["median"]:.2f}{mark}'
        return f'<td>{figure} <small class="{name}">{ratio}</small></td>'
    rows = []
    for cells in found.values():
        first = next(iter(cells.values()))
        rows.append(f'<tr><td><a href="#{anchor(first)}">{html.escape(plans.case_name(first))}</a></td>'
                    f'<td>{traffic.unit_and_sense(first)}</td>' + ''.join(column(cells.get(name)) for name in machines) + '</tr>')
    head = ''.join(f'<th>{html.escape(word)}</th>' for word in ('case', 'unit', *machines))
    return f'<div class="scroll glance"><table><tr>{head}</tr>{"".join(rows)}</table></div>' \
        '<p class="soft">Medians, and the ratio to the reference (ref.) within a set. ▲ better, ▼ worse: so in each of at ' \
        'least three sets.</p>'


def table(head, rows):
    def line(row, tag):
        return '<tr>' + ''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in row) + '</tr>'
    return '<div class="scroll"><table>' + line(head, 'th') + ''.join(line(row, 'td') for row in rows) + \
        '</table></div>'


def missing(result):
    """That something is; the header tells what."""
    lines = []
    if result['sets_done'] < result['sets']:
        lines.append(f'{result["sets"] - result["sets_done"]} of {result["sets"]} sets were not measured')
    if result['left_out']:
        lines.append(f'left out, for the reasons below: {len(result["left_out"])}')
    return lines


def page(result):
    places = {entry['name']: place for place, entry in enumerate(result['plan']['machines'])}
    cautions = tables.cautions(result)
    when = result['start'].get('time')
    parts = ['<!doctype html><html lang="en"><head><meta charset="utf-8"/>',
             '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
             f'<title>netbench: {html.escape(", ".join(places))}</title>',
             f'<style>{STYLE}</style></head><body><h1>netbench</h1>',
             f'<p class="soft">begun {html.escape(when)}</p>' if when else '',
             *(f'<p class="caution">{html.escape(line)}</p>' for line in cautions + missing(result)), glance(result),
             '<h2>What was measured, and how</h2><ul>',
             *(f'<li>{html.escape(line)}</li>' for line in tables.header(result) if line not in cautions), '</ul>',
             '<p>Figures are medians, with their range in parentheses; in the plots a thin line is the range. Service demand '
             '(SD) is CPU time for a unit of work; /1000 is per 1,000 packets. docs/netbench.md defines every column.</p>']
    for title, some in tables.sections(result):
        parts += [f'<h2 id="{anchor(some[0])}">{html.escape(title)}</h2>', plots(some, places),
                  table(*tables.figure_table(some)), *(table(*found) for found in tables.metric_tables(some))]
        details = tables.detail_tables(some)
        if details:
            parts.append('<details><summary>threads, exits and protocols</summary>')
            parts += [f'<p>{html.escape(caption)}</p>{table(*found)}' for caption, found in details]
            parts.append('</details>')
    parts.append('</body></html>\n')
    return '\n'.join(parts)

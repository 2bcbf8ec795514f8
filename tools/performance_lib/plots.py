# SPDX-License-Identifier: GPL-2.0-or-later
"""The plots of docs/performance.md, as SVG. The same results make the same bytes."""

import re
import statistics

import benchlib
import policy_result
import ring_result
from netbench_lib import traffic
from performance_lib import condensed, targets

try:
    import matplotlib
    matplotlib.use('svg')
    from matplotlib import pyplot, ticker
except ImportError:
    matplotlib = None

COLORS = ('#1b6ca8', '#d1495b', '#2e933c', '#8f5aa8', '#c77d0a', '#3a3a3a')
MARKS = ('o', 's', '^', 'v', 'P', 'X')
# What costs or waits less than this, us, is drawn here, as a logarithmic axis has no 0.
LEAST = 1e-2
STYLE = {'svg.hashsalt': 'whelp', 'svg.fonttype': 'none', 'font.sans-serif': ['DejaVu Sans'], 'font.size': 9,
         'axes.grid': True, 'grid.color': '#dddddd', 'axes.axisbelow': True, 'axes.spines.top': False, 'axes.spines.right': False,
         'figure.facecolor': 'white'}


def save(figure, path):
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format='svg', metadata={'Date': None, 'Creator': None})
    pyplot.close(figure)
    # Half of it is indentation, comments, rotations by nothing, and digits beyond a hundredth of a point.
    text = re.sub(r'^\s+|[ \t]+$|<!--.*?-->| transform="rotate\(-0 [^"]*"', '', path.read_text(encoding='utf-8'), flags=re.M)
    text = re.sub(r'<[^>]*>', lambda tag: re.sub(r'(\d\.\d\d)\d+', r'\1', tag[0]), text)
    path.write_text(re.sub(r'\n+', '\n', text), encoding='utf-8')


def whiskers(values):
    """(median, [below, above]) of a list."""
    middle = statistics.median(values)
    return middle, (middle - min(values), max(values) - middle)


def ring(result, path):
    """A panel for each direction: ns per frame on a tap with one pair, by size, both axes logarithmic."""
    found = ring_result.by_key(result['samples'])
    drawn = {'bare loop': ('-', 'bare'), 'split': ('split', 'device'), 'packed': ('packed', 'device')}
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, (direction, title) in zip(panels, (('tx', 'guest to tap'), ('rx', 'tap to guest'))):
        axes.set(xscale='log', yscale='log', title=title, xlabel='bytes of a frame', ylabel='ns per frame')
        for place, (name, (kind, subject)) in enumerate(drawn.items()):
            points = {key[2]: [sample['ns'] for sample in samples.values()] for key, samples in found.items()
                      if key[:2] == ('tap', direction) and key[3:] == (1, kind, subject)}
            if points:
                sizes = sorted(points)
                middle, spread = zip(*(whiskers(points[size]) for size in sizes))
                # Beside each other, lest one range hides another.
                axes.errorbar([size * 1.12 ** (place - 1) for size in sizes], middle, yerr=list(zip(*spread)), label=name,
                              color=('#3a3a3a', *COLORS)[place], marker=MARKS[place], markersize=4, linewidth=1.2, capsize=3)
                axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter('%g'))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.tick_params(labelleft=True)
        axes.margins(y=0.1)
        if axes.has_data():
            axes.legend(frameon=False)
    save(figure, path)


def policies(result, path):
    """A point for each trace: what a policy's packets wait, over what it costs; both axes logarithmic."""
    traces = policy_result.by_trace(result['results'])
    figure, axes = pyplot.subplots(figsize=(8, 4.6))
    for color, mark, name in zip(COLORS, MARKS, condensed.shown_policies(result)):
        cpu, latency = ([max(LEAST, policy_result.median_of(runs, name, of)) for runs in traces.values()]
                        for of in (condensed.overhead, condensed.mean_latency))
        axes.plot(cpu, latency, mark, markersize=5, alpha=0.6, markeredgewidth=0, color=color, label=name)
        axes.plot(statistics.median(cpu), statistics.median(latency), 'D', markersize=9, markeredgewidth=2,
                  markerfacecolor='none', color=color)
    axes.set(xscale='log', yscale='log', xlabel='CPU time beside sending, us a packet; less is better',
             ylabel='mean latency, us; less is better')
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: ('≤' if value <= LEAST else '') + f'{value:g}'))
        axis.set_minor_locator(ticker.NullLocator())
    axes.margins(0.06)
    axes.legend(frameon=False, title='diamonds: medians', loc='center left', bbox_to_anchor=(1, 0.5))
    save(figure, path)


def lab(result, path):
    """A panel for each case, a bar for each machine; the ways of a test stand beside each other, two tests in a line."""
    ways = list(dict.fromkeys(cell['way'] for cell in result['cells']))
    tests = list(dict.fromkeys((cell['test'], cell['size']) for cell in result['cells']))
    machines = [entry['name'] for entry in result['plan']['machines']]
    columns = len(ways) * min(2, len(tests))
    rows = -(-len(tests) * len(ways) // columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(9, 2.4 * rows + 0.4), squeeze=False)
    panels = list(grid.flat)
    for axes, (test, size, way) in zip(panels, ((*test, way) for test in tests for way in ways)):
        cells = {cell['machine']: cell for cell in result['cells']
                 if (cell['test'], cell['size'], cell['way']) == (test, size, way)}
        there = [place for place, name in enumerate(machines) if name in cells]
        spread = [whiskers([run['figure'] for run in cells[machines[place]]['runs']]) for place in there]
        if there:
            axes.bar(there, [middle for middle, _ in spread], color=[COLORS[place % len(COLORS)] for place in there],
                     alpha=0.75, yerr=list(zip(*(sides for _, sides in spread))), capsize=3, error_kw={'linewidth': 1})
        axes.set_title(f'{targets.sized({"test": test, "size": size})}\n{way}', fontsize=9)
        axes.set_ylabel(traffic.unit_and_sense({'test': test}))
        axes.set_xticks([])
        axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
        axes.grid(axis='x', visible=False)
    for axes in panels[len(tests) * len(ways):]:
        axes.set_axis_off()
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLORS[place % len(COLORS)], alpha=0.75)
               for place in range(len(machines))]
    figure.legend(handles, machines, ncol=len(machines), frameon=False, loc='lower center')
    figure.supxlabel(' ')
    save(figure, path)


PLOTS = {'ring': ('ring.svg', ring), 'policy': ('policies.svg', policies), 'targets': ('lab.svg', lab)}


def draw(results, directory):
    """Each plot whose part was measured. One of a part that is not there goes: no page shows it."""
    if not matplotlib:
        raise benchlib.Failed('python3-matplotlib is missing: tools/install-deps bench-performance')
    with pyplot.rc_context(STYLE):
        for name, (file, make) in PLOTS.items():
            if results.get(name):
                make(results[name], directory / file)
            else:
                (directory / file).unlink(missing_ok=True)

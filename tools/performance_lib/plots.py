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
STYLE = {'svg.hashsalt': 'whelp', 'svg.fonttype': 'none', 'font.sans-serif': ['DejaVu Sans'], 'font.size': 9,
         'axes.grid': True, 'grid.color': '#dddddd', 'axes.axisbelow': True, 'axes.spines.top': False, 'axes.spines.right': False,
         'figure.facecolor': 'white'}


def save(figure, path):
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format='svg', metadata={'Date': None, 'Creator': None})
    pyplot.close(figure)
    # A third of it is indentation and comments.
    text = re.sub(r'^\s+|[ \t]+$|<!--.*?-->', '', path.read_text(encoding='utf-8'), flags=re.M)
    path.write_text(re.sub(r'\n+', '\n', text), encoding='utf-8')


def whiskers(values):
    """(median, [below, above]) of a list."""
    middle = statistics.median(values)
    return middle, (middle - min(values), max(values) - middle)


def ring(result, path):
    """A panel for each direction: ns per frame on a tap with one pair, by size, both axes logarithmic."""
    found = ring_result.by_key(result['samples'])
    drawn = {'bare loop': ('-', 'bare'), 'split': ('split', 'device'), 'packed': ('packed', 'device')}
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axes, (direction, title) in zip(panels, (('tx', 'guest to tap'), ('rx', 'tap to guest'))):
        axes.set(xscale='log', yscale='log', title=title, xlabel='bytes of a frame', ylabel='ns per frame')
        for color, (name, (kind, subject)) in zip(('#3a3a3a', *COLORS), drawn.items()):
            points = {key[2]: [sample['ns'] for sample in samples.values()] for key, samples in found.items()
                      if key[:2] == ('tap', direction) and key[3:] == (1, kind, subject)}
            if points:
                sizes = sorted(points)
                middle, spread = zip(*(whiskers(points[size]) for size in sizes))
                axes.errorbar(sizes, middle, yerr=list(zip(*spread)), label=name, color=color, marker='o', markersize=3,
                              linewidth=1.2, capsize=3)
                axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter('%g'))
        axes.yaxis.set_minor_formatter(ticker.FormatStrFormatter('%g'))
        if axes.has_data():
            axes.legend(frameon=False)
    save(figure, path)


def policies(result, path):
    """A point for each trace: what a policy's packets wait, over what it costs; both axes logarithmic."""
    traces = policy_result.by_trace(result['results'])
    figure, axes = pyplot.subplots(figsize=(7.5, 4.6))
    for color, name in zip(COLORS, condensed.shown_policies(result)):
        cpu = [policy_result.median_of(runs, name, condensed.overhead) for runs in traces.values()]
        latency = [policy_result.median_of(runs, name, condensed.mean_latency) for runs in traces.values()]
        axes.plot([max(value, 1e-2) for value in cpu], [max(value, 1e-2) for value in latency], 'o', markersize=4,
                  alpha=0.6, markeredgewidth=0, color=color, label=name)
        axes.plot(statistics.median(cpu), statistics.median(latency), 'D', markersize=9, markerfacecolor='none', color=color)
    axes.set(xscale='log', yscale='log', xlabel='CPU time beside sending, us a packet', ylabel='mean latency, us')
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FormatStrFormatter('%g'))
        axis.set_minor_locator(ticker.NullLocator())
    axes.legend(frameon=False, title='diamonds: medians', loc='center left', bbox_to_anchor=(1, 0.5))
    save(figure, path)


def lab(result, path):
    """A panel for each case, a bar for each machine."""
    ways = list(dict.fromkeys(cell['way'] for cell in result['cells']))
    tests = list(dict.fromkeys((cell['test'], cell['size']) for cell in result['cells']))
    machines = [entry['name'] for entry in result['plan']['machines']]
    figure, grid = pyplot.subplots(len(ways), len(tests), figsize=(1.6 * len(tests) + 0.6, 2.5 * len(ways) + 0.4),
                                   squeeze=False)
    for line, way in zip(grid, ways):
        for axes, (test, size) in zip(line, tests):
            cells = {cell['machine']: cell for cell in result['cells']
                     if (cell['test'], cell['size'], cell['way']) == (test, size, way)}
            there = [place for place, name in enumerate(machines) if name in cells]
            spread = [whiskers([run['figure'] for run in cells[machines[place]]['runs']]) for place in there]
            if there:
                axes.bar(there, [middle for middle, _ in spread], color=[COLORS[place % len(COLORS)] for place in there],
                         yerr=list(zip(*(sides for _, sides in spread))), error_kw={'linewidth': 1})
            unit = traffic.UNITS[traffic.TESTS[test].kind]
            less = ', less is better' * (traffic.TESTS[test].kind == 'ping')
            title = targets.sized({'test': test, 'size': size})
            axes.set_title(f'{title}\n{way}\n{unit}{less}', fontsize=7)
            axes.set_xticks([])
            axes.tick_params(labelsize=7)
            axes.yaxis.set_major_locator(ticker.MaxNLocator(3))
            axes.grid(axis='x', visible=False)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLORS[place % len(COLORS)]) for place in range(len(machines))]
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

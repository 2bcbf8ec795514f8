# SPDX-License-Identifier: GPL-2.0-or-later
"""The results as short tables: [head, rows]. Everything else is in each bench's own reports."""

import statistics

import policy_result
import ring_result
from netbench_lib import tables
from performance_lib import targets
from performance_lib.campaigns import POLICIES


def ranged(values, form):
    values = list(values)
    if not values:
        return ''
    middle, low, high = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f'{middle} ({low} to {high})'


# ---- bench-ring ------------------------------------------------------------------------------------


def ring(result):
    """ns per frame of one pair, and what two pairs are to one; a row for each back end, direction and size."""
    found = ring_result.by_key(result['samples'])

    def samples(group, ring_kind, subject, pairs=1):
        return found.get((*group, pairs, ring_kind, subject), {})

    def ns(group, ring_kind, subject):
        return ranged((sample['ns'] for sample in samples(group, ring_kind, subject).values()), '.0f')

    def of_bare(group, ring_kind, subject):
        values = ring_result.ratios(samples(group, ring_kind, subject), samples(group, '-', 'bare'), 'ns')
        return ranged(values, '.2f')

    def of_one(group, ring_kind):
        values = ring_result.ratios(samples(group, ring_kind, 'device', 2), samples(group, ring_kind, 'device'), 'mpps')
        return ranged(values, '.2f')
    groups = sorted({key[:3] for key in found}, key=lambda key: (ring_result.BACKENDS.index(key[0]), key[1] != 'tx', key[2]))
    rows = [[f'{" ".join(map(str, group))}', ns(group, '-', 'bare'),
             *(cell for kind in ('split', 'packed') for cell in (ns(group, kind, 'device'), of_bare(group, kind, 'device'))),
             of_bare(group, 'split', 'device syscall'), of_bare(group, 'split', 'device uring'),
             *(of_one(group, kind) for kind in ('split', 'packed'))] for group in groups]
    return ['back end, direction, bytes', 'bare loop, ns', 'split, ns', 'of bare', 'packed, ns', 'of bare',
            'split, io=syscall, of bare', 'split, io=uring, of bare', 'two pairs of one, split', 'packed'], rows


# ---- bench-policy ----------------------------------------------------------------------------------


def shown_policies(result):
    """The names in the result of those that are shown; a policy's time is a part of its name.

    Variants that are there to explain are in the simulator's own tables.
    """
    return [name for name in result['results'][0]['policies'] if name.partition(':')[0] in POLICIES and ',' not in name]


def policy_costs(result):
    traces, names = policy_result.by_trace(result['results']), shown_policies(result)
    return ['cost, as multiple of the offline optimum', *names], [
        [trace, *(ranged(policy_result.ratios(runs, name), '.2f') for name in names)] for trace, runs in traces.items()]


def mean_latency(found):
    """us."""
    return found['latency_mean'] / 1e3


def overhead(found):
    """us a packet."""
    return found['overhead'] / found['packets'] / 1e3


POLICY_FIGURES = {
    'mean latency, us': mean_latency,
    '99 % latency, us': lambda found: found['latency_p99'] / 1e3,
    'longest wait, us': lambda found: found['waited_max'] / 1e3,
    'CPU beside sending, us a packet': overhead,
    'kicks for 1,000 packets': lambda found: 1000 * found['kicks'] / found['packets'],
}


def policy_figures(result):
    """Of each policy, the median over all traces, with the range over them."""
    traces = policy_result.by_trace(result['results'])
    rows = []
    for name in shown_policies(result):
        costs = [statistics.median(policy_result.ratios(runs, name)) for runs in traces.values()]
        figures = [[policy_result.median_of(runs, name, figure) for runs in traces.values()]
                   for figure in POLICY_FIGURES.values()]
        rows.append([name, *(ranged(values, '.2f') for values in (costs, *figures))])
    return ['over all traces', 'cost, of the optimum', *POLICY_FIGURES], rows


# ---- netbench --------------------------------------------------------------------------------------

METRICS = (('sd_host', 'service demand, host, us', '.2f'), ('kicks', 'kicks', '.1f'), ('irq_rx', 'RX interrupts', '.1f'),
           ('irq_tx', 'TX interrupts', '.1f'), ('exits', 'exits', '.0f'))


def netbench(result):
    """A row for each case and machine."""
    rows, last = [], None
    for cell in result['cells']:
        name = f'{targets.label(cell)}, {cell["unit"]}'
        is_reference = cell['machine'] == cell['reference']
        rows.append([
            name if name != last else '', cell['machine'],
            tables.shown_figure(cell),
            'reference' if is_reference else tables.shown(cell['ratio'], '.2f') if cell['ratio'] else '',
            *(tables.shown(cell['metrics'][metric], form, spread=metric == 'sd_host') if metric in cell['metrics'] else ''
              for metric, _, form in METRICS)])
        last = name
    return ['test', 'machine', 'figure', 'to the reference', *(title for _, title, _ in METRICS)], rows

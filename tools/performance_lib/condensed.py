# SPDX-License-Identifier: GPL-2.0-or-later
"""The results as short tables: [head, rows]. Everything else is in each bench's own reports."""

import statistics

import policy_result
import ring_result
from netbench_lib import tables, traffic


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

# Of the simulator's policies; variants that are there to explain are in its own tables.
SHOWN = ('off', 'fixed', 'lguest', 'window', 'adaptive')


def shown_policies(result):
    """The names in the result of those that are shown; a policy's time is a part of its name."""
    return [name for name in result['results'][0]['policies'] if name.partition(':')[0] in SHOWN and ',' not in name]


def policy_costs(result):
    traces, names = policy_result.by_trace(result['results']), shown_policies(result)
    return ['cost, as multiple of the offline optimum', *names], [
        [trace, *(ranged(policy_result.ratios(runs, name), '.2f') for name in names)] for trace, runs in traces.items()]


POLICY_FIGURES = {
    'cost, of the optimum': lambda run, costs: None,
    'mean latency, us': lambda run, costs: run['latency_mean'] / 1e3,
    '99 % latency, us': lambda run, costs: run['latency_p99'] / 1e3,
    'longest wait, us': lambda run, costs: run['waited_max'] / 1e3,
    'CPU beside sending, us a packet': lambda run, costs: run['overhead'] / run['packets'] / 1e3,
    'kicks for 1,000 packets': lambda run, costs: 1000 * run['kicks'] / run['packets'],
}


def policy_figures(result):
    """Of each policy, the median over all traces, with the range over them."""
    traces, costs = policy_result.by_trace(result['results']), result['costs']
    rows = []
    for name in shown_policies(result):
        cells = [name]
        for title, figure in POLICY_FIGURES.items():
            if title.startswith('cost'):
                values = [statistics.median(policy_result.ratios(runs, name)) for runs in traces.values()]
            else:
                values = [policy_result.median_of(runs, name, lambda run, figure=figure: figure(run, costs))
                          for runs in traces.values()]
            cells.append(ranged(values, '.2f'))
        rows.append(cells)
    return ['over all traces', *POLICY_FIGURES], rows


# ---- netbench --------------------------------------------------------------------------------------

METRICS = (('sd_host', 'service demand, host, us', '.2f'), ('kicks', 'kicks', '.1f'), ('irq_rx', 'RX interrupts', '.1f'),
           ('irq_tx', 'TX interrupts', '.1f'), ('exits', 'exits', '.0f'))


def case_label(cell):
    size = f' {cell["size"]} B' if cell['size'] != traffic.TESTS[cell['test']].size else ''
    return f'{cell["test"]}{size} {cell["way"]}, {cell["unit"]}'


def netbench(result):
    """A row for each case and machine."""
    rows, last = [], None
    for cell in result['cells']:
        name = case_label(cell)
        is_reference = cell['machine'] == cell['reference']
        rows.append([
            name if name != last else '', cell['machine'],
            tables.shown(cell['figure'], tables.form_of(cell['unit'], cell['figure']['median'])),
            'reference' if is_reference else tables.shown(cell['ratio'], '.2f') if cell['ratio'] else '',
            *(tables.shown(cell['metrics'][metric], form, spread=metric == 'sd_host') if metric in cell['metrics'] else ''
              for metric, _, form in METRICS)])
        last = name
    return ['test', 'machine', 'figure', 'to the reference', *(title for _, title, _ in METRICS)], rows

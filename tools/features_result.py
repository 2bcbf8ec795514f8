# SPDX-License-Identifier: GPL-2.0-or-later
"""What tools/bench-features makes of its runs: ratios to the full set, and what they say of a feature.

A variant's figure is divided by the mean of those of the full set that were measured just before and just after it.
A second NIC with the full set is measured in the same way, as a variant that is none. The noise is the standard
deviation of one ratio's logarithm: how far those of that NIC are from 1, or how far all variants' are from their own
means, whichever is more. What a variant does is more than noise when its median is farther from 1 than three standard
errors of a median, and all of its ratios are on that side of 1.
"""

import math
import statistics

import benchlib

TESTS = ('TCP_STREAM', 'TCP_MAERTS', 'TCP_RR')
DIRECTIONS = {'TCP_STREAM': 'host to guest', 'TCP_MAERTS': 'guest to host', 'TCP_RR': 'one byte there and back'}
FULL, AGAIN = 'full set', 'full set again'
CLIFF = 2.0
COSTS, GAINS = 'costs more than noise', 'gains'


def sequence(variants, between):
    """The numbers of NICs to measure, one after the other: 0, the full set, around every `between` variants."""
    order = [0]
    for start in range(0, len(variants), between):
        order += [*variants[start:start + between], 0]
    return order


def with_ratios(runs):
    """Each run of a variant with its ratio to the full set's neighbouring runs of the same test."""
    found = []
    for test in {run['test']: None for run in runs}:
        before, waiting = None, []
        for run in (run for run in runs if run['test'] == test):
            if run['name'] != FULL:
                waiting.append(run)
                continue
            for variant in waiting:
                found.append((variant, variant['figure'] / statistics.mean([before, run['figure']])))
            before, waiting = run['figure'], []
    return found


def by_variant(labs, test):
    """name: {'ratio', 'kicks', 'interrupts': lists} of all labs; the full set itself without ratios."""
    found = {}

    def entry(name):
        return found.setdefault(name, {'ratio': [], 'kicks': [], 'interrupts': [], 'figure': []})
    for lab in labs:
        for run in lab['runs']:
            if run['test'] == test:
                for what in ('kicks', 'interrupts', 'figure'):
                    entry(run['name'])[what].append(run[what])
        for run, ratio in with_ratios(lab['runs']):
            if run['test'] == test:
                entry(run['name'])['ratio'].append(ratio)
    return found


def noise(found):
    """The standard deviation of a single ratio's logarithm, from by_variant's lists of one test."""
    squares, freedom = 0.0, 0
    for lists in found.values():
        if len(lists['ratio']) > 1:
            logs = [math.log(ratio) for ratio in lists['ratio']]
            squares += sum((log - statistics.mean(logs)) ** 2 for log in logs)
            freedom += len(logs) - 1
    within = math.sqrt(squares / freedom) if freedom else 0.0
    return max(within, math.sqrt(statistics.mean(math.log(ratio) ** 2 for ratio in found[AGAIN]['ratio'])))


def limit_of(deviation, count):
    """The factor up to which the median of `count` ratios is noise. A median's error is 1.25 times a mean's."""
    return math.exp(3 * 1.25 * deviation / math.sqrt(count))


def verdict(ratios, limit, added):
    """What a variant's ratios say, with noise up to `limit`. `added`: it has more features than the full set."""
    median = statistics.median(ratios)
    if 1 / limit <= median <= limit or min(ratios) <= 1 <= max(ratios):
        return ''
    better_without = (median > 1) != added
    text = COSTS if better_without else GAINS
    if 1 / CLIFF < median < CLIFF:
        return text
    return f'{text}; cliff {"with" if better_without else "without"} it'


def untaken(labs):
    """The variants for which the guest's driver took the same features as for the full set."""
    names = {}
    for lab in labs:
        for name, bits in lab['taken'].items():
            if name not in (FULL, AGAIN) and bits == lab['taken'][FULL]:
                names[name] = None
    return sorted(names)


def judge(labs, test):
    """(name, lists, limit of its noise, verdict) of each variant, by name; the second NIC with the full set first."""
    found = by_variant(labs, test)
    deviation = noise(found)
    rows = []
    for name in sorted(found, key=lambda name: (name != AGAIN, name)):
        if name != FULL:
            ratios = found[name]['ratio']
            limit = limit_of(deviation, len(ratios))
            text = '' if name == AGAIN else verdict(ratios, limit, '+' in name)
            rows.append((name, found[name], limit, text))
    return rows


def median_and_range(values):
    figures = benchlib.summary(values)
    return f'{figures["median"]:.1f} ({figures["min"]:.1f} to {figures["max"]:.1f})'


def full_rows(labs):
    rows = []
    for test in TESTS:
        runs = [run for lab in labs for run in lab['runs'] if run['test'] == test and run['name'] == FULL]
        unit = {'10^6bits/s': 'Mbit/s', 'Trans/s': 'transactions/s'}.get(runs[0]['unit'], runs[0]['unit'])
        rows.append([f'{test}, {DIRECTIONS[test]} ({unit})', *benchlib.spread([run['figure'] for run in runs], '.0f'),
                     len(runs), *(median_and_range([run[what] for run in runs]) for what in ('kicks', 'interrupts'))])
    return rows


def test_rows(labs, test):
    return [[name, *benchlib.spread(lists['ratio'], '.2f'), len(lists['ratio']), f'{limit:.2f}',
             *(median_and_range(lists[what]) for what in ('kicks', 'interrupts')), text]
            for name, lists, limit, text in judge(labs, test)]


def flags(labs):
    """One line for each kind of thing that stands out, over all tests."""
    limits, costs, cliffs = [], [], []
    for test in TESTS:
        judged = judge(labs, test)
        limits.append(f'{test} {max(limit for _, _, limit, _ in judged):.2f}')
        for name, lists, _, text in judged:
            entry = f'{name} ({test}, {statistics.median(lists["ratio"]):.2f})'
            if text.startswith(COSTS):
                costs.append(entry)
            if 'cliff' in text:
                cliffs.append(entry)
    same = untaken(labs)
    lines = [f'noise, up to a factor of: {", ".join(limits)}',
             f'costs more than noise: {"; ".join(costs) or "none"}',
             f'cliff, by a factor of {CLIFF:g} or more: {"; ".join(cliffs) or "none"}']
    if same:
        lines.append(f'not measured, as the guest\'s driver takes the same features as without: {", ".join(same)}')
    return lines


def tables(labs):
    numbers, counts = ['min', 'median', 'max', 'stddev', 'n'], ['kicks/1000', 'interrupts/1000']
    return [(['full set', *numbers, *counts], full_rows(labs)),
            *(([f'{test}, ratio to the full set', *numbers, 'noise up to', *counts, 'more than noise'],
               test_rows(labs, test)) for test in TESTS)]

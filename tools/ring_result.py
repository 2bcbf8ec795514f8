# SPDX-License-Identifier: GPL-2.0-or-later
"""What tools/bench-ring makes of its samples: ratios within a round, tables, and targets met or missed.

A sample is one run of tests/bench/ring. `subject` is "bare", "device", "uncounted" (the device without counters) or
"device NAME" (with the keys of a variant). Those that differ in nothing but subject and ring make a group; they
are measured one right after the other in each round, and only such are compared.
"""

import statistics

import benchlib

BACKENDS = ('null', 'socketpair', 'tap')
GROUP = ('backend', 'dir', 'size', 'pairs')
KEY = (*GROUP, 'ring', 'subject')

TAP_LIMIT = 1.10      # of the bare loop's time per frame
URING_LIMIT = 0.80    # the same with io=uring, whose bursts are of more than 16 frames
NULL_MPPS = 10.0      # per second of CPU time, at 60 bytes: 64 with the checksum
PAIRS_RATIO = 1.85    # two pairs on two CPUs, of one
COUNTERS_LIMIT = 1.02


def key(sample):
    return tuple(sample[name] for name in KEY)


def good(samples):
    return [sample for sample in samples if 'failed' not in sample]


def by_key(samples):
    """key: its samples, by round."""
    found = {}
    for sample in good(samples):
        found.setdefault(key(sample), {})[sample['round']] = sample
    return found


def ratios(above, below, name):
    """Of a figure of one key's samples to another's, round by round."""
    return [above[number][name] / below[number][name] for number in sorted(above) if number in below]


def other(found, of, **changes):
    """The samples of the key that differs from `of` in `changes`; none if it was not measured."""
    return found.get(tuple(changes.get(name, value) for name, value in zip(KEY, of)), {})


def bare_of(found, of):
    """Those of the bare loop, which knows no ring."""
    return other(found, of, subject='bare', ring='-')


# ---- tables ----------------------------------------------------------------------------------------


def number(value, form):
    return '-' if value is None else format(value, form)


def median(samples, name):
    values = [sample[name] for sample in samples.values()]
    return None if None in values else statistics.median(values)


def row(found, of):
    backend, direction, size, pairs, ring, subject = of
    samples = found[of]
    bare = bare_of(found, of) if subject != 'bare' else {}
    ratio = ratios(samples, bare, 'ns')
    return [f'{backend} {direction} {size}', pairs, ring, subject,
            *benchlib.spread([sample['ns'] for sample in samples.values()], '.1f'), len(samples),
            number(median(samples, 'cycles'), '.0f'), number(median(samples, 'mpps'), '.3f'),
            number(median(samples, 'cpu_ns'), '.1f'), number(median(samples, 'cpu_all_ns'), '.1f'),
            number(median(samples, 'instructions'), '.0f'),
            number(statistics.median(ratio) if ratio else None, '.2f')]


HEAD = ['back end, direction, bytes', 'pairs', 'ring', 'what', 'ns/frame min', 'median', 'max', 'stddev', 'rounds',
        'TSC cycles', 'Mpps', 'CPU ns', 'CPU ns, all threads', 'instructions', 'ns, of bare']


def order(of):
    backend, direction, size, pairs, ring, subject = of
    return (BACKENDS.index(backend), direction != 'tx', size, pairs, subject != 'bare', ring != 'split', subject)


def table(samples):
    found = by_key(samples)
    return HEAD, [row(found, of) for of in sorted(found, key=order)]


# ---- targets ---------------------------------------------------------------------------------------


def judged(kind, of, what, values, limit, at_most, unit=''):
    """One target's line: what, target, median (min to max), verdict. Missed is what the median misses.

    kind and of: which of the targets, and the key of the samples that it is about.
    """
    figure = statistics.median(values)
    sign = '<=' if at_most else '>='
    off = figure / limit - 1 if at_most else 1 - figure / limit
    return {'kind': kind, 'of': dict(zip(KEY, of)), 'what': what, 'limit': f'{sign} {limit:g}{unit}',
            'median': figure, 'min': min(values), 'max': max(values), 'met': off <= 0, 'by': abs(off)}


def tap_targets(found):
    for of, samples in sorted(found.items(), key=lambda item: order(item[0])):
        backend, direction, size, pairs, ring, subject = of
        if backend != 'tap' or subject in ('bare', 'uncounted'):
            continue
        values = ratios(samples, bare_of(found, of), 'ns')
        uring = any('io=uring' in sample.get('net', '') for sample in samples.values())
        if values:
            yield judged('uring' if uring else 'tap', of, f'tap {direction} {size}, {pairs} pair{"s" * (pairs > 1)}, '
                         f'{ring}, {subject}: time per frame, of the bare loop', values,
                         URING_LIMIT if uring else TAP_LIMIT, True)


def null_targets(found):
    for of, samples in sorted(found.items(), key=lambda item: order(item[0])):
        backend, direction, size, pairs, ring, subject = of
        if backend == 'null' and size == 60 and pairs == 1 and subject.startswith('device'):
            yield judged('null', of, f'null {direction} {size}, {ring}, {subject}: frames per second of CPU time',
                         [1e3 / sample['cpu_ns'] for sample in samples.values()], NULL_MPPS, False, ' Mpps')


def pair_targets(found):
    for of, samples in sorted(found.items(), key=lambda item: order(item[0])):
        backend, direction, size, pairs, ring, subject = of
        if backend == 'socketpair' or pairs != 2 or size != 60 or subject == 'uncounted':
            continue
        values = ratios(samples, other(found, of, pairs=1), 'mpps')
        if values:
            yield judged('pairs', of, f'{backend} {direction} {size}, {ring}, {subject}: two pairs, of one', values,
                         PAIRS_RATIO, False)


def counter_targets(found):
    for of, samples in sorted(found.items(), key=lambda item: order(item[0])):
        backend, direction, size, pairs, ring, subject = of
        values = ratios(samples, other(found, of, subject='uncounted'), 'ns')
        if subject == 'device' and values:
            yield judged('counters', of, f'{backend} {direction} {size}, {pairs} pair{"s" * (pairs > 1)}, {ring}: '
                         'with counters, of without', values, COUNTERS_LIMIT, True)


def targets(samples):
    found = by_key(samples)
    return [*tap_targets(found), *null_targets(found), *pair_targets(found), *counter_targets(found)]


def verdict(target):
    if target['met']:
        return f'met, by {target["by"]:.1%}'
    return f'MISSED by {target["by"]:.1%}'


def target_table(found):
    rows = [[target['what'], target['limit'], f'{target["median"]:.3f}', f'{target["min"]:.3f} to {target["max"]:.3f}',
             verdict(target)] for target in found]
    return ['target', 'at', 'median', 'min to max', 'verdict'], rows


# ---- what there is to say --------------------------------------------------------------------------


def remarks(samples, wanted):
    """Lines on what was not measured, or not as it should be. `wanted` are the samples of one round."""
    lines = []
    reasons = {}
    for sample in samples:
        if 'failed' in sample:
            reasons.setdefault((describe(sample), sample['failed']), []).append(sample['round'])
    for (what, why), rounds in reasons.items():
        lines.append(f'failed in {len(rounds)} round{"s" * (len(rounds) > 1)}: {what}: {why}')
    missing = {sample['no_instructions'] for sample in good(samples) if sample.get('no_instructions')}
    lines += [f'no instructions: perf_event_open says: {why}' for why in sorted(missing)]
    if any(sample.get('user_only') for sample in good(samples)):
        lines.append('instructions are those in user space only: perf_event_paranoid forbids to see the kernel\'s')
    if not any('io=uring' in sample.get('net', '') for sample in wanted):
        lines.append(f'the target of {URING_LIMIT} with io=uring: not measured, no variant has that key')
    return lines


def describe(sample):
    return f'{sample["backend"]} {sample["dir"]} {sample["size"]}, {sample["pairs"]} pairs, {sample["ring"]}, ' \
           f'{sample["subject"]}'

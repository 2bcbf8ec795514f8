# SPDX-License-Identifier: GPL-2.0-or-later
"""The targets, and what the results say of each: met, missed by how much, or not measured.

A row is one target in one case. Rows of a group have one sentence in common, and one cause of a miss. Ratios are of runs of
one set (netbench) or one round (bench-ring); what is judged is the median over all rounds.
"""

import math
import statistics
import typing

import policy_result
import ring_result
from netbench_lib import traffic
from performance_lib.campaigns import CAMPAIGNS, POLICIES

# Readings of two sources are some ms apart: where one event for each message is allowed, this is no event.
READINGS = 0.01


class Group(typing.NamedTuple):
    part: str  # what has to be measured
    text: str
    limit: float
    at_most: bool
    unit: str = ''
    slack: float = 0.0


GROUPS = {
    'ring-tap': Group('ring', 'on a tap, time per frame, of the bare loop', ring_result.TAP_LIMIT, True),
    'ring-batch': Group('ring', 'the same where 16 or more frames wait, by io_uring', ring_result.URING_LIMIT, True),
    'ring-null': Group('ring', 'frames of 64 bytes per second of CPU time, without a back end', ring_result.NULL_MPPS, False,
                       ' Mpps'),
    'ring-pairs': Group('ring', 'two pairs on two CPUs, of one', ring_result.PAIRS_RATIO, False),
    'ring-counters': Group('ring', 'time per frame with counters, of without', ring_result.COUNTERS_LIMIT, True),
    'stream': Group('targets', 'a TCP stream, of the best of qemu and qemu-vhost', 1.3, False),
    'rr': Group('targets', 'round trips, of qemu-vhost', 1.1, False),
    'ping': Group('targets', 'mean of a flood ping, of qemu-vhost', 0.9, True),
    'udp64': Group('targets', 'UDP of 64 bytes, of qemu', 1.3, False),
    'demand': Group('targets', 'service demand of the host, of the best of qemu and qemu-vhost', 1.0, True),
    'tx-kicks': Group('targets', 'bulk from the guest: kicks per 1,000 packets that it sent', 20, True),
    'rx-interrupts': Group('targets', 'bulk to the guest: receive interrupts per 1,000 packets that it got', 50, True),
    'rr-kicks': Group('targets', 'round trips: kicks per message that the guest sent', 1, True, slack=READINGS),
    'rr-interrupts': Group('targets', 'round trips: interrupts per message, both directions', 1, True, slack=READINGS),
    'policy-speed': Group('policies', 'adaptive\'s throughput, of the best other policy\'s', 0.97, False),
    'policy-latency': Group('policies', 'adaptive\'s mean latency, of off\'s', 1.10, True),
    'policy-bound': Group('policy', 'a packet\'s longest wait, with spins and without, simulated, of latency and timer '
                          'overshoot', 1, True),
    'policy-optimum': Group('policy', 'adaptive\'s cost, simulated, of the offline optimum', policy_result.TARGET, True,
                            slack=policy_result.SLACK / policy_result.TARGET),
    'policy-idle': Group('policy', 'adaptive\'s latency after idle and for requests, simulated, of off\'s',
                         policy_result.LATENCY_TARGET, True),
    'one-session': Group('pairs', 'one session over four pairs, of one pair', 0.97, False),
}


def beyond(group, figure):
    """By which part of the limit a figure misses it; negative where it does not."""
    return figure / group.limit - 1 if group.at_most else 1 - figure / group.limit


def row(name, what, values, figure=None, more=''):
    """values: of all rounds; what is judged is their median, or `figure`."""
    group = GROUPS[name]
    if not values:
        return {'group': name, 'what': what, 'met': None, 'why': more or 'not measured'}
    figure = statistics.median(values) if figure is None else figure
    off = beyond(group, figure)
    return {'group': name, 'what': what, 'figure': figure, 'min': min(values), 'max': max(values),
            'off': off, 'met': off <= group.slack, 'why': more}


# ---- bench-ring ------------------------------------------------------------------------------------

# Of bench-ring's kinds of targets, those of the device as it comes; of io_uring's, where it is forced.
RING_GROUPS = {('tap', 'device'): 'ring-tap', ('uring', 'device uring'): 'ring-batch', ('null', 'device'): 'ring-null',
               ('pairs', 'device'): 'ring-pairs', ('counters', 'device'): 'ring-counters'}


def ring(result):
    """A row for each back end, direction and size: the worst of both kinds of rings and all numbers of pairs."""
    folded = {}
    for target in ring_result.targets(result['samples']):
        of = target['of']
        name = RING_GROUPS.get((target['kind'], of['subject']))
        if name:
            size = '' if name == 'ring-null' else f' {of["size"]}'
            folded.setdefault((name, f'{of["backend"]} {of["dir"]}{size}'), []).append(target)
    for (name, what), some in folded.items():
        figure = (max if GROUPS[name].at_most else min)(target['median'] for target in some)
        missed = [target for target in some if not target['met']]
        more = f'the worst of {len(some)}'
        if missed:
            more = f'{len(missed)} of {len(some)}: ' + ', '.join(
                f'{target["of"]["ring"]}' + (f' with {target["of"]["pairs"]} pairs' if name in ('ring-tap', 'ring-batch')
                                             and target['of']['pairs'] > 1 else '') for target in missed)
        yield row(name, what, [value for target in some for value in (target['min'], target['max'])], figure, more)


# ---- netbench --------------------------------------------------------------------------------------


def case_of(test, way, size=None):
    return {'test': test, 'way': way, 'size': size or traffic.TESTS[test].size}


def sized(case):
    """The test, with its size where that is not the usual."""
    return case['test'] + f' {case["size"]} B' * (case['size'] != traffic.TESTS[case['test']].size)


def label(case):
    return f'{sized(case)} {case["way"]}'


def runs_of(result, case, machine):
    """{set: run}"""
    for cell in result['cells']:
        if cell['machine'] == machine and all(cell[name] == value for name, value in case.items()):
            return {run['set']: run for run in cell['runs']}
    return {}


def figure_of(run):
    return run['figure']


def metric(name):
    return lambda run: run['metrics'].get(name)


def latency_of(case):
    return figure_of if case['test'] == 'PING' else metric('latency')


def ratios(result, case, machine, other, get):
    """Of two machines, within each set that has both."""
    ours, theirs = runs_of(result, case, machine), runs_of(result, case, other)
    found = []
    for key, run in ours.items():
        above, below = get(run), get(theirs[key]) if key in theirs else None
        if above is None or below is None or not above and not below:
            continue
        # Where a flood left a receiver no time at all.
        found.append(above / below if below else math.inf)
    return found


def beside(name, result, case, machine, others, get):
    """A row for a machine beside the best of others: the one to which its median ratio is worst."""
    found = {other: ratios(result, case, machine, other, get) for other in others}
    measured = {other: values for other, values in found.items() if values}
    if not measured:
        return row(name, label(case), [])
    pick = max if GROUPS[name].at_most else min
    best = pick(measured, key=lambda other: statistics.median(measured[other]))
    missing = [other for other in others if other not in measured]
    more = f'beside {best}' * (len(others) > 1) + f'; {", ".join(missing)} not measured' * bool(missing)
    return row(name, label(case), measured[best], more=more)


WAYS = ('guest-host', 'host-guest')
STREAMS = [case_of(test, way) for test in ('TCP_STREAM', 'TCP_MAERTS') for way in WAYS]
RR = [case_of(test, way) for test in ('TCP_RR', 'UDP_RR') for way in WAYS]
PINGS = [case_of('PING', way) for way in WAYS]
UDP = [case_of('UDP_STREAM', way, 64) for way in WAYS]
CASES = [*STREAMS, *RR, *PINGS, *UDP]
FROM_GUEST = [case_of('TCP_STREAM', 'guest-host'), case_of('TCP_MAERTS', 'host-guest'), UDP[0]]
TO_GUEST = [case_of('TCP_STREAM', 'host-guest'), case_of('TCP_MAERTS', 'guest-host'), UDP[1]]


def per_sent(run):
    """Kicks for each packet that the guest sent."""
    metrics = run['metrics']
    if not metrics.get('packets_sent') or 'kicks' not in metrics:
        return None
    return metrics['kicks'] / 1000 * metrics['packets'] / metrics['packets_sent']


def per_received(run):
    """Receive interrupts for each packet that the guest got."""
    metrics = run['metrics']
    received = metrics['packets'] - metrics['packets_sent'] if 'packets_sent' in metrics else 0
    if received <= 0 or 'irq_rx' not in metrics:
        return None
    return metrics['irq_rx'] / 1000 * metrics['packets'] / received


def per_message(run):
    return run['metrics']['interrupts_sent'] / 1000 if 'interrupts_sent' in run['metrics'] else None


def counted(name, result, case, get, scale=1):
    values = [get(run) for run in runs_of(result, case, 'whelp').values()]
    return row(name, label(case), [value * scale for value in values if value is not None])


def matrix(result):
    """Rows of the run with the peers."""
    for case in STREAMS:
        yield beside('stream', result, case, 'whelp', ('qemu', 'qemu-vhost'), figure_of)
    for case in RR:
        yield beside('rr', result, case, 'whelp', ('qemu-vhost',), figure_of)
    for case in PINGS:
        yield beside('ping', result, case, 'whelp', ('qemu-vhost',), figure_of)
    for case in UDP:
        yield beside('udp64', result, case, 'whelp', ('qemu',), figure_of)
    for case in CASES:
        yield beside('demand', result, case, 'whelp', ('qemu', 'qemu-vhost'), metric('sd_host'))
    for case in FROM_GUEST:
        yield counted('tx-kicks', result, case, per_sent, 1000)
    for case in TO_GUEST:
        yield counted('rx-interrupts', result, case, per_received, 1000)
    for case in RR:
        yield counted('rr-kicks', result, case, per_sent)
    for case in RR:
        yield counted('rr-interrupts', result, case, per_message)


def policies(result):
    others = [name for name in POLICIES if name != 'adaptive']
    for case in CASES:
        if case['test'] != 'PING':
            yield beside('policy-speed', result, case, 'adaptive', others, figure_of)
    for case in [*RR, *PINGS]:
        yield beside('policy-latency', result, case, 'adaptive', ('off',), latency_of(case))


def pairs(result):
    for case in CASES:
        # A ping's mean is less where it is better: of that, its inverse.
        get = (lambda run: 1 / run['figure']) if case['test'] == 'PING' else figure_of
        yield beside('one-session', result, case, 'four', ('one',), get)


# ---- bench-policy ----------------------------------------------------------------------------------


def worst(name, what, found):
    """A row of {name of a trace: ratio}, judged by the most."""
    most = max(found, key=found.get)
    missed = [trace for trace, value in found.items() if beyond(GROUPS[name], value) > GROUPS[name].slack]
    more = f'the most of {len(found)}: {most}' if not missed else f'{len(missed)} of {len(found)}: {", ".join(missed)}'
    return row(name, what, list(found.values()), found[most], more)


def simulated(result):
    traces, bound = (policy_result.by_trace(result['results']),
                     policy_result.allowed_wait(result['costs'], result['latency_us']))
    # With spins and without, on a host with CPUs to spare and on one without.
    kinds = [name for name in result['results'][0]['policies'] if name.partition(',')[0] == 'adaptive']
    yield worst('policy-bound', f'all traces, {bound / 1e3:.0f} us allowed',
                {name: max(policy_result.worst_wait({name: runs}, kind) for kind in kinds) / bound
                 for name, runs in traces.items()})
    yield worst('policy-optimum', 'all traces',
                {name: max(policy_result.ratios(runs, 'adaptive')) for name, runs in traces.items()})
    found = {}
    for (trace, figure), value in policy_result.beside_off(traces).items():
        found[trace] = max(value, found.get(trace, 0))
    if found:
        yield worst('policy-idle', 'median and 99th percentile', found)


# ---- all -------------------------------------------------------------------------------------------

JUDGES = {'ring': ring, 'targets': matrix, 'policies': policies, 'policy': simulated, 'pairs': pairs}


def rows(results):
    """All rows in the order of GROUPS. results: {part: its result, or None}; a part without one has a row a group."""
    found = {name: [] for name in GROUPS}
    for part, judge in JUDGES.items():
        if results.get(part):
            for entry in judge(results[part]):
                found[entry['group']].append(entry)
    return [entry for name, some in found.items() for entry in
            some or [row(name, 'all', [], more=f'not measured: {missing(GROUPS[name].part, results)}')]]


def missing(part, results):
    if results.get(part):
        return f'the results of "{part}" do not have it'
    command = f'tools/bench-performance --parts {part}' if part in CAMPAIGNS else f'make bench-{part}'
    return f'there are no results of "{part}" ({command})'


def limit_of(name):
    group = GROUPS[name]
    return f'{"<=" if group.at_most else ">="} {group.limit:g}{group.unit}'


def verdict(entry):
    if entry['met'] is None:
        return entry['why']
    more = f' ({entry["why"]})' if entry['why'] else ''
    return ('met' if entry['met'] else f'**MISSED** by {100 * entry["off"]:.1f} %') + more

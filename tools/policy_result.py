# SPDX-License-Identifier: GPL-2.0-or-later
"""What tools/bench-policy makes of the simulator's results: costs beside the optimum, and targets met or missed.

A result is one policy.c line: a trace, made with one seed, with what each policy did on it. Times are in ns.
"""

import statistics

TARGET = 2.0
SLACK = 0.005  # of what a ratio is rounded by
LATENCY_TARGET = 1.1


def by_trace(results):
    """Name of a trace -> its results, one for each seed."""
    traces = {}
    for result in results:
        traces.setdefault(result['trace'], []).append(result)
    return traces


def ratio(result, policy):
    """What a policy costs, over the optimum. One that costs nothing where the optimum does neither is as good."""
    cost, least = result['policies'][policy]['cost'], result['optimum']
    if not least:
        return 1.0 if not cost else float('inf')
    return cost / least


def ratios(runs, policy):
    return [ratio(result, policy) for result in runs]


def median_of(runs, policy, figure):
    return statistics.median(figure(result['policies'][policy]) for result in runs)


def worst_wait(traces, policy):
    return max(result['policies'][policy]['waited_max'] for runs in traces.values() for result in runs)


def allowed_wait(costs, latency):
    """The longest that a packet may wait with a latency of so many us."""
    return latency * 1000 + costs['overshoot_max'] + costs['timer_set'] + costs['kick_latency'] + 2 * costs['look']


def beside_off(traces):
    """{(trace, figure): the most of the seeds} of adaptive's latency, of off's, after idle and for requests."""
    return {(name, figure): max(run['policies']['adaptive'][figure] / run['policies']['off'][figure] for run in runs)
            for name, runs in traces.items() if 'request' in name or name.endswith('-1k')
            for figure in ('latency_p50', 'latency_p99')}


def verdicts(traces, costs, latency):
    """What the targets say, a line each."""
    worst = {name: max(ratios(runs, 'adaptive')) for name, runs in traces.items()}
    missed = {name: value for name, value in worst.items() if value > TARGET + SLACK}
    lines = [f'adaptive costs at most {TARGET:g} of the optimum: met on {len(worst) - len(missed)} of {len(worst)} traces'
             + (', missed on ' + ', '.join(f'{name} ({value:.2f})' for name, value in missed.items()) if missed else
                f' (the most is {max(worst.values()):.2f}, on {max(worst, key=worst.get)})')]
    wait, bound = worst_wait(traces, 'adaptive'), allowed_wait(costs, latency)
    lines.append(f'no packet waits longer than the latency and the overshoot: {"met" if wait <= bound else "missed"} '
                 f'(adaptive: {wait / 1e3:.0f} us at most, {bound / 1e3:.0f} allowed)')
    slower = [f'{name}, {figure[8:]}: {after:.2f}' for (name, figure), after in beside_off(traces).items()
              if after > LATENCY_TARGET]
    lines.append('adaptive\'s latency after idle and for requests is at most 1.1 of off\'s: '
                 + (f'missed ({"; ".join(slower)})' if slower else 'met'))
    return lines

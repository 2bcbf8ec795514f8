# SPDX-License-Identifier: GPL-2.0-or-later
"""A result, from the plan and the journal's events; its tables, as heads and rows of text."""

from netbench_lib import figures, traffic
from netbench_lib import plan as plans


def references(plan):
    """{machine: the one it is compared with}"""
    first, found = {}, {}
    for machine in plan['machines']:
        first.setdefault(machine['block'], machine['name'])
        found[machine['name']] = first[machine['block']]
    return found


def _summaries(dicts):
    """{name: summary} of dicts of figures; what a dict lacks is 0, as counters that did not grow are not in it."""
    names = {name: None for found in dicts for name in found}
    return {name: figures.summary([found.get(name, 0.0) for found in dicts]) for name in sorted(names)}


def _metrics(runs):
    return {column.name: figures.summary([run['metrics'][column.name] for run in runs])
            for column in figures.COLUMNS if all(column.name in run['metrics'] for run in runs)}


def cells(plan, events):
    """Each case with each machine: the summaries of its runs."""
    grouped, by_set = {}, {}
    for run in plans.runs(events):
        grouped.setdefault((run['case'], run['machine']), []).append(run)
        by_set[run['set'], run['machine']] = run
    reference = references(plan)
    found = []
    for number, case in enumerate(plan['cases']):
        for machine in plan['machines']:
            runs = grouped.get((number, machine['name']))
            if not runs:
                continue
            others = [(run, by_set.get((run['set'], reference[machine['name']]))) for run in runs]
            ratios = [run['figure'] / other['figure'] for run, other in others if other and other['figure']]
            found.append({
                'case': number, **case, 'machine': machine['name'], 'reference': reference[machine['name']],
                'unit': traffic.UNITS[traffic.TESTS[case['test']].kind],
                'figure': figures.summary([run['figure'] for run in runs]),
                'ratio': figures.summary(ratios) if ratios else None,
                'metrics': _metrics(runs),
                'threads': _summaries([run['threads'] for run in runs]),
                'exit_causes': _summaries([run['exit_causes'] for run in runs]),
                'protocols': {side: _summaries([run['protocols'][side] for run in runs])
                              for side in runs[0]['protocols']},
                'runs': [{name: run[name] for name in ('lab', 'set', 'figure', 'window', 'metrics', 'sessions')}
                         for run in runs],
            })
    return found


def left_out(plan, events):
    """A line for each thing that is missing."""
    lines = []
    for event in events:
        if event['event'] in ('left_out', 'given_up'):
            machine = f', {event["machine"]}' if 'machine' in event else ''
            lines.append(f'round {int(event["set"].split(".")[0]) + 1}, {plans.case_name(plan["cases"][event["case"]])}'
                         f'{machine}: {event["why"]}')
    return lines


def discarded(plan, events):
    return [f'{plans.case_name(plan["cases"][event["case"]])}, {event["machine"]}: {event["why"]}'
            for event in events if event['event'] == 'discarded']


def gather(plan, events):
    def last(kind):
        return next((event for event in reversed(events) if event['event'] == kind), {})
    done = plans.finished(events)
    sets = [entry['id'] for lab in plans.labs(plan) for entry in lab['sets']]
    return {
        'plan': plan, 'start': last('start'), 'machine': last('machine'),
        'releases': {event['machine']: event['releases'] for event in events if event['event'] == 'booted'},
        'loads': [event['load'] for event in events if event['event'] == 'lab'],
        'sets': len(sets), 'sets_done': sum(entry in done for entry in sets),
        'faults': [event['why'] for event in events if event['event'] == 'fault'],
        'left_out': left_out(plan, events), 'discarded': discarded(plan, events),
        'cells': cells(plan, events),
    }


# ---- text ------------------------------------------------------------------------------------------


def shown(summary, form, spread=True):
    """A figure's median, and its spread if there is one."""
    text = format(summary['median'], form)
    if not spread or summary['n'] < 2:
        return text
    return f'{text} ({format(summary["min"], form)} to {format(summary["max"], form)})'


def form_of(unit, value):
    if unit == 'ms':
        return '.3f'
    return '.0f' if value >= 100 else '.2f'


def shown_figure(cell, spread=True):
    return shown(cell['figure'], form_of(cell['unit'], cell['figure']['median']), spread)


def describe_machine(entry):
    words = [entry['kind'], f'{entry["cpus"]} CPU{"s" * (entry["cpus"] > 1)}',
             f'{entry["pairs"]} queue pair{"s" * (entry["pairs"] > 1)}']
    if entry['kind'] == 'loopback':
        words = ['the host with itself']
    if entry['keys']:
        words.append(entry['keys'])
    words += [f'{name} {entry[name]}' for name in ('kernel', 'program', 'machine', 'offloads') if name in entry]
    return f'{entry["name"]}: {", ".join(words)}'


def cautions(result):
    """Of the header, the lines that forbid to take the figures for more than they are."""
    plan, lines = result['plan'], []
    if result['machine'].get('in_lab'):
        lines.append('in the lab: figures are for comparison with each other only, not with those of other machines')
    if plan['rounds'] * plan['repeat'] < 3:
        lines.append('fewer than three runs: the spread says little')
    return lines


def header(result):
    """What the figures have to be read with: a list of lines."""
    plan, start, machine = result['plan'], result['start'], result['machine']
    lines = [f'host: {machine.get("host", "unknown")}; KVM: {machine.get("kvm", "unknown")}'
             f', {machine.get("cpus", "?")} CPU{"s" * (machine.get("cpus") != 1)} where the VMMs ran']
    lines += [f'{name}: {version}' for name, version in start.get('versions', {}).items()]
    lines += [f'machine {describe_machine(entry)}' for entry in plan['machines']]
    lines.append(f'guests of {plan["memory"]} MiB; their kernel is {plan["kernel"]} unless said otherwise')
    pins = [f'{what} on CPUs {plan[key]}' for key, what in (('vmm_cpus', 'VMMs'), ('load_cpus', 'host\'s load'))
            if plan[key]]
    lines += [f'pinned: {", ".join(pins)}'] * bool(pins)
    lines.append(f'{plan["rounds"]} round{"s" * (plan["rounds"] > 1)} of {plan["repeat"]}, runs of '
                 f'{plan["seconds"]:g} s; measured {result["sets_done"]} of {result["sets"]} sets')
    if result['loads']:
        lines.append(f'load average of the host before each lab: {min(result["loads"]):.1f} to '
                     f'{max(result["loads"]):.1f}; the bench makes one or two')
    lines.append(f'all sessions of a run worked at the same time for {plan["overlap"]} % of it or more; '
                 f'discarded and repeated: {len(result["discarded"])} runs')
    lines += [f'discarded: {text}' for text in result['discarded']]
    lines += [f'left out: {text}' for text in result['left_out']]
    lines += [f'fault of a lab, repeated: {text}' for text in result['faults']]
    return lines + cautions(result)


def sections(result):
    """[(title, cells)] by test, way and size."""
    found = {}
    for cell in result['cells']:
        found.setdefault((cell['test'], cell['way'], cell['size']), []).append(cell)
    return [(f'{test}, {way}, {size} bytes', some) for (test, way, size), some in found.items()]


def label(cell, with_sessions):
    return f'{cell["sessions"]}: {cell["machine"]}' if with_sessions else cell['machine']


def _several(some):
    return len({cell['sessions'] for cell in some}) > 1 or some[0]['sessions'] > 1


def figure_table(some):
    first = 'sessions: machine' if _several(some) else 'machine'
    head = [f'{first} ({some[0]["unit"]})', 'min', 'avg', 'median', 'max', 'stddev', 'n', 'to the reference']
    rows = []
    for cell in some:
        form = form_of(cell['unit'], cell['figure']['median'])
        ratio = '' if not cell['ratio'] else \
            'reference' if cell['machine'] == cell['reference'] else shown(cell['ratio'], '.2f')
        rows.append([label(cell, _several(some)),
                     *(format(cell['figure'][name], form) for name in ('min', 'avg', 'median', 'max', 'stddev')),
                     cell['figure']['n'], ratio])
    return head, rows


def metric_tables(some, spread=True, width=7):
    """Tables of all metrics that any of the cells has, a few columns each."""
    columns = [column for column in figures.COLUMNS if any(column.name in cell['metrics'] for cell in some)]
    found = []
    for start in range(0, len(columns), width):
        part = columns[start:start + width]
        head = ['sessions: machine' if _several(some) else 'machine',
                *(f'{column.title}{f" ({unit})" if (unit := unit_of(column, some[0])) else ""}' for column in part)]
        found.append((head, [[label(cell, _several(some)),
                              *(shown(cell['metrics'][column.name], column.form, spread)
                                if column.name in cell['metrics'] else '' for column in part)] for cell in some]))
    return found


def unit_of(column, cell):
    """Service demand is per unit of work, which the test decides."""
    if column.name.startswith('sd_'):
        return {'stream': 'us/KB', 'rr': 'us/transaction', 'ping': 'us/ping', 'packets': 'us/packet'}[
            traffic.TESTS[cell['test']].kind]
    return column.unit


def wide_table(some, dicts, title, form='.1f', only=None):
    """Rows are what any of the dicts of summaries has, columns are the cells. None if there is nothing."""
    names = {name: None for found in dicts for name in found if only is None or name in only}
    if only is not None:
        names = [name for name in only if name in names]
    if not names:
        return None
    head = [title, *(label(cell, _several(some)) for cell in some)]
    return head, [[name, *(shown(found[name], form) if name in found else '' for found in dicts)] for name in names]


def detail_tables(some):
    """[(caption, (head, rows))] of threads, exits and protocols."""
    found = [('CPU by thread of the VMM, % of one CPU',
              wide_table(some, [cell['threads'] for cell in some], 'thread')),
             ('KVM\'s exits by cause, per 1,000 packets',
              wide_table(some, [cell['exit_causes'] for cell in some], 'cause'))]
    for side, name in (('host', 'of the host'), ('guest', 'of the guest'), ('guest2', 'of the second guest')):
        found.append((f'protocol counters {name}, per second',
                      wide_table(some, [cell['protocols'].get(side, {}) for cell in some], 'counter',
                                 only=figures.TELLING)))
    return [(caption, table) for caption, table in found if table]

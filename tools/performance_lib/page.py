# SPDX-License-Identifier: GPL-2.0-or-later
"""The made parts of docs/performance.md: each is Markdown between two marks. What is outside of them is left alone, but for
a line in its section of misses for each target that is missed and not named there yet.
"""

import re
import statistics

import benchlib
import ring_result
from performance_lib import condensed, plots, targets
from performance_lib.campaigns import CAMPAIGNS

HEADING = '## Misses'
# Of the plots.
CAPTIONS = {'ring': 'Nanoseconds per frame of the device and of the bare loop on a tap, by size; lines are medians, whiskers '
                    'the range',
            'policy': 'Latency against CPU cost of each policy; a point is a trace, a diamond their median',
            'targets': 'Figures of whelp and its peers; bars are medians, whiskers the range'}


def marks(name):
    return f'<!-- made by tools/bench-performance: {name} -->', f'<!-- end of {name} -->'


# ---- machine ---------------------------------------------------------------------------------------


def spread_of(values):
    """A sentence on lists of figures of the same thing."""
    widths = [100 * (max(some) - min(some)) / statistics.median(some) for some in values
              if len(some) > 1 and statistics.median(some)]
    if not widths:
        return 'one round only: no spread is known'
    return (f'spread: the range over the rounds is {statistics.median(widths):.0f} % of the median for half of the figures, '
            f'{max(widths):.0f} % at most')


def rounds(count):
    return f'{count} round{"s" * (count != 1)}'


def loads(values):
    return f'load of the host before {min(values):.1f} to {max(values):.1f}' if values else 'load unknown'


def about_ring(result):
    found = [[sample['ns'] for sample in samples.values()]
             for samples in ring_result.by_key(result['samples']).values()]
    return [f'{result["version"]}; {result["compiler"]}', f'{result["machine"]["host"]}; {result["machine"]["kvm"]}',
            f'{result.get("time", "date unknown")}; {rounds(result["rounds"])} of {result["seconds"]} s a sample; '
            f'{loads(result["load"])}; {spread_of(found)}',
            *(f'left out: {why}' for why in result['left_out']), *result['remarks']]


def about_policy(result):
    costs = {}
    for run in result['results']:
        costs.setdefault(run['trace'], []).append(run['policies']['adaptive']['cost'] / run['packets'])
    return [f'whelp {result["versions"]["whelp"]}; {result["versions"]["compiler"]}', result['machine']['host'],
            f'{result.get("time", "date unknown")}; simulated with this machine\'s costs; {result["packets"]} packets in a '
            f'made-up trace, {result["seeds"]} seeds; {loads([result["load"]])}; {spread_of(costs.values())}']


def about_netbench(result):
    plan, machine = result['plan'], result['machine']
    versions = {}
    for name, version in result['start'].get('versions', {}).items():
        versions.setdefault(version, re.sub(r' \(.*\)$', '', name))
    cpus = machine.get('cpus', '?')
    lines = ['; '.join(version if version.lower().startswith(name.lower()) else f'{name} {version}'
                       for version, name in versions.items()),
             f'{machine.get("host", "host unknown")}; {machine.get("kvm", "KVM unknown")}, {cpus} CPU{"s" * (cpus != 1)} '
             'where the VMMs ran',
             f'{result["start"].get("time", "date unknown")}; {rounds(plan["rounds"])}, runs of {plan["seconds"]:g} s, '
             f'measured {result["sets_done"]} of {result["sets"]} sets; {loads(result["loads"])}; '
             + spread_of([[run['figure'] for run in cell['runs']] for cell in result['cells']]),
             *(f'left out: {text}' for text in result['left_out']),
             *(f'fault of a lab, repeated: {text}' for text in result['faults'])]
    if result['discarded']:
        lines.append(f'discarded and repeated: {len(result["discarded"])} runs')
    return lines


ABOUT = {'ring': ('make bench-ring', about_ring), 'policy': ('make bench-policy', about_policy),
         **{name: (f'netbench, {campaign.title}', about_netbench) for name, campaign in CAMPAIGNS.items()}}


def machine(results):
    parts = []
    for name, (title, about) in ABOUT.items():
        lines = about(results[name]) if results.get(name) else [f'**not measured**: {targets.missing(name, results)}']
        parts.append(f'**{name}** ({title}):\n\n' + '\n'.join(f'- {line}' for line in lines))
    return '\n\n'.join(parts) + '\n'


# ---- targets ---------------------------------------------------------------------------------------


def number(value, group):
    return f'{value:.3f}' if group.limit < 5 else f'{value:.1f}'


def group_rows(rows):
    found = []
    for name, group in targets.GROUPS.items():
        some = [row for row in rows if row['group'] == name]
        judged = [row for row in some if row['met'] is not None]
        met = sum(row['met'] for row in judged)
        missing = f', {len(some) - len(judged)} not measured' * (len(judged) < len(some))
        if not judged:
            found.append([f'`{name}`', group.text, targets.limit_of(name), '', 'not measured'])
            continue
        worst = max(judged, key=lambda row: row['off'])
        of = f' in {len(judged) - met} of {len(judged)}' if len(judged) > 1 else ''
        verdict = (f'**MISSED**{of}' if met < len(judged) else 'met') + missing
        found.append([f'`{name}`', group.text, targets.limit_of(name),
                      f'{number(worst["figure"], group)}, {worst["what"]}', verdict])
    return ['target', 'what', 'asked', 'worst median, and where', 'verdict'], found


def target_rows(rows):
    found = []
    for row in rows:
        group = targets.GROUPS[row['group']]
        measured = ['', ''] if row['met'] is None else [
            number(row['figure'], group), f'{number(row["min"], group)} to {number(row["max"], group)}']
        found.append([f'`{row["group"]}`', row['what'], targets.limit_of(row['group']), *measured, targets.verdict(row)])
    return ['target', 'in', 'asked', 'measured', 'range', 'verdict'], found


def count_line(rows):
    met, missed, unknown = (sum(row['met'] is value for row in rows) for value in (True, False, None))
    return f'**Of {len(rows)} targets and cases {met} are met, {missed} missed, {unknown} not measured.**'


def all_targets(rows):
    return '\n\n'.join([count_line(rows), benchlib.markdown(*group_rows(rows)), 'Each case:',
                        benchlib.markdown(*target_rows(rows))]) + '\n'


# ---- tables ----------------------------------------------------------------------------------------


def plot(name):
    file, _ = plots.PLOTS[name]
    return f'![{CAPTIONS[name]}](plots/{file})\n\n{CAPTIONS[name]}.'


def part(name, results):
    result = results.get(name)
    if not result:
        return f'**Not measured**: {targets.missing(name, results)}.\n'
    if name == 'ring':
        parts = [plot(name), benchlib.markdown(*condensed.ring(result))]
    elif name == 'policy':
        parts = [plot(name), benchlib.markdown(*condensed.policy_figures(result)),
                 benchlib.markdown(*condensed.policy_costs(result))]
    else:
        lines = [f'`{entry["name"]}`: whelp with {entry["keys"] or "its defaults"}' +
                 (f', {entry["pairs"]} queue pairs' if entry['pairs'] > 1 else '')
                 for entry in result['plan']['machines'] if entry['kind'] == 'whelp']
        parts = [*([plot(name)] if name in CAPTIONS else []), '; '.join(lines) + '.',
                 benchlib.markdown(*condensed.netbench(result))]
    return '\n\n'.join(parts) + '\n'


def blocks(results):
    rows = targets.rows(results)
    return {'machine': machine(results), 'all targets': all_targets(rows), **{name: part(name, results) for name in ABOUT}}


# ---- misses ----------------------------------------------------------------------------------------


def misses(text, rows):
    """The page with a line for each target that is missed and not named in the section; names there that are not missed."""
    start = text.find(f'{HEADING}\n')
    if start < 0:
        raise benchlib.Failed(f'the page has no heading "{HEADING}"')
    start += len(HEADING) + 1
    found = re.search(r'^## ', text[start:], re.M)
    end = start + found.start() if found else len(text)
    section = text[start:end]
    missed = {}
    for row in rows:
        if row['met'] is False:
            missed.setdefault(row['group'], []).append(row)
    named = {name for name in re.findall(r'`([a-z0-9-]+)`', section) if name in targets.GROUPS}
    lines = [f'- `{name}`, missed in {"; ".join(row["what"] for row in some)}:'
             for name, some in missed.items() if name not in named]
    if lines:
        section = section.rstrip('\n') + '\n\n' + '\n'.join(lines) + '\n' + '\n' * bool(found)
        section = '\n' + section.lstrip('\n')
    return text[:start] + section + text[end:], sorted(named - set(missed))


def write(path, results):
    """Puts the results into the page; names in its section of misses that are not missed."""
    for name, text in blocks(results).items():
        benchlib.put_between(path, *marks(name), text)
    text, stale = misses(path.read_text(encoding='utf-8'), targets.rows(results))
    path.write_text(text, encoding='utf-8')
    return stale

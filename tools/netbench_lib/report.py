# SPDX-License-Identifier: GPL-2.0-or-later
"""The four reports of a result: result.json, result.csv, result.md and result.html; and what the terminal shows."""

import csv
import io
import json
import os

import benchlib
from netbench_lib import figures, report_html, tables
from netbench_lib.tables import gather

SUMMARY = ('n', 'min', 'avg', 'median', 'max', 'stddev')


def text(result):
    parts = ['\n'.join(tables.header(result))]
    for title, some in tables.sections(result):
        parts.append(f'{title}\n' + benchlib.table(*tables.figure_table(some)))
        parts += [benchlib.table(*table) for table in tables.metric_tables(some, spread=False, width=9)]
    return '\n\n'.join(parts)


def markdown(result):
    parts = ['# netbench', '\n'.join(f'- {line}' for line in tables.header(result)),
             'Figures are medians, with their range in parentheses. docs/netbench.md defines every column.']
    for title, some in tables.sections(result):
        parts.append(f'## {title}')
        parts.append(benchlib.markdown(*tables.figure_table(some)))
        parts += [benchlib.markdown(*table) for table in tables.metric_tables(some)]
        for caption, table in tables.detail_tables(some):
            parts += [f'{caption}:', benchlib.markdown(*table)]
    return '\n\n'.join(parts) + '\n'


def _csv_rows(result):
    machines = {entry['name']: entry for entry in result['plan']['machines']}
    for cell in result['cells']:
        entry = machines[cell['machine']]
        start = [cell['test'], cell['way'], cell['size'], cell['sessions'], cell['machine'], entry['kind'],
                 entry['keys'], entry['cpus'], entry['pairs']]

        def row(name, unit, summary, start=start):
            return [*start, name, unit, *(f'{summary[key]:.6g}' for key in SUMMARY)]
        yield row('figure', cell['unit'], cell['figure'])
        if cell['ratio']:
            yield row('ratio', f'to {cell["reference"]}', cell['ratio'])
        for name, summary in cell['metrics'].items():
            yield row(name, tables.unit_of(figures.BY_NAME[name], cell), summary)
        for what, unit in (('threads', '% of a CPU'), ('exit_causes', '/1000 packets')):
            for name, summary in cell[what].items():
                yield row(f'{what}.{name}', unit, summary)
        for side, counters in cell['protocols'].items():
            for name, summary in counters.items():
                yield row(f'{side}.{name}', '1/s', summary)


def csv_text(result):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator='\n')
    writer.writerow(['test', 'way', 'size', 'sessions', 'machine', 'kind', 'keys', 'cpus', 'pairs', 'what', 'unit',
                     *SUMMARY])
    writer.writerows(_csv_rows(result))
    return out.getvalue()


def write(result, directory):
    for name, body in (('json', json.dumps(result, indent=1) + '\n'), ('csv', csv_text(result)),
                       ('md', markdown(result)), ('html', report_html.page(result))):
        path = directory / f'result.{name}'
        # Never half of a report.
        part = path.with_suffix(f'.{name}.part')
        part.write_text(body, encoding='utf-8')
        os.replace(part, path)


__all__ = ['csv_text', 'gather', 'markdown', 'text', 'write']

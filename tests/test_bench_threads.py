# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench-threads without guests: its topics are sound plans, and what is said of ratios follows from them."""

import re

import pytest

import libtools
import benchlib
from netbench_lib import options, plan, tables, threads


@pytest.fixture(scope='module')
def bench():
    return libtools.load('bench-threads')


def plan_of(topic):
    return options.make_plan(options.parser().parse_args([*topic.argv]))


@pytest.mark.parametrize('name', threads.TOPICS)
def test_a_claim_is_about_what_its_topic_measures(name):
    topic = threads.TOPICS[name]
    found = plan_of(topic)
    machines = [entry['name'] for entry in found['machines']]
    for claim in topic.claims:
        assert claim.machine in machines and claim.other in machines and claim.sign in '<>~' and claim.theirs, claim
        assert claim.metric in threads.METRICS, claim
        cases = [case for case in found['cases'] if threads._matches(claim, case)]
        assert len(cases) == 1, (claim, cases)
    assert topic.claims and topic.theirs


def test_only_keys_that_whelp_has(bench):
    if not (benchlib.build_dir() / 'whelp').exists():
        pytest.skip('whelp is not built')
    known = bench.known_keys()
    assert {'tap', 'ring', 'mrg_rxbuf', 'ring_packed'} <= known and 'name' not in known
    topic = threads.TOPICS['2008']._replace(argv=('--variant', 'a:ring=64,-mrg_rxbuf,never=1,+nor_this,@cpus=2'))
    assert threads.unknown_keys(topic, known) == ['never', '+nor_this']


@pytest.mark.parametrize('sign, ratios, text', [
    ('>', [1.2, 1.3, 1.1], 'confirmed here'),
    ('<', [0.5], 'confirmed here'),
    ('>', [0.8, 0.9], 'not confirmed here: the other way round'),
    ('<', [1.5, 1.4], 'not confirmed here: the other way round'),
    # One on the other side, or hardly any difference.
    ('>', [1.4, 1.3, 0.99], 'not seen here: within the spread'),
    ('>', [1.01, 1.02], 'not seen here: within the spread'),
    ('~', [1.01, 1.02], 'confirmed here'),
    ('~', [0.9, 1.1, 1.06], 'confirmed here'),
    ('~', [1.1, 1.2], 'not confirmed here: more'),
    ('~', [0.5], 'not confirmed here: less'),
    ('~', [], 'not measured'),
])
def test_verdicts(sign, ratios, text):
    assert threads.verdict(sign, ratios) == text


def canned(figures, kicks=None):
    """A result of the topic 2008 for one test: {machine: a figure for each round}, as the journal would give it."""
    found = options.make_plan(options.parser().parse_args(
        [*threads.TOPICS['2008'].argv, '--rounds', '2', '--tests', 'PING']))
    events = [{'event': 'lab', 'lab': 1, 'load': 0.1},
              {'event': 'machine', 'host': 'h', 'kvm': 'native', 'in_lab': False, 'cpus': 1, 'lab': 1}]
    for lab in plan.labs(found):
        for entry in lab['sets']:
            for name in entry['machines']:
                # Each lab is slower than the one before.
                figure = figures.get(name, [1.0, 1.0])[lab['round']] * (1 + lab['group'])
                events.append({'event': 'run', 'set': entry['id'], 'case': entry['case'], 'machine': name, 'lab': 1,
                               'figure': figure, 'window': 1.0, 'metrics': {'kicks': (kicks or {}).get(name, 1.0)},
                               'threads': {}, 'exit_causes': {}, 'protocols': {'host': {}}, 'sessions': []})
            events.append({'event': 'set', 'set': entry['id'], 'lab': 1})
    return tables.gather(found, events)


def claim(machine, sign, other, metric='figure'):
    return threads.Claim('t', '2', machine, sign, other, 'PING', metric=metric)


def test_ratios_are_within_a_set_where_both_are():
    result = canned({'timer50': [2.0, 3.0], 'timer250': [4.0, 4.0]})
    assert threads.ratios(claim('timer50', '<', 'timer250'), result) == [0.5, 0.75]


def test_ratios_of_machines_in_two_labs_are_by_way_of_the_reference():
    # lguest and zerocopy are in different groups, whose labs differ in speed.
    result = canned({'lguest': [0.2, 0.3], 'zerocopy': [1.0, 1.0]})
    groups = [[entry['name'] for entry in group] for group in plan.groups(result['plan'])]
    assert not any('lguest' in group and 'empty' in group for group in groups)
    assert threads.ratios(claim('lguest', '<', 'empty'), result) == pytest.approx([0.2, 0.3])


def test_rows_and_summary():
    result = canned({'timer50': [0.5, 0.6]}, {'timer50': 3.0})
    row = threads.claim_row(claim('timer50', '<', 'timer250'), result)
    assert len(row) == len(threads.CLAIM_HEAD)
    assert row[3:] == ['2', '0.55 (0.50 to 0.60)', 2, 'confirmed here']
    assert threads.claim_row(claim('timer50', '>', 'timer1', 'kicks'), result)[4] == '3.00 (3.00 to 3.00)'
    topic = threads.TOPICS['2008']._replace(claims=(
        claim('timer50', '<', 'timer250'), claim('timer50', '>', 'timer250'), claim('timer250', '>', 'timer150'),
        claim('timer50', '<', 'timer250')._replace(test='TCP_RR')))
    assert threads.summary_line(topic, result) == \
        '1 of 4 findings confirmed here, 1 the other way round, 1 within the spread, 1 not measured.'


def test_the_page_has_a_place_for_the_result_and_every_topic(bench):
    text = (libtools.ROOT / 'docs/threads-bench.md').read_text()
    assert text.count(bench.BEGIN) == text.count(bench.END) == 1
    for topic in threads.TOPICS.values():
        assert f'## {topic.title}' in text, topic.title


def test_the_page_is_put_between_its_marks(bench, tmp_path, monkeypatch):
    page = tmp_path / 'page.md'
    page.write_text(f'before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n')
    monkeypatch.setattr(bench, 'DOCS', page)
    bench.write_docs('new\n')
    assert page.read_text() == f'before\n{bench.BEGIN}\nnew\n{bench.END}\nafter\n'


def test_a_topic_of_the_page(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, 'directory_of', lambda name: tmp_path / name)
    parts = bench.section('2008', {'nothing'})
    assert parts[-1].startswith('Not measured: this whelp has no mitigation, intr')
    known = {re.split('[=]', key)[0].lstrip('+-') for word in threads.TOPICS['2008'].argv
             for key in word.partition(':')[2].split(',')}
    assert bench.section('2008', known)[-1] == 'Not measured yet.'
    result = canned({})
    monkeypatch.setattr(bench.campaign.report, 'gather', lambda *_: result)
    (tmp_path / '2008').mkdir()
    (tmp_path / '2008/plan.json').write_text('{}')
    text = '\n\n'.join(bench.section('2008', known))
    assert '| lguest, which sends at once' in text and 'findings confirmed here' in text and 'Fewer than three' in text


def test_sessions_of_the_command_line_replace_those_of_topics(bench):
    chosen = type('Chosen', (), {'rounds': '1', 'seconds': '1', 'lab_cpus': '1', 'sessions': '2'})
    words = bench.command_line(threads.TOPICS['workers'], chosen)
    assert words[words.index('--sessions') + 1] == '2'
    assert '--sessions' not in bench.command_line(threads.TOPICS['2008'], chosen)

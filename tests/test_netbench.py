# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/netbench without guests: its command line, plan, journal, figures, statistics and reports, and nbrun on this
host. Needs neither root nor KVM."""

import csv
import io
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tools'))
import benchlib  # noqa: E402
from netbench_lib import (figures, journal, machines, options, plan, probes, report, report_html, rounds,  # noqa: E402
                          tables, traffic)


def make_plan(*argv):
    return options.make_plan(options.parser().parse_args(argv))


# ---- the command line ------------------------------------------------------------------------------


def test_defaults_are_whelp_and_both_qemus():
    found = make_plan()
    assert [(entry['kind'], entry['name']) for entry in found['machines']] == [
        ('whelp', 'whelp'), ('qemu', 'qemu'), ('qemu-vhost', 'qemu-vhost')]
    assert [case['test'] for case in found['cases']] == ['TCP_STREAM', 'TCP_MAERTS', 'TCP_RR', 'UDP_RR', 'PING']
    assert all(case['way'] == 'host-guest' and case['sessions'] == 1 for case in found['cases'])


def test_tests_have_sizes_of_their_own():
    found = make_plan('--tests', 'TCP_STREAM:64+64K,TCP_RR,UDP_STREAM', '--sizes', '100,1k', '--sessions', '1,8')
    assert [(case['test'], case['size'], case['sessions']) for case in found['cases']] == [
        ('TCP_STREAM', 64, 1), ('TCP_STREAM', 64, 8), ('TCP_STREAM', 65536, 1), ('TCP_STREAM', 65536, 8),
        ('TCP_RR', 100, 1), ('TCP_RR', 100, 8), ('TCP_RR', 1024, 1), ('TCP_RR', 1024, 8),
        ('UDP_STREAM', 100, 1), ('UDP_STREAM', 100, 8), ('UDP_STREAM', 1024, 1), ('UDP_STREAM', 1024, 8)]


def test_pktgen_goes_its_own_ways():
    found = make_plan('--tests', 'PKTGEN,PING', '--ways', 'host-guest,guest-guest')
    assert [(case['test'], case['way']) for case in found['cases']] == [
        ('PKTGEN', 'guest-guest'), ('PING', 'host-guest'), ('PING', 'guest-guest')]


def test_keys_are_passed_on_and_own_ones_taken_out():
    found = make_plan('--variant', 'new:mitigation=adaptive,queues=4,-mrg_rxbuf,@kernel=unstable,@cpus=2,never=heard:of',
                      '--peer', 'qemu-vhost=v:tx_queue_size=512,queues=2,@machine=q35')
    new, peer = found['machines']
    assert new['keys'] == 'mitigation=adaptive,-mrg_rxbuf,never=heard:of'
    assert (new['pairs'], new['cpus'], new['kernel']) == (4, 2, 'unstable')
    assert (peer['name'], peer['keys'], peer['pairs'], peer['cpus'], peer['machine']) == (
        'v', 'tx_queue_size=512', 2, 1, 'q35')


def test_pairs_and_cpus_multiply_what_does_not_say():
    found = make_plan('--variant', 'a', '--variant', 'b:queues=8', '--peer', 'loopback', '--pairs', '1,4', '--cpus', '2')
    assert [(entry['name'], entry['pairs'], entry['block']) for entry in found['machines']] == [
        ('a/1q', 1, '2/1'), ('b', 8, '2/1'), ('loopback', 1, '2/1'), ('a/4q', 4, '2/4')]


@pytest.mark.parametrize('argv, words', [
    (['--tests', 'TCP'], 'there is no "TCP"'),
    (['--tests', 'TCP_RR:0'], 'not a size'),
    (['--tests', 'TCP_RR:'], 'not a size'),
    (['--tests', 'UDP_STREAM:64K'], 'UDP_STREAM: a size of 65536 is not from 1 to 65507'),
    (['--tests', 'TCP_RR,TCP_RR:1'], 'there twice'),
    (['--ways', 'guest'], 'there is no "guest"'),
    (['--ways', 'host-guest,host-guest'], 'names something twice'),
    (['--tests', 'PKTGEN'], 'pktgen sends from a guest only'),
    (['--sessions', '0'], 'not a number from 1 to 128'),
    (['--sessions', '1,129'], '"129" is not a number'),
    (['--sessions', '2,2'], 'names something twice'),
    (['--sessions', '-1'], 'not a number'),
    (['--pairs', '33'], '--pairs: "33"'),
    (['--cpus', 'all'], '--cpus: "all"'),
    (['--seconds', 'nan'], '--seconds'),
    (['--seconds', '0.1'], '--seconds'),
    (['--rounds', '0'], '--rounds'),
    (['--overlap', '101'], '--overlap'),
    (['--variant', ':ring=4'], 'is no name'),
    (['--variant', 'a b'], 'is no name'),
    (['--variant', 'a', '--variant', 'a:ring=64'], 'two machines are called "a"'),
    (['--variant', 'a:@color=red'], '"@color=red" is none of'),
    (['--variant', 'a:queues=x'], 'queues: "x"'),
    (['--variant', 'a:@offloads=on'], '@offloads'),
    (['--variant', 'a:@machine=q35'], '@machine is for QEMU'),
    (['--variant', 'a:@program=/nonexistent/whelp'], '/nonexistent/whelp: no such program'),
    (['--peer', 'vmware'], 'there is no "vmware"'),
    (['--peer', 'kvmtool'], 'needs --kvmtool'),
    (['--peer', 'loopback:queues=2'], 'loopback has no keys'),
    (['--peer', 'loopback', '--ways', 'guest-guest'], 'loopback goes the way host-guest only'),
    (['--kvmtool', '/nonexistent'], '/nonexistent: no such program'),
    (['--vmm-cpus', '1-'], '--vmm-cpus'),
    (['--resume', '/nonexistent'], 'no plan.json'),
    (['--resume', '/nonexistent', '--rounds', '2'], 'no other options'),
    (['--report', '/nonexistent'], 'no plan.json'),
    (['--out', '/usr'], 'not empty'),
    (['--round', '3'], 'unrecognized'),
])
def test_bad_command_lines(argv, words, capsys):
    with pytest.raises(SystemExit) as end:
        options.parse(argv)
    assert end.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith('tools/netbench: error: ') and words in last


def test_the_help_names_every_test_peer_and_status():
    done = subprocess.run([ROOT / 'tools/netbench', '--help'], capture_output=True, text=True, check=True)
    for word in (*traffic.TESTS, *options.KINDS, *(f'@{key}=' for key in options.OWN_KEYS), 'exit status'):
        assert word in done.stdout


# ---- the plan --------------------------------------------------------------------------------------


def test_every_group_has_the_reference_and_no_more_guests_than_may_be():
    found = make_plan('--variant', 'a', *(word for name in 'bcdefg' for word in ('--variant', name)), '--guests', '4')
    names = [[entry['name'] for entry in group] for group in plan.groups(found)]
    assert names == [['a', 'b', 'c', 'd'], ['a', 'e', 'f', 'g']]
    found = make_plan('--variant', 'a', '--variant', 'b', '--variant', 'c', '--peer', 'loopback', '--ways',
                      'host-guest,guest-guest')
    names = [[entry['name'] for entry in group] for group in plan.groups(found)]
    assert names == [['a', 'b'], ['a', 'c', 'loopback']]


def test_a_round_is_interleaved_and_rounds_begin_differently():
    found = make_plan('--variant', 'a', '--variant', 'b', '--tests', 'TCP_RR,PING', '--rounds', '2', '--repeat', '2')
    first, second = plan.labs(found)
    assert [(entry['case'], entry['machines']) for entry in first['sets']] == [
        (0, ['a', 'b']), (1, ['a', 'b']), (0, ['a', 'b']), (1, ['a', 'b'])]
    assert [(entry['case'], entry['machines']) for entry in second['sets']][:2] == [(1, ['b', 'a']), (0, ['b', 'a'])]
    ids = [entry['id'] for lab in (first, second) for entry in lab['sets']]
    assert len(set(ids)) == 8 and plan.count_runs(found) == 16


def test_loopback_has_only_what_it_can():
    found = make_plan('--variant', 'a', '--peer', 'loopback', '--tests', 'PING,PKTGEN', '--ways', 'host-guest,guest-host',
                      '--rounds', '1')
    (lab,) = plan.labs(found)
    assert [(found['cases'][entry['case']]['way'], entry['machines']) for entry in lab['sets']] == [
        ('host-guest', ['a', 'loopback']), ('guest-host', ['a']), ('guest-host', ['a'])]


# ---- journal and resume ----------------------------------------------------------------------------


def run_event(case, set_id, name, figure, lab=1, **metrics):
    return {'event': 'run', 'set': set_id, 'case': case, 'machine': name, 'lab': lab, 'figure': figure, 'window': 1.0,
            'metrics': {'cpu_host': 50.0, 'sd_host': 2.5, 'overlap': 100.0, **metrics},
            'threads': {'net0': 20.0, 'vcpu0': 30.0}, 'exit_causes': {'halt_exits': 3.0},
            'protocols': {'host': {'TcpRetransSegs': 2.0}, 'guest': {}}, 'sessions': [[0.0, 1.0]]}


def test_what_is_in_the_journal_is_not_measured_again(tmp_path):
    found = make_plan('--variant', 'a', '--variant', 'b', '--tests', 'TCP_RR,PING', '--rounds', '1')
    (lab,) = plan.labs(found)
    first, second = (entry['id'] for entry in lab['sets'])
    kept = journal.Journal(tmp_path / 'journal.jsonl')
    kept.add(event='lab', lab=1)
    for name in 'ab':
        kept.add(**run_event(0, first, name, 10.0))
    kept.add(event='set', set=first, lab=1)
    kept.add(**run_event(1, second, 'a', 11.0))
    kept.close()
    # As a crash leaves it.
    with open(tmp_path / 'journal.jsonl', 'ab') as file:
        file.write(b'{"event": "run", "set": "0.0')
    kept = journal.Journal(tmp_path / 'journal.jsonl')
    assert len(kept.events) == 5
    assert [entry['id'] for entry in plan.left(lab, kept.events)] == [second]
    # The set that was cut short is measured anew, whole; what was measured of it before does not count.
    kept.add(event='lab', lab=2)
    for name, figure in (('a', 12.0), ('b', 13.0)):
        kept.add(**run_event(1, second, name, figure, lab=2))
    kept.add(event='set', set=second, lab=2)
    kept.close()
    events = journal.read(tmp_path / 'journal.jsonl')
    assert plan.left(lab, events) == []
    assert [(run['machine'], run['figure']) for run in plan.runs(events)] == [
        ('a', 10.0), ('b', 10.0), ('a', 12.0), ('b', 13.0)]


def test_a_damaged_journal_is_refused(tmp_path):
    (tmp_path / 'journal.jsonl').write_bytes(b'{"event": "lab"}\nnonsense\n{"event": "lab"}\n')
    with pytest.raises(benchlib.Failed, match='damaged'):
        journal.read(tmp_path / 'journal.jsonl')


def test_what_was_given_up_is_not_tried_again_but_said():
    found = make_plan('--variant', 'a', '--tests', 'TCP_RR', '--rounds', '1')
    (lab,) = plan.labs(found)
    events = [{'event': 'given_up', 'set': lab['sets'][0]['id'], 'case': 0, 'why': 'it burned', 'lab': 1}]
    assert plan.left(lab, events) == []
    assert tables.gather(found, events)['left_out'] == ['round 1, TCP_RR host-guest 1 B: it burned']


# ---- labs that fail --------------------------------------------------------------------------------


class Labs:
    """In the place of rounds.run_lab: what happens in each lab is a list of what to do instead of a set's measurement."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.calls = []

    def __call__(self, wanted, lab, sets, files, staging, without, on_event):
        script = self.scripts.pop(0) if self.scripts else {}
        machines = [entry['name'] for entry in lab['machines'] if entry['name'] not in without]
        self.calls.append((machines, [entry['id'] for entry in sets]))
        for name in machines:
            if name in script.get('no_boot', ()):
                on_event({'event': 'no_boot', 'machine': name})
                raise benchlib.Failed(f'{name} ended')
            on_event({'event': 'booted', 'machine': name, 'seconds': 1, 'releases': []})
        for entry in sets:
            on_event({'event': 'begun', 'set': entry['id']})
            for name in entry['machines']:
                if name not in machines:
                    on_event({'event': 'left_out', 'set': entry['id'], 'case': entry['case'], 'machine': name, 'why': 'no'})
                    continue
                if script.get('fault') == (entry['case'], name):
                    raise benchlib.Failed('the lab burned')
                event = run_event(entry['case'], entry['id'], name, 1.0)
                del event['lab']
                on_event(event)
            on_event({'event': 'set', 'set': entry['id']})
        on_event({'event': 'end'})


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """campaign(scripts...) runs one of two machines and two tests; gives the labs' calls and the events."""
    def run(*scripts):
        wanted = make_plan('--variant', 'a', '--variant', 'b', '--tests', 'TCP_RR,PING', '--rounds', '1')
        labs = Labs(*scripts)
        monkeypatch.setattr(rounds, 'run_lab', labs)
        kept = journal.Journal(tmp_path / 'journal.jsonl')
        rounds.Campaign(wanted, kept, {}, tmp_path).run()
        kept.close()
        return labs.calls, tables.gather(wanted, kept.events)
    return run


def cells_of(result):
    return [(cell['test'], cell['machine']) for cell in result['cells']]


ALL = [('TCP_RR', 'a'), ('TCP_RR', 'b'), ('PING', 'a'), ('PING', 'b')]


def test_a_lab_that_fails_is_repeated_from_the_set_it_was_at(campaign):
    calls, result = campaign({'fault': (1, 'b')})
    assert calls == [(['a', 'b'], ['0.0.0.0', '0.0.1.0']), (['a', 'b'], ['0.0.1.0'])]
    assert cells_of(result) == ALL and all(cell['figure']['n'] == 1 for cell in result['cells'])
    assert result['left_out'] == [] and result['faults'] == ['the lab burned']


def test_a_set_that_fails_twice_is_given_up_and_the_next_one_measured(campaign, capsys):
    calls, result = campaign({'fault': (0, 'b')}, {'fault': (0, 'b')})
    assert calls[-1] == (['a', 'b'], ['0.0.1.0']) and len(calls) == 3
    assert cells_of(result) == [('PING', 'a'), ('PING', 'b')]
    assert result['left_out'] == ['round 1, TCP_RR host-guest 1 B: the lab burned']
    assert 'the lab burned; given up' in capsys.readouterr().err


def test_a_machine_that_does_not_boot_twice_is_left_out_and_the_others_measured(campaign):
    calls, result = campaign({'no_boot': ['b']}, {'no_boot': ['b']})
    assert [machines for machines, _ in calls] == [['a', 'b'], ['a', 'b'], ['a']]
    assert cells_of(result) == [('TCP_RR', 'a'), ('PING', 'a')]
    assert len(result['left_out']) == 2 and all(', b: ' in line for line in result['left_out'])


def test_a_machine_that_boots_at_the_second_try_is_measured(campaign):
    calls, result = campaign({'no_boot': ['a']})
    assert len(calls) == 2 and cells_of(result) == ALL and result['left_out'] == []


def test_when_nothing_boots_it_ends(campaign):
    calls, result = campaign(*[{'no_boot': ['a', 'b']}] * 20)
    assert len(calls) < 8 and result['cells'] == []
    assert len(result['left_out']) >= 2


# ---- the machines' command lines -------------------------------------------------------------------


FILES = {'program': '/p', 'kernel': '/k', 'initrd': '/i', 'memory': 512}
NIC = {'id': 'n0', 'name': 'eth0', 'tap': 'nb1g0n0', 'mac': '52:54:00:01:00:00', 'address': '198.18.1.2'}


def words(*argv):
    return ' '.join(map(str, machines.argv(make_plan(*argv)['machines'][0], FILES, [NIC], '/d', 'quiet')))


def test_command_lines():
    whelp = words('--variant', 'x:mitigation=off,queues=2', '--cpus', '2')
    assert '--net tap=nb1g0n0,mac=52:54:00:01:00:00,queues=2,mitigation=off' in whelp and '--cpus 2' in whelp
    assert 'queues' not in words('--variant', 'x')
    vhost = words('--peer', 'qemu-vhost:queues=2,tx_queue_size=1024')
    assert '-netdev tap,id=n0,ifname=nb1g0n0,script=no,downscript=no,queues=2,vhost=on ' in vhost
    assert 'mq=on,vectors=6,tx_queue_size=1024' in vhost
    assert ',tx=timer' in words('--peer', 'qemu-timer') and 'vhost' not in words('--peer', 'qemu')
    assert 'tapif=nb1g0n0' in words('--peer', 'kvmtool', '--kvmtool', '/bin/true')
    loops = make_plan('--peer', 'loopback')['machines']
    assert machines.Machine(loops[0], 7, FILES, {'host-guest'}, '/d', []).server_address('host-guest') == '198.18.7.1'


def test_a_terminal_as_a_socket(tmp_path):
    """As kvmtool's second serial port: every byte as it is, both ways."""
    ours, terminal = os.openpty()
    machines.PtyRelay(os.ttyname(terminal), str(tmp_path / 'serial'))
    sent = bytes(range(256))
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(tmp_path / 'serial'))
        client.sendall(sent)
        got = b''
        while len(got) < len(sent):
            got += os.read(ours, 4096)
        assert got == sent
        os.write(ours, sent)
        got = b''
        while len(got) < len(sent):
            got += client.recv(4096)
        assert got == sent
    os.close(terminal)
    os.close(ours)


def test_client_commands():
    programs = {'netperf': 'netperf', 'iperf3': 'iperf3', 'ping': 'ping'}

    def client(*argv):
        (case,) = make_plan('--tests', *argv)['cases']
        return ' '.join(map(str, traffic.client(case, '198.18.1.2', 5, programs)))
    assert re.search(r'-t TCP_RR .* -f x -- -r 100,100$', client('TCP_RR:100'))
    assert re.search(r'-t UDP_STREAM .* -D 0.5 .* -f m -- -m 64 -M 64$', client('UDP_STREAM:64'))
    assert ' -s ' not in client('TCP_RR')
    (case,) = make_plan('--tests', 'TCP_RR', '--sessions', '64')['cases']
    waits = [int(re.search(r' -s (\d+) ', ' '.join(map(str, traffic.client(case, 'x', 5, programs, attempt))))[1])
             for attempt in range(3)]
    assert 1 <= waits[0] and waits[1:] == [2 * waits[0], 4 * waits[0]]
    assert client('IPERF3_R:1K').endswith('-l 1024 -R') and '-p %p' in client('IPERF3')
    assert client('PING') == 'ping -q -f -n -s 56 198.18.1.2'
    assert [traffic.interval(seconds) for seconds in (0.2, 1, 5, 100)] == [0.1, 0.1, 0.5, 1.0]


# ---- what nbrun says -------------------------------------------------------------------------------


def session(first, last, covered, rate=100.0):
    return {'first': first, 'last': last, 'covered': covered, 'rate': rate, 'status': 0}


@pytest.mark.parametrize('sessions, percent', [
    ([session(9, 13, 2.0), session(9.5, 12.1, 2.0)], 100),
    ([session(9, 13, 2.001)], 100),
    ([session(9, 13, 2.0), session(10.5, 13, 1.5)], 75),
    ([session(9, 13, 2.0), session(9, 11, 1.0)], 50),
    # Seen at both ends, but not all the time.
    ([session(9, 13, 0.2)], 10),
    ([session(9, 13, 2.0), session(12.5, 13, 0.0)], 0),
    ([], 0),
])
def test_overlap_is_that_of_the_worst_session(sessions, percent):
    assert traffic.overlap({'begin': 10.0, 'end': 12.0, 'sessions': sessions}) == percent


def test_no_window_is_no_overlap():
    assert traffic.overlap({'begin': None, 'end': None, 'sessions': [session(0, 9, 0)]}) == 0


def test_a_session_that_failed_is_named():
    lines = ['running 5.0', 'begin 5.0', 'end 6.0', 'session 0 4.0 7.0 1.0 50.5 0', 'done']
    found = traffic.parse(lines)
    assert found['begin'] == 5.0 and found['sessions'][0]['rate'] == 50.5
    assert traffic.parse(['out 0 hello there', 'out 0', *lines])['out'] == {0: ['hello there', '']}
    with pytest.raises(benchlib.Failed, match='session 1 ended too early, with status 3: no route'):
        traffic.parse([*lines[:-1], 'out 1 no route', 'session 1 0 0 0 0 3', 'done'])
    with pytest.raises(benchlib.Failed, match='did not come to its end: nbrun: no memory'):
        traffic.parse(['running 5.0', 'nbrun: no memory'])


def test_ping_of_several_sessions():
    def text(sent, received, times):
        return ['', f'{sent} packets transmitted, {received} received, 0% packet loss, time 1000ms',
                f'rtt min/avg/max/mdev = {times} ms, ipg/ewma 0.02/0.01 ms']
    found = traffic.ping_times({'out': {0: text(10, 9, '0.1/0.2/0.9/0.05'), 1: text(20, 20, '0.2/0.4/0.5/0.07')}})
    assert found == {'sent': 30, 'received': 29, 'min': 0.1, 'avg': pytest.approx(0.3), 'max': 0.9,
                     'mdev': pytest.approx(0.06)}
    with pytest.raises(benchlib.Failed, match='no answers'):
        traffic.ping_times({'out': {0: ['', '5 packets transmitted, 0 received, 100% packet loss, time 9ms']}})


@pytest.fixture(scope='module')
def nbrun(tmp_path_factory):
    program = tmp_path_factory.mktemp('nbrun') / 'nbrun'
    warnings = '-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla'.split()
    subprocess.run([*shlex.split(os.environ.get('CC', 'cc')), '-std=gnu17', '-D_GNU_SOURCE', '-O2', *warnings, '-static',
                    '-o', program, ROOT / 'tools/netbench_lib/nbrun.c'], check=True)
    return program


# A client as netperf is one: in the first half of its life it has half the rate.
CLIENT = '''
now() { date +%s.%N; }
late=$1
sleep $late
end=$(now)
while :; do
	start=$end; sleep 0.05; end=$(now)
	echo "Interim result: $2 10^6bits/s over $(echo "$end $start" | awk '{ printf "%.3f", $1 - $2 }') seconds ending at $end"
done
'''


def converse(nbrun, *argv, word_at=None):
    runner = traffic.Here([str(nbrun), 'run', *argv])
    try:
        for word, answer in (('running', 'go'), ('begin', None), ('end', 'stop')):
            if not runner.expect(word, 30):
                break
            if answer:
                runner.say(answer)
        return runner.finish(30)
    finally:
        runner.close()


def test_nbrun_measures_only_while_all_work(nbrun, tmp_path):
    # Session 1 starts half a second late: the window waits for it.
    lines = converse(nbrun, 'netperf', '2', '300', '20000', str(tmp_path / 'snap'), 'bash', '-c', CLIENT.replace(
        'late=$1', 'late=0; [ $1 = 0 ] || late=0.5'), 'x', '%i', '7.5')
    result = traffic.parse(lines)
    begin, first = result['begin'], [entry['first'] for entry in result['sessions']]
    assert first[1] - first[0] > 0.4 and begin > max(first)
    assert all(entry['rate'] == 7.5 and entry['last'] >= result['end'] for entry in result['sessions'])
    assert traffic.overlap(result) > 99
    before, after = (probes.parse_snapshot((tmp_path / f'snap.{end}').read_text()) for end in ('begin', 'end'))
    assert set(probes.FILES) <= set(before) and after['/proc/stat'][0] - before['/proc/stat'][0] > 0.2


def test_nbrun_says_who_ended_early(nbrun):
    lines = converse(nbrun, 'netperf', '2', '300', '20000', '-', 'sh', '-c', 'echo alas; exit 3')
    assert not any(line.startswith(('running', 'begin', 'end')) for line in lines)
    with pytest.raises(benchlib.Failed, match='session [01] ended too early, with status 3: alas'):
        traffic.parse(lines)


def test_nbrun_gives_up_on_a_session_that_never_works(nbrun):
    result = traffic.parse(converse(nbrun, 'netperf', '1', '300', '300', '-', 'sleep', '60'))
    assert traffic.overlap(result) == 0


def test_nbrun_ends_with_who_started_it(nbrun):
    process = subprocess.Popen([nbrun, 'run', 'timed', '1', '100', '20000', '-', 'sleep', '1234'],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith('running')
    children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
    process.stdin.close()
    assert process.wait(20) == 1 and 'is gone' in process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    deadline = time.monotonic() + 20
    while any(is_running(child) for child in children):
        assert time.monotonic() < deadline, 'a session outlives nbrun'
        time.sleep(0.01)


def is_running(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(') ', 1)[1][0] != 'Z'
    except OSError:
        return False


def test_nbrun_passes_on_what_timed_sessions_print(nbrun):
    script = 'trap "echo bye; exit 0" INT; echo hello; while :; do sleep 0.01; done'
    result = traffic.parse(converse(nbrun, 'timed', '2', '200', '20000', '-', 'sh', '-c', script))
    assert result['out'] == {0: ['hello', 'bye'], 1: ['hello', 'bye']}
    assert traffic.overlap(result) == 100


def test_nbrun_has_whole_sessions_live_for_the_window(nbrun):
    script = 'trap "date +%s.%N; exit 0" INT; date +%s.%N; while :; do sleep 0.01; done'
    result = traffic.parse(converse(nbrun, 'whole', '2', '300', '20000', '-', 'sh', '-c', script))
    for lines in result['out'].values():
        start, end = map(float, lines)
        assert result['begin'] <= start and end - result['begin'] >= 0.3 and end - start < 5
    assert traffic.overlap(result) == 100
    with pytest.raises(benchlib.Failed, match='ended too early, with status 7: gone'):
        traffic.parse(converse(nbrun, 'whole', '1', '300', '20000', '-', 'sh', '-c', 'echo gone; exit 7'))


def test_nbrun_reads_iperf3(nbrun):
    script = """
        echo "Connecting to host"
        for n in $(seq 0 9999); do
            sleep 0.1
            echo "[  5]   $((n / 10)).$((n % 10))0-$(((n + 1) / 10)).$(((n + 1) % 10))0   sec  12.5 MBytes  1049 Mbits/sec    0    320 KBytes"
            echo "[  5]   0.00-99.99   sec  99.9 MBytes  9999 Mbits/sec                  receiver"
        done"""
    result = traffic.parse(converse(nbrun, 'iperf3', '1', '200', '20000', '-', 'bash', '-c', script))
    assert traffic.overlap(result) == 100
    assert result['sessions'][0]['rate'] == 1049


# ---- probes ----------------------------------------------------------------------------------------


STAT = 'cpu  {} 0 {} {} 0 {} {} 9 0 0\ncpu0 0 0 0 0\n'
SNMP = 'Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 {} {}\nUdp: InDatagrams RcvbufErrors\nUdp: {} 0\n'
NETSTAT = 'TcpExt: DelayedACKs SyncookiesSent\nTcpExt: {} 5\n'
DEV = ('Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n'
       '  nb1: {} {} 0 {} 0 0 0 0 {} {} 0 {} 0 0 0 0\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n')
INTERRUPTS = ('           CPU0       CPU1\n  1:  5  6  IO-APIC 1-edge  i8042\n'
              ' 25: {} {} PCI-MSIX-0000:00:01.0 1-edge virtio0-input.0\n 26: {} 0 PCI-MSIX 2-edge virtio0-output.0\n'
              ' 27: 7 7 PCI-MSIX 0-edge virtio1-input.0\nLOC: {} 4 Local timer interrupts\nERR: 0\n')


def snapshot(moment, stat, snmp=(0, 0, 0), netstat=0, dev=(0, 0, 0, 0, 0, 0), interrupts=(0, 0, 0, 0)):
    return {'/proc/stat': (moment, STAT.format(*stat)), '/proc/net/snmp': (moment, SNMP.format(*snmp)),
            '/proc/net/netstat': (moment, NETSTAT.format(netstat)), '/proc/net/dev': (moment, DEV.format(*dev)),
            '/proc/interrupts': (moment, INTERRUPTS.format(*interrupts))}


def test_parsers():
    assert probes.protocol_counters(SNMP.format(7, 3, 9)) == {
        'TcpRtoMin': 200, 'TcpOutSegs': 7, 'TcpRetransSegs': 3, 'UdpInDatagrams': 9, 'UdpRcvbufErrors': 0}
    assert probes.interface_counters(DEV.format(1, 2, 3, 4, 5, 6))['nb1'] == {
        'rx_bytes': 1, 'rx_packets': 2, 'rx_drop': 3, 'tx_bytes': 4, 'tx_packets': 5, 'tx_drop': 6}
    found = probes.interrupt_counters(INTERRUPTS.format(1, 2, 3, 4))
    assert found['virtio0-input.0'] == 3 and found['virtio0-output.0'] == 3 and found['interrupts'] == 8
    assert probes.thread_name('vhost-1234\n', 1234) == 'vhost' and probes.thread_name('CPU 0/KVM\n', 7) == 'CPU 0/KVM'
    text = '== 1.5 /proc/stat\ncpu 1\n== 2.5 /proc/net/dev\nx\ny\n'
    assert probes.parse_snapshot(text) == {'/proc/stat': (1.5, 'cpu 1\n'), '/proc/net/dev': (2.5, 'x\ny\n')}
    assert probes.thread_differences({'1': ('a', 1.0)}, {'1': ('a', 1.5), '2': ('a', 0.25), '3': ('b', 0.0)}) == {'a': 0.75}


def look(moment, self_seconds, stat, threads, kvm, whelp, **more):
    return {'files': snapshot(moment, stat, **more), 'self': self_seconds, 'threads_time': moment, 'kvm_time': moment,
            'threads': threads, 'kvm': kvm, 'whelp': whelp}


def stream(kind, rate, **case):
    result = {'begin': 10.0, 'end': 12.0, 'sessions': [session(9, 13, 2.0, rate / 2)] * 2, 'out': {}}
    case = {'test': kind, 'way': 'host-guest', 'size': 1024, 'sessions': 2, **case}
    ticks = probes.TICKS
    host = (
        look(10, 5.0, (0, 0, 0, 0, 0), {'1': ('net0', 1.0)}, {'exits': 100, 'halt_exits': 10, 'pages_4k': 5},
             {'packets': 0, 'kicks': 0, 'interrupts': 0}),
        # Two seconds: 1.5 of CPU, 0.1 of it this program's own.
        look(12, 5.1, (ticks // 2, ticks // 2, ticks * 2, 0, ticks // 2), {'1': ('net0', 1.6), '2': ('vcpu0', 0.8)},
             {'exits': 2100, 'halt_exits': 30, 'pages_4k': 9}, {'packets': 2000, 'kicks': 40, 'interrupts': 20},
             snmp=(2000, 4, 0), netstat=6, dev=(1000000, 500, 2, 3000000, 1500, 2)))
    # The guest's clock, and how long it looked, are its own: 4 seconds.
    guest = (snapshot(100, (0, 0, 0, 0, 0)),
             snapshot(104, (ticks, 0, 0, 0, 0), snmp=(4000, 0, 8000), interrupts=(100, 100, 400, 9)))
    return figures.of_run(case, result, host, [guest], ['nb1'], ['eth0'], ['virtio0'])


def test_figures_of_a_stream():
    found = stream('TCP_STREAM', 8192 * 1.024 / 10)
    # 838.8608 Mbit/s are 102,400 KB/s.
    assert found['figure'] == pytest.approx(838.8608)
    metrics = found['metrics']
    assert metrics['cpu_host'] == pytest.approx(70) and metrics['cpu_softirq'] == pytest.approx(25)
    assert metrics['sd_host'] == pytest.approx(0.7e6 / 102400, abs=1e-4)
    assert found['threads'] == {'net0': pytest.approx(30), 'vcpu0': pytest.approx(40)}
    assert metrics['cpu_vmm'] == pytest.approx(70) and metrics['sd_vmm'] == pytest.approx(0.7e6 / 102400, abs=1e-4)
    assert metrics['cpu_guest'] == pytest.approx(25) and metrics['sd_guest'] == pytest.approx(0.25e6 / 102400, abs=1e-4)
    assert metrics['packets'] == 1000 and metrics['packet_bytes'] == 2000 and metrics['drops'] == 2
    assert metrics['packets_sent'] == 250
    assert metrics['kicks'] == 20 and metrics['interrupts_sent'] == 10
    # 50 and 100 a second in the guest, to 1000 packets a second.
    assert metrics['irq_rx'] == 50 and metrics['irq_tx'] == 100
    assert metrics['exits'] == 1000 and found['exit_causes'] == {'halt_exits': 10}
    assert metrics['retrans'] == pytest.approx(1000 * 2 / (1000 + 1000))
    assert metrics['overlap'] == 100 and 'sent' not in metrics
    assert found['protocols']['host']['TcpExtDelayedACKs'] == 3


def test_figures_of_udp_are_what_arrived():
    found = stream('UDP_STREAM', 100)
    # 8000 datagrams of 1 KB in 4 seconds.
    assert found['figure'] == pytest.approx(2000 * 1024 * 8 / 1e6) and found['metrics']['sent'] == 100
    assert found['metrics']['sd_host'] == pytest.approx(0.7e6 / 2000)


def test_a_flood_that_leaves_nothing_is_a_figure():
    found = stream('UDP_STREAM', 100, way='guest-host')
    assert found['figure'] == 0 and 'sd_host' not in found['metrics']
    with pytest.raises(benchlib.Failed, match='nothing came through'):
        stream('TCP_STREAM', 0)


def test_figures_of_round_trips():
    found = stream('TCP_RR', 4000)
    assert found['figure'] == 4000 and found['metrics']['latency'] == 500
    assert found['metrics']['sd_host'] == pytest.approx(175)


def test_summary():
    found = figures.summary([4.0, 1.0, 2.0, 9.0])
    assert found == {'n': 4, 'min': 1.0, 'avg': 4.0, 'median': 3.0, 'max': 9.0, 'stddev': pytest.approx(3.5590, abs=1e-4)}
    assert figures.summary([2.0])['stddev'] == 0


# ---- reports ---------------------------------------------------------------------------------------


@pytest.fixture
def result():
    found = make_plan('--variant', 'a', '--variant', 'b<i>:ring=64'.replace('<i>', ''), '--tests', 'TCP_STREAM,PING',
                      '--sessions', '1,4', '--rounds', '2')
    events = [{'event': 'start', 'versions': {'whelp (a)': 'whelp 1 & 2'}},
              {'event': 'machine', 'host': 'a <big> host', 'kvm': 'native', 'in_lab': False, 'cpus': 2, 'lab': 1},
              {'event': 'lab', 'lab': 1, 'load': 0.5}]
    for lab in plan.labs(found):
        for entry in lab['sets']:
            for name in entry['machines']:
                base = 100.0 if name == 'a' else 150.0
                events.append(run_event(entry['case'], entry['id'], name, base + 10 * lab['round'],
                                        **({} if name == 'b' else {'kicks': 5.0 + lab['round']})))
            events.append({'event': 'set', 'set': entry['id'], 'lab': 1})
    events.append({'event': 'discarded', 'set': 'x', 'case': 0, 'machine': 'b', 'why': 'too short', 'lab': 1})
    return tables.gather(found, events)


def test_cells(result):
    assert len(result['cells']) == 8 and result['sets_done'] == result['sets'] == 8
    first, second = result['cells'][:2]
    assert first['machine'] == 'a' and first['figure']['avg'] == 105 and first['ratio']['median'] == 1
    # Each ratio is within its set.
    assert second['ratio']['max'] == 1.5 and second['ratio']['min'] == pytest.approx(160 / 110)
    assert first['metrics']['kicks']['median'] == 5.5 and 'kicks' not in second['metrics']
    assert any('discarded: TCP_STREAM host-guest 16384 B, b: too short' == line for line in tables.header(result))


def test_the_four_reports(result, tmp_path):
    report.write(result, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'result.csv', 'result.html', 'result.json', 'result.md']
    assert json.loads((tmp_path / 'result.json').read_text())['cells'][0]['figure']['n'] == 2
    rows = list(csv.DictReader(io.StringIO((tmp_path / 'result.csv').read_text())))
    figure = [row for row in rows if row['what'] == 'figure' and row['machine'] == 'b' and row['sessions'] == '4'][0]
    assert (figure['min'], figure['avg'], figure['max'], figure['keys'], figure['unit']) == (
        '150', '155', '160', 'ring=64', 'Mbit/s')
    assert {row['what'] for row in rows} >= {'ratio', 'kicks', 'sd_host', 'threads.net0', 'host.TcpRetransSegs'}
    text = (tmp_path / 'result.md').read_text()
    assert '## TCP_STREAM, host-guest, 16384 bytes' in text and '| 4: b | 150 | 155 | 155 | 160 | 7 | 2 | 1.48' in text
    for line in text.splitlines():
        if line.startswith('| ') and line.endswith(' |'):
            assert line.count('|') > 2
    assert benchlib.LAB_WARNING not in text
    assert report.text(result).count('to the reference') == 2


def tree_of(page):
    return xml.etree.ElementTree.fromstring(page.replace('<!doctype html>', ''))


def test_the_page_is_one_file_of_sound_markup(result):
    page = report_html.page(result)
    assert not re.search(r'src=|href="[^#]|@import|url\(', page)
    assert '<big>' not in page and 'a &lt;big&gt; host' in page
    tree = tree_of(page)
    plots = list(tree.iter('svg'))
    # The figure and the host's service demand, of two tests; kicks are one machine's only.
    assert len(plots) == 4
    lines = [element.get('points').split() for element in plots[0].iter('polyline')]
    assert [len(points) for points in lines] == [2, 2]
    assert all(figure[0].tag == 'figcaption' and figure[0].text for figure in tree.iter('figure'))


def test_the_page_begins_with_all_medians(result):
    tree = tree_of(report_html.page(result))
    rows = [[''.join(cell.itertext()) for cell in row] for row in next(tree.iter('table'))]
    assert rows[0] == ['case', 'unit', 'a', 'b'] and len(rows) == 5
    assert rows[1] == ['TCP_STREAM host-guest 16384 B', 'Mbit/s', '105 ref.', '155 ×1.48']
    assert rows[4][0].endswith('4 sessions') and rows[4][1] == 'ms, less is better'
    # Every link leads somewhere, and each section has its name once.
    names = [element.get('id') for element in tree.iter() if element.get('id')]
    assert len(names) == len(set(names)) == 2
    assert {link.get('href') for link in tree.iter('a')} == {f'#{name}' for name in names}
    # What forbids to trust the figures is before them; nothing is said twice.
    page = report_html.page(result)
    assert page.index('fewer than three runs') < page.index('<table>') and page.count('fewer than three runs') == 1


def test_what_is_missing_is_said_before_the_figures(result):
    assert 'not measured' not in report_html.page(result) and 'left out' not in report_html.page(result)
    result['sets_done'], result['left_out'] = 6, ['round 1, PING: it burned']
    said = report_html.page(result).partition('<table>')[0]
    assert '2 of 8 sets were not measured' in said and 'left out, for the reasons below: 1' in said


def test_a_case_that_a_machine_lacks(result):
    result['cells'] = [cell for cell in result['cells'] if (cell['machine'], cell['sessions']) != ('b', 4)]
    tree = tree_of(report_html.page(result))
    assert [row[3].text for row in next(tree.iter('table'))][2] == '-'


@pytest.mark.parametrize('test, ratio, kind', [
    ('TCP_STREAM', (3, 1.1, 1.3), 'better'), ('TCP_STREAM', (3, 0.7, 0.9), 'worse'), ('TCP_STREAM', (3, 0.9, 1.3), 'soft'),
    ('TCP_STREAM', (2, 1.1, 1.3), 'soft'), ('PING', (3, 0.7, 0.9), 'better'), ('PING', (3, 1.1, 1.3), 'worse')])
def test_better_and_worse_only_where_every_set_agrees(test, ratio, kind):
    cell = {'test': test, 'machine': 'b', 'reference': 'a', 'ratio': dict(zip(('n', 'min', 'max'), ratio))}
    assert report_html.verdict(cell)[0] == kind


def bars_of(some):
    places = {cell['machine']: place for place, cell in enumerate(some)}
    return xml.etree.ElementTree.fromstring(report_html.bars(some, lambda cell: cell['figure'], places, '{:.1f}'.format, 'x'))


def test_bars_for_one_number_of_sessions(result):
    some = [cell for cell in result['cells'] if cell['test'] == 'PING' and cell['sessions'] == 1]
    tree = bars_of(some)
    low, high = (float(element.get('width')) for element in tree.iter('rect'))
    assert high / low == pytest.approx(155 / 105, rel=0.02)
    assert {'105.0', '155.0', 'a', 'b'} <= {element.text for element in tree.iter('text')}
    assert len(list(tree.iter('path'))) == 2
    # A single run has no range.
    for cell in some:
        cell['figure']['n'] = 1
    assert not list(bars_of(some).iter('path'))


def test_names_of_many_bars_are_whole_and_apart(result):
    some = [{**result['cells'][0], 'machine': f'a-rather-long-name-{number}'} for number in range(13)]
    names = [element for element in bars_of(some).iter('text') if element.text.startswith('a-rather')]
    assert [element.text for element in names] == [cell['machine'] for cell in some]
    places = [float(element.get('y')) for element in names]
    assert all(after - before >= 15 for before, after in zip(places, places[1:]))


def test_a_machine_keeps_its_colour_where_others_are_left_out(result):
    result['cells'] = [cell for cell in result['cells'] if cell['sessions'] == 1 and
                       (cell['test'], cell['machine']) != ('PING', 'a')]
    tree = tree_of(report_html.page(result))
    kinds = {}
    for bar in tree.iter('rect'):
        kinds.setdefault(bar[0].text, set()).add(bar.get('class'))
    assert kinds == {'a': {'bar c0'}, 'b': {'bar c1'}}
    assert report_html.color(9) == 'c1 dashed'


def test_every_colour_is_there_in_the_dark(result):
    light, dark = report_html.STYLE.split('@media (prefers-color-scheme: dark)')
    names = set(re.findall(r'(--\w+):', light))
    assert names == set(re.findall(r'(--\w+):', dark.split('} }')[0]))
    assert set(re.findall(r'var\((--\w+)\)', report_html.STYLE)) <= names | {'--c'}
    # No colour is written where a dark page could not change it.
    body = report_html.page(result).partition('</style>')[2]
    assert not re.search(r'#[0-9a-f]{3,6}"', body)


@pytest.mark.parametrize('top, steps', [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (7, [0, 2, 4, 6, 8]),
                                        (1234, [0, 250, 500, 750, 1000, 1250])])
def test_axes(top, steps):
    assert report_html.nice_steps(top) == pytest.approx(steps)


def test_the_document_defines_every_column_and_test():
    text = (ROOT / 'docs/netbench.md').read_text()
    for column in figures.COLUMNS:
        assert f'`{column.name}`' in text, column.name
    for name in (*traffic.TESTS, *options.KINDS):
        assert f'`{name}`' in text, name

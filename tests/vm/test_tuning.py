# SPDX-License-Identifier: GPL-2.0-or-later
"""Every way of moving frames that --net has, with Linux at both ends: all work, side by side."""

import libvm

PINGS = 50

TUNINGS = [
    'workers=split,queues=2',
    'workers=one,queues=2',
    'mitigation=off,poll=off',
    'mitigation=fixed:150',
    'mitigation=lguest',
    'mitigation=window:200',
    'poll=50',
    'rx=copy',
    'intr=packet',
    'intr=empty,budget=8:65536',
    'lock=hold',
    'lock=drop,notify=pio',
    'affinity=0',
]


def retransmitted(machine):
    """Segments that the guest's TCP has sent again."""
    names, values = (line.split() for line in machine.run('grep ^Tcp: /proc/net/snmp').splitlines())
    return int(dict(zip(names, values))['RetransSegs'])


def stream(host, number):
    """Some hundred KiB of TCP each way, through the NIC with that number."""
    far = f'192.0.{number}.2'
    for test in ('TCP_STREAM', 'TCP_MAERTS'):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H {far} -t {test} -l -262144')


def test_each_tuning(whelp, host, tmp_path):
    """A NIC for each: a flood of pings both ways and streams lose nothing, whatever the NIC beside does."""
    options, nets, path = [], [], tmp_path / 'stats'
    for number, tuning in enumerate(TUNINGS):
        host.tap(f'tap{number}', address=f'192.0.{number}.1/24', options='multi_queue' if 'queues' in tuning else '')
        options += ['--net', f'tap=tap{number},{tuning}']
        nets.append(f'eth{number}:192.0.{number}.2/24')
    machine = whelp('--kernel', libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--cpus', 2, '--affinity', 0,
                    '--cmdline', f'console=ttyS0 guest.net={",".join(nets)}', '--stats', path, *options, host=host,
                    serial=True).wait_ready()
    for number in range(len(TUNINGS)):
        host.ping(f'-f -c {PINGS} -s 1400', address=f'192.0.{number}.2', timeout=120)
        machine.run(f'ping -q -c 20 -i 0.01 -W 20 -s 8000 192.0.{number}.1', timeout=120)
        stream(host, number)
    counters = machine.counters(path)
    for tuning, nic in zip(TUNINGS, counters, strict=True):
        for way in ('rx', 'tx'):
            assert nic[way]['packets'] >= PINGS + 20, (tuning, nic[way])
            assert nic[way]['dropped'] == 0, (tuning, nic[way])
    # P6: next to none of some thousands; a host that stands still for a while makes TCP impatient.
    assert retransmitted(machine) < 50
    assert machine.dmesg_faults() == []
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors


POLICIES = ['mitigation=adaptive', 'mitigation=off', 'mitigation=lguest', 'mitigation=window:200']


def test_p2_request_and_response(whelp, host, tmp_path):
    """Of one message at a time each is worth one kick and one interrupt at most, and adaptive hardly waits for any."""
    options, nets, path = [], [], tmp_path / 'stats'
    for number, policy in enumerate(POLICIES):
        host.tap(f'tap{number}', address=f'192.0.{number}.1/24')
        options += ['--net', f'tap=tap{number},{policy}']
        nets.append(f'eth{number}:192.0.{number}.2/24')
    machine = whelp('--kernel', libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--cmdline',
                    f'console=ttyS0 guest.net={",".join(nets)}', '--stats', path, *options, host=host,
                    serial=True).wait_ready()
    before = machine.counters(path)
    for number in range(len(POLICIES)):
        host.run(f'{libvm.NETPERF}/netperf -P 0 -H 192.0.{number}.2 -t TCP_RR -l 2')
    after = machine.counters(path)
    for policy, old, new in zip(POLICIES, before, after, strict=True):
        moved = {way: {name: value - old[way][name] for name, value in new[way].items() if isinstance(value, int)}
                 for way in ('rx', 'tx')}
        messages = moved['tx']['packets']
        assert messages > 50 and abs(messages - moved['rx']['packets']) < 20, (policy, moved)
        assert moved['tx']['kicks'] <= messages + 10, (policy, moved)
        assert moved['rx']['interrupts'] <= moved['rx']['packets'] + 10, (policy, moved)
        timers = moved['tx']['timers_useful'] + moved['tx']['timers_empty']
        # One in 64 is a try whether a timer would do, where guest and worker share a CPU.
        assert policy != POLICIES[0] or timers <= messages / 32 + 2, (policy, moved)
        assert policy != POLICIES[1] or timers == 0, (policy, moved)
    machine.poweroff()
    assert machine.errors.count('\n') == 1, machine.errors

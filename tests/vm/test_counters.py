# SPDX-License-Identifier: GPL-2.0-or-later
"""The counters of a machine with Linux and traffic: as `whelp stat` sees them come, and that they agree."""

import json
import subprocess

import libvm
from libvm import NETPERF, WHELP

PINGS = 2000


def growth(before, after):
    """By how much an object's numbers grew, and those of the objects in it."""
    return {name: growth(before[name], value) if isinstance(value, dict) else value - before[name]
            for name, value in after.items() if isinstance(value, (dict, int))}


def ask(directory):
    result = libvm.stat(directory, 'puppy', '--json')
    assert (result.returncode, result.stderr) == (0, ''), result
    return json.loads(result.stdout)


def check_queue(queue):
    """What has to be true of an idle queue's totals."""
    frames = queue['packets'] + queue['dropped'] + queue['filtered']
    assert queue['batch_sizes']['sum'] == frames and queue['batch_sizes']['count'] == queue['batches'], queue
    assert queue['dropped'] == sum(queue['drops'].values()), queue
    assert queue['kicks_avoided'] == max(frames - queue['kicks'], 0), queue
    assert queue['interrupts_avoided'] == max(frames - queue['interrupts'], 0), queue
    for name in ('batch_sizes', 'kick_to_tap', 'tap_to_used'):
        histogram = queue[name]
        assert histogram['count'] == sum(count for _, count in histogram['buckets']), queue
        assert histogram['p50'] <= histogram['p90'] <= histogram['p99'], queue
        # Each value is at least its bucket's least, and less than twice that.
        least = sum(low * count for low, count in histogram['buckets'])
        assert least <= histogram['sum'] <= 2 * least, queue
    assert queue['tap_to_used']['count'] <= queue['batches'], queue
    assert queue['kick_to_tap']['count'] <= queue['kicks'], queue


def test_traffic(whelp, host, tmp_path):
    host.tap()
    machine = whelp('--kernel', libvm.kernel('cloud'), '--initrd', libvm.image('cloud'), '--name', 'puppy', '--net',
                    'tap=tap0', '--cmdline', 'console=ttyS0 quiet guest.net=eth0:192.0.2.2/24', host=host,
                    serial=True).wait_ready()
    before = ask(tmp_path)
    watch = subprocess.Popen([WHELP, 'stat', 'puppy', '--json', '--watch'], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, env=libvm.environment(tmp_path))
    try:
        seen = [json.loads(watch.stdout.readline())]
        host.ping(f'-f -c {PINGS}', timeout=200)
        host.run(f'{NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_STREAM -l 2')
        host.run(f'{NETPERF}/netperf -P 0 -H 192.0.2.2 -t TCP_MAERTS -l 2')
        middle = ask(tmp_path)
        while seen[-1]['time'] <= middle['time']:
            seen.append(json.loads(watch.stdout.readline()))
        check(before, middle, seen)
        machine.poweroff()
        assert watch.wait(30) == 0
    finally:
        watch.kill()
        watch.communicate()


def check(before, middle, seen):
    for way in ('rx', 'tx'):
        packets = [one['nics'][0][way]['packets'] for one in seen]
        assert packets == sorted(packets) and packets[-1] > packets[0] + PINGS, packets
        last = seen[-1]['nics'][0][way]
        assert last['packets'] >= middle['nics'][0][way]['packets'], (last, middle)
        grown = growth(before['nics'][0][way], middle['nics'][0][way])
        assert grown['packets'] > PINGS and grown['dropped'] == 0, grown
        check_queue(last)
    tx = seen[-1]['nics'][0]['tx']
    assert tx['kick_to_tap']['count'] > 0 and tx['tap_to_used']['count'] > 0, tx
    cpu = growth(before['cpus'][0], seen[-1]['cpus'][0])
    assert cpu['kvm']['exits'] > PINGS and cpu['kvm']['exits'] > sum(cpu['exits'].values()), cpu
    assert before['cpus'][0]['devices']['virtio'] > 0 and before['cpus'][0]['devices']['pci'] > 0, before

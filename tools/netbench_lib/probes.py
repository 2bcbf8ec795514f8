# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernels say of a run: CPU time, interrupts, KVM's exits, protocol counters, of the host and of guests.

A snapshot is a dict of files, each with the moment it was read at, so that rates do not depend on how long it took.
"""

import os
import pathlib
import re
import time

TICKS = os.sysconf('SC_CLK_TCK')
FILES = ('/proc/stat', '/proc/net/dev', '/proc/softirqs', '/proc/net/snmp', '/proc/net/netstat')
KVM = pathlib.Path('/sys/kernel/debug/kvm')
# Of /proc/stat's first line; guest time is part of user and nice, steal is not this machine's.
STAT_NAMES = ('user', 'nice', 'system', 'idle', 'iowait', 'irq', 'softirq')


def parse_snapshot(text):
    """{file: (time, text)} of what nbrun wrote."""
    found = {}
    for part in re.split(r'^== ', text, flags=re.M)[1:]:
        head, _, body = part.partition('\n')
        moment, name = head.split()
        found[name] = (float(moment), body)
    return found


def read_files(names=FILES):
    found = {}
    for name in names:
        found[name] = (time.time(), pathlib.Path(name).read_text(encoding='ascii', errors='replace'))
    return found


# ---- parsing ---------------------------------------------------------------------------------------


def cpu_times(text):
    """Seconds of all CPUs together by kind, from /proc/stat."""
    words = text.split('\n', 1)[0].split()
    return {name: int(value) / TICKS for name, value in zip(STAT_NAMES, words[1:])}


def protocol_counters(text):
    """{TcpRetransSegs: ...} from /proc/net/snmp or netstat, named as nstat does."""
    found, names = {}, None
    for line in text.splitlines():
        head, _, rest = line.partition(': ')
        words = rest.split()
        if names and names[0] == head:
            found.update({head + name: int(value) for name, value in zip(names[1], words)})
            names = None
        else:
            names = (head, words)
    return found


def interface_counters(text):
    """{interface: {rx_bytes, rx_packets, rx_drop, tx_bytes, ...}} from /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(':')
        values = [int(word) for word in rest.split()]
        found[name.strip()] = {'rx_bytes': values[0], 'rx_packets': values[1], 'rx_drop': values[3],
                               'tx_bytes': values[8], 'tx_packets': values[9], 'tx_drop': values[11]}
    return found


def interrupt_counters(text):
    """{name: sum over CPUs} of /proc/interrupts; the name is the last word, such as virtio0-input.0."""
    lines = text.splitlines()
    count = len(lines[0].split()) if lines else 0
    found = {}
    for line in lines[1:]:
        words = line.split()
        numbers = [word for word in words[1:1 + count] if word.isdigit()]
        if len(words) > 1 + count:
            name = words[-1]
            found[name] = found.get(name, 0) + sum(map(int, numbers))
    return found


# ---- differences -----------------------------------------------------------------------------------


def grown(before, after):
    """What of numbers grew, without those that did not."""
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def delta(before, after, name, parse):
    """(seconds, difference) of one file of two snapshots."""
    (start, old), (end, new) = before[name], after[name]
    return end - start, grown(parse(old), parse(new))


def busy(before, after):
    """CPUs at work between two snapshots, as a number of CPUs: in all, and in softirqs and interrupts."""
    seconds, times = delta(before, after, '/proc/stat', cpu_times)
    at_work = sum(value for name, value in times.items() if name not in ('idle', 'iowait'))
    if seconds <= 0:
        return 0.0, 0.0
    return at_work / seconds, (times.get('softirq', 0) + times.get('irq', 0)) / seconds


def protocols(before, after):
    """What grew of the protocols' counters, and the seconds meanwhile."""
    seconds, found = delta(before, after, '/proc/net/snmp', protocol_counters)
    _, more = delta(before, after, '/proc/net/netstat', protocol_counters)
    return seconds, {**found, **more}


def traffic_of(before, after, names):
    """Packets and bytes both ways per second, and drops, of some interfaces together; and the number of packets."""
    (start, old), (end, new) = before['/proc/net/dev'], after['/proc/net/dev']
    old, new = interface_counters(old), interface_counters(new)
    sums = {}
    for name in names:
        for counter, value in new.get(name, {}).items():
            sums[counter] = sums.get(counter, 0) + value - old.get(name, {}).get(counter, 0)
    return max(end - start, 1e-6), sums


# ---- threads ---------------------------------------------------------------------------------------


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding='ascii', errors='replace')
    except OSError:
        return ''


def thread_name(comm, pid):
    """Threads of one kind have one name: vhost-1234 is vhost."""
    comm = comm.strip()
    for number in (pid, r'\d+'):
        comm = re.sub(rf'^(vhost|kvm-pit/|kvm-nx-lpage-re)-?{number}$', r'\1', comm)
    return comm.rstrip('/-')


def thread_times(pid):
    """{thread id: (name, seconds of CPU)} of a process: vCPUs, workers, io-wq's, vhost's since Linux 6.4."""
    found = {}
    try:
        tasks = os.listdir(f'/proc/{pid}/task')
    except OSError:
        return found
    for task in tasks:
        times = _read(f'/proc/{pid}/task/{task}/schedstat').split()
        if times:
            found[task] = (thread_name(_read(f'/proc/{pid}/task/{task}/comm'), pid), int(times[0]) / 1e9)
    return found


def kernel_threads(pids):
    """Ids of kernel threads that may work for VMMs: softirqs', and vhost's before Linux 6.4, which name their VMM."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/comm'):
        comm = _read(path).strip()
        if comm.startswith('ksoftirqd/') or any(comm == f'vhost-{pid}' for pid in pids):
            found.append(int(path.parent.name))
    return found


def thread_differences(before, after):
    """{name: seconds of CPU}, those of one name together; a thread that is gone counts up to the first snapshot."""
    found = {}
    for task, (name, seconds) in after.items():
        used = seconds - before.get(task, (name, 0.0))[1]
        if used > 0:
            found[name] = found.get(name, 0.0) + used
    return found


# ---- KVM -------------------------------------------------------------------------------------------


def kvm_counters(pid):
    """KVM's counters of a VMM's machine, all vCPUs together; {} where debugfs has none."""
    found = {}
    for directory in KVM.glob(f'{pid}-*'):
        for path in directory.glob('*'):
            text = _read(path).strip() if path.is_file() else ''
            if text.isdigit():
                found[path.name] = found.get(path.name, 0) + int(text)
    return found

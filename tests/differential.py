#!/usr/bin/python3
"""tests/differential.py - random lock calls, once on the plain kernel and once spread over hosts: replies must agree

Answers for: the comparison, the reports, the shrinking.  tests/differential makes the hosts and calls this.
Does not:    know the kernel's rules; diffmodel.py does, and is itself held against the kernel at every step.
Specification: design.md sections 1, 4 and 6: a program can't tell the difference from the kernel's own locks.
SPDX-License-Identifier: Apache-2.0

Step by step, natively first:

    - Every reply must come within 10 s, and be the model's.
    - A call that waits: natively it is seen asleep inside flock(2) or fcntl(2), in two looks at /proc/PID/syscall 20 ms
      apart (where that can't be read: no reply within 150 ms).  Over the hosts it must not be granted now, nor at any
      step before the one that grants it natively; after that one it must be granted within 5 s.
    - Locks that another host's process gave up are seen a moment later: a refusal (or a F_GETLK that reports a holder)
      is tried again for up to 1 s if, and only if, what is in the way is such a lock and was given up within the last
      second.  These retries are counted.  A lock that is granted but must not be is never tolerated.
    - F_GETLK may report any of the locks in the way, exactly as the owner holds it; the pid of another host's process
      is negated, as Linux does for remote locks.
"""
import argparse
import os
import platform
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from diffmodel import Generator, Model, Process  # noqa: E402

REPLY_S = 10
GRANT_S = 5
GRACE_S = 1
LOCK_CALLS = {'x86_64': ('72', '73'), 'aarch64': ('25', '32')}.get(platform.machine(), ())


class Fault(Exception):
    """Natively and over the hosts it went differently (or the model is wrong: kind 'model')."""

    def __init__(self, kind, expected, got):
        super().__init__(f'{kind}: expected {expected}, got {got}')
        self.kind, self.expected, self.got = kind, expected, got
        self.step = None


class Worker:
    """A process that makes calls: tests/probes/diffworker.c."""

    def __init__(self, name, connection, pid):
        self.name, self.connection, self.pid = name, connection, pid
        self.pidfd = os.pidfd_open(pid)

    def send(self, command, fds=()):
        socket.send_fds(self.connection, [command.encode()], list(fds))

    def receive(self, seconds):
        """Its reply, or None when there is none in time.  A dead worker's reply is 'died'."""
        ready = select.select([self.connection], [], [], seconds)[0]
        if not ready:
            return None
        data, fds, _, _ = socket.recv_fds(self.connection, 512, 1)
        for fd in fds:
            self.fd = fd
        return data.decode() or 'died'

    def ask(self, command, seconds=REPLY_S, fds=()):
        self.send(command, fds)
        return self.receive(seconds)

    def ended(self, seconds):
        return bool(select.select([self.pidfd], [], [], seconds)[0])

    def asleep_in_lock_call(self):
        try:
            with open(f'/proc/{self.pid}/syscall', encoding='ascii') as file:
                return file.read().split()[0] in LOCK_CALLS
        except OSError:
            return None

    def kill(self):
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self):
        self.connection.close()
        os.close(self.pidfd)


class Side:
    """One of the two worlds.  Its hosts are (directory, environment); natively they are all the same."""

    def __init__(self, worker, hosts, scratch, native):
        self.native = native
        self.socket_path = os.path.join(scratch, 'native' if native else 'hosts')
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.socket_path)
        self.listener.listen(16)
        self.directories = {os.path.realpath(directory) for directory, _ in hosts}
        self.children, self.roots = [], []
        for directory, environment in hosts:
            self.children.append(subprocess.Popen(
                [worker, self.socket_path, 'root'], cwd=directory, env={**os.environ, **environment},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            self.roots.append(self.accept())
        self.workers = {}
        self.file = None

    def accept(self, expect='root', seconds=REPLY_S):
        if not select.select([self.listener], [], [], seconds)[0]:
            raise Fault('hang', f'{expect} to say hello', 'nothing')
        connection = self.listener.accept()[0]
        word = connection.recv(512).decode().split()
        if len(word) < 3 or word[0] != 'hello' or word[1] != expect:
            raise Fault('reply', f'hello {expect}', ' '.join(word))
        worker = Worker(expect, connection, int(word[2]))
        worker.slots = word[3] if len(word) > 3 else ''
        return worker

    def begin(self, name, directory, size):
        self.file = os.path.join(directory, name)
        for path in self.directories:
            os.makedirs(os.path.join(path, directory), exist_ok=True)
            with open(os.path.join(path, self.file), 'wb') as file:
                file.truncate(size)

    def end(self):
        """End all processes of the sequence; leaves nothing behind, whatever went wrong."""
        for worker in self.workers.values():
            worker.kill()
        for worker in self.workers.values():
            worker.ended(REPLY_S)
            worker.close()
        self.workers = {}
        while select.select([self.listener], [], [], 0)[0]:  # a child that we did not wait for
            self.listener.accept()[0].close()
        for path in self.directories:
            os.unlink(os.path.join(path, self.file))

    def fork(self, parent, name):
        """Replies of fork: the parent's."""
        parent.send(f'fork {name}')
        self.workers[name] = self.accept(name)
        return parent.receive(REPLY_S)

    def start(self, name, host):
        return self.fork(self.roots[host % len(self.roots)], name)

    def exec(self, worker):
        worker.send('exec')
        fresh = self.accept(worker.name)
        worker.close()
        self.workers[worker.name] = fresh
        return fresh.slots

    def finish(self, worker, end):
        """exit or kill."""
        if end == 'kill':
            worker.kill()
        else:
            worker.send(end)
        if not worker.ended(REPLY_S):
            raise Fault('hang', f'{worker.name} to end', 'it lives on')
        worker.close()
        del self.workers[worker.name]
        return 'ok'

    def pass_on(self, giver, slot, receiver, new):
        giver.fd = -1
        reply = giver.ask(f'send {slot}')
        if reply == 'ok' and giver.fd >= 0:
            reply = receiver.ask(f'recv {new}', fds=[giver.fd])
            os.close(giver.fd)
        return reply

    def do(self, line, expected):
        """Do a step, and return its reply; None when the call waits."""
        name, verb, *args = line.split()
        if verb == 'start':
            return self.start(name, int(args[0]))
        worker = self.workers[name]
        if verb == 'fork':
            return self.fork(worker, args[0])
        if verb == 'exec':
            return self.exec(worker)
        if verb in ('exit', 'kill'):
            return self.finish(worker, verb)
        if verb == 'signal':
            signal.pidfd_send_signal(worker.pidfd, signal.SIGUSR1)
            return worker.receive(REPLY_S)
        if verb == 'send':
            return self.pass_on(worker, args[0], self.workers[args[1]], args[2])
        worker.send(expected.command.replace('FILE', self.file or ''))
        return None if expected.waits else worker.receive(REPLY_S)


class Totals:
    def __init__(self):
        self.sequences = self.steps = self.waits = 0
        self.retries = {'unlock': 0, 'close, exec, exit or kill': 0}
        self.retried = {'unlock': 0, 'close, exec, exit or kill': 0}
        self.longest_retry = self.longest_grant = self.longest_reply = 0.0

    def __str__(self):
        causes = ', '.join(f'{self.retried[c]} calls after {c} ({self.retries[c]} tries)' for c in self.retries)
        return (f'{self.sequences} sequences, {self.steps} steps, {self.waits} calls that waited\n'
                f'retried: {causes}; longest {self.longest_retry * 1000:.0f} ms\n'
                f'longest reply {self.longest_reply * 1000:.0f} ms, '
                f'longest wait for a lock that was free {self.longest_grant * 1000:.0f} ms')


class Comparison:
    """One run of one sequence on both sides."""

    def __init__(self, native, hosts, totals, options):
        self.native, self.hosts, self.totals, self.options = native, hosts, totals, options
        self.model = None
        self.waiting = None     # name of the process whose call waits
        self.number = 0         # of the step
        self.released = []      # (time, host, Lock, unseen)
        self.host_of = {}

    def run(self, sequence, name):
        self.model = Model(sequence.size, self.options.avoid)
        for side in (self.native, self.hosts):
            side.begin(name, sequence.directory, sequence.size)
        try:
            for self.number, line in enumerate(sequence.lines):
                self.step(line)
            if self.waiting:
                self.still_waits(0.1)
        except Fault as fault:
            fault.step = self.number
            raise
        finally:
            for side in (self.native, self.hosts):
                side.end()

    def step(self, line):
        if self.waiting:
            self.still_waits(0)
        expected = self.model.step(line)
        if not expected:
            return
        name, verb = line.split()[:2]
        if verb == 'start':
            self.host_of[name] = int(line.split()[2]) % len(self.hosts.roots)
        elif verb == 'fork':
            self.host_of[line.split()[2]] = self.host_of[name]
        if self.options.verbose:
            print(f'  {line}', flush=True)
        self.totals.steps += 1
        self.do_native(line, expected)
        self.do_hosts(line, expected)
        now = time.monotonic()
        self.released += [(now, host, lock, expected.unseen) for host, lock in expected.released]
        if self.waiting == name and not expected.waits:
            self.waiting = None  # killed, interrupted
        if expected.waits:
            self.waiting = name
            self.totals.waits += 1
        if expected.granted:
            self.grant(expected.granted)
        elif self.waiting:
            self.still_waits(0)

    # ---- natively ----

    def do_native(self, line, expected):
        reply = self.native.do(line, expected)
        if expected.waits:
            reply = self.sleeps(self.native.workers[expected.process])
            if reply:
                raise Fault('model', 'the call to wait', reply)
        elif expected.holders:
            if reply not in self.reports(expected.holders, self.native, expected):
                raise Fault('model', self.reports(expected.holders, self.native, expected), reply)
        elif reply != expected.reply:
            raise Fault('model', expected.reply, reply)

    @staticmethod
    def sleeps(worker):
        """None as soon as the worker is seen to wait; its reply when it does not."""
        looks, deadline = 0, time.monotonic() + REPLY_S
        if not LOCK_CALLS or worker.asleep_in_lock_call() is None:
            return worker.receive(0.15)
        while looks < 2:
            if time.monotonic() > deadline:
                return 'neither a reply nor a call that waits'
            reply = worker.receive(0.02 if looks else 0.001)
            if reply:
                return reply
            looks = looks + 1 if worker.asleep_in_lock_call() else 0
        return None

    def reports(self, locks, side, expected):
        """What F_GETLK may say of these locks."""
        replies = set()
        for lock in locks:
            pid = -1
            if isinstance(lock.owner, Process):
                pid = side.workers[lock.owner.name].pid
                if len(side.directories) > 1 and self.host_of[lock.owner.name] != self.host_of[expected.process]:
                    pid = -pid
            length = 0 if lock.end == 2**63 - 1 else lock.end - lock.start + 1
            replies.add(f'ok {lock.type} 0 {lock.start} {length} {pid}')
        return replies

    # ---- over the hosts ----

    def do_hosts(self, line, expected):
        start = time.monotonic()
        reply = self.hosts.do(line, expected)
        took = time.monotonic() - start
        self.totals.longest_reply = max(self.totals.longest_reply, took)
        if took > self.options.slow and reply is not None:
            raise Fault('slow', f'a reply within {self.options.slow} s', f'{reply} after {took:.1f} s')
        if expected.waits:
            reply = self.hosts.workers[expected.process].receive(self.options.settle)
            if reply:
                raise Fault('granted' if reply == 'ok' else 'reply', 'the call to wait', reply)
            return
        if not self.agrees(reply, expected):
            reply = self.again(reply, expected)
        if self.agrees(reply, expected):
            return
        wanted = expected.reply or self.reports(expected.holders, self.hosts, expected)
        kind = 'reply'
        if reply is None:
            kind = 'hang'
        elif reply == 'died':
            kind = 'died'
        elif expected.request and expected.command and not self.is_query(expected):
            kind = 'granted' if reply == 'ok' else 'refused' if expected.reply == 'ok' else 'reply'
        elif self.is_query(expected):
            kind = 'query'
        raise Fault(kind, wanted, reply)

    @staticmethod
    def is_query(expected):
        word = expected.command.split()
        return (word[0].startswith('fcntl') and word[2] in ('5', '36')) or (word[0] == 'lockf' and word[2] == '3')

    def agrees(self, reply, expected):
        if not expected.holders:
            return reply == expected.reply
        reports = self.reports(expected.holders, self.hosts, expected)
        return reply in reports or any(self.resembles(reply, report) for report in reports)

    def resembles(self, reply, report):
        """Is a F_GETLK's report as right as the options demand?"""
        got, right = reply.split() if reply else [], report.split()
        if len(got) != len(right) or not self.options.lenient:
            return False
        lenient = {part for part, name in ((1, 'type'), (5, 'pid')) if name in self.options.lenient}
        if any(got[part] != right[part] for part in (0, 1, 2, 5) if part not in lenient):
            return False
        spans = [(int(word[3]), int(word[3]) + (int(word[4]) or 2**63) - 1) for word in (got, right)]
        return spans[0] == spans[1] or ('extent' in self.options.lenient and spans[0][0] <= spans[1][1] and
                                        spans[1][0] <= spans[0][1])

    def again(self, reply, expected):
        """The bounded grace: see above."""
        cause = self.in_the_way(reply, expected)
        if not cause:
            return reply
        worker = self.hosts.workers[expected.process]
        start = time.monotonic()
        self.totals.retried[cause] += 1
        while time.monotonic() < start + GRACE_S and not self.agrees(reply, expected):
            time.sleep(0.005)
            self.totals.retries[cause] += 1
            reply = worker.ask(expected.command)
        self.totals.longest_retry = max(self.totals.longest_retry, time.monotonic() - start)
        return reply

    def in_the_way(self, reply, expected):
        """How a lock was given up that another host may still have seen; None when there is no such lock."""
        if not reply or not expected.request:
            return None
        if self.is_query(expected):
            if expected.reply is None or reply in (expected.reply, 'died'):
                return None
        elif reply != 'EAGAIN' or expected.reply != 'ok':
            return None
        recent = [(lock, unseen) for when, host, lock, unseen in self.released if
                  when > time.monotonic() - GRACE_S and self.host_of[expected.process] != host]
        for lock, unseen in reversed(recent):
            if lock.conflicts(*expected.request):
                return 'close, exec, exit or kill' if unseen else 'unlock'
        return None

    # ---- the call that waits ----

    def still_waits(self, seconds):
        for side in (self.native, self.hosts):
            reply = side.workers[self.waiting].receive(seconds)
            if reply:
                raise Fault('model' if side.native else 'granted' if reply == 'ok' else 'reply',
                            f'the call of {self.waiting} to wait', reply)

    def grant(self, name):
        self.waiting = None
        reply = self.native.workers[name].receive(REPLY_S)
        if reply != 'ok':
            raise Fault('model', f'the call of {name} to be granted', reply)
        start = time.monotonic()
        reply = self.hosts.workers[name].receive(GRANT_S)
        self.totals.longest_grant = max(self.totals.longest_grant, time.monotonic() - start)
        if reply != 'ok':
            raise Fault('stuck' if reply is None else 'reply', f'the call of {name} to be granted', reply)


class Sequence:
    def __init__(self, lines, size, directory):
        self.lines, self.size, self.directory = lines, size, directory

    @classmethod
    def from_seed(cls, seed, hosts, without, avoid):
        generator = Generator(seed, hosts, avoid)
        lines = [line for line in generator.make() if not any(word in line for word in without)]
        return cls(lines, generator.size, generator.directory)

    @classmethod
    def from_file(cls, path):
        with open(path, encoding='ascii') as file:
            lines = [line.strip() for line in file if line.strip() and not line.startswith('#')]
        _, size, directory = lines[0].split()
        return cls(lines[1:], int(size), directory)

    def __str__(self):
        return '\n'.join([f'file {self.size} {self.directory}'] + self.lines)


class Driver:
    def __init__(self, options):
        self.options = options
        self.totals = Totals()
        self.scratch = tempfile.TemporaryDirectory(prefix='zkflock-diff.')
        worker = os.path.join(options.build, 'probes/diffworker')
        self.native = Side(worker, [(options.native, {})] * len(options.host), self.scratch.name, True)
        self.hosts = Side(worker, [(os.path.join(host, 's'), self.environment(host)) for host in options.host],
                          self.scratch.name, False)
        self.files = 0

    def environment(self, host):
        if self.options.no_library:
            return {}
        return {'LD_PRELOAD': os.path.join(self.options.build, 'libzkflock.so'),
                'ZKFLOCK_CONF': os.path.join(host, 'zkflock.conf'),
                'ZKFLOCK_RUNTIME_DIR': os.path.join(host, 'run'),
                'ZKFLOCK_LOG': self.options.log}

    def fault_of(self, sequence, totals=None):
        """Run it: None when both sides agree."""
        self.files += 1
        try:
            Comparison(self.native, self.hosts, totals or Totals(), self.options).run(sequence, f'f{self.files}')
        except Fault as fault:
            return fault
        return None

    def shrink(self, sequence, fault):
        """Leave lines out while a fault of the same kind stays.  Ends after --shrink-seconds."""
        deadline = time.monotonic() + self.options.shrink_seconds
        lines = sequence.lines[:fault.step + 1]
        chunk = max(1, len(lines) // 2)
        while time.monotonic() < deadline:
            position, shorter = 0, False
            while position < len(lines) and time.monotonic() < deadline:
                candidate = Sequence(lines[:position] + lines[position + chunk:], sequence.size, sequence.directory)
                found = self.fault_of(candidate)
                if found and found.kind == fault.kind:
                    lines, fault, shorter = candidate.lines[:found.step + 1], found, True
                else:
                    position += chunk
            if chunk == 1 and not shorter:
                break
            chunk = max(1, chunk // 2)
        return Sequence(lines, sequence.size, sequence.directory), fault

    def report(self, seed, sequence, fault):
        print(f'\nFAULT seed {seed}, step {fault.step}: {sequence.lines[fault.step]}\n  {fault}')
        print('  the sequence:')
        print('    ' + str(sequence).replace('\n', '\n    '), flush=True)
        short, last = self.shrink(sequence, fault)
        if len(short.lines) < len(sequence.lines):
            print(f'  shrunk to {len(short.lines)} lines, which say {last}\n    ' + str(short).replace('\n', '\n    '))
        print(f'  again: tests/differential --seed {seed}, or --replay FILE with the lines above', flush=True)

    def run(self):
        """Returns how many sequences went wrong."""
        options, faults = self.options, 0
        if options.replay:
            sequences = [('of ' + options.replay, Sequence.from_file(options.replay))] * options.count
        else:
            sequences = ((seed, Sequence.from_seed(seed, len(options.host), options.without, options.avoid)) for seed in
                         range(options.seed, options.seed + options.count))
        end = time.monotonic() + options.seconds
        for seed, sequence in sequences:
            if time.monotonic() > end or faults >= options.faults:
                break
            if options.verbose:
                print(f'seed {seed}: {sequence.size} {sequence.directory}', flush=True)
            fault = self.fault_of(sequence, self.totals)
            self.totals.sequences += 1
            if fault:
                faults += 1
                self.report(seed, sequence, fault)
        print(f'{self.totals}\n{faults} sequences went differently')
        return faults

    def close(self):
        for side in (self.native, self.hosts):
            for child, root in zip(side.children, side.roots):
                root.close()
                child.wait(REPLY_S)
            side.listener.close()
        self.scratch.cleanup()


def main():
    parser = argparse.ArgumentParser(description='compare random lock calls over hosts with the plain kernel')
    parser.add_argument('--build', required=True, help='directory of libzkflock.so and probes/')
    parser.add_argument('--native', required=True, help='directory for the plain kernel')
    parser.add_argument('--host', action='append', required=True, help='a host: directory with s, zkflock.conf, run')
    parser.add_argument('--no-library', action='store_true', help='plain kernel on both sides')
    parser.add_argument('--seed', type=int, help='run this seed alone')
    parser.add_argument('--from', type=int, dest='first', default=None, help='first seed (default: random)')
    parser.add_argument('--count', type=int, help='how many sequences')
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--minutes', type=float)
    parser.add_argument('--faults', type=int, default=1, help='stop after so many')
    parser.add_argument('--without', action='append', default=[], metavar='TEXT', help='leave out steps with TEXT')
    parser.add_argument('--avoid', action='append', default=[], choices=['queue', 'upgrade', 'local', 'second'],
                        help='leave out, while a call waits: queue: one that could wait, of a host that holds nothing; '
                        'second: any that could wait; upgrade: flock sh -> ex; and at any time: local: waiting behind '
                        'a lock of the own host')
    parser.add_argument('--lenient', action='append', default=[], choices=['extent', 'type', 'pid'],
                        help="what of F_GETLK's report need not be exact")
    parser.add_argument('--replay', metavar='FILE', help='run a sequence from a file, --count times')
    parser.add_argument('--settle', type=float, default=0.06, help='seconds in which a call that waits may be wrong')
    parser.add_argument('--slow', type=float, default=2, help='seconds that a reply may take')
    parser.add_argument('--shrink-seconds', type=float, default=60)
    parser.add_argument('--log', default='error', help='ZKFLOCK_LOG of the hosts')
    parser.add_argument('--verbose', action='store_true')
    options = parser.parse_args()
    if options.minutes:
        options.seconds = options.minutes * 60
    if options.seed is not None:
        options.count = options.count or 1
    else:
        options.seed = options.first if options.first is not None else random.SystemRandom().randrange(10**6) * 1000
        options.count = options.count or (1 if options.replay else 10**9)
        print(f'seeds from {options.seed}', flush=True)
    driver = Driver(options)
    try:
        return 1 if driver.run() else 0
    finally:
        driver.close()


if __name__ == '__main__':
    sys.exit(main())

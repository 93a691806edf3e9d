"""tests/diffmodel.py - the kernel's lock rules as a model, and random sequences of lock calls made with it

Answers for: what each step of a sequence must reply on a plain kernel, what is held then, and what was released.
Does not:    run anything; that is differential.py, which holds the model against the kernel first and then both
             against the library.
Specification: flock(2), fcntl(2), lockf(3); fs/locks.c of Linux.

A sequence is a list of lines, "PROCESS VERB ARGUMENT...":

    a start HOST         a open SLOT r|w|rw|path     a dup SLOT NEW      a close SLOT       a cloexec SLOT 0|1
    a seek SLOT OFFSET   a send SLOT PROCESS NEW     a fork b            a exec             a exit
    a kill               a signal (a caught one, without SA_RESTART, while a's call waits)
    a flock SLOT sh|ex|un|NUMBER [nb]                a lockf SLOT lock|tlock|ulock|test LEN
    a fcntl|fcntl64 SLOT getlk|setlk|setlkw|ogetlk|osetlk|osetlkw rd|wr|un|NUMBER set|cur|end|NUMBER START LEN PID

Any subset of the lines of a sequence is a sequence: what makes no sense is skipped (a step of a dead process), and what
must not be (a second call that waits) becomes its non-blocking twin.  So a failing sequence can be shrunk by leaving
lines out.
SPDX-License-Identifier: Apache-2.0
"""
import random

MAX = 2**63 - 1
SLOTS = 8
PROCESSES_MAX = 5

FCNTL = {'getlk': 5, 'setlk': 6, 'setlkw': 7, 'ogetlk': 36, 'osetlk': 37, 'osetlkw': 38}
TYPES = {'rd': 0, 'wr': 1, 'un': 2}
WHENCE = {'set': 0, 'cur': 1, 'end': 2}
FLOCK = {'sh': 1, 'ex': 2, 'un': 8}
FLOCK_NB = 4
LOCKF = {'ulock': 0, 'lock': 1, 'tlock': 2, 'test': 3}


class Ofd:
    """An open file description."""

    def __init__(self, mode):
        self.mode = mode  # r, w, rw, path
        self.position = 0
        self.references = 0


class Process:
    def __init__(self, name, host):
        self.name = name
        self.host = host
        self.slots = {}  # slot -> [Ofd, close-on-exec, descriptor's number]

    def lowest_free(self):
        used = {number for _, _, number in self.slots.values()}
        return next(n for n in range(3, 100) if n not in used)


class Lock:
    """One lock that is held.  The owner is a Process (F_SETLK) or an Ofd (F_OFD_SETLK, flock)."""

    def __init__(self, kind, owner, type_, start, end):
        self.kind, self.owner, self.type, self.start, self.end = kind, owner, type_, start, end

    def conflicts(self, kind, owner, type_, start, end):
        return (self.kind == kind and self.owner is not owner and self.start <= end and start <= self.end and
                (self.type == 1 or type_ == 1))


class Expected:
    """What a step must bring about."""

    def __init__(self, process, command):
        self.process = process      # whose reply counts
        self.command = command      # what the worker is told; None: nothing (start, kill, signal)
        self.reply = 'ok'           # exactly; None: one of `holders` is reported, or the call waits
        self.holders = None         # getlk: all locks in the way
        self.waits = False          # no reply now
        self.granted = None         # the process whose waiting call this step lets through
        self.request = None         # a lock call: (kind, owner, type, start, end)
        self.nonblocking = False    # it must not wait for a holder
        self.released = []          # (host, Lock): what was held and is not any more
        self.unseen = False         # released without a lock call: close, exec, exit, kill


class Model:
    """The file, who has it open, and who has locked what.  One call may wait at a time."""

    def __init__(self, size, avoid=()):
        self.size = size
        self.avoid = avoid
        self.processes = {}
        self.names_used = set()
        self.locks = []
        self.pending = None  # (process, request)

    # ---- locks ----

    def conflicts(self, request):
        return [lock for lock in self.locks if lock.conflicts(*request)]

    def hosts_of(self, owner):
        """Hosts on which an owner lives; for an OFD, all of one host."""
        if isinstance(owner, Process):
            return {owner.host}
        return {p.host for p in self.processes.values() for ofd, _, _ in p.slots.values() if ofd is owner}

    def set_lock(self, request):
        """Take, convert or (type 2) drop, as the kernel splits and merges."""
        kind, owner, type_, start, end = request
        kept = []
        for lock in self.locks:
            if lock.kind != kind or lock.owner is not owner or lock.end < start or end < lock.start:
                kept.append(lock)
                continue
            if lock.start < start:
                kept.append(Lock(kind, owner, lock.type, lock.start, start - 1))
            if end < lock.end:
                kept.append(Lock(kind, owner, lock.type, end + 1, lock.end))
        if type_ != 2:
            for lock in list(kept):
                if (lock.kind == kind and lock.owner is owner and lock.type == type_ and
                        (lock.end == start - 1 or lock.start == end + 1)):
                    start, end = min(start, lock.start), max(end, lock.end)
                    kept.remove(lock)
            kept.append(Lock(kind, owner, type_, start, end))
        self.locks = kept

    def drop_owner(self, owner):
        self.locks = [lock for lock in self.locks if lock.owner is not owner]

    # ---- descriptors ----

    def close(self, process, slot):
        ofd = process.slots.pop(slot)[0]
        if ofd.mode != 'path':
            self.drop_owner(process)  # closing any descriptor of the file drops all record locks of the process
        ofd.references -= 1
        if not ofd.references:
            self.drop_owner(ofd)

    def put(self, process, slot, ofd, number=None):
        ofd.references += 1
        number = process.lowest_free() if number is None else number
        process.slots[slot] = [ofd, False, number]
        return number

    def end(self, process):
        for slot in list(process.slots):
            self.close(process, slot)
        self.drop_owner(process)
        del self.processes[process.name]
        if self.pending and self.pending[0] is process:
            self.pending = None

    # ---- steps ----

    def step(self, line):
        """Do one step; Expected, or None when it makes no sense now."""
        name, verb, *args = line.split()
        process = self.processes.get(name)
        if verb == 'start':
            return self.start(name, int(args[0]))
        if not process:
            return None
        waiting = self.pending is not None and self.pending[0] is process
        if waiting != (verb == 'signal') and not (waiting and verb == 'kill'):
            return None
        before = [(host, lock) for lock in self.locks for host in self.hosts_of(lock.owner)]
        expected = getattr(self, 'do_' + verb)(process, *args)
        if not expected:
            return None
        expected.unseen = verb not in ('flock', 'fcntl', 'fcntl64', 'lockf')
        held = {id(lock) for lock in self.locks}
        expected.released = [(host, lock) for host, lock in before if id(lock) not in held]
        if self.pending and not expected.waits and not self.conflicts(self.pending[1]):
            waiter, request = self.pending
            self.set_lock(request)
            self.pending = None
            expected.granted = waiter.name
        return expected

    def start(self, name, host):
        if name in self.names_used or len(self.processes) >= PROCESSES_MAX:
            return None
        self.names_used.add(name)
        self.processes[name] = Process(name, host)
        return Expected(name, None)

    def do_open(self, process, slot, mode):
        slot = int(slot)
        if slot in process.slots:
            self.close(process, slot)
        expected = Expected(process.name, f'open {slot} {mode} FILE')
        expected.reply = f'ok {self.put(process, slot, Ofd(mode))}'
        return expected

    def do_dup(self, process, slot, new):
        slot, new = int(slot), int(new)
        expected = Expected(process.name, f'dup {slot} {new}')
        if slot not in process.slots:
            expected.reply = 'EBADF'
        elif slot == new:
            expected.reply = f'ok {process.slots[slot][2]}'
        else:
            ofd, number = process.slots[slot][0], None
            if new in process.slots:
                number = process.slots[new][2]
                ofd.references += 1
                self.close(process, new)
                ofd.references -= 1
            expected.reply = f'ok {self.put(process, new, ofd, number)}'
        return expected

    def do_close(self, process, slot):
        expected = Expected(process.name, f'close {slot}')
        if int(slot) in process.slots:
            self.close(process, int(slot))
        else:
            expected.reply = 'EBADF'
        return expected

    def do_cloexec(self, process, slot, flag):
        expected = Expected(process.name, f'cloexec {slot} {flag}')
        if int(slot) in process.slots:
            process.slots[int(slot)][1] = flag == '1'
        else:
            expected.reply = 'EBADF'
        return expected

    def do_seek(self, process, slot, position):
        expected = Expected(process.name, f'seek {slot} {position}')
        ofd = process.slots.get(int(slot), [None])[0]
        if not ofd or ofd.mode == 'path':
            expected.reply = 'EBADF'
        else:
            ofd.position = int(position)
            expected.reply = f'ok {position}'
        return expected

    def do_send(self, process, slot, to, new):
        receiver = self.processes.get(to)
        slot, new = int(slot), int(new)
        if (not receiver or receiver is process or receiver.host != process.host or slot not in process.slots or
                new in receiver.slots or (self.pending and self.pending[0] is receiver)):
            return None
        expected = Expected(to, f'send {slot}')
        expected.reply = f'ok {self.put(receiver, new, process.slots[slot][0])}'
        return expected

    def do_fork(self, process, name):
        if name in self.names_used or len(self.processes) >= PROCESSES_MAX:
            return None
        self.names_used.add(name)
        child = Process(name, process.host)
        self.processes[name] = child
        for slot, (ofd, cloexec, number) in process.slots.items():
            ofd.references += 1
            child.slots[slot] = [ofd, cloexec, number]
        return Expected(process.name, f'fork {name}')

    def do_exec(self, process):
        for slot in [s for s, (_, cloexec, _) in process.slots.items() if cloexec]:
            self.close(process, slot)
        expected = Expected(process.name, 'exec')
        expected.reply = ''.join(f':{slot}' for slot in sorted(process.slots))
        return expected

    def do_exit(self, process):
        self.end(process)
        return Expected(process.name, 'exit')

    def do_kill(self, process):
        self.end(process)
        return Expected(process.name, None)

    def do_signal(self, process):
        self.pending = None
        expected = Expected(process.name, None)
        expected.reply = 'EINTR'
        return expected

    # ---- lock calls ----

    def may_wait(self, process, request):
        """May a call that is able to wait be made now?  While another waits, only one that gets its lock at once, and
        not a reader whose host has nothing of the lock: it queues behind the waiting writer, on purpose."""
        if not self.pending:
            return 'local' not in self.avoid or not any(
                process.host in self.hosts_of(lock.owner) for lock in self.conflicts(request))
        if 'second' in self.avoid:
            return False
        return not self.conflicts(request) and ((request[2] == 1 and 'queue' not in self.avoid) or any(
            lock.kind == request[0] and process.host in self.hosts_of(lock.owner) for lock in self.locks))

    def lock(self, expected, process, request, wait):
        """The common end of all calls that lock."""
        expected.request = request
        expected.nonblocking = not wait
        if not self.conflicts(request):
            self.set_lock(request)
        elif wait:
            expected.waits = True
            expected.reply = None
            self.pending = (process, request)
        else:
            expected.reply = 'EAGAIN'
        return expected

    def do_flock(self, process, slot, op, *options):
        wait = not options
        number = FLOCK[op] if op in FLOCK else int(op)
        ofd = process.slots.get(int(slot), [None])[0]
        if self.pending and ofd is self.pending[1][1]:
            return None  # the waiting call, woken in vain, would drop what this one takes; that is chance
        if wait and op in ('sh', 'ex') and ofd:
            others = [lock for lock in self.locks if lock.owner is not ofd or lock.kind != 'flock']
            saved, self.locks = self.locks, others
            wait = self.may_wait(process, ('flock', ofd, 1 if op == 'ex' else 0, 0, MAX))
            self.locks = saved
        expected = Expected(process.name, f'flock {slot} {number if wait else number | FLOCK_NB}')
        expected.nonblocking = not wait
        if op not in FLOCK:
            expected.reply = 'EINVAL'
        elif not ofd or ofd.mode == 'path':
            expected.reply = 'EBADF'
        elif op == 'un':
            self.set_lock(('flock', ofd, 2, 0, MAX))
        else:
            type_ = 1 if op == 'ex' else 0
            request = ('flock', ofd, type_, 0, MAX)
            mine = [lock for lock in self.locks if lock.kind == 'flock' and lock.owner is ofd]
            if mine and mine[0].type == type_:
                expected.request = request
                return expected
            if mine and type_ == 1 and self.pending and self.pending[1][0] == 'flock' and 'upgrade' in self.avoid:
                return None
            for lock in mine:  # a conversion drops the old lock first, and does not get it back
                self.locks.remove(lock)
            return self.lock(expected, process, request, wait)
        return expected

    def range(self, ofd, whence, start, length):
        """(first, last) byte, or an errno's name."""
        base = {0: 0, 1: ofd.position, 2: self.size}.get(whence)
        if base is None:
            return 'EINVAL'
        if start > MAX - base:
            return 'EOVERFLOW'
        start += base
        if start < 0:
            return 'EINVAL'
        if length > 0:
            return (start, start + length - 1) if length - 1 <= MAX - start else 'EOVERFLOW'
        if length < 0:
            return (start + length, start - 1) if start + length >= 0 else 'EINVAL'
        return start, MAX

    def record(self, expected, process, ofd, command, type_, whence, start, length, pid):
        """fcntl's own order of checks."""
        of_ofd = command.startswith('o')
        get = command.endswith('getlk')
        if not ofd or ofd.mode == 'path':
            expected.reply = 'EBADF'
            return expected
        if get and not of_ofd and type_ not in (0, 1):
            expected.reply = 'EINVAL'
            return expected
        span = self.range(ofd, whence, start, length)
        if isinstance(span, str):
            expected.reply = span
        elif type_ not in (0, 1, 2):
            expected.reply = 'EINVAL'
        elif not get and ((type_ == 0 and ofd.mode == 'w') or (type_ == 1 and ofd.mode == 'r')):
            expected.reply = 'EBADF'
        elif of_ofd and pid:
            expected.reply = 'EINVAL'
        else:
            request = ('record', ofd if of_ofd else process, type_, *span)
            if get:
                return self.query(expected, request, f'ok 2 {whence} {start} {length} {pid}')
            if type_ != 2:
                return self.lock(expected, process, request, command.endswith('w'))
            self.set_lock(request)
        return expected

    def query(self, expected, request, free):
        expected.request = request
        if request[2] == 2:  # F_OFD_GETLK of F_UNLCK lists the owner's own locks
            holders = [lock for lock in self.locks if lock.kind == 'record' and lock.owner is request[1] and
                       lock.start <= request[4] and request[3] <= lock.end]
        else:
            holders = self.conflicts(request)
        expected.reply = free
        if holders:
            expected.holders = holders
            expected.reply = None
        return expected

    def do_fcntl(self, process, slot, command, type_, whence, start, length, pid, call='fcntl'):
        ofd = process.slots.get(int(slot), [None])[0]
        type_ = TYPES[type_] if type_ in TYPES else int(type_)
        whence = WHENCE[whence] if whence in WHENCE else int(whence)
        start, length, pid = int(start), int(length), int(pid)
        if command.endswith('w') and type_ in (0, 1) and ofd:
            span = self.range(ofd, whence, start, length)
            if not isinstance(span, str) and not self.may_wait(process, (
                    'record', ofd if command[0] == 'o' else process, type_, *span)):
                command = command[:-1]
        expected = Expected(process.name, f'{call} {slot} {FCNTL[command]} {type_} {whence} {start} {length} {pid}')
        expected.nonblocking = not command.endswith('w')
        return self.record(expected, process, ofd, command, type_, whence, start, length, pid)

    def do_fcntl64(self, process, *args):
        return self.do_fcntl(process, *args, call='fcntl64')

    def do_lockf(self, process, slot, op, length):
        ofd = process.slots.get(int(slot), [None])[0]
        length = int(length)
        if op == 'lock' and ofd:
            span = self.range(ofd, 1, 0, length)
            if not isinstance(span, str) and not self.may_wait(process, ('record', process, 1, *span)):
                op = 'tlock'
        expected = Expected(process.name, f'lockf {slot} {LOCKF[op]} {length}')
        expected.nonblocking = op != 'lock'
        if op != 'test':
            return self.record(expected, process, ofd, 'setlkw' if op == 'lock' else 'setlk',
                               2 if op == 'ulock' else 1, 1, 0, length, 0)
        self.record(expected, process, ofd, 'getlk', 0, 1, 0, length, 0)
        if expected.holders:
            expected.reply = 'EACCES'
            expected.holders = None
        elif expected.reply.startswith('ok'):
            expected.reply = 'ok'
        return expected


class Generator:
    """A random sequence; the model tells it what makes sense."""

    VERBS = {'flock': 30, 'fcntl': 45, 'lockf': 4, 'open': 5, 'dup': 4, 'close': 6, 'cloexec': 2, 'fork': 4, 'exec': 3,
             'exit': 1.5, 'kill': 2, 'seek': 2, 'send': 2, 'start': 1.5}

    def __init__(self, seed, hosts, avoid=()):
        self.random = random.Random(seed)
        self.hosts = self.random.choice([2, 2, 3][:max(1, hosts)]) if hosts > 2 else hosts
        self.size = self.random.choice([0, 10, 100])
        self.directory = self.random.choice(['.', '.', 'k0'])
        self.flavour = self.random.choice(['flock', 'record', 'mixed', 'mixed'])
        self.blocking = self.random.choice([0.1, 0.4, 0.8])
        self.model = Model(self.size, avoid)
        self.lines = []

    def add(self, line):
        if self.model.step(line):
            self.lines.append(line)

    def make(self):
        count = self.random.randint(2, 4)
        for i in range(count):
            self.add(f'{self.new_name()} start {i % self.hosts}')
        for name in list(self.model.processes):
            self.add(f'{name} open 0 {self.random.choice(["rw", "rw", "rw", "r", "w"])}')
        for _ in range(self.random.randint(8, 36)):
            self.add(self.line())
        return self.lines

    def new_name(self):
        return next(n for n in 'abcdefghijklmnopqrstuvwxyz' if n not in self.model.names_used)

    def line(self):
        model, rnd = self.model, self.random
        if model.pending and rnd.random() < 0.35:
            return self.release()
        alive = [p for p in model.processes.values() if not model.pending or p is not model.pending[0]]
        if not alive or len(model.names_used) > 20:
            return f'{self.new_name()} start {rnd.randrange(self.hosts)}' if len(model.names_used) < 26 else 'a exit'
        process = rnd.choice(alive)
        verbs = dict(self.VERBS)
        if self.flavour != 'mixed':
            verbs['fcntl' if self.flavour == 'flock' else 'flock'] /= 10
        if not process.slots and rnd.random() < 0.8:
            verb = 'open'
        else:
            verb = rnd.choices(list(verbs), list(verbs.values()))[0]
        return getattr(self, 'make_' + verb)(process)

    def slot(self, process):
        if process.slots and self.random.random() < 0.97:
            return self.random.choice(list(process.slots))
        return self.random.randrange(SLOTS)

    def release(self):
        """Something that is likely to let the waiting call through."""
        model, rnd = self.model, self.random
        waiter, request = model.pending
        if rnd.random() < 0.15:
            return f'{waiter.name} {rnd.choice(["signal", "kill"])}'
        lock = rnd.choice(model.conflicts(request))
        users = [(p, slot) for p in model.processes.values() if p is not waiter for slot, (ofd, _, _) in
                 p.slots.items() if lock.owner in (p, ofd) and ofd.mode != 'path']
        if not users:
            return f'{waiter.name} signal'
        process, slot = rnd.choice(users)
        end = rnd.choice(['unlock', 'unlock', 'convert', 'close', 'exit', 'kill', 'part'])
        if end in ('close', 'exit', 'kill'):
            return f'{process.name} {end}' + (f' {slot}' if end == 'close' else '')
        if lock.kind == 'flock':
            return f'{process.name} flock {slot} ' + ('sh nb' if end == 'convert' else 'un')
        command = 'setlk' if lock.owner is process else 'osetlk'
        start, length = lock.start, 0 if lock.end == MAX else lock.end - lock.start + 1
        if end == 'part':
            start, length = rnd.choice([(start, 5), (start + 3, 0), (max(request[3], start), 2)])
        return (f'{process.name} fcntl {slot} {command} {"rd" if end == "convert" else "un"} set '
                f'{min(start, MAX)} {length if start + length <= MAX else 0} 0')

    def make_start(self, _):
        return f'{self.new_name()} start {self.random.randrange(self.hosts)}'

    def make_open(self, process):
        free = [slot for slot in range(SLOTS) if slot not in process.slots]
        slot = free[0] if free and self.random.random() < 0.95 else self.random.randrange(SLOTS)
        return f'{process.name} open {slot} ' + self.random.choice(['rw'] * 6 + ['r', 'r', 'w', 'path'])

    def make_dup(self, process):
        return f'{process.name} dup {self.slot(process)} {self.random.randrange(SLOTS)}'

    def make_close(self, process):
        return f'{process.name} close {self.slot(process)}'

    def make_cloexec(self, process):
        return f'{process.name} cloexec {self.slot(process)} {self.random.choice([1, 1, 0])}'

    def make_seek(self, process):
        return f'{process.name} seek {self.slot(process)} {self.random.choice([0, 5, 10, 20, 100])}'

    def make_send(self, process):
        others = [p.name for p in self.model.processes.values() if p is not process and p.host == process.host]
        if not others:
            return self.make_fork(process)
        return f'{process.name} send {self.slot(process)} {self.random.choice(others)} {self.random.randrange(SLOTS)}'

    def make_fork(self, process):
        return f'{process.name} fork {self.new_name()}'

    def make_exec(self, process):
        return f'{process.name} exec'

    def make_exit(self, process):
        return f'{process.name} exit'

    def make_kill(self, process):
        return f'{process.name} kill'

    def make_flock(self, process):
        rnd = self.random
        op = rnd.choice(['sh', 'sh', 'ex', 'ex', 'un']) if rnd.random() < 0.97 else rnd.choice(['0', '3', '16', '64'])
        return f'{process.name} flock {self.slot(process)} {op}' + ('' if rnd.random() < self.blocking else ' nb')

    def offset(self):
        rnd = self.random
        offset = rnd.choice([0, 5, 5, 10, 10, 15, 20, 100, MAX - 10, MAX]) + rnd.choice([0, 0, 0, -1, 1])
        return max(0, min(MAX, offset))

    def make_fcntl(self, process):
        rnd = self.random
        command = rnd.choice(['getlk'] * 2 + ['setlk'] * 6)
        if command == 'setlk' and rnd.random() < self.blocking:
            command = 'setlkw'
        if rnd.random() < 0.4:
            command = 'o' + command
        type_ = rnd.choice(['rd'] * 3 + ['wr'] * 4 + ['un'] * 2) if rnd.random() < 0.98 else '7'
        if command == 'getlk' and type_ == 'un' and rnd.random() < 0.8:
            type_ = 'wr'
        whence = rnd.choices(['set', 'cur', 'end', '5'], [70, 14, 14, 1])[0]
        start = self.offset()
        length = rnd.choice([0, 1, 5, 5, 10, -1, -5])
        if rnd.random() < 0.15:
            length = self.offset()
        if whence == 'end' or (whence == 'cur' and rnd.random() < 0.5):
            start = rnd.choice([0, -5, -10, -1, 5, -100])
        pid = 1 if rnd.random() < 0.02 else 0
        call = rnd.choice(['fcntl', 'fcntl64'])
        return f'{process.name} {call} {self.slot(process)} {command} {type_} {whence} {start} {length} {pid}'

    def make_lockf(self, process):
        op = self.random.choice(['tlock', 'tlock', 'ulock', 'test', 'lock'])
        if op == 'lock' and self.random.random() > self.blocking:
            op = 'tlock'
        length = self.random.choice([0, 1, 5, 10, -5, -1])
        return f'{process.name} lockf {self.slot(process)} {op} {length}'

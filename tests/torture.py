#!/usr/bin/python3
"""tests/torture.py - the torture's schedule of faults, and the judge of its log

    torture.py schedule SEED SECONDS HOSTS PROGRAMS    print "MS ACTION ARGUMENT..." in the order of time
    torture.py check LOG [--bound SECONDS]             print what is wrong, then numbers; exit status 1 when something is
    torture.py cases LOG...                            is the judge right?  Each log's first line says what it must find

Answers for: what happens when, and whether the log of what the programs did is one that locks allow.
Does not:    start, kill or wait; tests/torture does.
Specification: design.md sections 1 and 4.

The log has the programs' records (tests/probes/section.c) and the driver's: `MS calm` after the last fault has been mended,
`MS died HOST PID STATUS` when a program was reaped, `MS end` when all have ended; any other word is for people.

What is wrong:
    - two inside: a record of a section (inside, leave) after somebody whose lock conflicts has entered.  A holder that was
      killed, or stands still because its host has lost its session, may be succeeded; then nothing more may come from it.
    - a fencing token that is not larger than that of everybody who was inside before and whose lock conflicts; or none,
      with a holder inside
    - lost: a call that waits and has not returned, or has, but later than the bound after the call and after the last fault
    - a blocking call that was refused, a refusal that a kernel would not give, a program that ended by itself
    - a record in a place where none can be
"""
import argparse
import random
import sys

REFUSALS = {'EAGAIN', 'EACCES', 'ENOLCK'}  # ENOLCK: the servers are out of reach
ENDED_BY_US = {0, 137, 143}
LONGEST_MS = 10000  # of a fault; more than two session timeouts
WARNED_MS = 400
RECOVERY_MS = 6000  # servers that have found each other again work for a while


def schedule(seed, seconds, hosts, programs):
    """Faults for so long; each is mended by then.

    Now and then a host's link alone is broken until its session ends, while the others go on: else all would be broken at
    once most of the time, and no holder would ever be stopped and succeeded.
    """
    rng = random.Random(seed)
    actions, now, end = [], 1500, seconds * 1000
    longest = min(LONGEST_MS, end // 3)
    broken = {}  # until when: who is broken in one way is not broken again, or the first mending would come too early

    def add(begin, length, first, last):
        actions.append((begin, first))
        if last:
            actions.append((min(begin + length, end), last))

    def free(what, length):
        if broken.get(what, 0) > now:
            return False
        broken[what] = now + length
        return True

    def break_link(host, length):
        """With a warning, so that a holder is inside when it happens."""
        if free(('link', host), WARNED_MS + length):
            add(now, 0, f'link-warn {host}', None)
            add(now + WARNED_MS, length, f'link-{rng.choice(["cut", "freeze"])} {host}', f'link-heal {host}')

    loss, lossy = rng.randrange(3000, 8000), 0
    while now < end:
        host = rng.randrange(hosts)
        if now >= loss:
            break_link(host, longest)
            lossy, loss = now + WARNED_MS + longest, now + longest + rng.randrange(5000, 20000)
        length = rng.choice([200, 700, 1500, 3000, longest, longest])
        server = rng.randrange(1, 4)
        kind = rng.choices(['program', 'keeper', 'guard', 'both', 'server', 'link', 'partition'], [8, 5, 1, 2, 3, 5, 1])[0]
        if now < lossy and kind not in ('program', 'keeper'):
            now += 1000
            continue
        if kind == 'program':
            program = rng.randrange(programs)
            if rng.random() < 0.5:
                add(now, 0, f'program-kill {host} {program}', None)
            elif free(('program', host, program), length):
                add(now, length, f'program-stop {host} {program}', f'program-continue {host} {program}')
        elif kind == 'server':
            verb = rng.choice(['kill', 'stop'])
            if free('servers', length + RECOVERY_MS):
                for which in ([server] if rng.random() < 0.8 else [server, server % 3 + 1]):
                    add(now, length, f'server-{verb} {which}', f'server-mend {which}')
        elif kind == 'link':
            break_link(host, min(length, 3000))
        elif kind == 'partition':
            if free('servers', length + RECOVERY_MS):
                add(now, length, f'partition {server}', f'rejoin {server}')
        elif kind == 'guard' or rng.random() < 0.5:
            add(now, 0, f'{kind}-kill {host}', None)
        elif free(('keeper', host), length):
            add(now, length, f'{kind}-stop {host}', f'{kind}-continue {host}')
        now += rng.choice([20, 150, 400, 800, 1500])
    return sorted(actions, key=lambda action: action[0])


class Section:
    """One call of one program."""

    def __init__(self, line, since, fields):
        self.line, self.since = line, since
        self.host, self.pid, self.number, self.lock, self.mode = fields[:5]
        self.first, self.last, self.kind = int(fields[5]), int(fields[6]), fields[7]
        self.after = None  # who has entered since, so that it must not run
        self.token = 0
        self.told = False

    def conflicts(self, other):
        return (self.lock == other.lock and 'exclusive' in (self.mode, other.mode)
                and self.first <= other.last and other.first <= self.last)

    def covers(self, other):
        return (self.first <= other.first and other.last <= self.last and self.token >= other.token
                and (self.mode == other.mode or self.mode == 'exclusive'))

    def __str__(self):
        return (f'{self.host} pid {self.pid} call {self.number} ({self.kind} {self.mode} {self.lock} '
                f'{self.first}-{self.last}, line {self.line})')


class Judge:
    """Reads records in their order."""

    def __init__(self, bound_ms):
        self.bound_ms = bound_ms
        self.faults = []
        self.waiting, self.inside = {}, {}   # by (host, pid)
        self.dead = {}                       # (host, pid) -> status
        self.calm = self.end = None
        self.entered = self.refused = self.succeeded = self.tokens = self.line = 0
        self.given = {}                      # lock -> the sections that were given a token and may still matter
        self.slowest = 0.0

    def fault(self, text):
        self.faults.append(f'line {self.line}: {text}')

    def read(self, text):
        self.line += 1
        fields = text.split()
        if len(fields) < 2:
            self.fault(f'not a record: {text!r}')
            return
        now, event = float(fields[0]), fields[1]
        if event in ('wait', 'enter', 'inside', 'token', 'leave', 'refused') and len(fields) >= 10:
            self.record(now, event, fields[2:])
        elif event == 'calm':
            self.calm = now
        elif event == 'end':
            self.end = now
        elif event == 'died':
            self.died(fields[2], fields[3], int(fields[4]))

    def record(self, now, event, fields):
        key = (fields[0], fields[1])
        if key in self.dead:
            self.fault(f'{event} by a dead program: {" ".join(fields)}')
        if event == 'wait':
            if key in self.waiting or key in self.inside:
                self.fault(f'a call before the last one has ended: {" ".join(fields)}')
            self.waiting[key] = Section(self.line, now, fields)
        elif event in ('enter', 'refused'):
            section = self.waiting.pop(key, None)
            if not section or section.number != fields[2]:
                self.fault(f'{event} without a call: {" ".join(fields)}')
                return
            self.returned(section, now)
            if event == 'enter':
                self.enter(key, section)
            else:
                self.refuse(section, fields[8] if len(fields) > 8 else '?')
        else:
            self.still_inside(key, event, fields)

    def returned(self, section, now):
        """In time?  Before the last fault anybody may wait."""
        if self.calm is not None:
            waited = now - max(section.since, self.calm)
            self.slowest = max(self.slowest, waited)
            if waited > self.bound_ms:
                self.fault(f'late: {section} has waited {waited / 1000:.1f} s after the last fault')

    def enter(self, key, section):
        self.entered += 1
        section.line = self.line
        for holder in self.inside.values():
            if holder.after is None and holder.conflicts(section):
                holder.after = section
                self.succeeded += 1
        self.inside[key] = section

    def refuse(self, section, error):
        self.refused += 1
        if section.kind.endswith('w'):
            self.fault(f'a blocking call was refused with {error}: {section}')
        elif error not in REFUSALS:
            self.fault(f'refused with {error}: {section}')

    def still_inside(self, key, event, fields):
        section = self.inside.get(key)
        if not section or section.number != fields[2]:
            self.fault(f'{event} without having entered: {" ".join(fields)}')
            return
        if section.after and not section.told:
            section.told = True  # once is enough
            self.fault(f'two inside: {section} runs ({event}) after {section.after}')
        if event == 'token':
            self.token(section, int(fields[8]))
        if event == 'leave':
            del self.inside[key]

    def token(self, section, number):
        """Larger than those of all who were inside before, except of those who may be inside together."""
        self.tokens += 1
        if number == 0:
            self.fault(f'no token: the host of {section} has nothing')
            return
        given = self.given.setdefault(section.lock, [])
        for former in given:
            if former.conflicts(section) and former.token >= number:
                self.fault(f'token {number} of {section} after {former.token} of {former}')
        section.token = number
        # Who is as wide and as strong, and has more, stands for the former ones.
        given[:] = [former for former in given if not section.covers(former)] + [section]

    def died(self, host, pid, status):
        self.dead[host, pid] = status
        if status not in ENDED_BY_US:
            self.fault(f'{host} pid {pid} has ended with {status}')
        self.waiting.pop((host, pid), None)
        self.inside.pop((host, pid), None)

    def finish(self):
        self.line += 1
        if self.calm is None or self.end is None:
            self.fault('the log has no end')
        for section in self.waiting.values():
            self.fault(f'lost: {section} still waits')
        for section in self.inside.values():
            self.fault(f'stuck: {section} has never left' + (f'; succeeded by {section.after}' if section.after else ''))


def judged(records, bound_ms):
    judge = Judge(bound_ms)
    for text in records:
        judge.read(text)
    judge.finish()
    return judge


def check_cases(paths):
    """Logs without times (100 ms a line) whose first line is what must be found: nothing, or a part of a fault."""
    wrong = 0
    for path in paths:
        with open(path, encoding='ascii') as log:
            wanted, *records = log.read().split('\n')[:-1]
        judge = judged((f'{100 * at} {text}' for at, text in enumerate(records)), 1000)
        if judge.faults if not wanted else not any(wanted in fault for fault in judge.faults):
            wrong += 1
            print(f'WRONG {path}: wanted "{wanted}", found', *judge.faults, sep='\n    ')
    print(f'{len(paths)} cases, {wrong} judged wrongly')
    return 1 if wrong else 0


def check(path, bound_ms):
    with open(path, encoding='ascii') as log:
        judge = judged(log, bound_ms)
    for fault in judge.faults[:40]:
        print(f'WRONG {fault}')
    print(f'{judge.entered} sections, {judge.refused} refused, {judge.succeeded} holders succeeded, {judge.tokens} tokens, '
          f'slowest wait in the calm {judge.slowest / 1000:.2f} s, {len(judge.faults)} faults')
    return 1 if judge.faults else 0


def main():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest='verb', required=True)
    plan = verbs.add_parser('schedule')
    for name in ('seed', 'seconds', 'hosts', 'programs'):
        plan.add_argument(name, type=int)
    cases = verbs.add_parser('cases')
    cases.add_argument('logs', nargs='+')
    judge = verbs.add_parser('check')
    judge.add_argument('log')
    judge.add_argument('--bound', type=float, default=30, help='seconds')
    arguments = parser.parse_args()
    if arguments.verb == 'check':
        return check(arguments.log, arguments.bound * 1000)
    if arguments.verb == 'cases':
        return check_cases(arguments.logs)
    for when, action in schedule(arguments.seed, arguments.seconds, arguments.hosts, arguments.programs):
        print(when, action)
    return 0


if __name__ == '__main__':
    sys.exit(main())

/*
 * tests/model/claims.pml - the claim protocol, with recall, loss of the session and death of the keeper, for spin
 *
 * Answers for: every schedule of a small bounded system, where the design's claims.py tries random schedules of a
 *              larger one.  Properties:
 *                safety    never do two hosts run programs that hold the same range (assertions in `believe`, `run`)
 *                progress  never does the system stop while somebody still waits (spin's invalid end states), and it
 *                          can't go round for ever either: every program here is finite, so any cycle is a fault
 *                          (spin's non-progress cycles; there is no progress label on purpose)
 * Does not:    model shared mode, deadlock detection, EDEADLK, groups, time.  Time appears once, as an assumption:
 *              the server deletes a session's claims only after the host has turned its lease off and has stopped its
 *              holders.  That the keeper manages so before the deadline is keeper/lease.h's arithmetic, and that
 *              somebody does it while the keeper is dead is the guard's duty; neither is proved here.
 * Specification: design.md sections 4 (I1-I7), 5 and 8; keeper/page.h for the order of access to the page.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two models share the claim protocol (`acquire`):
 *
 *   queue  (default)  a program is one with its keeper: it creates a claim, believes, shrinks, deletes.  All of the
 *                     queue: greed, overtaking by owners and by tries, R1-R7; LOSSES hosts lose their sessions.
 *   page   (-DPAGE)   program, shared page, kernel lock and keeper are apart: I4, covered relock without a
 *                     conversation, pins, recall, kept cover, LOSSES sessions lost, CRASHES keepers killed and resumed,
 *                     and on the hosts STRANGERS (a bitmap) a program that locks and knows nothing of the library.
 *
 * Grain: one ZooKeeper operation, one access to the page and one system call are each one atomic step.  A reader sees
 * children and data by separate operations.  A claim is a number (its place in the queue) with host, ranges (a bitmap),
 * overtaken_by (a bitmap of claims) and confirmed.  A set that is not compared with an old version (unmark,
 * bump, shrink) stands for a loop of versioned sets that has succeeded: it never loses another's mark.
 *
 * The steps are named as the design and the code name them: create, look, mark, verify, confirm, unmark, bump, wait,
 * grant, recall, shrink, delete, expire, resume.
 *
 * Versions are not counted: `fresh` and its like say for each host which of its copies are still the newest.  That is
 * all a versioned set and a watch ask, it is exact (no wrapping around), and it keeps the number of states finite.
 *
 * Rules beyond claims.py that this model needs to be clean are R8 (below), the random delay before an overtaking is
 * started again (CALM, below), a recall that holds up only the ranges it takes (RECALL_BY_SLOT), no answer without a
 * lease (see `grant`), and a new keeper that looks again instead of inferring a grant (RESUME_TRUSTS_KERNEL).
 *
 * What is varied: HOSTS (2 to 4), SEQS (claims in all, at most 8), ROUNDS, MENU0 MENU1 ... (what each host's program may
 * choose to do, see `choose` and `Program`), LOSSES, CRASHES, UNLUCKY, STRANGERS, PATIENCE (waiters become owners),
 * GREEDY_OWNER (claims that are wider than what is asked for, whatever the queue), and one switch per rule that leaves
 * the rule out (NO_... and a few more).  tests/model/check.sh holds the configurations that are run.
 */

#ifndef HOSTS
#define HOSTS 3
#endif
#ifndef SEQS
#define SEQS 6
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef STRANGERS
#define STRANGERS 0
#endif
#ifndef UNLUCKY
#define UNLUCKY 15 /* bitmap of the hosts that losses and crashes may strike */
#endif
#ifndef MENU1
#define MENU1 MENU0
#endif
#ifndef MENU2
#define MENU2 MENU0
#endif
#ifndef MENU3
#define MENU3 MENU0
#endif

#define BIT(n) (1 << (n))
#if SEQS > 7
#define SET short /* a set of claims */
#else
#define SET byte
#endif
#define ALL_RANGES 3 /* the whole file; range 3 (bit 2) is asked for in a few configurations only */
#define MAY(choice) ((h == 0 && (MENU0 & BIT(choice))) || (h == 1 && (MENU1 & BIT(choice))) \
	|| (h == 2 && (MENU2 & BIT(choice))) || (h == 3 && (MENU3 & BIT(choice))))

/* how a request goes about a waiter in its way */
#define FIFO 0  /* waits its turn */
#define OWNER 1 /* its host holds something of this lock: may overtake, else waits */
#define TRY 2   /* non-blocking: may overtake, else is refused */

typedef Znode {
	unsigned host : 2;
	unsigned ranges : 4;
	SET overtaken_by;
	bit confirmed
}

/* what a keeper has read of a claim, and what it knows from the claim's name */
typedef Copy {
	unsigned host : 2;
	unsigned ranges : 4;
	SET overtaken_by
}

Znode z[SEQS + 1];     /* z[n] is claim n; [0] is unused */
SET live;             /* the children: BIT(n) for each claim that exists */
byte last;             /* the sequence counter */
byte losses = LOSSES;  /* how many sessions may still be lost */
SET fresh[HOSTS];     /* what each host has read with a watch and has not changed since */
SET fresh_proof[HOSTS]; /* the same for its last reading, as a proof (an overtaker of a waiter is read once more) */
SET fresh_overtaker[HOSTS]; /* the same for a waiter's overtaker that was not confirmed */
bit dead[HOSTS];       /* the server has expired the session and its keeper has not begun another */

#define EXISTS(n) (live & BIT(n))
#define CONFLICT(a, b) (a.host != b.host && (a.ranges & b.ranges))

/* Where nothing can be lost, no escape: spin reduces more without. */
#if LOSSES
#define ESCAPE_DEAD unless { dead[h] }
#define ESCAPE_KILLED unless { killed[h] }
#else
#define ESCAPE_DEAD
#define ESCAPE_KILLED
#endif
#if LOSSES || CRASHES
#define ESCAPE_LOST(machine) unless { lost[h] & machine }
#else
#define ESCAPE_LOST(machine)
#endif

#define RUN_UNLUCKY(machine) \
	if \
	:: UNLUCKY & BIT(h) -> run machine(h) \
	:: else \
	fi;

/* lowest - n becomes the lowest member of a set that is not empty */
inline lowest(n, set)
{
	n = 1;
	do
	:: set & BIT(n) -> break
	:: else -> n++
	od
}

/* changed - claim n has another version now: nobody's copy is the newest, watches fire */
inline changed(n)
{
	fresh[0] = fresh[0] & ~BIT(n);
	fresh_proof[0] = fresh_proof[0] & ~BIT(n);
	fresh_overtaker[0] = fresh_overtaker[0] & ~BIT(n);
	fresh[1] = fresh[1] & ~BIT(n);
	fresh_proof[1] = fresh_proof[1] & ~BIT(n);
	fresh_overtaker[1] = fresh_overtaker[1] & ~BIT(n)
#if HOSTS > 2
	; fresh[2] = fresh[2] & ~BIT(n);
	fresh_proof[2] = fresh_proof[2] & ~BIT(n);
	fresh_overtaker[2] = fresh_overtaker[2] & ~BIT(n)
#endif
#if HOSTS > 3
	; fresh[3] = fresh[3] & ~BIT(n);
	fresh_proof[3] = fresh_proof[3] & ~BIT(n);
	fresh_overtaker[3] = fresh_overtaker[3] & ~BIT(n)
#endif
}

inline create(n, what)
{
	last++;
	assert(last <= SEQS); /* else the configuration is too small */
	n = last;
	z[n].host = h;
	z[n].ranges = what;
	live = live | BIT(n)
}

/* delete - and leave no trace, so that states which differ in dead claims only are one state */
inline delete(n)
{
	z[n].host = 0;
	z[n].ranges = 0;
	z[n].overtaken_by = 0;
	z[n].confirmed = 0;
	changed(n);
	live = live & ~BIT(n)
}

/* expire_claims - the server ends the session of host `who`: all its claims at once, in one transaction */
inline expire_claims(who, n)
{
	n = 1;
	do
	:: n <= SEQS ->
		if
		:: EXISTS(n) && z[n].host == who -> delete(n)
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0
}

/* What one acquire needs to know; `s` is its claim, `how` its manner, `granted` the result. */
#define ACQUIRE_LOCALS \
	Copy c[SEQS + 1]; \
	byte proof[SEQS + 1]; \
	byte s, how, t, w, need; \
	SET todo, seen, blockers, overtakers, unproven, candidates, marked, mine_overtaken_by, watched, watched_overtakers; \
	bit granted, sound

inline forget_copies()
{
	t = 1;
	do
	:: t <= SEQS ->
		c[t].host = 0;
		c[t].ranges = 0;
		c[t].overtaken_by = 0;
		proof[t] = 0;
		t++
	:: else -> break
	od;
	t = 0;
	w = 0;
	todo = 0;
	seen = 0;
	blockers = 0;
	overtakers = 0;
	unproven = 0;
	candidates = 0;
	marked = 0;
	sound = 0;
	mine_overtaken_by = 0
}

inline forget()
{
	forget_copies();
	watched = 0;
	watched_overtakers = 0;
	fresh[h] = 0;
	fresh_proof[h] = 0;
	fresh_overtaker[h] = 0
}

/* get - read claim t, with a watch; nothing if it is gone */
inline get()
{
	if
	:: EXISTS(t) ->
		seen = seen | BIT(t);
		c[t].host = z[t].host;
		c[t].ranges = z[t].ranges;
		c[t].overtaken_by = z[t].overtaken_by;
		fresh[h] = fresh[h] | BIT(t);
		fresh_proof[h] = fresh_proof[h] | BIT(t)
	:: else
	fi
}

/* next - t becomes the lowest member of todo and leaves it */
inline next(n)
{
	lowest(n, todo);
	todo = todo & ~BIT(n)
}

#ifdef NO_R7
#define MINE_CHANGED false
#else
#define MINE_CHANGED !(fresh[h] & BIT(s))
#endif

/*
 * R8: whoever is refused a proof, because the waiter has itself overtaken it (R1) or because it is not confirmed (R2),
 * waits for a change of that proof as well.  Not in claims.py, which stands still without it:
 *
 *     A marks B's claim 2 with a proof that has just gone; 2 was granted already
 *     B, with claim 5, reads 2: marked by 4, so no proof that 4 waits (R1)
 *     A unmarks 2, bumps 4
 *     B reads 4, after the bump, and waits for a change of 4
 *     A looks again and waits with 4 for 2; B's program, which holds 2, waits for 5: for ever
 */
#ifdef NO_R8
#define WATCHES 0
#define R8_CHANGED false
#else
#define WATCHES watched
#define R8_CHANGED ((fresh_overtaker[h] & watched_overtakers) != watched_overtakers)
#endif

#ifdef NO_R1
#define R1_ALLOWS true
#else
#define R1_ALLOWS (!(c[t].overtaken_by & BIT(w)))
#endif

#if defined(NO_R2_CONFIRMED)
#define R2_ALLOWS true
#else
#define R2_ALLOWS z[t].confirmed
#endif

#ifdef NO_R6
#define BUMPS false
#else
#define BUMPS true
#endif

#ifdef NO_R4
#define R4_ALLOWS true
#else
#define R4_ALLOWS (fresh[h] & BIT(s))
#endif

/*
 * Two overtakers that mark each other's proofs can take their marks back and start again for ever, in step.  The code
 * must therefore wait for a random time before it starts again.  CALM models what that gains: sooner or later one of
 * those that start again does so alone, when everybody else has gone to sleep.  Whom its own marks wake is not held back.
 * It hides schedules, so it serves the check for progress only.
 */
#ifdef CALM
byte calm;  /* 1 + the host that starts again alone; 0: nobody */
byte awake; /* the hosts that look */
#define AWAKE awake = awake | BIT(h);
#define ASLEEP awake = awake & ~BIT(h);
#define CALM_BEGIN \
	d_step { awake = awake & ~BIT(h) }; \
	d_step { awake == 0 && (calm == 0 || calm == h + 1) -> calm = h + 1; awake = awake | BIT(h) };
#define CALM_END d_step { calm = (calm == h + 1 -> 0 : calm) };
#define CALM_DECIDED ; calm = (calm == h + 1 -> 0 : calm); awake = awake & ~BIT(h)
#else
#define AWAKE
#define ASLEEP
#define CALM_BEGIN
#define CALM_END
#define CALM_DECIDED
#endif

/* Who waits for his turn may lose patience at any moment, and then goes about it as an owner, whatever he holds. */
#ifdef PATIENCE
#define IMPATIENCE \
	if \
	:: how == FIFO -> how = OWNER \
	:: skip \
	fi;
#else
#define IMPATIENCE
#endif

#ifdef GREEDY_OWNER
#define NARROW \
	if \
	:: need && z[s].ranges != need -> \
		d_step { z[s].ranges = need; changed(s); need = 0; forget() }; \
		goto look \
	:: else \
	fi;
#else
#define NARROW
#endif

/*
 * acquire - look, and then grant, overtake or wait until one of them comes true
 *
 * The rules are claims.py's, step by step; see there for why.  A claim that was made wider than `need`, if that is not 0,
 * asks for no more before it waits or is refused.
 */
inline acquire()
{
	AWAKE
	granted = 0;
look:
	IMPATIENCE
	todo = live & (BIT(s) - 1); /* get_children */
	do
	:: d_step { todo -> next(t); get(); t = 0 }
	:: else -> break
	od;
	atomic { /* its own claim, last */
		fresh[h] = fresh[h] | BIT(s);
		d_step {
			mine_overtaken_by = z[s].overtaken_by;
			todo = mine_overtaken_by;
			t = 1;
			do
			:: t < s ->
				if
				:: (seen & BIT(t)) && CONFLICT(c[t], z[s]) -> blockers = blockers | BIT(t)
				:: else
				fi;
				t++
			:: else -> break
			od;
			t = 0
		}
	};
	do
	:: d_step { todo ->
		next(t);
		if
		:: EXISTS(t) && CONFLICT(z[t], z[s]) -> overtakers = overtakers | BIT(t); get()
		:: else
		fi;
		t = 0 }
	:: else -> break
	od;

	if
	:: blockers == 0 && overtakers == 0 ->
#ifndef NO_R3
		if
		:: mine_overtaken_by -> /* R3: its own claim again, after its overtakers */
			atomic {
				if
				:: !(fresh[h] & BIT(s)) ->
					d_step { forget() };
					goto look
				:: else
				fi;
				granted = 1;
				goto decided
			}
		:: else
		fi;
#endif
		granted = 1;
		goto decided
	:: else
	fi;

	unproven = blockers;
	if
	:: how != FIFO && overtakers == 0 ->
		d_step { unproven = 0; marked = blockers }; /* `marked` serves as the list of waiters still to be proved */
		do
		:: marked ->
			d_step {
				lowest(w, marked);
				marked = marked & ~BIT(w);
				t = 1;
				do
				:: t < w ->
					if
					:: (seen & BIT(t)) && CONFLICT(c[t], c[w]) ->
						if
						:: R1_ALLOWS -> candidates = candidates | BIT(t)
						:: else -> watched = watched | BIT(t) /* R8 */
						fi
					:: else
					fi;
					t++
				:: else -> break
				od;
				t = 0
#ifndef NO_R2
				; todo = c[w].overtaken_by
#endif
			};
			do
			:: d_step { todo -> /* R2: its confirmed overtakers hold, so they prove */
				next(t);
				if
				:: EXISTS(t) && R2_ALLOWS ->
					fresh_proof[h] = fresh_proof[h] | BIT(t);
					if
					:: CONFLICT(z[t], c[w]) -> candidates = candidates | BIT(t)
					:: else
					fi
				:: EXISTS(t) && !R2_ALLOWS -> /* R8 */
					watched_overtakers = watched_overtakers | BIT(t);
					fresh_overtaker[h] = fresh_overtaker[h] | BIT(t)
				:: else
				fi;
				t = 0 }
			:: else -> break
			od;
			atomic {
				if
				:: candidates ->
					t = 1; /* any of them will do, so all are tried */
					do
					:: candidates & BIT(t) -> break
					:: candidates >> (t + 1) -> t++
					od;
					proof[w] = t;
					d_step { t = 0; w = 0; candidates = 0 }
				:: else ->
					d_step { unproven = unproven | BIT(w); w = 0 }
				fi
			}
		:: else -> break
		od;
		if
		:: unproven == 0 ->
			d_step { sound = 1; todo = blockers };
			do
			:: d_step { todo && sound -> /* mark, by versioned set */
				next(w);
				if
				:: EXISTS(w) && (fresh_proof[h] & BIT(w)) ->
					z[w].overtaken_by = z[w].overtaken_by | BIT(s);
					changed(w);
					fresh_proof[h] = fresh_proof[h] | BIT(w); /* it may also be a proof */
					marked = marked | BIT(w)
				:: else -> sound = 0
				fi;
				w = 0 }
			:: else -> break
			od;
#ifndef NO_R5
			todo = (sound -> blockers : 0);
			do
			:: d_step { todo && sound -> /* verify, R5: the proofs still stand, after the marks */
				next(w);
				t = proof[w];
				if
				:: EXISTS(t) && (fresh_proof[h] & BIT(t))
				:: else -> sound = 0
				fi;
				t = 0;
				w = 0 }
			:: else -> break
			od;
#endif
			if
			:: sound -> /* confirm, R4: by versioned set on its own claim */
				atomic {
					if
					:: R4_ALLOWS ->
						d_step { z[s].confirmed = 1; changed(s); granted = 1 };
						goto decided
					:: else -> sound = 0
					fi
				}
			:: else
			fi;
			todo = marked;
			do
			:: d_step { todo -> /* unmark: take the marks back ... */
				next(w);
				if
				:: EXISTS(w) -> z[w].overtaken_by = z[w].overtaken_by & ~BIT(s); changed(w)
				:: else
				fi;
				w = 0 }
			:: else -> break
			od;
			if
			:: marked && BUMPS -> d_step { changed(s) } /* bump, R6: ... and tell those that wait for this claim */
			:: else
			fi;
			d_step { forget() };
			CALM_BEGIN
			goto look
		:: else
		fi
	:: else
	fi;

	CALM_END
	NARROW
	if
	:: how == TRY ->
		granted = 0;
		goto decided
	:: else
	fi;
	d_step { /* wait: of all that was read, the version of one claim and of its own remain */
		if
		:: overtakers -> lowest(t, overtakers)
		:: else ->
			todo = (unproven -> unproven : blockers);
			t = SEQS;
			do
			:: todo & BIT(t) -> break
			:: else -> t--
			od
		fi;
		watched = WATCHES | BIT(t);
		forget_copies();
		ASLEEP
		fresh[h] = fresh[h] & (watched | BIT(s));
		fresh_proof[h] = 0
	};
	d_step { (fresh[h] & watched) != watched || R8_CHANGED || MINE_CHANGED -> AWAKE forget() };
	goto look;
decided:
	atomic { skip; d_step { forget() CALM_DECIDED } }
}

#ifndef PAGE
/* ------------------------------------------------------------------------------------------------ queue */

byte held[HOSTS];   /* ranges that the host believes it holds, and so do its programs */
bit stopped[HOSTS]; /* the lease has run out: the host believes nothing and stops its programs */

inline believe(what)
{
	d_step {
		held[h] = held[h] | what;
		t = 0;
		do
		:: t < HOSTS ->
			assert(t == h || !(held[t] & held[h]));
			t++
		:: else -> break
		od;
		t = 0
	}
}

/*
 * choose - what the program does: MENUn has a bit for each line that host n may take
 *
 * It asks for `want` (a bitmap of ranges) and, holding that, for `more`; `more` lies above `want`, so there is no true
 * deadlock.  With `greedy` it claims the whole file when it finds the queue empty, and shrinks to `want` afterwards;
 * with `shrinks` it gives one of its two ranges back before the other; with `greedy_owner`, holding `want`, it claims the
 * whole file for `more`, whatever the queue, and with `greedy_try` it tries so for `want`.
 */
inline choose()
{
	if
	:: MAY(0) -> want = 1
	:: MAY(1) -> want = 2
	:: MAY(2) -> want = 3
	:: MAY(3) -> want = 1; how = TRY
	:: MAY(4) -> want = 2; how = TRY
	:: MAY(5) -> want = 3; how = TRY
	:: MAY(6) -> want = 1; more = 2
	:: MAY(7) -> want = 1; more = 2; how = TRY
	:: MAY(8) -> want = 1; more = 2; greedy = 1
	:: MAY(9) -> want = 1; greedy = 1
	:: MAY(10) -> want = 2; greedy = 1
	:: MAY(11) -> want = 4
	:: MAY(12) -> want = 7
	:: MAY(13) -> want = 6
	:: MAY(14) -> want = 1; more = 4
	:: MAY(15) -> want = 1; more = 6
	:: MAY(16) -> want = 2; more = 4
	:: MAY(17) -> want = 3; more = 4
	:: MAY(18) -> want = 3; shrinks = 1
	:: MAY(19) -> want = 4; how = TRY
	:: MAY(20) -> want = 6; how = TRY
	:: MAY(21) -> want = 7; how = TRY
	:: MAY(22) -> want = 5
	:: MAY(23) -> want = 5; how = TRY
	:: MAY(24) -> want = 1; more = 10
	:: MAY(25) -> want = 6; more = 8
	:: MAY(26) -> want = 1; more = 2; greedy_owner = 1
	:: MAY(27) -> want = 2; greedy_try = 1; how = TRY
	fi
}

proctype Host(byte h)
{
	ACQUIRE_LOCALS;
	byte want, more, first, second, rounds = ROUNDS;
	bit greedy, shrinks, greedy_owner, greedy_try;

again:
	{
		do
		:: rounds ->
			atomic { rounds--; choose() };
			if
			:: greedy -> greedy = (live == 0) /* the queue was empty a moment ago */
			:: else
			fi;
			d_step {
				if
				:: greedy -> create(s, ALL_RANGES)
				:: greedy_try -> create(s, ALL_RANGES); need = want
				:: else -> create(s, want)
				fi;
				first = s
			};
request:
			acquire();
			atomic {
				if
				:: !granted ->
					d_step { delete(s) }
				:: granted && !stopped[h] && second == 0 ->
					believe(z[s].ranges)
				:: granted && !stopped[h] && second ->
					believe(z[s].ranges)
				fi;
				how = 0
			};
			if
			:: !granted -> d_step { more = 0; greedy = 0; shrinks = 0; s = 0; want = 0; first = 0; greedy_try = 0; need = 0 }
			:: else ->
				granted = 0;
				s = 0;
				if
				:: need && (z[first].ranges & ~need) && !second ->
					d_step { held[h] = want; greedy_try = 0; need = 0 };
					d_step { z[first].ranges = want; changed(first) }
				:: need && second && (z[second].ranges & ~need) ->
					d_step { held[h] = want | more; greedy_owner = 0; need = 0 };
					d_step { z[second].ranges = more; changed(second) }
				:: else -> d_step { greedy_try = 0; need = 0 }
				fi;
				if
				:: second == 0 && greedy -> /* recalled at once: keep what is in use */
					d_step { held[h] = want; greedy = 0 };
					d_step { z[first].ranges = want; changed(first) }
				:: else
				fi;
				if
				:: second == 0 && shrinks ->
					d_step { held[h] = 2; shrinks = 0; want = 2 };
					d_step { z[first].ranges = 2; changed(first) }
				:: else
				fi;
				if
				:: second == 0 && more ->
					d_step {
						if
						:: greedy_owner -> create(s, ALL_RANGES); need = more
						:: else -> create(s, more)
						fi;
						second = s; how = OWNER
					};
					goto request
				:: else
				fi;
				/* give back, in either order; stop believing first */
				do
				:: second ->
					held[h] = held[h] & ~more;
					d_step { delete(second); second = 0; more = 0 }
				:: first ->
					held[h] = held[h] & ~want;
					d_step { delete(first); first = 0; want = 0 }
				:: !first && !second -> greedy_owner = 0; break
				od
			fi
		:: else -> break
		od
	} ESCAPE_DEAD;
	if
	:: dead[h] -> /* I7: what the old session had is void */
		d_step {
			forget();
			s = 0; how = 0; granted = 0; want = 0; more = 0; first = 0; second = 0; greedy = 0; shrinks = 0;
			greedy_owner = 0; greedy_try = 0; need = 0;
			dead[h] = 0; stopped[h] = 0
		};
		goto again
	:: else
	fi
}

#if LOSSES
/* The lease runs out: the programs are stopped, and then the server may delete the claims. */
proctype Expiry(byte h)
{
	byte n;

end:
	d_step { losses && !dead[h] -> losses--; held[h] = 0; stopped[h] = 1 };
	d_step { expire_claims(h, n); dead[h] = 1 }
}
#endif

init {
	byte h;

	atomic {
		do
		:: h < HOSTS ->
			run Host(h);
#if LOSSES
			RUN_UNLUCKY(Expiry)
#endif
			h++
		:: else -> break
		od;
		h = 0
	}
}
#endif

#ifdef PAGE
/* ------------------------------------------------------------------------------------------------- page */

/* the shared page: one slot a host; written by the keeper, outlives it */
byte cover[HOSTS];      /* ranges covered for every local program */
bit recalled[HOSTS];    /* RECALLED */
byte generation[HOSTS];
bit lease[HOSTS];       /* "lease_deadline_ns has not passed": one access to the page reads it with the word */

/* the host's kernel */
byte locked[HOSTS];     /* ranges that the host's program has locked */
byte strange[HOSTS];    /* ranges that a program without the library has locked */
bit frozen[HOSTS];      /* on_loss: SIGSTOP */
bit killed[HOSTS];      /* on_loss: SIGKILL */
byte running[HOSTS];    /* ranges whose lock call has succeeded: what must never be on two hosts */

/* the conversation */
#define COVERED 1
#define HANGUP 2
byte asked[HOSTS];      /* ranges that the program asks for */
byte answer[HOSTS];
byte answer_generation[HOSTS];

/* the keeper's memory */
byte table[SEQS + 1];   /* ranges that the keeper of claim n believes granted and not given up; 0: none */
byte giving_up[HOSTS];  /* ranges of the claim under recall: the slot has one bit for the file, the keeper must not */
byte pinned[HOSTS];     /* ranges answered COVERED whose conversation is still open */
bit crashed[HOSTS];
byte lost[HOSTS];       /* state machines that have still to notice that their session or their keeper is gone */
#define REQUEST 1
#define RECALL 2
byte crashes = CRASHES;

#define KERNEL(who) (locked[who] | strange[who])

/* no two hosts run programs on one range; a stopped program does not run */
inline assert_exclusive()
{
	n = 0;
	do
	:: n < HOSTS ->
		assert(n == h || frozen[n] || frozen[h] || !(running[n] & running[h]));
		n++
	:: else -> break
	od;
	n = 0
}

/* publish_cover - the slot after a change of the table; `reduced`: a pinned program must notice as well */
inline publish_cover(reduced)
{
	cover[h] = 0;
	n = 1;
	do
	:: n <= SEQS ->
		if
		:: EXISTS(n) && z[n].host == h -> cover[h] = cover[h] | table[n]
		:: else
		fi;
		n++
	:: else -> break
	od;
	n = 0;
	if
	:: reduced -> generation[h]++
	:: else
	fi
}

/* answer_covered - and remember that the conversation is open: its pin outlasts a recall */
inline answer_covered()
{
	pinned[h] = asked[h];
	asked[h] = 0;
	answer[h] = COVERED;
	answer_generation[h] = generation[h]
}

#ifdef RESUME_TRUSTS_KERNEL /* takes a kernel lock for a proof that the claim was granted */
#define RESUME_GRANTS(n) true
#else
#define RESUME_GRANTS(n) z[n].confirmed
#endif

#ifdef NO_RESUME_GENERATION /* the new keeper publishes that nothing is covered, but raises no generation */
#define RESUME_PUBLISHES cover[h] = 0; recalled[h] = 0;
#else
#define RESUME_PUBLISHES cover[h] = 0; recalled[h] = 0; generation[h]++;
#endif

#define PAGE_COVERS(what) (lease[h] && !recalled[h] && (cover[h] & (what)) == (what))

#ifdef NO_I4_PROGRAM /* the program does not look again */
#define STILL_COVERS(what) true
#else
#define STILL_COVERS(what) (PAGE_COVERS(what) && generation[h] == my_generation)
#endif

/*
 * Program - one lock call after the other; preload/
 *
 * Bits of MENUn: 0-2: range 1, range 2, both; 3: range 1, then range 2 as well, then gives both back.
 */
proctype Program(byte h) provided (!frozen[h])
{
	byte n, want, more, my_generation, rounds = ROUNDS;

	{
		do
		:: rounds ->
			atomic {
				rounds--;
				if
				:: MAY(0) -> want = 1
				:: MAY(1) -> want = 2
				:: MAY(2) -> want = 3
				:: MAY(3) -> want = 1; more = 2
				fi
			};
call:
			if
			:: d_step { PAGE_COVERS(want) -> my_generation = generation[h] }; /* 1. reads state */
				d_step { !(strange[h] & want) -> locked[h] = locked[h] | want }; /* 2. kernel lock */
				atomic {                      /* 3. reads state again */
					if
					:: STILL_COVERS(want) ->
						d_step { running[h] = running[h] | want; assert_exclusive() };
						goto holds
					:: else
					fi
				};
				d_step { locked[h] = locked[h] & ~want } /* undo, and ask */
			:: else
			fi;
ask:
			asked[h] = want;
			atomic {
				if
				:: answer[h] == HANGUP -> d_step { answer[h] = 0; my_generation = 0 }; goto ask /* connects again */
				:: answer[h] == COVERED && !(strange[h] & want) ->
					d_step { answer[h] = 0; my_generation = 0; locked[h] = locked[h] | want }
				fi
			};
			atomic {
				if
				:: lease[h] && generation[h] == answer_generation[h] -> /* a recall takes nothing from a pin */
					d_step { running[h] = running[h] | want; assert_exclusive() }
				:: else ->
					locked[h] = locked[h] & ~want;
					pinned[h] = 0;
					my_generation = 0;
					goto call
				fi
			};
			pinned[h] = 0; /* "done" */
holds:
			my_generation = 0;
			if
			:: more -> atomic { want = more; more = 0; goto call }
			:: else
			fi;
			d_step { running[h] = 0; locked[h] = 0; want = 0 } /* unlock; the keeper sees it */
		:: else -> break
		od
	} ESCAPE_KILLED;
	n = 0;
	d_step { want = 0; more = 0; my_generation = 0; rounds = 0 }
}

#ifdef RECALL_BY_SLOT /* a recall of one range makes requests for every other range of the file wait */
#define CAN_ANSWER (!recalled[h] && (cover[h] & asked[h]) == asked[h])
#else
#define CAN_ANSWER ((cover[h] & ~giving_up[h] & asked[h]) == asked[h])
#endif

/* Request - the keeper's state machine of one request: create, look ... grant.  It also resumes; keeper/ */
proctype Request(byte h)
{
	ACQUIRE_LOCALS;
	byte n;
	SET mine;
	bit greedy, resuming;

again:
	{
		t = 0;
end:
		do
		:: d_step { !resuming && asked[h] && lease[h] && CAN_ANSWER -> answer_covered() }
		:: atomic { !resuming && asked[h] && (cover[h] & asked[h]) != asked[h] -> greedy = (live == 0) };
			d_step {
				if
				:: greedy -> create(s, ALL_RANGES)
				:: else -> create(s, asked[h])
				fi;
				greedy = 0;
				how = (cover[h] -> OWNER : FIFO)
			};
			goto request
		:: d_step { resuming && mine -> lowest(s, mine); mine = mine & ~BIT(s) };
			atomic {
				if
#ifndef RESUME_TRUSTS_KERNEL
				:: KERNEL(h) & z[s].ranges && !z[s].confirmed -> goto request /* look again */
#endif
				:: KERNEL(h) & z[s].ranges && RESUME_GRANTS(s) -> granted = 1; goto grant
				:: else -> d_step { delete(s); s = 0 } /* kept, or nobody's any more */
				fi
			}
		:: resuming && !mine -> resuming = 0
		od;
request:
		acquire();
grant:
		/*
		 * No answer without a lease: the program would refuse it, undo and ask again, its claim be recalled as
		 * unused, and another be created, over and over until the lease is back.
		 */
		atomic {
			lease[h];
			d_step {
				table[s] = z[s].ranges;
				publish_cover(false);
				if
				:: !resuming -> answer_covered()
				:: else
				fi;
				s = 0;
				how = 0;
				granted = 0
			}
		};
		goto end
	} ESCAPE_LOST(REQUEST);
	n = 0;
	d_step { forget(); s = 0; how = 0; granted = 0; greedy = 0; mine = 0; resuming = 0; lost[h] = lost[h] & ~REQUEST CALM_DECIDED };
	!dead[h] && !(lost[h] & RECALL);
	if
	:: crashed[h] ->
		d_step { /* a new keeper: first of all, no word that a program has read before may be believed again */
			n = 1;
			do
			:: n <= SEQS ->
				if
				:: EXISTS(n) && z[n].host == h -> mine = mine | BIT(n); table[n] = 0
				:: else
				fi;
				n++
			:: else -> break
			od;
			n = 0;
			RESUME_PUBLISHES
			giving_up[h] = 0;
			pinned[h] = 0;
			if
			:: asked[h] -> asked[h] = 0; answer[h] = HANGUP
			:: else
			fi;
			resuming = 1;
			crashed[h] = 0
		}
	:: else
	fi;
	goto again
}

#define LAST_BUT_ONE (SEQS - 1) /* SEQS is 8 at most */
#define WANTED_BY(n, r) (EXISTS(n) && z[n].host != h && (z[n].ranges & (r)))
#define OTHERS_WANT(r) (WANTED_BY(1, r) || WANTED_BY(2, r) || WANTED_BY(3, r) || WANTED_BY(4, r) || WANTED_BY(5, r) \
	|| WANTED_BY(6, r) || WANTED_BY(LAST_BUT_ONE, r) || WANTED_BY(SEQS, r))
#define MUST_RECALL(n) (EXISTS(n) && z[n].host == h && table[n] && OTHERS_WANT(table[n]))

#ifdef NO_I4_KEEPER /* the look comes first */
#define PUBLISH_RECALLED skip
#else
#define PUBLISH_RECALLED recalled[h] = 1 /* ... publishes the recall */
#endif

/* Recall - the keeper's state machine that gives cover up: recall, then shrink or delete; keeper/ */
proctype Recall(byte h)
{
	byte n, claim, in_use;

again:
	{
		n = 0;
end:
		atomic { /* it learns of the newcomer, and at once ... */
			if
			:: MUST_RECALL(1) -> claim = 1
			:: MUST_RECALL(2) -> claim = 2
			:: MUST_RECALL(3) -> claim = 3
			:: MUST_RECALL(4) -> claim = 4
			:: MUST_RECALL(5) -> claim = 5
			:: MUST_RECALL(6) -> claim = 6
			:: SEQS > 7 && MUST_RECALL(LAST_BUT_ONE) -> claim = LAST_BUT_ONE
			:: SEQS > 6 && MUST_RECALL(SEQS) -> claim = SEQS
			fi;
			giving_up[h] = table[claim];
			PUBLISH_RECALLED
		};
		/*
		 * Looks at the kernel's locks.  A look that finds those in conversation not finished, or the whole claim
		 * in use, changes nothing and is repeated; only the last look is modelled.
		 */
		d_step {
			!(pinned[h] & table[claim]) && (KERNEL(h) & table[claim]) != table[claim] ->
			in_use = KERNEL(h) & table[claim]
		};
#ifdef NO_I4_KEEPER
		recalled[h] = 1;
#endif
		d_step { table[claim] = in_use; publish_cover(true); recalled[h] = 0; giving_up[h] = 0 }; /* stop believing first */
		d_step {
			if
			:: in_use -> z[claim].ranges = in_use; changed(claim) /* shrink */
			:: else -> delete(claim)
			fi;
			in_use = 0;
			claim = 0
		};
		goto end
	} ESCAPE_LOST(RECALL);
	n = 0;
	d_step { claim = 0; in_use = 0; lost[h] = lost[h] & ~RECALL };
	!dead[h] && !crashed[h];
	goto again
}

#ifdef NO_I7_REQUEST /* a request outlives its session */
#define EXPIRE_LOSES lost[h] = RECALL
#else
#define EXPIRE_LOSES lost[h] = REQUEST | RECALL
#endif

#if LOSSES
/* Session - the lease runs out; then the server has kept the session after all, or has expired it; keeper/ */
proctype Session(byte h)
{
	byte n;

end:
#ifdef NO_LEASE_FIRST /* looks for holders while new ones may still come */
	d_step { losses -> losses--; frozen[h] = (locked[h] != 0) };
	lease[h] = 0;
#else
	d_step { losses -> losses--; lease[h] = 0 };
	d_step { frozen[h] = (locked[h] != 0) };
#endif
	if
	:: d_step { lease[h] = 1; frozen[h] = 0; assert_exclusive() } /* a set was acknowledged */
	:: d_step { expire_claims(h, n); dead[h] = 1; EXPIRE_LOSES }; /* expire: the server */
		d_step { /* expire: the keeper, I7 */
#ifndef NO_I7
			n = 1;
			do
			:: n <= SEQS ->
				if
				:: !EXISTS(n) -> table[n] = 0
				:: else
				fi;
				n++
			:: else -> break
			od;
			publish_cover(true);
			recalled[h] = 0;
#endif
			giving_up[h] = 0;
			pinned[h] = 0
		};
		d_step {
			if
			:: frozen[h] ->
				locked[h] = 0;
				running[h] = 0;
				asked[h] = 0;
				answer[h] = 0;
				killed[h] = 1;
				frozen[h] = 0
			:: else
			fi
		};
		d_step { !lost[h] -> lease[h] = 1; dead[h] = 0 } /* a new session */
	fi
}
#endif

#if CRASHES
/* Crash - kill -9 of the keeper: claims, page, kernel locks and programs stay as they are */
proctype Crash(byte h)
{
end:
	d_step { crashes && !crashed[h] && !dead[h] -> crashes--; crashed[h] = 1; lost[h] = REQUEST | RECALL }
}
#endif

#if STRANGERS
/* Stranger - a local program without the library; it excludes our programs through the kernel */
proctype Stranger(byte h)
{
	if
	:: d_step { !(locked[h] & 1) -> strange[h] = 1 }
	:: d_step { !(locked[h] & 2) -> strange[h] = 2 }
	:: skip
	fi;
	strange[h] = 0
}
#endif

init {
	byte h;

	atomic {
		do
		:: h < HOSTS ->
			lease[h] = 1;
			run Program(h);
			run Request(h);
			run Recall(h);
#if LOSSES
			RUN_UNLUCKY(Session)
#endif
#if CRASHES
			RUN_UNLUCKY(Crash)
#endif
#if STRANGERS
			if
			:: STRANGERS & BIT(h) -> run Stranger(h)
			:: else
			fi;
#endif
			h++
		:: else -> break
		od;
		h = 0
	}
}
#endif

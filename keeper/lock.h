/*
 * keeper/lock.h - one cluster lock as this host sees it: files, claims, demands
 *
 * Answers for: who of this host may lock now, who waits, and what is given back to the cluster.
 * Does not:    speak the socket's protocol (server.c), nor the queue's (claim.c), nor look at the kernel (file.c).
 * Threads:     the loop's.
 * Specification: design sections 4 to 6.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lock is stepped (zkf_lock_step) whenever something has happened to it; a step looks at everything and is idempotent:
 *
 *     1. recall   if another host wants what we have: publish RECALLED, look at the kernel, shrink or delete claims
 *     2. demands  (the programs' requests): each is answered, or waits for a claim
 *     3. claims   nobody waits for: deleted;  4. published state, timers, the end of an unused lock
 */
#ifndef ZKF_LOCK_H
#define ZKF_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "../mapping/config.h"
#include "../mapping/name.h"
#include "claim_text.h"
#include "holders.h"
#include "loop.h"
#include "ranges.h"
#include "wire.h"
#include "zk.h"

struct zkf_claim;
struct zkf_file;
struct zkf_demand;
struct zkf_token_ask;

/* Another host's claim, from its name in the queue's list. */
struct zkf_follower {
	int64_t sequence;
	int64_t start, end;
	uint8_t mode;
	bool nonblock;
};

struct zkf_lock {
	/* Written when the lock is made. */
	struct {
		uint32_t kind;                     /* enum zkf_kind, or ZKF_GROUP */
		char name[ZKF_NAME_BYTES_MAX + 1]; /* encoded */
	} key;
	char *directory; /* znode */
	UT_hash_handle hh;

	/* The rule's options, renewed by every demand. */
	enum zkf_on_loss on_loss;
	int64_t keep_ns;

	struct zkf_file *files;
	struct zkf_claim *claims;
	struct zkf_demand *demands, **demands_last; /* waiting or pinned, in order of arrival */

	/* Our belief about the queue. */
	struct zkf_follower *followers;
	size_t follower_count;
	bool view_stale;     /* a watch fired, and no list was sent since */
	uint32_t view_fired; /* how many have */
	struct zkf_zk_watch child_watch, bell_watch;
	struct zkf_zk_op *list_op, *bell_op;

	bool recalled;    /* another host wants what we have */
	bool giving_back; /* keep is over: give back what is not in use */
	bool reduced;     /* cover went since the state was published */
	bool told;        /* the holder has been written into the claim, for people */
	int64_t recalled_since_ns;
	struct zkf_timer poll_timer; /* look at the kernel again */
	int64_t poll_ns;             /* its present interval */
	struct zkf_timer relist_timer;
	struct zkf_timer keep_timer;

	int64_t tidy_due_ns; /* groups: not before, idle files are sought again */

	struct zkf_lock *newer, *older; /* in the order of use, for all we know of it */

	bool dirty; /* in the list of locks to be stepped */
	struct zkf_lock *next_dirty;

	struct zkf_token_ask *token_asks; /* of token.c */
};

enum zkf_demand_state {
	ZKF_DEMAND_WAITING,
	ZKF_DEMAND_PINNED, /* answered COVERED, conversation open: nothing of its cover may go */
	ZKF_DEMAND_SOFT,   /* answered COVERED under a recall: if cover goes, the client finds out by the generation */
};

struct zkf_demand {
	struct zkf_demand *next, **at; /* in lock->demands */
	struct zkf_lock *lock;
	struct zkf_file *file;
	struct zkf_claim *claim; /* waited for, or NULL */
	enum zkf_demand_state state;
	enum zkf_op op; /* LOCK or GETLK */
	uint8_t mode;
	bool held; /* the kernel lock is taken already: confirm or refuse */
	bool nonblock;
	bool owner_holds;   /* what it asks for is held by its owner already */
	bool many_own;      /* records: its owner holds more of the range than could be put back exactly */
	bool process_holds; /* its process holds something of this lock */
	bool patience_over;
	bool waited; /* counted as a wait */
	enum zkf_unavailable unavailable;
	int32_t pid, tid;
	struct zkf_thread thread; /* who asks, in our own pid namespace; task 0: not to be told */
	int32_t fd;               /* the number of its descriptor, for all we know */
	uint8_t own_mode;         /* groups: what its thread holds of the group; as of the last zkf_holds_conflict */
	int32_t way_pid; /* groups, refused.h: somebody of this host who is in the way, and his mode; 0: not known; -1: a description */
	uint8_t way_mode;
	int64_t way_start, way_end;     /* what he has */
	bool in_the_way;                /* what the last zkf_holds_conflict has found */
	bool another_thread;            /* groups: what its description holds is another thread's */
	bool description_locked;        /* groups: something is held through the very description that it asks with */
	int64_t start, end;             /* groups: the whole, whatever was asked, ... */
	int64_t asked_start, asked_end; /* ... which is this */
	int64_t arrived_ns;
	bool deadlocked; /* found to be the youngest wait of a cycle: to be failed by the next step */
	int convert_fd;  /* a flock conversion that would block: the program's description, to unlock it by; else -1 */
	/* Where the kernel refuses to lock the file: refused.h */
	bool refused;             /* it has been told so */
	bool in_doubt;            /* who is in the way may have ended */
	bool noted;               /* it has what it asked for, unless it ends now, ... */
	struct zkf_ranges before; /* ... when its owner has this again */
	int owner_fd;             /* a duplicate of the program's descriptor; -1: none */
	bool posix;               /* the owner is a process: it can be part of a deadlock that fcntl(2) must report */
	uint64_t number;          /* of this wait, unique in this keeper */
	int64_t wait_key_ms;      /* the wait's start, wall clock: the youngest wait of a cycle is the victim */
	struct zkf_timer deadlock_timer;
	uint64_t probe_round;           /* of deadlock.c: passed already */
	int64_t deadlock_ns, probed_ns; /* the present interval; when it was last looked for */
	struct zkf_timer timer;         /* non-blocking: the answer is due; blocking: patience is over */
	struct zkf_timer waiting_timer; /* of waiting.c: people are told */
	int64_t waiting_since_ns;
	struct zkf_zk_op *waiting_op;
	/* Says WAITING to who wants to know, and nothing has changed; else NULL. */
	void (*tell)(struct zkf_demand *demand, const struct zkf_reply *reply);
	int64_t caller_due_ns; /* when it is next looked whether the caller lives */
	/* Ends the conversation, from the loop's next round on; implemented by server.c. */
	void (*hang_up)(struct zkf_demand *demand);
	/* Answers; implemented by server.c.  After any but COVERED the demand is gone. */
	void (*answer)(struct zkf_demand *demand, const struct zkf_reply *reply);
};

/* zkf_lock_get - find or make; NULL when memory is out */
struct zkf_lock *zkf_lock_get(uint32_t kind, const char *encoded_name);

/* zkf_lock_init - how long a non-blocking call may take, ms */
void zkf_lock_init(int connect_timeout_ms);

/* zkf_lock_add - a program's demand arrives, its fields filled in; it is answered from the lock's next step */
void zkf_lock_add(struct zkf_lock *lock, struct zkf_demand *demand);

/* zkf_lock_remove - the client hung up, or it has been answered */
void zkf_lock_remove(struct zkf_demand *demand);

/*
 * zkf_lock_refused - after COVERED: the program's kernel refuses to lock the file
 *
 * passed_fd  the program's descriptor once more
 */
void zkf_lock_refused(struct zkf_demand *demand, int passed_fd);

/* zkf_lock_ready - would a demand like this be granted at once, whoever asks? */
bool zkf_lock_ready(const struct zkf_lock *lock, int64_t start, int64_t end, uint8_t mode);

/* zkf_lock_touch - step this lock after the current event */
void zkf_lock_touch(struct zkf_lock *lock);
/* zkf_lock_hint - something may have been unlocked: look now, and again soon */
void zkf_lock_hint(struct zkf_lock *lock);
void zkf_lock_touch_all(void);
/* zkf_lock_step_dirty - the loop's deferred work */
void zkf_lock_step_dirty(void);

/*
 * zkf_lock_give_back_some - a table or the session is full, or nearly: return what is kept and not in use
 *
 * Least recently used first: by requests, since what the page alone grants is not seen here.
 */
void zkf_lock_give_back_some(void);

/* zkf_lock_give_back_of - the same for the locks of one user's files */
void zkf_lock_give_back_of(uid_t account);

/* zkf_kind_directory - where the queues of a kind are, below the root; kind may be ZKF_GROUP */
const char *zkf_kind_directory(uint32_t kind);

/* zkf_lock_find - NULL when it is not known here */
struct zkf_lock *zkf_lock_find(uint32_t kind, const char *encoded_name);

/*
 * zkf_lock_break - take a granted claim away from this host's programs: on_loss first, then its node
 *
 * Returns 0 (also when it is on its way out already), or -ENOENT: no such claim is known.
 */
int zkf_lock_break(struct zkf_lock *lock, const char *claim_name);

/* zkf_lock_view - what a list of the queue says; called by claim.c and by the lock's own lists */
void zkf_lock_view(struct zkf_lock *lock, const struct zkf_zk_result *children);

/* zkf_lock_session_lost - every claim is void */
void zkf_lock_session_lost(void);

/* zkf_lock_covered - do this host's granted claims cover it? */
bool zkf_lock_covered(const struct zkf_lock *lock, int64_t start, int64_t end, uint8_t mode);

/* zkf_lock_any_in_use - does any local program hold any lock?  For an orderly end. */
bool zkf_lock_any_in_use(void);

/* zkf_lock_list - every lock that is known; uthash's order */
struct zkf_lock *zkf_lock_list(void);

#endif

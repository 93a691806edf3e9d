/*
 * keeper/claim.h - one znode of ours in a lock's queue
 *
 * Answers for: creating it, finding out whether it is granted, overtaking, telling what is in use, deleting it.
 * Does not:    know programs or the kernel; keeper/lock.c says what to claim and what to give back.
 * Threads:     the loop's.
 * Specification: design section 5; the executable specification's steps create, look, mark, verify, confirm, unmark, bump,
 *              wait, shrink, delete are named alike here.
 * SPDX-License-Identifier: Apache-2.0
 *
 *                                        +--- lost reply: look for it by its request id ---+
 *                                        v                                                 |
 *   zkf_claim_create --> CREATING --made--> LOOKING --nobody in the way--> GRANTED         |
 *                           |                ^  |  \                                       |
 *                           +----------------|--|---\--------------------------------------+
 *                                    watch   |  |    \--waiters only, proven--> OVERTAKING --> GRANTED
 *                                    fires   |  v                                 |  unsound: unmark, bump
 *                                            WAITING  <---------------------------+  (back to LOOKING)
 *
 *   REFUSED: non-blocking, and the one in the way has said that it is in use.
 *   GONE:    the node is not in the queue any more although we did not delete it: a loss.
 *   BROKEN:  was granted; an operator has taken it away (break.h).  A loss as well, but the node stays until on_loss has
 *            done its work, so that nobody else is let in before.
 *   zkf_claim_delete leads from every state to DELETING, and the end when the server has said so.
 */
#ifndef ZKF_CLAIM_H
#define ZKF_CLAIM_H

#include "lock.h"

enum zkf_claim_state {
	ZKF_CLAIM_CREATING,
	ZKF_CLAIM_LOOKING,
	ZKF_CLAIM_WAITING,
	ZKF_CLAIM_OVERTAKING,
	ZKF_CLAIM_GRANTED,
	ZKF_CLAIM_REFUSED,
	ZKF_CLAIM_GONE,
	ZKF_CLAIM_BROKEN,
	ZKF_CLAIM_DELETING,
};

enum zkf_claim_role {
	ZKF_CLAIM_FIFO,  /* waits its turn */
	ZKF_CLAIM_OWNER, /* of a host that holds something of this lock: may overtake waiters */
	ZKF_CLAIM_TRY,   /* non-blocking: may overtake waiters, never waits for a holder */
};

/* Another claim as a look sees it. */
struct zkf_peer {
	char *name;
	struct zkf_claim_id id;
	struct zkf_claim_data data;
	bool own;  /* of this host */
	bool read; /* data is filled in, or the node was gone */
	bool gone;
	bool opaque; /* foreign, or its data can't be read: it heeds no marks, and must not be written to */
	int32_t version;
	int64_t ctime_ms;       /* when it queued, by the server's clock; 0: not read */
	struct zkf_peer *proof; /* overtaking: why it is not granted */
	bool marked;            /* carries our mark, for all we know */
};

struct zkf_claim {
	struct zkf_lock *lock;
	struct zkf_claim *next; /* of lock->claims */
	enum zkf_claim_state state;
	enum zkf_claim_role role;
	struct zkf_ranges ranges; /* what it wants or holds, as we believe; shrinks before the server is told */
	struct zkf_claim_id id;
	char name[ZKF_CLAIM_NAME_BYTES + 12]; /* with the sequence number once made */
	char *path;                           /* of the node; before it is made: without the sequence number */
	int32_t pid;
	char command[64];

	/* Own data as the server has it. */
	int32_t version;
	bool confirmed;
	char *overtaken_by;
	struct zkf_ranges written;
	int64_t answered, written_answered;
	char people_state[12];
	char *held; /* zkf_claim_data.held */
	bool force_write;
	uint64_t sent_write, done_write; /* zkf_claim_writes() of the last one sent, and of the last one acknowledged */
	int64_t done_zxid;               /* of the latter */
	struct zkf_zk_op *write_op;

	/* The look under way. */
	struct zkf_peer **peers;
	size_t peer_count;
	int self_reads; /* own claim read: 0, 1, 2 times (R3) */
	int32_t self_version;
	bool later_conflict, earlier_conflict;
	struct zkf_peer *target;
	size_t step_index;
	bool rung;
	uint32_t list_fired; /* lock->view_fired when the list was sent */
	struct zkf_zk_op *look_op;
	struct zkf_zk_watch target_watch, self_watch;
	struct zkf_zk_op *gone_op;
	struct zkf_zk_watch gone_watch; /* granted and shared: nothing else would tell that the node was deleted */
	int64_t *overtook; /* sequence numbers of the claims that this one has overtaken: they are behind it */
	size_t overtook_count;
	bool overtook_any; /* it is not known which */

	bool patient;     /* an owner by long waiting only */
	bool adopted;     /* made by a former keeper */
	bool was_granted; /* GONE: it was */
	bool delete_wanted;
	struct zkf_zk_op *delete_op;
	struct zkf_timer retry_timer;

	/* For whom it was refused: what is in the way. */
	struct zkf_range refused_by;
	int32_t refused_pid;
	int refused_error; /* not 0: no holder, but this errno (negative) of ZooKeeper */
};

/*
 * zkf_claim_create - queue up
 *
 * Returns the claim (state CREATING), already in lock->claims; NULL when memory is out, or the paths of this session's
 * nodes would exceed what a server can bear (errno: ENOMEM, ENOSPC).
 */
struct zkf_claim *zkf_claim_create(struct zkf_lock *lock, enum zkf_claim_role role, int64_t start, int64_t end,
                                   uint8_t mode, int32_t pid);

/*
 * zkf_claim_adopt - take over a claim of this host that a former keeper made
 *
 * name, result  the node, and what a get has told of it
 *
 * It is granted if it says so (confirmed), else it looks; nobody of this host waits for it.
 * Returns 0, -EINVAL (not our format) or -ENOMEM.
 */
int zkf_claim_adopt(struct zkf_lock *lock, const char *name, const struct zkf_zk_result *result);

/*
 * zkf_claim_set_owner - from now on it may overtake waiters
 *
 * patient  because it has waited for long, though its host holds nothing of the lock
 */
void zkf_claim_set_owner(struct zkf_claim *claim, bool patient);

/* zkf_claim_shrink - believe less, and tell the server; 0 or -ENOMEM (nothing changed) */
int zkf_claim_shrink(struct zkf_claim *claim, const struct zkf_ranges *limit);

/*
 * zkf_claim_answer - tell everybody up to this sequence number that what we have is in use
 *
 * held  by whom, in zkf_claim_data's format, allocated; taken over.  NULL: not known
 */
void zkf_claim_answer(struct zkf_claim *claim, int64_t sequence, char *held);

/* zkf_claim_tell - for people: held, kept, waiting, and the pid if it is known */
void zkf_claim_tell(struct zkf_claim *claim, const char *state, int32_t pid);

/* zkf_claim_writes - how many writes to claims have been sent by this keeper */
uint64_t zkf_claim_writes(void);

/*
 * zkf_claim_written_since - the zxid of an acknowledged write to a granted claim that was sent after `writes`
 *
 * writes  what zkf_claim_writes returned earlier
 *
 * Returns -1 while there is none; it is then sent, and the lock is touched when it is done.
 */
int64_t zkf_claim_written_since(struct zkf_claim *claim, uint64_t writes);

/* zkf_claim_delete - leave the queue; the claim frees itself when the server has said so */
void zkf_claim_delete(struct zkf_claim *claim);

/* zkf_claims_deleting - how many of this host's claims are on their way out of their queues */
unsigned zkf_claims_deleting(void);

/* zkf_claim_forget - the session is gone, and the node with it: free at once, tell nobody */
void zkf_claim_forget(struct zkf_claim *claim);

#endif

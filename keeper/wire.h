/*
 * keeper/wire.h - the conversation between a program (or the tool) and the keeper
 *
 * Answers for: the bytes on the keeper's socket; nothing else of ours crosses it.
 * Does not:    send or receive; see preload/conversation.c and keeper/server.c.
 * Transport:   AF_UNIX, SOCK_SEQPACKET, <runtime directory>/socket.  One message, one packet, host byte order:
 *              both ends are on one machine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lock, step by step (the client is the program's thread, inside its lock call):
 *
 *     client                                     keeper
 *     LOCK + the program's descriptor      ->    maps the descriptor to a lock, takes part in the queue
 *                                          <-    COVERED (the host may lock; pinned until hang-up)
 *     kernel lock on the descriptor
 *     closes the connection                ->    the pin ends
 *
 * The open connection is the request: a hang-up at any moment withdraws it, so a client that is killed
 * leaves nothing behind.  After COVERED the connection pins the cover: the keeper gives nothing of it away
 * while it is open.  The keeper may be killed in between; the client therefore looks at the page (page.h)
 * once more after the kernel's grant.
 *
 * Where the kernel refuses to lock that file at all, the conversation goes on, and the keeper's word takes the place of
 * the kernel's lock:
 *
 *     kernel refuses (ENOLCK, ENOSYS ...)
 *     REFUSED + the descriptor once more   ->    waits for the other owners of this host, notes the lock for good
 *                                          <-    COVERED (the owner has it, unless the connection ends now)
 *     DONE                                 ->    the owner has it, until it unlocks or ends
 *     closes the connection
 */
#ifndef ZKF_WIRE_H
#define ZKF_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define ZKF_WIRE_MAGIC 0x5a4b4633u /* "ZKF3": a change of any structure here changes the digit */

/* What is locked: on Linux the two kinds never conflict with each other. */
enum zkf_kind { ZKF_FLOCK = 0, ZKF_RECORD = 1 };
/* Beside them, in the keeper only: a lock that both kinds of many files share (keeper/holds.h). */
#define ZKF_GROUP 2u

/* ZKF_SHARED is LOCK_SH or F_RDLCK, ZKF_EXCLUSIVE is LOCK_EX or F_WRLCK. */
enum zkf_mode { ZKF_NONE = 0, ZKF_SHARED = 1, ZKF_EXCLUSIVE = 2 };

enum zkf_op {
	ZKF_OP_LOCK =
		1, /* one descriptor: may this host lock?  WAITING..., then COVERED, BUSY, UNMAPPED, LOCAL, FAILED */
	ZKF_OP_UNLOCK = 2, /* no descriptor, no reply: (dev, ino, kind) was unlocked while a recall was pending */
	ZKF_OP_GETLK = 3,  /* with one descriptor: who is in the way?  One reply: FREE, HELD, UNMAPPED, LOCAL, FAILED */
	ZKF_OP_LIST = 4,   /* no descriptor: ROW..., then END or FAILED */
	ZKF_OP_RELOAD = 5, /* no descriptor: ROW (a line for people)..., then END or FAILED: the old rules stay */
	ZKF_OP_TOKEN = 6,  /* one descriptor: a fencing token of its lock of this kind: TOKEN, FREE, UNMAPPED, FAILED */
	/* For files whose kernel refuses locks (keeper/refused.h): */
	ZKF_OP_REFUSED = 7, /* the descriptor, after LOCK's COVERED: the keeper's lock then; replies as to LOCK */
	ZKF_OP_DONE =
		8, /* no descriptor, no reply, after REFUSED's COVERED: it's the owner's; else hanging up undoes it */
	ZKF_OP_RELEASE = 9, /* with one descriptor: its owner unlocks [start, end].  One reply: END, UNMAPPED, FAILED */
	ZKF_OP_STATUS = 10, /* no descriptor: ROW ("key<TAB>value")..., then END */
	ZKF_OP_BREAK = 11,  /* zkf_break_request, no descriptor: END or FAILED */
};

#define ZKF_FLAG_NONBLOCK 1u /* LOCK_NB, F_SETLK, F_OFD_SETLK: refuse instead of waiting for a holder */
#define ZKF_FLAG_HELD 2u     /* the kernel lock is taken already: confirm that cover never went, or say BUSY */
#define ZKF_FLAG_OFD 4u      /* the owner is the open file description (F_OFD_*), not the process */
#define ZKF_FLAG_FORCE 16u   /* BREAK: delete the node, whatever its holder does */
#define ZKF_FLAG_TELL 8u     /* blocking: WAITING may come, any number of times, before the reply */

/* The last byte that a lock can reach: l_len == 0 means [start, ZKF_RANGE_MAX]. */
#define ZKF_RANGE_MAX INT64_MAX

/*
 * An owner that holds no more pieces than this within a range gets exactly those back when a lock of the range comes to
 * nothing (preload/holdings.h).
 */
#define ZKF_HOLDINGS_MAX 64

struct zkf_request {
	uint32_t magic; /* ZKF_WIRE_MAGIC */
	uint8_t op;     /* enum zkf_op */
	uint8_t kind;   /* enum zkf_kind */
	uint8_t mode;   /* enum zkf_mode; LOCK and GETLK */
	uint8_t flags;  /* ZKF_FLAG_* */
	int32_t tid;    /* the calling thread; the process is what the kernel says of the peer */
	int32_t fd;     /* LOCK and GETLK: the descriptor's number in the program; a hint where to look first */
	int64_t start;  /* first byte, >= 0; flock: 0 */
	int64_t end;    /* last byte, >= start; flock: ZKF_RANGE_MAX */
	uint64_t dev;   /* UNLOCK only: st_dev, st_ino of the file */
	uint64_t ino;
};

/* BREAK: delete a node of a queue.  head.kind may be ZKF_GROUP.  NUL-terminated strings. */
struct zkf_break_request {
	struct zkf_request head;
	char znode[128];
	char claim[160];
	char reason[240];
};

enum zkf_answer {
	ZKF_COVERED = 1,  /* go on to the kernel; `slot` and `state` say which cover this is */
	ZKF_BUSY = 2,     /* another host holds it (non-blocking), or HELD could not be confirmed: undo, ask anew */
	ZKF_UNMAPPED = 3, /* not a cluster lock by the keeper's rules: the kernel's lock alone */
	ZKF_LOCAL = 4,    /* ZooKeeper is out of reach and the rule says unavailable=local: the kernel's lock alone */
	ZKF_FAILED = 5,   /* fail with `error`; `text` says why, for the log */
	ZKF_FREE = 6,     /* GETLK: nobody of another host is in the way.  TOKEN: this host has nothing of the lock */
	ZKF_HELD = 7,     /* GETLK: mode, start, end, pid (negative: of another host) of one lock in the way */
	ZKF_ROW = 8,      /* LIST, STATUS, RELOAD: `text` is one row, see below */
	ZKF_END = 9,      /* LIST: no more rows */
	ZKF_WAITING = 10, /* LOCK with FLAG_TELL, not the reply yet: `text` says for whom it waits */
	ZKF_TOKEN = 11,   /* TOKEN: `state` is the number */
};

#define ZKF_TEXT_BYTES 240

struct zkf_reply {
	uint32_t magic; /* ZKF_WIRE_MAGIC */
	uint8_t answer; /* enum zkf_answer */
	uint8_t mode;   /* HELD */
	uint8_t keep;   /* BUSY: what the description holds is another thread's: no conversion may drop it */
	uint8_t unused;
	int32_t error;             /* FAILED: a positive errno */
	int32_t pid;               /* HELD */
	int64_t start, end;        /* HELD */
	uint64_t page_id;          /* COVERED: which page `slot` means; zkf_page_header.page_id */
	uint64_t state;            /* COVERED: the slot's state word at the grant; TOKEN: the token */
	uint32_t slot;             /* COVERED: index of the file's slot */
	uint32_t text_bytes;       /* bytes of `text` in use, without a NUL */
	char text[ZKF_TEXT_BYTES]; /* FAILED, WAITING: one line for people, no newline */
};

/* A program of 32 bits and the keeper: fixed widths, and nothing that one aligns otherwise than the other. */
_Static_assert(sizeof(struct zkf_request) == 48 && offsetof(struct zkf_request, start) == 16 &&
                       offsetof(struct zkf_request, ino) == 40,
               "the same for every word size");
_Static_assert(sizeof(struct zkf_reply) == 296 && offsetof(struct zkf_reply, start) == 16 &&
                       offsetof(struct zkf_reply, slot) == 48 && offsetof(struct zkf_reply, text) == 56,
               "the same for every word size");

/*
 * A LIST row travels as a zkf_reply with answer ROW whose text may be longer than ZKF_TEXT_BYTES: the packet ends
 * after offsetof(struct zkf_reply, text) + text_bytes bytes, at most ZKF_ROW_BYTES_MAX.  The text is a line of
 * tab-separated fields, '%' and control bytes in a field percent-encoded:
 *   lock's znode, kind (flock|record|group), mode (READ|WRITE), start, end (-1: to the end), host, pid (0: not known),
 *   command, state (held|kept|waiting|recalled|granted), age in ms, path, size of the file (-1: not known), who is in the way
 *   of one that waits (host:pid, or host), name of the claim's node
 * and "-" for a text that is not known.
 */
#define ZKF_ROW_BYTES_MAX 8192u

#endif

/*
 * keeper/zk.h - the ZooKeeper client as the keeper uses it: asynchronous, on one thread
 *
 * Answers for: one handle, its session, operations whose results arrive on the loop, watches.
 * Does not:    know locks.  Heartbeat and lease are keeper/session.c.
 * Threads:     every function here is called on the loop's thread and calls back there.  libzookeeper's two threads only
 *              append to a list and write to an eventfd (zk.c).
 * Specification: zookeeper.h of release 3.8; ZooKeeper Programmer's Guide.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_ZK_H
#define ZKF_ZK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an operation gave.  Pointers live until the callback returns. */
struct zkf_zk_result {
	/*
	 * 0; -ENOENT no node; -EEXIST; -ENOTEMPTY; -ESTALE version differs; -EACCES; -EROFS read-only server;
	 * -EPERM the server does not know whom the node is to belong to;
	 * -ENOTDIR the parent is ephemeral;
	 * -ENOMEM; -EINPROGRESS: the connection was lost and the outcome is unknown (create and versioned set only:
	 * all else is repeated until it is known); -EIO anything else.
	 */
	int error;
	const char *name; /* create: last component of the path that was made */
	const char *data; /* get: NUL-terminated, data_bytes without the NUL */
	int data_bytes;
	int32_t version;  /* get, set */
	int64_t czxid;    /* get */
	int64_t mzxid;    /* get, set */
	int64_t owner;    /* get: session of an ephemeral node, else 0 */
	int64_t ctime_ms; /* get: the server's clock, ms since 1970 */
	int count;        /* children */
	char *const *children;
};

typedef void zkf_zk_done(void *owner, const struct zkf_zk_result *result);

struct zkf_zk_op; /* an operation under way */

/*
 * A watch, held by its owner.  Arm it by passing it to get or children; it fires once, on change or deletion.
 * Passing it again forgets the former arming.  All zero: not armed.  It may fire once for what the read has seen already,
 * also before the read is done.
 */
struct zkf_zk_watch {
	void (*fire)(struct zkf_zk_watch *watch);
	struct zkf_zk_ticket *ticket;
};

#define ZKF_ZK_TROUBLE_BYTES 160

#define ZKF_ZK_PERSISTENT 0
#define ZKF_ZK_EPHEMERAL 1
#define ZKF_ZK_EPHEMERAL_SEQUENTIAL 3
#define ZKF_ZK_CONTAINER 4

/* zkf_zk_init - prepare the eventfd; 0 or a negative errno */
int zkf_zk_init(void);

/*
 * zkf_zk_credentials - "user:password" for the scheme digest, to live as long as the process; before zkf_zk_open
 *
 * Every connection begins with them, and every node that is made from then on belongs to them alone.  Without: everybody
 * may do everything with every node.
 */
void zkf_zk_credentials(const char *text);

/* zkf_zk_refused - the servers want none of the credentials: the handle is dead, the session need not be */
bool zkf_zk_refused(void);

/*
 * zkf_zk_open - start connecting
 *
 * servers     "address:port,...", numeric
 * timeout_ms  session timeout to ask for
 * session_id, password  to resume a session; 0 and NULL for a new one
 * changed     called when the connection's state has changed: look at zkf_zk_connected and zkf_zk_expired
 *
 * Returns 0 or a negative errno of zookeeper_init2.
 */
int zkf_zk_open(const char *servers, int timeout_ms, int64_t session_id, const char password[16],
                void (*changed)(void));

/*
 * zkf_zk_close - end the handle; every operation under way is forgotten without a call, every watch disarmed
 *
 * end_session  true: tell the server (all ephemeral nodes go).  Takes up to 1.5 s with a hung server.
 */
void zkf_zk_close(bool end_session);

bool zkf_zk_connected(void);
/* zkf_zk_trouble - what the last attempt to connect met, one phrase for people; "" when there was none, or it succeeded */
void zkf_zk_trouble(char phrase[ZKF_ZK_TROUBLE_BYTES]);
bool zkf_zk_expired(void);         /* a server said so; the handle is dead */
int zkf_zk_timeout_ms(void);       /* negotiated, once connected */
int64_t zkf_zk_session_id(void);   /* once connected */
const char *zkf_zk_password(void); /* 16 bytes */
/* zkf_zk_server - "address:port" of the server that it is connected to, "" for none */
void zkf_zk_server(char address[64]);
/* zkf_zk_watched_bytes - of what is watched, as a reconnect tells it to the server, which takes 1 MB at most */
size_t zkf_zk_watched_bytes(void);
uint64_t zkf_zk_operations(void); /* sent since the start */

/*
 * The operations.  `done` is called once, on the loop, never from inside the call, unless cancelled.
 * Return NULL when memory is out: nothing was sent, done will not be called.
 * Operations wait here while there is no connection.
 */
struct zkf_zk_op *zkf_zk_create(const char *path, const char *data, int flags, zkf_zk_done *done, void *owner);
struct zkf_zk_op *zkf_zk_children(const char *path, struct zkf_zk_watch *watch, zkf_zk_done *done, void *owner);
struct zkf_zk_op *zkf_zk_get(const char *path, struct zkf_zk_watch *watch, zkf_zk_done *done, void *owner);
struct zkf_zk_op *zkf_zk_set(const char *path, const char *data, int32_t version, zkf_zk_done *done, void *owner);
struct zkf_zk_op *zkf_zk_delete(const char *path, zkf_zk_done *done, void *owner);
struct zkf_zk_op *zkf_zk_sync(const char *path, zkf_zk_done *done, void *owner);

/* zkf_zk_urgent - send an op at once although others wait: heartbeats must not queue behind work */
void zkf_zk_urgent(struct zkf_zk_op *op);

/* zkf_zk_cancel - the result will not be reported; NULL is allowed.  What was sent still happens. */
void zkf_zk_cancel(struct zkf_zk_op *op);

/* zkf_zk_watch_forget - disarm; it will not fire */
void zkf_zk_watch_forget(struct zkf_zk_watch *watch);

/* zkf_zk_error_name - of a result's error, for the log */
const char *zkf_zk_error_name(int error);

#endif

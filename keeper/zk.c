/*
 * keeper/zk.c - see zk.h
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two threads of libzookeeper touch this file, in the functions marked "client thread": they fill in the result of an
 * operation, or mark a ticket as fired, append it to `arrived`, and write to the eventfd.  All else is the loop's.
 *
 * Life of an operation:
 *
 *     waiting --(connected, room)--> sent --(completion)--> arrived --> reported and freed
 *        ^                                                     |
 *        +------------- connection lost, repeatable -----------+
 *
 * Life of a ticket (one arming of a watch): made with its operation; freed when the operation fails, when it has fired,
 * or when the handle is closed.  libzookeeper keeps its address, so an owner that loses interest only clears ->watch.  A
 * claim that looks again twice a second for a day must not leave a ticket each time: one that is armed and spare serves
 * the next arming of the same.  It may then fire a moment too early, for a change that the read has seen already.
 */
#include "zk.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <zookeeper/zookeeper.h>

#include "fault.h"
#include "log.h"
#include "loop.h"

/* More than 65,536 requests while the client's I/O thread is blocked break its pipe: stay far below. */
#define SENT_MAX 256

enum verb { VERB_CREATE, VERB_CHILDREN, VERB_GET, VERB_SET, VERB_DELETE, VERB_SYNC };

/* What the client threads hand over; first member of what is handed over. */
struct arrival {
	struct arrival *next;
	bool is_ticket;
};

/* What the server is to tell of: a node's data, or its children. */
struct watched {
	UT_hash_handle hh;
	int tickets;
	struct zkf_zk_ticket *spare; /* armed, and nobody is interested in it: the next who asks for the same gets it */
	char key[];                  /* 'c' or 'd', and the path */
};

struct zkf_zk_ticket {
	struct arrival arrival;
	struct zkf_zk_watch *watch;          /* NULL: nobody is interested any more */
	struct zkf_zk_ticket *next, *before; /* list of all tickets */
	struct watched *watched;
	bool armed; /* the read that has armed it has succeeded */
};

struct zkf_zk_op {
	struct arrival arrival;
	struct zkf_zk_op *next, *before; /* waiting or sent list */
	enum verb verb;
	char *path, *payload;
	int flags;
	int32_t version;
	struct zkf_zk_ticket *ticket;
	zkf_zk_done *done; /* NULL: cancelled */
	void *owner;
	bool sent;
	/* The result, written by the completion thread before the hand-over. */
	int rc;
	bool no_memory; /* to copy it: rc stays what it was, since the client has armed the watch if that is ZOK */
	char *name, *value;
	int value_bytes;
	struct Stat stat;
	char **children;
	int child_count;
};

struct op_list {
	struct zkf_zk_op *first, *last;
	int count;
};

/* The loop's. */
static zhandle_t *handle;
static void (*state_changed)(void);
static struct op_list waiting, sent;
static struct zkf_zk_ticket *tickets;
static struct watched *all_watched; /* by key */
static size_t watched_bytes;
static struct zkf_source event_source = {.fd = -1};
static uint64_t operations;

/* Written before the first handle; read by the loop and by the client thread that tells of a connection. */
static const char *credentials; /* "user:password", or NULL */

/* Written by the client threads, under the mutex; emptied by the loop. */
static pthread_mutex_t arrived_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct arrival *arrived_first, **arrived_last = &arrived_first;
/* Written by the client thread (session events), read by the loop. */
static atomic_bool connected_flag, expired_flag, refused_flag, session_event;
/* The client thread's alone: the handle knows the credentials, and tells them anew with each connection. */
static bool introduced;
/* Written by the client threads, read by the loop; under the mutex. */
static pthread_mutex_t trouble_mutex = PTHREAD_MUTEX_INITIALIZER;
static char connect_trouble[ZKF_ZK_TROUBLE_BYTES];

static void wake_loop(void)
{
	uint64_t one = 1;

	if (write(event_source.fd, &one, sizeof(one)) < 0) {
		/* EAGAIN: the counter is full, so the loop will wake anyway. */
	}
}

/* Client thread. */
static void hand_over(struct arrival *arrival)
{
	pthread_mutex_lock(&arrived_mutex);
	arrival->next = NULL;
	*arrived_last = arrival;
	arrived_last = &arrival->next;
	pthread_mutex_unlock(&arrived_mutex);
	wake_loop();
}

/*
 * Any thread.  The client tells what became of a connection in its log only:
 *     ...: Socket 127.0.0.1:2181 zk retcode=-4, errno=111(Connection refused): server refused to accept the client
 */
static void note_trouble(const char *message)
{
	const char *socket_at = strstr(message, ": Socket "), *why = strstr(message, ", errno=");
	const char *address = socket_at ? socket_at + strlen(": Socket ") : NULL;
	bool hung_up = strstr(message, "failed while receiving") || strstr(message, "(Host is down)");

	why = why ? strchr(why, '(') : NULL;
	if (!address || !why)
		return;
	pthread_mutex_lock(&trouble_mutex);
	snprintf(connect_trouble, sizeof(connect_trouble), "%.*s: %.*s", (int)strcspn(address, " "), address,
	         hung_up ? 200 : (int)strcspn(why + 1, ")"),
	         hung_up ? "the server hangs up: it has no quorum, is read-only, or has too many clients" : why + 1);
	pthread_mutex_unlock(&trouble_mutex);
}

void zkf_zk_trouble(char phrase[ZKF_ZK_TROUBLE_BYTES])
{
	pthread_mutex_lock(&trouble_mutex);
	memcpy(phrase, connect_trouble, ZKF_ZK_TROUBLE_BYTES);
	pthread_mutex_unlock(&trouble_mutex);
}

static void trouble_is_over(void)
{
	pthread_mutex_lock(&trouble_mutex);
	connect_trouble[0] = 0;
	pthread_mutex_unlock(&trouble_mutex);
}

/* Client thread. */
static void introduction_answered(int rc, const void *context)
{
	(void)rc; /* a refusal arrives as a state of the session, too */
	(void)context;
}

/*
 * Client thread.  The client takes no credentials before it has begun to connect; from then on it sends them itself, before
 * anything else, with every connection.  On the first one that is here, before the loop learns that it may send.
 */
static void introduce(zhandle_t *zh)
{
	if (credentials && !introduced)
		introduced = zoo_add_auth(zh, "digest", credentials, (int)strlen(credentials), introduction_answered,
		                          NULL) == ZOK;
	if (credentials && !introduced)
		atomic_store(&refused_flag, true); /* nothing would be ours: another keeper shall try */
}

/* Client thread. */
static void session_watcher(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	(void)path;
	(void)context;
	if (type != ZOO_SESSION_EVENT)
		return;
	if (state == ZOO_CONNECTED_STATE) {
		trouble_is_over();
		introduce(zh);
	}
	atomic_store(&connected_flag, state == ZOO_CONNECTED_STATE);
	if (state == ZOO_EXPIRED_SESSION_STATE)
		atomic_store(&expired_flag, true);
	if (state == ZOO_AUTH_FAILED_STATE)
		atomic_store(&refused_flag, true);
	atomic_store(&session_event, true);
	wake_loop();
}

/* Client thread. */
static void ticket_watcher(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	struct zkf_zk_ticket *ticket = context;

	(void)zh;
	(void)state;
	(void)path;
	if (type == ZOO_SESSION_EVENT) /* told to every pending watch; the session watcher deals with it */
		return;
	hand_over(&ticket->arrival);
}

/* Client threads: completions. */
static void complete_void(int rc, const void *context)
{
	struct zkf_zk_op *op = (struct zkf_zk_op *)(uintptr_t)context;

	op->rc = rc;
	hand_over(&op->arrival);
}

static void complete_string(int rc, const char *value, const void *context)
{
	struct zkf_zk_op *op = (struct zkf_zk_op *)(uintptr_t)context;

	op->rc = rc;
	if (rc == ZOK && value) {
		const char *slash = strrchr(value, '/');

		slash = slash ? slash + 1 : value;
		op->name = zkf_memdup(slash, strlen(slash));
		if (!op->name) /* made, but we can't say which: to the owner that is an unknown outcome */
			op->rc = ZRUNTIMEINCONSISTENCY;
	}
	hand_over(&op->arrival);
}

static void complete_sync(int rc, const char *value, const void *context)
{
	(void)value;
	complete_void(rc, context);
}

static void complete_stat(int rc, const struct Stat *stat, const void *context)
{
	struct zkf_zk_op *op = (struct zkf_zk_op *)(uintptr_t)context;

	op->rc = rc;
	if (rc == ZOK && stat)
		op->stat = *stat;
	hand_over(&op->arrival);
}

static void complete_data(int rc, const char *value, int bytes, const struct Stat *stat, const void *context)
{
	struct zkf_zk_op *op = (struct zkf_zk_op *)(uintptr_t)context;

	op->rc = rc;
	if (rc == ZOK) {
		op->value_bytes = value && bytes > 0 ? bytes : 0;
		op->value = zkf_memdup(value, (size_t)op->value_bytes);
		op->no_memory = !op->value;
		if (stat)
			op->stat = *stat;
	}
	hand_over(&op->arrival);
}

static void complete_strings(int rc, const struct String_vector *strings, const void *context)
{
	struct zkf_zk_op *op = (struct zkf_zk_op *)(uintptr_t)context;
	int count = rc == ZOK && strings ? strings->count : 0;

	op->rc = rc;
	if (count > 0)
		op->children = zkf_calloc((size_t)count, sizeof(*op->children));
	for (int i = 0; i < count; i++) {
		if (op->children)
			op->children[i] = zkf_memdup(strings->data[i], strlen(strings->data[i]));
		op->no_memory = !op->children || !op->children[i];
		if (op->no_memory)
			break;
		op->child_count = i + 1;
	}
	hand_over(&op->arrival);
}

static void list_append(struct op_list *list, struct zkf_zk_op *op)
{
	op->next = NULL;
	op->before = list->last;
	*(list->last ? &list->last->next : &list->first) = op;
	list->last = op;
	list->count++;
}

static void list_prepend(struct op_list *list, struct zkf_zk_op *op)
{
	op->before = NULL;
	op->next = list->first;
	*(list->first ? &list->first->before : &list->last) = op;
	list->first = op;
	list->count++;
}

static void list_remove(struct op_list *list, struct zkf_zk_op *op)
{
	*(op->before ? &op->before->next : &list->first) = op->next;
	*(op->next ? &op->next->before : &list->last) = op->before;
	list->count--;
}

/* As a reconnect must tell them to the server: its length and its bytes. */
static size_t bytes_of(const struct watched *watched)
{
	return strlen(watched->key) - 1 + sizeof(int32_t);
}

static struct watched *watched_get(enum verb verb, const char *path)
{
	size_t bytes = strlen(path) + 1;
	struct watched *made = zkf_calloc(1, sizeof(*made) + bytes + 1), *found;

	if (!made)
		return NULL;
	made->key[0] = verb == VERB_CHILDREN ? 'c' : 'd';
	memcpy(made->key + 1, path, bytes);
	HASH_FIND(hh, all_watched, made->key, bytes, found);
	if (found) {
		free(made);
		return found;
	}
	HASH_ADD(hh, all_watched, key[0], bytes, made);
	if (!made->hh.tbl) {
		free(made);
		return NULL;
	}
	watched_bytes += bytes_of(made);
	return made;
}

static void watched_drop(struct watched *watched)
{
	if (watched->tickets)
		return;
	watched_bytes -= bytes_of(watched);
	HASH_DEL(all_watched, watched);
	free(watched);
}

size_t zkf_zk_watched_bytes(void)
{
	return watched_bytes;
}

static void ticket_free(struct zkf_zk_ticket *ticket)
{
	if (ticket->watched->spare == ticket)
		ticket->watched->spare = NULL;
	ticket->watched->tickets--;
	watched_drop(ticket->watched);
	if (ticket->watch)
		ticket->watch->ticket = NULL;
	*(ticket->before ? &ticket->before->next : &tickets) = ticket->next;
	if (ticket->next)
		ticket->next->before = ticket->before;
	free(ticket);
}

/* Sets *to_arm: NULL when one is armed already. */
static int ticket_get(struct zkf_zk_watch *watch, enum verb verb, const char *path, struct zkf_zk_ticket **to_arm)
{
	struct watched *watched = watched_get(verb, path);
	struct zkf_zk_ticket *ticket = watched ? watched->spare : NULL;

	*to_arm = NULL;
	if (!watched)
		return -ENOMEM;
	if (ticket) {
		watched->spare = NULL;
		ticket->watch = watch;
		watch->ticket = ticket;
		return 0;
	}
	ticket = zkf_calloc(1, sizeof(*ticket));
	if (!ticket) {
		watched_drop(watched);
		return -ENOMEM;
	}
	ticket->arrival.is_ticket = true;
	ticket->watch = watch;
	ticket->watched = watched;
	watched->tickets++;
	ticket->next = tickets;
	if (tickets)
		tickets->before = ticket;
	tickets = ticket;
	watch->ticket = ticket;
	*to_arm = ticket;
	return 0;
}

void zkf_zk_watch_forget(struct zkf_zk_watch *watch)
{
	struct zkf_zk_ticket *ticket = watch->ticket;

	watch->ticket = NULL;
	if (!ticket)
		return;
	ticket->watch = NULL;
	if (ticket->armed && !ticket->watched->spare)
		ticket->watched->spare = ticket;
}

static void result_clear(struct zkf_zk_op *op)
{
	free(op->name);
	free(op->value);
	for (int i = 0; i < op->child_count; i++)
		free(op->children[i]);
	free(op->children);
	op->name = op->value = NULL;
	op->children = NULL;
	op->child_count = 0;
}

static void op_free(struct zkf_zk_op *op)
{
	result_clear(op);
	free(op->path);
	free(op->payload);
	free(op);
}

/* Hands one operation to libzookeeper; its return code is not ZOK when it took nothing. */
static int op_submit(struct zkf_zk_op *op)
{
	watcher_fn watcher = op->ticket ? ticket_watcher : NULL;
	int bytes = op->payload ? (int)strlen(op->payload) : 0;

	operations++;
	switch (op->verb) {
	case VERB_CREATE:
		/* The creator's: the server puts in who we said we are. */
		return zoo_acreate(handle, op->path, op->payload, bytes,
		                   credentials ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE, op->flags,
		                   complete_string, op);
	case VERB_CHILDREN:
		return zoo_awget_children(handle, op->path, watcher, op->ticket, complete_strings, op);
	case VERB_GET:
		return zoo_awget(handle, op->path, watcher, op->ticket, complete_data, op);
	case VERB_SET:
		return zoo_aset(handle, op->path, op->payload, bytes, op->version, complete_stat, op);
	case VERB_DELETE:
		return zoo_adelete(handle, op->path, -1, complete_void, op);
	case VERB_SYNC:
		return zoo_async(handle, op->path, complete_sync, op);
	}
	return ZBADARGUMENTS;
}

static void op_send(struct zkf_zk_op *op)
{
	int rc;

	op->sent = true;
	list_append(&sent, op);
	rc = op_submit(op);
	if (rc != ZOK) {
		/* Refused at once: report it as every other result, from the loop. */
		op->rc = rc;
		hand_over(&op->arrival);
	}
}

static void pump(void)
{
	while (waiting.first && handle && sent.count < SENT_MAX && zkf_zk_connected()) {
		struct zkf_zk_op *op = waiting.first;

		list_remove(&waiting, op);
		op_send(op);
	}
}

void zkf_zk_urgent(struct zkf_zk_op *op)
{
	if (!op || op->sent || !handle || !zkf_zk_connected())
		return;
	list_remove(&waiting, op);
	op_send(op);
}

static struct zkf_zk_op *op_new(enum verb verb, const char *path, const char *payload, zkf_zk_done *done, void *owner)
{
	struct zkf_zk_op *op = zkf_calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->verb = verb;
	op->done = done;
	op->owner = owner;
	op->path = zkf_memdup(path, strlen(path));
	op->payload = payload ? zkf_memdup(payload, strlen(payload)) : NULL;
	if (!op->path || (payload && !op->payload)) {
		op_free(op);
		return NULL;
	}
	return op;
}

static struct zkf_zk_op *op_start(struct zkf_zk_op *op, struct zkf_zk_watch *watch)
{
	if (!op)
		return NULL;
	if (watch) {
		zkf_zk_watch_forget(watch);
		if (ticket_get(watch, op->verb, op->path, &op->ticket)) {
			op_free(op);
			return NULL;
		}
	}
	list_append(&waiting, op);
	pump();
	return op;
}

struct zkf_zk_op *zkf_zk_create(const char *path, const char *data, int flags, zkf_zk_done *done, void *owner)
{
	struct zkf_zk_op *op = op_new(VERB_CREATE, path, data, done, owner);

	if (op)
		op->flags = flags;
	return op_start(op, NULL);
}

struct zkf_zk_op *zkf_zk_children(const char *path, struct zkf_zk_watch *watch, zkf_zk_done *done, void *owner)
{
	return op_start(op_new(VERB_CHILDREN, path, NULL, done, owner), watch);
}

struct zkf_zk_op *zkf_zk_get(const char *path, struct zkf_zk_watch *watch, zkf_zk_done *done, void *owner)
{
	return op_start(op_new(VERB_GET, path, NULL, done, owner), watch);
}

struct zkf_zk_op *zkf_zk_set(const char *path, const char *data, int32_t version, zkf_zk_done *done, void *owner)
{
	struct zkf_zk_op *op = op_new(VERB_SET, path, data, done, owner);

	if (op)
		op->version = version;
	return op_start(op, NULL);
}

struct zkf_zk_op *zkf_zk_delete(const char *path, zkf_zk_done *done, void *owner)
{
	return op_start(op_new(VERB_DELETE, path, NULL, done, owner), NULL);
}

struct zkf_zk_op *zkf_zk_sync(const char *path, zkf_zk_done *done, void *owner)
{
	return op_start(op_new(VERB_SYNC, path, NULL, done, owner), NULL);
}

void zkf_zk_cancel(struct zkf_zk_op *op)
{
	if (!op)
		return;
	op->done = NULL;
	if (op->sent)
		return;
	if (op->ticket)
		ticket_free(op->ticket);
	list_remove(&waiting, op);
	op_free(op);
}

/* The outcome is not known: the server may have done it. */
static bool connection_lost(int rc)
{
	return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZRUNTIMEINCONSISTENCY || rc == ZINVALIDSTATE ||
	       rc == ZSESSIONMOVED || rc == ZCLOSING || rc == ZSESSIONEXPIRED || rc == ZAUTHFAILED;
}

static bool repeatable(const struct zkf_zk_op *op)
{
	return op->verb != VERB_CREATE && !(op->verb == VERB_SET && op->version >= 0);
}

/* The one table from ZooKeeper's codes to errno. */
static int error_of(int rc)
{
	switch (rc) {
	case ZOK:
		return 0;
	case ZNONODE:
		return -ENOENT;
	case ZNODEEXISTS:
		return -EEXIST;
	case ZNOTEMPTY:
		return -ENOTEMPTY;
	case ZBADVERSION:
		return -ESTALE;
	case ZNOAUTH:
		return -EACCES;
	case ZINVALIDACL: /* "the creator's", and the servers do not know who that is */
		return -EPERM;
	case ZNOTREADONLY:
		return -EROFS;
	case ZNOCHILDRENFOREPHEMERALS:
		return -ENOTDIR;
	case ZMARSHALLINGERROR: /* the client's own memory is out, most likely */
		return -ENOMEM;
	default:
		return connection_lost(rc) ? -EINPROGRESS : -EIO;
	}
}

const char *zkf_zk_error_name(int error)
{
	switch (error) {
	case 0:
		return "ok";
	case -ENOENT:
		return "no such node";
	case -EEXIST:
		return "node exists";
	case -ESTALE:
		return "version differs";
	case -EACCES:
		return credentials ? "not authorised by the node's ACL: it was made with other credentials than ours"
		                   : "not authorised by the node's ACL, and no credentials are set";
	case -EPERM:
		return "the server takes no digest credentials";
	case -EROFS:
		return "server is read-only (no quorum)";
	case -ENOTDIR:
		return "its parent is an ephemeral node";
	case -ENOMEM:
		return "out of memory";
	case -EINPROGRESS:
		return "connection lost";
	default:
		return "unexpected answer of the server";
	}
}

static void op_report(struct zkf_zk_op *op)
{
	struct zkf_zk_result result = {
		.error = op->no_memory ? -ENOMEM : error_of(op->rc),
		.name = op->name,
		.data = op->value ? op->value : "",
		.data_bytes = op->value_bytes,
		.version = op->stat.version,
		.czxid = op->stat.czxid,
		.mzxid = op->stat.mzxid,
		.owner = op->stat.ephemeralOwner,
		.ctime_ms = op->stat.ctime,
		.count = op->child_count,
		.children = op->children,
	};

	op->done(op->owner, &result);
}

static void ticket_arrived(struct zkf_zk_ticket *ticket)
{
	struct zkf_zk_watch *watch = ticket->watch;

	ticket_free(ticket);
	if (watch)
		watch->fire(watch);
}

static void ticket_armed(struct zkf_zk_ticket *ticket)
{
	ticket->armed = true;
	if (!ticket->watch && !ticket->watched->spare)
		ticket->watched->spare = ticket; /* interest was lost while the read was under way */
}

static void op_arrived(struct zkf_zk_op *op)
{
	struct zkf_zk_ticket *ticket;

	list_remove(&sent, op);
	op->sent = false;
	if (op->rc != ZOK && op->done && connection_lost(op->rc) && repeatable(op) && !zkf_zk_expired()) {
		result_clear(op);
		list_prepend(&waiting, op); /* the ticket stays: the client activates a watch on success only */
		return;
	}
	ticket = op->rc != ZOK ? op->ticket : NULL;
	if (op->rc == ZOK && op->ticket)
		ticket_armed(op->ticket);
	op->ticket = NULL;
	if (ticket && op->done)
		ticket_free(ticket);
	else if (ticket)
		ticket_arrived(ticket); /* cancelled, so nobody hears that it was not armed: let the watch say so */
	if (op->done)
		op_report(op);
	op_free(op);
}

static void events_ready(struct zkf_source *source, uint32_t events)
{
	struct arrival *first;
	uint64_t count;

	(void)events;
	if (read(source->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		zkf_log(ZKF_LOG_ERROR, "zookeeper eventfd error=%d", errno);
	if (atomic_exchange(&session_event, false) && state_changed)
		state_changed();
	pthread_mutex_lock(&arrived_mutex);
	first = arrived_first;
	arrived_first = NULL;
	arrived_last = &arrived_first;
	pthread_mutex_unlock(&arrived_mutex);
	while (first) {
		struct arrival *next = first->next;

		if (first->is_ticket)
			ticket_arrived((struct zkf_zk_ticket *)first);
		else
			op_arrived((struct zkf_zk_op *)first);
		first = next;
	}
	pump();
}

/* The client logs 24 lines a second while a server is down: one every few seconds is enough for a person. */
static void client_log(const char *message)
{
	static _Atomic int64_t last_ns; /* any thread */
	int64_t now = zkf_now_ns();

	note_trouble(message);
	if (now - atomic_load(&last_ns) < 5000 * ZKF_NS_PER_MS)
		return;
	atomic_store(&last_ns, now);
	zkf_log(ZKF_LOG_DEBUG, "zookeeper-client %s", message);
}

int zkf_zk_init(void)
{
	event_source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_source.fd < 0)
		return -errno;
	event_source.ready = events_ready;
	zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
	return zkf_loop_add(&event_source, EPOLLIN);
}

int zkf_zk_open(const char *servers, int timeout_ms, int64_t session_id, const char password[16], void (*changed)(void))
{
	clientid_t id = {.client_id = session_id};

	if (session_id && password)
		memcpy(id.passwd, password, sizeof(id.passwd));
	state_changed = changed;
	atomic_store(&connected_flag, false);
	atomic_store(&expired_flag, false);
	atomic_store(&refused_flag, false);
	introduced = false; /* no client thread is there now */
	handle = zookeeper_init2(servers, session_watcher, timeout_ms, session_id ? &id : NULL, NULL,
	                         ZOO_NO_LOG_CLIENTENV, client_log);
	if (!handle)
		return errno ? -errno : -EINVAL;
	/* Default: getaddrinfo in every turn of the client's I/O loop; a DNS outage then expires a healthy session. */
	zoo_set_servers_resolution_delay(handle, -1);
	return 0;
}

void zkf_zk_close(bool end_session)
{
	zhandle_t *old = handle;

	handle = NULL;
	if (!old)
		return;
	if (!end_session)
		return; /* to keep the session over a restart nothing may be said to the server; exit follows */
	zookeeper_close(old);
	pthread_mutex_lock(&arrived_mutex);
	arrived_first = NULL;
	arrived_last = &arrived_first;
	pthread_mutex_unlock(&arrived_mutex);
	/* Both client threads are gone now: nobody else holds an operation or a ticket. */
	for (int i = 0; i < 2; i++) {
		struct op_list *list = i ? &waiting : &sent;

		while (list->first) {
			struct zkf_zk_op *op = list->first;

			list_remove(list, op); /* NOLINT(clang-analyzer-unix.Malloc): the list forgets it here */
			if (op->done) {        /* whoever has not cancelled it learns that it is over */
				op->rc = ZCLOSING;
				op_report(op);
			}
			op_free(op);
		}
	}
	while (tickets)
		ticket_free(tickets); /* NOLINT(clang-analyzer-unix.Malloc): takes itself out of the list */
	atomic_store(&connected_flag, false);
}

bool zkf_zk_connected(void)
{
	return handle && atomic_load(&connected_flag) && !atomic_load(&expired_flag);
}

void zkf_zk_credentials(const char *text)
{
	credentials = text;
}

bool zkf_zk_refused(void)
{
	return atomic_load(&refused_flag);
}

bool zkf_zk_expired(void)
{
	return atomic_load(&expired_flag);
}

int zkf_zk_timeout_ms(void)
{
	return handle ? zoo_recv_timeout(handle) : 0;
}

int64_t zkf_zk_session_id(void)
{
	return handle ? zoo_client_id(handle)->client_id : 0;
}

const char *zkf_zk_password(void)
{
	return handle ? zoo_client_id(handle)->passwd : NULL;
}

/* zookeeper_get_connected_host is getpeername(2) of the client's socket; zoo_get_current_server has a static buffer. */
void zkf_zk_server(char address[64])
{
	struct sockaddr_storage peer = {0};
	socklen_t bytes = sizeof(peer);
	char number[48], port[8];

	address[0] = 0;
	if (!zkf_zk_connected() || !zookeeper_get_connected_host(handle, (struct sockaddr *)&peer, &bytes) ||
	    getnameinfo((struct sockaddr *)&peer, bytes, number, sizeof(number), port, sizeof(port),
	                NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(address, 64, peer.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", number, port);
}

uint64_t zkf_zk_operations(void)
{
	return operations;
}

/*
 * keeper/session.c - see session.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *                      resolve fails: retry
 *                          +----+
 *                          v    |
 *   (start) ------------> CLOSED --open--> OPEN --connected--> MAKING --nodes made, host node acknowledged--> ALIVE
 *                          ^                                     |                                             |  ^
 *                          |                                     +--------------- expired --------+            |  |
 *                          +----------------------------------------------------------------------+-- expired -+  |
 *                                                                                   lease over: doubted, acknowledged
 *
 * The connection may come and go in every state; only a server's word makes EXPIRED, only our clock ends the lease.
 */
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "claim_text.h"
#include "lease.h"
#include "log.h"
#include "loop.h"
#include "publish.h"
#include "state.h"
#include "zk.h"

#define ADDRESSES_BYTES 2048
#define ADDRESS_COUNT_MAX 31
#define RETRY_NS (500 * ZKF_NS_PER_MS)

enum state { CLOSED, OPEN, MAKING, ALIVE };

/* All the loop's. */
static const struct zkf_config *config;
static struct zkf_session_events events;
static enum state state = CLOSED;
static bool usable;              /* what was last told to events */
/* A former keeper's holders run on its lease until this one has its own; CLOCK_BOOTTIME ns, 0: there are none. */
static int64_t inherited_ns;
static char host[ZKF_HOST_BYTES];
static char root[1024];
static char host_node[1200];
static char trouble[160] = "not connected to ZooKeeper yet";
static struct zkf_timer retry_timer, heartbeat_timer, doubt_timer;
static int64_t deadline_ns;
static int timeout_ms;
static int parents_made;
static bool adopting; /* a resumed session's claims are not known yet */
static bool making; /* a create of a parent or of the host node is under way */

static void heartbeat_send(void);
static void make_next_parent(void);

/* The nodes above the locks, in the order of their making; the root's own components come first. */
static const char *const parents[] = {"/hosts", "/locks", "/records", "/groups", "/probes"};
#define PARENT_COUNT ((int)(sizeof(parents) / sizeof(parents[0])))

bool zkf_session_usable(void)
{
	return state == ALIVE && !adopting && zkf_now_ns() < deadline_ns;
}

int64_t zkf_session_deadline_ns(void)
{
	return deadline_ns;
}

const char *zkf_session_host(void)
{
	return host;
}

const char *zkf_session_trouble(void)
{
	return trouble;
}

const char *zkf_session_root(void)
{
	return root;
}

static void set_trouble(const char *why)
{
	snprintf(trouble, sizeof(trouble), "%s", why);
}

static void tell_doubted(void)
{
	if (!usable && !inherited_ns)
		return;
	usable = false;
	inherited_ns = 0;
	zkf_log(ZKF_LOG_WARN, "session lease-over host=%s why=\"no write was acknowledged in time\"", host);
	set_trouble("ZooKeeper does not answer");
	events.doubted();
}

static void doubt_fire(struct zkf_timer *timer)
{
	(void)timer;
	if (zkf_now_ns() >= (inherited_ns ? inherited_ns : deadline_ns))
		tell_doubted();
}

int zkf_session_timeout_ms(void)
{
	return timeout_ms;
}

bool zkf_session_adopting(void)
{
	return adopting;
}

void zkf_session_adopted(void)
{
	adopting = false;
	if (zkf_session_usable()) {
		usable = true;
		zkf_log(ZKF_LOG_INFO, "session resumed host=%s", host);
		events.ready();
	}
}

/* An acknowledged write that was sent at sent_ns: the session was alive then. */
static void lease_extend(int64_t sent_ns)
{
	int64_t until = zkf_lease_deadline_ns(sent_ns, zkf_zk_timeout_ms(), config->tick_time_ms);

	if (until <= deadline_ns || state != ALIVE)
		return;
	inherited_ns = 0;
	deadline_ns = until;
	zkf_publish_lease(deadline_ns);
	zkf_timer_arm(&doubt_timer, deadline_ns);
	if (!usable && zkf_session_usable()) {
		usable = true;
		zkf_log(ZKF_LOG_INFO, "session alive host=%s timeout_ms=%d lease_ms=%" PRId64, host, zkf_zk_timeout_ms(),
		        (deadline_ns - zkf_now_ns()) / ZKF_NS_PER_MS);
		events.ready();
	}
}

/* Heartbeats overlap, so each carries its time of sending in its owner pointer's place: a small ring. */
#define BEATS 64
struct beat {
	int64_t sent_ns;
	bool in_use;
};
static struct beat beats[BEATS];

static struct beat *beat_new(void)
{
	for (int i = 0; i < BEATS; i++)
		if (!beats[i].in_use) {
			beats[i] = (struct beat){.sent_ns = zkf_now_ns(), .in_use = true};
			return &beats[i];
		}
	return NULL;
}

static void host_node_made(void *owner, const struct zkf_zk_result *result)
{
	struct beat *beat = owner;

	beat->in_use = making = false;
	if (result->error == 0 || result->error == -EEXIST) {
		state = ALIVE;
		if (adopting)
			events.resumed();
		/* It was there: made by an attempt whose answer was lost, or by a former keeper.  A heartbeat proves the rest. */
		if (result->error)
			heartbeat_send();
		else
			lease_extend(beat->sent_ns);
	} else {
		zkf_log(ZKF_LOG_WARN, "session host-node path=%s error=\"%s\"", host_node, zkf_zk_error_name(result->error));
		set_trouble(zkf_zk_error_name(result->error));
	}
	zkf_timer_arm_by(&heartbeat_timer, zkf_now_ns() + zkf_lease_period_ms(zkf_zk_timeout_ms()) * ZKF_NS_PER_MS);
}

static void host_node_make(void)
{
	char name[65] = "", data[160];
	struct beat *beat = beat_new();

	if (!beat)
		return;
	gethostname(name, sizeof(name) - 1);
	snprintf(data, sizeof(data), "zkf1 host=%s pid=%d version=%s", name, (int)getpid(), ZKF_VERSION);
	making = zkf_zk_create(host_node, data, ZKF_ZK_EPHEMERAL, host_node_made, beat) != NULL;
	beat->in_use = making;
}

static void heartbeat_done(void *owner, const struct zkf_zk_result *result)
{
	struct beat *beat = owner;

	beat->in_use = false;
	if (result->error == 0)
		lease_extend(beat->sent_ns);
	else if (result->error == -ENOENT && state == ALIVE && !making)
		host_node_make(); /* somebody deleted it; the session lives */
}

static void heartbeat_send(void)
{
	char data[160], name[65] = "";
	struct beat *beat;
	struct zkf_zk_op *op;

	/* Only when connected: each request would otherwise be an attempt to connect, and prove nothing. */
	if (state != ALIVE || !zkf_zk_connected())
		return;
	beat = beat_new();
	if (!beat)
		return;
	gethostname(name, sizeof(name) - 1);
	snprintf(data, sizeof(data), "zkf1 host=%s pid=%d version=%s", name, (int)getpid(), ZKF_VERSION);
	op = zkf_zk_set(host_node, data, -1, heartbeat_done, beat);
	if (!op)
		beat->in_use = false;
	zkf_zk_urgent(op);
}

static void heartbeat_fire(struct zkf_timer *timer)
{
	/* Whether or not the former one was answered: one server version loses a lone write's answer until the next. */
	if (state == ALIVE)
		heartbeat_send();
	else if (state == MAKING && zkf_zk_connected())
		make_next_parent();
	zkf_timer_arm(timer, zkf_now_ns() + zkf_lease_period_ms(zkf_zk_timeout_ms()) * ZKF_NS_PER_MS);
}

static void parent_path(int index, char *path, size_t capacity)
{
	const char *at = root;
	int component = 0;

	/* Components of the root: "/a", "/a/b", ... */
	while (*at) {
		at = strchrnul(at + 1, '/');
		if (component++ == index) {
			snprintf(path, capacity, "%.*s", (int)(at - root), root);
			return;
		}
	}
	if (index - component < PARENT_COUNT)
		snprintf(path, capacity, "%s%s", root, parents[index - component]);
	else
		path[0] = 0;
}

static void parent_made(void *owner, const struct zkf_zk_result *result)
{
	char path[1200];

	(void)owner;
	making = false;
	if (state != MAKING)
		return;
	/* Not authorised to make it: an administrator may have made it for us. The locks' own creates will tell. */
	if (result->error && result->error != -EEXIST && result->error != -EACCES && result->error != -EINPROGRESS) {
		parent_path(parents_made, path, sizeof(path));
		zkf_log(ZKF_LOG_ERROR, "session make path=%s error=\"%s\"", path, zkf_zk_error_name(result->error));
		snprintf(trouble, sizeof(trouble), "can't make %.80s: %s", path, zkf_zk_error_name(result->error));
		zkf_timer_arm_by(&heartbeat_timer, zkf_now_ns() + RETRY_NS);
		return;
	}
	if (result->error != -EINPROGRESS)
		parents_made++;
	make_next_parent();
}

static void make_next_parent(void)
{
	char path[1200];

	if (making)
		return;
	parent_path(parents_made, path, sizeof(path));
	if (!path[0])
		host_node_make();
	else
		making = zkf_zk_create(path, "", ZKF_ZK_PERSISTENT, parent_made, NULL) != NULL;
	if (!making)
		zkf_timer_arm_by(&heartbeat_timer, zkf_now_ns() + RETRY_NS);
}

static void session_open(void);

static void session_expired(void)
{
	zkf_log(ZKF_LOG_ERROR, "session expired host=%s", host);
	usable = false;
	state = CLOSED;
	deadline_ns = 0;
	zkf_publish_lease(0);
	zkf_timer_stop(&doubt_timer);
	zkf_timer_stop(&heartbeat_timer);
	set_trouble("the ZooKeeper session has expired");
	zkf_state_session_save(0, NULL);
	adopting = false;
	inherited_ns = 0;
	/* First: holders are dealt with before a close that may take 1.5 s, and whoever has an operation forgets it. */
	events.lost();
	zkf_zk_close(true);
	memset(beats, 0, sizeof(beats));
	host[0] = 0;
	session_open();
}

static void connection_changed(void)
{
	if (zkf_zk_expired()) {
		session_expired();
		return;
	}
	if (!zkf_zk_connected()) {
		zkf_log(ZKF_LOG_WARN, "session disconnected host=%s", host);
		if (!usable)
			set_trouble("no connection to ZooKeeper");
		return;
	}
	if (state == OPEN) {
		snprintf(host, sizeof(host), "%016" PRIx64, (uint64_t)zkf_zk_session_id());
		snprintf(host_node, sizeof(host_node), "%s/hosts/%s", root, host);
		timeout_ms = zkf_zk_timeout_ms();
		if (zkf_state_session_save(zkf_zk_session_id(), zkf_zk_password()))
			zkf_log(ZKF_LOG_WARN, "session save error=\"a keeper that follows can't resume it\"");
		zkf_log(ZKF_LOG_INFO, "session connected host=%s timeout_ms=%d", host, timeout_ms);
		if (zkf_lease_deadline_ns(0, zkf_zk_timeout_ms(), config->tick_time_ms) <= 0) {
			zkf_log(ZKF_LOG_ERROR, "session timeout_ms=%d tick_time_ms=%d error=\"the server's session timeout leaves no lease; "
			        "set tick_time to the servers' tickTime, or raise their maxSessionTimeout\"",
			        zkf_zk_timeout_ms(), config->tick_time_ms);
			set_trouble("the server's session timeout leaves no lease");
		}
		state = MAKING;
		making = false;
		parents_made = 0;
		make_next_parent();
	} else if (state == ALIVE) {
		heartbeat_send(); /* a proof at once, after what may have been a long outage */
	} else if (state == MAKING) {
		make_next_parent();
	}
}

/* Appends the numeric addresses of "host:port" to list; their number, or 0. */
static int resolve_one(const char *entry, char list[ADDRESSES_BYTES], int count)
{
	char name[256], numeric[INET6_ADDRSTRLEN];
	const char *colon = strrchr(entry, ':');
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV}, *found, *at;
	bool bracketed = entry[0] == '[';

	if (!colon || (size_t)(colon - entry) >= sizeof(name))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)(colon - entry - (bracketed ? 2 : 0)), entry + bracketed);
	/* AI_ADDRCONFIG hides loopback-only hosts' addresses: numeric ones need no look-up at all. */
	hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
	if (getaddrinfo(name, colon + 1, &hints, &found)) {
		hints.ai_flags = AI_NUMERICSERV;
		if (getaddrinfo(name, colon + 1, &hints, &found)) {
			zkf_log(ZKF_LOG_WARN, "session resolve name=%s error=\"unknown host\"", name);
			return 0;
		}
	}
	for (at = found; at && count < ADDRESS_COUNT_MAX; at = at->ai_next) {
		size_t used = strlen(list);

		if (getnameinfo(at->ai_addr, at->ai_addrlen, numeric, sizeof(numeric), NULL, 0, NI_NUMERICHOST))
			continue;
		if (used + strlen(numeric) + 16 >= ADDRESSES_BYTES)
			break;
		snprintf(list + used, ADDRESSES_BYTES - used, at->ai_family == AF_INET6 ? "%s[%s]%s" : "%s%s%s", used ? "," : "",
		         numeric, colon);
		count++;
	}
	freeaddrinfo(found);
	return count;
}

/*
 * The ensemble as an odd number of numeric addresses.  Odd, because the client's cursor moves twice at each failure and
 * would never try half of an even list; numeric, because it would look names up in every turn of its I/O loop.
 */
static int resolve(char list[ADDRESSES_BYTES])
{
	char entries[ADDRESSES_BYTES], *next = entries, *entry;
	int count = 0;

	list[0] = 0;
	snprintf(entries, sizeof(entries), "%.*s", (int)config->ensemble.len, config->ensemble.ptr);
	while ((entry = strsep(&next, ",")) != NULL) {
		int more = resolve_one(entry, list, count);

		count = more ? more : count;
	}
	if (count && count % 2 == 0) {
		char first[INET6_ADDRSTRLEN + 16];
		size_t used = strlen(list);

		snprintf(first, sizeof(first), "%.*s", (int)strcspn(list, ","), list);
		snprintf(list + used, ADDRESSES_BYTES - used, ",%s", first);
	}
	return count;
}

static void session_open(void)
{
	char servers[ADDRESSES_BYTES], password[16];
	int64_t saved_id = 0;
	int error = -EAGAIN;

	if (zkf_state_session_load(&saved_id, password))
		saved_id = 0;
	adopting = saved_id != 0;

	if (resolve(servers))
		error = zkf_zk_open(servers, config->session_timeout_ms, saved_id, saved_id ? password : NULL,
		                    connection_changed);
	else
		set_trouble("no server's name can be resolved");
	if (!error) {
		state = OPEN;
		zkf_timer_arm(&heartbeat_timer, zkf_now_ns() + RETRY_NS);
		return;
	}
	zkf_log(ZKF_LOG_WARN, "session open servers=%s error=%d", servers, -error);
	zkf_timer_arm(&retry_timer, zkf_now_ns() + 4 * RETRY_NS);
}

static void retry_fire(struct zkf_timer *timer)
{
	(void)timer;
	session_open();
}

int zkf_session_init(const struct zkf_config *settings, const struct zkf_session_events *what)
{
	config = settings;
	events = *what;
	if (!config->ensemble.len)
		return -EINVAL;
	snprintf(root, sizeof(root), "%.*s", (int)config->root.len, config->root.ptr);
	retry_timer.fire = retry_fire;
	heartbeat_timer.fire = heartbeat_fire;
	doubt_timer.fire = doubt_fire;
	timeout_ms = config->session_timeout_ms;
	return 0;
}

void zkf_session_start(void)
{
	session_open();
	if (!adopting)
		return;
	/* No connection may ever come: the holders' time runs all the same.  At once, if it is over already. */
	inherited_ns = zkf_publish_inherited_ns() > 0 ? zkf_publish_inherited_ns() : 1;
	zkf_timer_arm(&doubt_timer, inherited_ns);
}

void zkf_session_end(void)
{
	deadline_ns = 0;
	zkf_publish_lease(0);
	state = CLOSED;
	zkf_state_session_save(0, NULL);
	zkf_zk_close(true);
}

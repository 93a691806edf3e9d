/*
 * keeper/session.c - see session.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *                   names unknown: retry
 *                          +----+
 *                          v    |
 *   (start) ------------> CLOSED --open--> OPEN --connected--> MAKING --nodes made, host node acknowledged--> ALIVE
 *                          ^                                     |                                             |  ^
 *                          |                                     +--------------- expired --------+            |  |
 *                          +----------------------------------------------------------------------+-- expired -+  |
 *                                                                                   lease over: doubted, acknowledged
 *
 * Servers that refuse the credentials leave no handle to go on with, but the session: another keeper shall try (refused).
 * The connection may come and go in every state; only a server's word makes EXPIRED, only our clock ends the lease.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "claim_text.h"
#include "guard.h"
#include "lease.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "probe.h"
#include "publish.h"
#include "resolve.h"
#include "state.h"
#include "zk.h"

#define REPORT_FIRST_MS 2000
#define RETRY_NS (500 * ZKF_NS_PER_MS)
#define REFUSED_AGAIN_S 10
#define REFUSED "ZooKeeper refuses the credentials: its servers do not take the scheme digest"

enum state { CLOSED, OPEN, MAKING, ALIVE };

/* All the loop's. */
static const struct zkf_config *config;
static struct zkf_session_events events;
static enum state state = CLOSED;
static bool usable; /* what was last told to events */
/* A former keeper's holders run on its lease until this one has its own; CLOCK_BOOTTIME ns, 0: there are none. */
static int64_t inherited_ns;
static char host[ZKF_HOST_BYTES];
static char root[1024];
static char host_node[1200];
static char trouble[160] = "not connected to ZooKeeper yet";
static struct zkf_timer retry_timer, heartbeat_timer, doubt_timer, lookup_timer, report_timer, refused_timer;
static char ensemble[ZKF_ADDRESSES_BYTES];  /* as configured */
static bool numeric;                        /* it needs no look-up */
static char addresses[ZKF_ADDRESSES_BYTES]; /* where it was found last; "": not yet */
static struct zkf_state_session session;    /* as saved */
static int64_t open_since_ns;
static int64_t deadline_ns;
static int timeout_ms;
static int parents_made;
static char refusal[160]; /* logged already, "" for none */
static char denied[1200]; /* the first parent that we were not authorised to make, "" for none */
static bool adopting;     /* a resumed session's claims are not known yet */
static bool making;       /* a create of a parent or of the host node is under way */

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
	static char whole[sizeof(trouble) + ZKF_ZK_TROUBLE_BYTES];
	char met[ZKF_ZK_TROUBLE_BYTES];

	zkf_zk_trouble(met);
	if (zkf_zk_refused())
		return REFUSED;
	if (state == OPEN && !met[0])
		snprintf(whole, sizeof(whole), "no answer from ZooKeeper yet at %.150s", addresses);
	else if (state == CLOSED || !met[0])
		return trouble;
	else
		snprintf(whole, sizeof(whole), "no connection to ZooKeeper: %s", met);
	return whole;
}

const char *zkf_session_root(void)
{
	return root;
}

const char *zkf_session_state_name(void)
{
	if (zkf_session_usable())
		return "ready";
	if (state == CLOSED || state == OPEN)
		return "connecting";
	return adopting ? "adopting" : state == MAKING ? "preparing" : "doubted";
}

static void set_trouble(const char *why)
{
	snprintf(trouble, sizeof(trouble), "%s", why);
}

/* What the servers refuse, they refuse at every try: it is logged when it is news. */
static void make_refused(const char *path, int error)
{
	char why[sizeof(refusal)];

	if (error == -ENOENT && denied[0]) { /* which is why there is nothing to make it in */
		path = denied;
		error = -EACCES;
	}
	snprintf(why, sizeof(why), "ZooKeeper refuses to make %.80s: %s", path, zkf_zk_error_name(error));
	if (strcmp(why, refusal))
		zkf_log(ZKF_LOG_ERROR, "session refused path=%s error=\"%s\"", path, zkf_zk_error_name(error));
	memcpy(refusal, why, sizeof(refusal));
	set_trouble(why);
	parents_made = 0; /* a person may mend it: again from the beginning */
	denied[0] = 0;
}

/* Our own name, for people: that of a session that is being resumed is known before a server has said so. */
static const char *host_or_former(void)
{
	static char former[ZKF_HOST_BYTES];

	if (host[0])
		return host;
	snprintf(former, sizeof(former), "%016" PRIx64, (uint64_t)session.id);
	return session.id ? former : "";
}

static void tell_doubted(void)
{
	/* While claims are being adopted there are holders of a former keeper's, though this one grants nothing yet. */
	if (!usable && !inherited_ns && !adopting)
		return;
	usable = false;
	inherited_ns = 0;
	zkf_counts.leases_over++;
	ZKF_PROBE2(lease_over, host, zkf_now_ns() - deadline_ns);
	zkf_log(ZKF_LOG_WARN, "session lease-over host=%s why=\"no write was acknowledged in time\"", host_or_former());
	set_trouble("ZooKeeper does not answer");
	events.doubted();
}

static void doubt_fire(struct zkf_timer *timer)
{
	(void)timer;
	if (zkf_now_ns() < (inherited_ns ? inherited_ns : deadline_ns))
		return;
	tell_doubted();
	zkf_guard_doubted();
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
	zkf_guard_lease(deadline_ns);
	zkf_timer_arm(&doubt_timer, deadline_ns);
	if (!usable && zkf_session_usable()) {
		usable = true;
		zkf_log(ZKF_LOG_INFO, "session alive host=%s timeout_ms=%d lease_ms=%" PRId64, host,
		        zkf_zk_timeout_ms(), (deadline_ns - zkf_now_ns()) / ZKF_NS_PER_MS);
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
		refusal[0] = 0;
		if (adopting)
			events.resumed();
		/* It was there: made by an attempt whose answer was lost, or by a former keeper.  A heartbeat proves the rest. */
		if (result->error)
			heartbeat_send();
		else
			lease_extend(beat->sent_ns);
	} else if (result->error == -ENOENT && state == ALIVE) {
		/* Made anew because somebody had deleted it, and the parents with it. */
		state = MAKING;
		parents_made = 0;
	} else if (result->error != -EINPROGRESS) {
		make_refused(host_node, result->error);
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

/* A lone request whose answer a server withholds until the next one: this is the next one. */
static void nudge_done(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	(void)result;
}

static void heartbeat_fire(struct zkf_timer *timer)
{
	/* Whether or not the former one was answered: one server version loses a lone write's answer until the next. */
	if (state == ALIVE)
		heartbeat_send();
	else if (state == MAKING && zkf_zk_connected() && making)
		zkf_zk_urgent(zkf_zk_sync("/", nudge_done, NULL));
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
	parent_path(parents_made, path, sizeof(path));
	/* Not authorised to make it: an administrator may have made it for us.  What is to be made in it will tell. */
	if (result->error == -EACCES && !denied[0])
		snprintf(denied, sizeof(denied), "%s", path);
	if (result->error && result->error != -EEXIST && result->error != -EACCES && result->error != -EINPROGRESS) {
		make_refused(path, result->error);
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
static void look_up_later(int64_t delay_ms);

static void session_expired(void)
{
	zkf_log(ZKF_LOG_ERROR, "session expired host=%s", host_or_former());
	usable = false;
	state = CLOSED;
	deadline_ns = 0;
	zkf_publish_lease(0);
	zkf_timer_stop(&doubt_timer);
	zkf_timer_stop(&heartbeat_timer);
	set_trouble("the ZooKeeper session has expired");
	adopting = false;
	inherited_ns = 0;
	/* First: holders are dealt with before a close that may take 1.5 s, and whoever has an operation forgets it. */
	events.lost();
	zkf_guard_doubted();
	/* Not before: who follows a keeper that dies in between must find out, too, and deal with who is left. */
	zkf_state_session_save(NULL);
	zkf_zk_close(true);
	memset(beats, 0, sizeof(beats));
	host[0] = 0;
	session.id = 0;
	session_open();
}

/*
 * No server has ended the session: its holders have the lease's time, and a keeper that follows takes it over, if it is let in
 * by then.
 */
static void credentials_refused(void)
{
	zkf_log(ZKF_LOG_ERROR, "session refused error=\"%s\" again_after_s=%d", REFUSED, REFUSED_AGAIN_S);
	set_trouble(REFUSED);
	zkf_timer_stop(&lookup_timer);
	zkf_timer_arm(&refused_timer, zkf_now_ns() + REFUSED_AGAIN_S * 1000 * ZKF_NS_PER_MS);
}

static void refused_fire(struct zkf_timer *timer)
{
	(void)timer;
	zkf_loop_stop_for(ZKF_STOP_RESTART);
}

static void connection_changed(void)
{
	if (zkf_zk_expired()) {
		session_expired();
		return;
	}
	if (zkf_zk_refused()) {
		credentials_refused();
		return;
	}
	if (!zkf_zk_connected()) {
		zkf_log(ZKF_LOG_WARN, "session disconnected host=%s", host_or_former());
		if (!usable)
			set_trouble("no connection to ZooKeeper");
		look_up_later(timeout_ms / ZKF_LOOK_UP_FIRST_PART);
		return;
	}
	zkf_timer_stop(&lookup_timer);
	if (state == OPEN)
		zkf_counts.sessions++;
	else
		zkf_counts.reconnects++;
	if (state == OPEN) {
		snprintf(host, sizeof(host), "%016" PRIx64, (uint64_t)zkf_zk_session_id());
		snprintf(host_node, sizeof(host_node), "%s/hosts/%s", root, host);
		timeout_ms = zkf_zk_timeout_ms();
		session.id = zkf_zk_session_id();
		memcpy(session.password, zkf_zk_password(), sizeof(session.password));
		snprintf(session.addresses, sizeof(session.addresses), "%s", addresses);
		if (zkf_state_session_save(&session))
			zkf_log(ZKF_LOG_WARN, "session save error=\"a keeper that follows can't resume it\"");
		zkf_log(ZKF_LOG_INFO, "session connected host=%s timeout_ms=%d", host, timeout_ms);
		if (timeout_ms != config->session_timeout_ms)
			zkf_log(ZKF_LOG_WARN,
			        "session timeout_ms=%d asked_ms=%" PRId64 " why=\"the servers' minSessionTimeout and "
			        "maxSessionTimeout, by default 2 and 20 ticks, allow no other\"",
			        timeout_ms, (int64_t)config->session_timeout_ms);
		if (zkf_lease_deadline_ns(0, zkf_zk_timeout_ms(), config->tick_time_ms) <= 0) {
			zkf_log(ZKF_LOG_ERROR,
			        "session timeout_ms=%d tick_time_ms=%d error=\"the server's session timeout leaves no lease; "
			        "set tick_time to the servers' tickTime, or raise their maxSessionTimeout\"",
			        zkf_zk_timeout_ms(), config->tick_time_ms);
			set_trouble("the server's session timeout leaves no lease");
		}
		state = MAKING;
		making = false;
		parents_made = 0;
		denied[0] = 0;
		make_next_parent();
	} else if (state == ALIVE) {
		heartbeat_send(); /* a proof at once, after what may have been a long outage */
	} else if (state == MAKING) {
		make_next_parent();
	}
}

/* Names that are looked up anew while there is no connection: servers may have moved. */
static void look_up_later(int64_t delay_ms)
{
	if (!numeric)
		zkf_timer_arm(&lookup_timer, zkf_now_ns() + delay_ms * ZKF_NS_PER_MS);
}

static void session_open(void)
{
	bool saved = !zkf_state_session_load(&session);
	int error;

	adopting = saved;
	if (numeric)
		zkf_resolve_numeric(ensemble, addresses);
	else if (saved && session.addresses[0])
		snprintf(addresses, sizeof(addresses), "%s", session.addresses);
	if (!addresses[0]) {
		look_up_later(0);
		if (numeric) /* memory was out */
			zkf_timer_arm(&retry_timer, zkf_now_ns() + RETRY_NS);
		return;
	}
	error = zkf_zk_open(addresses, config->session_timeout_ms, saved ? session.id : 0,
	                    saved ? session.password : NULL, connection_changed);
	if (!error) {
		state = OPEN;
		open_since_ns = zkf_now_ns();
		zkf_timer_arm(&heartbeat_timer, zkf_now_ns() + RETRY_NS);
		zkf_timer_arm(&report_timer, zkf_now_ns() + REPORT_FIRST_MS * ZKF_NS_PER_MS);
		look_up_later(config->session_timeout_ms / ZKF_LOOK_UP_FIRST_PART);
		return;
	}
	zkf_log(ZKF_LOG_WARN, "session open servers=%s error=%d", addresses, -error);
	zkf_timer_arm(&retry_timer, zkf_now_ns() + 4 * RETRY_NS);
}

/*
 * The servers' names lead elsewhere, and where they led nobody answers.  The client can't be told safely (its
 * zoo_set_servers frees what its other thread uses), and a handle can't be closed without a risk to end the session with
 * it.  But a keeper that follows us takes the session over and loses nothing: so there shall be one.
 */
static void move_to(const char *found)
{
	zkf_log(ZKF_LOG_WARN, "session servers-moved from=%s to=%s", addresses, found);
	snprintf(addresses, sizeof(addresses), "%s", found);
	if (state == OPEN && !adopting) {
		/* Never connected: there is no session to lose. */
		state = CLOSED;
		zkf_zk_close(true);
		session_open();
		return;
	}
	snprintf(session.addresses, sizeof(session.addresses), "%s", found);
	if (zkf_state_session_save(&session))
		zkf_log(ZKF_LOG_ERROR, "session save error=\"can't go on with the new addresses\"");
	else
		zkf_loop_stop_for(ZKF_STOP_RESTART);
}

/* Is there one that is not tried already?  (Fewer than before is no news: a name may just not have been answered.) */
static bool has_news(const char *found)
{
	char entries[ZKF_ADDRESSES_BYTES], *next = entries, *entry;
	bool news = false;

	snprintf(entries, sizeof(entries), "%s", found);
	while (!news && (entry = strsep(&next, ",")) != NULL) {
		const char *at = *entry ? strstr(addresses, entry) : addresses;
		size_t bytes = strlen(entry);

		/* "10.0.0.1:2181" is also the end of "110.0.0.1:2181", and the beginning of "10.0.0.1:21810". */
		while (bytes && at && ((at > addresses && at[-1] != ',') || (at[bytes] && at[bytes] != ',')))
			at = strstr(at + 1, entry);
		news = !at;
	}
	return news;
}

static void looked_up(const char *found, const char *unknown)
{
	if (unknown[0]) {
		zkf_log(ZKF_LOG_WARN, "session resolve name=%s error=\"unknown host\"", unknown);
		if (!found[0])
			snprintf(trouble, sizeof(trouble), "ZooKeeper's name %.100s can't be resolved", unknown);
	}
	if (state == CLOSED && found[0]) {
		snprintf(addresses, sizeof(addresses), "%s", found);
		session_open();
	} else if (state == CLOSED) {
		look_up_later(4 * RETRY_NS / ZKF_NS_PER_MS);
	} else if (!zkf_zk_connected() && has_news(found)) {
		move_to(found);
	}
}

static void lookup_fire(struct zkf_timer *timer)
{
	int error;

	(void)timer;
	if (zkf_zk_connected())
		return;
	if (state == CLOSED)
		set_trouble("ZooKeeper's names are being looked up");
	error = zkf_resolve_start(ensemble, looked_up);
	if (error && error != -EBUSY)
		zkf_log(ZKF_LOG_WARN, "session resolve error=%d", -error);
	if (error || state != CLOSED)
		look_up_later(config->session_timeout_ms / ZKF_LOOK_UP_AGAIN_PART);
}

/* A person must learn of it though nobody asks for a lock; at growing intervals. */
static void report_fire(struct zkf_timer *timer)
{
	int64_t since_ms = (zkf_now_ns() - open_since_ns) / ZKF_NS_PER_MS;

	if (state != OPEN)
		return;
	zkf_log(ZKF_LOG_WARN, "session not-connected for_s=%" PRId64 " servers=%s why=\"%s\"", since_ms / 1000,
	        addresses, zkf_session_trouble());
	zkf_timer_arm(timer, zkf_now_ns() + since_ms * ZKF_NS_PER_MS);
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
	if (config->ensemble.len >= sizeof(ensemble))
		return -E2BIG;
	snprintf(root, sizeof(root), "%.*s", (int)config->root.len, config->root.ptr);
	snprintf(ensemble, sizeof(ensemble), "%.*s", (int)config->ensemble.len, config->ensemble.ptr);
	numeric = zkf_resolve_numeric(ensemble, addresses);
	lookup_timer.fire = lookup_fire;
	report_timer.fire = report_fire;
	retry_timer.fire = retry_fire;
	refused_timer.fire = refused_fire;
	heartbeat_timer.fire = heartbeat_fire;
	doubt_timer.fire = doubt_fire;
	timeout_ms = config->session_timeout_ms;
	return numeric ? 0 : zkf_resolve_init();
}

void zkf_session_start(void)
{
	session_open();
	if (!adopting && zkf_publish_inherited_ns() > 0) {
		/* There was a lease, and nothing says of which session: its end would come without a word. */
		zkf_log(ZKF_LOG_ERROR,
		        "session unknown error=\"what a former keeper has left is damaged: its session is lost\"");
		events.lost();
		zkf_guard_doubted();
	}
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
	zkf_state_session_save(NULL);
	zkf_zk_close(true);
}

/*
 * keeper/list.c - see list.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kind (locks, records) --children--> names --each: children--> claims --each: get, get host--> ROW ... --> END
 */
#include "list.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "claim.h"
#include "claim_text.h"
#include "fault.h"
#include "file.h"
#include "holds.h"
#include "publish.h"
#include "recall.h"
#include "session.h"
#include "users.h"
#include "zk.h"

struct names {
	char **items;
	int count, at;
};

struct zkf_listing {
	struct zkf_conversation *conversation;
	struct zkf_zk_op *op;
	int kind; /* enum zkf_kind, ZKF_GROUP */
	bool paused;
	uid_t uid; /* who asks */
	struct names locks, claims;
	/* The claims of the present lock that were there before the present one. */
	struct earlier {
		char host[ZKF_HOST_BYTES];
		char name[65];
		int32_t pid;
		struct zkf_ranges ranges;
	} * earlier;
	size_t earlier_count;
	struct host_name { /* those that were asked for already */
		char host[ZKF_HOST_BYTES];
		char name[65];
	} * hosts;
	size_t host_count;
	bool own_told; /* what our own host has of the present lock */
	struct zkf_claim_id id;
	struct zkf_claim_data data;
	int64_t ctime_ms;
};

static void next_kind(struct zkf_listing *listing);
static void next_lock(struct zkf_listing *listing);
static void next_claim(struct zkf_listing *listing);

static void names_free(struct names *names)
{
	for (int i = 0; i < names->count; i++)
		free(names->items[i]);
	free(names->items);
	*names = (struct names){0};
}

static int by_sequence(const void *a, const void *b)
{
	const char *one = *(char *const *)a, *other = *(char *const *)b;
	size_t one_bytes = strlen(one), other_bytes = strlen(other);

	/* The number is the last ten characters. */
	return strcmp(one_bytes > 10 ? one + one_bytes - 10 : one, other_bytes > 10 ? other + other_bytes - 10 : other);
}

static void earlier_clear(struct zkf_listing *listing)
{
	for (size_t i = 0; i < listing->earlier_count; i++)
		zkf_ranges_free(&listing->earlier[i].ranges);
	free(listing->earlier);
	listing->earlier = NULL;
	listing->earlier_count = 0;
}

/* A host's own claims are not in each other's way. */
static const struct earlier *in_the_way(const struct zkf_listing *listing)
{
	for (size_t i = 0; i < listing->earlier_count; i++)
		if ((listing->id.foreign || strcmp(listing->earlier[i].host, listing->id.host)) &&
		    zkf_ranges_conflict(&listing->earlier[i].ranges, &listing->data.ranges))
			return &listing->earlier[i];
	return NULL;
}

static void earlier_add(struct zkf_listing *listing, const char *host)
{
	struct earlier *more = zkf_reallocarray(listing->earlier, listing->earlier_count + 1, sizeof(*more)), *added;

	if (!more)
		return; /* for people only: a state may then be told too well */
	listing->earlier = more;
	added = &more[listing->earlier_count++];
	*added = (struct earlier){0};
	memcpy(added->host, listing->id.host, sizeof(added->host));
	snprintf(added->name, sizeof(added->name), "%s", listing->id.foreign ? "(other program)" : host);
	added->pid = listing->data.pid;
	zkf_ranges_copy(&added->ranges, &listing->data.ranges);
}

static int names_take(struct names *names, const struct zkf_zk_result *result)
{
	names_free(names);
	names->items = zkf_calloc((size_t)result->count + 1, sizeof(*names->items));
	if (!names->items)
		return -ENOMEM;
	for (int i = 0; i < result->count; i++) {
		names->items[i] = zkf_memdup(result->children[i], strlen(result->children[i]));
		if (!names->items[i])
			return -ENOMEM;
		names->count++;
	}
	qsort(names->items, (size_t)names->count, sizeof(*names->items), by_sequence);
	return 0;
}

void zkf_listing_stop(struct zkf_listing *listing)
{
	zkf_zk_cancel(listing->op);
	names_free(&listing->locks);
	names_free(&listing->claims);
	earlier_clear(listing);
	zkf_claim_data_free(&listing->data);
	free(listing->hosts);
	free(listing);
}

static void finish(struct zkf_listing *listing, int error)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = error ? ZKF_FAILED : ZKF_END, .error = -error};

	if (error)
		reply.text_bytes =
			(uint32_t)snprintf(reply.text, sizeof(reply.text), "%.120s",
		                           error == -EAGAIN ? zkf_session_trouble() : zkf_zk_error_name(error));
	zkf_server_put(listing->conversation, &reply, NULL);
}

static struct zkf_claim *own_claim(const char *name, uint32_t kind)
{
	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (struct zkf_claim *claim = lock->key.kind == kind ? lock->claims : NULL; claim; claim = claim->next)
			if (!strcmp(claim->name, name))
				return claim;
	return NULL;
}

/* '%' and control bytes, so that any byte comes through; `field` of append_encoded is so already. */
static void append_encoded(char *row, size_t *used, const char *field)
{
	if (*used)
		row[(*used)++] = '\t';
	for (; *field && *used < ZKF_ROW_BYTES_MAX - 300; field++)
		row[(*used)++] = *field;
}

static void append_field(char *row, size_t *used, const char *field)
{
	static const char digits[] = "0123456789ABCDEF";

	if (*used)
		row[(*used)++] = '\t';
	for (const unsigned char *at = (const unsigned char *)field; *at && *used < ZKF_ROW_BYTES_MAX - 300; at++) {
		if (*at < 0x20 || *at == 0x7f || *at == '%') {
			row[(*used)++] = '%';
			row[(*used)++] = digits[*at >> 4];
			row[(*used)++] = digits[*at & 15];
		} else {
			row[(*used)++] = (char)*at;
		}
	}
}

static void append_number(char *row, size_t *used, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, number);
	append_field(row, used, text);
}

/* What a row says; the rest of it is the listing's. */
struct row {
	const char *host, *state, *path, *blocker;
	const char *command; /* percent-encoded already */
	int64_t start, end;
	int64_t age_ms; /* -1: as old as the claim */
	int64_t size;   /* -1: not known */
	int32_t pid;
	uint8_t mode;
};

/* What a process is doing, and with which file, is told to its own user, and to whom the keeper belongs. */
static bool may_see(const struct zkf_listing *listing, const struct row *row)
{
	struct stat status;
	char path[24];

	if (zkf_users_own(listing->uid))
		return true;
	snprintf(path, sizeof(path), "/proc/%d", (int)row->pid);
	return !listing->id.foreign && !strcmp(listing->id.host, zkf_session_host()) && row->pid > 0 &&
	       !stat(path, &status) && status.st_uid == listing->uid;
}

static void row_send(struct zkf_listing *listing, const struct row *row)
{
	static const char *const kinds[] = {[ZKF_FLOCK] = "flock", [ZKF_RECORD] = "record", [ZKF_GROUP] = "group"};
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_ROW};
	char text[ZKF_ROW_BYTES_MAX];
	bool shown = may_see(listing, row);
	struct timespec now;
	int64_t age_ms = row->age_ms;
	size_t used = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	if (age_ms < 0)
		age_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - listing->ctime_ms;
	append_field(text, &used, listing->locks.items[listing->locks.at - 1]);
	append_field(text, &used, kinds[listing->kind]);
	append_field(text, &used, row->mode == ZKF_SHARED ? "READ" : "WRITE");
	append_number(text, &used, row->start);
	append_number(text, &used, row->end == ZKF_RANGE_MAX ? -1 : row->end);
	append_field(text, &used, row->host[0] ? row->host : "-");
	append_number(text, &used, row->pid);
	append_encoded(text, &used, row->command[0] && shown ? row->command : "-");
	append_field(text, &used, row->state);
	append_number(text, &used, age_ms > 0 ? age_ms : 0); /* two machines' clocks */
	append_field(text, &used, shown ? row->path : "-");
	append_number(text, &used, shown ? row->size : -1);
	append_field(text, &used, row->blocker ? row->blocker : "-");
	append_field(text, &used, listing->claims.items[listing->claims.at - 1]);
	reply.text_bytes = (uint32_t)used;
	zkf_server_put(listing->conversation, &reply, text);
}

/* ---- our own host: what the kernel says, not what the claim said last ---- */

static void command_of(int32_t pid, char command[64])
{
	char path[40], raw[17] = "";
	size_t used = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	in = pid > 0 ? fopen(path, "re") : NULL;
	if (in && fgets(raw, sizeof(raw), in))
		raw[strcspn(raw, "\n")] = 0;
	if (in)
		fclose(in);
	command[0] = 0;
	append_field(command, &used, raw);
	command[used] = 0;
}

/* From what is cached: a server of files that is gone must not stop the keeper. */
static int64_t size_of(const struct zkf_file *file)
{
	struct statx status;

	if (statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &status) ||
	    !(status.stx_mask & STATX_SIZE))
		return -1;
	return (int64_t)status.stx_size;
}

static void file_row(struct zkf_listing *listing, const struct row *like, const struct zkf_file *file, int32_t pid)
{
	char command[64];
	struct row row = *like;

	command_of(pid, command);
	row.pid = pid;
	if (pid > 0)
		row.command = command;
	row.path = file->path;
	row.size = size_of(file);
	row_send(listing, &row);
}

/* A row for each process among these that shows the lock; *first becomes the first one's pid.  Returns the count. */
static int shown_rows(struct zkf_listing *listing, const struct row *like, const struct zkf_file *file,
                      const struct zkf_holders *holders, int32_t *first)
{
	struct row row = *like;
	int count = 0;

	for (size_t i = 0; i < holders->count; i++) {
		const struct zkf_holder *holder = &holders->items[i];

		if (i && holder->pid == holders->items[i - 1].pid)
			continue;
		row.mode = holder->mode;
		*first = *first ? *first : holder->pid;
		file_row(listing, &row, file, holder->pid);
		count++;
	}
	return count;
}

/*
 * As lslocks(8): who took the lock, as /proc/locks says, if he has it still.  Only where nobody has, all processes are
 * searched for those that it was left to: a cluster of a thousand locks must not take a thousand searches.
 */
static int flock_rows(struct zkf_listing *listing, const struct row *like, const struct zkf_file *file, int32_t *first)
{
	struct zkf_holders holders = {0};
	FILE *in = fopen("/proc/locks", "re");
	char line[256], type[16], inode[64];
	int pid, count;

	while (in && fgets(line, sizeof(line), in)) {
		const char *colon;

		if (sscanf(line, "%*d: %15s %*s %*s %d %63s", type, &pid, inode) != 3 || strcmp(type, "FLOCK"))
			continue;
		colon = strrchr(inode, ':');
		if (colon && strtoull(colon + 1, NULL, 10) == file->key.ino)
			zkf_holders_of(file, pid, &holders);
	}
	if (in)
		fclose(in);
	count = shown_rows(listing, like, file, &holders, first);
	if (!count) {
		zkf_holders_all(file, &holders);
		count = shown_rows(listing, like, file, &holders, first);
	}
	zkf_holders_free(&holders);
	if (!count) { /* it can't be seen who: of another pid namespace, or on its way through a socket */
		file_row(listing, like, file, zkf_file_holder(file));
		count = 1;
	}
	return count;
}

static int record_rows(struct zkf_listing *listing, const struct row *like, const struct zkf_file *file,
                       const struct zkf_ranges *in_use, int32_t *first)
{
	char *held = NULL, *next, *entry;
	struct row row = *like;
	int count = 0;

	zkf_file_held_text(file, in_use, &held);
	next = held;
	while (next && (entry = strsep(&next, ",")) != NULL) {
		int64_t start = 0, end = ZKF_RANGE_MAX;
		char rest[40] = "";
		int pid = 0;

		if (sscanf(entry, "%d:%" SCNx64 "-%39s", &pid, &start, rest) != 3)
			continue;
		if (rest[0] != ':')
			sscanf(rest, "%" SCNx64, &end);
		row.start = start;
		row.end = end;
		row.mode = strchr(rest, ':') && !strcmp(strchr(rest, ':'), ":r") ? ZKF_SHARED : ZKF_EXCLUSIVE;
		*first = *first ? *first : pid;
		file_row(listing, &row, file, pid);
		count++;
	}
	free(held);
	return count;
}

/* Who of this host holds something through a file; a call under way may be about to. */
static int holder_rows(struct zkf_listing *listing, const struct row *like, struct zkf_file *file, int32_t *first)
{
	struct zkf_lock *lock = file->lock;
	struct zkf_ranges in_use = {0};
	struct row row = *like;
	int count = 0;

	row.state = lock->recalled ? "recalled" : "held";
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->file == file && !zkf_recall_blocked(demand) && demand->state != ZKF_DEMAND_WAITING) {
			/* no trial lock beside a call under way */
			row.mode = demand->mode;
			row.start = demand->start;
			row.end = demand->end;
			file_row(listing, &row, file, demand->pid);
			return 1;
		}
	zkf_publish_state(file->slot, ZKF_STATE_MODE(zkf_publish_word(file->slot)), true, false);
	zkf_file_look(file, &in_use);
	if (in_use.count && file->key.kind == ZKF_FLOCK)
		count = flock_rows(listing, &row, file, first);
	else if (in_use.count)
		count = record_rows(listing, &row, file, &in_use, first);
	zkf_ranges_free(&in_use);
	return count;
}

/* A call that waits.  blocker: NULL for the process of this host that is in its way */
static void demand_row(struct zkf_listing *listing, const struct row *like, const struct zkf_demand *demand,
                       const char *blocker, int32_t holder)
{
	char own[90];
	struct row row = *like;

	if (!blocker && holder) {
		snprintf(own, sizeof(own), "%.64s:%d", like->host, holder);
		blocker = own;
	}
	row.blocker = blocker;
	row.state = "waiting";
	row.mode = demand->mode;
	row.start = listing->kind == (int)ZKF_GROUP ? demand->asked_start : demand->start;
	row.end = listing->kind == (int)ZKF_GROUP ? demand->asked_end : demand->end;
	row.age_ms = (zkf_now_ns() - demand->waiting_since_ns) / ZKF_NS_PER_MS;
	file_row(listing, &row, demand->file, demand->pid);
}

/* Those that wait for a claim of this host in the queue. */
static int queued_rows(struct zkf_listing *listing, const struct row *like, const struct zkf_claim *claim)
{
	int count = 0;

	for (const struct zkf_demand *demand = claim->lock->demands; demand; demand = demand->next)
		if (demand->claim == claim && demand->state == ZKF_DEMAND_WAITING) {
			demand_row(listing, like, demand, like->blocker, 0);
			count++;
		}
	return count;
}

/* A group of our own host: one row for each file through which a thread holds it. */
struct group_rows {
	struct zkf_listing *listing;
	struct row row;
	int32_t first;
};

static void group_row(void *owner, const struct zkf_hold_row *hold)
{
	struct group_rows *rows = owner;

	rows->row.mode = hold->mode;
	rows->first = rows->first ? rows->first : hold->pid;
	file_row(rows->listing, &rows->row, hold->file, hold->pid);
}

/* What this host has: once for all its granted claims in a lock. */
static void granted_rows(struct zkf_listing *listing, const struct row *like, struct zkf_lock *lock)
{
	struct group_rows group = {listing, *like, 0};
	struct row kept = *like;
	int32_t first = 0;
	int count = 0;

	if (listing->own_told)
		return;
	listing->own_told = true;
	if (lock->key.kind == ZKF_GROUP) {
		group.row.state = lock->recalled ? "recalled" : "held";
		count = zkf_holds_each(lock, group_row, &group);
		first = group.first;
	} else {
		for (struct zkf_file *file = lock->files; file; file = file->next)
			count += holder_rows(listing, like, file, &first);
		zkf_lock_touch(lock); /* publishes what is true again */
	}
	if (!count) {
		kept.state = "kept";
		kept.path = lock->files ? lock->files->path : "-";
		kept.size = lock->files ? size_of(lock->files) : -1;
		row_send(listing, &kept);
	}
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (!demand->nonblock && zkf_recall_blocked(demand) &&
		    (!demand->claim || demand->claim->state == ZKF_CLAIM_GRANTED))
			demand_row(listing, like, demand, NULL, first);
}

/* False: not known here (a former keeper's, or just gone). */
static bool own_rows(struct zkf_listing *listing, const char *claim_name, const struct row *like)
{
	struct zkf_claim *claim = own_claim(claim_name, (uint32_t)listing->kind);
	struct row row = *like;

	if (!claim)
		return false;
	if (claim->state == ZKF_CLAIM_GRANTED) {
		granted_rows(listing, like, claim->lock);
	} else if (!queued_rows(listing, like, claim)) {
		row.state = "waiting";
		row.path = claim->lock->files ? claim->lock->files->path : "-";
		row_send(listing, &row);
	}
	return true;
}

static void rows_send(struct zkf_listing *listing, const char *host)
{
	const struct zkf_claim_data *data = &listing->data;
	const struct zkf_ranges *ranges = &data->ranges;
	const struct earlier *blocker = data->confirmed ? NULL : in_the_way(listing);
	char by[90];
	struct row row = {
		.host = host,
		.command = data->command,
		.path = "-",
		.pid = data->pid,
		.start = ranges->count ? ranges->items[0].start : listing->id.start,
		.end = ranges->count ? ranges->items[ranges->count - 1].end : listing->id.end,
		.mode = ranges->count ? zkf_ranges_mode(ranges) : listing->id.mode,
		.age_ms = -1,
		.size = -1,
	};

	if (blocker) {
		snprintf(by, sizeof(by), blocker->pid ? "%s:%d" : "%s", blocker->name, blocker->pid);
		row.blocker = by;
	}
	if (strcmp(listing->id.host, zkf_session_host()) ||
	    !own_rows(listing, listing->claims.items[listing->claims.at - 1], &row)) {
		row.state = blocker                                          ? "waiting"
		          : data->state[0] && strcmp(data->state, "waiting") ? data->state
		                                                             : "granted";
		row_send(listing, &row);
	}
	earlier_add(listing, host);
}

/* No further than the reader: what he has not read is kept, and that must not be the whole cluster. */
static void claim_told(struct zkf_listing *listing)
{
	listing->paused = zkf_server_congested(listing->conversation);
	if (!listing->paused)
		next_claim(listing);
}

void zkf_listing_go_on(struct zkf_listing *listing)
{
	if (!listing->paused)
		return;
	listing->paused = false;
	next_claim(listing);
}

static const char *host_known(const struct zkf_listing *listing)
{
	for (size_t i = 0; i < listing->host_count; i++)
		if (!strcmp(listing->hosts[i].host, listing->id.host))
			return listing->hosts[i].name;
	return NULL;
}

static void host_note(struct zkf_listing *listing, const char *name)
{
	struct host_name *more = zkf_reallocarray(listing->hosts, listing->host_count + 1, sizeof(*more));

	if (!more)
		return; /* it is asked for again */
	listing->hosts = more;
	snprintf(more[listing->host_count].host, sizeof(more->host), "%s", listing->id.host);
	snprintf(more[listing->host_count++].name, sizeof(more->name), "%s", name);
}

static void host_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_listing *listing = owner;
	char host[65];
	const char *name = strstr(result->data ? result->data : "", "host=");

	listing->op = NULL;
	snprintf(host, sizeof(host), "%.*s", name ? (int)strcspn(name + 5, " ") : 0, name ? name + 5 : "");
	if (!host[0])
		snprintf(host, sizeof(host), "%s", listing->id.host);
	host_note(listing, host);
	rows_send(listing, host);
	claim_told(listing);
}

static void claim_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_listing *listing = owner;
	const char *known;
	char path[1200];

	listing->op = NULL;
	zkf_claim_data_free(&listing->data);
	if (result->error == -ENOENT) {
		next_claim(listing);
		return;
	}
	if (!result->error && listing->id.foreign)
		zkf_ranges_assign(&listing->data.ranges, listing->id.start, listing->id.end, listing->id.mode);
	else if (!result->error)
		zkf_claim_data_read(&listing->data, result->data);
	listing->ctime_ms = result->ctime_ms;
	if (listing->id.foreign) {
		rows_send(listing, "-");
		claim_told(listing);
		return;
	}
	known = host_known(listing);
	if (known) {
		rows_send(listing, known);
		claim_told(listing);
		return;
	}
	snprintf(path, sizeof(path), "%s/hosts/%s", zkf_session_root(), listing->id.host);
	listing->op = zkf_zk_get(path, NULL, host_done, listing);
	if (!listing->op)
		finish(listing, -ENOMEM);
}

static void next_claim(struct zkf_listing *listing)
{
	char path[1400];

	while (listing->claims.at < listing->claims.count) {
		const char *name = listing->claims.items[listing->claims.at++];

		if (zkf_claim_name_read(&listing->id, name))
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s/%s", zkf_session_root(),
		         zkf_kind_directory((uint32_t)listing->kind), listing->locks.items[listing->locks.at - 1],
		         name);
		listing->op = zkf_zk_get(path, NULL, claim_done, listing);
		if (!listing->op)
			finish(listing, -ENOMEM);
		return;
	}
	next_lock(listing);
}

static void claims_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_listing *listing = owner;

	listing->op = NULL;
	listing->own_told = false;
	earlier_clear(listing);
	if (result->error && result->error != -ENOENT)
		finish(listing, result->error);
	else if (names_take(&listing->claims, result))
		finish(listing, -ENOMEM);
	else
		next_claim(listing);
}

static void next_lock(struct zkf_listing *listing)
{
	char path[1300];

	if (listing->locks.at == listing->locks.count) {
		listing->kind++;
		next_kind(listing);
		return;
	}
	snprintf(path, sizeof(path), "%s/%s/%s", zkf_session_root(), zkf_kind_directory((uint32_t)listing->kind),
	         listing->locks.items[listing->locks.at++]);
	listing->op = zkf_zk_children(path, NULL, claims_done, listing);
	if (!listing->op)
		finish(listing, -ENOMEM);
}

static void locks_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_listing *listing = owner;

	listing->op = NULL;
	if (result->error && result->error != -ENOENT)
		finish(listing, result->error);
	else if (names_take(&listing->locks, result))
		finish(listing, -ENOMEM);
	else
		next_lock(listing);
}

static void next_kind(struct zkf_listing *listing)
{
	char path[1100];

	if (listing->kind > (int)ZKF_GROUP) {
		finish(listing, 0);
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", zkf_session_root(), zkf_kind_directory((uint32_t)listing->kind));
	listing->op = zkf_zk_children(path, NULL, locks_done, listing);
	if (!listing->op)
		finish(listing, -ENOMEM);
}

struct zkf_listing *zkf_listing_start(struct zkf_conversation *conversation, uid_t uid)
{
	struct zkf_listing *listing = zkf_calloc(1, sizeof(*listing));

	if (!listing)
		return NULL;
	listing->uid = uid;
	listing->conversation = conversation;
	listing->data.answered = -1;
	if (zkf_session_usable())
		next_kind(listing);
	else
		finish(listing, -EAGAIN);
	return listing;
}

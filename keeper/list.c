/*
 * keeper/list.c - see list.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *   kind (locks, records) --children--> names --each: children--> claims --each: get, get host--> ROW ... --> END
 */
#include "list.h"

#include <errno.h>
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
	uid_t uid; /* who asks */
	struct names locks, claims;
	/* The claims of the present lock that were there before the present one. */
	struct earlier {
		char host[ZKF_HOST_BYTES];
		struct zkf_ranges ranges;
	} *earlier;
	size_t earlier_count;
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
static bool behind_another(const struct zkf_listing *listing)
{
	for (size_t i = 0; i < listing->earlier_count; i++)
		if ((listing->id.foreign || strcmp(listing->earlier[i].host, listing->id.host)) &&
		    zkf_ranges_conflict(&listing->earlier[i].ranges, &listing->data.ranges))
			return true;
	return false;
}

static void earlier_add(struct zkf_listing *listing)
{
	struct earlier *more =
		zkf_reallocarray(listing->earlier, listing->earlier_count + 1, sizeof(*more)), *added;

	if (!more)
		return; /* for people only: a state may then be told too well */
	listing->earlier = more;
	added = &more[listing->earlier_count++];
	*added = (struct earlier){0};
	memcpy(added->host, listing->id.host, sizeof(added->host));
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
	free(listing);
}

static void finish(struct zkf_listing *listing, int error)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = error ? ZKF_FAILED : ZKF_END, .error = -error};

	if (error)
		reply.text_bytes = (uint32_t)snprintf(reply.text, sizeof(reply.text), "%.120s",
		                                      error == -EAGAIN ? zkf_session_trouble() : zkf_zk_error_name(error));
	zkf_server_send(listing->conversation, &reply, NULL);
}

static struct zkf_claim *own_claim(const char *name, uint32_t kind)
{
	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (struct zkf_claim *claim = lock->key.kind == kind ? lock->claims : NULL; claim; claim = claim->next)
			if (!strcmp(claim->name, name))
				return claim;
	return NULL;
}

/* Our own host's claims: what the kernel says, not what the claim said last. */
static const char *own_state(const struct zkf_listing *listing, const char *name, int32_t *pid, const char **path)
{
	const struct zkf_claim *claim = own_claim(name, (uint32_t)listing->kind);
	const char *state = "kept";
	struct zkf_lock *lock;

	if (!claim)
		return NULL;
	lock = claim->lock;
	*path = lock->files ? lock->files->path : "-";
	if (claim->state != ZKF_CLAIM_GRANTED)
		return "waiting";
	for (struct zkf_file *file = lock->files; file; file = file->next) {
		struct zkf_ranges in_use = {0};
		bool pinned = false;

		for (const struct zkf_demand *demand = lock->demands; demand && !pinned; demand = demand->next)
			pinned = demand->file == file;
		if (pinned) { /* no trial lock beside a call under way */
			state = lock->recalled ? "recalled" : "held";
			continue;
		}
		zkf_publish_state(file->slot, ZKF_STATE_MODE(zkf_publish_word(file->slot)), true, false);
		zkf_file_look(file, &in_use);
		if (in_use.count) {
			int32_t holder = zkf_file_holder(file);

			state = lock->recalled ? "recalled" : "held";
			*pid = holder > 0 ? holder : *pid;
			*path = file->path;
		}
		zkf_ranges_free(&in_use);
	}
	zkf_lock_touch(lock); /* publishes what is true again */
	return state;
}

/* Tabs, newlines and other control bytes must not break the row. */
static void append_field(char *row, size_t *used, const char *field)
{
	static const char digits[] = "0123456789ABCDEF";

	if (*used)
		row[(*used)++] = '\t';
	for (const unsigned char *at = (const unsigned char *)field; *at && *used < ZKF_ROW_BYTES_MAX - 300; at++) {
		if (*at < 0x20 || *at == 0x7f) {
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
	const char *host, *state, *path, *command;
	int64_t start, end;
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
	return !listing->id.foreign && !strcmp(listing->id.host, zkf_session_host()) && row->pid > 0 && !stat(path, &status) &&
	       status.st_uid == listing->uid;
}

static void row_send(struct zkf_listing *listing, const struct row *row)
{
	static const char *const kinds[] = {[ZKF_FLOCK] = "flock", [ZKF_RECORD] = "record", [ZKF_GROUP] = "group"};
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_ROW};
	char text[ZKF_ROW_BYTES_MAX];
	bool shown = may_see(listing, row);
	struct timespec now;
	size_t used = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	append_field(text, &used, listing->locks.items[listing->locks.at - 1]);
	append_field(text, &used, kinds[listing->kind]);
	append_field(text, &used, row->mode == ZKF_SHARED ? "READ" : "WRITE");
	append_number(text, &used, row->start);
	append_number(text, &used, row->end == ZKF_RANGE_MAX ? -1 : row->end);
	append_field(text, &used, row->host[0] ? row->host : "-");
	append_number(text, &used, row->pid);
	append_field(text, &used, row->command[0] && shown ? row->command : "-");
	append_field(text, &used, row->state);
	append_number(text, &used, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - listing->ctime_ms);
	append_field(text, &used, shown ? row->path : "-");
	reply.text_bytes = (uint32_t)used;
	zkf_server_send(listing->conversation, &reply, text);
}

/* A group of our own host: one row for each file through which a thread holds it. */
struct group_rows {
	struct zkf_listing *listing;
	struct row row;
};

static void group_row(void *owner, const struct zkf_hold_row *hold)
{
	struct group_rows *rows = owner;
	char path[40], command[17] = "";
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/comm", hold->pid);
	in = hold->pid > 0 ? fopen(path, "re") : NULL;
	if (in && fgets(command, sizeof(command), in))
		command[strcspn(command, "\n")] = 0;
	if (in)
		fclose(in);
	rows->row.pid = hold->pid;
	rows->row.command = command;
	rows->row.mode = hold->mode;
	rows->row.path = hold->file->path;
	row_send(rows->listing, &rows->row);
}

static int group_send(struct zkf_listing *listing, const char *claim_name, const struct row *row)
{
	struct zkf_claim *claim = listing->kind == (int)ZKF_GROUP ? own_claim(claim_name, ZKF_GROUP) : NULL;
	struct group_rows rows = {listing, *row};

	if (!claim || claim->state != ZKF_CLAIM_GRANTED)
		return 0;
	rows.row.state = claim->lock->recalled ? "recalled" : "held";
	return zkf_holds_each(claim->lock, group_row, &rows);
}

static void rows_send(struct zkf_listing *listing, const char *host)
{
	const char *claim_name = listing->claims.items[listing->claims.at - 1];
	const struct zkf_claim_data *data = &listing->data;
	const struct zkf_ranges *ranges = &data->ranges;
	struct row row = {
		.host = host,
		.command = data->command,
		.path = "-",
		.pid = data->pid,
		.start = ranges->count ? ranges->items[0].start : listing->id.start,
		.end = ranges->count ? ranges->items[ranges->count - 1].end : listing->id.end,
		.mode = ranges->count ? zkf_ranges_mode(ranges) : listing->id.mode,
	};
	bool own = !strcmp(listing->id.host, zkf_session_host());

	if (!own || !group_send(listing, claim_name, &row)) {
		if (own)
			row.state = own_state(listing, claim_name, &row.pid, &row.path);
		if (!row.state && behind_another(listing) && !data->confirmed)
			row.state = "waiting";
		if (!row.state)
			row.state = data->state[0] && strcmp(data->state, "waiting") ? data->state : "granted";
		row_send(listing, &row);
	}
	earlier_add(listing);
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
	rows_send(listing, host);
	next_claim(listing);
}

static void claim_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_listing *listing = owner;
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
		next_claim(listing);
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
		snprintf(path, sizeof(path), "%s/%s/%s/%s", zkf_session_root(), zkf_kind_directory((uint32_t)listing->kind),
		         listing->locks.items[listing->locks.at - 1], name);
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

/*
 * keeper/break.c - see break.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "break.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claim_text.h"
#include "fault.h"
#include "lease.h"
#include "lock.h"
#include "log.h"
#include "loop.h"
#include "mailbox.h"
#include "session.h"
#include "zk.h"

#define PATH_BYTES 1400

struct zkf_breaking {
	struct zkf_conversation *conversation;
	struct zkf_zk_op *op;
	struct zkf_zk_watch gone_watch;
	struct zkf_timer timer; /* the holder's host is told again, or said not to answer */
	int64_t started_ns;
	struct zkf_break_request request;
	struct zkf_claim_id id;
	struct ucred peer;
};

static void result_log(const struct zkf_breaking *breaking, const char *result)
{
	const struct zkf_break_request *request = &breaking->request;

	zkf_log(ZKF_LOG_WARN, "break lock=%s kind=%s claim=%s by_uid=%d by_pid=%d reason=\"%s\" result=\"%s\"",
	        request->znode, zkf_kind_directory(request->head.kind), request->claim, (int)breaking->peer.uid,
	        (int)breaking->peer.pid, request->reason, result);
}

static void answer(struct zkf_breaking *breaking, int error, const char *why)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = error ? ZKF_FAILED : ZKF_END, .error = error};

	zkf_timer_stop(&breaking->timer);
	reply.text_bytes = (uint32_t)snprintf(reply.text, sizeof(reply.text), "%.200s", why);
	zkf_server_put(breaking->conversation, &reply, NULL);
}

static void node_path(char path[PATH_BYTES], uint32_t kind, const char *znode, const char *claim)
{
	snprintf(path, PATH_BYTES, "%s/%s/%s/%s", zkf_session_root(), zkf_kind_directory(kind), znode, claim);
}

/* --- whose holder can't be stopped first: another program's claim, an operator who insists --- */

static void deleted(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_breaking *breaking = owner;

	breaking->op = NULL;
	result_log(breaking, zkf_zk_error_name(result->error));
	if (result->error == -ENOENT)
		answer(breaking, ENOENT, "it has been given up meanwhile");
	else
		answer(breaking, -result->error, result->error ? zkf_zk_error_name(result->error) : "");
}

static void node_delete(struct zkf_breaking *breaking)
{
	char path[PATH_BYTES];

	node_path(path, breaking->request.head.kind, breaking->request.znode, breaking->request.claim);
	breaking->op = zkf_zk_delete(path, deleted, breaking);
	if (!breaking->op)
		answer(breaking, ENOMEM, "out of memory");
}

/* --- whose keeper stops the holder first, and then gives the lock up --- */

static void host_tell(const struct zkf_breaking *breaking)
{
	const struct zkf_break_request *request = &breaking->request;
	char text[700];

	snprintf(text, sizeof(text), "break1 %u %s %s %s %d %d %s", (unsigned)request->head.kind, request->znode,
	         request->claim, zkf_session_host(), (int)breaking->peer.uid, (int)breaking->peer.pid, request->reason);
	if (!strcmp(breaking->id.host, zkf_session_host()))
		zkf_break_letter(text);
	else
		zkf_mailbox_send(breaking->id.host, text);
}

static void node_look(struct zkf_breaking *breaking);

static void node_seen(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_breaking *breaking = owner;

	breaking->op = NULL;
	if (result->error == -ENOENT) {
		result_log(breaking, "given up");
		answer(breaking, 0, "");
	} else if (!result->error && !breaking->gone_watch.ticket) {
		node_look(breaking); /* it has fired meanwhile */
	}
}

static void node_look(struct zkf_breaking *breaking)
{
	char path[PATH_BYTES];

	if (breaking->op)
		return;
	node_path(path, breaking->request.head.kind, breaking->request.znode, breaking->request.claim);
	breaking->op = zkf_zk_get(path, &breaking->gone_watch, node_seen, breaking);
}

static void gone_fired(struct zkf_zk_watch *watch)
{
	node_look((struct zkf_breaking *)((char *)watch - offsetof(struct zkf_breaking, gone_watch)));
}

static void timer_fired(struct zkf_timer *timer)
{
	struct zkf_breaking *breaking = (struct zkf_breaking *)((char *)timer - offsetof(struct zkf_breaking, timer));
	int64_t now = zkf_now_ns();

	if (now - breaking->started_ns >= ZKF_BREAK_PATIENCE_MS * ZKF_NS_PER_MS) {
		result_log(breaking, "its host does not give it up");
		answer(breaking, EBUSY,
		       "its host was told, but does not give it up; --force deletes its claim, though the holder may run on");
		return;
	}
	host_tell(breaking);
	node_look(breaking);
	zkf_timer_arm(timer, now + ZKF_BREAK_AGAIN_MS * ZKF_NS_PER_MS);
}

static void host_ask(struct zkf_breaking *breaking)
{
	breaking->gone_watch.fire = gone_fired;
	breaking->timer.fire = timer_fired;
	breaking->started_ns = zkf_now_ns();
	timer_fired(&breaking->timer);
}

/* --- a request --- */

/* A component of a path, not a path; and one word of a letter. */
static bool is_component(const char *text, size_t capacity)
{
	size_t len = strnlen(text, capacity);

	return len > 0 && len < capacity && !memchr(text, '/', len) && !memchr(text, ' ', len) &&
	       strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

struct zkf_breaking *zkf_breaking_start(struct zkf_conversation *conversation, const struct zkf_break_request *request,
                                        const struct ucred *peer)
{
	struct zkf_breaking *breaking = zkf_calloc(1, sizeof(*breaking));

	if (!breaking)
		return NULL;
	*breaking = (struct zkf_breaking){.conversation = conversation, .request = *request, .peer = *peer};
	breaking->request.reason[sizeof(request->reason) - 1] = 0;
	if (peer->uid != 0 && peer->uid != geteuid())
		answer(breaking, EPERM, "only root and the keeper's own user may do that");
	else if (!is_component(request->znode, sizeof(request->znode)) ||
	         !is_component(request->claim, sizeof(request->claim)) ||
	         zkf_claim_name_read(&breaking->id, request->claim))
		answer(breaking, EINVAL, "no such claim");
	else if (!zkf_session_usable())
		answer(breaking, EAGAIN, zkf_session_trouble());
	else if (breaking->id.foreign || (request->head.flags & ZKF_FLAG_FORCE))
		node_delete(breaking);
	else
		host_ask(breaking);
	return breaking;
}

void zkf_breaking_stop(struct zkf_breaking *breaking)
{
	zkf_timer_stop(&breaking->timer);
	zkf_zk_watch_forget(&breaking->gone_watch);
	zkf_zk_cancel(breaking->op);
	free(breaking);
}

/* --- the holder's host --- */

static void stray_deleted(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	(void)result; /* who asked looks himself, and asks again */
}

void zkf_break_letter(const char *text)
{
	unsigned kind;
	char znode[128], claim[160], host[ZKF_HOST_BYTES], path[PATH_BYTES];
	int uid, pid, reason = 0;
	struct zkf_lock *lock;
	struct zkf_claim_id id;

	if (sscanf(text, "break1 %u %127s %159s %16s %d %d %n", &kind, znode, claim, host, &uid, &pid, &reason) != 6 ||
	    !reason || kind > ZKF_GROUP || !is_component(znode, sizeof(znode)) || !is_component(claim, sizeof(claim)) ||
	    zkf_claim_name_read(&id, claim) || id.foreign || strcmp(id.host, zkf_session_host()) != 0 ||
	    !zkf_session_usable())
		return;
	zkf_log(ZKF_LOG_WARN, "break lock=%s kind=%s claim=%s by_host=%s by_uid=%d by_pid=%d reason=\"%.240s\"", znode,
	        zkf_kind_directory(kind), claim, host, uid, pid, text + reason);
	lock = zkf_lock_find(kind, znode);
	if (lock && !zkf_lock_break(lock, claim))
		return;
	/* A node of ours that we do not know: nobody here was let in by it. */
	node_path(path, kind, znode, claim);
	zkf_zk_delete(path, stray_deleted, NULL);
}

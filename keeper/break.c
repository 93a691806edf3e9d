/*
 * keeper/break.c - see break.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "break.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "lock.h"
#include "log.h"
#include "session.h"
#include "zk.h"

struct zkf_breaking {
	struct zkf_conversation *conversation;
	struct zkf_zk_op *op;
	struct zkf_break_request request;
	struct ucred peer;
};

static void answer(struct zkf_breaking *breaking, int error, const char *why)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = error ? ZKF_FAILED : ZKF_END, .error = error};

	reply.text_bytes = (uint32_t)snprintf(reply.text, sizeof(reply.text), "%.200s", why);
	zkf_server_put(breaking->conversation, &reply, NULL);
}

static void deleted(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_breaking *breaking = owner;
	const struct zkf_break_request *request = &breaking->request;

	breaking->op = NULL;
	zkf_log(ZKF_LOG_WARN, "break lock=%s kind=%s claim=%s by_uid=%d by_pid=%d reason=\"%s\" result=\"%s\"",
	        request->znode, zkf_kind_directory(request->head.kind), request->claim, (int)breaking->peer.uid,
	        (int)breaking->peer.pid, request->reason, zkf_zk_error_name(result->error));
	if (result->error == -ENOENT)
		answer(breaking, ENOENT, "it has been given up meanwhile");
	else
		answer(breaking, -result->error, result->error ? zkf_zk_error_name(result->error) : "");
}

/* A component of a path, not a path. */
static bool is_component(const char *text, size_t capacity)
{
	size_t len = strnlen(text, capacity);

	return len > 0 && len < capacity && !memchr(text, '/', len) && strcmp(text, ".") != 0 &&
	       strcmp(text, "..") != 0;
}

struct zkf_breaking *zkf_breaking_start(struct zkf_conversation *conversation, const struct zkf_break_request *request,
                                        const struct ucred *peer)
{
	struct zkf_breaking *breaking = zkf_calloc(1, sizeof(*breaking));
	char path[1400];

	if (!breaking)
		return NULL;
	*breaking = (struct zkf_breaking){.conversation = conversation, .request = *request, .peer = *peer};
	breaking->request.reason[sizeof(request->reason) - 1] = 0;
	if (peer->uid != 0 && peer->uid != geteuid()) {
		answer(breaking, EPERM, "only root and the keeper's own user may do that");
	} else if (!is_component(request->znode, sizeof(request->znode)) ||
	           !is_component(request->claim, sizeof(request->claim))) {
		answer(breaking, EINVAL, "no such claim");
	} else if (!zkf_session_usable()) {
		answer(breaking, EAGAIN, zkf_session_trouble());
	} else {
		snprintf(path, sizeof(path), "%s/%s/%s/%s", zkf_session_root(), zkf_kind_directory(request->head.kind),
		         request->znode, request->claim);
		breaking->op = zkf_zk_delete(path, deleted, breaking);
		if (!breaking->op)
			answer(breaking, ENOMEM, "out of memory");
	}
	return breaking;
}

void zkf_breaking_stop(struct zkf_breaking *breaking)
{
	zkf_zk_cancel(breaking->op);
	free(breaking);
}

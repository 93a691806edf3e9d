/*
 * keeper/mailbox.c - see mailbox.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "mailbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "lease.h"
#include "loop.h"
#include "session.h"
#include "zk.h"

#define LETTERS_MAX 128
/* So many are waited for before it is looked whether the oldest was read. */
#define SENT_MAX 4096
/* Of "p" and a sequence number, which may be negative. */
#define NAME_BYTES 13

/* The loop's. */
static const struct zkf_mail_reader *readers;
static int letters; /* sent, and not yet answered by the server */
static char mailbox[1200];
static struct zkf_zk_watch mail_watch;
static struct zkf_zk_op *mail_op;
static struct zkf_timer mail_timer;

/* A letter of ours, in the order of sending.  Its reader deletes it; when he has ended, we do. */
struct sent_letter {
	struct sent_letter *next;
	int64_t due_ns; /* by then it has been read, or its reader's session is over */
	char path[];
};
static struct sent_letter *sent_first, **sent_last = &sent_first;
static int sent_count;
static struct zkf_zk_op *sent_op; /* of the first one */
static struct zkf_timer sent_timer;

static void mail_look(void);

struct letter {
	char *path;
	struct zkf_timer timer; /* to delete it again: one that stays would stay until its sender's session ends */
};

static void mail_retry(void)
{
	zkf_timer_arm(&mail_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static void letter_free(struct letter *letter)
{
	free(letter->path);
	free(letter);
}

static void letter_delete(struct letter *letter);

static void letter_deleted(void *owner, const struct zkf_zk_result *result)
{
	struct letter *letter = owner;

	/* In progress: the session is being closed, and with it goes the mailbox. */
	if (!result->error || result->error == -ENOENT || result->error == -EINPROGRESS)
		letter_free(letter);
	else
		zkf_timer_arm(&letter->timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static void letter_timer_fired(struct zkf_timer *timer)
{
	letter_delete((struct letter *)((char *)timer - offsetof(struct letter, timer)));
}

/* It has been read: not to be read again, since it would tell of waits that are over. */
static void letter_delete(struct letter *letter)
{
	if (!mailbox[0] || strncmp(letter->path, mailbox, strlen(mailbox)) != 0)
		letter_free(letter); /* of a session that is no more */
	else if (!zkf_zk_delete(letter->path, letter_deleted, letter))
		zkf_timer_arm(&letter->timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static void letter_read(void *owner, const struct zkf_zk_result *result)
{
	struct letter *letter = owner;

	if (result->error) {
		if (result->error != -ENOENT)
			mail_retry();
		letter_free(letter);
		return;
	}
	letter_delete(letter);
	for (const struct zkf_mail_reader *reader = readers; reader->first_word; reader++) {
		size_t len = strlen(reader->first_word);

		if (!strncmp(result->data, reader->first_word, len) && result->data[len] == ' ')
			reader->read(result->data);
	}
}

static void letter_open(const char *name)
{
	struct letter *letter = zkf_calloc(1, sizeof(*letter));

	if (letter && asprintf(&letter->path, "%s/%s", mailbox, name) < 0)
		letter->path = NULL;
	if (letter && letter->path) {
		letter->timer.fire = letter_timer_fired;
		if (zkf_zk_get(letter->path, NULL, letter_read, letter))
			return;
	}
	if (letter)
		letter_free(letter);
	mail_retry();
}

static void mail_parent_made(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	(void)result;
	mail_op = NULL;
	mail_retry();
}

/* It was there when the session began; somebody has tidied up. */
static void mail_parent_make(void)
{
	char path[1200];

	snprintf(path, sizeof(path), "%s/probes", zkf_session_root());
	mail_op = zkf_zk_create(path, "", ZKF_ZK_PERSISTENT, mail_parent_made, NULL);
	if (!mail_op)
		mail_retry();
}

static void mailbox_made(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	mail_op = NULL;
	if (!result->error || result->error == -EEXIST)
		mail_look();
	else if (result->error == -ENOENT)
		mail_parent_make();
	else
		mail_retry();
}

static void mail_listed(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	mail_op = NULL;
	if (result->error == -ENOENT) { /* new, or swept because it was empty */
		mail_op = zkf_zk_create(mailbox, "", ZKF_ZK_CONTAINER, mailbox_made, NULL);
		if (!mail_op)
			mail_retry();
		return;
	}
	if (result->error)
		mail_retry();
	for (int i = 0; i < result->count; i++)
		letter_open(result->children[i]);
}

static void mail_look(void)
{
	if (mail_op || !mailbox[0])
		return;
	mail_op = zkf_zk_children(mailbox, &mail_watch, mail_listed, NULL);
	if (!mail_op)
		mail_retry();
}

static void mail_fired(struct zkf_zk_watch *watch)
{
	(void)watch;
	mail_look();
}

static void mail_timer_fired(struct zkf_timer *timer)
{
	(void)timer;
	mail_look();
}

/* --- letters of ours: who was to read one may have ended before --- */

static void sent_look(void);

static void sent_retry(void)
{
	zkf_timer_arm(&sent_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static void sent_forget_first(void)
{
	struct sent_letter *letter = sent_first;

	sent_first = letter->next;
	if (!sent_first)
		sent_last = &sent_first;
	sent_count--;
	free(letter);
}

static void sent_deleted(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	sent_op = NULL;
	if (result->error && result->error != -ENOENT) {
		sent_retry();
		return;
	}
	sent_forget_first();
	sent_look();
}

static void sent_found(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	sent_op = NULL;
	if (result->error == -ENOENT) {
		sent_forget_first();
		sent_look();
		return;
	}
	if (!result->error)
		sent_op = zkf_zk_delete(sent_first->path, sent_deleted, NULL);
	if (!sent_op)
		sent_retry();
}

/* The oldest, when its time is over, or when there are too many. */
static void sent_look(void)
{
	if (sent_op || !sent_first)
		return;
	if (sent_first->due_ns > zkf_now_ns() && sent_count <= SENT_MAX) {
		zkf_timer_arm(&sent_timer, sent_first->due_ns);
		return;
	}
	sent_op = zkf_zk_get(sent_first->path, NULL, sent_found, NULL);
	if (!sent_op)
		sent_retry();
}

static void sent_timer_fired(struct zkf_timer *timer)
{
	(void)timer;
	sent_look();
}

static void sent(void *owner, const struct zkf_zk_result *result)
{
	struct sent_letter *letter = owner;

	letters--;
	if (result->error) {
		free(letter);
		return;
	}
	snprintf(strrchr(letter->path, '/') + 1, NAME_BYTES, "%s", result->name);
	letter->due_ns = zkf_now_ns() + 2 * zkf_session_timeout_ms() * ZKF_NS_PER_MS;
	letter->next = NULL;
	*sent_last = letter;
	sent_last = &letter->next;
	sent_count++;
	sent_look();
}

void zkf_mailbox_send(const char *host, const char *text)
{
	char path[1300];
	int bytes = snprintf(path, sizeof(path), "%s/probes/%s/p", zkf_session_root(), host);
	struct sent_letter *letter =
		letters < LETTERS_MAX ? zkf_calloc(1, sizeof(*letter) + (size_t)bytes + NAME_BYTES) : NULL;

	if (!letter)
		return;
	strcpy(letter->path, path);
	if (zkf_zk_create(path, text, ZKF_ZK_EPHEMERAL_SEQUENTIAL, sent, letter))
		letters++;
	else
		free(letter);
}

void zkf_mailbox_init(const struct zkf_mail_reader *the_readers)
{
	readers = the_readers;
	mail_watch.fire = mail_fired;
	mail_timer.fire = mail_timer_fired;
	sent_timer.fire = sent_timer_fired;
}

void zkf_mailbox_session(void)
{
	if (mailbox[0])
		return;
	snprintf(mailbox, sizeof(mailbox), "%s/probes/%s", zkf_session_root(), zkf_session_host());
	mail_look();
}

void zkf_mailbox_session_lost(void)
{
	mailbox[0] = 0;
	zkf_zk_cancel(mail_op);
	mail_op = NULL;
	zkf_timer_stop(&mail_timer);
	/* Our letters have gone with the session. */
	zkf_zk_cancel(sent_op);
	sent_op = NULL;
	zkf_timer_stop(&sent_timer);
	while (sent_first)
		sent_forget_first();
}

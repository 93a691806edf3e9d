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

/* The loop's. */
static const struct zkf_mail_reader *readers;
static int letters; /* sent, and not yet answered by the server */
static char mailbox[1200];
static struct zkf_zk_watch mail_watch;
static struct zkf_zk_op *mail_op;
static struct zkf_timer mail_timer;

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

static void sent(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	(void)result;
	letters--;
}

void zkf_mailbox_send(const char *host, const char *text)
{
	char path[1300];

	snprintf(path, sizeof(path), "%s/probes/%s/p", zkf_session_root(), host);
	if (letters < LETTERS_MAX && zkf_zk_create(path, text, ZKF_ZK_EPHEMERAL_SEQUENTIAL, sent, NULL))
		letters++;
}

void zkf_mailbox_init(const struct zkf_mail_reader *the_readers)
{
	readers = the_readers;
	mail_watch.fire = mail_fired;
	mail_timer.fire = mail_timer_fired;
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
}

/*
 * keeper/mailbox.h - letters between keepers
 *
 * Answers for: sending a text to a host's keeper, and reading each letter to this one once.
 * Does not:    promise that a letter arrives: who needs an answer looks for its effect, and sends it again.
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A letter is a node in the receiver's mailbox, <root>/probes/<host>/, ephemeral to the sender; who has read it deletes it,
 * or, when nobody has within two sessions' time, its sender.
 */
#ifndef ZKF_MAILBOX_H
#define ZKF_MAILBOX_H

struct zkf_mail_reader {
	const char *first_word; /* of the letters that it reads; NULL ends the table */
	void (*read)(const char *text);
};

/* zkf_mailbox_init - who reads what */
void zkf_mailbox_init(const struct zkf_mail_reader *readers);

/* zkf_mailbox_session - a session is alive: open this host's mailbox */
void zkf_mailbox_session(void);
/* zkf_mailbox_session_lost - forget it */
void zkf_mailbox_session_lost(void);

/* zkf_mailbox_send - to a host's keeper, by the host id of its session; lost when too many are under way */
void zkf_mailbox_send(const char *host, const char *text);

#endif

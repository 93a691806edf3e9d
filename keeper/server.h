/*
 * keeper/server.h - the keeper's socket: conversations with programs and the tool
 *
 * Answers for: accepting, reading requests, mapping the descriptor that came along, sending replies, hang-ups.
 * Does not:    decide; a request becomes a demand of keeper/lock.c.
 * Threads:     the loop's.
 * Specification: wire.h; unix(7): SCM_RIGHTS, SO_PEERCRED.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whatever a peer sends, the worst it gets is a closed connection.  A peer can lock what it can open: the keeper maps the
 * descriptor that it was given, never a path that it was told.
 */
#ifndef ZKF_SERVER_H
#define ZKF_SERVER_H

#include <stdbool.h>

#include "../mapping/config.h"
#include "wire.h"

/*
 * zkf_server_init - listen on directory_fd/socket
 *
 * passed  a socket that somebody else listens on for us (supervisor.h): used instead; or -1
 * config  the rules; may be replaced later by zkf_server_rules
 * mode    of the socket's file
 *
 * Returns 0 or a negative errno of socket, bind, listen.
 */
int zkf_server_init(int directory_fd, const char *directory, int passed, int mode, const struct zkf_config *config);

/* zkf_server_end - the socket's file goes, if it is (still) of our making */
void zkf_server_end(int directory_fd);

/* zkf_server_rules - from now on by these, until the next call; files that are in use keep their locks */
void zkf_server_rules(const struct zkf_config *config);

/* A conversation, for keeper/list.c. */
struct zkf_conversation;

/* zkf_server_send - one packet; a peer that does not read is hung up on.  0 or a negative errno */
int zkf_server_send(struct zkf_conversation *conversation, const struct zkf_reply *reply, const char *text);

/*
 * zkf_server_put - one packet that must arrive, in order: what the socket does not take now is kept
 *
 * A peer that reads nothing for 10 s is hung up on.  Returns 0 or -ENOMEM.  Not to be mixed with zkf_server_send.
 */
int zkf_server_put(struct zkf_conversation *conversation, const struct zkf_reply *reply, const char *text);

/* zkf_server_congested - is something kept?  When it is gone zkf_listing_go_on is called. */
bool zkf_server_congested(const struct zkf_conversation *conversation);

/* zkf_server_connections - how many there are */
int zkf_server_connections(void);

#endif

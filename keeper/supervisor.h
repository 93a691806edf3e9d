/*
 * keeper/supervisor.h - what systemd, or whoever speaks its protocols, hands in and is told
 *
 * Answers for: the listening socket that was passed ($LISTEN_FDS), and the messages to $NOTIFY_SOCKET.
 * Does not:    need libsystemd: both protocols are an environment variable and a system call.
 * Threads:     the start, then the loop's.
 * Specification: sd_listen_fds(3), sd_notify(3).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_SUPERVISOR_H
#define ZKF_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * zkf_supervisor_init - look at the environment; before the process forks, since $LISTEN_PID names it
 *
 * why  filled (capacity bytes) unless 0 is returned
 *
 * Returns 0; -EINVAL: descriptors were passed, but not exactly one AF_UNIX, SOCK_SEQPACKET socket that listens.
 * Whatever was passed is closed on exec from here on, and the variables are gone.
 */
int zkf_supervisor_init(char *why, size_t capacity);

/* zkf_supervisor_listener - the socket that was passed; -1: none, bind one */
int zkf_supervisor_listener(void);

/*
 * zkf_supervisor_tell - one message, as "READY=1\nSTATUS=text"; nothing happens without a $NOTIFY_SOCKET
 *
 * A supervisor that does not listen is logged, once.
 */
void zkf_supervisor_tell(const char *message);

#endif

/*
 * keeper/origin.h - does the path that the kernel prints for a user's descriptor say where the file is?
 *
 * Answers for: telling a path of this host's own tree of mounts from one that a user has made up.
 * Does not:    know rules or locks.
 * Threads:     the loop's.
 * Specification: mount_namespaces(7), user_namespaces(7), proc_pid_mountinfo(5), ioctl_ns(2).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Anybody may make a user namespace and in it a mount namespace, mount an empty file system on /srv/mail there, and open a
 * file "in" it.  For that descriptor the kernel prints /srv/mail/..., to us too.  Were it believed, he could take the lock of
 * a file that he can't open.
 */
#ifndef ZKF_ORIGIN_H
#define ZKF_ORIGIN_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

/*
 * zkf_origin_trusted - may the path of a descriptor be gone by?
 *
 * fd, status, path  what the peer has sent, what fstat says of it, what the kernel prints for it
 * peer              who has sent it
 *
 * True for root and the keeper's own user.  Else when the file's mount is one of the keeper's mount namespace; or of the
 * peer's, and that one was made by who administers the host (a service with PrivateTmp=, a container); or when the path
 * leads to this very file for us.
 */
bool zkf_origin_trusted(int fd, const struct stat *status, const char *path, const struct ucred *peer);

#endif

/*
 * preload/libc.h - what glibc has and musl has not
 *
 * Answers for: a library that can be built for musl, with the same code everywhere else.
 * Does not:    matter with glibc, where it is empty but for the includes.
 * Threads:     no state.
 * Specification: musl 1.2.3: include/fcntl.h, src/fcntl/fcntl.c; statx(2).
 * SPDX-License-Identifier: Apache-2.0
 *
 * musl's off_t always has 64 bits.  The *64 names are macros there (up to 1.2.3) or nothing at all; the structures that
 * they mean are the plain ones.  Its programs import the plain names only; the *64 names are exported to them all the same.
 */
#ifndef ZKF_LIBC_H
#define ZKF_LIBC_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#ifdef __GLIBC__

#include <sys/single_threaded.h>
#define zkf_single_threaded() __libc_single_threaded

#else

#ifndef F_SETLK64
#define F_SETLK64 F_SETLK
#define F_SETLKW64 F_SETLKW
#define F_GETLK64 F_GETLK
#endif
#ifndef flock64
#define flock64 flock
#define stat64 stat
#define fstat64 fstat
#define lstat64 lstat
#define lseek64 lseek
#define off64_t off_t
#endif
#undef fcntl64
#undef lockf64
int fcntl64(int fd, int cmd, ...);
int lockf64(int fd, int op, off_t len);

/* Nobody tells. */
#define zkf_single_threaded() false

/* As the kernel has it; what is not used is only counted. */
#ifndef STATX_INO
#define STATX_INO 0x100u
#define AT_STATX_DONT_SYNC 0x4000
struct statx {
	uint32_t unused_mask_blksize[2];
	uint64_t unused_attributes;
	uint32_t unused_nlink_uid_gid[3];
	uint16_t unused_mode[2];
	uint64_t stx_ino, unused_size_blocks_mask[3];
	struct {
		int64_t seconds;
		uint32_t ns[2];
	} unused_times[4];
	uint32_t unused_rdev[2], stx_dev_major, stx_dev_minor;
	uint64_t unused_spare[14];
};
_Static_assert(sizeof(struct statx) == 256, "statx(2)");
#define statx(directory, name, flags, mask, status) syscall(SYS_statx, directory, name, flags, mask, status)
#endif

#endif

/* The state word is read from a mapping that can't be written: a load that is a compare-exchange would fault. */
_Static_assert(__GCC_ATOMIC_LLONG_LOCK_FREE == 2, "64-bit words are read in one piece");

#endif

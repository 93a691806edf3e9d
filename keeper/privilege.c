/*
 * keeper/privilege.c - see privilege.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"

/*
 * What each is for was found out by leaving it out; tests/93_security_test.sh does what needs them:
 *
 *   CAP_DAC_READ_SEARCH  to reopen a file that only its user may read, and to list /proc/PID/fd of others
 *   CAP_SYS_PTRACE       to look behind the links in /proc/PID/fd of others, and kcmp(2)
 *   CAP_KILL             to stop and to kill who holds a lock that is lost
 */
static const uint64_t kept =
	UINT64_C(1) << CAP_DAC_READ_SEARCH | UINT64_C(1) << CAP_SYS_PTRACE | UINT64_C(1) << CAP_KILL;

static void lift(int resource)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};

	if (setrlimit((__rlimit_resource_t)resource, &none))
		zkf_log(ZKF_LOG_DEBUG, "privilege rlimit=%d error=%d", resource, errno);
}

int zkf_privilege_settle(void)
{
	if (getuid() == geteuid() && getgid() == getegid())
		return 0;
	if (setresgid(getgid(), getgid(), getgid()) || setresuid(geteuid(), geteuid(), geteuid()))
		return -errno;
	if (geteuid() == 0) {
		lift(RLIMIT_CPU);
		lift(RLIMIT_FSIZE);
		lift(RLIMIT_AS);
		lift(RLIMIT_DATA);
		lift(RLIMIT_MEMLOCK);
	}
	return 0;
}

int zkf_privilege_drop(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	/* Unknown to a kernel, or forbidden without CAP_SETPCAP: then there is nothing that could be gained through them. */
	for (int number = 0; number < 64; number++)
		if (!(kept >> number & 1) && prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1)
			prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capget, &header, data))
		return -errno;
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(kept >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

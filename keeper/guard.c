/*
 * keeper/guard.c - see guard.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "guard.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lease.h"
#include "log.h"
#include "state.h"

/* How long a keeper may be stopped, or be away from its loop (closing a session takes up to 4.5 s), until it is replaced. */
#define STOPPED_MS 500
#define HANGING_MS 5000
/* After how long a life a keeper's death is the first again. */
#define STEADY_S 60
#define LOOK_MS 250
/* A process that was killed in a system call that can't be interrupted is not waited for. */
#define REAP_MS 1000

static struct shared {
	_Atomic int64_t busy_since_ns; /* 0: the keeper waits in its loop */
	_Atomic int64_t deadline_ns;   /* of the lease; 0: none, or dealt with */
} * shared;

/* For the guard's signal handler. */
static volatile sig_atomic_t kept_pid;

static int timeout_ms; /* of the session */

void zkf_guard_waiting(bool waiting)
{
	if (shared)
		atomic_store(&shared->busy_since_ns, waiting ? 0 : zkf_now_ns());
}

void zkf_guard_progress(void)
{
	zkf_guard_waiting(false);
}

void zkf_guard_lease(int64_t deadline_ns)
{
	if (shared)
		atomic_store(&shared->deadline_ns, deadline_ns);
}

void zkf_guard_doubted(void)
{
	zkf_guard_lease(0);
}

static void forward(int number)
{
	if (kept_pid > 0)
		kill(kept_pid, number);
}

/* A child's end or stop, a signal to be forwarded, or LOOK_MS. */
static void pause_for_child(void)
{
	const struct timespec look = {.tv_nsec = LOOK_MS * ZKF_NS_PER_MS};
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigtimedwait(&child, NULL, &look);
}

static int64_t ms_since(int64_t ns)
{
	return (zkf_now_ns() - ns) / ZKF_NS_PER_MS;
}

static bool lease_is_over(void)
{
	int64_t deadline_ns = atomic_load(&shared->deadline_ns);

	return deadline_ns && zkf_now_ns() >= deadline_ns;
}

/* Did it end a heartbeat ago, and no keeper has done anything about it? */
static bool loss_is_due(void)
{
	return lease_is_over() && ms_since(atomic_load(&shared->deadline_ns)) >= zkf_lease_period_ms(timeout_ms);
}

static const char *why_replace(int64_t stopped_ns)
{
	int64_t busy_ns = atomic_load(&shared->busy_since_ns);

	if (stopped_ns && ms_since(stopped_ns) >= STOPPED_MS)
		return "it is stopped";
	if (busy_ns && loss_is_due())
		return "it hangs and the lease is over";
	return busy_ns && ms_since(busy_ns) >= HANGING_MS ? "it hangs" : NULL;
}

/* Waits for the end of a child that was killed, or that ends by itself; not for ever. */
static void reap(pid_t pid, int64_t patience_ms)
{
	int64_t since_ns = zkf_now_ns();

	while (waitpid(pid, NULL, WNOHANG) == 0 && ms_since(since_ns) < patience_ms)
		pause_for_child();
}

/* By a process of its own, that a keeper's tables can be filled in; and while no keeper runs, that there is one writer. */
static void lose(const struct zkf_guard_work *work)
{
	pid_t pid = fork();

	zkf_log(ZKF_LOG_ERROR, "guard lease-over why=\"no keeper could tell\"");
	if (pid == 0) {
		work->on_loss(timeout_ms);
		_exit(0);
	}
	if (pid < 0) {
		zkf_log(ZKF_LOG_ERROR, "guard fork errno=%d", errno); /* due as before: at the next look */
		return;
	}
	reap(pid, HANGING_MS);
	zkf_guard_doubted();
}

/*
 * Waits for the keeper's end; returns its status, or SIGKILL when it was replaced.  A signal that comes between the looks is
 * seen at the next one.
 */
static int keeper_wait(pid_t pid)
{
	int64_t stopped_ns = 0;
	int status;

	for (;;) {
		pid_t found = waitpid(pid, &status, WUNTRACED | WCONTINUED | WNOHANG);
		const char *why;

		if (found < 0 && errno != EINTR)
			return SIGKILL;
		if (found == pid && (WIFEXITED(status) || WIFSIGNALED(status)))
			return status;
		if (found == pid)
			stopped_ns = WIFSTOPPED(status) ? zkf_now_ns() : 0;
		why = why_replace(stopped_ns);
		if (why) {
			zkf_log(ZKF_LOG_ERROR, "guard keeper pid=%d action=SIGKILL why=\"%s\"", (int)pid, why);
			kill(pid, SIGKILL);
			reap(pid, REAP_MS);
			return SIGKILL;
		}
		pause_for_child();
	}
}

static void in_keeper(const sigset_t *mask)
{
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
}

/* At once the first times: the lease runs.  A keeper that dies of its own start must not eat the machine. */
static void pause_before(int restarts, const struct zkf_guard_work *work)
{
	int64_t since_ns = zkf_now_ns(), pause_ms = restarts <= 5 ? 0 : restarts < 50 ? restarts * 20 : 1000;

	do {
		if (loss_is_due())
			lose(work);
		if (pause_ms)
			usleep(20000);
	} while (ms_since(since_ns) < pause_ms);
}

static int prepare(sigset_t *mask)
{
	struct sigaction action = {.sa_handler = forward};
	sigset_t child;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		shared = NULL;
		return -errno;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, mask);
	return 0;
}

/* One that has failed is tried again as long as a lease counts, which somebody must see the end of. */
static bool starts_again(int code, const struct zkf_guard_work *work)
{
	bool failed = code && code != work->left && code != work->again;

	if (failed && atomic_load(&shared->deadline_ns))
		zkf_log(ZKF_LOG_ERROR, "guard keeper ended code=%d action=restart why=\"the lease is not over\"", code);
	return code == work->again || (failed && atomic_load(&shared->deadline_ns));
}

int zkf_guard_start(int session_timeout_ms, const struct zkf_guard_work *work)
{
	int restarts = 0, status;
	sigset_t mask;

	timeout_ms = session_timeout_ms;
	status = prepare(&mask);
	if (status)
		return status;
	for (;;) {
		int64_t started_ns = zkf_now_ns();
		pid_t pid;

		zkf_guard_waiting(false);
		pid = fork();
		if (pid == 0) {
			in_keeper(&mask);
			return -1;
		}
		if (pid < 0)
			return -errno;
		kept_pid = pid;
		work->forked();
		status = keeper_wait(pid);
		kept_pid = 0;
		if (WIFEXITED(status) && !starts_again(WEXITSTATUS(status), work))
			return WEXITSTATUS(status);
		if (WIFSIGNALED(status))
			zkf_log(ZKF_LOG_ERROR, "guard keeper pid=%d ended signal=%d action=restart", (int)pid,
			        WTERMSIG(status));
		if (ms_since(started_ns) > STEADY_S * 1000)
			restarts = 0;
		pause_before(++restarts, work);
	}
}

void zkf_guard_stay(int directory, int lock, const struct zkf_guard_work *work)
{
	pid_t pid = atomic_load(&shared->deadline_ns) ? fork() : -1;

	if (pid)
		return;
	/* Whoever ends the keeper's session or service does not mean us: the holders run on, too. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	setsid();
	flock(lock, LOCK_UN);
	for (int looks = 0; faccessat(directory, ZKF_STATE_PID, F_OK, 0) && !lease_is_over(); looks++) {
		if (looks % 4 == 0 && !work->needed())
			_exit(0);
		usleep(LOOK_MS * 1000);
	}
	if (faccessat(directory, ZKF_STATE_PID, F_OK, 0) && !flock(lock, LOCK_EX | LOCK_NB))
		lose(work);
	_exit(0);
}

/*
 * tests/inject/inject.c - a keeper whose calls can be made to fail
 *
 * Answers for: every call of the keeper to libzookeeper that can fail, and every allocation of its own code.  It is linked
 *              into a keeper for tests only, with --wrap=NAME for each __wrap_NAME below: that list is the table of calls.
 *              tests/52_inject_test.sh fails when the keeper imports one that is not here.
 * Does not:    touch what libzookeeper or libc allocate for themselves.
 * Threads:     any.  No allocation by a function that is wrapped here, and nothing of libzookeeper's under the mutex.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The plan is the file "inject" in the runtime directory, looked at before every call; a new file is a new plan, and
 * counting begins anew.  Each line:
 *
 *     CLASS NTH ACTION [ARGUMENT]
 *
 *     CLASS   VERB.WHAT, see class_of(), as create.claim, set.peer, get.queue; or alloc; or address (a server's, in memory, too);
 *             or any (every call to ZooKeeper)
 *     NTH     of that class, from 1; 0: every one
 *     ACTION  refuse RC   the call returns RC at once, and nothing was sent
 *             before RC   its answer is RC, and nothing was done
 *             after RC    its answer is RC, though it was done (reads: as "before")
 *             late MS     its answer, and what comes after it, is late
 *             gone        the node (create: the one it is to be made in) is deleted if it is empty, then the call made
 *             expire      the session is ended, then the call made
 *             kill        the keeper is killed, then the call made by nobody
 *             fail        (alloc, address) there is no memory
 *             rate N      (alloc) of a thousand, N fail; NTH is the seed
 *
 * What was done is appended to "injected", a line for each: the plan's line.  A line that stands there is not done again by a
 * keeper that follows (but "every one" and "rate" are).  With "trace" in the plan every call's class goes to "trace".
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define PLANS_MAX 64
#define TEXT_BYTES 16384
#define ROOT "/zkflock"

enum action { NOTHING, REFUSE, BEFORE, AFTER, LATE, GONE, EXPIRE, KILL, FAIL, RATE };

struct plan {
	char line[64], class[24];
	unsigned long nth, seen;
	enum action action;
	int argument;
	bool done;
};

static const struct {
	const char *name;
	enum action action;
} actions[] = {{"refuse", REFUSE}, {"before", BEFORE}, {"after", AFTER}, {"late", LATE}, {"gone", GONE},
               {"expire", EXPIRE}, {"kill", KILL},     {"fail", FAIL},   {"rate", RATE}};

/* Under the mutex. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char directory[1024];
static struct plan plans[PLANS_MAX];
static int plan_count = -1;
static bool tracing;
static struct timespec plan_time;
static ino_t plan_inode;
static char servers[2048]; /* what the keeper has connected to */

static void path_in(char path[1100], const char *name)
{
	snprintf(path, 1100, "%s/%s", directory, name);
}

static void append_line(const char *name, const char *line)
{
	char path[1100], text[128];
	int fd, bytes = snprintf(text, sizeof(text), "%s\n", line);

	path_in(path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (write(fd, text, (size_t)bytes) < 0)
		_exit(99);
	close(fd);
}

static void read_text(const char *name, char text[TEXT_BYTES])
{
	char path[1100];
	ssize_t bytes;
	int fd;

	path_in(path, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = fd < 0 ? 0 : read(fd, text, TEXT_BYTES - 1);
	text[bytes < 0 ? 0 : bytes] = 0;
	if (fd >= 0)
		close(fd);
}

static void plan_parse(const char *line, const char *done)
{
	struct plan *plan = &plans[plan_count];
	char action[16] = "";

	*plan = (struct plan){0};
	snprintf(plan->line, sizeof(plan->line), "%s", line);
	if (strcmp(line, "trace") == 0)
		tracing = true;
	if (sscanf(line, "%23s %lu %15s %d", plan->class, &plan->nth, action, &plan->argument) < 3)
		return;
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (!strcmp(action, actions[i].name))
			plan->action = actions[i].action;
	plan->done = plan->nth && plan->action != RATE && strstr(done, line);
	plan_count++;
}

/* Looks whether there is another plan. */
static void plan_refresh(void)
{
	static char text[TEXT_BYTES], done[TEXT_BYTES];
	char path[1100], *next = text, *line;
	struct stat status;

	if (!directory[0])
		snprintf(directory, sizeof(directory), "%s", secure_getenv("ZKFLOCK_RUNTIME_DIR") ?: "/nonexistent");
	path_in(path, "inject");
	if (stat(path, &status)) {
		plan_count = 0;
		tracing = false;
		plan_inode = 0;
		return;
	}
	if (plan_count >= 0 && status.st_ino == plan_inode && status.st_mtim.tv_nsec == plan_time.tv_nsec &&
	    status.st_mtim.tv_sec == plan_time.tv_sec)
		return;
	plan_inode = status.st_ino;
	plan_time = status.st_mtim;
	plan_count = 0;
	tracing = false;
	read_text("inject", text);
	read_text("injected", done);
	while ((line = strsep(&next, "\n")) != NULL && plan_count < PLANS_MAX)
		if (*line)
			plan_parse(line, done);
}

static bool is_due(struct plan *plan)
{
	plan->seen++;
	if (plan->action == RATE)
		return ((plan->seen + plan->nth * 7919) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % 1000 <
		       (uint64_t)plan->argument;
	return !plan->nth || (plan->seen == plan->nth && !plan->done);
}

/* What is to become of this call. */
static struct plan consult(const char *class)
{
	struct plan chosen = {0};
	bool alloc = !strcmp(class, "alloc");
	int error = errno;

	pthread_mutex_lock(&mutex);
	plan_refresh();
	if (tracing)
		append_line("trace", class);
	for (int i = 0; i < plan_count; i++) {
		struct plan *plan = &plans[i];

		if ((strcmp(plan->class, class) && (alloc || strcmp(plan->class, "any"))) || !is_due(plan) ||
		    chosen.action)
			continue;
		plan->done = true;
		chosen = *plan;
		append_line("injected", plan->line);
	}
	pthread_mutex_unlock(&mutex);
	errno = error;
	return chosen;
}

/* --- allocations --- */

static bool no_memory(void)
{
	if (!consult("alloc").action)
		return false;
	errno = ENOMEM;
	return true;
}

#define WRAPPED(type, name, parameters, arguments, failed)                                                             \
	type __real_##name parameters;                                                                                 \
	type __wrap_##name parameters;                                                                                 \
	type __wrap_##name parameters                                                                                  \
	{                                                                                                              \
		return no_memory() ? (failed) : __real_##name arguments;                                               \
	}

/* The table: WRAPPED(type, NAME, ...), and the functions __wrap_NAME below. */
WRAPPED(void *, malloc, (size_t bytes), (bytes), NULL)
WRAPPED(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL)
WRAPPED(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL)
WRAPPED(void *, reallocarray, (void *old, size_t count, size_t bytes), (old, count, bytes), NULL)
WRAPPED(char *, strdup, (const char *text), (text), NULL)
WRAPPED(char *, strndup, (const char *text, size_t bytes), (text, bytes), NULL)
WRAPPED(FILE *, open_memstream, (char **text, size_t *bytes), (text, bytes), NULL)
WRAPPED(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAPPED(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL)
WRAPPED(DIR *, opendir, (const char *path), (path), NULL)
WRAPPED(ssize_t, getline, (char **line, size_t *bytes, FILE *in), (line, bytes, in), -1)
WRAPPED(ssize_t, __getdelim, (char **line, size_t *bytes, int end, FILE *in), (line, bytes, end, in), -1)
WRAPPED(int, pthread_create, (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument),
        (thread, attr, run, argument), EAGAIN)

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	bool fails = consult("address").action;

	return no_memory() || fails ? EAI_MEMORY : __real_getaddrinfo(node, service, hints, found);
}

int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **text, const char *format, ...)
{
	va_list arguments;
	int bytes;

	if (no_memory())
		return -1;
	va_start(arguments, format);
	bytes = vasprintf(text, format, arguments);
	va_end(arguments);
	return bytes;
}

int __wrap___asprintf_chk(char **text, int flag, const char *format, ...) __attribute__((format(printf, 3, 4)));
int __wrap___asprintf_chk(char **text, int flag, const char *format, ...)
{
	va_list arguments;
	int bytes;

	(void)flag;
	if (no_memory())
		return -1;
	va_start(arguments, format);
	bytes = vasprintf(text, format, arguments);
	va_end(arguments);
	return bytes;
}

/* --- calls to ZooKeeper --- */

/* An answer that is to be changed: what the keeper wants to be told it by. */
struct shim {
	enum { VOID, STAT, DATA, STRING, STRINGS } type;
	union {
		void_completion_t with_void;
		stat_completion_t with_stat;
		data_completion_t with_data;
		string_completion_t with_string;
		strings_completion_t with_strings;
	} to;
	const void *context;
	struct plan plan;
};

/* The part of a path below ROOT: VERB.parent, .host, .hosts, .kind, .queue, .claim, .peer, .mailbox, .letter */
static void class_of(char class[24], const char *verb, const char *path, int64_t session)
{
	const char *rest = !strncmp(path, ROOT, strlen(ROOT)) ? path + strlen(ROOT) : "", *what;
	char kind[16] = "", own[20];
	int depth = 0;

	for (const char *at = rest; *at; at++)
		depth += *at == '/';
	snprintf(kind, sizeof(kind), "%.*s", *rest ? (int)strcspn(rest + 1, "/") : 0, *rest ? rest + 1 : "");
	snprintf(own, sizeof(own), "/%016llx-", (unsigned long long)session);
	if (depth < 2)
		what = !strcmp(verb, "create") ? "parent" : depth ? "kind" : "root";
	else if (!strcmp(kind, "hosts"))
		what = "host";
	else if (!strcmp(kind, "probes"))
		what = depth == 2 ? "mailbox" : "letter";
	else if (depth == 2)
		what = "queue";
	else
		what = strstr(rest, own) ? "claim" : "peer";
	snprintf(class, 24, "%s.%s", verb, what);
}

static void shim_tell(struct shim *shim, int rc)
{
	switch (shim->type) {
	case VOID:
		shim->to.with_void(rc, shim->context);
		break;
	case STAT:
		shim->to.with_stat(rc, NULL, shim->context);
		break;
	case DATA:
		shim->to.with_data(rc, NULL, 0, NULL, shim->context);
		break;
	case STRING:
		shim->to.with_string(rc, NULL, shim->context);
		break;
	case STRINGS:
		shim->to.with_strings(rc, NULL, shim->context);
		break;
	}
	free(shim);
}

/* Client thread. */
static void nothing_done(int rc, const char *value, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	(void)rc;
	(void)value;
	shim_tell(shim, shim->plan.argument);
}

/* Client thread.  True: told already. */
static bool shim_changes(struct shim *shim)
{
	if (shim->plan.action == LATE) {
		nanosleep(&(struct timespec){shim->plan.argument / 1000, shim->plan.argument % 1000 * 1000000L}, NULL);
		return false;
	}
	shim_tell(shim, shim->plan.argument);
	return true;
}

static void on_void(int rc, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	if (!shim_changes(shim)) {
		shim->to.with_void(rc, shim->context);
		free(shim);
	}
}

static void on_stat(int rc, const struct Stat *stat, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	if (!shim_changes(shim)) {
		shim->to.with_stat(rc, stat, shim->context);
		free(shim);
	}
}

static void on_data(int rc, const char *value, int bytes, const struct Stat *stat, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	if (!shim_changes(shim)) {
		shim->to.with_data(rc, value, bytes, stat, shim->context);
		free(shim);
	}
}

static void on_string(int rc, const char *value, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	if (!shim_changes(shim)) {
		shim->to.with_string(rc, value, shim->context);
		free(shim);
	}
}

static void on_strings(int rc, const struct String_vector *strings, const void *context)
{
	struct shim *shim = (struct shim *)(uintptr_t)context;

	if (!shim_changes(shim)) {
		shim->to.with_strings(rc, strings, shim->context);
		free(shim);
	}
}

int __real_zoo_acreate(zhandle_t *zh, const char *path, const char *value, int bytes, const struct ACL_vector *acl,
                       int mode, string_completion_t completion, const void *data);
int __real_zoo_awget_children(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcher_context,
                              strings_completion_t completion, const void *data);
int __real_zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcher_context,
                     data_completion_t completion, const void *data);
int __real_zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int bytes, int version,
                    stat_completion_t completion, const void *data);
int __real_zoo_adelete(zhandle_t *zh, const char *path, int version, void_completion_t completion, const void *data);
int __real_zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data);
zhandle_t *__real_zookeeper_init2(const char *host, watcher_fn watcher, int timeout, const clientid_t *id,
                                  void *context, int flags, log_callback_fn log);
int __real_zookeeper_close(zhandle_t *zh);

static void nobody(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	(void)zh;
	(void)type;
	(void)state;
	(void)path;
	(void)context;
}

/* As if a server had expired it: another client resumes the session and ends it. */
static void session_end(zhandle_t *zh)
{
	clientid_t id = *zoo_client_id(zh);
	zhandle_t *other =
		__real_zookeeper_init2(servers, nobody, zoo_recv_timeout(zh), &id, NULL, ZOO_NO_LOG_CLIENTENV, NULL);

	for (int i = 0; other && i < 2000 && zoo_state(other) != ZOO_CONNECTED_STATE; i++)
		usleep(1000);
	if (other)
		__real_zookeeper_close(other);
}

static void gone(int rc, const void *context)
{
	(void)rc;
	(void)context;
}

/* What a server does before the next request of this session. */
static void node_delete(zhandle_t *zh, const char *path, bool parent)
{
	char node[1200];

	snprintf(node, sizeof(node), "%s", path);
	if (parent)
		*strrchr(node, '/') = 0;
	if (*node)
		__real_zoo_adelete(zh, node, -1, gone, NULL);
}

/*
 * Sets *shim when the answer is to be changed; returns ZOK when the call is to be made, else (*made) what it returns.
 * read: an answer that says it has failed must not have armed a watch.
 */
static int intercept(zhandle_t *zh, const char *verb, const char *path, bool read, struct shim *as, struct shim **shim,
                     bool *made)
{
	char class[24];
	int rc;

	class_of(class, verb, path, zoo_client_id(zh)->client_id);
	as->plan = consult(class);
	*shim = NULL;
	*made = false;
	if (read && as->plan.action == AFTER)
		as->plan.action = BEFORE;
	switch (as->plan.action) {
	case REFUSE:
		*made = true;
		return as->plan.argument;
	case KILL:
		kill(getpid(), SIGKILL);
		return ZOK;
	case GONE:
		node_delete(zh, path, !strcmp(verb, "create"));
		return ZOK;
	case EXPIRE:
		session_end(zh);
		return ZOK;
	case BEFORE:
	case AFTER:
	case LATE:
		*shim = __real_malloc(sizeof(**shim));
		if (!*shim)
			_exit(98);
		**shim = *as;
		if (as->plan.action != BEFORE)
			return ZOK;
		*made = true;
		rc = __real_zoo_async(zh, "/", nothing_done, *shim);
		if (rc)
			free(*shim);
		return rc;
	default:
		return ZOK;
	}
}

static int after_call(int rc, struct shim *shim)
{
	if (rc)
		free(shim);
	return rc;
}

/* The prototypes: what --wrap makes of libzookeeper's own. */
__typeof__(__real_zoo_acreate) __wrap_zoo_acreate;
__typeof__(__real_zoo_awget_children) __wrap_zoo_awget_children;
__typeof__(__real_zoo_awget) __wrap_zoo_awget;
__typeof__(__real_zoo_aset) __wrap_zoo_aset;
__typeof__(__real_zoo_adelete) __wrap_zoo_adelete;
__typeof__(__real_zoo_async) __wrap_zoo_async;
__typeof__(__real_zookeeper_init2) __wrap_zookeeper_init2;
__typeof__(__real_zookeeper_close) __wrap_zookeeper_close;

int __wrap_zoo_acreate(zhandle_t *zh, const char *path, const char *value, int bytes, const struct ACL_vector *acl,
                       int mode, string_completion_t completion, const void *data)
{
	struct shim as = {.type = STRING, .to.with_string = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "create", path, false, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(__real_zoo_acreate(zh, path, value, bytes, acl, mode, shim ? on_string : completion,
	                                     shim ? shim : data),
	                  shim);
}

int __wrap_zoo_awget_children(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcher_context,
                              strings_completion_t completion, const void *data)
{
	struct shim as = {.type = STRINGS, .to.with_strings = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "children", path, true, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(__real_zoo_awget_children(zh, path, watcher, watcher_context, shim ? on_strings : completion,
	                                            shim ? shim : data),
	                  shim);
}

int __wrap_zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcher_context,
                     data_completion_t completion, const void *data)
{
	struct shim as = {.type = DATA, .to.with_data = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "get", path, true, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(
		__real_zoo_awget(zh, path, watcher, watcher_context, shim ? on_data : completion, shim ? shim : data),
		shim);
}

int __wrap_zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int bytes, int version,
                    stat_completion_t completion, const void *data)
{
	struct shim as = {.type = STAT, .to.with_stat = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "set", path, false, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(
		__real_zoo_aset(zh, path, buffer, bytes, version, shim ? on_stat : completion, shim ? shim : data),
		shim);
}

int __wrap_zoo_adelete(zhandle_t *zh, const char *path, int version, void_completion_t completion, const void *data)
{
	struct shim as = {.type = VOID, .to.with_void = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "delete", path, false, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(__real_zoo_adelete(zh, path, version, shim ? on_void : completion, shim ? shim : data), shim);
}

int __wrap_zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data)
{
	struct shim as = {.type = STRING, .to.with_string = completion, .context = data}, *shim;
	bool made;
	int rc = intercept(zh, "sync", path, true, &as, &shim, &made);

	if (made)
		return rc;
	return after_call(__real_zoo_async(zh, path, shim ? on_string : completion, shim ? shim : data), shim);
}

zhandle_t *__wrap_zookeeper_init2(const char *host, watcher_fn watcher, int timeout, const clientid_t *id,
                                  void *context, int flags, log_callback_fn log)
{
	snprintf(servers, sizeof(servers), "%s", host);
	if (consult("init").action) {
		errno = ENOMEM;
		return NULL;
	}
	return __real_zookeeper_init2(host, watcher, timeout, id, context, flags, log);
}

int __wrap_zookeeper_close(zhandle_t *zh)
{
	if (consult("close").action == KILL)
		kill(getpid(), SIGKILL);
	return __real_zookeeper_close(zh);
}

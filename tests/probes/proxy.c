/*
 * tests/probes/proxy.c - TCP links on loopback that a test can cut, freeze, heal, and rob of one reply
 *
 *     proxy IN OUT LINK...      LINK is NAME=LISTEN:TARGET, NAME=zk:LISTEN:TARGET, or NAME=swap:LISTEN:TARGET:FROM:TO
 *
 * Ports are on 127.0.0.1.  A zk link speaks ZooKeeper's client protocol and is forwarded by whole packets.  A swap link
 * replaces the text ":FROM" by ":TO" (ports of equal length) in the first bytes that a connection brings: servers tell
 * each other their address when they connect, and must not be told a way round the link.
 *
 * Commands are lines in the fifo IN, each answered by a line in the fifo OUT.  NAME is a pattern (fnmatch).
 *
 *     cut NAME               connections are reset, new ones refused
 *     freeze NAME            connections stay, new ones are accepted, and nothing moves: a partition, or a hung server
 *     heal NAME              forward again, what was held back first
 *     drop NAME VERB PART    the server's reply to the next VERB (create, set, delete) on a path that contains PART
 *                            is swallowed, and its connection reset: the server has done it, the client can't know
 *     hold NAME VERB PART    the same reply (also to a list of children) is held back, and the link frozen with it
 *     dropped NAME           how many replies were swallowed or held back, for a number
 *
 * Whole packets: 4 bytes of length; requests begin with xid, type and (in these verbs) the path; replies with xid.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS_MAX 32
#define CONNECTIONS_MAX 256
#define BUFFER_MAX (4u << 20)

struct buffer {
	char *bytes;
	size_t len, capacity;
};

struct connection;

struct link {
	char name[32];
	int listen_port, target_port, listener;
	bool packets, frozen;
	char from[8], to[8];
	/* drop: what is waited for, in which connection it was seen, under which xid */
	int32_t drop_type, drop_xid;
	char drop_part[128];
	struct connection *drop_in;
	bool hold;
	int dropped;
};

struct end {
	int fd;
	struct buffer in, out; /* read and not looked at; to be written to this end */
	bool connecting;
};

struct connection {
	struct link *link;
	struct end client, server;
	bool greeted; /* the session's first packets, which have no xid, have passed: client's */
	bool welcomed;
	bool swapped;
};

static struct link links[LINKS_MAX];
static int link_count;
static struct connection *connections[CONNECTIONS_MAX];
static int connection_count;

static void append(struct buffer *buffer, const char *bytes, size_t len)
{
	if (buffer->len + len > buffer->capacity) {
		buffer->capacity = (buffer->len + len) * 2;
		buffer->bytes = realloc(buffer->bytes, buffer->capacity);
		if (!buffer->bytes)
			abort();
	}
	memcpy(buffer->bytes + buffer->len, bytes, len);
	buffer->len += len;
}

static void consume(struct buffer *buffer, size_t len)
{
	memmove(buffer->bytes, buffer->bytes + len, buffer->len - len);
	buffer->len -= len;
}

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int open_listener(int port)
{
	struct sockaddr_in address = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 64)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Reset, not closed: what was not read yet must not look like an orderly end. */
static void end_close(struct end *end)
{
	struct linger hard = {.l_onoff = 1};

	if (end->fd >= 0) {
		setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		close(end->fd);
	}
	free(end->in.bytes);
	free(end->out.bytes);
}

static void connection_close(struct connection *connection)
{
	for (int i = 0; i < connection_count; i++)
		if (connections[i] == connection)
			connections[i] = connections[--connection_count];
	if (connection->link->drop_in == connection)
		connection->link->drop_in = NULL;
	end_close(&connection->client);
	end_close(&connection->server);
	free(connection);
}

static bool server_connect(struct connection *connection)
{
	struct sockaddr_in address = loopback(connection->link->target_port);
	int one = 1;

	connection->server.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(connection->server.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	connection->server.connecting = true;
	return !connect(connection->server.fd, (struct sockaddr *)&address, sizeof(address)) || errno == EINPROGRESS;
}

static void link_accept(struct link *link)
{
	int fd = accept4(link->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
	struct connection *connection;

	if (fd < 0)
		return;
	connection = connection_count < CONNECTIONS_MAX ? calloc(1, sizeof(*connection)) : NULL;
	if (!connection) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*connection = (struct connection){.link = link, .client = {.fd = fd}, .server = {.fd = -1}};
	connections[connection_count++] = connection;
	if (!link->frozen && !server_connect(connection))
		connection_close(connection);
}

static int32_t number_at(const char *bytes)
{
	uint32_t number;

	memcpy(&number, bytes, sizeof(number));
	return (int32_t)ntohl(number);
}

static bool path_has(const char *packet, size_t len, const char *part)
{
	size_t path = len >= 16 ? (size_t)number_at(packet + 12) : 0;

	return path <= len - 16 && memmem(packet + 16, path, part, strlen(part));
}

static void request_seen(struct connection *connection, const char *packet, size_t len)
{
	struct link *link = connection->link;

	if (!connection->greeted) {
		connection->greeted = true;
		return;
	}
	if (len < 16 || !link->drop_type || link->drop_in)
		return;
	/* A container's create is type 19: never meant. */
	if (number_at(packet + 8) == link->drop_type && path_has(packet, len, link->drop_part)) {
		link->drop_in = connection;
		link->drop_xid = number_at(packet + 4);
	}
}

static bool reply_is_dropped(struct connection *connection, const char *packet, size_t len)
{
	struct link *link = connection->link;

	if (!connection->welcomed) {
		connection->welcomed = true;
		return false;
	}
	return link->drop_in == connection && len >= 8 && number_at(packet + 4) == link->drop_xid;
}

/* Whole packets from one end's `in` to the other's `out`.  False: the connection was closed. */
static bool move_packets(struct connection *connection, struct end *from, struct end *to)
{
	size_t at = 0;

	while (from->in.len - at >= 4) {
		const char *packet = from->in.bytes + at;
		size_t len = (size_t)(uint32_t)number_at(packet) + 4;

		if (from->in.len - at < len)
			break;
		if (from == &connection->client) {
			request_seen(connection, packet, len);
		} else if (reply_is_dropped(connection, packet, len)) {
			connection->link->dropped++;
			connection->link->drop_type = 0;
			if (connection->link->hold) {
				connection->link->drop_in = NULL;
				connection->link->frozen = true;
				break; /* it goes on with what comes next, after heal */
			}
			connection_close(connection);
			return false;
		}
		append(&to->out, packet, len);
		at += len;
	}
	consume(&from->in, at);
	return true;
}

static void swap(struct connection *connection, struct buffer *in)
{
	const struct link *link = connection->link;
	char *found = link->from[0] ? memmem(in->bytes, in->len, link->from, strlen(link->from)) : NULL;

	connection->swapped = true;
	if (found)
		memcpy(found, link->to, strlen(link->to));
}

static bool end_read(struct connection *connection, struct end *from, struct end *to)
{
	char bytes[65536];
	ssize_t got = read(from->fd, bytes, sizeof(bytes));

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got <= 0) {
		/* What is on its way arrives, as far as the other side takes it at once. */
		if (to->fd >= 0 && to->out.len && write(to->fd, to->out.bytes, to->out.len) < 0)
			errno = 0;
		connection_close(connection);
		return false;
	}
	append(&from->in, bytes, (size_t)got);
	if (connection->link->packets)
		return move_packets(connection, from, to);
	if (from == &connection->client && !connection->swapped)
		swap(connection, &from->in);
	append(&to->out, from->in.bytes, from->in.len);
	from->in.len = 0;
	return true;
}

static bool end_write(struct connection *connection, struct end *end)
{
	ssize_t sent;

	end->connecting = false;
	if (!end->out.len)
		return true;
	sent = send(end->fd, end->out.bytes, end->out.len, MSG_NOSIGNAL);
	if (sent < 0 && errno != EAGAIN && errno != EINTR) {
		connection_close(connection);
		return false;
	}
	if (sent > 0)
		consume(&end->out, (size_t)sent);
	return true;
}

static bool connection_handle(struct connection *connection, short client, short server)
{
	struct end *ends[2] = {&connection->client, &connection->server};
	short ready[2] = {client, server};

	for (int i = 0; i < 2; i++) {
		if ((ready[i] & POLLOUT) && !(ready[i] & POLLERR) && !end_write(connection, ends[i]))
			return false;
		if ((ready[i] & (POLLIN | POLLHUP | POLLERR)) && !end_read(connection, ends[i], ends[!i]))
			return false;
	}
	return true;
}

/* --- commands --- */

static void link_cut(struct link *link)
{
	for (int i = connection_count - 1; i >= 0; i--)
		if (connections[i]->link == link)
			connection_close(connections[i]);
	if (link->listener >= 0)
		close(link->listener);
	link->listener = -1;
	link->frozen = false;
}

static bool link_heal(struct link *link)
{
	if (link->listener < 0)
		link->listener = open_listener(link->listen_port);
	link->frozen = false;
	for (int i = connection_count - 1; i >= 0; i--)
		if (connections[i]->link == link && connections[i]->server.fd < 0 && !server_connect(connections[i]))
			connection_close(connections[i]);
	return link->listener >= 0;
}

static int32_t type_of(const char *verb)
{
	return !strcmp(verb, "create") ? 1
	     : !strcmp(verb, "delete") ? 2
	     : !strcmp(verb, "set")    ? 5
	     : !strcmp(verb, "list")   ? 8
	                               : 0;
}

static void drop_next(struct link *link, const char *verb, const char *part, bool hold)
{
	link->drop_type = type_of(verb);
	link->hold = hold;
	link->drop_in = NULL;
	snprintf(link->drop_part, sizeof(link->drop_part), "%s", part);
}

static void command(char *line, int out)
{
	char verb[16] = "", name[32] = "", what[16] = "", part[128] = "", answer[32] = "no such link";

	sscanf(line, "%15s %31s %15s %127s", verb, name, what, part);
	for (int i = 0; i < link_count; i++) {
		struct link *link = &links[i];
		bool good = true;

		if (fnmatch(name, link->name, 0))
			continue;
		if (!strcmp(verb, "cut"))
			link_cut(link);
		else if (!strcmp(verb, "freeze"))
			link->frozen = true;
		else if (!strcmp(verb, "heal"))
			good = link_heal(link);
		else if (!strcmp(verb, "drop") || !strcmp(verb, "hold"))
			drop_next(link, what, part, verb[0] == 'h');
		else
			good = !strcmp(verb, "dropped");
		snprintf(answer, sizeof(answer), "%s", good ? "ok" : "failed");
		if (!strcmp(verb, "dropped"))
			snprintf(answer, sizeof(answer), "%d", link->dropped);
	}
	dprintf(out, "%s\n", answer);
}

static void commands_read(int in, int out)
{
	static char text[1024];
	static size_t used;
	ssize_t got = read(in, text + used, sizeof(text) - 1 - used);
	char *end;

	used += got > 0 ? (size_t)got : 0;
	text[used] = 0;
	while ((end = strchr(text, '\n')) != NULL) {
		*end = 0;
		command(text, out);
		used -= (size_t)(end + 1 - text);
		memmove(text, end + 1, used + 1);
	}
}

static bool link_parse(struct link *link, const char *text)
{
	char from[7] = "", to[7] = "";

	link->packets = strstr(text, "=zk:");
	if (sscanf(text, "%31[^=]=%*[zkswap:]%d:%d:%6[0-9]:%6[0-9]", link->name, &link->listen_port, &link->target_port,
	           from, to) < 3 &&
	    sscanf(text, "%31[^=]=%d:%d", link->name, &link->listen_port, &link->target_port) != 3)
		return false;
	if (strlen(from) != strlen(to))
		return false;
	if (from[0]) {
		snprintf(link->from, sizeof(link->from), ":%s", from);
		snprintf(link->to, sizeof(link->to), ":%s", to);
	}
	link->listener = open_listener(link->listen_port);
	return link->listener >= 0;
}

static void turn(int in, int out)
{
	static struct pollfd fds[1 + LINKS_MAX + 2 * CONNECTIONS_MAX];
	static struct connection *polled[CONNECTIONS_MAX];
	int count = connection_count, base = 1 + link_count;

	fds[0] = (struct pollfd){.fd = in, .events = POLLIN};
	for (int i = 0; i < link_count; i++)
		fds[1 + i] = (struct pollfd){.fd = links[i].listener, .events = POLLIN};
	for (int i = 0; i < count; i++) {
		struct connection *at = polled[i] = connections[i];
		bool moves = !at->link->frozen && at->server.fd >= 0;

		fds[base + 2 * i] = (struct pollfd){.fd = moves ? at->client.fd : -1,
		                                    .events = (short)((at->server.out.len < BUFFER_MAX ? POLLIN : 0) |
		                                                      (at->client.out.len ? POLLOUT : 0))};
		fds[base + 2 * i + 1] = (struct pollfd){
			.fd = moves ? at->server.fd : -1,
			.events = (short)((at->client.out.len < BUFFER_MAX && !at->server.connecting ? POLLIN : 0) |
		                          (at->server.out.len || at->server.connecting ? POLLOUT : 0))};
	}
	if (poll(fds, (nfds_t)base + 2 * (nfds_t)count, -1) < 0)
		return;
	for (int i = 0; i < count; i++)
		connection_handle(polled[i], fds[base + 2 * i].revents, fds[base + 2 * i + 1].revents);
	for (int i = 0; i < link_count; i++)
		if (fds[1 + i].revents & POLLIN)
			link_accept(&links[i]);
	if (fds[0].revents & POLLIN)
		commands_read(in, out);
}

int main(int argc, char **argv)
{
	int in, out;

	signal(SIGPIPE, SIG_IGN);
	if (argc < 4 || argc - 3 > LINKS_MAX)
		return 64;
	in = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
	out = open(argv[2], O_RDWR | O_CLOEXEC);
	if (in < 0 || out < 0) {
		perror(argv[1]);
		return 1;
	}
	for (int i = 3; i < argc; i++)
		if (!link_parse(&links[link_count++], argv[i])) {
			fprintf(stderr, "proxy: %s: %s\n", argv[i], strerror(errno));
			return 1;
		}
	dprintf(out, "ready\n");
	for (;;)
		turn(in, out);
}

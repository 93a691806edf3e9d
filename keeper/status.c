/*
 * keeper/status.c - see status.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lease.h"
#include "loop.h"
#include "metrics.h"
#include "resolve.h"
#include "rules.h"
#include "session.h"
#include "zk.h"

/* The loop's. */
static int64_t started_ns;

void zkf_status_init(void)
{
	started_ns = zkf_now_ns();
}

static void send_row(void *context, const char *key, const char *value)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_ROW};
	char row[ZKF_ADDRESSES_BYTES + 200];
	int bytes = snprintf(row, sizeof(row), "%s\t%s", key, value);

	if (bytes >= (int)sizeof(row))
		bytes = (int)sizeof(row) - 1;
	for (int i = (int)strlen(key) + 1; i < bytes; i++)
		if ((unsigned char)row[i] < 0x20 || row[i] == 0x7f)
			row[i] = '?';
	reply.text_bytes = (uint32_t)bytes;
	zkf_server_put(context, &reply, row);
}

static void send_number(struct zkf_conversation *conversation, const char *key, int64_t number)
{
	char value[24];

	snprintf(value, sizeof(value), "%" PRId64, number);
	send_row(conversation, key, value);
}

static void send_session(struct zkf_conversation *conversation)
{
	const struct zkf_config *config = zkf_rules_config();
	char server[64], ensemble[ZKF_ADDRESSES_BYTES];
	bool usable = zkf_session_usable();
	int64_t lease_ns = usable ? zkf_session_deadline_ns() - zkf_now_ns() : 0;

	zkf_zk_server(server);
	snprintf(ensemble, sizeof(ensemble), "%.*s", (int)config->ensemble.len, config->ensemble.ptr);
	send_row(conversation, "state", zkf_session_state_name());
	send_row(conversation, "trouble", usable ? "" : zkf_session_trouble());
	send_row(conversation, "session", zkf_session_host());
	send_row(conversation, "server", server);
	send_row(conversation, "ensemble", ensemble);
	send_row(conversation, "root", zkf_session_root()[0] ? zkf_session_root() : "/");
	send_number(conversation, "lease_ms", lease_ns > 0 ? lease_ns / ZKF_NS_PER_MS : 0);
	send_number(conversation, "session_timeout_ms", zkf_session_timeout_ms());
	send_number(conversation, "session_timeout_configured_ms", config->session_timeout_ms);
	send_number(conversation, "tick_time_ms", config->tick_time_ms);
	send_number(conversation, "lease_full_ms",
	            zkf_lease_deadline_ns(0, zkf_session_timeout_ms(), config->tick_time_ms) / ZKF_NS_PER_MS);
	send_number(conversation, "heartbeat_ms", zkf_lease_period_ms(zkf_session_timeout_ms()));
}

void zkf_status_send(struct zkf_conversation *conversation)
{
	struct zkf_reply end = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_END};

	send_row(conversation, "version", ZKF_VERSION);
	send_number(conversation, "pid", getpid());
	send_number(conversation, "uid", geteuid());
	send_number(conversation, "uptime_s", (zkf_now_ns() - started_ns) / (1000 * ZKF_NS_PER_MS));
	send_session(conversation);
	zkf_metrics_each(send_row, conversation);
	zkf_server_put(conversation, &end, NULL);
}

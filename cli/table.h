/*
 * cli/table.h - the locks of the cluster as rows, and rows as a table or as JSON
 *
 * Answers for: asking with ZKF_OP_LIST, decoding, columns, printing.
 * Threads:     one.
 * Specification: keeper/wire.h; lslocks(8) for the columns that it has; zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CLI_TABLE_H
#define ZKF_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli.h"

/* clang-format off */
enum cli_column {
	CLI_COMMAND, CLI_PID, CLI_TYPE, CLI_SIZE, CLI_MODE, CLI_M, CLI_START, CLI_END, CLI_PATH, /* lslocks(8)'s */
	CLI_LOCK, CLI_HOST, CLI_STATE, CLI_AGE, CLI_BLOCKER,
	CLI_COLUMN_COUNT
};
/* clang-format on */

/* Decoded: any bytes but NUL.  A number that is not known is -1 (pid: 0). */
struct cli_row {
	char *znode; /* the lock's: its name, percent-encoded, perhaps cut; points to the row's one allocation */
	char *lock;  /* the name that the znode stands for; the znode where it was cut */
	const char *type, *mode, *host, *command, *state, *path, *blocker, *claim; /* "-": not known */
	long long start, end, pid, age_ms, size;
};

struct cli_table {
	struct cli_row *rows;
	size_t count, capacity;
};

/* cli_table_fetch - all of the cluster, in queue order.  0, or the exit code after it has said why not. */
int cli_table_fetch(struct cli_table *table, const char *verb);

/* cli_table_keep - only rows of a lock, by its znode, or by a name that encodes to it */
void cli_table_keep(struct cli_table *table, const char *name);

/* How to print. */
struct cli_layout {
	int columns[CLI_COLUMN_COUNT];
	int column_count;
	bool json, headings;
};

/* cli_layout_columns - "lock,PID": 0, or -EINVAL after it has said what is allowed */
int cli_layout_columns(struct cli_layout *layout, const char *list, const char *verb);
/* cli_layout_default - those that fit a terminal; with JSON all */
void cli_layout_default(struct cli_layout *layout);

void cli_table_print(const struct cli_table *table, const struct cli_layout *layout);

void cli_table_free(struct cli_table *table);

#endif

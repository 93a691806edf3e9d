/*
 * keeper/claim_text.h - a claim as text: the znode's name and its data
 *
 * Answers for: the two formats, their writing and reading; also of what other programs put into the same queue.
 * Does not:    decide anything.
 * Threads:     plain functions.
 * Specification: design section 5.  kazoo's Lock and ReadLock: nodes NAME__lock__NNNNNNNNNN, NAME__rlock__NNNNNNNNNN.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Name: what never changes.
 *
 *     <host>-<request>-<n|b><start>-<end>__lock__0000000042       exclusive
 *     <host>-<request>-<n|b><start>-<end>__rlock__0000000042      shared
 *
 *     host     16 hexadecimal digits, the ZooKeeper session
 *     request  hexadecimal, unique in the session: after a lost reply the claim is found again by it
 *     n, b     non-blocking: wants to be told "in use"; blocking: waits anyway
 *     start,end  hexadecimal, the widest range ever; no end: to the end of the file
 *
 * Data: what shrinks or is found out; words separated by spaces, unknown words are kept.
 *
 *     zkf1              the format
 *     r=A-B,C-D  w=A-B  ranges by mode, hexadecimal as above; none of either: nothing
 *     ans=N             the claims up to sequence number N have been seen, and r and w is what is in use since then
 *     ov=NAME,NAME      overtaken by these claims
 *     c=1               granted by overtaking, and confirmed
 *     h=PID:A-B:w,...   the records that are held, as the kernel has them (PID 0: an open file description), as of ans
 *     pid=N comm=TEXT   a process that holds or wants it; comm is percent-encoded
 *     st=held|kept|waiting  for people
 */
#ifndef ZKF_CLAIM_TEXT_H
#define ZKF_CLAIM_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "ranges.h"

#define ZKF_HOST_BYTES 17
#define ZKF_CLAIM_NAME_BYTES 128

/* The name's part. */
struct zkf_claim_id {
	char host[ZKF_HOST_BYTES]; /* "" when foreign */
	bool foreign;              /* another program's node: the whole file, and always taken for in use */
	bool nonblock;
	uint8_t mode;
	uint64_t request;
	int64_t start, end;
	int64_t sequence;
};

/* zkf_claim_name_write - the name without the sequence number, which the server adds; returns its length */
int zkf_claim_name_write(char name[ZKF_CLAIM_NAME_BYTES], const struct zkf_claim_id *id);

/* zkf_claim_name_read - 0, or -EINVAL: not a claim of ours or kazoo's, to be ignored */
int zkf_claim_name_read(struct zkf_claim_id *id, const char *name);

/* The data's part. */
struct zkf_claim_data {
	struct zkf_ranges ranges;
	int64_t answered; /* -1: nobody */
	bool confirmed;
	int32_t pid;
	char state[12];
	char command[64];   /* percent-encoded */
	char *overtaken_by; /* comma-separated names, or NULL */
	char *held;         /* the value of h=, or NULL */
};

/* zkf_held_add - add to the value of h= (NULL: none yet), once; 0 or -ENOMEM (unchanged) */
int zkf_held_add(char **held, int32_t pid, const struct zkf_range *range);

/* zkf_held_conflicting - the first that conflicts; false: none */
bool zkf_held_conflicting(const char *held, int64_t start, int64_t end, uint8_t mode, struct zkf_range *range,
                          int32_t *pid);

void zkf_claim_data_free(struct zkf_claim_data *data);

/* zkf_claim_data_write - allocated text, or NULL when memory is out */
char *zkf_claim_data_write(const struct zkf_claim_data *data);

/*
 * zkf_claim_data_read - data must be zeroed or freed before
 *
 * Returns 0, -ENOMEM, or -EINVAL: not of this format (then data is empty).
 */
int zkf_claim_data_read(struct zkf_claim_data *data, const char *text);

/* zkf_names_find - is name one of the comma-separated names?  names may be NULL */
bool zkf_names_find(const char *names, const char *name);

/* zkf_names_add, zkf_names_remove - replace *names; 0 or -ENOMEM (unchanged).  The empty list is NULL. */
int zkf_names_add(char **names, const char *name);
int zkf_names_remove(char **names, const char *name);

#endif

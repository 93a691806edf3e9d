/*
 * keeper/adopt.h - a new keeper takes over what a former one of the same session had
 *
 * Answers for: opening the files again, finding this host's claims in the queues, deciding which of them are granted.
 * Does not:    ask programs: those that wait connect again.
 * Threads:     the loop's.
 * Specification: design section 8, "The keeper survives its own death".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_ADOPT_H
#define ZKF_ADOPT_H

#include "../mapping/config.h"

/*
 * zkf_adopt_files - know again every file that a former keeper knew and that still can be found
 *
 * By its path, or, if that has changed, by a process that has it open; who is not found is open nowhere, so not locked.
 * Before the session is opened: if that turns out to have expired, on_loss needs to know the files.
 */
void zkf_adopt_files(const struct zkf_config *config);

/*
 * zkf_adopt_blindly - know them without a look at them, for zkf_loss_at_once and nothing else
 *
 * What is on a file system that hangs must keep nobody from stopping the holders of other locks.
 */
void zkf_adopt_blindly(const struct zkf_config *config);

/*
 * zkf_adopt_claims - find the claims of all known locks, now that the session is connected again
 *
 * done  called when each is known to be granted or to wait; until then nothing may be granted
 */
void zkf_adopt_claims(void (*done)(void));

#endif

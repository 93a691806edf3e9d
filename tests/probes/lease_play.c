/*
 * tests/probes/lease_play.c - keeper/lease.h against a leader that counts, played millisecond by millisecond
 *
 *     lease_play [-v TIMEOUT_MS TICK_MS]     -v: show one game second by second
 *
 * The players.  The keeper sends a heartbeat (a write) every P; each is acknowledged at once, until the cut: from then on
 * nothing of this host reaches the leader, or the keeper is stopped, which is the same to the leader.  The follower
 * that the host is connected to tells the leader, every tickTime/2, which sessions it has heard since it last did.  The
 * leader lets a session live for its timeout from then on (and up to a tick more, which is not counted on), and then gives
 * its locks away.
 *
 * For settings from the smallest to the largest, each moment of a cut and each phase of the follower's messages:
 * the deadline comes before the leader gives the locks away, with the time that on_loss=kill takes; and unless the
 * settings leave nothing, a host whose heartbeats are answered never comes near it.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/lease.h"

struct game {
	int64_t timeout, tick, cut, phase; /* ms */
	int64_t deadline, given_away;      /* results, ms */
	int64_t least_left;                /* of the lease, just before it is renewed */
};

static int64_t deadline_of(const struct game *game, int64_t sent)
{
	return zkf_lease_deadline_ns(sent * ZKF_NS_PER_MS, game->timeout, game->tick) / ZKF_NS_PER_MS;
}

static void play(struct game *game, bool show)
{
	int64_t period = zkf_lease_period_ms(game->timeout), told = 0;
	bool heard = true; /* the session's creation */

	game->deadline = deadline_of(game, 0);
	game->least_left = INT64_MAX;
	for (int64_t now = 0; now <= game->cut; now++) {
		/* When both fall together the follower's message has just missed the heartbeat. */
		if ((now + game->phase) % (game->tick / 2) == 0 && heard) {
			told = now;
			heard = false;
		}
		if (now % period == 0) {
			if (now && game->deadline - now < game->least_left)
				game->least_left = game->deadline - now;
			game->deadline = deadline_of(game, now);
			heard = true;
		}
	}
	game->given_away = told + game->timeout;
	if (!show)
		return;
	for (int64_t now = 0; now <= game->given_away + 1000; now += 1000)
		printf("%6.1f s  %s, lease %s, %s\n", (double)now / 1000,
		       now <= game->cut ? "heard" : "cut off or stopped",
		       now < game->deadline ? "valid" : "over: nobody is let in, holders stand still",
		       now < game->given_away ? "locks are ours" : "the leader has given the locks away");
	printf("deadline %.3f s, given away %.3f s\n", (double)game->deadline / 1000, (double)game->given_away / 1000);
}

static bool check(const struct game *game)
{
	int64_t period = zkf_lease_period_ms(game->timeout);

	if (game->deadline + period / 2 < game->given_away && game->least_left > 0)
		return true;
	printf("timeout %lld tick %lld cut %lld phase %lld: deadline %lld, given away %lld, left %lld\n",
	       (long long)game->timeout, (long long)game->tick, (long long)game->cut, (long long)game->phase,
	       (long long)game->deadline, (long long)game->given_away, (long long)game->least_left);
	return false;
}

int main(int argc, char **argv)
{
	static const int64_t timeouts[] = {2000, 4000, 5000, 6000, 10000, 12000, 20000, 30000, 60000};
	static const int64_t ticks[] = {100, 250, 500, 1000, 2000, 3000};
	struct game game;
	long games = 0;

	if (argc == 4 && !strcmp(argv[1], "-v")) {
		game = (struct game){.timeout = atoll(argv[2]), .tick = atoll(argv[3]), .cut = 100};
		play(&game, true);
		return 0;
	}
	for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++)
		for (size_t j = 0; j < sizeof(ticks) / sizeof(ticks[0]); j++) {
			int64_t period = zkf_lease_period_ms(timeouts[i]);

			if (ticks[j] * 2 > timeouts[i]) /* a server grants no session shorter than two ticks */
				continue;
			for (int64_t cut = 4 * period; cut <= 5 * period + 1; cut += 1 + period / 50)
				for (int64_t phase = 0; phase < ticks[j] / 2; phase += 1 + ticks[j] / 60) {
					game = (struct game){
						.timeout = timeouts[i], .tick = ticks[j], .cut = cut, .phase = phase};
					play(&game, false);
					if (!check(&game))
						return 1;
					games++;
				}
		}
	printf("%ld games\n", games);
	return 0;
}

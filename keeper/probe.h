/*
 * keeper/probe.h - USDT probes for bpftrace, perf and systemtap
 *
 * Answers for: the few places worth a probe, where <sys/sdt.h> is there at build time; a no-op instruction each.
 * Specification: zkflockd(8), "PROBES".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_PROBE_H
#define ZKF_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define ZKF_PROBE2(name, a, b) DTRACE_PROBE2(zkflock, name, a, b)
#define ZKF_PROBE3(name, a, b, c) DTRACE_PROBE3(zkflock, name, a, b, c)
#endif
#endif

#ifndef ZKF_PROBE2
#define ZKF_PROBE2(name, a, b) ((void)0)
#define ZKF_PROBE3(name, a, b, c) ((void)0)
#endif

#endif

/*
 * bench/empty.c - a library that does nothing: what preloading itself costs
 * SPDX-License-Identifier: Apache-2.0
 */
int zkf_bench_empty(void);
int zkf_bench_empty(void)
{
	return 0;
}

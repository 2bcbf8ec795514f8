/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "vmm/histogram.h"

double histogram_percentile(const struct histogram *h, double percent)
{
	double wanted = (double)histogram_count(h) * percent / 100, below = 0;
	unsigned last = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double here = (double)h->buckets[i], low = (double)histogram_low(i);

		if (!here)
			continue;
		if (below + here >= wanted)
			/* A bucket is as wide as its least value; the first two hold one value. */
			return i < 2 ? low : low + (low - 1) * (wanted - below) / here;
		below += here;
		last = i;
	}
	return (double)histogram_low(last);
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tables from the JSON of machine_stats.h. They are made from what is there: a machine may run an
 * older or newer whelp than this one.
 */
#include <stdbool.h>

#include "vmm/histogram.h"
#include "vmm/stat.h"
#include "vmm/util.h"

/* Two looks at the same object, and the time between them; see stat_print(). */
struct looks {
	const json_t *now;
	const json_t *before; /* NULL: all of it is new */
	double seconds;	      /* 0: no rates */
};

static struct looks member(const struct looks *looks, const char *name)
{
	return (struct looks){ json_object_get(looks->now, name),
			       json_object_get(looks->before, name), looks->seconds };
}

static struct looks element(const struct looks *looks, size_t index)
{
	return (struct looks){ json_array_get(looks->now, index),
			       json_array_get(looks->before, index), looks->seconds };
}

/* How much a counter grew; one that is less than it was has started anew. */
static double growth(const struct looks *looks, const char *name)
{
	double now = json_number_value(json_object_get(looks->now, name));
	double before = json_number_value(json_object_get(looks->before, name));

	return now < before ? now : now - before;
}

static double rate(const struct looks *looks, const char *name)
{
	double grown = growth(looks, name);

	return looks->seconds > 0 ? grown / looks->seconds : grown;
}

static double ratio(const struct looks *looks, const char *name, const char *of, double scale)
{
	double base = growth(looks, of);

	return base ? growth(looks, name) * scale / base : 0;
}

/* Another user's machine may say anything, and the reader's terminal is not to obey it. */
static const char *printable(const char *said)
{
	for (const char *c = said; said && *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return "?";
	return said ? said : "?";
}

static const char *text(const struct looks *looks, const char *name)
{
	return printable(json_string_value(json_object_get(looks->now, name)));
}

static double number(const struct looks *looks, const char *name)
{
	return json_number_value(json_object_get(looks->now, name));
}

/* ---- NICs ---- */

static void print_queue_heading(FILE *out, bool rates)
{
	fprintf(out, "%-17s %12s %14s %7s %11s %10s %9s %9s\n", "", rates ? "packets/s" : "packets",
		rates ? "bytes/s" : "bytes", "batch", "kicks/1000", "intr/1000", "dropped",
		"waits");
}

static void print_queue(FILE *out, const char *name, const struct looks *queue)
{
	fprintf(out, "%-17s %12.0f %14.0f %7.1f %11.1f %10.1f %9.0f %9.0f\n", name,
		rate(queue, "packets"), rate(queue, "bytes"),
		ratio(queue, "packets", "batches", 1), ratio(queue, "kicks", "packets", 1000),
		ratio(queue, "interrupts", "packets", 1000), growth(queue, "dropped"),
		growth(queue, "waits"));
}

static const char *const directions[] = { "rx", "tx" };

static void print_directions(FILE *out, const char *prefix, const struct looks *looks)
{
	for (unsigned i = 0; i < ARRAY_SIZE(directions); i++) {
		struct looks queue = member(looks, directions[i]);
		char name[32];

		snprintf(name, sizeof(name), "%.20s %s", prefix, directions[i]);
		print_queue(out, name, &queue);
	}
}

/* Adds one look's buckets, or takes them away again. */
static void add_buckets(struct histogram *h, const json_t *object, bool away)
{
	const json_t *buckets = json_object_get(object, "buckets"), *bucket;
	size_t i;

	json_array_foreach(buckets, i, bucket) {
		uint64_t low = (uint64_t)json_integer_value(json_array_get(bucket, 0));
		uint64_t count = (uint64_t)json_integer_value(json_array_get(bucket, 1));
		uint64_t *sum = &h->buckets[histogram_bucket(low)];

		*sum = !away ? *sum + count : *sum - MIN(count, *sum);
	}
}

/* What came in between. */
static struct histogram histogram(const struct looks *looks, const char *name)
{
	struct histogram h = { 0 };

	add_buckets(&h, json_object_get(looks->now, name), false);
	add_buckets(&h, json_object_get(looks->before, name), true);
	return h;
}

static void print_percentiles(FILE *out, const struct looks *queue, const char *name, double unit)
{
	const struct histogram h = histogram(queue, name);

	if (histogram_count(&h))
		fprintf(out, " %8.1f %8.1f", histogram_percentile(&h, 50) / unit,
			histogram_percentile(&h, 99) / unit);
	else
		fprintf(out, " %8s %8s", "-", "-");
}

/* How it went: sizes and times as "half are below" and "99 of 100 are below". */
static void print_details(FILE *out, const struct looks *nic)
{
	fprintf(out, "%-17s %17s %17s %17s %9s %15s %15s\n", "", "batch: half 99%",
		"kick to tap, us", "tap to used, us", "ring full", "timers (empty)",
		"polls (missed)");
	for (unsigned i = 0; i < ARRAY_SIZE(directions); i++) {
		struct looks queue = member(nic, directions[i]);
		double timers = growth(&queue, "timers_empty");
		double polls = growth(&queue, "polls_missed");
		char text[2][32];

		snprintf(text[0], sizeof(text[0]), "%.0f (%.0f)",
			 timers + growth(&queue, "timers_useful"), timers);
		snprintf(text[1], sizeof(text[1]), "%.0f (%.0f)",
			 polls + growth(&queue, "polls_hit"), polls);
		fprintf(out, " %-16s", directions[i]);
		print_percentiles(out, &queue, "batch_sizes", 1);
		print_percentiles(out, &queue, "kick_to_tap", 1000);
		print_percentiles(out, &queue, "tap_to_used", 1000);
		fprintf(out, " %9.0f %15s %15s\n", growth(&queue, "ring_full"), text[0], text[1]);
	}
}

/* By cause; nothing is said of what did not happen. */
static void print_drops(FILE *out, const struct looks *nic)
{
	for (unsigned i = 0; i < ARRAY_SIZE(directions); i++) {
		struct looks queue = member(nic, directions[i]), drops = member(&queue, "drops");
		const char *cause;
		json_t *value;

		json_object_foreach((json_t *)drops.now, cause, value)
			if (growth(&drops, cause))
				fprintf(out, " %s dropped: %s %.0f\n", directions[i],
					printable(cause), growth(&drops, cause));
	}
}

static void print_nic(FILE *out, const struct looks *nic)
{
	struct looks pairs = member(nic, "pairs");
	size_t count = json_array_size(pairs.now);
	char name[32];

	fprintf(out, "\n%s on %s\n", text(nic, "name"), text(nic, "backend"));
	if (json_is_true(json_object_get(nic->now, "vhost"))) {
		fputs(" its frames are the kernel's vhost-net's, which does not count them\n", out);
		return;
	}
	print_queue_heading(out, nic->seconds > 0);
	print_directions(out, "", nic);
	for (size_t i = 0; count > 1 && i < count; i++) {
		struct looks pair = element(&pairs, i);

		snprintf(name, sizeof(name), "  pair %zu", i);
		print_directions(out, name, &pair);
	}
	print_details(out, nic);
	print_drops(out, nic);
}

/* ---- CPUs ---- */

/* What KVM counts and people ask for first; --json has all of it. */
static const char *const kvm_counters[] = {
	"exits",	"halt_exits",	  "irq_exits",	"irq_window_exits", "signal_exits",
	"request_irq_exits", "insn_emulation", "hypercalls", "irq_injections",
};

/* "NAME N" for one that grew; returns whether it did. */
static bool print_counter(FILE *out, const struct looks *looks, const char *name, bool first)
{
	if (!growth(looks, name))
		return false;
	fprintf(out, "%s%s %.0f", first ? "" : ", ", printable(name), rate(looks, name));
	return true;
}

static double sum(const struct looks *looks)
{
	const char *name;
	json_t *value;
	double total = 0;

	json_object_foreach((json_t *)looks->now, name, value)
		total += rate(looks, name);
	return total;
}

static void print_all(FILE *out, const char *prefix, const struct looks *looks)
{
	const char *name;
	json_t *value;
	bool first = true;

	fputs(prefix, out);
	json_object_foreach((json_t *)looks->now, name, value)
		first &= !print_counter(out, looks, name, first);
	fputs(first ? "none\n" : "\n", out);
}

static void print_kvm(FILE *out, const struct looks *kvm)
{
	bool first = true;

	if (!json_is_object(kvm->now))
		return;
	fputs("          in KVM: ", out);
	for (unsigned i = 0; i < ARRAY_SIZE(kvm_counters); i++)
		first &= !print_counter(out, kvm, kvm_counters[i], first);
	fputs(first ? "none\n" : "\n", out);
}

static void print_cpu(FILE *out, size_t index, const struct looks *cpu)
{
	struct looks exits = member(cpu, "exits"), devices = member(cpu, "devices");
	struct looks kvm = member(cpu, "kvm");
	char title[64];

	snprintf(title, sizeof(title), "cpu%-4zu %8.0f exits%s: ", index, sum(&exits),
		 cpu->seconds > 0 ? "/s" : "");
	print_all(out, title, &exits);
	print_all(out, "          devices: ", &devices);
	print_kvm(out, &kvm);
}

/* ---- machines ---- */

void stat_print(FILE *out, const json_t *now, const json_t *before, double seconds)
{
	const struct looks machine = { now, before, seconds };
	struct looks nics = member(&machine, "nics"), cpus = member(&machine, "cpus");

	fprintf(out, "%s: process %.0f, up %.0f s, boot %.0f\n", text(&machine, "machine"),
		number(&machine, "pid"), number(&machine, "up"), number(&machine, "boots"));
	for (size_t i = 0; i < json_array_size(nics.now); i++) {
		struct looks nic = element(&nics, i);

		print_nic(out, &nic);
	}
	fputc('\n', out);
	for (size_t i = 0; i < json_array_size(cpus.now); i++) {
		struct looks cpu = element(&cpus, i);

		print_cpu(out, i, &cpu);
	}
}

void stat_print_heading(FILE *out)
{
	fprintf(out, "%-32s %8s %10s %5s  %s\n", "NAME", "PID", "UP", "CPUS", "NICS");
}

void stat_print_row(FILE *out, const char *name, pid_t pid, const json_t *object)
{
	const struct looks machine = { object, NULL, 0 };
	struct looks nics = member(&machine, "nics");

	fprintf(out, "%-32s %8ld ", name, (long)pid);
	if (!object) {
		fputs("does not answer\n", out);
		return;
	}
	fprintf(out, "%8.0f s %5zu  ", number(&machine, "up"),
		json_array_size(json_object_get(object, "cpus")));
	for (size_t i = 0; i < json_array_size(nics.now); i++) {
		struct looks nic = element(&nics, i);

		fprintf(out, "%s%s", i ? "," : "", text(&nic, "backend"));
	}
	fputs(json_array_size(nics.now) ? "\n" : "-\n", out);
}
